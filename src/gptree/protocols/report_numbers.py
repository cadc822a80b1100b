"""Tables of the report: every method over all sessions, and session by session."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gptree.protocols.markup import element, escaped, folded, section, table
from gptree.protocols.plots import session_curve
from gptree.protocols.report_folder import Run
from gptree.protocols.rows import Row
from gptree.protocols.tables import Estimate, summary


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
CURVES = (
    Measure("accuracy", "Accuracy on all classes seen", "%", 100, 1, higher_is_better=True),
    Measure("harmonic_mean", "Harmonic mean of base and novel", "%", 100, 1, higher_is_better=True),
    Measure("nll", "Negative log-likelihood (NLL)", decimals=3),
    Measure("ece", "Calibration error (ECE)", "%", 100, 1),
    Measure("open_auroc", "AUROC of classes still to come", "%", 100, 1, higher_is_better=True),
)
BASE_NOVEL = (
    Measure("base_accuracy", "Accuracy on base classes", "%", 100, 1, higher_is_better=True),
    Measure("novel_accuracy", "Accuracy on novel classes", "%", 100, 1, higher_is_better=True),
)
FORGETTING = Measure("forgetting", "Average forgetting", "%", 100, 1)
_COSTS = (
    Measure("seconds_add", "Learning", "s"),
    Measure("seconds_predict", "Prediction", "s"),
    Measure("bytes", "Memory", "kB", 1e-3),
)


def summary_section(run: Run) -> str:
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


def sessions_section(run: Run) -> str:
    measures = (CURVES[0], *BASE_NOVEL, CURVES[1], FORGETTING, *CURVES[2:], *_COSTS)
    tables = []
    for method, rows in run.rows.items():
        curves = {measure: session_curve([rows], measure.key) for measure in measures}
        lines = []
        for session in sorted({row["session"] for row in rows}):
            classes = sorted({row["classes"] for row in rows if row["session"] == session})
            cells = (_cell(measure, curve.get(session)) for measure, curve in curves.items())
            lines.append([str(session), element("td", words(classes)), *cells])
        header = ["session", "classes", *(_head(measure) for measure in measures)]
        tables.append(folded(method, table(f"{method}, session by session", header, lines)))
    return section("Session by session", "All numbers of the charts: mean ± one standard error over seeds.", *tables)


def words(value: Any) -> str:
    """A value of JSON for people."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {words(item)}" for key, item in value.items() if item is not None)
    return ", ".join(words(item) for item in value) if isinstance(value, list) else str(value)
