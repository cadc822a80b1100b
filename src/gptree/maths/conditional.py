"""The conditional p(f | ω, y) of a binary Gaussian process given Pólya-Gamma variables, and its bounds.

Notation. Latent f = μ + g with prior mean μ and g ~ N(0, K). With a likelihood weight b at each point,
κ = b (y − ½) and Ω = diag(ω), the augmented likelihood is Π 2^−b exp(κ f − ½ ω f²), Gaussian in f. In terms of g the
prior mean only moves κ:

    κ̃ = κ − ω μ,    Σ = (K⁻¹ + Ω)⁻¹,    g | ω, y ~ N(Σ κ̃, Σ)

Two forms, with the same methods. Neither inverts K, both factorise a matrix I + (positive semi-definite), so no jitter
is needed, and ω = 0 is allowed: a padded point has b = κ = ω = 0 and changes nothing.

    FunctionSpace   K given,                    B = I + Ω^½ K Ω^½   (n × n)
    WeightSpace     K = A Aᵀ (+ diag Q) given,  B = I + Aᵀ Ω A      (r × r)

`WeightSpace` is exact for a linear kernel (A = scaled features, Q = 0); for inducing points it is the whitened sparse
form (A = K_nm L⁻ᵀ with L Lᵀ = K_mm), where Q = diag(K_nn − A Aᵀ) is what the inducing points cannot explain.

Shapes: S draws (chains) × V nodes × n points. `omega` is (S, V, n), or (1, V, n) where all draws share it; `K` is
(V, n, n), `A` is (V, n, r); κ, b and μ are (V, n).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gptree.maths.linalg import cholesky, conjugate_gradients, covariance_root
from gptree.maths.polya_gamma import log_cosh, pg_kl, pg_mean

#: From this order on, B⁻¹ times a vector costs less by conjugate gradients than a factor of B: all draws share the
#: products with K, and few eigenvalues of B are far from 1.
ITERATIVE_ORDER = 256
#: Lower triangles are computed so many columns at a time.
TRIANGLE_STEP = {"cpu": 128, "cuda": 512}
#: Points of a node that are worked on at a time: on a processor, what its cache holds.
POINTS, POINTS_CUDA = 2**10, 2**20


def points_at_a_time(like: Tensor) -> int:
    """How many points of a node are worked on at a time, on the device of a tensor."""
    return POINTS_CUDA if like.is_cuda else POINTS


def _solve(space: Space, L: Tensor | None, omega: Tensor, rhs: Tensor) -> Tensor:
    """B⁻¹ rhs for right-hand sides (S, V, k), by factors L (S or 1, V, k, k) where given, else by iteration."""
    if L is None:
        x, arrived = conjugate_gradients(lambda v: space.apply(omega, v), rhs)
        if arrived:
            return x
        each = zip(omega.expand(len(rhs), -1, -1), rhs, strict=True)
        return torch.cat([_solve(space, space.factor(o[None]), o[None], r[None]) for o, r in each])
    if L.shape[0] == 1:
        return torch.cholesky_solve(rhs.permute(1, 2, 0), L[0]).permute(2, 0, 1)
    return torch.cholesky_solve(rhs.unsqueeze(-1), L).squeeze(-1)


def _times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """matrix (V, m, k) times vectors (S, V, k) -> (S, V, m), as one batched matrix product."""
    return (vectors.transpose(0, 1) @ matrix.mT).transpose(0, 1)


def _log_determinant(factor: Tensor) -> Tensor:
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


@dataclass(frozen=True)
class FunctionSpace:
    """The conditional in terms of the Gram matrix K (V, n, n). Weights α: g = K α.

    Attributes
    ----------
    K : tensor (V, n, n)
    features : tensor or None
        Φ (V, n, d) with K = Φ Φᵀ where the kernel has one; it spares prior draws a root of K.
    """

    K: Tensor
    features: Tensor | None = None

    residual = 0.0

    @property
    def order(self) -> int:
        """Size of the matrix that is factorised."""
        *_, n = self.K.shape
        return n

    @cached_property
    def root(self) -> Tensor:
        # R Rᵀ = K, (V, n, ·): the one place where K itself is factorised
        return covariance_root(self.K)[0] if self.features is None else self.features

    @property
    def noise_widths(self) -> tuple[int | None, int | None]:
        """Standard normals that one draw takes: for g₀ ~ N(0, K) and for ε; None means one a point."""
        return None if self.features is None else self.features.shape[-1], None

    def factor(self, omega: Tensor) -> Tensor:
        # B = I + Ω^½ K Ω^½ = L Lᵀ
        s = omega.sqrt()
        B = (s.unsqueeze(-1) * self.K).mul_(s.unsqueeze(-2))
        B.diagonal(dim1=-2, dim2=-1).add_(1.0)
        return cholesky(B)

    def apply(self, omega: Tensor, vectors: Tensor) -> Tensor:
        """B times vectors (S, V, n)."""
        s = omega.sqrt()
        return vectors + s * _times(self.K, s * vectors)

    def weights(self, L: Tensor | None, omega: Tensor, kappa: Tensor) -> Tensor:
        # paper (12): α = κ̃ − Ω^½ B⁻¹ Ω^½ K κ̃
        s = omega.sqrt()
        kappa = kappa.expand(omega.shape)
        return kappa - s * _solve(self, L, omega, s * _times(self.K, kappa))

    def mean(self, weights: Tensor) -> Tensor:
        # E[g] = K α at the training points
        return _times(self.K, weights)

    def squared_norm(self, weights: Tensor) -> Tensor:
        """gᵀ K⁻¹ g of g = K α, (S, V)."""
        return (weights * self.mean(weights)).sum(-1)

    def variance(self, L: Tensor, omega: Tensor) -> Tensor:
        # paper (12): diag Σ = diag K − colsum (L⁻¹ Ω^½ K)²
        V = torch.linalg.solve_triangular(L, omega.sqrt().unsqueeze(-1) * self.K, upper=False)
        return (self.K.diagonal(dim1=-2, dim2=-1) - V.square_().sum(-2)).clamp_min(0.0)

    def prior_draw(self, z: Tensor) -> Tensor:
        # g₀ = R z ~ N(0, K)
        return _times(self.root, z)

    def draw(self, L: Tensor | None, omega: Tensor, kappa: Tensor, z: Tensor, epsilon: Tensor) -> Tensor:
        # Matheron's rule, without division:
        # paper (4): g = g₀ + K (κ̃ − Ω^½ B⁻¹ (Ω^½ (K κ̃ + g₀) + ε))
        s = omega.sqrt()
        prior = self.prior_draw(z)
        kappa = kappa.expand(omega.shape)
        correction = _solve(self, L, omega, s * (_times(self.K, kappa) + prior) + epsilon)
        return prior + _times(self.K, kappa - s * correction)


@dataclass(frozen=True)
class WeightSpace:
    """The conditional in terms of features A (V, n, r) with K = A Aᵀ + diag(residual). Weights t: g = A t.

    Attributes
    ----------
    A : tensor (V, n, r)
    residual : tensor (V, n) or float
    """

    A: Tensor
    residual: Tensor | float = 0.0

    @property
    def order(self) -> int:
        return self.A.shape[-1]

    @property
    def noise_widths(self) -> tuple[int | None, int | None]:
        return self.order, None

    @classmethod
    def from_inducing(cls, K_mm: Tensor, K_nm: Tensor, k_nn: Tensor) -> tuple[WeightSpace, Tensor, Tensor]:
        """The whitened sparse form.

        Parameters
        ----------
        K_mm, K_nm : tensors (V, m, m) and (V, n, m)
        k_nn : tensor (V, n)
            Prior variances.

        Returns
        -------
        WeightSpace, and L (V, m, m) with L Lᵀ = K_mm, and the jitter (V,) that L needed.
        """
        # paper (5)
        L, jitter = covariance_root(K_mm)
        # paper (6)
        pieces = K_nm.split(points_at_a_time(K_nm), 1)
        A = torch.cat([torch.linalg.solve_triangular(L.mT, K, upper=True, left=False) for K in pieces], 1)
        explained = torch.cat([a.square().sum(-1) for a in A.split(points_at_a_time(A), 1)], 1)
        return cls(A, (k_nn - explained).clamp_min(0.0)), L, jitter

    def factor(self, omega: Tensor) -> Tensor:
        return cholesky(self.precision(omega))

    def precision(self, omega: Tensor) -> Tensor:
        """B = I + Aᵀ Ω A, the posterior precision of the weights; its lower triangle, as far as blocks allow."""
        if torch.is_grad_enabled():  # the derivative of a factor takes both triangles
            B = self.A.mT @ (omega.unsqueeze(-1) * self.A)
        else:
            B = omega.new_zeros(*omega.shape[:-1], self.order, self.order)
            step, points = TRIANGLE_STEP["cuda" if B.is_cuda else "cpu"], points_at_a_time(B)
            for A, each in zip(self.A.split(points, 1), omega.split(points, -1), strict=True):
                weighted = each.unsqueeze(-1) * A
                for start in range(0, self.order, step):
                    columns = slice(start, start + step)
                    B[..., start:, columns] += A[..., start:].mT @ weighted[..., columns]
        B.diagonal(dim1=-2, dim2=-1).add_(1.0)
        return B

    def apply(self, omega: Tensor, vectors: Tensor) -> Tensor:
        """B times vectors (S, V, r)."""
        return vectors + _times(self.A.mT, omega * _times(self.A, vectors))

    def weights(self, L: Tensor | None, omega: Tensor, kappa: Tensor) -> Tensor:
        # paper (12): t = B⁻¹ Aᵀ κ̃
        return _solve(self, L, omega, _times(self.A.mT, kappa.expand(omega.shape)))

    def mean(self, weights: Tensor) -> Tensor:
        return _times(self.A, weights)

    def squared_norm(self, weights: Tensor) -> Tensor:
        """gᵀ (A Aᵀ)⁻¹ g of g = A t, (S, V)."""
        return weights.square().sum(-1)

    def variance(self, L: Tensor, omega: Tensor) -> Tensor:
        # paper (12): Q_ii + ‖L⁻¹ a_i‖²
        variances = []
        for A in self.A.split(points_at_a_time(self.A), 1):
            right = A.expand(len(L), *A.shape)
            variances.append(torch.linalg.solve_triangular(L.mT, right, upper=True, left=False).square_().sum(-1))
        return torch.cat(variances, -1) + self.residual

    def prior_draw(self, z: Tensor) -> Tensor:
        return _times(self.A, z)

    def draw(self, L: Tensor | None, omega: Tensor, kappa: Tensor, z: Tensor, epsilon: Tensor) -> Tensor:
        # paper (4)
        # w = B⁻¹ (Aᵀ κ̃ + z + Aᵀ Ω^½ ε), g = A w: the noise on the right has covariance B, so w has B⁻¹; here Q = 0
        right = _times(self.A.mT, kappa + omega.sqrt() * epsilon) + z
        return _times(self.A, _solve(self, L, omega, right))


Space = FunctionSpace | WeightSpace


def log_augmented_marginal(
    space: Space, omega: Tensor, kappa: Tensor, b: Tensor, mu: Tensor, L: Tensor | None = None
) -> Tensor:
    r"""log p(y | ω) = log ∫ Π_i 2^{−b_i} exp(κ_i f_i − ½ ω_i f_i²) N(f | μ, K) df, differentiable in K.

        = −Σ b log 2 + κᵀμ − ½ μᵀΩμ + ½ κ̃ᵀ Σ κ̃ − ½ log |B|

    The residual Q of a sparse space enters as −½ Σ ω_i Q_ii, which makes it a lower bound.

    Parameters
    ----------
    space : FunctionSpace or WeightSpace
    omega : tensor (S, V, n)
    kappa, b, mu : tensors (V, n)
    L : tensor (S, V, r, r), optional
        ``space.factor(omega)``, if it is there already.

    Returns
    -------
    tensor (S, V)
    """
    L = space.factor(omega) if L is None else L
    shifted = kappa - omega * mu
    explained = (shifted * space.mean(space.weights(L, omega, shifted))).sum(-1)
    constant = (kappa * mu - 0.5 * omega * mu.square() - b * torch.log(torch.tensor(2.0, dtype=b.dtype))).sum(-1)
    # paper (10)
    return constant + 0.5 * explained - 0.5 * _log_determinant(L) - 0.5 * (omega * space.residual).sum(-1)


def collapsed_bound(
    space: Space, c: Tensor, omega: Tensor, kappa: Tensor, b: Tensor, mu: Tensor, L: Tensor | None = None
) -> Tensor:
    """The variational bound at q(ω) = PG(b, c) and the q(f) that is best for it.

        log p(y | E ω) − KL(PG(b, c) ‖ PG(b, 0))

    The same function learns kernels and reports convergence. `variational_bound` is the bound at any q(f).

    Parameters
    ----------
    space : FunctionSpace or WeightSpace
    c, omega : tensors (S, V, n)
        ω is the mean of q(ω).
    kappa, b, mu : tensors (V, n)
    L : tensor (S, V, r, r), optional
        ``space.factor(omega)``, if it is there already.

    Returns
    -------
    tensor (S, V)
    """
    # paper (13), (S3)
    return log_augmented_marginal(space, omega, kappa, b, mu, L) - pg_kl(c, b).sum(-1)


def variational_bound(
    space: WeightSpace, m: Tensor, S: Tensor, c: Tensor, kappa: Tensor, b: Tensor, mu: Tensor
) -> Tensor:
    """The variational bound at any q(w) = N(m, S) and q(ω) = PG(b, c), where g = A w + residual and w ~ N(0, I).

    A dense node is `WeightSpace(covariance_root(K)[0])`; with inducing points, u = L w. Differentiable in all but b.

    Parameters
    ----------
    space : WeightSpace
    m, S, c : tensors (D, V, r), (D, V, r, r) and (D, V, n)
        D draws.
    kappa, b, mu : tensors (V, n)

    Returns
    -------
    tensor (D, V)
    """
    # E[f] = μ + A m,  E[f²] = Q + diag(A S Aᵀ) + E[f]²
    mean = mu + _times(space.A, m)
    second = space.residual + ((space.A @ S) * space.A).sum(-1) + mean.square()
    # paper (S2): Σ κ E[f] − ½ λ (E[f²] − c²) − b log(2 cosh(c/2)),  λ = E[ω]
    data = kappa * mean - 0.5 * pg_mean(c, b) * (second - c.square()) - b * (log_cosh(c / 2) + math.log(2))
    # paper (S4): KL(N(m, S) ‖ N(0, I)) = ½ (tr S + ‖m‖² − r − log |S|)
    trace = S.diagonal(dim1=-2, dim2=-1).sum(-1)
    kl = 0.5 * (trace + m.square().sum(-1) - space.order - _log_determinant(cholesky(S)))
    # paper (7), (13), (S1)
    return data.sum(-1) - kl
