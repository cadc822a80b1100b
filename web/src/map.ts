// The map of all examples on a canvas. Positions never change; colours do.

import { api, thumb } from "./api";
import { fill, h, percent, say, toast } from "./dom";
import { app, colour, EVERYTHING, NONE, on, setFilter, toggle } from "./store";
import type { Example } from "./types";

const IS_NONE = 1;
const IS_TAUGHT = 2;
const IS_TEST = 4;
const GRID = 64;
const MOST_CHOSEN = 200; // by one loop
const USES: Record<string, string> = { taught: "was taught", test: "tests the model" };

interface Points {
  n: number;
  x: Float32Array;
  y: Float32Array;
  c: Uint16Array;
  p: Uint8Array;
  flags: Uint8Array;
  order: Uint32Array; // by class, so that colours change rarely
  cells: Map<number, number[]>;
  names: { c: number; x: number; y: number }[]; // where the name of a class stands, the largest first
}

function read(buffer: ArrayBuffer): Points {
  const n = new Uint32Array(buffer, 0, 1)[0];
  const x = new Float32Array(buffer, 8, n);
  const y = new Float32Array(buffer, 8 + 4 * n, n);
  const c = new Uint16Array(buffer, 8 + 8 * n, n);
  const p = new Uint8Array(buffer, 8 + 10 * n, n);
  const flags = new Uint8Array(buffer, 8 + 11 * n, n);
  const order = new Uint32Array(n).map((_, i) => i).sort((a, b) => c[a] - c[b]);
  const cells = new Map<number, number[]>();
  for (let i = 0; i < n; i += 1) {
    const cell = Math.floor(x[i] * GRID) + GRID * Math.floor(y[i] * GRID);
    const list = cells.get(cell);
    if (list) list.push(i);
    else cells.set(cell, [i]);
  }
  return { n, x, y, c, p, flags, order, cells, names: middles(x, y, c, flags) };
}

// The middle of the examples of each class, by the median: a few far away do not move it.
function middles(x: Float32Array, y: Float32Array, c: Uint16Array, flags: Uint8Array): Points["names"] {
  const members = new Map<number, number[]>();
  c.forEach((value, i) => {
    if (flags[i] & IS_NONE) return;
    const list = members.get(value);
    if (list) list.push(i);
    else members.set(value, [i]);
  });
  const median = (rows: number[], axis: Float32Array): number =>
    rows.map((i) => axis[i]).sort((a, b) => a - b)[Math.floor(rows.length / 2)];
  return [...members]
    .sort((a, b) => b[1].length - a[1].length)
    .map(([value, rows]) => ({ c: value, x: median(rows, x), y: median(rows, y) }));
}

