// One card at a time. Answers collect, and are taught together.

import { api } from "./api";
import { count, fill, h, percent, say, toast } from "./dom";
import { ask } from "./dialogs";
import type { Screen } from "./main";
import { picture, shorten } from "./map";
import { app, change, on } from "./store";
import type { Example, Explanation, Lesson } from "./types";

const ORDERS: [string, string][] = [
  ["suggest", "worth a label"],
  ["strangest", "strangest"],
  ["least-sure", "least sure"],
  ["newest", "newest"],
];
const CARDS = 40;

interface Answer {
  example: Example;
  label: string | null; // null: skipped, or none of these for now
}

// Answers outlive the screen: one may look at the map in between.
const answers: Answer[] = [];
let taughtAt = 5;

export function queueScreen(root: HTMLElement): Screen {
  let order = "suggest";
  let cards: Example[] = [];
  let why: Explanation | null = null;
  let turn = 0;
  let auto = false;
  let loaded = false;

  const orderField = h("select", { "aria-label": "Order of the queue" }, ...ORDERS.map(([value, name]) => h("option", { value }, name)));
  const autoField = h("input", { type: "checkbox", id: "auto" });
  const left = h("section", { class: "card-box", "aria-label": "Card", "aria-live": "polite" });
  const right = h("aside", { class: "panel answers", "aria-labelledby": "answers-title" });
  fill(
    root,
    h(
      "div",
      { class: "queue" },
      h("div", { class: "screen-head" }, h("h1", {}, "Queue"), h("label", { class: "soft" }, "First what is ", orderField)),
      h("div", { class: "queue-columns" }, left, right),
    ),
  );

  const waitingFor = (): Set<string> => new Set(answers.map((each) => each.example.id));
  const load = async (): Promise<void> => {
    const mine = (turn += 1);
    try {
      const { cards: found } = await api.queue(order, CARDS);
      if (mine !== turn) return;
      const done = waitingFor();
      cards = found.filter((each) => !done.has(each.id));
      loaded = true;
      await show();
    } catch (error) {
      toast((error as Error).message, true);
    }
  };

  const show = async (): Promise<void> => {
    why = null;
    draw();
    const card = cards[0];
    if (!card?.answer) return; // nothing, or no class yet
    const found = await api.explain(card.key).catch(() => null);
    if (cards[0] !== card) return;
    why = found;
    draw();
  };

  const given = (): Answer[] => answers.filter((each) => each.label !== null);

  const give = async (label: string | null): Promise<void> => {
    const card = cards.shift();
    if (!card) return;
    answers.push({ example: card, label });
    say(label === null ? "skipped" : `${label}. ${count(given().length, "answer")} collected`);
    if (auto && given().length >= taughtAt) await teach();
    else if (!cards.length) await load();
    else await show();
  };

  const back = async (): Promise<void> => {
    const last = answers.pop();
    if (!last) return;
    cards.unshift(last.example);
    await show();
  };

  const teach = async (): Promise<void> => {
    const groups = new Map<string, string[]>();
    for (const { example, label } of given()) groups.set(label!, [...(groups.get(label!) ?? []), example.id]);
    if (!groups.size) return;
    const lessons: Lesson[] = [...groups].map(([label, ids]) => ({ label, ids }));
    const version = app.state!.version;
    if (await change(() => api.teach(version, lessons, "answers from the queue"))) {
      answers.length = 0;
      toast(`Taught ${count(lessons.reduce((n, each) => n + each.ids.length, 0), "answer")}.`);
      await load();
    }
  };

  const other = async (isNew: boolean): Promise<void> => {
    const label = await ask(
      isNew ? "A new class" : "Another class",
      isNew ? "What is it called?" : "Which class is it? Write its name.",
      "",
      "That is it",
    );
    if (label) await give(label);
  };

  const draw = (): void => {
    const state = app.state!;
    const card = cards[0];
    const off = state.read_only;
    if (!card) {
      const text = loaded ? "Nothing waits for an answer in this order." : "The queue is being put in order …";
      fill(left, h("div", { class: "card empty-card" }, h("p", { class: "soft" }, text)));
    } else {
      const best = why?.best.slice(0, 9) ?? (card.answer ? [{ label: card.answer, p: card.p }] : []);
      fill(
        left,
        h(
          "article",
          { class: "card", "data-id": card.id },
          h("div", { class: "card-picture" }, picture(card, true), h("p", { class: "soft small" }, shorten(card.id, 40))),
          h(
            "p",
            { class: "question" },
            !card.answer ? "What is this?" : card.none ? h("span", {}, h("span", { class: "ring" }), " None of these? Nearest: ") : "Is this ",
            h("strong", {}, card.answer),
            card.none || !card.answer ? "" : "?",
            card.answer && h("span", { class: "soft" }, ` ${percent(card.p)}`),
          ),
          h(
            "ol",
            { class: "choices" },
            ...best.map(({ label, p }, i) =>
              h(
                "li",
                {},
                h(
                  "button",
                  { disabled: off, onclick: () => void give(label) },
                  h("kbd", {}, String(i + 1)),
                  h("span", { class: "choice" }, shorten(label, 32)),
                  h("span", { class: "bar" }, h("span", { style: { width: `${Math.round(100 * p)}%` } })),
                  h("span", { class: "soft small" }, percent(p)),
                ),
              ),
            ),
          ),
          h(
            "div",
            { class: "row wrap" },
            h("button", { class: "primary", disabled: off || !card.answer, onclick: () => void give(card.answer) }, "Right ", h("kbd", {}, "↵")),
            h("button", { disabled: off, onclick: () => void other(false) }, "Another ", h("kbd", {}, "/")),
            h("button", { disabled: off, onclick: () => void other(true) }, "New class ", h("kbd", {}, "n")),
            h("button", { onclick: () => void give(null) }, "None of these ", h("kbd", {}, "u")),
            h("button", { onclick: () => void give(null) }, "Skip ", h("kbd", {}, "s")),
            h("button", { disabled: !answers.length, onclick: () => void back() }, "Back ", h("kbd", {}, "z")),
          ),
          why && reasons(why),
        ),
      );
    }
    const collected = given();
    fill(
      right,
      h("h2", { id: "answers-title" }, "Answers"),
      h("p", { class: "soft" }, collected.length ? `${count(collected.length, "answer")} not taught yet.` : "They collect here, and are taught together: one step, which one step takes back."),
      h(
        "ul",
        { class: "answer-list" },
        ...collected.slice(-8).reverse().map(({ example, label }) => h("li", {}, picture(example), h("span", {}, shorten(label!, 24)))),
      ),
      h("button", { class: "primary", disabled: off || !collected.length || app.busy, onclick: () => void teach() }, collected.length ? `Teach ${count(collected.length, "answer")}` : "Teach answers"),
      h("p", {}, autoField, h("label", { for: "auto" }, ` Teach after every ${taughtAt} answers`)),
    );
  };

  orderField.addEventListener("change", () => {
    order = orderField.value;
    void load();
  });
  autoField.addEventListener("change", () => (auto = autoField.checked));
  const off = on("state", draw);
  draw();
  void load();
  return {
    title: "Queue",
    stop: off,
    key: (event) => {
      const card = cards[0];
      if (event.target instanceof HTMLButtonElement && event.key === "Enter") return false;
      if (event.key === "z" && answers.length) void back();
      else if (!card) return false;
      else if (event.key === "s" || event.key === "u") void give(null);
      else if (app.state?.read_only) return false;
      else if (event.key === "Enter") void (card.answer ? give(card.answer) : other(true));
      else if (event.key === "/") void other(false);
      else if (event.key === "n") void other(true);
      else if (/^[1-9]$/.test(event.key) && why?.best[Number(event.key) - 1]) void give(why.best[Number(event.key) - 1].label);
      else return false;
      return true;
    },
  };
}

export function reasons(why: Explanation): HTMLElement {
  const steps = why.path.slice(0, 3);
  const side = (labels: string[], n: number): string => `${labels.join(", ")}${n > labels.length ? " …" : ""}`;
  return h(
    "div",
    { class: "reasons" },
    h("h2", {}, "Why"),
    h(
      "ol",
      {},
      ...steps.map((step) =>
        h(
          "li",
          {},
          h("strong", {}, percent(step.probability)),
          ` ${side(step.towards, step.towards_count)} `,
          h("span", { class: "soft" }, `rather than ${side(step.away, step.away_count)}`),
        ),
      ),
    ),
    why.path.length > 3 && h("p", { class: "soft small" }, `and ${count(why.path.length - 3, "more decision")}`),
    h("h2", {}, `Nearest examples of ${shorten(why.label, 30)}`),
    h(
      "ul",
      { class: "neighbours" },
      ...why.neighbours.map((each) =>
        h(
          "li",
          { title: each.id },
          each.key ? picture({ key: each.key, id: each.id, text: each.text }) : h("span", { class: "small" }, shorten(each.id, 24)),
          h("span", { class: "soft small" }, each.similarity.toFixed(2)),
        ),
      ),
    ),
  );
}
