"""Posteriors of node GPs, a batch of V nodes at a time.

Every posterior predicts g⋆ = f⋆ − μ⋆ with a mean that is linear in its `weights`, and a variance that needs `factors`:
matrices that are computed on demand, kept where memory allows, and never saved. S is the number of draws (chains ×
kept sweeps; one for variational posteriors), T the number of new points.

    DensePosterior    mean⋆ = k⋆ᵀ α       var⋆ = k⋆⋆ − ‖L⁻¹ Ω^½ k⋆‖²              L Lᵀ = I + Ω^½ K Ω^½
    LinearPosterior   mean⋆ = φ⋆ᵀ t       var⋆ = ‖L⁻¹ φ⋆‖²                        L Lᵀ = I + Φᵀ Ω Φ
    SparsePosterior   mean⋆ = k⋆ᵀ L_m⁻ᵀ t var⋆ = k⋆⋆ − ‖a⋆‖² + ‖L⁻¹ a⋆‖²          a⋆ = L_m⁻¹ k_m⋆, L Lᵀ = B
    SitesPosterior    the same, with B = I + Aᵀ Ω A from the points, which stay
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from gptree.inference.grams import Grams
from gptree.inference.nodes import NodeBatch
from gptree.maths.conditional import ITERATIVE_ORDER, FunctionSpace, Space, WeightSpace
from gptree.maths.linalg import cholesky, covariance_root, triangular_inverse

#: Up to this order the inverse of a factor is formed: a product with it is several times faster than solving with many
#: small triangular matrices.
EXPLICIT_ORDER = 192
#: From this order on the inverse of a factor is formed by products.
PRODUCT_ORDER = 112

Factoriser = Callable[[slice], Tensor]
"""The factors of some draws of a posterior; what all draws share is computed once."""


@dataclass(frozen=True)
class DensePosterior:
    """The posterior of nodes in terms of their Gram matrices.

    Attributes
    ----------
    nodes : int64 tensor (V,)
    rows : int64 tensor (V, N)
        Rows of the training features.
    omega : tensor (S, V, N)
        ω, 0 on padding.
    weights : tensor (S, V, N)
        α: mean⋆ = k(x⋆, X[rows]) α.
    """

    nodes: Tensor
    rows: Tensor
    omega: Tensor
    weights: Tensor

    kind: ClassVar[str] = "dense"

    @property
    def sites(self) -> Tensor:
        """ω of the factors, (S, V, N)."""
        return self.omega

    def factoriser(self, grams: Grams) -> Factoriser:
        space, sites = FunctionSpace(grams.block(self.nodes, self.rows, self.rows)), self.sites
        if space.order > EXPLICIT_ORDER:
            return lambda draws: space.factor(sites[draws])

        def explicit(draws: slice) -> Tensor:
            # R = L⁻¹ Ω^½, nodes first in memory: one product with k⋆ then serves all draws of a node
            L, root = space.factor(sites[draws]), sites[draws].sqrt()
            R = torch.linalg.solve_triangular(L, torch.diag_embed(root), upper=False)
            return R.transpose(0, 1).contiguous().transpose(0, 1)

        return explicit

    def variance(self, factors: Tensor, cross: Tensor, prior: Tensor, draws: slice = slice(None)) -> Tensor:
        """(S, V, T) from k(X[rows], x⋆) (V, N, T) and k(x⋆, x⋆) (V, T)."""
        nodes, size, points = cross.shape
        if size <= EXPLICIT_ORDER:
            stacked = factors.transpose(0, 1).reshape(nodes, -1, size) @ cross
            explained = stacked.square_().view(nodes, -1, size, points).sum(2).transpose(0, 1)
        else:  # one draw at a time keeps the right-hand side in the processor's cache
            rows = cross.mT.contiguous()
            omega = self.sites[draws].sqrt().unsqueeze(-2)
            explained = torch.stack([_row_norms(L, o * rows) for L, o in zip(factors, omega, strict=True)])
        # paper (12)
        return prior - explained

    def variance_at_rows(self, K: Tensor, draws: slice = slice(None)) -> Tensor:
        """(S, V, N) at its own points, from k(X[rows], X[rows]) (V, N, N); 0 on padding."""
        # Σ = Ω^−½ (I − B⁻¹) Ω^−½ with B = I + Ω^½ K Ω^½ = L Lᵀ
        sites = self.sites[draws]
        L = FunctionSpace(K).factor(sites)
        if len(sites) == 1 and K.shape[-1] >= PRODUCT_ORDER:
            inverse = triangular_inverse(L)
        else:
            identity = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device).expand(*sites.shape, -1)
            inverse = torch.linalg.solve_triangular(L, identity, upper=False)
        explained = 1.0 - inverse.square_().sum(-2)
        return explained / sites.clamp_min(torch.finfo(K.dtype).tiny)

    def covariance(self, factors: Tensor, cross: Tensor, prior: Tensor) -> Tensor:
        """(S, V, T, T) from k(X[rows], x⋆) (V, N, T) and k(x⋆, x⋆) (V, T, T), as `variance`."""
        if cross.shape[1] <= EXPLICIT_ORDER:
            half = factors @ cross
        else:
            half = torch.linalg.solve_triangular(factors, self.sites.sqrt().unsqueeze(-1) * cross, upper=False)
        return prior - half.mT @ half

    @property
    def factors(self) -> int:
        """How many draws have factors of their own."""
        return len(self.sites)

    @property
    def factor_numbers(self) -> int:
        """How many numbers the factors of one draw hold."""
        return self.rows.shape[0] * self.rows.shape[1] ** 2


@dataclass(frozen=True)
class PooledDensePosterior(DensePosterior):
    """A `DensePosterior` whose draws share one factor, at their mean ω: they differ in their means alone."""

    kind: ClassVar[str] = "pooled dense"

    @property
    def sites(self) -> Tensor:
        """(1, V, N)."""
        return self.omega.mean(0, keepdim=True)


@dataclass(frozen=True)
class LinearPosterior:
    """The posterior of nodes with a linear kernel, in terms of its features.

    Attributes
    ----------
    nodes, rows, omega : as in `DensePosterior`
    weights : tensor (S, V, d)
        t: mean⋆ = φ(x⋆) t.
    b : tensor (V, N) or None
        Likelihood weights of the points, 0 on padding; None in files of versions before 7.
    """

    nodes: Tensor
    rows: Tensor
    omega: Tensor
    weights: Tensor
    b: Tensor | None = None

    kind: ClassVar[str] = "linear"

    @property
    def sites(self) -> Tensor:
        return self.omega

    def factoriser(self, grams: Grams) -> Factoriser:
        assert grams.features is not None
        space, sites = WeightSpace(grams.features[self.rows]), self.sites
        return lambda draws: space.factor(sites[draws])

    def variance(self, factors: Tensor, cross: Tensor, prior: Tensor, draws: slice = slice(None)) -> Tensor:
        """(S, V, T) from φ(x⋆)ᵀ (1, d, T)."""
        rows = cross.mT.contiguous().expand(len(self.nodes), -1, -1)
        # paper (12)
        return torch.stack([_row_norms(L, rows) for L in factors])

    def covariance(self, factors: Tensor, cross: Tensor, prior: Tensor) -> Tensor:
        """(S, V, T, T) from φ(x⋆)ᵀ (1, d, T)."""
        half = torch.linalg.solve_triangular(factors, cross.expand(*factors.shape[:2], -1, -1), upper=False)
        return half.mT @ half

    @property
    def factors(self) -> int:
        return len(self.sites)

    @property
    def factor_numbers(self) -> int:
        return self.rows.shape[0] * self.weights.shape[-1] ** 2


@dataclass(frozen=True)
class PooledLinearPosterior(LinearPosterior):
    """A `LinearPosterior` whose draws share one factor, at their mean ω."""

    kind: ClassVar[str] = "pooled linear"

    @property
    def sites(self) -> Tensor:
        """(1, V, N)."""
        return self.omega.mean(0, keepdim=True)


@dataclass(frozen=True)
class InducingPosterior:
    """The posterior of nodes with inducing points.

    Attributes
    ----------
    nodes : int64 tensor (V,)
    rows : int64 tensor (V, M)
        Rows of the inducing points.
    weights : tensor (1, V, M)
        L_m⁻ᵀ t: mean⋆ = k(x⋆, X[rows]) L_m⁻ᵀ t.
    """

    nodes: Tensor
    rows: Tensor
    weights: Tensor

    kind: ClassVar[str]

    def precisions(self, grams: Grams, root: Tensor) -> Tensor:
        """B = I + Aᵀ Ω A (V, M, M), given L_m; only the lower triangle counts."""
        raise NotImplementedError

    def factoriser(self, grams: Grams) -> Factoriser:
        root, _ = covariance_root(grams.block(self.nodes, self.rows, self.rows))
        return lambda draws: torch.stack([root, cholesky(self.precisions(grams, root))])

    def variance(self, factors: Tensor, cross: Tensor, prior: Tensor, draws: slice = slice(None)) -> Tensor:
        root, factor = factors
        a = torch.linalg.solve_triangular(root.mT, cross.mT.contiguous(), upper=True, left=False)
        # paper (14)
        explained = a.square().sum(-1) - _row_norms(factor, a)
        return (prior - explained).unsqueeze(0)

    def covariance(self, factors: Tensor, cross: Tensor, prior: Tensor) -> Tensor:
        root, factor = factors
        a = torch.linalg.solve_triangular(root, cross, upper=False)
        half = torch.linalg.solve_triangular(factor, a, upper=False)
        return (prior - a.mT @ a + half.mT @ half).unsqueeze(0)

    @property
    def factors(self) -> int:
        return 1

    @property
    def factor_numbers(self) -> int:
        return 2 * self.rows.shape[0] * self.rows.shape[1] ** 2


@dataclass(frozen=True)
class SparsePosterior(InducingPosterior):
    """The posterior of nodes with inducing points that needs no other rows.

    Attributes
    ----------
    nodes, rows, weights : as in `InducingPosterior`
    precision : tensor (V, M, M)
        B, the precision of the whitened inducing values: a parameter, so it is saved.
    """

    precision: Tensor

    kind: ClassVar[str] = "sparse"

    def precisions(self, grams: Grams, root: Tensor) -> Tensor:
        return self.precision


@dataclass(frozen=True)
class SitesPosterior(InducingPosterior):
    """The posterior of nodes with inducing points in terms of their points: N numbers a node in the place of M².

    Attributes
    ----------
    nodes, rows, weights : as in `InducingPosterior`
    points : int64 tensor (V, N)
        Rows of the points.
    omega : tensor (V, N)
        ω, 0 on padding.
    b : tensor (V, N) or None
        Likelihood weights of the points, 0 on padding; None is 1.
    """

    points: Tensor
    omega: Tensor
    b: Tensor | None = None

    kind: ClassVar[str] = "sites"

    def precisions(self, grams: Grams, root: Tensor) -> Tensor:
        B = []
        for v, n in enumerate((self.omega > 0).sum(1).tolist()):  # padding stands last
            one = slice(v, v + 1)
            cross = grams.block(self.nodes[one], self.rows[one], self.points[one, :n])
            A = torch.linalg.solve_triangular(root[one], cross, upper=False).mT
            B.append(WeightSpace(A).precision(self.omega[None, one, :n])[0])
        return torch.cat(B)

    def precisions_at(self, points: Tensor, A: Tensor) -> Tensor:
        """The same from A = L_m⁻¹ k(X[rows], X[points]) (V, M, P) at points (V, P) that hold all of each node."""
        return WeightSpace(A.mT).precision(self._at(points, self.omega)[None])[0]

    def likelihood_weights_at(self, points: Tensor) -> Tensor:
        """b at points (V, P); 0 at those that were not in a node's fit."""
        return self._at(points, (self.omega > 0).to(self.omega) if self.b is None else self.b)

    def _at(self, points: Tensor, values: Tensor) -> Tensor:
        """Numbers (V, N) of the points at others (V, P), 0 where these are none of them."""
        table = values.new_zeros(len(points), 1 + max(int(points.max()), int(self.points.max())))
        return table.scatter_add_(1, self.points, values).gather(1, points)


