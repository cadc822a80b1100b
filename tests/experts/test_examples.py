"""Checks of the examples, and the folds."""

from __future__ import annotations

import math

import pytest
import torch
from expert_twins import blobs, kept
from hypothesis import given
from hypothesis import strategies as st

from gptree.experts import ALONE, Examples, shot_folds
from gptree.experts.examples import stable_order

label_lists = st.lists(st.integers(0, 6), min_size=1, max_size=60)


@given(label_lists, st.integers(2, 8))
def test_a_shot_fold_takes_the_same_from_every_class_and_never_all_of_it(labels, max_folds):
    y = torch.tensor(labels)
    folds = shot_folds(y, max_folds)
    for c in set(labels):
        own = folds[y == c].tolist()
        if len(own) == 1:
            assert own == [ALONE]
        else:
            assert own == [k % max_folds for k in range(len(own))]
            assert max(own.count(fold) for fold in own) <= math.ceil(len(own) / max_folds) < len(own)


@given(label_lists)
def test_left_out_counts_against_a_loop(labels):
    y = torch.tensor(labels).unique(return_inverse=True)[1]
    examples = Examples.of(torch.ones(len(y), 1), y)
    counts = examples.left_out_counts(torch.arange(len(y)))
    for i in range(len(y)):
        left = y[kept(examples, i)]
        assert counts[i].tolist() == [int((left == c).sum()) for c in range(examples.n_classes)]
        assert bool(examples.usable[i]) == bool((left == y[i]).any())


@given(label_lists)
def test_every_beginning_of_the_shot_order_is_balanced(labels):
    y = torch.tensor(labels).unique(return_inverse=True)[1]
    order = Examples.of(torch.ones(len(y), 1), y).in_shot_order()
    assert sorted(order.tolist()) == list(range(len(y)))
    totals = torch.bincount(y)
    for size in range(1, len(y) + 1):
        counts = torch.bincount(y[order[:size]], minlength=len(totals))
        assert all(int(c) >= min(int(t), int(counts.max()) - 1) for c, t in zip(counts, totals, strict=True))


def test_given_folds_are_renumbered_and_single_ones_are_left_out_alone():
    X, y = blobs([3, 3, 1], 4)
    y = torch.tensor([0, 0, 0, 1, 1, 1, 2])
    folds = torch.tensor([7, 3, 5, 7, 3, ALONE, 3])
    assert Examples.of(X, y, folds=folds).folds.tolist() == [1, 0, ALONE, 1, 0, ALONE, ALONE]


def test_counts_of_folds_and_classes_against_a_loop():
    X, y = blobs([4, 2, 7, 1], 3)
    weights = torch.linspace(0.5, 2.0, len(y), dtype=torch.float64)
    examples = Examples.of(X, y, folds=Examples.of(X, y).folds % 3, weights=weights)
    expected = [[float(weights[(examples.folds == f) & (y == c)].sum()) for c in range(4)] for f in range(3)]
    torch.testing.assert_close(examples.fold_counts, torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(examples.counts, torch.stack([weights[y == c].sum() for c in range(4)]))
    assert torch.equal(stable_order(torch.tensor([2, 0, -1, 0, 2, -1])), torch.tensor([2, 5, 1, 3, 0, 4]))


class TestErrors:
    X, y = blobs([3, 2, 2], 4)

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_features_that_are_not_finite(self, bad):
        X = self.X.clone()
        X[1, 2] = bad
        with pytest.raises(ValueError, match="NaN or infinity"):
            Examples.of(X, self.y)

    @pytest.mark.parametrize("X", [X[:, 0], X.half(), X.numpy(), X[:0]])
    def test_features_of_the_wrong_kind(self, X):
        with pytest.raises(ValueError, match="float32 or float64 tensor of shape"):
            Examples.of(X, self.y)

    @pytest.mark.parametrize("y", [y[:-1], y.double(), y > 0, y.tolist()])
    def test_labels_of_the_wrong_kind(self, y):
        with pytest.raises(ValueError, match="whole numbers"):
            Examples.of(self.X, y)

    def test_labels_out_of_range(self):
        with pytest.raises(ValueError, match=r"must lie in 0\.\.1"):
            Examples.of(self.X, self.y, n_classes=2)
        with pytest.raises(ValueError, match=r"spans -1\.\.2"):
            Examples.of(self.X, torch.where(self.y == 0, -1, self.y))

    def test_a_class_without_examples(self):
        with pytest.raises(ValueError, match="class 3 has no example"):
            Examples.of(self.X, self.y, n_classes=4)

    def test_a_class_that_lies_in_one_fold(self):
        with pytest.raises(ValueError, match="class 1 are in one fold"):
            Examples.of(self.X, self.y, folds=torch.where(self.y == 1, 0, torch.arange(7) % 2))

    def test_folds_of_the_wrong_kind(self):
        with pytest.raises(ValueError, match="folds must hold 7 whole numbers"):
            Examples.of(self.X, self.y, folds=self.y - 2)
        with pytest.raises(ValueError, match="folds must hold 7 whole numbers"):
            Examples.of(self.X, self.y, folds=self.y[:3])
        for folds in (self.y.double(), self.y.tolist()):
            with pytest.raises(ValueError, match="folds must hold 7 whole numbers"):
                Examples.of(self.X, self.y, folds=folds)

    @pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
    def test_weights_that_do_not_count(self, bad):
        weights = torch.tensor([1.0, 0.5, bad, 1.0, 2.0, 1.0, 1.0])
        with pytest.raises(ValueError, match="weights must be positive and finite"):
            Examples.of(self.X, self.y, weights=weights)
        for wrong in (weights[:3], weights.tolist()):
            with pytest.raises(ValueError, match="weights must hold 7 numbers"):
                Examples.of(self.X, self.y, weights=wrong)

    def test_features_whose_sum_overflows_are_fine(self):
        assert len(Examples.of(torch.full((3, 1), 1e308, dtype=torch.float64), torch.tensor([0, 1, 1]))) == 3

    def test_too_few_folds(self):
        with pytest.raises(ValueError, match="at least 2"):
            shot_folds(self.y, max_folds=1)
