"""Left-out scores and temperatures against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptree.rivals.left_out import (
    class_means,
    fit_temperature,
    left_out_scores,
    mean_nll,
    scale_of,
    shot_folds,
)


def coded(labels: list[int]) -> np.ndarray:
    return np.unique(labels, return_inverse=True)[1]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(2, 7))
def test_folds_leave_one_shot_out(labels, limit):
    y = coded(labels)
    folds = shot_folds(y, limit)
    seen: dict[int, int] = {}
    for i, c in enumerate(y):
        number = seen.get(c, 0)
        seen[c] = number + 1
        assert folds[i] == (-1 if np.sum(y == c) == 1 else number % limit)
    for fold in range(folds.max() + 1):
        assert set(y[folds != fold]) == set(y)  # every class keeps an example


def test_class_means_equal_a_loop():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 3)), coded(rng.integers(6, size=30).tolist())
    np.testing.assert_allclose(class_means(x, y), [x[y == c].mean(axis=0) for c in range(y.max() + 1)])


def test_left_out_scores_never_see_their_fold():
    x, y = np.arange(7.0)[:, None], np.array([0, 1, 0, 1, 1, 2, 0])
    folds = shot_folds(y, limit=30)

    def scorer(rest, labels):
        return lambda new: new + rest.sum() * np.arange(labels.max() + 1)

    scores = left_out_scores(scorer, x, y, folds)
    for i in range(7):
        rest = sum(x[j, 0] for j in range(7) if folds[j] != folds[i])
        expected = np.nan if folds[i] == -1 else x[i, 0] + rest * np.arange(3)
        np.testing.assert_allclose(scores[i], np.broadcast_to(expected, 3))
    assert np.isnan(scores[5]).all()  # the only example of its class


def test_temperature_is_the_best_on_a_grid():
    rng = np.random.default_rng(0)
    scores, y = rng.standard_normal((200, 4)), rng.integers(4, size=200)
    scores[np.arange(200), y] += 1.5
    tau, loss = fit_temperature(scores, y)

    def slow_nll(t: float) -> float:
        total = 0.0
        for i in range(200):
            log_p = t * scores[i] - np.log(np.sum(np.exp(t * scores[i])))
            total -= (1 - 1 / 400) * log_p[y[i]] + np.mean(log_p) / 400
        return total / 200

    grid = np.exp(np.linspace(-2, 3, 301))
    best = min(grid, key=slow_nll)
    assert tau == pytest.approx(best, rel=0.02)
    assert loss == pytest.approx(slow_nll(tau))
    assert loss <= slow_nll(best) + 1e-6


def test_faultless_scores_get_a_finite_temperature():
    y = np.arange(50) % 5
    tau, loss = fit_temperature(np.eye(5)[y], y)
    assert 1 < tau < 50
    assert 0 < loss < 0.1


def test_smoothing_is_the_share_of_half_a_point():
    log_p = np.log(np.array([[0.8, 0.2]]))
    assert mean_nll(log_p, np.array([0])) == pytest.approx(-0.75 * np.log(0.8) - 0.25 * np.log(0.2))


def test_scale_is_that_of_the_centred_rows():
    x = np.array([[1.0, 10.0], [3.0, 10.0]])
    assert scale_of(x) == pytest.approx(1)
    assert scale_of(x[:1]) == 1
