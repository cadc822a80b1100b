"""The charts of a report, as inline SVG.

They are about as wide as a phone, so that their text need never be made smaller.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from gptree.protocols.report_folder import Bin
from gptree.protocols.report_style import Measure, Method, element, escaped, one_line
from gptree.protocols.run import harmonic_mean
from gptree.protocols.tables import Estimate
from gptree.tree import ClassTree, plot_tree
from gptree.tree.text import shorten

_WIDTH, _HEIGHT = 380.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 42.0, 10.0, 8.0, 42.0
_NAME_WIDTH = 16  # characters of a class name beside the confusions
_ROWS = 80  # classes of a tree that has its names in a column, fit for a phone

Point = tuple[float, float]
Curves = Mapping[Method, Mapping[int, Estimate]]  # the estimate of every session


def figure(
    key: str, title: str, description: str, drawing: str, width: float, height: float, style: str | None = None
) -> str:
    """A drawing with a caption, and a description for those who do not see it. No other figure has this key."""
    svg = element(
        "svg",
        element("title", escaped(title), id=f"{key}-title"),
        element("desc", escaped(description), id=f"{key}-desc"),
        drawing,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
        style=style,
    )
    return element("figure", element("figcaption", escaped(title)), svg)


def _text(x: float, y: float, markup: str, **attributes: Any) -> str:
    return element("text", markup, x=f"{x:.1f}", y=f"{y:.1f}", **attributes)


def _line(points: Iterable[Point], **attributes: Any) -> str:
    return element("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), **attributes)


# ------------------------------------------------------------------------------------------------------------- axes


@dataclass(frozen=True)
class _Frame:
    """A sheet of paper with a rectangle that shows the numbers between `x` and between `y`."""

    x: Point
    y: Point
    width: float = _WIDTH
    height: float = _HEIGHT

    def at(self, x: float, y: float) -> Point:
        """Where a point is on paper."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        bottom = self.height - _BOTTOM
        return _LEFT + across * (self.width - _LEFT - _RIGHT), bottom - up * (bottom - _TOP)

    def axes(
        self, label: str, x_ticks: Sequence[float], y_ticks: Sequence[float], scale: Point, y_label: str = ""
    ) -> str:
        """Lines across at the ticks of y, numbers (times their scale) on both axes, and the names of the axes."""
        parts = []
        for y in y_ticks:
            left, right = self.at(self.x[0], y), self.at(self.x[1], y)
            parts.append(_line([left, right], class_="grid"))
            parts.append(_text(left[0] - 6, left[1] + 4, f"{scale[1] * y:g}", text_anchor="end"))
        for x in x_ticks:
            place, bottom = self.at(x, self.y[0])
            parts.append(_line([(place, bottom), (place, bottom + 4)], class_="axis"))
            parts.append(_text(place, bottom + 17, f"{scale[0] * x:g}", text_anchor="middle"))
        left, right = self.at(self.x[0], self.y[0]), self.at(self.x[1], self.y[0])
        parts.append(_line([left, right], class_="axis"))
        parts.append(_text((left[0] + right[0]) / 2, self.height - 6, escaped(label), text_anchor="middle"))
        if y_label:
            parts.append(_text(left[0] + 4, _TOP + 9, f"↑ {escaped(y_label)}", class_="faint"))
        return "".join(parts)

    def error_bars(self, x: Estimate, y: Estimate, shift: float = 0.0) -> str:
        """One standard error to each side of (x, y), level and upright, the whole moved to the right by `shift`."""
        bars = []
        if x.error:
            bars.append([self.at(x.mean - x.error, y.mean), self.at(x.mean + x.error, y.mean)])
        if y.error:
            bars.append([self.at(x.mean, y.mean - y.error), self.at(x.mean, y.mean + y.error)])
        return "".join(_line([(px + shift, py) for px, py in bar], class_="error") for bar in bars)


def _ticks(span: Point, most: int = 6, whole: bool = False) -> list[float]:
    from matplotlib.ticker import MaxNLocator

    places = np.asarray(MaxNLocator(most, steps=[1, 2, 5, 10], integer=whole).tick_values(*span))
    slack = 1e-9 * (span[1] - span[0])
    inside = (places >= span[0] - slack) & (places <= span[1] + slack)
    return places[inside & ((places == np.round(places)) | (not whole))].round(12).tolist()


def _span(estimates: Iterable[Estimate], most: float, least_width: float) -> Point:
    """Room for all error bars, ending at 0 and at `most` if they all lie between."""
    estimates = list(estimates)
    low = min(estimate.mean - (estimate.error or 0.0) for estimate in estimates)
    high = max(estimate.mean + (estimate.error or 0.0) for estimate in estimates)
    pad = max(0.07 * (high - low), (least_width - (high - low)) / 2)
    return low - pad if low < 0 else max(low - pad, 0.0), high + pad if high > most else min(high + pad, most)


