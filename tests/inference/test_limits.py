"""How large nodes choose their points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptree.inference import InducingPoints, SubsetOfData, as_large_nodes, class_quota, spread_order

COUNTS = st.lists(st.integers(1, 60), min_size=1, max_size=12)


@given(COUNTS, st.integers(2, 300))
def test_quota_is_the_largest_that_fits(counts: list[int], points: int) -> None:
    quota = class_quota(counts, points)

    def total(q: int) -> int:
        return sum(min(n, q) for n in counts)

    assert total(quota) <= points
    assert 0 <= quota <= max(counts)
    assert quota == max(counts) or total(quota + 1) > points
    if quota == 0:
        assert len(counts) > points
    if sum(counts) <= points:
        assert total(quota) == sum(counts)


def test_quota_of_no_classes() -> None:
    assert class_quota([], 10) == 0


def features(n: int, seed: int = 0, dtype: type = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(dtype)


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 5))
def test_spread_order_is_a_permutation(n: int, limit: int, seed: int) -> None:
    order = spread_order(features(n, seed), np.random.default_rng(seed), limit)
    assert sorted(order) == list(range(n))


def test_spread_order_starts_at_the_middle() -> None:
    x = features(20)
    first = spread_order(x, np.random.default_rng(0), 10)[0]
    assert first == ((x - x.mean(0)) ** 2).sum(1).argmin()


def test_duplicates_come_last() -> None:
    x = np.concatenate([features(6), features(6), features(6)])
    for seed in range(20):
        order = spread_order(x, np.random.default_rng(seed), 18)
        assert len(np.unique(x[order[:6]], axis=0)) == 6
    alike = spread_order(np.ones((5, 3)), np.random.default_rng(0), 5)
    assert sorted(alike) == list(range(5))


def test_spread_order_takes_far_points_early() -> None:
    """Ten points at one place, one far away: it is second, with probability above 1 − 1e-6 a seed."""
    x = np.concatenate([1e-3 * features(10), [[1e2, 0, 0]]])
    for seed in range(20):
        assert spread_order(x, np.random.default_rng(seed), 5)[1] == 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [2.0**-100, 2.0**100])
def test_spread_order_does_not_depend_on_the_scale(dtype: type, scale: float) -> None:
    x = features(30, dtype=dtype)
    expected = spread_order(x, np.random.default_rng(1), 12)
    scaled = (x * scale).astype(dtype)
    assert np.array_equal(spread_order(scaled, np.random.default_rng(1), 12), expected)


def test_spread_order_is_deterministic() -> None:
    orders = [spread_order(features(30), np.random.default_rng(seed), 12).tolist() for seed in (3, 3, 4)]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("sparse", [False, True])
def test_settings_as_values(sparse: bool) -> None:
    assert as_large_nodes(None, sparse) is None
    assert as_large_nodes("auto", sparse) == (InducingPoints() if sparse else SubsetOfData())
    assert as_large_nodes(7, sparse) == SubsetOfData(7)
    assert as_large_nodes(np.int64(7), sparse) == SubsetOfData(7)
    assert as_large_nodes(InducingPoints(5), sparse) == InducingPoints(5)
    for bad in (True, "7", 7.0):
        with pytest.raises(TypeError, match="node_limit must be"):
            as_large_nodes(bad, sparse)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("family", [SubsetOfData, InducingPoints])
def test_bad_settings_are_refused(family: type) -> None:
    with pytest.raises(ValueError, match="at least two"):
        family(1)
