"""Differences between methods, seed by seed, and the rule for verdicts on them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from benchmarks.core.tables import Better, Column, Summary, Table
from benchmarks.core.trials import Row

AHEAD, BEHIND, NO_DIFFERENCE = "ahead", "behind", "no difference seen"
ONE_SEED, NOT_FINITE, NO_SEED = "one seed, no verdict", "not finite, no verdict", "no seed in common"
#: The first column of a table of gaps.
GAP = "gap"
RULE = (
    "Gaps are means over the seeds that both have, ± one standard error. Ahead and behind: by more than two standard "
    f"errors; otherwise: {NO_DIFFERENCE}. One seed gives no verdict."
)


def gap(one: Iterable[Row], other: Iterable[Row], column: Column) -> Summary:
    """One less the other, over the seeds that both have; rounded, for rounding errors are no difference."""
    first, second = ({row.trial.seed: column.of(row) for row in rows} for rows in (one, other))
    pairs = [(value, second.get(seed)) for seed, value in first.items()]
    return Summary.over(round(a - b, 9) for a, b in pairs if a is not None and b is not None)


def verdict(gap: Summary, better: Better = max) -> str:
    """Ahead or behind by more than two standard errors; none from fewer than two seeds."""
    if not math.isfinite(gap.error):
        return {0: NO_SEED, 1: ONE_SEED}.get(gap.count, NOT_FINITE)
    lead = gap.mean if better is max else -gap.mean
    return AHEAD if lead > 2 * gap.error else BEHIND if lead < -2 * gap.error else NO_DIFFERENCE


def gap_table(title: str, pairs: Mapping[str, tuple[list[Row], list[Row]]], columns: Collection[Column]) -> Table:
    """A line for each pair of groups of rows: the gap in each column, and its verdict."""
    lines = []
    for name, (one, other) in pairs.items():
        gaps = [gap(one, other, column) for column in columns]
        verdicts = [verdict(each, column.better) for each, column in zip(gaps, columns, strict=True)]
        texts = [each.text(column.digits, "+") for each, column in zip(gaps, columns, strict=True)]
        lines.append([name, *map(", ".join, zip(texts, verdicts, strict=True))])
    return Table(title, [GAP, *(column.title for column in columns)], lines)