# ----------------------------------------------------------------------------------------------- curves and trade-off


def line_chart(key: str, measure: Measure, curves: Curves, label: str = "session (0 is the base)") -> str:
    """A line with error bars for every method."""
    places = sorted({x for curve in curves.values() for x in curve})
    estimates = [estimate for curve in curves.values() for estimate in curve.values()]
    most = 1.0 if measure.unit == "%" else math.inf
    frame = _Frame((places[0] - 0.3, places[-1] + 0.3), _span(estimates, most, least_width=0.02))
    drawing = frame.axes(label, _ticks(frame.x, 12, whole=True), _ticks(frame.y), (1.0, measure.scale))
    apart = min(3.0, 14.0 / len(curves))  # so that error bars do not cover each other
    ends = []
    for place, (method, curve) in enumerate(curves.items()):
        shift = apart * (place - (len(curves) - 1) / 2)
        dots = {x: frame.at(x, curve[x].mean) for x in sorted(curve)}
        dots = {x: (px + shift, py) for x, (px, py) in dots.items()}
        parts = [_line(dots.values(), class_="line", stroke_dasharray=method.dash)]
        for x, dot in dots.items():
            said = f"{measure.text(curve[x].mean)}{measure.spread(curve[x])} {measure.unit}"
            parts.append(frame.error_bars(Estimate(x, None), curve[x], shift))
            parts.append(method.marker(*dot, f"{method.name}, {x}: {said}"))
        drawing += element("g", *parts, class_=f"series {method.colour}")
        ends.append(f"{method.name} {measure.text(curve[max(curve)].mean)}")
    description = f"{label}: {places[0]} to {places[-1]}. Last values: {'; '.join(ends)}."
    return figure(key, measure.heading, description, drawing, frame.width, frame.height)


def trade_off(key: str, title: str, points: Mapping[Method, tuple[Estimate, Estimate]]) -> str:
    """Accuracy on base classes (x) against novel classes (y); along a dotted line the harmonic mean is the same."""
    base, novel = (_span((pair[i] for pair in points.values()), 1.0, least_width=0.1) for i in (0, 1))
    frame = _Frame(base, novel)
    corners = [harmonic_mean(b, n) for b, n in zip(base, novel, strict=True)]
    drawing = "".join(_same_harmonic_mean(frame, mean) for mean in _ticks((corners[0], corners[1])) if mean > 0)
    ticks = _ticks(frame.x), _ticks(frame.y)
    drawing += frame.axes("accuracy on base classes, %", *ticks, (100.0, 100.0), "accuracy on novel classes, %")
    said = {method: f"{method.name}: base {x.mean:.1%}, novel {y.mean:.1%}" for method, (x, y) in points.items()}
    for method, (x, y) in points.items():
        marker = method.marker(*frame.at(x.mean, y.mean), said[method])
        drawing += element("g", frame.error_bars(x, y), marker, class_=f"series {method.colour}")
    return figure(key, title, "; ".join(said.values()) + ".", drawing, frame.width, frame.height)


def _same_harmonic_mean(frame: _Frame, mean: float) -> str:
    """The points (b, n) of the frame with 2bn/(b + n) = mean, that is n = mean·b/(2b − mean)."""
    base = np.linspace(max(frame.x[0], mean / 2 + 1e-6), frame.x[1], 100)
    novel = mean * base / (2 * base - mean)
    inside = (novel >= frame.y[0]) & (novel <= frame.y[1])
    if inside.sum() < 20:  # too short for its label
        return ""
    points = [frame.at(b, n) for b, n in zip(base[inside].tolist(), novel[inside].tolist(), strict=True)]
    x, y = points[-10]
    label = _text(x, y + 4, f"{100 * mean:g}", text_anchor="middle", class_="faint")
    return _line(points, class_="dotted") + label


# ------------------------------------------------------------------------------------------ reliability and confusion


def reliability_chart(key: str, method: Method, bins: Sequence[Bin]) -> str:
    """Accuracy over confidence, each bin tied to the diagonal, and beneath it the share of the rows in each bin."""
    rows = sum(count for *_, count in bins)
    error = sum(count * abs(accuracy - confidence) for confidence, accuracy, count in bins) / rows
    frame = _Frame((0.0, 1.0), (-0.22, 1.0), width=320.0, height=330.0)
    tenths = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    drawing = frame.axes("confidence, %", tenths, tenths, (100.0, 100.0), "accuracy, %")
    drawing += _line([frame.at(0, 0), frame.at(1, 1)], class_="dotted")
    largest = max(count for *_, count in bins)
    parts = []
    for confidence, accuracy, count in bins:
        dot, (x, floor) = frame.at(confidence, accuracy), frame.at(confidence, -0.22)
        bar = floor - frame.at(confidence, -0.22 + 0.18 * count / largest)[1]
        parts.append(
            element("rect", x=f"{x - 5:.1f}", y=f"{floor - bar:.1f}", width=10, height=f"{bar:.1f}", class_="bar")
        )
        parts.append(_line([dot, frame.at(confidence, confidence)], class_="error"))
        said = f"{count:,} rows: confidence {confidence:.1%}, accuracy {accuracy:.1%}"
        parts.append(method.marker(*dot, said))
    drawing += element("g", *parts, class_=method.colour)
    side = "surer than right" if sum(n * (c - a) for c, a, n in bins) > 0 else "more often right than sure"
    description = f"Accuracy over confidence in {len(bins)} bins, {rows:,} rows; on the whole {side}."
    return figure(key, f"{method.name}: ECE {100 * error:.1f} %", description, drawing, frame.width, frame.height)


