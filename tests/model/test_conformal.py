"""Conformal thresholds against their definition, and the coverage they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptree.model.conformal import class_thresholds, informative, probability_threshold, supported_coverage


def slow_threshold(own: list[float], y: list[int], coverage: float, beliefs: list[float]) -> float:
    """The largest value for which the rows below it and one more, of the smallest class, weigh little enough."""
    weights = [b / y.count(c) for c, b in zip(y, beliefs, strict=True)]
    new = max(1 / y.count(c) for c in y)
    best = -math.inf
    for t in own:
        below = sum(w for w, p in zip(weights, own, strict=True) if p < t)
        if below + new <= (1 - coverage) * (sum(weights) + new) + 1e-9 * sum(weights):
            best = max(best, t)
    return best


EIGHTHS = st.integers(0, 8).map(lambda k: k / 8)


@given(
    rows=st.lists(st.tuples(EIGHTHS, st.integers(0, 3), EIGHTHS), min_size=1, max_size=25),
    coverage=st.sampled_from([0.1, 0.5, 0.75, 0.8, 0.9]),
)
@settings(max_examples=150, deadline=None)
def test_threshold_is_the_slow_one(rows: list[tuple[float, int, float]], coverage: float) -> None:
    own, y, beliefs = map(list, zip(*rows, strict=True))
    for r, believed in ([1.0] * len(y), None), (beliefs, np.array(beliefs)):
        found = probability_threshold(np.array(own), np.array(y), coverage, believed)
        assert found == slow_threshold(own, y, coverage, r)
        assert np.isneginf(found) == (coverage > supported_coverage(np.array(y), believed) + 1e-6)


def test_ranks_by_hand() -> None:
    own, y = np.arange(1, 20) / 20, np.zeros(19, dtype=int)
    assert probability_threshold(own, y, 0.9) == own[1]  # the second smallest of 19: 2 / 20 fall below it
    assert probability_threshold(own, y, 0.95) == own[0]
    assert np.isneginf(probability_threshold(own, y, 0.96))
    assert supported_coverage(y) == pytest.approx(0.95)
    assert np.isneginf(probability_threshold(np.zeros(0), np.zeros(0, dtype=int), 0.5))
    assert supported_coverage(np.zeros(0, dtype=int)) == 0.0


@pytest.mark.parametrize(("n", "coverage"), [(9, 0.9), (24, 0.9), (30, 0.8)])
def test_coverage_of_new_rows(n: int, coverage: float) -> None:
    """Own probabilities are uniform: a threshold t covers 1 − t, and k / (n + 1) are missed; 4,000 draws, 5σ."""
    random, y = np.random.default_rng(0), np.zeros(n, dtype=int)
    covered = np.array([1 - probability_threshold(random.random(n), y, coverage) for _ in range(4000)])
    promised = 1 - math.floor((1 - coverage) * (n + 1) + 1e-9) / (n + 1)
    assert promised >= coverage
    assert abs(covered.mean() - promised) < 5 * covered.std() / math.sqrt(len(covered))


def test_classes_have_their_own_threshold_or_share_one() -> None:
    random = np.random.default_rng(1)
    y = np.repeat([0, 1, 2, 3], [12, 3, 20, 3])
    own = random.random(len(y))
    thresholds, few = class_thresholds(own, y, 4, 0.8)
    assert few.tolist() == [False, True, False, True]
    assert np.isfinite(thresholds).all()  # three examples alone do not support so much
    assert thresholds[0] == slow_threshold(own[y == 0].tolist(), [0] * 12, 0.8, [1.0] * 12)
    together = np.isin(y, [1, 3])
    shared = own[together].tolist(), y[together].tolist(), 0.8
    assert thresholds[1] == thresholds[3] == slow_threshold(*shared, [1.0] * 6)
    beliefs = np.where(own < 0.4, 0.1, 1.0)
    thresholds, few = class_thresholds(own, y, 4, 0.8, beliefs)
    assert few.tolist() == [False, True, False, True]
    assert thresholds[2] == slow_threshold(own[y == 2].tolist(), [2] * 20, 0.8, beliefs[y == 2].tolist())
    assert thresholds[1] == slow_threshold(*shared, beliefs[together].tolist())


def test_only_examples_say_nothing() -> None:
    assert informative(np.array([0, 1, 0, 2])).tolist() == [True, False, True, False]


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.5, float("nan")])
def test_a_coverage_is_a_share(coverage: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        probability_threshold(np.array([0.5]), np.array([0]), coverage)
