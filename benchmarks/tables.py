"""Markdown tables and line plots, made from rows alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Column:
    """A number of a row: where it is ("metrics.accuracy", "seconds.cpu"), and how it is shown."""

    title: str
    path: str
    scale: float = 1.0
    digits: int = 3


@dataclass(frozen=True)
class Summary:
    """Mean and standard error of some numbers; the error of one is NaN, and so is the mean of none.

    One number that is not finite makes the mean so, and the error NaN.
    """

    mean: float
    error: float
    count: int

    @classmethod
    def of(cls, rows: Iterable[Row], column: Column) -> Summary:
        """Over the rows that have the number; None is a number that is not defined."""
        return cls.over(column.scale * v for row in rows if (v := field_of(row, column.path)) is not None)

    @classmethod
    def over(cls, values: Iterable[float]) -> Summary:
        numbers = np.array(list(values), dtype=float)
        if not len(numbers):
            return cls(math.nan, math.nan, 0)
        with np.errstate(invalid="ignore"):
            error = numbers.std(ddof=1) / math.sqrt(len(numbers)) if len(numbers) > 1 else math.nan
            return cls(float(numbers.mean()), float(error), len(numbers))

    def text(self, digits: int) -> str:
        if not self.count:
            return "–"
        mean = f"{self.mean:z.{digits}f}".replace("inf", "∞")
        return mean if math.isnan(self.error) else f"{mean} ± {self.error:.{digits}f}"


Better = Callable[[Iterable[float]], float]  # max or min


def bold_best(texts: Sequence[str], values: Sequence[float | None], better: Better = max) -> list[str]:
    """The texts, those of the best value in bold; None and what is not finite are never the best."""
    found = [value for value in values if value is not None and math.isfinite(value)]
    best = better(found) if found else math.nan
    return [f"**{text}**" if value == best else text for text, value in zip(texts, values, strict=True)]


def best_of_line(line: Sequence[Summary], digits: int, better: Better = max) -> list[str]:
    """The cells of a line, the best mean in bold, and with it every mean that is shown by the same digits."""
    shown = [round(summary.mean, digits) for summary in line]
    return bold_best([summary.text(digits) for summary in line], shown, better)


def best_of_columns(
    lines: Sequence[Sequence[Summary]], digits: Sequence[int], better: Sequence[Better]
) -> list[list[str]]:
    """The cells of lines, the best of each column in bold; digits and what is better by column."""
    columns = zip(zip(*lines, strict=True), digits, better, strict=True)
    return [list(cells) for cells in zip(*(best_of_line(*column) for column in columns), strict=True)]


def field_of(row: Row, path: str, absent: Any = None) -> Any:
    """The value at a dotted path: "method", "settings.shots", "metrics.nll", "seconds.cpu", …"""
    value: Any = {
        **row.trial.as_json(),
        "metrics": row.metrics,
        "seconds": row.seconds,
        "peak_memory_bytes": row.peak_memory_bytes,
        "versions": row.versions,
        "machine": row.machine,
    }
    for name in path.split("."):
        if name not in value:
            return absent
        value = value[name]
    return value


def grouped(rows: Iterable[Row], by: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of the fields `by`, in the order in which they first appear."""
    groups: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(field_of(row, path, absent="–") for path in by)].append(row)
    return dict(groups)


def markdown(rows: Iterable[Row], by: Sequence[str], columns: Sequence[Column]) -> str:
    """A line for each combination of the fields `by`: mean ± standard error over its rows, and their number.

    A field that is None, such as a number of shots, stands for no limit and is shown as "all".
    """
    head = [*(path.rsplit(".", 1)[-1] for path in by), *(column.title for column in columns), "runs"]
    lines = [head, ["---"] * len(head)]
    for values, group in grouped(rows, by).items():
        numbers = [Summary.of(group, column).text(column.digits) for column in columns]
        lines.append([*("all" if value is None else str(value) for value in values), *numbers, str(len(group))])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def line_plot(
    rows: Iterable[Row], x: str, y: Column, series: str, ax: Axes, colours: Mapping[Any, str] | None = None
) -> None:
    """Mean of y over x, one line for each value of `series`, with bars of one standard error.

    colours : by the values of `series`, so that panels agree where one lacks a line.
    """
    for (name,), group in grouped(rows, [series]).items():
        points = sorted((place, Summary.of(part, y)) for (place,), part in grouped(group, [x]).items())
        places = [place for place, _ in points]
        means, errors = ([getattr(summary, part) for _, summary in points] for part in ("mean", "error"))
        how = {"color": None if colours is None else colours[name], "marker": "o", "markersize": 4, "capsize": 2}
        ax.errorbar(places, means, yerr=np.nan_to_num(errors), label=str(name), **how)
    ax.set(xlabel=x.rsplit(".", 1)[-1], ylabel=y.title)
    ax.legend(frameon=False)
