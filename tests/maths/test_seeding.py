"""k-means++ seeding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptree.maths.seeding import kmeans_plus_plus_order


def features(n: int, seed: int = 0, dtype: type = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(dtype)


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 5))
def test_the_order_is_a_permutation(n: int, limit: int, seed: int) -> None:
    order = kmeans_plus_plus_order(features(n, seed), np.random.default_rng(seed), limit)
    assert sorted(order) == list(range(n))


def test_the_order_starts_at_the_middle() -> None:
    x = features(20)
    first = kmeans_plus_plus_order(x, np.random.default_rng(0), 10)[0]
    assert first == ((x - x.mean(0)) ** 2).sum(1).argmin()


def test_duplicates_come_last() -> None:
    x = np.concatenate([features(6), features(6), features(6)])
    for seed in range(20):
        order = kmeans_plus_plus_order(x, np.random.default_rng(seed), 18)
        assert len(np.unique(x[order[:6]], axis=0)) == 6
    alike = kmeans_plus_plus_order(np.ones((5, 3)), np.random.default_rng(0), 5)
    assert sorted(alike) == list(range(5))


def test_the_order_takes_far_points_early() -> None:
    """Ten points at one place, one far away: it is second, with probability above 1 − 1e-6 a seed."""
    x = np.concatenate([1e-3 * features(10), [[1e2, 0, 0]]])
    for seed in range(20):
        assert kmeans_plus_plus_order(x, np.random.default_rng(seed), 5)[1] == 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [2.0**-100, 2.0**100])
def test_the_order_does_not_depend_on_the_scale(dtype: type, scale: float) -> None:
    x = features(30, dtype=dtype)
    expected = kmeans_plus_plus_order(x, np.random.default_rng(1), 12)
    scaled = (x * scale).astype(dtype)
    assert np.array_equal(kmeans_plus_plus_order(scaled, np.random.default_rng(1), 12), expected)


def test_the_order_is_deterministic() -> None:
    orders = [kmeans_plus_plus_order(features(30), np.random.default_rng(seed), 12).tolist() for seed in (3, 3, 4)]
    assert orders[0] == orders[1] != orders[2]


def test_equals_the_definition_in_loops() -> None:
    x, random = features(15, seed=3), np.random.default_rng(4)
    scaled = x / np.abs(x).max()
    chosen = [int(np.argmin([np.sum((row - scaled.mean(0)) ** 2) for row in scaled]))]
    while len(chosen) < 9:
        distance = np.array([min(np.sum((row - scaled[c]) ** 2) for c in chosen) for row in scaled])
        chosen.append(int(random.choice(len(x), p=distance / distance.sum())))
    assert kmeans_plus_plus_order(x, np.random.default_rng(4), 9)[:9].tolist() == chosen
