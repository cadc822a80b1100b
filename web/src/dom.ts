// Elements without markup: every text goes through textContent.

type Child = Node | string | number | null | undefined | false;
type Props = Record<string, unknown>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  set(element, props);
  append(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag: string, props: Props = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS(SVG, tag);
  set(element, props);
  append(element, children);
  return element;
}

function set(element: HTMLElement | SVGElement, props: Props): void {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else if (name === "class") element.setAttribute("class", String(value));
    else if (name === "style") Object.entries(value as object).forEach(([k, v]) => element.style.setProperty(k, v));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

// A chart of the server, with its styles under another name: the page allows none in markup.
export function chart(markup: string): Element {
  const root = new DOMParser().parseFromString(markup, "image/svg+xml").documentElement;
  const copy = (from: Element): Element => {
    const made = document.createElementNS(SVG, from.localName) as SVGElement;
    for (const { name, value } of Array.from(from.attributes)) {
      if (name === "data-style") made.style.cssText = value;
      else if (!name.startsWith("on") && !name.startsWith("xmlns")) made.setAttribute(name, value);
    }
    for (const child of Array.from(from.childNodes)) {
      if (child.nodeType === Node.ELEMENT_NODE && (child as Element).localName !== "script") {
        made.append(copy(child as Element));
      } else if (child.nodeType === Node.TEXT_NODE) made.append(child.textContent ?? "");
    }
    return made;
  };
  return copy(root);
}

export const number = (value: number): string => value.toLocaleString("en");
export const percent = (p: number): string =>
  p > 0.995 ? ">\u00a099\u00a0%" : p < 0.005 ? "<\u00a01\u00a0%" : `${Math.round(100 * p)}\u00a0%`;
export const count = (n: number, one: string, many = `${one}s`): string => `${number(n)} ${n === 1 ? one : many}`;

export function when(iso: string): string {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return iso;
  const today = new Date().toDateString() === date.toDateString();
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return today ? `today, ${time}` : `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, ${time}`;
}

// Says something to those who do not see the page.
export function say(text: string): void {
  const live = document.getElementById("live")!;
  live.textContent = "";
  live.textContent = text;
}

export function toast(text: string, bad = false): void {
  const box = h("div", { class: bad ? "toast bad" : "toast", role: bad ? "alert" : null }, h("span", {}, text));
  box.append(h("button", { class: "plain", "aria-label": "Close", onclick: () => box.remove() }, "×"));
  document.getElementById("toasts")!.replaceChildren(box);
  if (!bad) {
    say(text);
    setTimeout(() => box.remove(), 6000);
  }
}

export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  return target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey;
}
