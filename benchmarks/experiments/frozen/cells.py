"""A forest against others, cell by cell: paired differences, and which cells miss what is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.core.gaps import gap
from benchmarks.core.tables import Summary, Table, chosen, grouped, one_cell
from benchmarks.core.trials import Row
from benchmarks.experiments.frozen.methods import ACCURACY, ECE, FOREST, MEAN, NLL, POOL

SMOOTHED = "rival: logistic-smoothed"
#: What the forest is compared with, and how tables call it.
OTHERS = {POOL: "experts alone", MEAN: "class mean", SMOOTHED: "logistic regression"}
MOST_ECE, BAD_ECE = 0.5, 1.5
BAD_NLL = 0.02
ASKED = f"""\
Forest less the other, mean over the draws that both have ± one standard error. Asked is a difference of at most
{MOST_ECE} points of ECE, and no higher NLL by more than two standard errors; what misses it is bold, and marked ‼ where
it does so by more than {BAD_ECE} points or {BAD_NLL:.0%} of the NLL."""


@dataclass(frozen=True)
class Difference:
    """Forest less another method in one cell."""

    nll: Summary
    relative: float
    """Of the NLL."""
    ece: Summary

    @classmethod
    def of(cls, forest: list[Row], other: list[Row]) -> Difference:
        nll = gap(forest, other, NLL)
        return cls(nll, nll.mean / Summary.of(other, NLL).mean if nll.count else math.nan, gap(forest, other, ECE))

    @property
    def misses_nll(self) -> bool:
        return self.nll.mean > 2 * self.nll.error

    @property
    def misses_ece(self) -> bool:
        return self.ece.mean > MOST_ECE

    @property
    def misses(self) -> bool:
        return self.misses_nll or self.misses_ece

    @property
    def badly(self) -> bool:
        return (self.misses_nll and self.relative > BAD_NLL) or self.ece.mean > BAD_ECE

    @property
    def text(self) -> str:
        parts = [
            f"**{text}**" if missed else text
            for text, missed in (
                (self.nll.text(NLL.digits, "+"), self.misses_nll),
                (self.ece.text(ECE.digits, "+"), self.misses_ece),
            )
        ]
        return " / ".join(parts) + (" ‼" if self.badly else "")


def differences(rows: list[Row]) -> dict[str, Difference]:
    """The forest of a cell less each of the others that has rows."""
    forest = chosen(rows, method=FOREST)
    others = {name: chosen(rows, method=name) for name in OTHERS}
    return {name: Difference.of(forest, other) for name, other in others.items() if other and forest}


def cell_table(title: str, rows: list[Row], by: Mapping[str, str]) -> Table:
    """A line for each cell: the fields `by`, by their titles, and the difference from each of the others."""
    lines = []
    for values, group in grouped(rows, list(by.values())).items():
        found = differences(group)
        texts = [found[name].text if name in found else "–" for name in OTHERS]
        draws = len({row.trial.seed for row in chosen(group, method=FOREST)})
        lines.append([*map(shown, values), *texts, str(draws)])
    titles = [*by, *(f"Δ NLL / Δ ECE %, {name}" for name in OTHERS.values()), "draws"]
    return Table(title, titles, lines, ASKED)


def score_table(title: str, rows: list[Row], by: Mapping[str, str], methods: Sequence[str]) -> Table:
    """A line for each cell: accuracy / NLL / ECE of each method."""
    lines = []
    for values, group in grouped(rows, list(by.values())).items():
        cells = one_cell([chosen(group, method=method) for method in methods], (ACCURACY, NLL, ECE))
        lines.append([*map(shown, values), *cells])
    return Table(title, [*by, *(OTHERS.get(name, name) for name in methods)], lines, "Accuracy % / NLL / ECE %.")


def count_table(rows: list[Row], by: Mapping[str, str]) -> Table:
    """How many cells miss what is asked, against each of the others and against any."""
    cells = [differences(group) for group in grouped(rows, list(by.values())).values()]
    cells = [cell for cell in cells if cell]

    def line(name: str, of: list[list[Difference]]) -> list[str]:
        counts = (any(d.misses_nll for d in c) for c in of), (any(d.misses_ece for d in c) for c in of)
        either, badly = (any(d.misses for d in c) for c in of), (any(d.badly for d in c) for c in of)
        return [name, *(str(sum(each)) for each in (*counts, either, badly)), str(len(of))]

    lines = [line(text, [[cell[name]] for cell in cells if name in cell]) for name, text in OTHERS.items()]
    lines.append(line("any of them", [list(cell.values()) for cell in cells]))
    return Table("Cells that miss what is asked", ["against", "NLL", "ECE", "either", "badly", "cells"], lines)


def shown(value: object) -> str:
    return "all" if value is None else str(value)