NodePosterior = DensePosterior | LinearPosterior | SparsePosterior | SitesPosterior


def select(posterior: NodePosterior, chosen: Tensor) -> NodePosterior:
    """Some of the nodes of a posterior, by their place in it.

    Parameters
    ----------
    posterior : NodePosterior
    chosen : int64 tensor
        Places among its V nodes.

    Returns
    -------
    NodePosterior
    """
    parts: dict[str, Any] = {
        "nodes": posterior.nodes[chosen],
        "rows": posterior.rows[chosen],
        "weights": posterior.weights[:, chosen],
    }
    if isinstance(posterior, SparsePosterior):
        return replace(posterior, **parts, precision=posterior.precision[chosen])
    if not isinstance(posterior, DensePosterior):
        parts["b"] = None if posterior.b is None else posterior.b[chosen]
    if isinstance(posterior, SitesPosterior):
        return replace(posterior, **parts, points=posterior.points[chosen], omega=posterior.omega[chosen])
    return replace(posterior, **parts, omega=posterior.omega[:, chosen])


def on_rows(posterior: NodePosterior, rows: Tensor) -> NodePosterior:
    """A posterior over some rows of a feature matrix as one over the matrix, by the numbers of those rows.

    Parameters
    ----------
    posterior : NodePosterior
    rows : int64 tensor
    """
    if isinstance(posterior, SitesPosterior):
        return replace(posterior, rows=rows[posterior.rows], points=rows[posterior.points])
    return replace(posterior, rows=rows[posterior.rows])


