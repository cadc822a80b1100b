// The tray: chosen examples, the name of their class, preview and teach.

import { api } from "./api";
import { count, fill, h, toast } from "./dom";
import { picture } from "./map";
import { app, change, lessons, on, tell, toggle } from "./store";

export function trayPanel(): { element: HTMLElement; stop: () => void; teach: () => Promise<void> } {
  const name = h("input", {
    type: "text",
    id: "class-name",
    list: "class-names",
    autocomplete: "off",
    maxlength: 200,
    placeholder: "a new class, or one it knows",
  });
  const names = h("datalist", { id: "class-names" });
  const note = h("input", { type: "text", id: "note", maxlength: 500, placeholder: "optional, for the history" });
  const items = h("ul", { class: "tray-items" });
  const hint = h("p", { class: "soft small hint" });
  const file = h("input", { type: "file", multiple: true, accept: "image/*", class: "unseen", id: "files", tabindex: -1, "aria-label": "Pictures to add" });
  const preview = h("button", { onclick: () => void run(true) }, "Preview");
  const go = h("button", { class: "primary", onclick: () => void run(false) }, "Teach ", h("kbd", {}, "↵"));
  const uploadButton = h("button", { class: "plain", onclick: () => file.click() }, "Add pictures …");
  const clear = h("button", { class: "plain", onclick: () => (app.tray.clear(), tell("tray")) }, "Empty the tray");
  const element = h(
    "section",
    { class: "panel tray", "aria-labelledby": "tray-title" },
    h("div", { class: "panel-head" }, h("h2", { id: "tray-title" }, "Teach"), clear),
    items,
    hint,
    file,
    uploadButton,
    h("label", { for: "class-name" }, "These are examples of"),
    name,
    names,
    h("details", {}, h("summary", { class: "small" }, "Note"), h("label", { for: "note", class: "unseen" }, "Note"), note),
    h("div", { class: "row" }, preview, go),
  );

  const run = async (isPreview: boolean): Promise<void> => {
    const label = name.value.trim();
    if (!app.tray.size) return toast("Choose examples first: click them on the map or in the list.", true);
    if (!label) {
      name.focus();
      return toast("Name the class that these examples belong to.", true);
    }
    const version = app.state!.version;
    const done = await change(
      () => (isPreview ? api.preview(version, lessons(label)) : api.teach(version, lessons(label), note.value.trim())),
      isPreview,
    );
    if (done && !isPreview) {
      app.tray.clear();
      name.value = note.value = "";
      tell("tray");
    }
  };

  name.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    void run(event.shiftKey);
  });

  const upload = async (files: File[]): Promise<void> => {
    const pictures = files.filter((each) => each.size);
    if (!pictures.length) return;
    element.classList.add("waiting");
    try {
      const { examples, failed } = await api.upload(pictures);
      for (const example of examples) toggle(example, true);
      if (failed.length) toast(`${count(failed.length, "file")} left out; first ${failed[0].name}: ${failed[0].reason}.`, true);
      else toast(`${count(examples.length, "picture")} added.`);
    } catch (error) {
      toast((error as Error).message, true);
    } finally {
      element.classList.remove("waiting");
      file.value = "";
    }
  };
  file.addEventListener("change", () => void upload([...(file.files ?? [])]));
  element.addEventListener("dragover", (event) => {
    event.preventDefault();
    element.classList.add("over");
  });
  element.addEventListener("dragleave", () => element.classList.remove("over"));
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    element.classList.remove("over");
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length && app.state?.project?.uploads) void upload(files);
  });

  const draw = (): void => {
    const state = app.state;
    const off = !state || state.read_only || state.state !== "ready" || app.busy;
    fill(
      items,
      ...[...app.tray.values()].map((example) =>
        h(
          "li",
          { title: example.id },
          picture(example),
          h("button", { class: "remove", "aria-label": `Put back ${example.id}`, onclick: () => toggle(example, false) }, "×"),
        ),
      ),
    );
    clear.hidden = app.tray.size === 0;
    hint.textContent = app.tray.size
      ? `${count(app.tray.size, "example")} chosen`
      : state?.read_only
        ? "The studio was opened to read only."
        : `Choose examples on the map or in the list${state?.project?.uploads ? ", or drop pictures here" : ""}. Five are enough for a class.`;
    uploadButton.hidden = !state?.project?.uploads || state.read_only;
    for (const button of [preview, go, uploadButton]) button.disabled = off;
    name.disabled = note.disabled = Boolean(state?.read_only);
    element.classList.toggle("waiting", app.busy);
  };
  const drawNames = (): void => {
    draw();
    fill(names, ...(app.state?.classes ?? []).slice(0, 2000).map((each) => h("option", { value: each.name })));
  };
  const offs = [on("tray", draw), on("state", drawNames)];
  drawNames();
  return { element, stop: () => offs.forEach((each) => each()), teach: () => run(false) };
}
