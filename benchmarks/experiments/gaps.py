"""Differences seed by seed, and what is said of them: one rule for all verdicts, and one way to print a number."""

from __future__ import annotations

import math
from collections.abc import Mapping

from benchmarks.tables import Summary

AHEAD, BEHIND, NO_DIFFERENCE, NO_VERDICT = "ahead", "behind", "no difference seen", ""
ONE_SEED, NOT_FINITE = "one seed, no verdict", "not finite, no verdict"


def number(value: float, digits: int = 1, sign: str = "") -> str:
    """With a true minus sign, and without a negative zero; sign "+" prints that of positive numbers too."""
    return f"{value:{sign}z.{digits}f}".replace("-", "−")


def minus(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    """One less the other, by seed, for the seeds that both have; rounded, for rounding errors are no difference."""
    return {seed: round(one[seed] - other[seed], 9) for seed in one if seed in other}


def over_seeds(values: Mapping[int, float]) -> Summary:
    return Summary.over(values.values())


def verdict(gap: Summary) -> str:
    """Ahead or behind by more than two standard errors; none from fewer than two seeds."""
    if not math.isfinite(gap.error):
        return NO_VERDICT
    return AHEAD if gap.mean > 2 * gap.error else BEHIND if gap.mean < -2 * gap.error else NO_DIFFERENCE


def in_words(gap: Summary) -> str:
    """The verdict, or why there is none."""
    return verdict(gap) or (ONE_SEED if gap.count == 1 else NOT_FINITE)


def shown(gap: Summary, digits: int = 1) -> str:
    error = f" ± {number(gap.error, digits)}" if gap.count > 1 else ""
    return f"{number(gap.mean, digits, '+')}{error}"


def sorted_out(gaps: Mapping[str, Summary], ahead: str, behind: str) -> str:
    """The names of gaps by verdict, each with its gap; `ahead` and `behind` say what these mean here."""
    titles = {AHEAD: ahead, BEHIND: behind}
    parts = []
    for said in (AHEAD, BEHIND, NO_DIFFERENCE, ONE_SEED, NOT_FINITE):
        own = [f"{name} ({shown(gap)})" for name, gap in gaps.items() if gap.count and in_words(gap) == said]
        if own:
            parts.append(f"{titles.get(said, f'{said} for')} {', '.join(own)}")
    return "; ".join(parts) or "no seed in common"
