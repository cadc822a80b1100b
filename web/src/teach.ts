// The home screen: class tree, map and list of examples, tray, what changed.

import { changesPanel } from "./changes";
import { fill, h, number } from "./dom";
import { gallery } from "./gallery";
import { mapPanel } from "./map";
import { app, EVERYTHING, on, setFilter } from "./store";
import { trayPanel } from "./tray";
import { treePanel } from "./tree";
import type { Screen } from "./main";

const ORDERS: [string, string][] = [
  ["strangest", "strangest first"],
  ["least-sure", "least sure first"],
  ["newest", "newest first"],
  ["id", "by name"],
];

export function teachScreen(root: HTMLElement): Screen {
  const tree = treePanel();
  const map = mapPanel();
  const tray = trayPanel();
  const changes = changesPanel(() => void tray.teach());
  const order = h("select", { "aria-label": "Order" }, ...ORDERS.map(([value, name]) => h("option", { value }, name)));
  const search = h("input", { type: "search", placeholder: "Find by name or text", "aria-label": "Find by name or text" });
  const only = (): string => {
    const { classes } = app.filter;
    if (!classes || !app.state) return "";
    return [...classes].map((c) => app.state!.classes[c]?.name).filter(Boolean).slice(0, 100).join("\n");
  };

  const list = gallery({
    label: "Examples",
    empty: "No example is like that.",
    query: () => ({
      class: only(),
      none: app.filter.none,
      text: search.value.trim(),
      order: order.value,
      split: "pool",
    }),
  });
  const head = h("div", { class: "filter-line" });
  let shows: "map" | "list" = app.state && app.state.counts.examples > 0 && innerWidth > 700 ? "map" : "list";
  const listHead = h("div", { class: "list-head" }, search, order);
  const middle = h("section", { class: "panel middle", "aria-labelledby": "middle-title" });

  const tabs = h("div", { class: "segments", role: "group", "aria-label": "Show examples as" });
  const draw = (): void => {
    fill(
      tabs,
      ...(["map", "list"] as const).map((each) =>
        h("button", { "aria-pressed": String(shows === each), onclick: () => show(each) }, each === "map" ? "Map" : "List"),
      ),
    );
    map.element.hidden = shows !== "map";
    list.element.hidden = listHead.hidden = shows !== "list";
    const { title, none, classes } = app.filter;
    const noneCount = app.state?.counts.none ?? 0;
    fill(
      head,
      h(
        "button",
        {
          class: "chip",
          "aria-pressed": String(none),
          onclick: () => setFilter(none ? EVERYTHING : { classes: null, title: "none of these", none: true }),
        },
        h("span", { class: "ring" }),
        `None of these: ${number(noneCount)}`,
      ),
      (classes || none) &&
        h(
          "span",
          { class: "chip on" },
          `Only ${title}`,
          h("button", { class: "plain", "aria-label": "Show everything", onclick: () => setFilter(EVERYTHING) }, "×"),
        ),
      classes?.size === 1 && h("a", { href: `#/class/${encodeURIComponent(title)}` }, "Open class"),
      shows === "map" && h("span", { class: "legend soft small" }, "Colour: answer. Paler: less sure. Light centre: taught. Square: tests."),
    );
  };
  const show = (to: "map" | "list"): void => {
    shows = to;
    draw();
    if (to === "list") list.reload();
  };
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = window.setTimeout(list.reload, 200);
  });
  order.addEventListener("change", list.reload);
  fill(
    middle,
    h("div", { class: "panel-head" }, h("h2", { id: "middle-title" }, "Examples"), tabs),
    head,
    listHead,
    map.element,
    list.element,
  );
  fill(root, h("h1", { class: "unseen" }, "Teach"), h("div", { class: "teach" }, tree.element, middle, h("div", { class: "side" }, tray.element, changes.element)));
  let seen = "";
  const follow = (): void => {
    draw();
    const key = `${app.state?.version}-${app.state?.counts.examples}-${app.state?.counts.none}`;
    if (key !== seen && shows === "list") list.reload();
    seen = key;
  };
  const off = [
    on("filter", () => {
      draw();
      if (shows === "list") list.reload();
    }),
    on("state", follow),
  ];
  draw();
  return {
    title: "Teach",
    stop: () => {
      [tree, map, tray, changes, list].forEach((each) => each.stop());
      off.forEach((each) => each());
    },
    key: (event) => {
      if (event.key === "/") document.getElementById("class-name")?.focus();
      else if (event.key === "Escape") setFilter(EVERYTHING);
      else return false;
      return true;
    },
  };
}
