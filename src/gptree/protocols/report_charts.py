"""Pictures of the report: curves, trade-off, forgetting, reliability, confusions, trees; and the surest mistakes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gptree.metrics import BINS, ReliabilityCurve
from gptree.protocols.markup import (
    axes,
    charts,
    element,
    escaped,
    figure_element,
    folded,
    inline_svg,
    one_line,
    section,
    table,
)
from gptree.protocols.plots import (
    draw_confusion,
    draw_curves,
    draw_trade_off,
    method_style,
    plot_reliability,
    session_curve,
)
from gptree.protocols.report_folder import Run
from gptree.protocols.report_numbers import BASE_NOVEL, CURVES, FORGETTING, Measure
from gptree.protocols.rows import Detail
from gptree.protocols.tables import Estimate
from gptree.tree import plot_tree
from gptree.tree.text import shorten

_CONFUSED_CLASSES = 10  # in the picture of confusions
_MISTAKES = 12  # test rows that are named, of a method
_NAME_WIDTH = 16  # characters of a class name beside the confusions
_TREE_ROWS = 80  # classes of a tree that has its names in a column, fit for a phone

_AT_THE_END = Measure("", "Accuracy at the end, by session", "%", 100, 1, higher_is_better=True)


def _legend(run: Run, key: str) -> str:
    """The look of every method. No other legend has this key."""
    items = []
    for number, method in enumerate(run.methods):
        ax = axes(0.45, 0.2, blank=True)
        ax.set_axis_off()
        ax.plot([0, 1, 2], [0, 0, 0], **method_style(number), markevery=[1])
        swatch = inline_svg(ax.figure.figure, f"{key}-{number}", aria_hidden="true")
        items.append(element("li", swatch, escaped(method)))
    return element("ul", *items, class_="legend")


def _line_chart(key: str, measure: Measure, curves: Mapping[int, Mapping[int, Estimate]], label: str, run: Run) -> str:
    """A measure over the sessions, of every method by its number; nothing where no method has it."""
    curves = {number: curve for number, curve in curves.items() if curve}
    if not curves:
        return ""
    ax = axes()
    draw_curves(ax, curves, measure.scale)
    ax.set_xlabel(label)
    ends = (f"{run.methods[number]} {measure.text(curve[max(curve)].mean)}" for number, curve in curves.items())
    title = f"{measure.title}, {measure.unit}" if measure.unit else measure.title
    return figure_element(key, title, f"{label}; the last values: {'; '.join(ends)}.", ax.figure.figure)


def _chart(run: Run, measure: Measure) -> str:
    curves = {number: session_curve([rows], measure.key) for number, rows in enumerate(run.rows.values())}
    return _line_chart(f"curve-{measure.key}", measure, curves, "session (0 is the base)", run)


def curves_section(run: Run) -> str:
    explanation = "Mean over seeds after every session; bars are one standard error to each side."
    if len({row["seed"] for row in run.all_rows}) == 1:
        explanation = "One seed, so there are no error bars."
    drawn = charts(*(_chart(run, measure) for measure in CURVES))
    return section("Curves", explanation, _legend(run, "legend-curves"), drawn)


def base_and_novel_section(run: Run) -> str:
    if run.n_sessions == 1:
        return ""
    explanation = (
        "A method that keeps the base often learns new classes badly, and the other way round. On a dotted line the "
        "harmonic mean is the number written there, in %: up and to the right is better."
    )
    drawn = charts(_trade_off(run), *(_chart(run, measure) for measure in BASE_NOVEL))
    return section("Base against novel classes", explanation, _legend(run, "legend-base-novel"), drawn)


def _trade_off(run: Run) -> str:
    points = {}
    for number, rows in enumerate(run.rows.values()):
        last = [row for row in rows if row["session"] == run.n_sessions - 1]
        base, novel = (Estimate.of(row[measure.key] for row in last) for measure in BASE_NOVEL)
        if base is not None and novel is not None:
            points[number] = base, novel
    if not points:
        return ""
    ax = axes()
    draw_trade_off(ax, points)
    places = (
        f"{run.methods[number]}: base {base.mean:.1%}, novel {novel.mean:.1%}"
        for number, (base, novel) in points.items()
    )
    return figure_element("trade-off", "After the last session", "; ".join(places) + ".", ax.figure.figure)


def forgetting_section(run: Run) -> str:
    if run.n_sessions == 1:
        return ""
    at_the_end = {}
    for number, rows in enumerate(run.rows.values()):
        last = [row["session_accuracy"] for row in rows if row["session"] == run.n_sessions - 1]
        estimates = ((session, Estimate.of(values)) for session, values in enumerate(zip(*last, strict=True)))
        at_the_end[number] = {session: estimate for session, estimate in estimates if estimate is not None}
    explanation = (
        "Forgetting: how far the accuracy on the classes of an earlier session lies below its best so far, on average "
        "over those sessions; below 0, later sessions helped. Beside it, the accuracy at the end on each session's "
        "classes."
    )
    at_the_end = _line_chart("at-the-end", _AT_THE_END, at_the_end, "session that brought the classes", run)
    drawn = charts(_chart(run, FORGETTING), at_the_end)
    return section("Forgetting", explanation, _legend(run, "legend-forgetting"), drawn)


def reliability_section(run: Run) -> str:
    figures = []
    for number, (method, details) in enumerate(run.details.items()):
        curve = _pooled(details)
        rows = curve.count.sum()
        if not rows:
            continue
        ax = axes(3.6, 4.4)
        plot_reliability(curve, ax)
        gap = np.nansum(curve.count * (curve.confidence - curve.accuracy))
        side = "more confident than accurate" if gap > 0 else "more accurate than confident"
        description = f"Accuracy over confidence in {np.sum(curve.count > 0)} bins, {rows:,} rows; on the whole {side}."
        title = f"{method}: ECE {100 * curve.ece:.1f} %"
        figures.append(figure_element(f"reliability-{number}", title, description, ax.figure.figure))
    explanation = (
        "Accuracy over confidence after the last session, with the ECE, all seeds pooled. On the dashed line a model "
        "is as often right as it is confident; below, it is too confident; above, not confident enough. The bars at "
        "the foot show how many rows have that confidence."
    )
    if not figures:
        explanation = "The run folder has no details of the last session."
    return section("Reliability", explanation, charts(*figures))


def _pooled(details: Iterable[Detail]) -> ReliabilityCurve:
    """The bins of all seeds together; a bin holds its upper edge, and a mean lies in its bin."""
    confidence, accuracy, count = np.zeros(BINS), np.zeros(BINS), np.zeros(BINS, dtype=int)
    for detail in details:
        for sure, right, n in detail.reliability:
            number = min(max(math.ceil(sure * BINS - 1e-9) - 1, 0), BINS - 1)
            confidence[number] += n * sure
            accuracy[number] += n * right
            count[number] += n
    size = np.where(count > 0, count, np.nan)
    return ReliabilityCurve(np.linspace(0, 1, BINS + 1), confidence / size, accuracy / size, count)


def confusion_section(run: Run) -> str:
    figures = []
    for number, (method, details) in enumerate(run.details.items()):
        counts: Counter[tuple[Any, Any]] = Counter()
        for detail in details:
            for true, predicted, count in detail.confusion:
                counts[true, predicted] += count
        if not counts:
            continue
        ranked = dict.fromkeys(label for pair, _ in counts.most_common() for label in pair)
        novel = set.intersection(*({c for c, new in zip(d.labels, d.novel, strict=True) if new} for d in details))
        classes = list(ranked)[:_CONFUSED_CLASSES]
        ax = axes(4.0, 0.5 + 0.26 * len(classes))
        names = [shorten(one_line(label), _NAME_WIDTH) for label in classes]
        matrix = np.array([[counts[true, predicted] for predicted in classes] for true in classes])
        draw_confusion(ax, matrix, names, [label in novel for label in classes])
        pairs = (f"{true} taken for {predicted} {count} times" for (true, predicted), count in counts.most_common(10))
        figures.append(figure_element(f"confusion-{number}", method, "; ".join(pairs) + ".", ax.figure.figure))
    explanation = (
        "The classes that are taken for each other most often after the last session, counted over all seeds: a row is "
        "the true class, a column the predicted one, under the same letter or name. Bold red classes were novel in "
        "every seed. Each seed counts its 40 most frequent mistakes."
    )
    return section("Confusion", explanation, charts(*figures)) if figures else ""


def mistakes_section(run: Run) -> str:
    parts = []
    for method, details in run.details.items():
        seeds: dict[tuple[str, Any, Any], list[float]] = {}
        for detail in details:
            for name, true, predicted, p in detail.mistakes:
                seeds.setdefault((name, true, predicted), []).append(p)
        ranked = sorted(seeds.items(), key=lambda item: (-len(item[1]), -max(item[1])))[:_MISTAKES]
        rows = [
            [
                one_line(name),
                *(element("td", escaped(one_line(label)), class_="text") for label in (true, predicted)),
                *(element("td", cell) for cell in (f"{max(sure):.3f}", f"{len(sure)} of {len(details)}")),
            ]
            for (name, true, predicted), sure in ranked
        ]
        header = ["test row", "label", "answer", "probability", "seeds"]
        if rows:
            parts.append(folded(method, table(f"Surest mistakes of {method}", header, rows), is_open=not parts))
    explanation = (
        "Test rows by name that are answered wrongly after the last session and with the greatest probability, in most "
        "seeds first: look at their labels."
    )
    return section("Surest mistakes", explanation, *parts) if parts else ""


def trees_section(run: Run) -> str:
    parts = []
    for number, (method, details) in enumerate(run.details.items()):
        detail = next((detail for detail in details if detail.tree is not None), None)
        if detail is None or detail.tree is None:
            continue
        tree, novel = detail.tree, [c for c, new in enumerate(detail.novel) if new]
        small = tree.n_classes <= _TREE_ROWS
        ax = axes(4.8, 0.19 * tree.n_classes + 0.25, blank=True) if small else None
        figure = plot_tree(tree, [one_line(label) for label in detail.labels], ax, highlight=novel)
        title = f"{method}, seed {detail.seed}: {len(detail.labels)} classes, {len(novel)} of them novel"
        description = f"{tree.n_classes} classes, at most {tree.height} decisions deep; {len(novel)} of them are novel."
        width = "100%" if small else "max(100%, 60rem)"  # a large tree is not made to fit into a narrow page
        picture = figure_element(f"tree-{number}", title, description, figure, width)
        parts.append(folded(method, element("div", picture, class_="tree"), is_open=not parts))
    explanation = "The class tree after the last session, of the first seed. Novel classes are bold and red."
    return section("Trees", explanation, *parts) if parts else ""
