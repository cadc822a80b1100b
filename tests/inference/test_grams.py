"""Gram matrices of nodes: cut out, computed apart or with a kernel each, they are the same numbers."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from gpytorch.kernels import Kernel
from node_cases import BUDGET, features, kernel, problems
from torch import Tensor

import gptree.inference.grams
from gptree.inference import Grams, NodeBatch
from gptree.maths import FunctionSpace, WeightSpace, as_kernel, conditional, gram, make_kernel
from gptree.maths.kernels import node_kernels


def make_batch(sizes: tuple[int, ...] = (5, 3, 4), **kinds) -> NodeBatch:
    return NodeBatch.stack(range(len(sizes)), problems(sizes, **kinds), torch.float64)


def expected_block(k: Kernel, X: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return torch.stack([gram(k, X[r], X[c]) for r, c in zip(rows, columns, strict=True)])


@pytest.mark.parametrize("name", ["rbf", "linear", "matern52"])
@pytest.mark.parametrize("grad", [False, True])
def test_cached_and_uncached_and_per_node_blocks_are_the_same(name: str, grad: bool) -> None:
    X, k = features(), kernel(name)
    random = torch.Generator().manual_seed(0)
    rows, columns = (torch.randint(40, (3, n), generator=random) for n in (5, 4))
    nodes = torch.tensor([2, 0, 1])
    with torch.set_grad_enabled(grad):
        expected = expected_block(k, X, rows, columns)
        for grams in (Grams(k, X, BUDGET), Grams(k, X, 0), Grams(node_kernels(k, 3), X, BUDGET)):
            torch.testing.assert_close(grams.block(nodes, rows, columns), expected, rtol=1e-10, atol=1e-10)
            diagonal = torch.stack([gram(k, X[r]).diagonal() for r in rows])
            torch.testing.assert_close(grams.diagonal(nodes, rows), diagonal, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_blocks_of_many_points_are_computed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    X, k, random = features(), kernel(), torch.Generator().manual_seed(0)
    rows, columns = (torch.randint(40, (3, n), generator=random) for n in (5, 4))
    monkeypatch.setattr(conditional, "POINTS", 2)
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(gptree.inference.grams, "gram", lambda k, x, z: asked.append(tuple(x.shape)) or gram(k, x, z))
    found = Grams(k, X, 0).block(torch.arange(3), rows, columns)
    assert [shape[1] for shape in asked] == [2, 2, 1]
    torch.testing.assert_close(found, expected_block(k, X, rows, columns), rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_a_shared_kernel_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(k: Kernel, x: Tensor, other: Tensor | None = None) -> Tensor:
        calls.append(len(x))
        return gram(k, x, other)

    monkeypatch.setattr(gptree.inference.grams, "gram", counted)
    grams, batch = Grams(kernel(), features(), BUDGET), make_batch()
    for _ in range(3):
        grams.space(batch)
    assert calls == [40]


def test_finite_numbers_may_have_an_infinite_sum() -> None:
    huge = torch.full((2, 2), 1e308, dtype=torch.float64)
    assert gptree.inference.grams.finite(huge) is huge


def test_the_cache_keeps_to_its_bytes() -> None:
    X = features()
    with torch.no_grad():
        assert Grams(kernel(), X, 4 * 40 * 40 * 8)._cached is not None
        assert Grams(kernel(), X, 4 * 40 * 40 * 8 - 1)._cached is None


@torch.no_grad()
def test_copies_leave_the_cache_behind() -> None:
    grams, batch = Grams(kernel(), features(), BUDGET), make_batch()
    expected = grams.node_grams(batch)
    assert grams._full is not None
    for again in (pickle.loads(pickle.dumps(grams)), copy.deepcopy(grams)):
        assert again._full is None
        torch.testing.assert_close(again.node_grams(batch), expected)
    assert grams._full is not None


def test_padded_points_are_independent_of_all_others() -> None:
    batch = make_batch()
    K = Grams(kernel(), features(), 0).node_grams(batch)
    for v, n in enumerate(batch.sizes):
        x = features()[batch.rows[v, :n]]
        expected = torch.eye(5, dtype=torch.float64)
        expected[:n, :n] = gram(kernel(), x)
        torch.testing.assert_close(K[v], expected)


def test_the_form_of_the_conditional() -> None:
    X = features(d=6)
    dense, root, jitter = Grams(kernel(), X, 0).space(make_batch((9, 8)))
    assert isinstance(dense, FunctionSpace)
    assert dense.features is None
    assert root is None
    assert jitter.tolist() == [0.0, 0.0]

    linear = Grams(kernel("linear"), X, 0)
    tall, root, _ = linear.space(make_batch((11, 10)))
    assert isinstance(tall, WeightSpace)
    assert tall.order == 6
    assert root is None
    wide, *_ = linear.space(make_batch((9, 8)))  # not yet: the break-even point is near 1.5 d
    assert isinstance(wide, FunctionSpace)
    assert wide.features is not None
    torch.testing.assert_close(wide.features[0] @ wide.features[0].T, wide.K[0])

    batch = make_batch((9, 8), inducing=4)
    sparse, root, jitter = Grams(kernel(), X, 0).space(batch)
    assert isinstance(sparse, WeightSpace)
    assert root is not None
    assert batch.inducing is not None
    for v in range(2):
        torch.testing.assert_close(root[v] @ root[v].T, gram(kernel(), X[batch.inducing[v]]))
    assert jitter.tolist() == [0.0, 0.0]


def test_restriction_and_cross_values() -> None:
    X, new = features(), features(6, seed=5)
    rows = torch.tensor([3, 8, 20, 21])
    for name in ("rbf", "linear"):
        grams = Grams(kernel(name), X, BUDGET)
        torch.testing.assert_close(grams.cross(new), gram(kernel(name), new, X))
        torch.testing.assert_close(grams.restricted(rows).cross(new), gram(kernel(name), new, X[rows]))


def test_nodes_with_their_own_kernels() -> None:
    X, batch = features(), make_batch()
    kernels = node_kernels(as_kernel(make_kernel("rbf"), torch.float64, torch.device("cpu")), 3)
    with torch.no_grad():
        kernels.outputscale = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
        kernels.base_kernel.lengthscale = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64).view(3, 1, 1)
        K = Grams(kernels, X, BUDGET).node_grams(batch)
        for v, n in enumerate(batch.sizes):
            alone = as_kernel(make_kernel("rbf", (1.0, 2.0, 5.0)[v], (0.5, 1.0, 2.0)[v]), torch.float64, X.device)
            expected = gram(alone, X[batch.rows[v, :n]])
            torch.testing.assert_close(K[v, :n, :n], expected, rtol=1e-6, atol=1e-6)


def test_gradients_reach_the_hyper_parameters_of_each_node() -> None:
    kernels = node_kernels(kernel(), 3)
    batch = make_batch()
    K = Grams(kernels, features(), 0).node_grams(batch)
    gradients = torch.autograd.grad(K.sum(), list(kernels.parameters()))
    assert all((gradient.reshape(3, -1).abs().sum(-1) > 0).all() for gradient in gradients)


@pytest.mark.parametrize("name", ["rbf", "linear", "matern52"])
@pytest.mark.parametrize("cache", [0, BUDGET])
@pytest.mark.parametrize("per_node", [False, True])
@pytest.mark.parametrize("sizes", [(3, 2), (9, 8)])
def test_kernels_that_are_not_finite_say_so(name: str, cache: int, per_node: bool, sizes: tuple[int, ...]) -> None:
    X = features()
    X[:, 0] = 1e200 if name != "linear" else torch.inf
    X[::2, 0] *= -1
    k = node_kernels(kernel(name), 2) if per_node else kernel(name)
    with pytest.raises(ValueError, match="not finite on these features"), torch.no_grad():
        Grams(k, X, cache).space(make_batch(sizes))
