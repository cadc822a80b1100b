"""From features to class probabilities: node problems, shared and large nodes, the whole against a plain loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from forest_cases import BUDGET, COUNTS, FIRST, LABELS, SECOND, data, fit, kernel, new_points
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gptree.inference import (
    CoordinateAscent,
    Gibbs,
    InducingPoints,
    LargeNodes,
    LearnKernel,
    NodeProblem,
    SubsetOfData,
)
from gptree.maths import gram
from gptree.model import TrainingData, node_problems
from gptree.tree import Chain, ClassTree, RandomBalanced, node_log_odds

# --------------------------------------------------------------------------------------------------- node problems


@pytest.mark.parametrize("extras", [False, True])
def test_a_node_sees_the_rows_of_its_classes(extras: bool) -> None:
    d = data(weights=extras, scores=extras)
    problems, (node_of,) = node_problems([FIRST], d, None, seed=0)
    assert node_of.tolist() == list(range(4))
    for v, p in enumerate(problems):
        rows = p.rows.tolist()
        assert sorted(rows) == np.flatnonzero(np.isin(d.y, FIRST.members(v))).tolist()
        assert p.left.tolist() == [bool(d.y[r] in FIRST.left(v)) for r in rows]
        assert p.inducing is None
        if extras:
            assert d.scores is not None
            assert d.weights is not None
            assert p.mean is not None
            assert p.weight is not None
            torch.testing.assert_close(p.mean, node_log_odds(FIRST, d.scores)[v, p.rows])
            assert torch.equal(p.weight, d.weights[p.rows])
        else:
            assert p.mean is None
            assert p.weight is None


def test_nodes_common_to_several_trees_are_fitted_once() -> None:
    """The trees share all nodes but their roots, whose sides are swapped; equal trees share all."""
    problems, (first, second) = node_problems([FIRST, SECOND], data(), None, seed=0)
    assert len(problems) == 5
    assert first.tolist() == [0, 1, 2, 3]
    assert sorted(second.tolist()) == [1, 2, 3, 4]
    assert second[0] == 4
    problems, (first, again) = node_problems([FIRST, FIRST], data(), None, seed=0)
    assert len(problems) == 4
    assert torch.equal(first, again)


def seeds_by_classes(trees: list[ClassTree], d: TrainingData, seed: int) -> dict[tuple, int]:
    problems, node_of = node_problems(trees, d, None, seed)
    return {
        (frozenset(d.labels[c] for c in tree.left(v)), frozenset(d.labels[c] for c in tree.right(v))): problems[
            int(numbers[v])
        ].seed
        for tree, numbers in zip(trees, node_of, strict=True)
        for v in range(tree.n_nodes)
    }


def test_seeds_are_keyed_by_labels_and_sides() -> None:
    alone, both = seeds_by_classes([FIRST], data(), 0), seeds_by_classes([SECOND, FIRST], data(), 0)
    assert all(both[key] == value for key, value in alone.items())
    assert len(set(both.values())) == len(both) == 5
    assert not set(alone.values()) & set(seeds_by_classes([FIRST], data(), 1).values())
    renumbered = replace(data(), y=4 - data().y, labels=LABELS[::-1])
    mirrored = ClassTree.from_nested([["ant", "bee"], ["cat", ["dog", "eel"]]], LABELS[::-1])
    assert seeds_by_classes([mirrored], renumbered, 0) == alone


# ----------------------------------------------------------------------------------------------------- large nodes


def rows_of(problem: NodeProblem) -> Tensor:
    return problem.rows if problem.inducing is None else problem.inducing


LIMITS = [SubsetOfData(8), InducingPoints(8), SubsetOfData(5), InducingPoints(5)]


@pytest.mark.parametrize("large_nodes", LIMITS)
def test_large_nodes_take_the_same_number_from_every_class(large_nodes: LargeNodes) -> None:
    d = data()
    problems, _ = node_problems([FIRST], d, large_nodes, seed=0)
    for v, p in enumerate(problems):
        members = FIRST.members(v)
        size = sum(COUNTS[c] for c in members)
        chosen = d.y[rows_of(p).numpy()]
        if size <= large_nodes.points:
            assert p.inducing is None
            assert len(p.rows) == size
            continue
        counts = [int((chosen == c).sum()) for c in members]
        assert len(set(rows_of(p).tolist())) == len(rows_of(p)) <= large_nodes.points
        most = max(counts)
        assert all(n == min(most, COUNTS[c]) for n, c in zip(counts, members, strict=True))
        if isinstance(large_nodes, InducingPoints):
            assert len(p.rows) == size
            assert set(rows_of(p).tolist()) <= set(p.rows.tolist())
        else:
            assert p.inducing is None
        assert p.left.tolist() == [bool(c in FIRST.left(v)) for c in d.y[p.rows.numpy()]]


@given(
    n_classes=st.integers(3, 30),
    points=st.integers(2, 12),
    seed=st.integers(0, 100),
    chain=st.booleans(),
    sparse=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_both_sides_have_points_however_many_classes_there_are(
    n_classes: int, points: int, seed: int, chain: bool, sparse: bool
) -> None:
    labels = list(range(n_classes))
    builder = Chain() if chain else RandomBalanced()
    tree = builder.build(np.zeros((n_classes, 1)), labels, seed)
    y = np.repeat(np.arange(n_classes), 3)
    d = TrainingData(torch.randn(len(y), 2, generator=torch.Generator().manual_seed(seed)).double(), y, labels)
    large_nodes = InducingPoints(points) if sparse else SubsetOfData(points)
    for v, p in enumerate(node_problems([tree], d, large_nodes, seed)[0]):
        chosen = rows_of(p)
        assert len(chosen) <= points
        on_left = np.isin(y[chosen.numpy()], tree.left(v))
        assert 0 < on_left.sum() < len(chosen)
        assert len(torch.unique(chosen)) == len(chosen)
        assert p.left.any()
        assert not p.left.all()
        if len(tree.members(v)) > points:  # one row each of some of the classes
            assert len(set(y[chosen.numpy()])) == len(chosen) == points


@pytest.mark.parametrize("large_nodes", [*LIMITS, SubsetOfData(2), InducingPoints(2)])
def test_choices_at_a_node_do_not_depend_on_the_rest_of_the_tree(large_nodes: LargeNodes) -> None:
    """The sub-tree under a node, fitted alone on its own classes, chooses the same rows with the same seeds."""
    d = data()
    whole, _ = node_problems([FIRST], d, large_nodes, seed=4)
    again, _ = node_problems([FIRST], d, large_nodes, seed=4)
    for a, b in zip(whole, again, strict=True):
        assert torch.equal(a.rows, b.rows)
        assert torch.equal(rows_of(a), rows_of(b))
    for v in range(FIRST.n_nodes):
        tree, classes = FIRST.subtree(v)
        kept = np.flatnonzero(np.isin(d.y, classes))
        part = TrainingData(d.X[kept], np.searchsorted(classes, d.y[kept]), [LABELS[c] for c in classes])
        top = node_problems([tree], part, large_nodes, seed=4)[0][0]
        assert top.seed == whole[v].seed
        assert set(kept[rows_of(top).numpy()].tolist()) == set(rows_of(whole[v]).tolist())


def test_another_seed_chooses_other_rows() -> None:
    picks = [set(node_problems([FIRST], data(), SubsetOfData(8), seed)[0][0].rows.tolist()) for seed in range(4)]
    assert len({frozenset(pick) for pick in picks}) > 1


def test_a_node_sees_what_it_was_seen_by_above() -> None:
    """Within a class the order is fixed beforehand: the rows taken higher up are among those taken further down."""
    d = data()
    problems, _ = node_problems([FIRST], d, SubsetOfData(8), seed=0)
    for v in range(1, FIRST.n_nodes):
        above = set(problems[0].rows.tolist()) & set(np.flatnonzero(np.isin(d.y, FIRST.members(v))).tolist())
        assert above <= set(problems[v].rows.tolist())


# -------------------------------------------------------------------------------------- class log-probabilities


def loop_log_probabilities(model, trees, x: Tensor, predict_at, scores: Tensor | None) -> Tensor:
    """Class by class, down its path, from the node probabilities of each tree; trees are averaged last."""
    left, right = model.node_log_probabilities(x, scores, predict_at)
    out = torch.zeros(len(x), 5, dtype=torch.float64)
    for t in range(len(x)):
        for c in range(5):
            total = 0.0
            for tree, nodes in zip(trees, model.node_of, strict=True):
                path = [(left if goes_left else right)[nodes[v], t].exp() for v, goes_left in tree.path(c)]
                total += math.prod(float(p) for p in path)
            out[t, c] = math.log(total / len(trees))
    return out


@pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
@pytest.mark.parametrize("trees", [(FIRST,), (FIRST, SECOND)])
def test_class_probabilities_are_products_along_the_paths_averaged_over_trees(predict_at, trees) -> None:
    model = fit(Gibbs(chains=3), trees)
    x = new_points()
    actual = model.log_probabilities(x, None, predict_at)
    torch.testing.assert_close(
        actual, loop_log_probabilities(model, trees, x, predict_at, None), rtol=1e-10, atol=1e-10
    )
    torch.testing.assert_close(actual.logsumexp(1), torch.zeros(6, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_a_forest_gives_the_mean_of_its_trees() -> None:
    both = fit(CoordinateAscent(), (FIRST, SECOND)).log_probabilities(new_points())
    one, other = (fit(CoordinateAscent(), (tree,)).log_probabilities(new_points()) for tree in (FIRST, SECOND))
    torch.testing.assert_close(both, ((one.exp() + other.exp()) / 2).log(), rtol=1e-10, atol=1e-10)


def class_scores(x: Tensor) -> Tensor:
    """Class scores that depend on the point."""
    return torch.sin(x @ torch.arange(20.0, dtype=torch.float64).reshape(4, 5)) * 2


def by_row(x: Tensor) -> Callable[[slice], Tensor]:
    return lambda rows: class_scores(x[rows])


@pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
@pytest.mark.parametrize("budget", [BUDGET, 2**13])
def test_chunks_of_test_points_change_nothing(predict_at, budget: int) -> None:
    model = fit(Gibbs(chains=2), with_data=data(scores=True))
    x = new_points(50)
    whole = model.log_probabilities(x, by_row(x), predict_at)
    small = replace(model, memory_budget=budget)
    assert len(small.chunks(x)) > (1 if budget < BUDGET else 0)
    again = small.log_probabilities(x, by_row(x), predict_at)
    torch.testing.assert_close(again, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("inference", [Gibbs(chains=2), CoordinateAscent(learn=LearnKernel(steps=3, per_node=True))])
@pytest.mark.parametrize("budget", [BUDGET, 2**13])
def test_familiarity_is_the_share_explained_at_the_last_decision(inference, budget: int) -> None:
    trees = (FIRST, SECOND)
    model = replace(fit(inference, trees), memory_budget=budget)
    x, classes = new_points(30), np.arange(30) % 5
    share = model.predictor.explained_share(x)
    actual = model.familiarity(x, classes)
    for t in range(30):
        last = [int(nodes[tree.path(int(classes[t]))[-1][0]]) for tree, nodes in zip(trees, model.node_of, strict=True)]
        expected = sum(float(share[node, t]) for node in last) / 2
        assert float(actual[t]) == pytest.approx(expected, abs=1e-10)
    assert (actual >= 0).all()
    assert (actual <= 1).all()


def test_no_test_points() -> None:
    assert fit(CoordinateAscent()).log_probabilities(new_points(0)).shape == (0, 5)


def test_one_class() -> None:
    d = TrainingData(new_points(), np.zeros(6, dtype=int), ["only"])
    model = fit(CoordinateAscent(), (ClassTree.from_preorder([0]),), d)
    for predict_at in ("mean", "quadrature"):
        assert torch.equal(model.log_probabilities(new_points(), None, predict_at), torch.zeros(6, 1).double())


# ------------------------------------------------------------------------------- the GP is a correction to the prior


@pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
@pytest.mark.parametrize("inference", [Gibbs(chains=2), CoordinateAscent()])
@pytest.mark.parametrize("seed", range(3))
def test_with_the_gp_switched_off_any_tree_gives_the_softmax_of_the_scores(predict_at, inference, seed: int) -> None:
    trees = [builder.build(np.zeros((5, 1)), LABELS, seed) for builder in (RandomBalanced(), Chain())]
    model = fit(inference, trees, data(scores=True), kernel(scale=1e-14))
    x = new_points()
    actual = model.log_probabilities(x, by_row(x), predict_at)
    torch.testing.assert_close(actual, class_scores(x).log_softmax(1), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
def test_impossible_classes_get_no_probability(predict_at) -> None:
    model = fit(CoordinateAscent(), (FIRST, SECOND), data(scores=True))

    scores = class_scores(new_points()).index_fill(1, torch.tensor([1, 3, 4]), -torch.inf)
    log_p = model.log_probabilities(new_points(), lambda rows: scores[rows], predict_at)
    assert (log_p[:, [1, 3, 4]] == -torch.inf).all()
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(6, dtype=torch.float64))


def test_scores_move_the_training_points_too() -> None:
    """A prior mean that already explains the labels leaves little for the GP; a wrong one is corrected."""
    d = data()
    truth = torch.nn.functional.one_hot(torch.as_tensor(d.y), 5).double() * 8 - 4
    right = fit(CoordinateAscent(), with_data=replace(d, scores=truth))
    wrong = fit(CoordinateAscent(), with_data=replace(d, scores=-truth))
    size = [sum(float(p.weights.abs().sum()) for p in m.predictor.posteriors) for m in (right, wrong)]
    assert size[0] < 0.1 * size[1]


def test_training_weights_count_as_repetitions() -> None:
    """A weight of two at a point is the point twice: the same posterior mean at new points."""
    d = data()
    twice = TrainingData(d.X.repeat(2, 1), np.tile(d.y, 2), LABELS)
    exact = CoordinateAscent(sweeps=500, tolerance=1e-12)
    weighted = fit(exact, with_data=replace(d, weights=torch.full((len(d.y),), 2.0, dtype=torch.float64)))
    repeated = fit(exact, with_data=twice)
    for a, b in zip(weighted.predictor.moments(new_points()), repeated.predictor.moments(new_points()), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def test_the_features_of_a_node_are_its_own() -> None:
    """Gram values at prediction come from the rows each node holds."""
    d = data()
    model = fit(CoordinateAscent())
    mean, _ = model.predictor.moments(new_points())
    for posterior in model.predictor.posteriors:
        for i, node in enumerate(posterior.nodes.tolist()):
            cross = gram(kernel(), new_points(), d.X[posterior.rows[i]])
            torch.testing.assert_close(mean[node], (cross @ posterior.weights[0, i]).detach(), rtol=1e-10, atol=1e-10)
