"""Prior means of nodes from class scores, against explicit log-sum-exps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import gptree.model.prior_means
from gptree.model import PathTable, row_scores, training_log_odds
from gptree.tree import Chain, ClassTree, RandomBalanced, class_log_probabilities, node_log_odds


def random_tree(n_classes: int, seed: int) -> ClassTree:
    """Any shape: the classes in random order, cut at random places."""
    random = np.random.default_rng(seed)
    order, preorder = random.permutation(n_classes), []
    stack = [(0, n_classes)]
    while stack:
        lo, hi = stack.pop()
        if hi - lo == 1:
            preorder.append(int(order[lo]))
            continue
        preorder.append(-1)
        mid = int(random.integers(lo + 1, hi))
        stack += [(mid, hi), (lo, mid)]
    return ClassTree.from_preorder(preorder)


def random_scores(rows: int, n_classes: int, seed: int, scale: float = 3.0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return scale * torch.randn(rows, n_classes, generator=random, dtype=torch.float64)


def slow_log_odds(tree: ClassTree, scores: Tensor, node: int, row: int) -> float:
    left, right = (
        torch.logsumexp(scores[row, torch.as_tensor(side.copy())], 0) for side in (tree.left(node), tree.right(node))
    )
    return 0.0 if bool(torch.isneginf(left) and torch.isneginf(right)) else float(left - right)


TREES = st.builds(random_tree, st.integers(1, 12), st.integers(0, 1000))


@given(TREES, st.integers(0, 1000))
@settings(deadline=None)
def test_log_odds_equal_explicit_log_sum_exps(tree: ClassTree, seed: int) -> None:
    scores = random_scores(4, tree.n_classes, seed)
    odds = node_log_odds(tree, scores)
    assert odds.shape == (tree.n_nodes, 4)
    for v in range(tree.n_nodes):
        for t in range(4):
            assert float(odds[v, t]) == pytest.approx(slow_log_odds(tree, scores, v, t), abs=1e-10)


@given(TREES, st.integers(0, 1000))
@settings(deadline=None)
def test_decisions_at_the_log_odds_multiply_to_the_softmax(tree: ClassTree, seed: int) -> None:
    """σ(μ) at every node, along the paths of a tree of any shape, is softmax(scores)."""
    scores = random_scores(5, tree.n_classes, seed, scale=20.0)
    odds = node_log_odds(tree, scores)
    log_p = class_log_probabilities(tree, torch.nn.functional.logsigmoid(odds), torch.nn.functional.logsigmoid(-odds))
    torch.testing.assert_close(log_p, scores.log_softmax(1), rtol=1e-10, atol=1e-10)


def test_impossible_classes() -> None:
    """−∞ for a class decides its nodes; −∞ on both sides says nothing; all classes of a side may be impossible."""
    tree = ClassTree.from_nested([[0, 1], [2, [3, 4]]], range(5))
    scores = torch.zeros(1, 5, dtype=torch.float64)
    scores[0, [0, 3, 4]] = -torch.inf
    odds = node_log_odds(tree, scores)
    for v in range(tree.n_nodes):
        assert float(odds[v, 0]) == slow_log_odds(tree, scores, v, 0)
    assert torch.isinf(odds).sum() == 2
    log_p = class_log_probabilities(tree, torch.nn.functional.logsigmoid(odds), torch.nn.functional.logsigmoid(-odds))
    torch.testing.assert_close(log_p.exp(), torch.tensor([[0, 0.5, 0.5, 0, 0]], dtype=torch.float64))


def test_scores_that_are_not_numbers_stay_visible() -> None:
    tree = ClassTree.from_nested([[0, 1], 2], range(3))
    scores = torch.tensor([[0.0, torch.nan, 0.0]], dtype=torch.float64)
    assert node_log_odds(tree, scores).isnan().all()


def test_ten_thousand_classes_in_a_chain() -> None:
    tree = Chain().build(np.zeros((10_000, 1)), list(range(10_000)), 0)
    odds = node_log_odds(tree, torch.zeros(1, 10_000, dtype=torch.float64))[:, 0]
    remaining = torch.arange(9_999, 0, -1, dtype=torch.float64)
    torch.testing.assert_close(odds, -remaining.log(), rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------------------------------- at training rows


def chosen_rows(tree: ClassTree, total: int) -> list[np.ndarray]:
    random = np.random.default_rng(2)
    return [random.permutation(total)[: 2 + v % 3] for v in range(tree.n_nodes)]


@pytest.mark.parametrize("chunk", [2**24, 1, 50])
def test_training_log_odds_pick_the_rows_of_each_node(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gptree.model.prior_means, "CHUNK_NUMBERS", chunk)
    tree = RandomBalanced().build(np.zeros((7, 1)), list(range(7)), 3)
    scores, nodes = random_scores(15, 7, 1), [4, 0, 2]
    rows = chosen_rows(tree, 15)
    found = training_log_odds(tree, scores, nodes, [rows[v] for v in nodes])
    for v, means in zip(nodes, found, strict=True):
        assert means is not None
        expected = [slow_log_odds(tree, scores, v, int(r)) for r in rows[v]]
        torch.testing.assert_close(means, torch.tensor(expected, dtype=torch.float64))


def test_one_row_of_scores_serves_all() -> None:
    tree = random_tree(6, 1)
    scores, rows = random_scores(1, 6, 1), chosen_rows(random_tree(6, 1), 20)
    found = training_log_odds(tree, scores, range(tree.n_nodes), rows)
    for v, means in enumerate(found):
        assert means is not None
        expected = torch.full((len(rows[v]),), slow_log_odds(tree, scores, v, 0), dtype=torch.float64)
        torch.testing.assert_close(means, expected)


@pytest.mark.parametrize("scale", [3.0, 2_000.0], ids=["as they are", "beyond the smallest number"])
def test_a_table_of_paths_holds_what_dense_scores_give(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come in any order and in pieces, are summed in smaller ones; every node finds the means of its own rows."""
    monkeypatch.setattr(gptree.model.prior_means, "PIECE_NUMBERS", 3 * 9)
    trees, y = [random_tree(9, seed) for seed in (1, 2)], np.random.default_rng(0).integers(0, 9, 30)
    scores = random_scores(30, 9, 4, scale)
    table = PathTable(trees, y, scores)
    for rows in torch.randperm(30, generator=torch.Generator().manual_seed(0)).split(7):
        own = table.add(rows, scores[rows] + 5.0)  # constants of a row cancel
        torch.testing.assert_close(own, scores[rows].log_softmax(1)[torch.arange(len(rows)), torch.as_tensor(y)[rows]])
    found = table.done()
    some = torch.arange(30) % 3 > 0
    fewer, places = found.some(some), np.flatnonzero(some.numpy())
    for t, tree in enumerate(trees):
        below = [np.isin(y, tree.members(v)) for v in range(tree.n_nodes)]
        rows = [np.flatnonzero(mine) for mine in below]
        means = training_log_odds(tree, found, range(tree.n_nodes), rows, t)
        dense = training_log_odds(tree, scores, range(tree.n_nodes), rows)
        again = training_log_odds(tree, fewer, range(tree.n_nodes), [np.flatnonzero(m[places]) for m in below], t)
        for one, other, part, mine in zip(means, dense, again, rows, strict=True):
            assert one is not None
            assert part is not None
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
            assert torch.equal(part, one[torch.as_tensor(np.isin(mine, places))])
    assert sum(map(len, found.values)) == sum(int(tree.leaf_depth[tree.position[y]].sum()) for tree in trees)


