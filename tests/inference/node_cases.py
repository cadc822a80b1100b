"""Small node problems of every kind, and fitted nodes taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.inference import DensePosterior, InducingPosterior, NodeFits, NodeProblem
from gptree.maths import as_kernel, make_kernel
from gptree.maths.linalg import covariance_root

SIZES = (7, 5, 6, 3, 12, 11, 2, 5)
BUDGET = 2**30


def features(n: int = 40, d: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def kernel(name: str = "rbf", output_scale: float = 3.0) -> Kernel:
    return as_kernel(make_kernel(name, output_scale, 1.3), torch.float64, torch.device("cpu"))


def problem(n: int, seed: int, total: int = 40, extras: bool = True, inducing: int | None = None) -> NodeProblem:
    """n of `total` rows, both sides present; with prior means and weights ½, 1 and 2 if `extras`."""
    random = torch.Generator().manual_seed(seed)
    rows = torch.randperm(total, generator=random)[:n]
    left = torch.rand(n, generator=random) < 0.5
    left[:2] = torch.tensor([True, False])[: len(left)]
    weights = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    return NodeProblem(
        rows=rows,
        left=left,
        seed=seed + (1 << 60),
        mean=torch.randn(n, generator=random, dtype=torch.float64) if extras else None,
        weight=weights[torch.randint(3, (n,), generator=random)] if extras else None,
        inducing=None if inducing is None else rows[:inducing],
    )


def problems(sizes: Sequence[int] = SIZES, **kinds) -> list[NodeProblem]:
    return [problem(n, seed, **kinds) for seed, n in enumerate(sizes)]


@dataclass(frozen=True)
class Plain:
    """A problem as plain vectors, without None."""

    kappa: Tensor
    b: Tensor
    mu: Tensor


def plain(p: NodeProblem) -> Plain:
    n = len(p.rows)
    b = torch.ones(n, dtype=torch.float64) if p.weight is None else p.weight
    mu = torch.zeros(n, dtype=torch.float64) if p.mean is None else p.mean
    return Plain(b * (p.left.double() - 0.5), b, mu)


@dataclass(frozen=True)
class Fitted:
    """What is stored of one node, without padding."""

    kind: str
    rows: Tensor
    weights: Tensor
    omega: Tensor | None
    precision: Tensor | None


def by_node(fits: NodeFits, of: Sequence[NodeProblem]) -> list[Fitted]:
    found: dict[int, Fitted] = {}
    for posterior in fits.posteriors:
        for v, node in enumerate(posterior.nodes.tolist()):
            n = len(of[node].rows)
            if isinstance(posterior, InducingPosterior):
                with torch.no_grad():
                    root, _ = covariance_root(fits.grams.block(posterior.nodes, posterior.rows, posterior.rows))
                    lower = posterior.precisions(fits.grams, root)[v].tril()  # the other triangle does not count
                precision = lower + lower.tril(-1).T
                parts = posterior.rows[v], posterior.weights[:, v], None, precision
            else:
                width = n if isinstance(posterior, DensePosterior) else None
                parts = posterior.rows[v, :n], posterior.weights[:, v, :width], posterior.omega[:, v, :n], None
            assert node not in found
            found[node] = Fitted(posterior.kind, *parts)
    return [found[node] for node in range(len(of))]


def assert_same_fits(first: NodeFits, second: NodeFits, of: Sequence[NodeProblem], tolerance: float = 1e-10) -> None:
    """Equal numbers at every node and equal diagnostics, however the nodes were batched."""
    for a, b in zip(by_node(first, of), by_node(second, of), strict=True):
        assert a.kind == b.kind
        assert torch.equal(a.rows, b.rows)
        for x, y in ((a.weights, b.weights), (a.omega, b.omega), (a.precision, b.precision)):
            assert (x is None) == (y is None)
            if x is not None and y is not None:
                torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)
    for name, value in vars(first.diagnostics).items():
        other = getattr(second.diagnostics, name)
        assert (value is None) == (other is None)
        if value is not None:
            torch.testing.assert_close(value, other, rtol=tolerance, atol=tolerance, equal_nan=True)
