// What the page knows, and who wants to hear of changes.

import { api, Refusal } from "./api";
import { count, number, say, toast } from "./dom";
import type { Changes, Example, Lesson, State } from "./types";

export const NONE = "none of these";

type Topic = "state" | "tray" | "filter" | "changes" | "map";
const listeners = new Map<Topic, Set<() => void>>();

export interface Filter {
  classes: Set<number> | null; // numbers of classes; null: everything
  title: string;
  none: boolean;
}

export const EVERYTHING: Filter = { classes: null, title: "", none: false };

export const app = {
  state: null as State | null,
  tray: new Map<string, Example>(),
  filter: EVERYTHING,
  changes: null as Changes | null,
  isPreview: false,
  busy: false,
};

export function on(topic: Topic, listener: () => void): () => void {
  const set = listeners.get(topic) ?? new Set();
  listeners.set(topic, set.add(listener));
  return () => set.delete(listener);
}

export function tell(topic: Topic): void {
  const set = listeners.get(topic) ?? new Set();
  for (const listener of [...set]) if (set.has(listener)) listener(); // one may have sent another away
}

export function setState(state: State): void {
  app.state = state;
  document.body.dataset.state = state.state;
  document.body.dataset.version = String(state.version);
  document.body.dataset.map = String(state.map);
  tell("state");
}

let running: Promise<void> | null = null;
let queued: Promise<void> | null = null;

// Asks for the state; what is asked while an answer is on its way is asked again after it, since that one may be older.
export function refresh(): Promise<void> {
  if (running) return (queued ??= running.then(() => ((queued = null), refresh())));
  running = api
    .state()
    .then(setState, (error) => toast((error as Error).message, true))
    .finally(() => (running = null));
  return running;
}

export function toggle(example: Example, into?: boolean): void {
  const wanted = into ?? !app.tray.has(example.id);
  if (wanted) app.tray.set(example.id, example);
  else app.tray.delete(example.id);
  say(wanted ? `${example.id} chosen, ${app.tray.size} in all` : `${example.id} put back`);
  tell("tray");
}

export function setFilter(filter: Filter): void {
  app.filter = filter;
  tell("filter");
}

export function describe(changes: Changes, preview = false): string {
  if (changes.of === 0) return "There are no examples whose answers could change.";
  const verb = preview ? "would change" : "changed";
  return changes.changed === 0 ? `No answer ${verb}.` : `${number(changes.changed)} of ${count(changes.of, "answer")} ${verb}.`;
}

// A change on the server. A stale version is answered with the present state: nothing was done, and the page says so.
// Changes wait for each other.
let last: Promise<unknown> = Promise.resolve();

export function change(work: () => Promise<Changes>, preview = false): Promise<boolean> {
  const mine = last.then(() => changeNow(work, preview));
  last = mine;
  return mine;
}

async function changeNow(work: () => Promise<Changes>, preview: boolean): Promise<boolean> {
  app.busy = true;
  tell("tray");
  try {
    app.changes = await work();
    app.isPreview = preview;
    say(describe(app.changes, preview));
    return true;
  } catch (error) {
    if (error instanceof Refusal && error.status === 409) {
      if (error.body.changes) {
        app.changes = error.body.changes;
        app.isPreview = false;
      }
      if (error.body.state) setState(error.body.state);
      toast(`${error.message} Look at what changed, then do it again.`, true);
    } else toast((error as Error).message, true);
    return false;
  } finally {
    app.busy = false;
    tell("tray");
    tell("changes");
    if (!preview) await refresh();
  }
}

export function lessons(label: string): Lesson[] {
  return [{ label, ids: [...app.tray.keys()] }];
}

export const colour = (c: number, saturation = "var(--saturation)", lightness = "var(--lightness)"): string =>
  `hsl(${Math.round((c * 137.508 + 200) % 360)} ${saturation} ${lightness})`;
