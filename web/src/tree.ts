// The class tree as an icicle: the root on the left, classes on the right. A sub-tree is an interval of the leaf order, so
// that any number of classes is laid out by arithmetic; what would be too small to see is drawn when one goes there.

import { api } from "./api";
import { ask, confirmMerge } from "./dialogs";
import { count, fill, h, number } from "./dom";
import { app, change, colour, EVERYTHING, on, setFilter } from "./store";
import type { State, Tree } from "./types";

const LEAF = 26; // pixels: a row that can be read
const LEAST = 3; // pixels: a row that can be seen
const COLUMNS = 9;

interface Block {
  lo: number;
  hi: number;
  depth: number;
  node: number; // −1: a leaf
}

export function treePanel(): { element: HTMLElement; stop: () => void } {
  const box = h("div", { class: "icicle", role: "tree", "aria-label": "Class tree" });
  const crumbs = h("div", { class: "crumbs" });
  const element = h(
    "section",
    { class: "panel tree-panel", "aria-labelledby": "tree-title" },
    h("div", { class: "panel-head" }, h("h2", { id: "tree-title" }, "Class tree"), crumbs),
    box,
  );
  let root: [number, number] | null = null; // the interval that is shown
  let focused = "";

  const draw = (): void => {
    const state = app.state;
    if (!state?.tree) {
      fill(box, h("p", { class: "soft" }, "No class yet: choose examples of one, and name it."));
      return;
    }
    const n = state.tree.order.length;
    if (root && root[1] > n) root = null;
    const [lo, hi] = root ?? [0, n];
    const room = Math.max(box.clientHeight, 240);
    const pitch = Math.min(Math.max(room / (hi - lo), Math.min(LEAF, LEAST)), 44);
    const row = hi - lo <= room / LEAF || hi - lo <= 60 ? Math.max(pitch, LEAF) : pitch;
    const shown = blocks(state.tree, lo, hi, row);
    const deepest = Math.max(...shown.map((block) => block.depth));
    const width = box.clientWidth || 280;
    const column = Math.min(36, Math.max(8, (width - 130) / Math.max(deepest, 1)));
    const newest = Math.max(...state.classes.map((c) => c.session));
    const items = shown.map((block) => item(state, block, lo, row, column, newest));
    fill(box, h("div", { class: "blocks", role: "presentation", style: { height: `${(hi - lo) * row}px` } }, ...items));
    const at = items.find((each) => each.dataset.block === focused) ?? items[0];
    if (at) at.tabIndex = 0;
    fill(
      crumbs,
      root && h("button", { class: "plain", onclick: () => show(null) }, "‹ All classes"),
      h("span", { class: "soft" }, root ? `· ${number(hi - lo)}` : count(hi - lo, "class", "classes")),
    );
  };

  const show = (interval: [number, number] | null): void => {
    root = interval;
    focused = "";
    setFilter(interval ? within(app.state!, interval[0], interval[1]) : EVERYTHING); // which draws
  };

  const item = (
    state: State,
    block: Block,
    first: number,
    row: number,
    column: number,
    newest: number,
  ): HTMLElement => {
    const size = block.hi - block.lo;
    const tall = size * row;
    const isLeaf = block.node < 0;
    const c = state.tree!.order[block.lo];
    const info = state.classes[c];
    const members = isLeaf ? info.answers : 0;
    const isNew = isLeaf && info.session > 0 && info.session === newest;
    const rest = !isLeaf && block.depth === COLUMNS; // not split further
    const whole = isLeaf || rest;
    const style: Record<string, string> = {
      top: `${(block.lo - first) * row}px`,
      height: `${Math.max(tall - 2, 1)}px`,
      left: `${block.depth * column}px`,
    };
    if (whole) style.right = "0";
    else style.width = `${column - 2}px`;
    const name = isLeaf ? info.name : count(size, "class", "classes");
    const label = isLeaf
      ? `${info.name}, ${count(members, "answer")}, learnt from ${count(info.taught, "example")}${isNew ? ", new" : ""}`
      : `${name}, among them ${state.tree!.order.slice(block.lo, block.lo + 3).map((k) => state.classes[k].name).join(", ")}`;
    const chosen = isLeaf && app.filter.classes?.size === 1 && app.filter.classes.has(c);
    const element = h(
      "div",
      {
        class: `block${isLeaf ? " leaf" : ""}${isNew ? " new" : ""}${rest ? " rest" : ""}${chosen ? " chosen" : ""}`,
        role: "treeitem",
        "aria-label": whole && tall >= 16 ? null : label,
        "aria-level": block.depth + 1,
        "aria-expanded": isLeaf ? null : String(!rest),
        "aria-selected": String(Boolean(chosen)),
        title: isLeaf ? label : null,
        tabindex: -1,
        style,
        "data-block": `${block.lo}-${block.hi}`,
        "data-class": isLeaf ? info.name : null,
        draggable: isLeaf ? "true" : null,
      },
      isLeaf && tall >= 16 && h("span", { class: "dot", style: { background: colour(c) } }),
      whole && tall >= 16 && h("span", { class: "name" }, name),
      isLeaf && tall >= 16 && isNew && h("span", { class: "tag" }, "new"),
      isLeaf && tall >= 16 && h("span", { class: "count" }, number(members)),
      isLeaf && tall >= 16 && h("span", { class: "unseen" }, ` answers, learnt from ${count(info.taught, "example")}`),
    );
    const choose = (): void => {
      focused = `${block.lo}-${block.hi}`;
      if (isLeaf) setFilter(chosen ? EVERYTHING : within(state, block.lo, block.hi));
      else if (tall / size < LEAF && size > 1) show([block.lo, block.hi]);
      else setFilter(within(state, block.lo, block.hi));
    };
    element.addEventListener("click", choose);
    element.addEventListener("dblclick", () => isLeaf && (location.hash = `#/class/${encodeURIComponent(info.name)}`));
    element.addEventListener("dragstart", (event) => event.dataTransfer?.setData("text/x-class", info.name));
    element.addEventListener("dragover", (event) => {
      if (isLeaf && event.dataTransfer?.types.includes("text/x-class")) event.preventDefault();
    });
    element.addEventListener("drop", (event) => {
      const other = event.dataTransfer?.getData("text/x-class");
      if (isLeaf && other && other !== info.name) void confirmMerge([other, info.name]);
    });
    element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") choose();
      else if (event.key === "F2" && isLeaf) void rename(info.name);
      else if (event.key === "Escape") show(null);
      else return move(event, element);
      event.preventDefault();
    });
    element.addEventListener("focus", () => (focused = element.dataset.block!));
    return element;
  };

  const move = (event: KeyboardEvent, from: HTMLElement): void => {
    const items = [...box.querySelectorAll<HTMLElement>(".block")];
    const at = items.indexOf(from);
    const level = Number(from.getAttribute("aria-level"));
    const steps: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 };
    let to = steps[event.key];
    if (event.key === "ArrowRight") to = at + 1;
    if (event.key === "ArrowLeft") {
      to = at - 1;
      while (to > 0 && Number(items[to].getAttribute("aria-level")) >= level) to -= 1;
      if (at === 0 && root) return show(null);
    }
    if (to === undefined || !items[to]) return;
    event.preventDefault();
    from.tabIndex = -1;
    items[to].tabIndex = 0;
    items[to].focus();
  };

  const size = new ResizeObserver(draw); // first when it is on the page
  size.observe(element);
  const off = [on("state", draw), on("filter", draw)];
  return {
    element,
    stop: () => {
      size.disconnect();
      off.forEach((each) => each());
    },
  };
}