def _row_norms(L: Tensor, rows: Tensor) -> Tensor:
    """‖L⁻¹ r‖² for every row r of rows (..., T, k); in this layout the solver makes no copies."""
    return torch.linalg.solve_triangular(L.mT, rows, upper=True, left=False).square_().sum(-1)


def draw_chunks(space: Space, draws: int, work: int) -> list[slice]:
    """Slices over the draws such that one slice's matrices (B, its factor, a copy) hold at most `work` numbers."""
    nodes = (space.K if isinstance(space, FunctionSpace) else space.A).shape[0]
    step = max(1, work // (3 * nodes * space.order**2))
    return [slice(start, min(start + step, draws)) for start in range(0, draws, step)]


def make_posterior(
    batch: NodeBatch,
    space: Space,
    omega: Tensor,
    work: int,
    *,
    kappa: Tensor | None = None,
    root: Tensor | None = None,
    L: Tensor | None = None,
    pooled: bool = False,
) -> NodePosterior:
    """The posterior of f under the prior N(μ, K) and one Gaussian site a point, exp(κ_i f_i − ½ ω_i f_i²).

        f = μ + g,    g ~ N(Σ κ̃, Σ),    Σ = (K⁻¹ + Ω)⁻¹,    κ̃ = κ − ω μ

    Give κ and ω as they stand in the site: ω μ is taken from κ here, not by the caller. With Pólya-Gamma variables
    κ = b (y − ½), which is the default. A method that expands log p(y | f) around f̂ instead has, with
    W = −∂² log p(y | f̂), the sites ω = W and κ = W f̂ + ∂ log p(y | f̂).

    Parameters
    ----------
    batch : NodeBatch
        μ, and κ where none is given, are those of the batch.
    space : FunctionSpace or WeightSpace
        The first thing that ``grams.space(batch)`` returns.
    omega : tensor (S, V, N)
        S draws of ω, or S = 1; not negative, and 0 on padding.
    work : int
        Numbers that may be held at a time, roughly: the draws are worked on a few at a time.
    kappa : tensor (S or 1, V, N) or (V, N), optional
        κ of the sites, 0 on padding. Left-out predictions at the training points (`predict_open`, `novelty_score`)
        know the sites of dense nodes; other nodes' are taken to be κ = b (y − ½).
    root : tensor (V, M, M), optional
        The second thing that ``grams.space(batch)`` returns: the factor of K_mm where there are inducing points. Then
        S = 1.
    L : tensor (S, V, r, r), optional
        ``space.factor(omega)``, if it is there already.
    pooled : bool
        Whether the draws share one factor, at their mean ω, for their variances.

    Returns
    -------
    DensePosterior, LinearPosterior, SparsePosterior or SitesPosterior
    """
    shifted = (batch.kappa if kappa is None else kappa) - omega * batch.mu
    if L is not None:
        weights = space.weights(L, omega, shifted)
    elif root is None and space.order >= ITERATIVE_ORDER:
        weights = space.weights(None, omega, shifted)
    else:
        chunks = draw_chunks(space, len(omega), work)
        weights = torch.cat([space.weights(space.factor(omega[d]), omega[d], shifted[d]) for d in chunks])
    if root is None and isinstance(space, FunctionSpace):
        return (PooledDensePosterior if pooled else DensePosterior)(batch.nodes, batch.rows, omega, weights)
    if root is None:
        return (PooledLinearPosterior if pooled else LinearPosterior)(batch.nodes, batch.rows, omega, weights, batch.b)
    assert batch.inducing is not None
    assert isinstance(space, WeightSpace)
    # paper (14)
    weights = torch.linalg.solve_triangular(root.mT, weights[0].unsqueeze(-1), upper=True).squeeze(-1).unsqueeze(0)
    if batch.self_contained:
        return SparsePosterior(batch.nodes, batch.inducing, weights, space.precision(omega)[0])
    b = None if bool((batch.b[batch.b > 0] == 1.0).all()) else batch.b
    return SitesPosterior(batch.nodes, batch.inducing, weights, batch.rows, omega[0], b)
