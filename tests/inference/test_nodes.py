"""Batching: every node once, similar sizes together, padding marked, budgets kept."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gptree.inference import NodeBatch, NodeProblem, make_batches
from gptree.inference.nodes import generators, size_class


def make_problem(n: int, seed: int, inducing: int | None = None, extras: bool = True) -> NodeProblem:
    random = torch.Generator().manual_seed(seed)
    rows = torch.randperm(50, generator=random)[:n]
    return NodeProblem(
        rows=rows,
        left=torch.arange(n) % 2 == 0,
        seed=seed,
        mean=torch.randn(n, generator=random, dtype=torch.float64) if extras else None,
        weight=torch.rand(n, generator=random, dtype=torch.float64) + 0.5 if extras else None,
        inducing=None if inducing is None else rows[:inducing],
    )


@given(st.integers(1, 5000), st.sampled_from([64, 128, 4096]))
def test_size_classes_waste_little(n: int, largest_padded: int) -> None:
    size = size_class(n, largest_padded)
    assert size >= n
    assert size_class(size, largest_padded) == size
    if n > largest_padded:
        assert size == n
    elif n > 4:
        assert size <= max(n + 1, 1.25 * n)


@pytest.mark.parametrize("extras", [False, True])
def test_stacking_pads_with_nothing(extras: bool) -> None:
    problems = [make_problem(n, seed=n, extras=extras) for n in (5, 3, 4)]
    batch = NodeBatch.stack([7, 2, 9], problems, torch.float64)
    assert batch.nodes.tolist() == [7, 2, 9]
    assert batch.sizes == (5, 3, 4)
    assert batch.seeds == (5, 3, 4)
    for v, p in enumerate(problems):
        n = len(p.rows)
        assert torch.equal(batch.rows[v, :n], p.rows)
        for i in range(n):
            b = 1.0 if p.weight is None else float(p.weight[i])
            assert batch.b[v, i] == b
            assert batch.kappa[v, i] == b * (0.5 if p.left[i] else -0.5)
            assert batch.mu[v, i] == (0.0 if p.mean is None else p.mean[i])
        for padded in (batch.rows, batch.b, batch.kappa, batch.mu):
            assert (padded[v, n:] == 0).all()


@given(
    sizes=st.lists(st.integers(1, 40), max_size=30),
    budget=st.sampled_from([1, 500, 10**6]),
    width=st.sampled_from([1, 10]),
)
@example(sizes=[9, 10, 9, 10], budget=10**6, width=1)
@settings(max_examples=50, deadline=None)
def test_batches_hold_every_node_once_within_the_budget(sizes: list[int], budget: int, width: int) -> None:
    problems = [make_problem(n, seed=i, inducing=2 if i % 3 == 0 and n > 2 else None) for i, n in enumerate(sizes)]
    batches = list(make_batches(problems, torch.float64, budget, 32, width, lambda n: n > 9))
    nodes = torch.cat([batch.nodes for batch in batches]).tolist() if batches else []
    assert sorted(nodes) == list(range(len(sizes)))
    for batch in batches:
        n = batch.rows.shape[1]
        assert n == max(batch.sizes)
        side = n if batch.inducing is None else batch.inducing.shape[1]
        grid = {size_class(size, 32) for size in batch.sizes}
        assert len(grid) == 1
        assert len(batch) == 1 or len(batch) * n * max(side, width) <= budget
        assert len({size > 9 for size in batch.sizes}) == 1


@pytest.mark.parametrize("inducing", [None, 2])
def test_restriction_to_used_rows_keeps_the_points(inducing: int | None) -> None:
    batch = NodeBatch.stack([0, 1], [make_problem(n, seed=n, inducing=inducing) for n in (6, 4)], torch.float64)
    used = batch.used_rows
    restricted = batch.on_rows(used)
    X = torch.arange(50)
    assert torch.equal(X[used][restricted.rows], X[batch.rows])
    if inducing is None:
        assert restricted.inducing is None
    else:
        assert restricted.inducing is not None
        assert torch.equal(X[used][restricted.inducing], batch.inducing)


def test_every_seed_gives_its_own_generator() -> None:
    first, second, again = generators([1 << 63, (1 << 64) - 1, 1 << 63], torch.device("cpu"))
    draws = [torch.rand(3, generator=g) for g in (first, second, again)]
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])