@pytest.mark.parametrize("with_trees", [True, False])
@pytest.mark.parametrize("with_prior", [True, False])
def test_what_is_kept_of_scores_that_come_in_parts(with_trees: bool, with_prior: bool) -> None:
    """Own probabilities and spreads are of the scores as they are; the prior is in the prior means alone."""
    trees = [random_tree(6, seed) for seed in (1, 2)] if with_trees else []
    y, scores = np.random.default_rng(0).integers(0, 6, 20), random_scores(20, 6, 4)
    prior = torch.linspace(-1.0, 2.0, 6, dtype=torch.float64) if with_prior else None
    parts = [(rows, scores[rows]) for rows in torch.randperm(20, generator=torch.Generator().manual_seed(0)).split(7)]
    counts: list[int] = []
    found = row_scores(parts, y, scores, trees, prior, spread=True, advance=counts.append)
    assert sum(counts) == len(y)
    assert found.spread is not None
    for i, c in enumerate(y):
        row = scores[i].numpy()
        assert float(found.own[i]) == pytest.approx(np.exp(row[c]) / np.exp(row).sum(), rel=1e-10)
        assert float(found.spread[i]) == pytest.approx(np.sqrt(np.mean((row - row.mean()) ** 2)), rel=1e-10)
    assert (found.odds is None) is not with_trees
    learnt = scores if prior is None else scores + prior
    for t, tree in enumerate(trees):
        assert found.odds is not None
        means = training_log_odds(tree, found.odds, [0], [np.arange(20)], t)[0]
        assert means is not None
        for i, mean in enumerate(means.tolist()):
            assert mean == pytest.approx(slow_log_odds(tree, learnt, 0, i), abs=1e-10)
    assert row_scores(parts, y, scores, spread=False, advance=counts.append).spread is None


def test_a_table_refuses_scores_that_are_not_finite() -> None:
    table = PathTable([random_tree(4, 1)], np.array([0, 3]), torch.zeros(1, dtype=torch.float64))
    table.add(torch.arange(2), torch.full((2, 4), torch.nan, dtype=torch.float64))
    with pytest.raises(ValueError, match="prior mean that is not finite: bound the scores"):
        table.done()


def test_paths_to_all_leaves() -> None:
    for tree in (random_tree(12, 3), random_tree(1, 0), Chain().build(np.zeros((5, 1)), list(range(5)), 0)):
        paths = [[node for node, _ in tree.path(int(c))] for c in tree.order]
        assert tree.path_nodes.tolist() == [node for path in paths for node in path]


def test_no_scores_are_no_means() -> None:
    tree = random_tree(4, 1)
    assert training_log_odds(tree, None, [0, 1], chosen_rows(tree, 5)[:2]) == [None, None]
    assert training_log_odds(tree, random_scores(5, 4, 0), [], []) == []


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("bad", [-torch.inf, torch.nan])
def test_a_prior_mean_at_a_training_row_must_be_finite(rows: int, bad: float) -> None:
    tree = ClassTree.from_nested([[0, 1], 2], range(3))
    scores = random_scores(rows, 3, 0)
    scores[0, 1] = bad
    with pytest.raises(ValueError, match="finite"):
        training_log_odds(tree, scores, [0, 1], [np.arange(rows), np.arange(rows)])