// The blocks of the interval, depth first, down to what can be seen.
function blocks(tree: Tree, lo: number, hi: number, row: number): Block[] {
  const top = new Map<string, number>();
  for (let v = 0; v < tree.lo.length; v += 1) top.set(`${tree.lo[v]}-${tree.hi[v]}`, v);
  const found: Block[] = [];
  const waiting: Block[] = [{ lo, hi, depth: 0, node: hi - lo > 1 ? top.get(`${lo}-${hi}`)! : -1 }];
  while (waiting.length) {
    const block = waiting.pop()!;
    found.push(block);
    if (block.node < 0 || block.depth >= COLUMNS) continue;
    const mid = tree.mid[block.node];
    const right = block.node + (mid - block.lo); // the left sub-tree fills the rows after its own
    const sides: Block[] = [
      { lo: mid, hi: block.hi, depth: block.depth + 1, node: block.hi - mid > 1 ? right : -1 },
      { lo: block.lo, hi: mid, depth: block.depth + 1, node: mid - block.lo > 1 ? block.node + 1 : -1 },
    ];
    for (const side of sides) if ((side.hi - side.lo) * row >= LEAST) waiting.push(side);
  }
  return found;
}

function within(state: State, lo: number, hi: number) {
  const classes = new Set(state.tree!.order.slice(lo, hi));
  const [first] = classes;
  return { classes, title: hi - lo === 1 ? state.classes[first].name : count(hi - lo, "class", "classes"), none: false };
}

export async function rename(name: string): Promise<void> {
  if (app.state?.read_only) return;
  const to = await ask("Rename a class", `A new name for “${name}”. Nothing is learnt again.`, name, "Rename");
  if (to && to !== name) await change(() => api.rename(app.state!.version, name, to));
}