export function mapPanel(): { element: HTMLElement; stop: () => void } {
  const canvas = h("canvas", {
    tabindex: 0,
    role: "application",
    "aria-label": "Map of examples. Arrow keys move to the nearest example, Space chooses it. The list of examples holds the same.",
  });
  const tip = h("div", { class: "tip", hidden: true });
  const empty = h("div", { class: "map-empty", hidden: true });
  const loopButton = h("button", { title: "Draw a loop around examples (l)", "aria-pressed": "false" }, "Loop");
  const tools = h(
    "div",
    { class: "map-tools" },
    h("button", { "aria-label": "Nearer", title: "Nearer (+)", onclick: () => zoom(1.5) }, "+"),
    h("button", { "aria-label": "Farther", title: "Farther (−)", onclick: () => zoom(1 / 1.5) }, "−"),
    h("button", { title: "All of it (0)", onclick: () => reset() }, "Fit"),
    loopButton,
  );
  const element = h("div", { class: "map" }, canvas, empty, tip, tools);
  const context = canvas.getContext("2d")!;
  const layer = document.createElement("canvas");
  const ground = layer.getContext("2d")!;

  let points: Points | null = null;
  let scale = 1;
  let left = 0;
  let top = 0;
  let width = 0;
  let height = 0;
  let at = -1; // the example under the pointer or the keys
  let looping = false;
  let loop: [number, number][] = [];
  let asked = "";
  let frame = 0;
  let stale = true; // the layer
  const records = new Map<number, Example>();

  const across = (): number => (width - 48) * scale;
  const down = (): number => (height - 72) * scale;
  const px = (i: number): number => (points!.x[i] - 0.5 - left) * across() + width / 2;
  const py = (i: number): number => (points!.y[i] - 0.5 - top) * down() + height / 2;

  const load = async (): Promise<void> => {
    const state = app.state;
    if (!state || !["ready", "working"].includes(state.state)) return;
    empty.hidden = state.map;
    if (!state.map) {
      const busy = state.job ? `${state.job.what} …` : "The map is being drawn …";
      fill(empty, h("p", {}, busy), h("p", { class: "soft" }, "Everything else works meanwhile: look at the list."));
      return;
    }
    const key = `${state.version}-${state.counts.examples}-${state.counts.none}`;
    if (key === asked) return;
    asked = key;
    try {
      points = read(await api.map());
      records.clear();
      if (at >= points.n) at = -1;
      element.dataset.points = String(points.n);
      draw();
    } catch (error) {
      asked = "";
      toast((error as Error).message, true);
    }
  };

  // What follows the pointer is drawn over the layer of the points, which is painted only when it changes.
  const draw = (): void => {
    stale = true;
    drawOver();
  };
  const drawOver = (): void => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(paint);
  };

  const paint = (): void => {
    const began = performance.now();
    const ratio = devicePixelRatio || 1;
    const style = getComputedStyle(element);
    const read = (name: string): string => style.getPropertyValue(name);
    if (stale) {
      layer.width = canvas.width;
      layer.height = canvas.height;
      ground.setTransform(ratio, 0, 0, ratio, 0, 0);
      paintPoints(ground, read);
      stale = false;
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (!points) return;
    if (layer.width && layer.height) context.drawImage(layer, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const around = (row: number, more: number, ink: string, line: number): void => {
      context.strokeStyle = ink;
      context.lineWidth = line;
      context.beginPath();
      context.arc(px(row), py(row), size() + more, 0, 7);
      context.stroke();
    };
    for (const { row } of app.tray.values()) if (row < points.n) around(row, 4, read("--accent"), 2.5);
    if (at >= 0) around(at, 6, read("--ink"), 2);
    if (loop.length > 1) {
      context.strokeStyle = read("--accent");
      context.lineWidth = 2;
      context.setLineDash([5, 4]);
      context.beginPath();
      loop.forEach(([x, y], k) => (k ? context.lineTo(x, y) : context.moveTo(x, y)));
      context.stroke();
      context.setLineDash([]);
    }
    element.dataset.frame = (performance.now() - began).toFixed(1);
  };

  const many = (): boolean => points!.n > 6000;
  const size = (): number => Math.max(many() ? 1.6 : 2.6, Math.min(7, (many() ? 2 : 4) * Math.sqrt(scale)));

  const paintPoints = (context: CanvasRenderingContext2D, read: (name: string) => string): void => {
    if (!points) return;
    const [paper, saturation, lightness] = ["--card", "--saturation", "--lightness"].map(read);
    const [crowd, radius] = [many(), size()];
    const { classes, none } = app.filter;
    const matches = (i: number): boolean =>
      none ? (points!.flags[i] & IS_NONE) > 0 : classes === null || (classes.has(points!.c[i]) && !(points!.flags[i] & IS_NONE));
    const all = classes === null && !none;
    let last = -1;
    for (const pass of all ? [1] : [0, 1]) {
      if (pass === 0) {
        context.globalAlpha = 0.5;
        context.fillStyle = read("--faded");
      }
      for (const i of points.order) {
        if (!all && matches(i) !== (pass === 1)) continue;
        const x = px(i);
        const y = py(i);
        if (x < -8 || y < -8 || x > width + 8 || y > height + 8) continue;
        const strange = (points.flags[i] & IS_NONE) > 0;
        if (pass === 1) {
          if (points.c[i] !== last) {
            last = points.c[i];
            context.fillStyle = context.strokeStyle = colour(last, saturation, lightness);
          }
          context.globalAlpha = 0.25 + (0.75 * points.p[i]) / 255;
        }
        if (strange && pass === 1) {
          context.globalAlpha = 1;
          context.lineWidth = 1.6;
          context.beginPath();
          context.arc(x, y, radius + 1, 0, 7);
          context.stroke();
        } else if (crowd || points.flags[i] & IS_TEST) context.fillRect(x - 0.85 * radius, y - 0.85 * radius, 1.7 * radius, 1.7 * radius);
        else {
          context.beginPath();
          context.arc(x, y, radius, 0, 7);
          context.fill();
        }
        if (points.flags[i] & IS_TAUGHT && !crowd && pass === 1) {
          context.globalAlpha = 1;
          context.fillStyle = paper;
          context.beginPath();
          context.arc(x, y, radius * 0.4, 0, 7);
          context.fill();
          last = -1;
        }
      }
    }
    context.globalAlpha = 1;
    names(context, read("--ink"), paper);
  };

  // Names of classes where their examples are thickest, largest classes first, none over another.
  const names = (context: CanvasRenderingContext2D, ink: string, paper: string): void => {
    const state = app.state;
    if (!points || !state) return;
    context.font = "700 13px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    const taken: [number, number, number][] = [];
    const wanted = points.names.filter((each) => app.filter.classes === null || app.filter.classes.has(each.c));
    for (const { c, x: ux, y: uy } of wanted.slice(0, 400)) {
      const x = (ux - 0.5 - left) * across() + width / 2;
      const y = (uy - 0.5 - top) * down() + height / 2;
      if (x < 20 || y < 12 || x > width - 20 || y > height - 12) continue;
      const name = state.classes[c]?.name ?? "";
      const text = name.length > 22 ? `${name.slice(0, 21)}…` : name;
      const half = context.measureText(text).width / 2 + 8;
      if (taken.some(([tx, ty, th]) => Math.abs(tx - x) < th + half && Math.abs(ty - y) < 18)) continue;
      taken.push([x, y, half]);
      context.lineWidth = 6;
      context.strokeStyle = paper;
      context.globalAlpha = 0.9;
      context.strokeText(text, x, y);
      context.globalAlpha = 1;
      context.fillStyle = ink;
      context.fillText(text, x, y);
    }
  };

  const nearest = (x: number, y: number, within: number): number => {
    if (!points) return -1;
    const ux = (x - width / 2) / across() + 0.5 + left;
    const uy = (y - height / 2) / down() + 0.5 + top;
    const reach = within / Math.min(across(), down());
    let best = -1;
    let distance = within;
    const from = (u: number): number => Math.floor((u - reach) * GRID);
    const to = (u: number): number => Math.floor((u + reach) * GRID);
    for (let gy = from(uy); gy <= to(uy); gy += 1) {
      for (let gx = from(ux); gx <= to(ux); gx += 1) {
        for (const i of points.cells.get(gx + GRID * gy) ?? []) {
          const d = Math.hypot(px(i) - x, py(i) - y);
          if (d < distance) [best, distance] = [i, d];
        }
      }
    }
    return best;
  };

  const fetchRecords = async (rows: number[]): Promise<Example[]> => {
    const missing = rows.filter((row) => !records.has(row));
    for (let k = 0; k < missing.length; k += 200) {
      const page = await api.examples({ rows: missing.slice(k, k + 200), limit: 200 });
      for (const example of page.examples) records.set(example.row, example);
    }
    return rows.map((row) => records.get(row)!).filter(Boolean);
  };

  let pause = 0;
  const look = (i: number, spoken = false): void => {
    if (i === at && !spoken) return;
    at = i;
    drawOver();
    clearTimeout(pause);
    if (i < 0) {
      tip.hidden = true;
      return;
    }
    pause = window.setTimeout(async () => {
      const [example] = await fetchRecords([i]).catch(() => []);
      if (at !== i || !example) return;
      fill(tip, card(example));
      tip.hidden = false;
      const x = px(i);
      const y = py(i);
      tip.style.left = `${Math.max(4, Math.min(x + 14, width - tip.offsetWidth - 6))}px`;
      tip.style.top = `${Math.max(4, y + 14 + tip.offsetHeight > height ? y - 14 - tip.offsetHeight : y + 14)}px`;
      if (spoken) say(`${example.id}: ${example.none ? NONE : example.answer}, ${percent(example.p)}`);
    }, 60);
  };

  const choose = async (rows: number[], into?: boolean): Promise<void> => {
    try {
      const found = await fetchRecords(rows);
      const free = found.filter((example) => example.split === "pool");
      for (const example of free) toggle(example, into);
      if (!free.length && found.length) toast(`${found[0].id} ${USES[found[0].split]}, and cannot be taught.`, true);
    } catch (error) {
      toast((error as Error).message, true);
    }
  };

  const place = (event: PointerEvent | WheelEvent): [number, number] => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  let held: { x: number; y: number; left: number; top: number; moved: boolean } | null = null;
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = place(event);
    canvas.setPointerCapture(event.pointerId);
    held = { x, y, left, top, moved: false };
    loop = looping || event.shiftKey ? [[x, y]] : [];
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (!held) return look(nearest(x, y, 18));
    if (Math.hypot(x - held.x, y - held.y) > 4) held.moved = true;
    tip.hidden = true;
    if (loop.length) {
      loop.push([x, y]);
      drawOver();
    } else if (held.moved) {
      left = held.left - (x - held.x) / across();
      top = held.top - (y - held.y) / down();
      draw();
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    const [x, y] = place(event);
    const polygon = loop;
    const was = held;
    held = null;
    loop = [];
    if (polygon.length > 2 && points) {
      const inside: number[] = [];
      for (let i = 0; i < points.n; i += 1) if (contains(polygon, px(i), py(i))) inside.push(i);
      if (inside.length > MOST_CHOSEN) toast(`A loop takes ${MOST_CHOSEN} examples at most; this one holds ${inside.length}.`, true);
      else void choose(inside, true);
      setLooping(false);
    } else if (was && !was.moved) {
      const i = nearest(x, y, 18);
      if (i >= 0) void choose([i]);
    }
    drawOver();
  });
  canvas.addEventListener("pointerleave", () => !held && look(-1));
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const [x, y] = place(event);
      zoom(Math.exp(-event.deltaY * 0.0015), x, y);
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    const ways: Record<string, [number, number]> = {
      ArrowLeft: [-1, 0],
      ArrowRight: [1, 0],
      ArrowUp: [0, -1],
      ArrowDown: [0, 1],
    };
    if (ways[event.key]) step(...ways[event.key]);
    else if (event.key === " " || event.key === "Enter") at >= 0 && void choose([at]);
    else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "0") reset();
    else if (event.key === "l") setLooping(!looping);
    else if (event.key === "Escape") {
      if (looping) setLooping(false);
      else setFilter(EVERYTHING);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });

  // The nearest example in a direction: far ones count less than ones off the way.
  const step = (dx: number, dy: number): void => {
    if (!points?.n) return;
    if (at < 0) return look(nearest(width / 2, height / 2, Math.max(width, height)), true);
    let best = -1;
    let least = Infinity;
    for (let i = 0; i < points.n; i += 1) {
      const ahead = (px(i) - px(at)) * dx + (py(i) - py(at)) * dy;
      if (i === at || ahead <= 0.5) continue;
      const aside = Math.abs((px(i) - px(at)) * dy) + Math.abs((py(i) - py(at)) * dx);
      const cost = ahead + 3 * aside;
      if (cost < least) [best, least] = [i, cost];
    }
    if (best >= 0) look(best, true);
  };

  const zoom = (factor: number, x = width / 2, y = height / 2): void => {
    const next = Math.min(60, Math.max(0.7, scale * factor));
    const [before, beforeDown] = [across(), down()];
    scale = next;
    left += (x - width / 2) * (1 / before - 1 / across());
    top += (y - height / 2) * (1 / beforeDown - 1 / down());
    tip.hidden = true;
    draw();
  };
  const reset = (): void => {
    [scale, left, top] = [1, 0, 0];
    draw();
  };
  const setLooping = (to: boolean): void => {
    looping = to;
    loopButton.setAttribute("aria-pressed", String(to));
    canvas.classList.toggle("looping", to);
  };
  loopButton.addEventListener("click", () => setLooping(!looping));

  const resize = (): void => {
    width = element.clientWidth;
    height = element.clientHeight;
    canvas.width = width * (devicePixelRatio || 1);
    canvas.height = height * (devicePixelRatio || 1);
    draw();
  };
  const observer = new ResizeObserver(resize);
  observer.observe(element);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", draw);
  const off = [on("state", () => void load()), on("tray", drawOver), on("filter", draw), on("map", () => void load())];
  void load();
  return {
    element,
    stop: () => {
      observer.disconnect();
      dark.removeEventListener("change", draw);
      off.forEach((each) => each());
    },
  };
}

function contains(polygon: [number, number][], x: number, y: number): boolean {
  let inside = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i, i += 1) {
    const [xi, yi] = polygon[i];
    const [xj, yj] = polygon[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) inside = !inside;
  }
  return inside;
}

export function picture(example: { key: string; id: string; text: string | null }, big = false, alt = ""): HTMLElement {
  if (example.text !== null) {
    return h("span", { class: big ? "text-big" : "text-small" }, big ? example.text : shorten(example.text, 90));
  }
  return h("img", { src: thumb(example.key), alt, loading: "lazy", draggable: "false", class: big ? "big" : "thumb" });
}

export const shorten = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function card(example: Example): HTMLElement {
  const answer = example.none ? NONE : example.answer;
  return h(
    "div",
    { class: "tip-card" },
    picture(example),
    h(
      "div",
      {},
      h("strong", {}, answer),
      h("span", { class: "soft" }, ` ${percent(example.p)}`),
      h("div", { class: "soft small" }, shorten(example.id, 40)),
      example.given !== null && h("div", { class: "soft small" }, `labelled ${example.given}`),
      h("div", { class: "soft small" }, USES[example.split] ?? (app.tray.has(example.id) ? "click: put back" : "click: choose")),
    ),
  );
}
