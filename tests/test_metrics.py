"""Metrics against values worked by hand and against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from gptree.metrics import (
    LEAST_PROBABILITY,
    ReliabilityCurve,
    accuracy,
    auroc,
    brier,
    columns,
    ece,
    most_confused,
    nll,
    reliability_curve,
)
from gptree.protocols import plot_reliability

# Four rows, three classes; the largest entries are .7, .6, .5, .9 and rows 0, 2 and 3 are right.
P = np.array([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.25, 0.5, 0.25], [0.05, 0.05, 0.9]])
Y = np.array([0, 1, 1, 2])


def random_case(seed: int, n: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(classes), size=n), rng.integers(classes, size=n)


def test_values_by_hand():
    assert accuracy(P, Y) == 0.75
    assert nll(P, Y) == pytest.approx(-np.log(0.7 * 0.3 * 0.5 * 0.9) / 4)
    # (.3² + .2² + .1²) + (.6² + .7² + .1²) + (.25² + .5² + .25²) + (.05² + .05² + .1²) = .14 + .86 + .375 + .015
    assert brier(P, Y) == pytest.approx(1.39 / 4)


def test_nll_of_an_impossible_class_is_clipped():
    p = np.array([[1.0, 0.0]])
    assert nll(p, np.array([1])) == pytest.approx(-np.log(LEAST_PROBABILITY))


def test_brier_spans_zero_to_two():
    p = np.array([[1.0, 0.0]])
    assert brier(p, np.array([0])) == 0
    assert brier(p, np.array([1])) == 2


def test_ece_by_hand():
    # Two bins: (0, .5] holds the third row, right at .5; (.5, 1] holds .7, .6, .9 with two right of three.
    curve = reliability_curve(P, Y, bins=2)
    np.testing.assert_array_equal(curve.count, [1, 3])
    np.testing.assert_allclose(curve.confidence, [0.5, 2.2 / 3])
    np.testing.assert_allclose(curve.accuracy, [1, 2 / 3])
    assert ece(P, Y, bins=2) == pytest.approx((0.5 + abs(2.2 - 2)) / 4)
    # Two equal masses, cut at the median .65: {.5, .6} with one right, {.7, .9} with two.
    curve = reliability_curve(P, Y, bins=2, binning="equal-mass")
    np.testing.assert_array_equal(curve.count, [2, 2])
    assert curve.ece == pytest.approx((abs(1.1 - 1) + abs(1.6 - 2)) / 4)


def test_a_bin_holds_its_upper_edge():
    p = np.array([[0.5, 0.5], [0.75, 0.25]])
    np.testing.assert_array_equal(reliability_curve(p, np.array([0, 0]), bins=4).count, [0, 1, 1, 0])


def slow_ece(p: np.ndarray, y: np.ndarray, edges: np.ndarray) -> float:
    total = 0.0
    for b in range(len(edges) - 1):
        rows = []
        for i in range(len(p)):
            confidence = max(p[i])
            above = b == 0 or confidence > edges[b]
            if above and (b == len(edges) - 2 or confidence <= edges[b + 1]):
                rows.append((confidence, float(np.argmax(p[i]) == y[i])))
        if rows:
            total += abs(sum(right for _, right in rows) - sum(sure for sure, _ in rows))
    return total / len(p)


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 6), st.integers(1, 20))
def test_ece_equals_a_loop(seed, n, classes, bins):
    p, y = random_case(seed, n, classes)
    assert ece(p, y, bins) == pytest.approx(slow_ece(p, y, np.linspace(0, 1, bins + 1)))
    quantiles = np.quantile(p.max(axis=1), np.linspace(0, 1, bins + 1))
    assert ece(p, y, bins, "equal-mass") == pytest.approx(slow_ece(p, y, quantiles))


@pytest.mark.parametrize("binning", ["equal-width", "equal-mass"])
def test_ece_does_not_depend_on_the_order_of_rows(binning):
    p, y = random_case(0, 200, 3)
    p = np.round(p, 1)  # many ties
    p[:, 0] = 1 - p[:, 1:].sum(axis=1)
    p = np.abs(p) / np.abs(p).sum(axis=1, keepdims=True)
    shuffled = np.random.default_rng(1).permutation(len(p))
    assert ece(p, y, 7, binning) == pytest.approx(ece(p[shuffled], y[shuffled], 7, binning), abs=1e-12)


def test_calibrated_predictions_have_small_ece():
    """Labels drawn from p itself: ECE is about .008 with standard deviation .002, so .02 is six of them away."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=20_000)
    y = (rng.random((len(p), 1)) > np.cumsum(p, axis=1)).sum(axis=1)
    assert ece(p, y, 10) < 0.02
    assert ece(p, (y + 1) % 3, 10) > 0.2


