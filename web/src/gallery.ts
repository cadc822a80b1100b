// Examples as a list to choose from: the map's twin, in an order.

import { api } from "./api";
import type { Query } from "./api";
import { fill, h, number, percent, toast } from "./dom";
import { picture, shorten } from "./map";
import { app, NONE, on, toggle } from "./store";
import type { Example } from "./types";

const PAGE = 60;

export interface GallerySettings {
  query: () => Query;
  label: string;
  empty: string;
  act?: (example: Example) => void; // in place of putting it into the tray
}

export function gallery(settings: GallerySettings): { element: HTMLElement; reload: () => void; stop: () => void } {
  const list = h("div", {
    class: "gallery",
    role: "listbox",
    "aria-multiselectable": "true",
    "aria-label": settings.label,
    tabindex: 0,
  });
  const more = h("button", { class: "more", hidden: true, onclick: () => void load(next) }, "More");
  const total = h("p", { class: "soft small" });
  const element = h("div", { class: "gallery-box" }, list, more, total);
  let next: number | null = null;
  let shown: Example[] = [];
  let turn = 0;

  const act = settings.act ?? ((example: Example): void => toggle(example));

  const load = async (after: number | null): Promise<void> => {
    const mine = (turn += 1);
    if (!app.state || !["ready", "working"].includes(app.state.state)) return;
    try {
      const page = await api.examples({ ...settings.query(), after: after ?? undefined, limit: PAGE });
      if (mine !== turn) return;
      shown = after === null ? page.examples : [...shown, ...page.examples];
      next = page.next;
      draw(page.total);
    } catch (error) {
      toast((error as Error).message, true);
    }
  };

  const draw = (all: number): void => {
    const focused = (document.activeElement as HTMLElement | null)?.dataset?.row;
    fill(list, ...shown.map(item));
    if (!shown.length) fill(list, h("p", { class: "soft empty", role: "option", "aria-disabled": "true" }, settings.empty));
    more.hidden = next === null;
    total.textContent = shown.length < all ? `${number(shown.length)} of ${number(all)}` : "";
    list.tabIndex = shown.length ? -1 : 0;
    const first = list.querySelector<HTMLElement>(focused ? `[data-row="${focused}"]` : ".example");
    if (first) {
      first.tabIndex = 0;
      if (focused) first.focus();
    }
  };

  const item = (example: Example): HTMLElement => {
    const answer = example.none ? NONE : example.answer;
    const chosen = app.tray.has(example.id);
    const element = h(
      "div",
      {
        class: `example${chosen ? " chosen" : ""}${example.text !== null ? " wide" : ""}`,
        role: "option",
        "aria-selected": String(chosen),
        tabindex: -1,
        draggable: settings.act ? null : "true",
        "data-row": example.row,
        "data-id": example.id,
        title: example.id,
      },
      picture(example, false, `${example.id}: `),
      h(
        "span",
        { class: "caption" },
        example.none
          ? h("span", { class: "answer none", title: `none of these; nearest ${example.answer}` }, h("span", { class: "ring" }), ` ${shorten(example.answer, 20)}?`)
          : h("span", { class: "answer" }, shorten(answer, 24)),
        example.split !== "taught" && h("span", { class: "soft" }, percent(example.p)),
      ),
      example.given !== null && example.given !== answer && h("span", { class: "soft small" }, `labelled ${shorten(example.given, 20)}`),
    );
    element.addEventListener("click", () => act(example));
    if (settings.act) return element;
    element.addEventListener("dragstart", (event) => {
      if (!app.tray.has(example.id)) toggle(example, true);
      event.dataTransfer?.setData("text/x-example", example.id);
    });
    return element;
  };

  const mark = (): void => {
    for (const element of list.querySelectorAll<HTMLElement>(".example")) {
      const chosen = app.tray.has(element.dataset.id!);
      element.classList.toggle("chosen", chosen);
      element.setAttribute("aria-selected", String(chosen));
    }
  };

  list.addEventListener("keydown", (event) => {
    const items = [...list.querySelectorAll<HTMLElement>(".example")];
    const at = items.indexOf(document.activeElement as HTMLElement);
    if (!items.length) return;
    const across = items.filter((each) => each.offsetTop === items[0].offsetTop).length;
    const steps: Record<string, number> = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      ArrowDown: at + across,
      ArrowUp: at - across,
      Home: 0,
      End: items.length - 1,
    };
    if (event.key === " ") act(shown[at]);
    else if (event.key in steps) {
      const to = Math.max(0, Math.min(items.length - 1, steps[event.key]));
      if (at >= 0) items[at].tabIndex = -1;
      items[to].tabIndex = 0;
      items[to].focus();
      if (to === items.length - 1 && next !== null) void load(next);
    } else return;
    event.preventDefault();
  });

  const off = on("tray", mark);
  void load(null);
  return { element, reload: () => void load(null), stop: off };
}
