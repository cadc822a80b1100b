// What the server says; see docs/studio.md for the interface.

export type Kind = "image" | "text" | "vector";

export interface ClassInfo {
  name: string;
  taught: number; // examples that it was learnt from
  answers: number; // examples that the model takes for it
  session: number; // 0: there from the beginning; else the journal entry that brought it
}

export interface Tree {
  order: number[];
  lo: number[];
  mid: number[];
  hi: number[];
}

export interface Entry {
  version: number;
  what: string; // "created", "taught", "renamed", …
  labels: string[]; // the first of them
  label_count: number;
  examples: number;
  time: string;
  note: string;
  author: string;
  result: string;
  accuracy: number | null;
  standing: boolean; // not taken back
}

export interface Job {
  what: string;
  done: number;
  of: number;
}

export interface Project {
  name: string;
  kind: Kind;
  folder: string;
  encoder: string | null;
  uploads: boolean;
}

export interface State {
  state: "start" | "loading" | "ready" | "working" | "failed";
  message: string;
  job: Job | null;
  read_only: boolean;
  author: string;
  project: Project | null;
  version: number;
  classes: ClassInfo[];
  tree: Tree | null;
  counts: { examples: number; pool: number; test: number; taught: number; none: number };
  map: boolean; // whether the map has been drawn
  journal: Entry[];
  undoable: boolean;
}

export interface Example {
  row: number;
  id: string;
  key: string;
  answer: string;
  p: number;
  runner_up: string;
  none: boolean;
  novelty: number;
  given: string | null;
  split: "pool" | "taught" | "test";
  text: string | null;
}

export interface Page {
  version: number;
  total: number;
  examples: Example[];
  next: number | null;
}

export interface Change {
  id: string;
  key: string;
  text: string | null;
  was: string; // as it is shown: a label or "none of these"
  now: string;
  p: number;
  given: string | null;
  verdict: "better" | "worse" | "";
}

export interface Changes {
  before: number;
  version: number;
  of: number;
  changed: number;
  test: { rows: number; right: number; wrong: number } | null;
  none: [number, number] | null;
  seconds: number;
  lessons: Lesson[];
  rows: Change[];
}

export interface Lesson {
  label: string;
  ids: string[];
}

export interface Decision {
  towards: string[];
  away: string[];
  towards_count: number;
  away_count: number;
  probability: number;
}

export interface Explanation {
  label: string;
  probability: number;
  path: Decision[];
  neighbours: { id: string; key: string | null; similarity: number; text: string | null }[];
  best: { label: string; p: number }[];
}

export interface Quality {
  version: number;
  source: "test" | "left-out" | "none";
  note: string;
  rows: number;
  accuracy: number | null;
  nll: number | null;
  ece: number | null;
  charts: { title: string; svg: string }[];
  confusions: { truth: string; answer: string; count: number }[];
  classes: { name: string; rows: number; right: number }[];
  suspects: { example: Example; given: string; p: number; instead: string }[];
  duplicates: { ids: string[]; labels: string[] }[];
}

export interface Found {
  name: string;
  kind: "project" | "model" | "pictures" | "table";
  path: string;
  detail: string;
}