def confusion_chart(
    key: str, title: str, counts: Mapping[tuple[Any, Any], int], shown: Sequence[Any], novel: set[Any]
) -> str:
    """How often each shown class (a row) was taken for each other one (a column).

    Columns are headed by the names if those are short, otherwise by letters, which stand behind the names as well.
    """
    names = [one_line(label) for label in shown]
    short = all(len(name) <= 3 for name in names)
    heads = names if short else [chr(ord("A") + i) for i in range(len(names))]
    left = 60.0 if short else 175.0
    side = min((_WIDTH - left) / len(shown), 30.0)  # of a cell
    most, drawing = max(counts.values()), []
    for i, true in enumerate(shown):
        y = side * (i + 1.5) + 4
        style = {"class_": "novel" if true in novel else None}
        drawing.append(_text(left + side * (i + 0.5), 14, escaped(heads[i]), text_anchor="middle", **style))
        if not short:
            drawing.append(_text(left - 13, y, heads[i], text_anchor="middle", **style))
        name = f"{'● ' * (true in novel)}{escaped(shorten(names[i], _NAME_WIDTH))}{element('title', escaped(true))}"
        drawing.append(_text(left - (8 if short else 28), y, name, text_anchor="end", **style))
        for j, predicted in enumerate(shown):
            corner = {"x": f"{left + j * side:.1f}", "y": f"{(i + 1) * side:.1f}"}
            box = {**corner, "width": f"{side:.1f}", "height": f"{side:.1f}"}
            drawing.append(element("rect", **box, class_="cell"))
            count = counts.get((true, predicted), 0)
            if count:
                said = element("title", escaped(f"{true} taken for {predicted}: {count} times"))
                shade = f"{0.05 + 0.45 * count / most:.2f}"  # light enough for dark numbers, and the other way round
                size = "tight" if count > 99 else None
                drawing.append(element("rect", said, **box, class_="heat", fill_opacity=shade))
                drawing.append(_text(left + side * (j + 0.5), y, str(count), text_anchor="middle", class_=size))
    pairs = sorted(counts.items(), key=lambda item: -item[1])[:10]
    said = "; ".join(f"{true} taken for {predicted} {count} times" for (true, predicted), count in pairs)
    return figure(key, title, f"{said}.", "".join(drawing), _WIDTH + 1, side * (len(shown) + 1) + 1)


# -------------------------------------------------------------------------------------------------------------- tree


def tree_chart(key: str, title: str, tree: ClassTree, labels: Sequence[Any], novel: Sequence[int]) -> str:
    """The picture of a tree with the novel classes marked. Large ones are not made to fit into a narrow page."""
    import matplotlib
    from matplotlib.figure import Figure

    small = tree.n_classes <= _ROWS
    file = io.BytesIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": key}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the reader's fonts count
        paper = Figure(figsize=(4.8, 0.19 * tree.n_classes + 0.25)).add_axes((0.0, 0.0, 1.0, 1.0)) if small else None
        picture = plot_tree(tree, [one_line(label) for label in labels], paper, highlight=novel)
        picture.savefig(file, format="svg", transparent=True)
    width, height = 72 * picture.get_size_inches()  # points
    description = f"{tree.n_classes} classes, at most {tree.height} decisions deep; {len(novel)} of them are novel."
    drawing = _as_part_of_a_page(key, ElementTree.fromstring(file.getvalue()))
    style = f"width: {width:.0f}pt; max-width: {'100%' if small else 'max(100%, 60rem)'}"
    return figure(key, title, description, drawing, width, height, style)


def _as_part_of_a_page(key: str, svg: ElementTree.Element) -> str:
    """What is inside a stand-alone SVG, without its style sheet (it would rule the page), with names of its own."""
    for parent in list(svg.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    for node in svg.iter():
        node.tag = node.tag.rpartition("}")[2]  # markup of a page has no name spaces
        node.attrib = {name.rpartition("}")[2]: value for name, value in node.attrib.items()}
        for name, before in (("id", ""), ("href", "#"), ("clip-path", "url(#")):
            if name in node.attrib:
                node.attrib[name] = f"{before}{key}-{node.attrib[name].removeprefix(before)}"
    return "".join(ElementTree.tostring(child, encoding="unicode") for child in svg)
