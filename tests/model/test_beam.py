"""Beam search, against loops over rows, trees and nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gptree import GPForestClassifier, GPTreeClassifier
from gptree.estimators import state
from gptree.experts import PriorScores
from gptree.model import beam, node_sums
from gptree.model.beam_vertices import Vertices
from tree.random_trees import random_tree

C, K = 40, 6
RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(C), 4)
MEANS = RNG.normal(size=(C, 8))
X = MEANS[Y] + 0.5 * RNG.normal(size=(len(Y), 8))
X_NEW = RNG.normal(size=(12, 8))


def searched(model: Any, width: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of all classes, and the bound on what is outside the best k, one tree after the other."""
    state = model.state_
    x = state.features(X_NEW)
    p = np.exp(state.class_scores(x, X_NEW).numpy())
    left = np.exp(state.model.node_log_probabilities(x, torch.as_tensor(np.log(p)), "mean")[0].numpy())
    found, ends = np.zeros_like(p), []
    for tree, numbers in zip(state.model.trees, state.model.node_of, strict=True):
        for row in range(len(p)):
            level = [(1.0, 0)]
            while level:
                sides = []
                for reach, v in level:
                    goes = left[int(numbers[v]), row]
                    sides += [
                        (reach * goes, int(tree.left_child[v]), tree.left(v)),
                        (reach * (1 - goes), int(tree.right_child[v]), tree.right(v)),
                    ]
                inner = sorted((side for side in sides if len(side[2]) > 1), key=lambda side: -side[0])
                for mass, v, classes in sides:
                    if v not in [on[1] for on in inner[:width]]:
                        share = p[row, classes]
                        found[row, classes] += mass * share / share.sum() / len(state.model.trees)
                        ends.append((row, mass / len(state.model.trees), classes))
                level = [side[:2] for side in inner[:width]]
    best = np.argsort(-found, axis=1)[:, :k]
    outside = np.zeros(len(p))
    for row, mass, classes in ends:
        outside[row] += 0 if set(classes) <= set(best[row]) else mass
    return found, outside


@pytest.mark.parametrize("every", [True, False], ids=["all nodes", "single nodes"])
@pytest.mark.parametrize(
    "model",
    [
        GPTreeClassifier(random_state=0, kernel="matern52", class_prior=np.arange(1, C + 1) / 820),
        GPTreeClassifier(random_state=0, tree="chain", feature_map=None),
        GPForestClassifier(random_state=0, n_estimators=3, feature_map=None),
    ],
    ids=["prior", "chain", "forest"],
)
def test_it_is_the_search_of_one_tree_after_the_other(model: Any, every: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NEAR_NUMBERS": 1, "NEAR_ROWS": 5, "PIECE_ROWS": 5, "STRIP_NUMBERS": 3 * C}.items():
        monkeypatch.setattr(beam, name, value)
    for name, value in {"MOST_ROWS": 3, "GATHERED": 400}.items():
        monkeypatch.setattr(node_sums, name, value)
    if not every:
        monkeypatch.setattr(beam, "EVERY_POINTS", 0)
    model.fit(X, Y)
    for width in (1, 3, 8):
        for k in (1, K, C):
            p, outside = searched(model, width, k)
            found = model.predict_top_k(X_NEW, k, beam=width)
            expected = -np.sort(-p, axis=1)[:, :k]
            np.testing.assert_allclose(found.probabilities, expected, rtol=0, atol=1e-10)
            np.testing.assert_allclose(np.take_along_axis(p, found.classes, 1), expected, rtol=0, atol=1e-10)
            np.testing.assert_allclose(found.outside, outside, rtol=0, atol=1e-10)
            assert k < C or not found.outside.any()


@pytest.mark.parametrize("feature_map", ["sphere", None])
def test_experts_get_raw_inputs(feature_map: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the same rows, also where few are asked about at a time."""
    for name, value in {"NEAR_NUMBERS": 1, "NEAR_ROWS": 5, "STRIP_NUMBERS": 3 * C}.items():
        monkeypatch.setattr(beam, name, value)
    experts = PriorScores(lambda raw: raw @ MEANS.T)
    model = GPTreeClassifier(random_state=0, prior_mean=experts, feature_map=feature_map).fit(X, Y)
    found = model.predict_top_k(X_NEW, C, beam=C)
    p = np.take_along_axis(model.predict_proba(X_NEW), found.classes, 1)
    np.testing.assert_allclose(found.probabilities, p, rtol=0, atol=1e-10)


@pytest.mark.parametrize("every", [True, False], ids=["all nodes", "single nodes"])
def test_features_far_from_the_origin_in_single_precision(every: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As near as at the origin. The experts are exact here: these are the kernels."""
    monkeypatch.setattr(state, "MANY_CLASSES", 10)
    if not every:
        monkeypatch.setattr(beam, "EVERY_POINTS", 0)
    experts = PriorScores(lambda raw: 0.1 * (raw - 1_000) @ MEANS.T)
    model = GPTreeClassifier(random_state=0, prior_mean=experts, feature_map=None).fit(X + 1_000, Y)
    found, p = model.predict_top_k(X_NEW + 1_000, C, beam=C), model.predict_proba(X_NEW + 1_000)
    np.testing.assert_allclose(found.probabilities, np.take_along_axis(p, found.classes, 1), rtol=0, atol=1e-6)
    narrow = model.predict_top_k(X_NEW + 1_000, 3, beam=2)
    assert (narrow.outside >= 1 - np.take_along_axis(p, narrow.classes, 1).sum(1) - 1e-6).all()


def test_sums_and_factors_of_vertices() -> None:
    trees = [random_tree(11, seed) for seed in range(3)]
    vertices = Vertices(trees, [torch.arange(10) + 10 * m for m in range(3)])
    values, factors = torch.rand(41, 5, dtype=torch.float64), torch.rand(63, 5, dtype=torch.float64)
    expected, given = torch.zeros(11, 5, dtype=torch.float64), factors.clone()
    vertices.sum_up(values)
    for node, number in enumerate(vertices.number.tolist()):
        tree = trees[number // 10]
        members = tree.members(number % 10).copy()
        torch.testing.assert_close(values[node], values[30 + members].sum(0))
        assert vertices.size[node] == len(members)
        expected[members] += given[node]
    for m in range(3):
        expected += given[30 + 11 * m : 41 + 11 * m]
    torch.testing.assert_close(vertices.spread(factors), expected)
