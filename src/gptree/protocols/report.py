"""A run folder as one HTML page that needs nothing else: no network, no scripts, light or dark as the reader likes.

The charts are those of `gptree.protocols.plots` and `gptree.tree`, as inline SVG about as wide as a phone.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
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
    page,
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
from gptree.protocols.report_folder import Run, read_run
from gptree.protocols.rows import Detail, Row
from gptree.protocols.tables import Estimate, summary
from gptree.storage import locked, write_atomically
from gptree.tree import plot_tree
from gptree.tree.text import shorten

_COMPLAINTS = 20  # that the page prints
_CONFUSED_CLASSES = 10  # in the picture of confusions
_MISTAKES = 12  # test rows that are named, of a method
_NAME_WIDTH = 16  # characters of a class name beside the confusions
_TREE_ROWS = 80  # classes of a tree that has its names in a column, fit for a phone


@dataclass(frozen=True)
class Measure:
    """A number of each row, and how it is printed: times `scale`, with so many decimals (None: up to three figures)."""

    key: str
    title: str
    unit: str = ""
    scale: float = 1.0
    decimals: int | None = None
    higher_is_better: bool = False

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


_SUMMARY = (
    Measure("last", "Last accuracy", "%", 100, 1, higher_is_better=True),
    Measure("average", "Average accuracy", "%", 100, 1, higher_is_better=True),
    Measure("drop", "Drop", "%", 100, 1),
    Measure("harmonic_mean", "Harmonic mean", "%", 100, 1, higher_is_better=True),
    Measure("forgetting", "Forgetting", "%", 100, 1),
    Measure("nll", "NLL", decimals=3),
    Measure("ece", "ECE", "%", 100, 1),
    Measure("auroc", "Open AUROC", "%", 100, 1, higher_is_better=True),
    Measure("seconds", "Learning", "s"),
    Measure("bytes", "Memory", "kB", 1e-3),
)
_CURVES = (
    Measure("accuracy", "Accuracy on all classes seen", "%", 100, 1, higher_is_better=True),
    Measure("harmonic_mean", "Harmonic mean of base and novel", "%", 100, 1, higher_is_better=True),
    Measure("nll", "Negative log-likelihood (NLL)", decimals=3),
    Measure("ece", "Calibration error (ECE)", "%", 100, 1),
    Measure("open_auroc", "AUROC of classes still to come", "%", 100, 1, higher_is_better=True),
)
_BASE_NOVEL = (
    Measure("base_accuracy", "Accuracy on base classes", "%", 100, 1, higher_is_better=True),
    Measure("novel_accuracy", "Accuracy on novel classes", "%", 100, 1, higher_is_better=True),
)
_FORGETTING = Measure("forgetting", "Average forgetting", "%", 100, 1)
_AT_THE_END = Measure("", "Accuracy at the end, by session", "%", 100, 1, higher_is_better=True)
_COSTS = (
    Measure("seconds_add", "Learning", "s"),
    Measure("seconds_predict", "Prediction", "s"),
    Measure("bytes", "Memory", "kB", 1e-3),
)


def write_report(run_folder: str | Path, path: str | Path | None = None) -> Path:
    """Write the page about a run folder.

    Lines of the folder's files that are damaged, or hold impossible numbers, are left out: the page says so, and a
    warning.

    Parameters
    ----------
    run_folder : path
        As `gptree fscil` and `RunFolder` write it.
    path : path or None
        Of the page, in a folder that exists; None is `report.html` in the run's folder.

    Returns
    -------
    Path
        Of the page.

    Examples
    --------
    >>> write_report("run")  # doctest: +SKIP
    PosixPath('run/report.html')
    """
    run = read_run(Path(run_folder))
    path = Path(run_folder) / "report.html" if path is None else Path(path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the reader's fonts count
        content = _page(run)
    is_beside = path.parent.resolve() == Path(run_folder).resolve()
    with locked(run_folder) if is_beside else nullcontext():
        write_atomically(path, content)
    if run.complaints:
        more = f" ({len(run.complaints) - 1} more on the page)" if len(run.complaints) > 1 else ""
        warnings.warn(f"{run.complaints[0]}{more}", stacklevel=2)
    return path


def _page(run: Run) -> str:
    parts = (_facts, _complaints, _summary, _curves, _base_and_novel, _forgetting, _reliability, _confusion, _mistakes)
    parts = (*parts, _trees, _sessions, _settings)
    return page(f"{run.data}: classes that keep arriving", *(part(run) for part in parts))


# ------------------------------------------------------------------------------------------------ facts and settings


def _facts(run: Run) -> str:
    rows = run.all_rows
    base = sorted({row["classes"] for row in rows if row["session"] == 0})
    end = sorted({row["classes"] for row in rows if row["session"] == run.n_sessions - 1})
    facts = {
        "Data": run.data,
        "Sessions": f"{run.n_sessions}, from {_words(base)} classes in the base to {_words(end)}",
        "Methods": len(run.methods),
        "Seeds": _words(sorted({row["seed"] for row in rows})),
        **{key.capitalize(): _all_words(rows, key) for key in ("versions", "machine", "commit")},
    }
    items = (element("dt", escaped(name)) + element("dd", escaped(fact)) for name, fact in facts.items() if fact)
    return element("dl", *items)


def _all_words(rows: Iterable[Row], key: str) -> str:
    """The different values of a key in the rows."""
    return "; ".join(dict.fromkeys(_words(row[key]) for row in rows if row.get(key)))


def _words(value: Any) -> str:
    """A value of JSON for people."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items() if item is not None)
    return ", ".join(_words(item) for item in value) if isinstance(value, list) else str(value)


