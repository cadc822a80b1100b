"""Tables, and the means and standard errors in them, made from rows alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.core.trials import Row

Better = Callable[[Iterable[float]], float]  # max or min


@dataclass(frozen=True)
class Table:
    """Cells of text under column titles; the first column names the line. Cells may have Markdown emphasis.

    source : where figures that were typed by hand come from.
    """

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    note: str = ""
    source: str = "the paper"


@dataclass(frozen=True)
class Column:
    """A number of a row: where it is ("metrics.accuracy", "seconds.cpu"), how it is shown, and which is best."""

    title: str
    path: str
    scale: float = 1.0
    digits: int = 3
    better: Better = max

    def of(self, row: Row) -> float | None:
        """The scaled number; None where the row has none."""
        value = row.field(self.path)
        return None if value is None else self.scale * value


def number(value: float, digits: int = 1, sign: str = "") -> str:
    """With a true minus sign, and without a negative zero; sign "+" prints that of positive numbers too."""
    return f"{value:{sign}z.{digits}f}".replace("-", "−").replace("inf", "∞")


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
        return cls.over(value for row in rows if (value := column.of(row)) is not None)

    @classmethod
    def over(cls, values: Iterable[float]) -> Summary:
        numbers = np.array(list(values), dtype=float)
        if not len(numbers):
            return cls(math.nan, math.nan, 0)
        with np.errstate(invalid="ignore"):
            error = numbers.std(ddof=1) / math.sqrt(len(numbers)) if len(numbers) > 1 else math.nan
            return cls(float(numbers.mean()), float(error), len(numbers))

    def text(self, digits: int, sign: str = "") -> str:
        if not self.count:
            return "–"
        mean = number(self.mean, digits, sign)
        return mean if math.isnan(self.error) else f"{mean} ± {self.error:.{digits}f}"


def chosen(rows: Iterable[Row], **fields: Any) -> list[Row]:
    """Rows with these values of the trial's fields or settings, or of a "metrics.…" path; absent settings are None."""
    return [row for row in rows if all(_of(row, name) == value for name, value in fields.items())]


def _of(row: Row, name: str) -> Any:
    return row.field(name if name in ("method", "data", "seed") or "." in name else f"settings.{name}")


def grouped(rows: Iterable[Row], by: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of the fields `by`, in the order in which they first appear."""
    groups: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row.field(path, absent="–") for path in by)].append(row)
    return dict(groups)


def bold_best(summaries: Sequence[Summary], digits: int, better: Better = max) -> list[str]:
    """Texts of one column, the best mean in bold, and with it every mean that is shown by the same digits."""
    means = [round(summary.mean, digits) for summary in summaries]
    finite = [mean for mean in means if math.isfinite(mean)]
    best = better(finite) if finite else math.nan
    texts = [summary.text(digits) for summary in summaries]
    return [f"**{text}**" if mean == best else text for text, mean in zip(texts, means, strict=True)]


def listing(title: str, rows: Iterable[Row], by: Sequence[str], columns: Collection[Column], note: str = "") -> Table:
    """A line for each combination of the fields `by`: mean ± standard error over its rows, and their number.

    A field that is None, such as a number of shots, stands for no limit and is shown as "all".
    """
    titles = [*(path.rsplit(".", 1)[-1] for path in by), *(column.title for column in columns), "runs"]
    lines = []
    for values, group in grouped(rows, by).items():
        numbers = [Summary.of(group, column).text(column.digits) for column in columns]
        lines.append([*("all" if value is None else str(value) for value in values), *numbers, str(len(group))])
    return Table(title, titles, lines, note)


def comparison(title: str, lines: Mapping[str, list[Row]], columns: Collection[Column], note: str = "") -> Table:
    """A line for each name: mean ± standard error over its rows, the best of each column in bold, and the seeds."""
    cells = [
        bold_best([Summary.of(rows, column) for rows in lines.values()], column.digits, column.better)
        for column in columns
    ]
    seeds = [str(len({row.trial.seed for row in rows})) for rows in lines.values()]
    titles = ["method", *(column.title for column in columns), "seeds"]
    return Table(title, titles, [list(line) for line in zip(lines, *cells, seeds, strict=True)], note)


def one_cell(groups: Sequence[list[Row]], columns: Collection[Column]) -> list[str]:
    """A cell for each group of rows: the means of the columns, the best of each in bold; a dash without rows."""
    texts = []
    for column in columns:
        means = [Summary.over([Summary.of(rows, column).mean] if rows else []) for rows in groups]
        texts.append(bold_best(means, column.digits, column.better))
    return [" / ".join(cell) if rows else "–" for rows, cell in zip(groups, zip(*texts, strict=True), strict=True)]
