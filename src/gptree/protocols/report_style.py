"""How a report looks: markup, the style sheet, and the look of methods and numbers.

A method has one colour, one marker and one kind of dashes on the whole page. Colours are CSS variables with a value
for light and one for dark pages, so that no chart knows the theme. The seven colours of the methods were searched for:
each has a contrast of 3 to the background, and each pair is at least 23 apart in CIE Lab, to people with normal colour
vision and to those without one kind of cones.
"""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gptree.protocols.tables import Estimate

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --card: #f5f6f8; --ink: #1d2127; --soft: #59616d; --rule: #d5d9df;
  --accent: #b3253c;
  --m0: #002c6d; --m1: #ea6500; --m2: #00694e; --m3: #bb76a2; --m4: #0094e1; --m5: #6c4100; --m6: #090a06;
}
@media (prefers-color-scheme: dark) { :root { --paper: #14171c; --card: #1d2128; --ink: #e7eaee; --soft: #a4adb9;
  --rule: #3a414c; --accent: #ff8c9b;
  --m0: #3290fa; --m1: #d2491c; --m2: #4bd67b; --m3: #a5499b; --m4: #aff2ff; --m5: #feb607; --m6: #a98c8c;
} .tree svg { filter: invert(1) hue-rotate(180deg); } }
.m0 { color: var(--m0) } .m1 { color: var(--m1) } .m2 { color: var(--m2) } .m3 { color: var(--m3) }
.m4 { color: var(--m4) } .m5 { color: var(--m5) } .m6 { color: var(--m6) }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem clamp(0.9rem, 3vw, 2.5rem) 4rem; max-width: 82rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.8rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.3rem; padding-top: 0.8rem; border-top: 1px solid var(--rule); }
p { margin: 0.3rem 0 0.8rem; max-width: 46rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1rem; margin: 0.8rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.damage { border-left: 4px solid var(--accent); background: var(--card); padding: 0.6rem 1rem; }
.damage ul { margin: 0.3rem 0; padding-left: 1.2rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 0.8rem 0; } .scroll:focus-visible { outline: 2px solid var(--soft); }
table { border-collapse: collapse; font-size: 0.92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: 0.4rem; }
th, td { padding: 0.3rem 0.45rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
thead th { vertical-align: bottom; white-space: normal; line-height: 1.25; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper);
  min-width: clamp(6rem, 12vw, 10rem); max-width: 10rem; white-space: normal; overflow-wrap: break-word; }
thead th:nth-child(2):last-child { text-align: left; }
td.text { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 16rem; }
td small, th small { white-space: nowrap; color: var(--soft); font-size: 0.85em; }
.legend { display: flex; flex-wrap: wrap; gap: 0.2rem 1.2rem; list-style: none; margin: 0.6rem 0; padding: 0; }
.legend li { overflow-wrap: anywhere; }
.legend svg { display: inline-block; vertical-align: middle; width: 2rem; height: 0.9rem; margin-right: 0.4rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); gap: 1.2rem; }
figure { margin: 0; padding: 0.7rem; background: var(--card); border-radius: 8px; max-width: 34rem; }
figcaption { font-weight: 600; margin-bottom: 0.4rem; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--ink); }
svg .faint { fill: var(--soft); paint-order: stroke; stroke: var(--card); stroke-width: 4; }
svg .novel { fill: var(--accent); font-weight: 700; } svg .tight { font-size: 10.5px; }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.dotted { stroke: var(--soft); stroke-dasharray: 1 4; stroke-linecap: round; fill: none; }
.line { stroke: currentColor; stroke-width: 1.8; fill: none; } .error { stroke: currentColor; stroke-width: 1.4; }
.marker { fill: currentColor; stroke: var(--card); stroke-width: 0.8; } .bar { fill: currentColor; opacity: 0.55; }
.heat { fill: var(--accent); } .cell { fill: none; stroke: var(--rule); }
@media (hover: hover) { svg:hover .series { opacity: 0.25; } svg .series:hover { opacity: 1; } }
details { margin: 0.8rem 0; } summary { cursor: pointer; padding: 0.3rem 0; font-weight: 600; overflow-wrap: anywhere; }
.tree { overflow-x: auto; } .tree figure { background: none; padding: 0; max-width: none; }
.tree svg * { stroke-linejoin: round; }
@media print { body { max-width: none; } figure { break-inside: avoid; } }
"""

_COLOURS = 7  # --m0 … --m6
_DASHES = ("none", "7 3", "2 3")  # for the first, the second and the third seven methods
_MARKERS = (  # around (0, 0): dot, square, triangle, diamond, triangle on its tip, plus, cross, hexagon
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",
    "M-3.5-3.5h7v7h-7Z",
    "M0-4.8 4.6 3.4h-9.2Z",
    "M0-5.2 5.2 0 0 5.2-5.2 0Z",
    "M0 4.8-4.6-3.4h9.2Z",
    "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3Z",
    "M-2.4-4.6 0-2.2 2.4-4.6 4.6-2.4 2.2 0 4.6 2.4 2.4 4.6 0 2.2-2.4 4.6-4.6 2.4-2.2 0-4.6-2.4Z",
    "M-2.2-4h4.4l2.4 4-2.4 4h-4.4l-2.4-4Z",
)


# ----------------------------------------------------------------------------------------------------------- markup


def one_line(value: Any) -> str:
    """A label as one line of text, with a mark for characters that a page cannot hold."""
    line = " ".join(str(value).split())
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs", "Cn") else c for c in line)


def escaped(value: Any) -> str:
    """A label as markup."""
    return html.escape(one_line(value))


def element(name: str, *children: str, **attributes: Any) -> str:
    """An element. Children are markup; attributes are text, or None to leave them out; `class_` stands for class."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(children)}</{name}>"


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose header is markup; a row is the text of its head and then `td` elements.

    It scrolls sideways where the page is too narrow, also by keyboard.
    """
    heads = (element("th", name, scope="col") for name in header)
    lines = (element("tr", element("th", escaped(head), scope="row"), *cells) for head, *cells in rows)
    whole = element(
        "table",
        element("caption", escaped(caption)),
        element("thead", element("tr", *heads)),
        element("tbody", *lines),
    )
    return element("div", whole, class_="scroll", role="region", tabindex=0, aria_label=caption)


# ------------------------------------------------------------------------------------------- methods and their numbers


@dataclass(frozen=True)
class Method:
    """A method and its place among all methods, which decides how it looks."""

    name: str
    number: int

    @property
    def colour(self) -> str:
        """The CSS class that makes this the current colour."""
        return f"m{self.number % _COLOURS}"

    @property
    def dash(self) -> str:
        return _DASHES[self.number // _COLOURS % len(_DASHES)]

    def marker(self, x: float, y: float, said: str = "") -> str:
        """The marker at a place; `said` shows when the mouse is on it."""
        title = element("title", escaped(said)) if said else ""
        shape = _MARKERS[self.number % len(_MARKERS)]
        return element("path", title, d=shape, transform=f"translate({x:.1f} {y:.1f})", class_="marker")


def legend(methods: Sequence[Method]) -> str:
    items = []
    for method in methods:
        line = element("path", d="M1 7H31", class_="line", stroke_dasharray=method.dash)
        both = element("g", line, method.marker(16, 7), class_=method.colour)
        swatch = element("svg", both, viewBox="0 0 32 14", aria_hidden="true")
        items.append(element("li", swatch, escaped(method.name)))
    return element("ul", *items, class_="legend")


@dataclass(frozen=True)
class Measure:
    """A number of each row, and how it is shown: times `scale`, with so many decimals (None: up to three figures)."""

    key: str
    title: str
    unit: str = ""
    scale: float = 1.0
    decimals: int | None = None
    higher_is_better: bool = False

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.unit}" if self.unit else self.title

    def text(self, value: float) -> str:
        return self._written(value, value)

    def spread(self, estimate: Estimate) -> str:
        """± standard error, with the decimals of the mean; nothing for one seed."""
        return "" if estimate.error is None else f" ± {self._written(estimate.error, estimate.mean)}"

    def _written(self, value: float, like: float) -> str:
        decimals = self.decimals
        if decimals is None:
            size = math.floor(math.log10(abs(self.scale * like))) if like else 0
            decimals = min(max(2 - size, 0), 4)
        return f"{self.scale * value:,.{decimals}f}"