def _complaints(run: Run) -> str:
    complaints = [
        *run.complaints,
        *(
            f"{method}, seed {seed}, has {n} of {run.n_sessions} sessions: it counts in the curves, not in the summary."
            for (method, seed), n in run.incomplete().items()
        ),
    ]
    if not complaints:
        return ""
    items = [element("li", escaped(complaint)) for complaint in complaints[:_COMPLAINTS]]
    if len(complaints) > _COMPLAINTS:
        items.append(element("li", f"… and {len(complaints) - _COMPLAINTS} more."))
    heading = element("strong", "This run has gaps, which are left out below:")
    return element("div", heading, element("ul", *items), class_="damage", role="note")


def _settings(run: Run) -> str:
    rows = [
        [method, element("td", escaped(_all_words(rows, "settings") or "–"), class_="text")]
        for method, rows in run.rows.items()
    ]
    return element("section", folded("Settings", table("Settings of every method", ["method", "settings"], rows)))


# ---------------------------------------------------------------------------------------------------------- numbers


def _summary(run: Run) -> str:
    complete = run.complete()
    estimates = {line["method"]: line for line in summary(complete)} if complete else {}
    lines = {}
    for method in run.methods:
        costs = _costs(row for row in complete if row["method"] == method)
        lines[method] = {**estimates.get(method, {"seeds": 0}), **costs}
    best = {measure.key: _best(measure, lines.values()) for measure in _SUMMARY}
    rows = []
    for name, line in lines.items():
        cells = [_cell(measure, line.get(measure.key), best[measure.key]) for measure in _SUMMARY]
        rows.append([name, element("td", str(line["seeds"])), *cells])
    header = ["method", "seeds", *(_head(measure, " ↑" if measure.higher_is_better else " ↓") for measure in _SUMMARY)]
    explanation = "Mean ± one standard error over seeds. The best mean is bold; ↑ and ↓ say where better numbers lie."
    meanings = (
        "Last accuracy, harmonic mean (of the accuracies on base and on novel classes), forgetting, NLL and ECE are "
        "those after the last session. Average accuracy: over the sessions. Drop: accuracy after the base session "
        "minus after the last. Open AUROC: how well the classes still to come are distinguished from those learned, "
        "mean over the sessions that are followed by others. Learning: seconds of all sessions together. Memory: "
        "bytes kept of the training data."
    )
    numbers = table("Every method over all sessions", header, rows)
    return section("Summary", explanation, numbers, folded("The columns explained", element("p", meanings)))


