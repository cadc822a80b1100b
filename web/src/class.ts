// One class: what it was learnt from, what it is given to, its neighbours in the tree; rename, merge, remove, forget.

import { api } from "./api";
import { confirmMerge, sure } from "./dialogs";
import { count, fill, h, say } from "./dom";
import { gallery } from "./gallery";
import type { Screen } from "./main";
import { app, change, colour, on } from "./store";
import { rename } from "./tree";
import type { Example, State } from "./types";

export function classScreen(root: HTMLElement, name: string): Screen {
  const head = h("div", {});
  const taught = gallery({ label: "Taught examples", empty: "The project holds none of the examples that it was learnt from.", query: () => ({ class: name, split: "taught", order: "newest" }), act: (example) => void forget(example) });
  const pool = gallery({ label: "Answers", empty: "No example is given this answer.", query: () => ({ class: name, split: "pool", order: "least-sure" }) });
  fill(
    root,
    h(
      "div",
      { class: "page" },
      head,
      h("h2", {}, "Answers, least sure first"),
      h("p", { class: "soft" }, "Click those that are wrong or telling: they go to the tray."),
      pool.element,
      h("h2", {}, "Taught"),
      !app.state?.read_only && h("p", { class: "soft" }, "Click one to have it forgotten for good."),
      taught.element,
    ),
  );

  const draw = (): void => {
    const state = app.state!;
    const c = state.classes.findIndex((each) => each.name === name);
    if (c < 0) {
      fill(head, h("h1", {}, name), h("p", {}, "There is no class of this name now. ", h("a", { href: "#/teach" }, "To all classes")));
      return;
    }
    const info = state.classes[c];
    const near = siblings(state, c);
    const other = h("select", { "aria-label": "Merge into" }, h("option", { value: "" }, "Merge into …"), ...near.concat(rest(state, c, near)).slice(0, 2000).map((each) => h("option", { value: each }, each)));
    other.addEventListener("change", () => {
      if (other.value) void confirmMerge([name, other.value]).then(() => leaveIfGone());
      other.value = "";
    });
    fill(
      head,
      h(
        "div",
        { class: "screen-head" },
        h("h1", {}, h("span", { class: "dot", style: { background: colour(c) } }), name),
        !state.read_only &&
          h("div", { class: "row wrap" }, h("button", { onclick: () => void renamed() }, "Rename"), other, h("button", { onclick: () => void remove(info.session === 0) }, "Remove")),
      ),
      h(
        "p",
        { class: "lead" },
        `Learnt from ${count(info.taught, "example")}; the answer to ${count(info.answers, "example")}. ${info.session === 0 ? "It was there from the beginning." : "It was taught later."}`,
      ),
      near.length > 0 &&
        h("p", {}, "Beside it in the tree: ", ...near.slice(0, 6).flatMap((each, i) => [i ? ", " : "", h("a", { href: `#/class/${encodeURIComponent(each)}` }, each)]), near.length > 6 ? " …" : ""),
    );
  };

  const leaveIfGone = (): void => {
    if (!app.state!.classes.some((each) => each.name === name)) location.hash = "#/teach";
  };
  const renamed = async (): Promise<void> => {
    const before = new Set(app.state!.classes.map((each) => each.name));
    await rename(name);
    const now = app.state!.classes.find((each) => !before.has(each.name));
    if (now) location.hash = `#/class/${encodeURIComponent(now.name)}`;
  };
  const remove = async (base: boolean): Promise<void> => {
    const lines = [`“${name}” is no longer an answer.`, "You can take this back."];
    if (base) lines.splice(1, 0, "It was there from the beginning: the model keeps its examples as what the others are not.");
    if (await sure("Remove a class", lines, "Remove")) {
      await change(() => api.remove(app.state!.version, [name]));
      leaveIfGone();
    }
  };

  // Also for the case that somebody asks for it: the example leaves the model, the project and every older version.
  const forget = async (example: Example): Promise<void> => {
    const state = app.state!;
    if (state.read_only) return;
    const last = state.classes.find((each) => each.name === name)?.taught === 1;
    const lines = [
      `${example.id} leaves the model, this project and every older version, as if it had never been there.`,
      "This cannot be taken back. Files outside the project stay where they are.",
    ];
    if (last) lines.push(`It is the last example of “${name}”: the class goes with it.`);
    if (await sure("Forget an example", lines, "Forget for good", true)) {
      if (await change(() => api.forget(state.version, example, last))) app.tray.delete(example.id);
      leaveIfGone();
    }
  };

  let seen = app.state?.version;
  const off = on("state", () => {
    draw();
    if (app.state?.version !== seen) {
      taught.reload();
      pool.reload();
    }
    seen = app.state?.version;
  });
  draw();
  say(name);
  return {
    title: name,
    stop: () => {
      off();
      taught.stop();
      pool.stop();
    },
    key: (event) => {
      if (event.key !== "F2") return false;
      void renamed();
      return true;
    },
  };
}

// Classes of the smallest sub-tree that holds the class and others.
function siblings(state: State, c: number): string[] {
  const { order, lo, hi } = state.tree!;
  const at = order.indexOf(c);
  let best: [number, number] | null = null;
  for (let v = 0; v < lo.length; v += 1) {
    if (lo[v] <= at && at < hi[v] && (!best || hi[v] - lo[v] < best[1] - best[0])) best = [lo[v], hi[v]];
  }
  return best ? order.slice(best[0], best[1]).filter((k) => k !== c).map((k) => state.classes[k].name) : [];
}

const rest = (state: State, c: number, near: string[]): string[] => {
  const known = new Set(near);
  return state.classes.filter((each, i) => i !== c && !known.has(each.name)).map((each) => each.name);
};
