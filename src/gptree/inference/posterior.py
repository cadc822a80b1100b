"""Posteriors of node GPs, a batch of V nodes at a time, behind one interface.

Every posterior predicts g⋆ = f⋆ − μ⋆ with a mean that is linear in its `weights`, and a variance that needs `factors`:
matrices that are computed on demand, kept where memory allows, and never saved. S is the number of draws (chains ×
kept sweeps; one for variational posteriors), T the number of new points.

    DensePosterior    mean⋆ = k⋆ᵀ α       var⋆ = k⋆⋆ − ‖L⁻¹ Ω^½ k⋆‖²              L Lᵀ = I + Ω^½ K Ω^½
    LinearPosterior   mean⋆ = φ⋆ᵀ t       var⋆ = ‖L⁻¹ φ⋆‖²                        L Lᵀ = I + Φᵀ Ω Φ
    SparsePosterior   mean⋆ = k⋆ᵀ L_m⁻ᵀ t var⋆ = k⋆⋆ − ‖a⋆‖² + ‖L⁻¹ a⋆‖²          a⋆ = L_m⁻¹ k_m⋆, L Lᵀ = B
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from gptree.inference.grams import Grams
from gptree.inference.problems import NodeBatch
from gptree.maths.conditional import ITERATIVE_ORDER, FunctionSpace, Space, WeightSpace
from gptree.maths.linalg import cholesky, covariance_root


@dataclass(frozen=True)
class DensePosterior:
    nodes: Tensor
    """(V,) node numbers."""
    rows: Tensor
    """(V, N) rows of the training features."""
    omega: Tensor
    """(S, V, N), 0 on padding."""
    weights: Tensor
    """α (S, V, N): mean⋆ = k(x⋆, X[rows]) α."""

    kind: ClassVar[str] = "dense"

    def factors(self, grams: Grams, draws: slice = slice(None)) -> Tensor:
        return FunctionSpace(grams.block(self.nodes, self.rows, self.rows)).factor(self.omega[draws])

    def variance(self, L: Tensor, cross: Tensor, prior: Tensor, draws: slice = slice(None)) -> Tensor:
        """(S, V, T) from k(X[rows], x⋆) (V, N, T) and k(x⋆, x⋆) (V, T)."""
        scaled = self.omega[draws].sqrt().unsqueeze(-1) * cross
        return prior - _column_norms(L, scaled)

    @property
    def factor_numbers(self) -> int:
        """How many numbers the factors of one draw hold."""
        return self.rows.shape[0] * self.rows.shape[1] ** 2


@dataclass(frozen=True)
class LinearPosterior:
    nodes: Tensor
    rows: Tensor
    omega: Tensor
    weights: Tensor
    """t (S, V, d): mean⋆ = φ(x⋆) t."""

    kind: ClassVar[str] = "linear"

    def factors(self, grams: Grams, draws: slice = slice(None)) -> Tensor:
        assert grams.features is not None
        return WeightSpace(grams.features[self.rows]).factor(self.omega[draws])

    def variance(self, L: Tensor, cross: Tensor, prior: Tensor, draws: slice = slice(None)) -> Tensor:
        """(S, V, T) from φ(x⋆)ᵀ (1, d, T)."""
        return _column_norms(L, cross.expand(*L.shape[:2], *cross.shape[1:]))

    @property
    def factor_numbers(self) -> int:
        return self.rows.shape[0] * self.weights.shape[-1] ** 2


@dataclass(frozen=True)
class SparsePosterior:
    nodes: Tensor
    rows: Tensor
    """(V, M) rows of the inducing points."""
    precision: Tensor
    """B = I + A Ω Aᵀ (V, M, M), the precision of the whitened inducing values: a parameter, so it is saved. Only the
    lower triangle counts."""
    weights: Tensor
    """L_m⁻ᵀ t (1, V, M): mean⋆ = k(x⋆, X[rows]) L_m⁻ᵀ t."""

    kind: ClassVar[str] = "sparse"

    def factors(self, grams: Grams, draws: slice = slice(None)) -> Tensor:
        root, _ = covariance_root(grams.block(self.nodes, self.rows, self.rows))
        return torch.stack([root, cholesky(self.precision)])

    def variance(self, L: Tensor, cross: Tensor, prior: Tensor, draws: slice = slice(None)) -> Tensor:
        root, factor = L
        a = torch.linalg.solve_triangular(root, cross, upper=False)
        explained = a.square().sum(-2) - _column_norms(factor, a)
        return (prior - explained).unsqueeze(0)

    @property
    def factor_numbers(self) -> int:
        return 2 * self.rows.shape[0] * self.rows.shape[1] ** 2


NodePosterior = DensePosterior | LinearPosterior | SparsePosterior


def select(posterior: NodePosterior, chosen: Tensor) -> NodePosterior:
    """Some of the nodes of a posterior, by their place in it."""
    parts = {"nodes": posterior.nodes[chosen], "rows": posterior.rows[chosen], "weights": posterior.weights[:, chosen]}
    if isinstance(posterior, SparsePosterior):
        return replace(posterior, **parts, precision=posterior.precision[chosen])
    return replace(posterior, **parts, omega=posterior.omega[:, chosen])


def _column_norms(L: Tensor, right: Tensor) -> Tensor:
    """‖L⁻¹ r‖² for every column r of right (..., k, T)."""
    return torch.linalg.solve_triangular(L, right, upper=False).square_().sum(-2)


def draw_chunks(space: Space, draws: int, work: int) -> list[slice]:
    """Slices over the draws such that one slice's matrices (B, its factor, a copy) hold at most `work` numbers."""
    nodes = (space.K if isinstance(space, FunctionSpace) else space.A).shape[0]
    step = max(1, work // (3 * nodes * space.order**2))
    return [slice(start, min(start + step, draws)) for start in range(0, draws, step)]


def make_posterior(
    batch: NodeBatch, space: Space, root: Tensor | None, omega: Tensor, work: int, keep_factors: bool
) -> tuple[NodePosterior, Tensor | None]:
    """The posterior given ω (S, V, N), and its factors if they are to be kept."""
    weights: list[Tensor] = []
    kept = omega.new_empty(len(omega), len(batch), space.order, space.order) if keep_factors else None
    iterate = not keep_factors and root is None and space.order >= ITERATIVE_ORDER
    chunks = [slice(None)] if iterate else draw_chunks(space, len(omega), work)
    for draws in chunks:
        L = None if iterate else space.factor(omega[draws])
        weights.append(space.weights(L, omega[draws], batch.kappa - omega[draws] * batch.mu))
        if kept is not None and L is not None:
            kept[draws] = L
    alpha = torch.cat(weights)
    if root is not None:
        assert batch.inducing is not None
        assert isinstance(space, WeightSpace)
        alpha = torch.linalg.solve_triangular(root.mT, alpha[0].unsqueeze(-1), upper=True).squeeze(-1).unsqueeze(0)
        posterior = SparsePosterior(batch.nodes, batch.inducing, space.precision(omega)[0], alpha)
        return posterior, None if kept is None else torch.stack([root, kept[0]])
    family = DensePosterior if isinstance(space, FunctionSpace) else LinearPosterior
    return family(batch.nodes, batch.rows, omega, alpha), kept