def test_columns():
    np.testing.assert_array_equal(columns(["b", "a", "b"], ["a", "b"]), [1, 0, 1])
    np.testing.assert_array_equal(columns(np.array([7, 3]), np.array([3, 5, 7])), [2, 0])
    with pytest.raises(ValueError, match="1 labels, the first 'c', are not among the 2 classes"):
        columns(["a", "c"], ["a", "b"])


def test_most_confused():
    true = ["a", "a", "a", "b", "b", "c", "c"]
    given_ = ["b", "b", "a", "a", "c", "a", "c"]
    assert most_confused(true, given_, k=2) == [("a", "b", 2), ("b", "a", 1)]
    assert most_confused(true, true) == []
    with pytest.raises(ValueError, match="must match"):
        most_confused(true, given_[:-1])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_auroc_counts_pairs(inside, outside):
    wins = sum((o > i) + 0.5 * (o == i) for o in outside for i in inside) / (len(inside) * len(outside))
    assert auroc(np.array(inside), np.array(outside)) == pytest.approx(wins)


def test_auroc_rejects_bad_scores():
    with pytest.raises(ValueError, match="at least one"):
        auroc(np.array([]), np.array([1.0]))
    with pytest.raises(ValueError, match="NaN"):
        auroc(np.array([np.nan]), np.array([1.0]))


@pytest.mark.parametrize("metric", [accuracy, nll, brier, ece])
@pytest.mark.parametrize(
    ("p", "y", "error"),
    [
        (P, Y[:3], ValueError),
        (P[0], Y, ValueError),
        (P, Y + 1, ValueError),
        (P, Y - 1, ValueError),
        (P, Y.astype(float), TypeError),
        (2 * P, Y, ValueError),
        (P - 1, Y, ValueError),
        (np.full_like(P, np.nan), Y, ValueError),
        (P[:0], Y[:0], ValueError),
    ],
)
def test_bad_input_is_rejected(metric, p, y, error):
    with pytest.raises(error):
        metric(p, y)


def test_bad_bins_are_rejected():
    with pytest.raises(ValueError, match="bins"):
        ece(P, Y, bins=0)
    with pytest.raises(ValueError, match="binning"):
        ece(P, Y, binning="quantile")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("binning", ["equal-width", "equal-mass"])
def test_the_picture_shows_the_curve(binning):
    p, y = random_case(3, 300, 4)
    curve = reliability_curve(p, y, 10, binning)
    figure = Figure()
    ax = figure.subplots()
    plot_reliability(curve, ax)
    used = curve.count > 0
    bars, gaps = ax.containers[0], ax.containers[1]
    np.testing.assert_allclose([bar.get_height() for bar in bars], curve.accuracy[used])
    np.testing.assert_allclose([bar.get_y() for bar in gaps], curve.accuracy[used])
    np.testing.assert_allclose([bar.get_y() + bar.get_height() for bar in gaps], curve.confidence[used], atol=1e-12)
    (below,) = ax.child_axes
    assert sum(bar.get_height() for bar in below.containers[0]) == pytest.approx(100)
    figure.canvas.draw()


def test_the_picture_of_one_confidence():
    p = np.tile([0.0, 1.0], (5, 1))
    curve = reliability_curve(p, np.ones(5, dtype=int), 15, "equal-mass")
    assert isinstance(curve, ReliabilityCurve)
    assert curve.ece == 0
    figure = Figure()
    plot_reliability(curve, figure.subplots())
    figure.canvas.draw()


def test_tensors_are_taken_as_arrays():
    p, y = torch.as_tensor(P).requires_grad_(), torch.as_tensor(Y)
    for metric in (accuracy, nll, brier, ece):
        assert metric(p, y) == metric(P, Y)
    assert auroc(torch.tensor([0.1, 0.2]), torch.tensor([0.2, np.inf])) == 0.875
