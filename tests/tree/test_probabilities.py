from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trees import chain, class_trees, random_tree

from gptree.tree import ClassTree, class_log_probabilities
from gptree.tree.probabilities import ForestPaths, node_log_odds


def node_log_probabilities(tree: ClassTree, n_points: int, seed: int, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    f = 3 * torch.randn(tree.n_nodes, n_points, generator=generator, dtype=dtype)
    return torch.nn.functional.logsigmoid(f), torch.nn.functional.logsigmoid(-f)


def along_paths(tree: ClassTree, log_left: torch.Tensor, log_right: torch.Tensor) -> np.ndarray:
    """The slow twin: exactly rounded sums along the path of each class."""
    result = np.zeros((log_left.shape[1], tree.n_classes))
    for c in range(tree.n_classes):
        for i in range(log_left.shape[1]):
            terms = [float((log_left if goes_left else log_right)[v, i]) for v, goes_left in tree.path(c)]
            result[i, c] = math.fsum(terms)
    return result


@settings(deadline=None)
@given(class_trees(), st.integers(0, 2**32), st.sampled_from([torch.float32, torch.float64]))
def test_equals_sums_along_paths_to_depth_times_epsilon(tree: ClassTree, seed: int, dtype: torch.dtype):
    log_left, log_right = node_log_probabilities(tree, 3, seed, dtype)
    result = class_log_probabilities(tree, log_left, log_right)
    exact = along_paths(tree, log_left, log_right)
    assert result.dtype == dtype
    assert result.shape == (3, tree.n_classes)
    bound = tree.height * torch.finfo(dtype).eps * np.abs(exact)
    assert np.all(np.abs(result.double().numpy() - exact) <= bound)
    torch.testing.assert_close(result.exp().sum(1), torch.ones(3, dtype=dtype))


def test_nodes_that_are_in_no_tree_change_nothing():
    """As they are left where classes were removed: the last of five nodes belongs to no tree."""
    tree = random_tree(4, seed=1)
    log_left, log_right = node_log_probabilities(random_tree(6, seed=2), 3, seed=0)
    used = np.array([3, 0, 2])
    paths = ForestPaths([tree], [used], 5)
    expected = along_paths(tree, log_left[used], log_right[used])
    np.testing.assert_allclose(paths.class_log_probabilities(log_left, log_right), expected, rtol=1e-14)
    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    odds = paths.log_odds(scores)
    assert odds.shape == (5, 3)
    torch.testing.assert_close(odds[used], node_log_odds(tree, scores))


def test_products_of_decisions():
    tree = ClassTree.from_nested([[2, 0], 1], range(3))
    left = torch.tensor([[0.25], [0.1]], dtype=torch.float64)
    result = class_log_probabilities(tree, left.log(), (1 - left).log()).exp()
    torch.testing.assert_close(result, torch.tensor([[0.25 * 0.9, 0.75, 0.25 * 0.1]], dtype=torch.float64))


def test_certain_decisions_give_minus_infinity_and_no_nan():
    tree = random_tree(12, seed=3)
    goes_left = torch.arange(tree.n_nodes)[:, None] % 2 == torch.arange(4) % 2
    log_left = torch.where(goes_left, 0.0, -torch.inf)
    log_right = torch.where(goes_left, -torch.inf, 0.0)
    result = class_log_probabilities(tree, log_left, log_right)
    assert torch.equal((result == 0).sum(1), torch.ones(4, dtype=torch.int64))
    assert torch.equal((result == -torch.inf).sum(1), torch.full((4,), 11))
    both_impossible = torch.full((tree.n_nodes, 1), -torch.inf)
    assert torch.all(class_log_probabilities(tree, both_impossible, both_impossible) == -torch.inf)


def test_one_class_is_certain():
    empty = torch.zeros(0, 5, dtype=torch.float32)
    result = class_log_probabilities(random_tree(1, 0), empty, empty)
    assert torch.equal(result, torch.zeros(5, 1))


def test_gradients_flow_to_the_decisions_of_the_path():
    tree = random_tree(6, seed=0)
    log_left, log_right = node_log_probabilities(tree, 1, seed=0)
    log_left.requires_grad_()
    class_log_probabilities(tree, log_left, log_right)[0, 2].backward()
    expected = torch.zeros_like(log_left)
    for node, goes_left in tree.path(2):
        expected[node] = float(goes_left)
    assert torch.equal(log_left.grad, expected)


@pytest.mark.parametrize("shape", [(3,), (2, 5), (4, 5)])
def test_wrong_shapes_are_named(shape):
    with pytest.raises(ValueError, match=r"shape \(3, T\)"):
        class_log_probabilities(random_tree(4, 0), torch.zeros(shape), torch.zeros(shape))


def test_chain_of_ten_thousand_classes():
    tree = chain(10_000)
    left = torch.full((9_999, 10), 1e-3, dtype=torch.float64)
    start = time.perf_counter()
    result = class_log_probabilities(tree, left.log(), torch.log1p(-left))
    assert time.perf_counter() - start < 10  # about half a second; anything quadratic takes minutes
    c = np.arange(9_999)
    np.testing.assert_allclose(result[0, :-1], np.log(1e-3) + c * np.log1p(-1e-3), rtol=1e-11)
    assert abs(float(result[3].exp().sum()) - 1) < 1e-9
