// What happened, who did it, and the way back to any point.

import { api } from "./api";
import { count, fill, h, svg, toast, when } from "./dom";
import { sure } from "./dialogs";
import type { Screen } from "./main";
import { shorten } from "./map";
import { app, change, on } from "./store";
import type { Entry } from "./types";

export function historyScreen(root: HTMLElement): Screen {
  const body = h("div", {});
  const download = async (what: string): Promise<void> => {
    try {
      const blob = await api.export(what);
      const address = URL.createObjectURL(blob);
      h("a", { href: address, download: `${app.state?.project?.name ?? "gptree"}-${what}.zip` }).click();
      setTimeout(() => URL.revokeObjectURL(address), 10_000);
    } catch (error) {
      toast((error as Error).message, true);
    }
  };
  fill(
    root,
    h(
      "div",
      { class: "page" },
      h(
        "div",
        { class: "screen-head" },
        h("h1", {}, "History"),
        h(
          "div",
          { class: "row wrap" },
          ...[["model", "the model"], ["onnx", "ONNX"], ["answers", "the answers"]].map(([what, name]) => h("button", { onclick: () => void download(what) }, `Download ${name}`)),
        ),
      ),
      body,
    ),
  );

  const undoTo = async (entry: Entry, gone: Entry[]): Promise<void> => {
    const lines = [
      `${count(gone.length, "step")} will be taken back, to the last bit:`,
      ...gone.slice(0, 6).map((each) => `· ${sentence(each)}`),
      gone.length > 6 ? `· and ${gone.length - 6} more` : "",
    ];
    if (await sure("Take back to here", lines.filter(Boolean), "Take back")) {
      await change(() => api.undo(app.state!.version, entry.version));
    }
  };

  const draw = (): void => {
    const state = app.state!;
    const entries = [...state.journal].reverse();
    const standing = entries.filter((each) => each.standing);
    const measured = [...standing].reverse().filter((each) => each.accuracy !== null);
    const step = (entry: Entry): HTMLElement => {
      const gone = standing.filter((each) => each.version > entry.version);
      const isNow = entry === standing[0];
      const facts = [`version ${entry.version}`, when(entry.time), entry.author, entry.accuracy === null ? "" : `test accuracy ${(100 * entry.accuracy).toFixed(1)} %`];
      const isFact = ["imported", "forgot"].includes(entry.what) || entry.what.startsWith("took back"); // nothing to take back
      return h(
        "li",
        { class: `panel${isNow ? " now" : ""}${entry.standing || isFact ? "" : " gone"}`, "data-version": entry.version },
        h("div", { class: "what" }, h("strong", {}, sentence(entry)), entry.note && h("span", { class: "note" }, `“${entry.note}”`)),
        h("div", { class: "soft small" }, facts.filter(Boolean).join(" · "), entry.result && h("span", { class: "result" }, entry.result)),
        isNow
          ? h("span", { class: "badge" }, "now")
          : entry.standing && !state.read_only && state.undoable
            ? h("button", { onclick: () => void undoTo(entry, gone) }, "Back to here")
            : !entry.standing && !isFact && h("span", { class: "soft small" }, "taken back"),
      );
    };
    fill(
      body,
      h("p", { class: "lead" }, "Every lesson can be taken back: the model is then what it was before, to the last bit."),
      measured.length > 1 && h("figure", { class: "panel" }, h("figcaption", {}, "Accuracy on the test rows after each step"), line(measured)),
      h("ol", { class: "journal", reversed: true }, ...entries.map(step)),
    );
  };
  const off = on("state", draw);
  draw();
  return { title: "History", stop: off };
}

export function sentence(entry: Entry): string {
  const names = entry.labels.slice(0, 5).map((label) => shorten(label, 24));
  const more = entry.label_count > names.length ? ` and ${entry.label_count - names.length} more` : "";
  const what = entry.what.charAt(0).toUpperCase() + entry.what.slice(1);
  if (entry.what === "renamed") return `${what} ${names[0]} to ${names[1]}`;
  if (entry.what === "forgot") return "Forgot examples for good";
  if (entry.what === "merged") return `${what} ${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;
  const from = entry.examples ? `${names.length ? ", from " : " "}${count(entry.examples, "example")}` : "";
  return `${what}${names.length ? ` ${names.join(", ")}${more}` : ""}${from}`;
}

function line(entries: Entry[]): SVGElement {
  const [width, height, edge] = [640, 120, 26];
  const values = entries.map((each) => each.accuracy!);
  const low = Math.min(...values) - 0.02;
  const high = Math.max(...values) + 0.02;
  const x = (i: number): number => edge + (i / (entries.length - 1)) * (width - 2 * edge);
  const y = (v: number): number => height - edge - ((v - low) / (high - low)) * (height - 2 * edge);
  const label = `Test accuracy from ${(100 * values[0]).toFixed(1)} % to ${(100 * values[values.length - 1]).toFixed(1)} %`;
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "line" },
    svg("path", { d: values.map((v, i) => `${i ? "L" : "M"}${x(i)} ${y(v)}`).join(""), class: "curve" }),
    ...values.map((v, i) => svg("circle", { cx: x(i), cy: y(v), r: 4 }, svg("title", {}, `${sentence(entries[i])}: ${(100 * v).toFixed(1)} %`))),
    svg("text", { x: edge, y: y(values[0]) - 10 }, `${(100 * values[0]).toFixed(1)} %`),
    svg("text", { x: width - edge, y: y(values[values.length - 1]) - 10, "text-anchor": "end" }, `${(100 * values[values.length - 1]).toFixed(1)} %`),
  );
}
