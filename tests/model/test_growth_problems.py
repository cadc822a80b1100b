"""Node problems of a forest that grows: nodes that are fitted already, and nodes seen through exemplars."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import torch
from forest_cases import COUNTS, FIRST, LABELS, SECOND, data, fit, new_points

from gptree.inference import CoordinateAscent, FixedInducingPoints, InducingPoints, NodeProblem
from gptree.model import node_problems
from gptree.tree import ClassTree

TREES = [FIRST, SECOND]


def sides(problem: NodeProblem, y: np.ndarray) -> tuple[set[int], set[int]]:
    labels = y[problem.rows.numpy()]
    left = problem.left.numpy()
    return set(labels[left].tolist()), set(labels[~left].tolist())


def classes_of(tree: ClassTree, v: int) -> tuple[set[int], set[int]]:
    return set(tree.left(v).tolist()), set(tree.right(v).tolist())


class TestNodesThatAreFitted:
    def test_are_not_fitted_again(self) -> None:
        d = data()
        _, all_nodes = node_problems(TREES, d, None, 0)
        assert [nodes.tolist() for nodes in all_nodes] == [[0, 1, 2, 3], [4, 2, 3, 1]]
        known = [np.array([-1, 7, -1, 2]), np.array([5, -1, 2, 7])]
        problems, node_of = node_problems(TREES, d, None, 0, known, n_fitted=10)
        # of the first tree its root and {cat | dog eel} are new, and the second tree has the latter, too
        assert [nodes.tolist() for nodes in node_of] == [[10, 7, 11, 2], [5, 11, 2, 7]]
        assert [sides(p, d.y) for p in problems] == [({0, 1}, {2, 3, 4}), ({2}, {3, 4})]

    def test_everything_known_leaves_no_problem(self) -> None:
        problems, node_of = node_problems([FIRST], data(), None, 0, [np.array([3, 1, 0, 2])], n_fitted=4)
        assert problems == []
        assert node_of[0].tolist() == [3, 1, 0, 2]

    def test_new_ones_are_the_same_problems_as_ever(self) -> None:
        d = data(weights=True, scores=True)
        whole, _ = node_problems(TREES, d, None, 3)
        some, _ = node_problems(TREES, d, None, 3, [np.array([-1, 0, -1, -1]), np.array([1, -1, -1, 0])], n_fitted=2)
        for a, b in zip([whole[0], whole[2], whole[3]], some, strict=True):
            assert torch.equal(a.rows, b.rows)
            assert torch.equal(a.left, b.left)
            assert a.seed == b.seed
            assert a.mean is not None
            assert b.mean is not None
            assert torch.equal(a.mean, b.mean)


@pytest.mark.parametrize("points", [2, 3, 12, 15])
@pytest.mark.parametrize("fixed", [False, True])
def test_classes_without_a_row_do_not_count(points: int, fixed: bool) -> None:
    """As a new root sees earlier classes, of which it gets so many rows together."""
    d = data()
    labels = [*LABELS, *(f"none {i}" for i in range(30))]
    d = replace(d, labels=labels, inducing=np.arange(len(d.y)) if fixed else None)
    first = reduce(lambda below, label: [label, below], ["none 29", *labels[5:34], "bee"], "ant")
    tree = ClassTree.from_nested([first, ["cat", ["dog", "eel"]]], labels)
    root = np.full(tree.n_nodes, 0)
    root[0] = -1
    limit = FixedInducingPoints(points=points) if fixed else InducingPoints(points)
    (problem,), _ = node_problems([tree], d, limit, 0, [root], n_fitted=1)
    seen = problem.rows if fixed else problem.inducing
    assert seen is not None
    assert 2 <= len(seen) <= points
    left, right = sides(problem, d.y)
    assert left <= {0, 1}
    assert right <= {2, 3, 4}
    counts = np.bincount(d.y[seen.numpy()], minlength=5)
    assert counts[:2].any()
    assert counts[2:].any()
    if points > 5:  # the same number of each class, where it has them
        full = counts.max()
        assert all(counts[c] == min(full, COUNTS[c]) for c in range(5))


class TestThroughExemplars:
    EXEMPLARS = np.sort(np.concatenate([np.flatnonzero(data().y == c)[-2:] for c in range(5)]))

    def problems(self, **limits: int) -> list[NodeProblem]:
        d = replace(data(weights=True, scores=True), inducing=self.EXEMPLARS)
        return node_problems(TREES, d, FixedInducingPoints(**limits), 0)[0]

    def test_every_node_sees_its_points_through_the_exemplars_of_its_classes(self) -> None:
        d = data(weights=True, scores=True)
        assert d.scores is not None
        assert d.weights is not None
        problems, node_of = node_problems(TREES, replace(d, inducing=self.EXEMPLARS), FixedInducingPoints(), 0)
        for tree, nodes in zip(TREES, node_of, strict=True):
            for v in range(tree.n_nodes):
                problem = problems[int(nodes[v])]
                assert sides(problem, d.y) == classes_of(tree, v)
                members = tree.members(v)
                rows = np.flatnonzero(np.isin(d.y, members))
                assert problem.rows.tolist() == rows.tolist()
                assert problem.inducing is not None
                assert problem.inducing.tolist() == [row for row in self.EXEMPLARS if d.y[row] in members]
                assert problem.mean is not None
                assert problem.weight is not None
                assert torch.equal(problem.weight, d.weights[rows])
                left, right = tree.left(v).tolist(), tree.right(v).tolist()
                odds = d.scores[rows][:, left].logsumexp(1) - d.scores[rows][:, right].logsumexp(1)
                torch.testing.assert_close(problem.mean, odds)

    def test_at_most_so_many_points_evenly_and_the_exemplars_among_them(self) -> None:
        d = data()
        for problem in self.problems(points=12):
            counts = np.bincount(d.y[problem.rows.numpy()], minlength=5)
            assert counts.sum() <= 12
            there = counts[counts > 0]
            quota = there.max()
            full = [c for c in range(5) if 0 < counts[c] < quota]
            assert all(counts[c] == COUNTS[c] for c in full)  # only a class that has no more comes with fewer
            if problem.inducing is None:  # all of the points
                assert set(problem.rows.tolist()) <= set(self.EXEMPLARS.tolist())
            else:
                assert set(problem.inducing.tolist()) < set(problem.rows.tolist())

    def test_at_most_so_many_inducing_points_evenly(self) -> None:
        d = data()
        for problem in self.problems(inducing=6):
            assert problem.inducing is not None
            assert set(problem.inducing.tolist()) <= set(self.EXEMPLARS.tolist())
            counts = np.bincount(d.y[problem.inducing.numpy()], minlength=5)
            classes = len(set(d.y[problem.rows.numpy()].tolist()))
            assert counts.sum() <= 6
            assert counts[counts > 0].tolist() == [1 if classes > 3 else 2] * classes

    def test_nodes_of_more_inducing_points_than_that_have_fewer(self) -> None:
        everything, few = self.problems(), self.problems(inducing=6, fewer=4)
        for all_points, problem in zip(everything, few, strict=True):
            assert all_points.inducing is not None
            assert problem.inducing is not None
            if len(all_points.inducing) <= 6:
                assert torch.equal(problem.inducing, all_points.inducing)
            else:
                assert 2 <= len(problem.inducing) <= 4

    @pytest.mark.parametrize("limits", [{"points": 3}, {"inducing": 3}])
    def test_more_classes_than_points(self, limits: dict[str, int]) -> None:
        d = data()
        for problem in self.problems(**limits):
            left, right = sides(problem, d.y)
            assert left
            assert right
            assert problem.inducing is not None
            chosen = problem.inducing if "inducing" in limits else problem.rows
            assert 2 <= len(chosen) <= 3
            assert set(problem.inducing.tolist()) <= set(self.EXEMPLARS.tolist())

    def test_a_choice_of_points_is_the_same_whatever_the_numbers_of_the_classes(self) -> None:
        """Rows are taken by the label of their class and the seed."""
        d = replace(data(), inducing=self.EXEMPLARS)
        swap = np.array([4, 2, 1, 3, 0])
        moved = replace(d, y=swap[d.y], labels=[LABELS[c] for c in np.argsort(swap)])
        tree = ClassTree.from_nested(FIRST.to_nested(LABELS), moved.labels)
        first, _ = node_problems([FIRST], d, FixedInducingPoints(points=10), 0)
        second, _ = node_problems([tree], moved, FixedInducingPoints(points=10), 0)
        for a, b in zip(first, second, strict=True):
            assert torch.equal(a.rows, b.rows)
            assert torch.equal(a.left, b.left)

    def test_all_rows_as_exemplars_give_the_dense_posterior(self) -> None:
        """With as many inducing points as points nothing is approximated: no factor of K_mm, no jitter."""
        d = data(scores=True)
        everyone = replace(d, inducing=np.arange(len(d.y)))
        inference = CoordinateAscent(sweeps=5, tolerance=0.0)
        sparse = fit(inference, TREES, everyone, large_nodes=FixedInducingPoints())
        dense = fit(inference, TREES, d)
        assert {p.kind for p in sparse.predictor.posteriors} == {"dense"}
        x = new_points()
        torch.testing.assert_close(sparse.log_probabilities(x), dense.log_probabilities(x), rtol=0, atol=1e-12)