def _costs(rows: Iterable[Row]) -> dict[str, Estimate | None]:
    """Seconds of learning over all sessions, and bytes after the last."""
    seconds: dict[int, float] = {}
    kept: dict[int, int | None] = {}
    for row in sorted(rows, key=lambda row: row["session"]):
        seconds[row["seed"]] = seconds.get(row["seed"], 0.0) + row["seconds_add"]
        kept[row["seed"]] = row["bytes"]
    return {"seconds": Estimate.of(seconds.values()), "bytes": Estimate.of(kept.values())}


def _best(measure: Measure, lines: Iterable[Mapping[str, Any]]) -> str | None:
    """The best of several means as it is shown: what looks the same is equally good."""
    means = [line[measure.key].mean for line in lines if line.get(measure.key) is not None]
    best: Callable[..., float] = max if measure.higher_is_better else min
    return measure.text(best(means)) if len(means) > 1 else None


def _head(measure: Measure, arrow: str = "") -> str:
    return f"{escaped(measure.title)} {element('small', measure.unit + arrow)}"


def _cell(measure: Measure, estimate: Estimate | None, best: str | None = None) -> str:
    if estimate is None:
        return element("td", "–")
    mean = measure.text(estimate.mean)
    return element("td", element("strong", mean) if mean == best else mean, element("small", measure.spread(estimate)))


def _sessions(run: Run) -> str:
    measures = (_CURVES[0], *_BASE_NOVEL, _CURVES[1], _FORGETTING, *_CURVES[2:], *_COSTS)
    tables = []
    for method, rows in run.rows.items():
        curves = {measure: session_curve([rows], measure.key) for measure in measures}
        lines = []
        for session in sorted({row["session"] for row in rows}):
            classes = sorted({row["classes"] for row in rows if row["session"] == session})
            cells = (_cell(measure, curve.get(session)) for measure, curve in curves.items())
            lines.append([str(session), element("td", _words(classes)), *cells])
        header = ["session", "classes", *(_head(measure) for measure in measures)]
        tables.append(folded(method, table(f"{method}, session by session", header, lines)))
    return section("Session by session", "All numbers of the charts: mean ± one standard error over seeds.", *tables)


# ----------------------------------------------------------------------------------------------------------- charts


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


def _curves(run: Run) -> str:
    explanation = "Mean over seeds after every session; bars are one standard error to each side."
    if len({row["seed"] for row in run.all_rows}) == 1:
        explanation = "One seed, so there are no error bars."
    drawn = charts(*(_chart(run, measure) for measure in _CURVES))
    return section("Curves", explanation, _legend(run, "legend-curves"), drawn)


def _base_and_novel(run: Run) -> str:
    if run.n_sessions == 1:
        return ""
    explanation = (
        "A method that keeps the base often learns new classes badly, and the other way round. On a dotted line the "
        "harmonic mean is the number written there, in %: up and to the right is better."
    )
    drawn = charts(_trade_off(run), *(_chart(run, measure) for measure in _BASE_NOVEL))
    return section("Base against novel classes", explanation, _legend(run, "legend-base-novel"), drawn)


def _trade_off(run: Run) -> str:
    points = {}
    for number, rows in enumerate(run.rows.values()):
        last = [row for row in rows if row["session"] == run.n_sessions - 1]
        base, novel = (Estimate.of(row[measure.key] for row in last) for measure in _BASE_NOVEL)
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


def _forgetting(run: Run) -> str:
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
    drawn = charts(_chart(run, _FORGETTING), at_the_end)
    return section("Forgetting", explanation, _legend(run, "legend-forgetting"), drawn)


def _reliability(run: Run) -> str:
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


def _confusion(run: Run) -> str:
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


def _mistakes(run: Run) -> str:
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


def _trees(run: Run) -> str:
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
