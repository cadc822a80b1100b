"""Tables and figures of the experiments with Gibbs sampling: a line a method, a column a number of classes."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.core.figures import line_plot, panels
from benchmarks.core.gaps import gap_table
from benchmarks.core.tables import Column, Summary, Table, bold_best, chosen, grouped, number
from benchmarks.core.trials import Row
from benchmarks.experiments.gibbs.trials import NAMES

ACCURACY = Column("accuracy %", "metrics.mean.accuracy", scale=100, digits=1)
NLL = Column("NLL", "metrics.mean.nll", digits=3, better=min)
ECE = Column("ECE %", "metrics.mean.ece", scale=100, digits=1, better=min)
SECONDS = Column("processor seconds of one fit, median over seeds", "metrics.fit_seconds", digits=2)
MEMORY = Column("peak memory in GiB, upper bound, the largest of the seeds", "peak_memory_bytes", 2**-30, digits=2)
#: Methods whose memory is shown: it grows fastest with the classes.
LARGE = ("LSM", "OVE")
AT_THE_MEAN = "At the latent mean unless quadrature is named; bold: the best mean of a column. Test half."
UPPER_BOUND = (
    "An upper bound: of the whole process, libraries and data included, which may still hold memory of trials that it "
    "ran before."
)
Lines = Mapping[str, list[Row]]


def by_quadrature(column: Column) -> Column:
    title = f"{column.title}, quadrature"
    return replace(column, title=title, path=column.path.replace(".mean.", ".quadrature."))


COLUMNS = {"accuracy": ACCURACY, "NLL": NLL, "accuracy by quadrature": by_quadrature(ACCURACY)}


def all_tables(rows: list[Row], by: Sequence[str] = ("method",)) -> list[Table]:
    """Of each data set: scores at the mean and by quadrature, seconds, and memory where it is at stake."""
    made = []
    for data, name in NAMES.items():
        here = chosen(rows, data=data)
        lines = {_called(values): group for values, group in grouped(here, by).items()}
        if here:
            quadrature = by == ("method",)
            made += [_scores(name, here, lines, column, quadrature) for column in (ACCURACY, NLL, ECE)]
            made.append(_seconds(name, here, lines))
            large = {method: group for method, group in lines.items() if method in LARGE}
            made += [_cells(f"{name}: {MEMORY.title}", here, large, _largest, UPPER_BOUND)] if large else []
    return made


def _called(values: Sequence) -> str:
    """The name of a line: a method, or numbers of chains and steps."""
    if len(values) == 1:
        return values[0]
    return ", ".join(f"{n} {what}{'s' * (n != 1)}" for n, what in zip(values, ("chain", "step"), strict=True))


def _counts(rows: list[Row]) -> list[int]:
    return sorted({row.trial.settings["classes"] for row in rows})


def _scores(name: str, rows: list[Row], lines: Lines, column: Column, quadrature: bool) -> Table:
    measured = {method: (group, column) for method, group in lines.items()}
    if quadrature:
        other = by_quadrature(column)
        with_it = {m: group for m, group in lines.items() if any(other.of(row) is not None for row in group)}
        measured |= {f"{method}, quadrature": (group, other) for method, group in with_it.items()}
    columns = []
    for classes in _counts(rows):
        summaries = [Summary.of(chosen(group, classes=classes), how) for group, how in measured.values()]
        columns.append(bold_best(summaries, column.digits, column.better))
    seeds = len({row.trial.seed for row in rows})
    return Table(
        f"{name}: {column.title}, mean ± standard error over seeds ({seeds})",
        ["classes", *map(str, _counts(rows))],
        [list(line) for line in zip(measured, *columns, strict=True)],
        AT_THE_MEAN if column is ACCURACY else "",
    )


def _seconds(name: str, rows: list[Row], lines: Lines) -> Table:
    note = "Of the chosen setting alone; logistic regression with its cross-validation. One thread. Rows by processor: "
    counts = Counter(row.field("machine.cpu", "unknown") for row in rows)
    note += ", ".join(f"{cpu} {count}" for cpu, count in counts.most_common())
    if len(counts) > 1:
        note += "; seconds of different processors are not to be compared"
    return _cells(f"{name}: {SECONDS.title}", rows, lines, _median, f"{note}.")


def _cells(title: str, rows: list[Row], lines: Lines, text, note: str) -> Table:
    cells = [[name, *(text(chosen(group, classes=n)) for n in _counts(rows))] for name, group in lines.items()]
    return Table(title, ["classes", *map(str, _counts(rows))], cells, note)


def _median(rows: list[Row]) -> str:
    seconds = [value for row in rows if (value := SECONDS.of(row)) is not None]
    return number(statistics.median(seconds), SECONDS.digits) if seconds else "–"


def _largest(rows: list[Row]) -> str:
    """Of the rows that ran and could tell."""
    peaks = [peak for row in rows if "stopped" not in row.metrics and (peak := MEMORY.of(row)) is not None]
    return number(max(peaks), MEMORY.digits) if peaks else "–"


def gaps_at(rows: list[Row], classes: int, pairs: Sequence[tuple[dict, dict]]) -> Table:
    """Gaps of accuracy, NLL and ECE at so many classes; a pair is what picks the rows of each side."""
    lines = {}
    for data, name in NAMES.items():
        here = chosen(rows, data=data, classes=classes)
        for one, other in pairs:
            called = [_called(list(side.values())) for side in (one, other)]
            lines[f"{name}: {called[0]} less {called[1]}"] = chosen(here, **one), chosen(here, **other)
    return gap_table(f"Gaps at {classes} classes", lines, (ACCURACY, NLL, ECE))


def accuracy_figure(drawings: Sequence[tuple[str, list[Row], str]], path: Path) -> None:
    """Accuracy against the number of classes, a panel a drawing: title, rows, and the field that tells lines apart."""
    down, across = math.ceil(len(drawings) / 2), min(len(drawings), 2)
    picture, axes = panels(down, across, width=5.2, height=4.2)
    names = [name for _, rows, series in drawings for (name,) in grouped(rows, [series])]
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(names))}
    for ax, (title, rows, series) in zip(axes, drawings, strict=False):
        line_plot(rows, "settings.classes", ACCURACY, series, ax, colours)
        ax.set(title=title, xlabel="number of classes")
        if "." in series:
            ax.legend(frameon=False, fontsize="small", title=series.removeprefix("settings."))
    picture.savefig(path, dpi=150)


def methods_figure(rows: list[Row], path: Path) -> None:
    """A panel a data set, a line a method."""
    drawings = [(name, chosen(rows, data=data), "method") for data, name in NAMES.items()]
    accuracy_figure([drawing for drawing in drawings if drawing[1]], path)
