import type { Changes, Example, Explanation, Found, Lesson, Page, Quality, State } from "./types";

export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly body: { state?: State; changes?: Changes },
  ) {
    super(message);
  }
}

async function ask(path: string, init?: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(`/api/${path}`, init);
  } catch {
    throw new Refusal(0, "The studio does not answer. Is gptree studio still running?", {});
  }
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new Refusal(response.status, body.error ?? `The studio answered ${response.status}.`, body);
  }
  return response;
}

const get = async <T>(path: string): Promise<T> => (await ask(path)).json();
const HEADERS = { "X-Gptree": "1" };

async function post<T>(path: string, body: object): Promise<T> {
  const headers = { ...HEADERS, "Content-Type": "application/json" };
  return (await ask(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

export interface Query {
  class?: string;
  none?: boolean;
  split?: string;
  text?: string;
  order?: string;
  after?: number;
  limit?: number;
  rows?: number[];
}

export const api = {
  state: () => get<State>("state"),
  map: async (): Promise<ArrayBuffer> => (await ask("map")).arrayBuffer(),
  examples: (query: Query) => {
    const words = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined && value !== false && value !== "") words.set(name, value === true ? "1" : String(value));
    }
    return get<Page>(`examples?${words}`);
  },
  explain: (key: string) => get<Explanation>(`examples/${key}/explain`),
  queue: (order: string, n: number) => get<{ version: number; cards: Example[] }>(`queue?order=${order}&n=${n}`),
  quality: () => get<Quality>("quality"),
  changes: (version: number) => get<Changes>(`changes/${version}`),
  preview: (version: number, lessons: Lesson[]) => post<Changes>("preview", { version, lessons }),
  teach: (version: number, lessons: Lesson[], note: string) => post<Changes>("teach", { version, lessons, note }),
  undo: (version: number, to?: number) => post<Changes>("undo", { version, to }),
  rename: (version: number, label: string, to: string) => post<Changes>("rename", { version, label, to }),
  merge: (version: number, labels: string[], into: string) => post<Changes>("merge", { version, labels, into }),
  remove: (version: number, labels: string[]) => post<Changes>("remove", { version, labels }),
  forget: async (version: number, { key, id }: Example, remove_class: boolean): Promise<Changes> => {
    const headers = { ...HEADERS, "Content-Type": "application/json" };
    return (await ask(`examples/${key}`, { method: "DELETE", headers, body: JSON.stringify({ version, confirm: id, remove_class }) })).json();
  },
  found: () => get<{ root: string; found: Found[] }>("found"),
  open: (path: string) => post<State>("open", { path }),
  digits: () => post<State>("digits", {}),
  upload: async (files: File[]) => {
    const form = new FormData();
    for (const file of files) form.append("files", file, file.name);
    const answer = await ask("upload", { method: "POST", headers: HEADERS, body: form });
    return (await answer.json()) as { examples: Example[]; failed: { name: string; reason: string }[] };
  },
  export: async (what: string): Promise<Blob> => {
    const headers = { ...HEADERS, "Content-Type": "application/json" };
    return (await ask("export", { method: "POST", headers, body: JSON.stringify({ what }) })).blob();
  },
};

export const thumb = (key: string): string => `/api/examples/${key}/thumb`;
