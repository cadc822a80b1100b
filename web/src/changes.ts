// What changed: numbers first, then the answers one by one, and the way back.

import { api } from "./api";
import { count, fill, h, number, percent } from "./dom";
import { picture, shorten } from "./map";
import { app, change, describe, NONE, on, tell } from "./store";
import type { Change, Changes } from "./types";

const FIRST = 12;

export function changesPanel(teachPreviewed: () => void): { element: HTMLElement; stop: () => void } {
  const element = h("section", { class: "panel changes", "aria-labelledby": "changes-title", hidden: true });
  let only: "" | "worse" | "better" = "";
  let all = false;
  let drawn: Changes | null = null;

  const draw = (): void => {
    const changes = app.changes;
    element.hidden = changes === null;
    if (!changes) return;
    if (changes !== drawn) [only, all, drawn] = ["", false, changes];
    const rows = changes.rows.filter((row) => !only || row.verdict === only);
    const shown = all ? rows : rows.slice(0, FIRST);
    const filters: ["" | "worse" | "better", string][] = [
      ["", "All"],
      ["worse", "Now wrong"],
      ["better", "Now right"],
    ];
    fill(
      element,
      h(
        "div",
        { class: "panel-head" },
        h("h2", { id: "changes-title" }, app.isPreview ? "What would change" : "What changed"),
        h("button", { class: "plain", "aria-label": "Close", onclick: close }, "×"),
      ),
      app.isPreview && h("p", { class: "badge" }, "Preview: nothing has been saved."),
      h("p", { class: "headline" }, describe(changes, app.isPreview)),
      h("ul", { class: "facts" }, ...facts(changes).map((fact) => h("li", {}, fact))),
      changes.rows.some((row) => row.verdict) &&
        h(
          "div",
          { class: "segments", role: "group", "aria-label": "Which changes" },
          ...filters.map(([value, name]) =>
            h(
              "button",
              {
                "aria-pressed": String(only === value),
                onclick: () => {
                  only = value;
                  draw();
                },
              },
              name,
            ),
          ),
        ),
      h("ul", { class: "change-list" }, ...shown.map(line)),
      !shown.length && only && h("p", { class: "soft" }, "None."),
      rows.length > shown.length &&
        h("button", { class: "plain", onclick: () => ((all = true), draw()) }, `Show ${number(rows.length - shown.length)} more`),
      app.state?.read_only
        ? null
        : app.isPreview
          ? h("div", { class: "row" }, h("button", { class: "primary", onclick: teachPreviewed }, "Teach this"))
          : app.state?.undoable &&
            changes.version === app.state.version &&
            h("div", { class: "row" }, h("button", { onclick: () => void takeBack() }, "Take back ", h("kbd", {}, "z"))),
    );
  };

  const close = (): void => {
    app.changes = null;
    tell("changes");
  };
  const off = [on("changes", draw), on("state", draw)];
  draw();
  return { element, stop: () => off.forEach((each) => each()) };
}

function facts(changes: Changes): string[] {
  const lines: string[] = [];
  if (changes.test) {
    const { rows, right, wrong } = changes.test;
    lines.push(`On ${count(rows, "labelled test row")}: ${right} now right, ${wrong} now wrong.`);
  }
  if (changes.none && changes.none[0] !== changes.none[1]) {
    lines.push(`“None of these”: ${number(changes.none[0])} → ${number(changes.none[1])}.`);
  }
  lines.push(`${app.isPreview ? "Tried" : "Done"} in ${changes.seconds.toFixed(2)} s.`);
  return lines;
}

function line(row: Change): HTMLElement {
  const word = (label: string) => h("span", { class: label === NONE ? "none" : "" }, shorten(label, 24));
  return h(
    "li",
    { title: row.id },
    picture(row),
    h("span", { class: "was-now" }, word(row.was), h("span", { class: "arrow", "aria-label": "became" }, " → "), h("strong", {}, word(row.now))),
    h("span", { class: "soft small" }, percent(row.p)),
    row.verdict && h("span", { class: `verdict ${row.verdict}` }, row.verdict === "better" ? "✓ right" : "✗ wrong"),
  );
}

export async function takeBack(): Promise<void> {
  if (app.state?.read_only || !(app.state?.undoable || app.busy)) return;
  if (await change(() => api.undo(app.state!.version))) tell("changes");
}
