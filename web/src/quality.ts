// How good the answers are: on test rows where there are some, else left out.

import { api } from "./api";
import { chart, fill, h, number, percent, toast } from "./dom";
import type { Screen } from "./main";
import { picture, shorten } from "./map";
import { app, on, toggle } from "./store";
import type { Quality } from "./types";

export function qualityScreen(root: HTMLElement): Screen {
  let seen = -1;
  const body = h("div", { class: "quality-body" });
  fill(root, h("div", { class: "page" }, h("div", { class: "screen-head" }, h("h1", {}, "Quality")), body));

  const load = async (): Promise<void> => {
    if (!app.state || app.state.version === seen) return;
    seen = app.state.version;
    if (!body.childElementCount) fill(body, h("p", { class: "soft" }, "Measuring …"), h("progress", { "aria-label": "Measuring" }));
    try {
      draw(await api.quality());
    } catch (error) {
      fill(body, h("p", {}, (error as Error).message));
      toast((error as Error).message, true);
    }
  };

  const draw = (quality: Quality): void => {
    const figure = (value: string, name: string, hint: string): HTMLElement =>
      h("div", { class: "figure" }, h("span", { class: "value" }, value), h("span", { class: "label" }, name), h("span", { class: "soft small" }, hint));
    const weak = quality.classes.filter((each) => each.rows > 0).sort((a, b) => a.right / a.rows - b.right / b.rows);
    fill(
      body,
      h("p", { class: "lead" }, sentence(quality.note)),
      quality.rows > 0 &&
        h(
          "div",
          { class: "figures" },
          figure(`${(100 * quality.accuracy!).toFixed(1)} %`, "accuracy", "answers that are right"),
          figure(quality.nll!.toFixed(3), "NLL", "smaller: the truth is less of a surprise"),
          figure(`${(100 * quality.ece!).toFixed(1)} %`, "ECE", "how far confidence is from accuracy"),
        ),
      quality.charts.length > 0 &&
        h(
          "div",
          { class: "charts" },
          ...quality.charts.map((each) => h("figure", { class: "panel" }, h("figcaption", {}, each.title), chart(each.svg))),
        ),
      h(
        "div",
        { class: "columns" },
        quality.confusions.length > 0 &&
          table("Most confused", ["is", "taken for", "times"], quality.confusions.map((each) => [link(each.truth), link(each.answer), number(each.count)])),
        weak.length > 0 &&
          table(
            "Classes, weakest first",
            ["class", "right", "rows"],
            weak.slice(0, 50).map((each) => [link(each.name), `${Math.floor((100 * each.right) / each.rows)} %`, number(each.rows)]),
          ),
      ),
      h("h2", {}, "Labels to look at again"),
      quality.suspects.length
        ? h(
            "ul",
            { class: "suspects" },
            ...quality.suspects.map((each) =>
              h(
                "li",
                { class: "panel" },
                picture(each.example),
                h("div", {}, h("p", {}, "labelled ", h("strong", {}, shorten(each.given, 24)), `, ${percent(each.p)}`), h("p", { class: "soft small" }, `rather ${shorten(each.instead, 24)} · ${shorten(each.example.id, 36)}`)),
                h("button", { onclick: () => (toggle(each.example, true), (location.hash = "#/teach")) }, "To the tray"),
              ),
            ),
          )
        : h("p", { class: "soft" }, "No label looks wrong."),
      quality.duplicates.length > 0 && h("h2", {}, "The same content twice"),
      quality.duplicates.length > 0 &&
        table(
          "Duplicates",
          ["examples", "labels"],
          quality.duplicates.map((each) => [h("span", {}, each.ids.map((id) => shorten(id, 40)).join(" = ")), each.labels.join(", ") || "none"]),
        ),
    );
    body.dataset.version = String(quality.version);
  };

  const off = on("state", () => void load());
  void load();
  return { title: "Quality", stop: off };
}

const sentence = (note: string): string => `${note.charAt(0).toUpperCase()}${note.slice(1)}.`;
const link = (name: string): HTMLElement => h("a", { href: `#/class/${encodeURIComponent(name)}` }, shorten(name, 28));

export function table(caption: string, head: string[], rows: (Node | string)[][]): HTMLElement {
  return h(
    "div",
    { class: "scroll panel", role: "region", tabindex: 0, "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, ...head.map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, cell))))),
    ),
  );
}
