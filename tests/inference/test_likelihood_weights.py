"""A point of weight k at a node is the point k times: exactly, or in distribution where draws are random."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from node_cases import BUDGET, by_node, features, kernel, problem
from torch import Tensor

from gptree.inference import CoordinateAscent, Gibbs, Inference, LearnKernel, NodePredictor, NodeProblem, fit_nodes
from gptree.inference import SparseVariational as Sparse
from gptree.maths import gram


def weighted(n: int = 9, inducing: int | None = None) -> NodeProblem:
    p = problem(n, seed=4, inducing=inducing)
    return replace(p, weight=torch.randint(1, 4, (n,), generator=torch.Generator().manual_seed(1)).double())


def repeated(p: NodeProblem) -> NodeProblem:
    assert p.weight is not None
    assert p.mean is not None
    rows, left, mean = (values.repeat_interleave(p.weight.long()) for values in (p.rows, p.left, p.mean))
    return replace(p, rows=rows, left=left, mean=mean, weight=None)


def predicted(p: NodeProblem, inference: Inference, name: str) -> tuple[Tensor, ...]:
    """Bound and the moments of f at new points, of a single node."""
    fits = fit_nodes([p], kernel(name), features(), inference, memory_budget=BUDGET)
    mean, variance = NodePredictor(fits.grams, fits.posteriors, BUDGET).moments(features(6, seed=9))
    assert fits.diagnostics.bound is not None
    return fits.diagnostics.bound, mean, variance


@pytest.mark.parametrize("name", ["rbf", "linear"])
@pytest.mark.parametrize(
    ("inference", "inducing"),
    [
        (CoordinateAscent(sweeps=30), None),
        (CoordinateAscent(sweeps=5, tolerance=0.0), 4),
        (Sparse(sweeps=5), 4),
        (CoordinateAscent(sweeps=5, learn=LearnKernel(steps=3, node_weights="size")), None),
    ],
    ids=["dense", "inducing points", "natural gradients", "learnt kernel"],
)
def test_weights_equal_repeated_points(inference: Inference, inducing: int | None, name: str) -> None:
    p = weighted(inducing=inducing)
    for found, expected in zip(predicted(p, inference, name), predicted(repeated(p), inference, name), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def latent_means(p: NodeProblem) -> Tensor:
    """E[f] at new points given ω, of 1,500 chains: (chains, points)."""
    fits = fit_nodes([p], kernel(), features(), Gibbs(chains=1500, steps=6), memory_budget=BUDGET)
    (fitted,) = by_node(fits, [p])
    return (fitted.weights @ gram(kernel(), features()[fitted.rows], features(4, seed=9))).detach()


def largest_z(a: Tensor, b: Tensor) -> float:
    """Of the differences between means and between variances, in standard errors."""
    scores = []
    for first, second in ((a, b), ((a - a.mean(0)).square(), (b - b.mean(0)).square())):
        error = (first.var(0) / len(first) + second.var(0) / len(second)).sqrt()
        scores.append(((first.mean(0) - second.mean(0)) / error).abs().max())
    return float(torch.stack(scores).max())


def test_gibbs_draws_of_weights_are_distributed_as_those_of_repeated_points() -> None:
    """Four points, two moments each, twice: a right sampler fails with probability 16 · 6e-5 = 1e-3. Without weights it
    is far off."""
    p = weighted()
    assert p.weight is not None
    many = latent_means(replace(repeated(p), seed=77))
    assert largest_z(latent_means(p), many) < 4
    assert largest_z(latent_means(replace(p, weight=None)), many) > 8
    halves = replace(
        p,
        **{name: getattr(p, name).repeat(2) for name in ("rows", "left", "mean")},
        weight=p.weight.repeat(2) / 2,
        seed=78,
    )
    assert largest_z(latent_means(halves), many) < 4  # fractions add up
