// Questions to the person, as modal dialogs.

import { api } from "./api";
import { fill, h } from "./dom";
import { app, change } from "./store";

function open(title: string, content: (close: (value: string | null) => void) => Node[]): Promise<string | null> {
  return new Promise((resolve) => {
    const before = document.activeElement as HTMLElement | null;
    const dialog = h("dialog", { "aria-label": title });
    const close = (value: string | null): void => {
      dialog.close();
      dialog.remove();
      before?.focus();
      resolve(value);
    };
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      close(null);
    });
    fill(dialog, h("h2", {}, title), ...content(close));
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function ask(title: string, text: string, value: string, action: string): Promise<string | null> {
  return open(title, (close) => {
    const field = h("input", { type: "text", value, "aria-label": title, maxlength: 200 });
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault(); // else the button that gets the focus back would be pressed
      close(field.value.trim());
    });
    setTimeout(() => field.select());
    return [
      h("p", {}, text),
      field,
      buttons(action, () => close(field.value.trim()), () => close(null)),
    ];
  });
}

export async function sure(title: string, lines: string[], action: string, danger = false): Promise<boolean> {
  const answer = await open(title, (close) => [
    ...lines.map((line) => h("p", {}, line)),
    buttons(action, () => close("yes"), () => close(null), danger),
  ]);
  return answer === "yes";
}

function buttons(action: string, yes: () => void, no: () => void, danger = false): HTMLElement {
  const go = h("button", { class: danger ? "primary danger" : "primary", onclick: yes }, action);
  return h("div", { class: "row end" }, h("button", { onclick: no }, "Leave it"), go);
}

export async function confirmMerge(labels: string[]): Promise<void> {
  if (app.state?.read_only) return;
  const into = labels[1];
  const lines = [`“${labels[0]}” and “${into}” become one class, “${into}”.`, "You can take this back."];
  if (await sure("Merge two classes", lines, "Merge")) {
    await change(() => api.merge(app.state!.version, labels, into));
  }
}

export function keys(): void {
  const table: [string, string][] = [
    ["t q y h", "Teach, Queue, Quality, History"],
    ["z", "take the last change back"],
    ["/", "to the name of the class"],
    ["Enter", "in the name: teach; with Shift: preview"],
    ["arrows", "in tree, map and examples: move; Space chooses"],
    ["+ − 0", "in the map: nearer, farther, all of it"],
    ["l", "in the map: draw a loop around examples"],
    ["F2", "in the tree: rename a class"],
    ["Esc", "show everything again"],
  ];
  void open("Keys", (close) => [
    h("dl", { class: "keys" }, ...table.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("div", { class: "row end" }, h("button", { class: "primary", onclick: () => close(null) }, "Close")),
  ]);
}
