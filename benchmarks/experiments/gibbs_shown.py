"""Tables and figures of the experiments with Gibbs sampling, from rows alone."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib.pyplot as plt

from benchmarks.experiment import Table
from benchmarks.experiments.gibbs_trials import GIBBS_METHODS, INFERENCES, PLAIN_METHODS
from benchmarks.rows import Row, Trial
from benchmarks.tables import Better, Column, Summary, best_of_columns, field_of, grouped, line_plot

NAMES = {"cub200": "CUB", "clinc150": "CLINC150"}
ACCURACY = Column("accuracy %", "accuracy", scale=100, digits=1)
NLL = Column("NLL", "nll", digits=3)
ECE = Column("ECE %", "ece", scale=100, digits=1)
SCORES: tuple[tuple[Column, Better], ...] = ((ACCURACY, max), (NLL, min), (ECE, min))
SECONDS = Column("processor seconds of one fit, median over seeds", "metrics.fit_seconds", digits=2)
CROSS_VALIDATED = "; logistic regression with its cross-validation"
MEMORY = Column("peak memory in GiB, upper bound, the largest of the seeds", "peak_memory_bytes", 2**-30, digits=2)
#: Methods whose memory is shown: it grows fastest with the classes.
LARGE = ("LSM", "OVE")
UPPER_BOUND = (
    "An upper bound: of the whole process, libraries and data included, which may still hold memory of trials that it "
    "ran before."
)


@dataclass(frozen=True)
class Line:
    """A line of a table: rows, and how they predict, "mean" or "quadrature"."""

    name: str
    rows: list[Row]
    at: str = "mean"

    def score(self, column: Column, classes: int) -> Summary:
        return Summary.of(self.of(classes), score(column, self.at))

    def of(self, classes: int) -> list[Row]:
        return [row for row in self.rows if row.trial.settings["classes"] == classes]


def score(column: Column, at: str = "mean") -> Column:
    return replace(column, path=f"metrics.{at}.{column.path}")


def by_data(rows: list[Row]) -> dict[str, list[Row]]:
    """In the order of `NAMES`."""
    return {data: own for data in NAMES if (own := [row for row in rows if row.trial.data == data])}


def numbers_of_classes(rows: list[Row]) -> list[int]:
    return sorted({row.trial.settings["classes"] for row in rows})


def with_quadrature(lines: list[Line]) -> list[Line]:
    """The lines at the mean, then those that have it by quadrature."""
    second = [
        Line(f"{line.name}, quadrature", line.rows, "quadrature")
        for line in lines
        if any(field_of(row, "metrics.quadrature") for row in line.rows)
    ]
    return lines + second


def score_tables(data: str, rows: list[Row], lines: Sequence[Line], note: str, also: str = "") -> list[Table]:
    """Accuracy, NLL and ECE: a line a method, a column a number of classes."""
    counts = numbers_of_classes(rows)
    seeds = len({row.trial.seed for row in rows})
    found = []
    for column, better in SCORES:
        summaries = [[line.score(column, classes) for classes in counts] for line in lines]
        cells = best_of_columns(summaries, [column.digits] * len(counts), [better] * len(counts))
        title = f"{NAMES[data]}{also}: {column.title}, mean ± standard error over seeds ({seeds})"
        body = [[line.name, *texts] for line, texts in zip(lines, cells, strict=True)]
        found.append(Table(title, ["classes", *map(str, counts)], body, note if column is ACCURACY else ""))
    return found


def cost_tables(data: str, rows: list[Row], lines: Sequence[Line]) -> list[Table]:
    """Seconds of a fit; memory of the methods in which it is at stake."""
    counts = numbers_of_classes(rows)
    head = ["classes", *map(str, counts)]
    seconds = [[line.name, *(_median_seconds(line.of(classes)) for classes in counts)] for line in lines]
    note = f"Of the chosen setting alone{CROSS_VALIDATED if any('logistic' in line.name for line in lines) else ''}. "
    found = [Table(f"{NAMES[data]}: {SECONDS.title}", head, seconds, f"{note}One thread. {_processors(lines)}")]
    peaks = [[line.name, *(_peak(line.of(classes)) for classes in counts)] for line in lines if line.name in LARGE]
    if peaks:
        found.append(Table(f"{NAMES[data]}: {MEMORY.title}", head, peaks, UPPER_BOUND))
    return found


def _median_seconds(rows: list[Row]) -> str:
    found = [seconds for row in rows if (seconds := field_of(row, SECONDS.path)) is not None]
    return f"{statistics.median(found):.{SECONDS.digits}f}" if found else "–"


def _processors(lines: Sequence[Line]) -> str:
    """The processor of most rows, and the lines that have rows of others."""
    found = {
        line.name: Counter(field_of(row, "machine.cpu", "an unknown processor") for row in line.rows) for line in lines
    }
    usual = sum(found.values(), Counter()).most_common(1)[0][0]
    others = [
        f"{name} on {processor} ({count} of {counts.total()} rows)"
        for name, counts in found.items()
        for processor, count in counts.items()
        if processor != usual
    ]
    if not others:
        return f"Processor: {usual}."
    return f"Processor: {usual}, but {'; '.join(others)}. Seconds of different processors are not to be compared."


def peaks_of(rows: list[Row]) -> list[int]:
    """Bytes, of the rows that ran and could tell."""
    return [row.peak_memory_bytes for row in rows if "stopped" not in row.metrics and row.peak_memory_bytes is not None]


def _peak(rows: list[Row]) -> str:
    peaks = [MEMORY.scale * peak for peak in peaks_of(rows)]
    return f"{max(peaks):.{MEMORY.digits}f}" if peaks else "–"


def method_lines(rows: list[Row], methods: Sequence[str]) -> list[Line]:
    found = [Line(name, [row for row in rows if row.trial.method == name]) for name in methods]
    return [line for line in found if line.rows]


# ------------------------------------------------------------------------------------------------------------- tables

AT_THE_MEAN = "At the latent mean unless quadrature is named; bold: the best mean of a column. Test half."


def method_tables(rows: list[Row]) -> list[Table]:
    found = []
    for data, own in by_data(rows).items():
        lines = method_lines(own, (*GIBBS_METHODS, *PLAIN_METHODS, *INFERENCES))
        found += score_tables(data, own, with_quadrature(lines), AT_THE_MEAN) + cost_tables(data, own, lines)
    return found


def chains_tables(rows: list[Row]) -> list[Table]:
    found = []
    for data, own in by_data(rows).items():
        groups = sorted(grouped(own, ["settings.steps", "settings.chains"]).items())
        lines = [Line(chains_called(part[0].trial), part) for _, part in groups]
        found += score_tables(
            data, own, lines, "GP-Tree at the latent mean; bold: the best mean of a column. Test half."
        )
        found += cost_tables(data, own, lines)
    return found


def chains_called(trial: Trial) -> str:
    return f"{_count(trial.settings['chains'], 'chain')}, {_count(trial.settings['steps'], 'step')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# ------------------------------------------------------------------------------------------------------------ figures


def classes_figure(rows: list[Row], path: Path) -> None:
    _panels([(NAMES[data], own, "method") for data, own in by_data(rows).items()], path)


def chains_figure(rows: list[Row], path: Path) -> None:
    panels = []
    for data, own in by_data(rows).items():
        for vary, fixed, at in (("chains", "steps", 1), ("steps", "chains", 4)):
            part = [row for row in own if row.trial.settings[fixed] == at]
            title = f"{NAMES[data]}, {_count(at, fixed.removesuffix('s'))}"
            panels.append((title, sorted(part, key=lambda row: row.trial.settings[vary]), f"settings.{vary}"))
    _panels(panels, path)


def _panels(panels: list[tuple[str, list[Row], str]], path: Path) -> None:
    """Accuracy against the number of classes, a line for each value of a field."""
    down, across = math.ceil(len(panels) / 2), min(len(panels), 2)
    figure, axes = plt.subplots(down, across, figsize=(5.2 * across, 4.2 * down), squeeze=False, layout="constrained")
    names = [name for _, rows, series in panels for (name,) in grouped(rows, [series])]
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(names))}
    for ax, (title, rows, series) in zip(axes.flat, panels, strict=True):
        line_plot(rows, "settings.classes", score(ACCURACY), series, ax, colours)
        ax.set(title=title, xlabel="number of classes")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
        ax.legend(frameon=False, fontsize="small", title=series.removeprefix("settings.") if "." in series else None)
    figure.savefig(path, dpi=150)
    plt.close(figure)
