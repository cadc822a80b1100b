// The frame: bar, screens by address, keys, events.

import { takeBack } from "./changes";
import { classScreen } from "./class";
import { keys } from "./dialogs";
import { count, fill, h, isTyping, number, say, svg, toast } from "./dom";
import { historyScreen } from "./history";
import { qualityScreen } from "./quality";
import { queueScreen } from "./queue";
import { startScreen } from "./start";
import { app, on, refresh, tell } from "./store";
import { teachScreen } from "./teach";

export interface Screen {
  title: string;
  stop: () => void;
  key?: (event: KeyboardEvent) => boolean;
}

const SCREENS: { name: string; title: string; key: string; make: (root: HTMLElement) => Screen }[] = [
  { name: "teach", title: "Teach", key: "t", make: teachScreen },
  { name: "queue", title: "Queue", key: "q", make: queueScreen },
  { name: "quality", title: "Quality", key: "y", make: qualityScreen },
  { name: "history", title: "History", key: "h", make: historyScreen },
];

const main = document.getElementById("main")!;
const bar = document.getElementById("bar")!;
let screen: Screen | null = null;
let shown = "";

const address = (): string[] => location.hash.replace(/^#\/?/, "").split("/");

function route(): void {
  const state = app.state;
  if (!state) return;
  const [name, ...rest] = address();
  const where =
    state.state === "start"
      ? "start"
      : !state.project
        ? "waiting"
        : name === "class" && rest.length
          ? `class/${rest.join("/")}`
          : SCREENS.some((each) => each.name === name)
            ? name
            : "teach";
  if (where === shown) return;
  shown = where;
  screen?.stop();
  screen = null;
  fill(main);
  main.dataset.screen = where.split("/")[0];
  if (where === "start") screen = startScreen(main);
  else if (where === "waiting") screen = waiting();
  else if (where.startsWith("class/")) screen = classScreen(main, decodeURIComponent(rest.join("/")));
  else screen = SCREENS.find((each) => each.name === where)!.make(main);
  document.title = `${screen.title} · ${state.project?.name ?? "gptree studio"}`;
  drawBar();
  scrollTo(0, 0);
}

// Before there is a model to show.
function waiting(): Screen {
  const draw = (): void => {
    const state = app.state!;
    const failed = state.state === "failed";
    const job = state.job;
    fill(
      main,
      h(
        "div",
        { class: "waiting-page" },
        h("h1", {}, failed ? "That did not work" : "One moment"),
        h("p", { role: failed ? "alert" : null }, state.message || (job ? `${job.what} …` : "The model is being loaded …")),
        !failed && progress(),
        failed && h("p", { class: "soft" }, "Nothing was changed. Correct it, and start gptree studio again."),
      ),
    );
  };
  draw();
  return { title: "Loading", stop: on("state", draw) };
}

function progress(): HTMLElement {
  const job = app.state?.job;
  const known = job && job.of > 0;
  return h("progress", { max: known ? job.of : null, value: known ? job.done : null, "aria-label": job?.what ?? "Loading" });
}

function drawBar(): void {
  const state = app.state;
  if (!state) return;
  const ready = Boolean(state.project);
  const job = state.job;
  fill(
    bar,
    h("a", { class: "brand", href: "#/teach", "aria-label": "gptree studio" }, logo(), h("span", {}, "gptree")),
    state.project && h("span", { class: "project", title: state.project.folder }, state.project.name),
    ready &&
      h(
        "nav",
        { "aria-label": "Screens" },
        ...SCREENS.map((each) =>
          h(
            "a",
            { href: `#/${each.name}`, "aria-current": shown === each.name ? "page" : null, title: `Key ${each.key}` },
            each.title,
          ),
        ),
      ),
    h("span", { class: "grow" }),
    job && ready && h("span", { class: "working small" }, h("span", { class: "spinner" }), `${job.what}${job.of ? ` ${number(job.done)} / ${number(job.of)}` : ""}`),
    ready &&
      h(
        "span",
        { class: "soft small facts-line" },
        `${count(state.classes.length, "class", "classes")} · ${count(state.counts.examples, "example")} · version ${state.version}`,
      ),
    state.read_only && h("span", { class: "badge" }, "read only"),
    ready &&
      !state.read_only &&
      h(
        "button",
        { class: "take-back", disabled: !state.undoable || app.busy || state.state !== "ready", onclick: () => void takeBack() },
        "Take back ",
        h("kbd", {}, "z"),
      ),
    h("button", { class: "plain keys-button", "aria-label": "Keys", title: "Keys (?)", onclick: keys }, "?"),
  );
}

function logo(): SVGElement {
  return svg(
    "svg",
    { viewBox: "0 0 24 24", width: 22, height: 22, "aria-hidden": "true", class: "logo" },
    svg("path", { d: "M4 12h5M9 6v12M9 6h5M9 18h5M14 3v6M14 3h6M14 9h6", fill: "none", "stroke-width": 2, "stroke-linecap": "round" }),
    svg("circle", { cx: 17, cy: 18, r: 3 }),
  );
}

document.addEventListener("keydown", (event) => {
  if (isTyping(event) || document.querySelector("dialog[open]")) return;
  if (screen?.key?.(event)) return event.preventDefault();
  if (!app.state?.project) return;
  const target = SCREENS.find((each) => each.key === event.key);
  if (target) location.hash = `#/${target.name}`;
  else if (event.key === "z") void takeBack();
  else if (event.key === "?") keys();
  else return;
  event.preventDefault();
});

function listen(): void {
  const source = new EventSource("/api/events");
  const again = (): void => void refresh().then(() => tell("map"));
  source.addEventListener("changed", again);
  source.addEventListener("reset", again);
  source.addEventListener("progress", (event) => {
    if (!app.state) return;
    const { what, done, of } = JSON.parse((event as MessageEvent).data);
    app.state.job = what ? { what, done, of } : null;
    drawBar();
    if (shown === "waiting") tell("state");
  });
  source.addEventListener("failed", (event) => {
    toast(JSON.parse((event as MessageEvent).data).message, true);
    again();
  });
  let lost = false;
  source.addEventListener("error", () => {
    if (!lost) say("The studio does not answer.");
    lost = true;
    document.body.dataset.lost = "true";
  });
  source.addEventListener("open", () => {
    again(); // whatever happened before somebody listened
    lost = false;
    delete document.body.dataset.lost;
  });
}

on("state", () => {
  route();
  drawBar();
});
on("tray", drawBar);
addEventListener("hashchange", () => {
  route();
  main.focus();
});
void refresh().then(listen);
