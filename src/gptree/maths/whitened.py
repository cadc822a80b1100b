r"""Expected log-likelihood of binary nodes with whitened inducing points, and its gradients in closed form.

With L Lᵀ = K_mm (+ jitter) and a_i = L⁻¹ k_mi, a node's q(w) = N(m, P⁻¹), m = P⁻¹ η, is kept at the whitened values
w = L⁻¹ u of its inducing points. At the best c_i² = E[f_i²] the rows' part of the bound is

    E = Σ_i κ_i E[f_i] − b_i log(2 cosh(c_i / 2)),
    E[f_i] = μ_i + a_iᵀ m,    c_i² = k_ii − a_iᵀ a_i + a_iᵀ P⁻¹ a_i + E[f_i]².

η and P are what stays fixed while the kernel, the features and the inducing points move. KL(q(w) ‖ N(0, I)) depends on
none of these, so the gradient of the bound is that of E, and it reaches the kernel matrices through a_i alone:

    ∂E/∂a_i = (κ_i − λ_i E[f_i]) m + λ_i (a_i − P⁻¹ a_i),    λ_i = b_i tanh(c_i / 2) / (2 c_i),
    ∂E/∂K_mn = L⁻ᵀ G,    ∂E/∂K_mm = −L⁻ᵀ T L⁻¹,    ∂E/∂k_ii = −½ λ_i,

where the columns of G are ∂E/∂a_i and T is the lower triangle of G Aᵀ with half its diagonal; the second is up to its
antisymmetric part, which no change of K_mm meets. That is the derivative of a Cholesky factor with its one product of
full size gone. L⁻¹ and L_P⁻¹ (L_P L_Pᵀ = P) are formed, as triangular
matrices: on a GPU products with them take a fraction of the time of solving. K_mm and P are never inverted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gptree.maths.cuda import concurrently
from gptree.maths.linalg import (
    semiseparable_sandwich,
    subtract_lower_times,
    subtract_square,
    times_lower,
    times_lower_transposed,
    triangular_inverse,
)
from gptree.maths.polya_gamma import log_2cosh_half, pg_mean

#: Matrices of a larger order are factorised in halves, by products, in which GPUs excel: they have room for one large
#: factorisation at a time, and for many products.
FACTORED_ORDER = 512


@dataclass(frozen=True)
class Whitened:
    """Factors of q(w) = N(m, P⁻¹) and K_mm at V nodes."""

    X: Tensor
    """L⁻¹ (V, M, M), L the root of K_mm with jitter."""
    F: Tensor
    """L_P⁻¹ (V, M, M), L_P the root of P."""
    mean: Tensor
    """m = P⁻¹ η (V, M, 1)."""
    jitter: Tensor
    """One number: the diagonal of K_mm is taken 1 + jitter times."""
    sound: Tensor
    """(V,) whether K_mm and P were factorised; the factors of other nodes are finite, and mean nothing."""

    @classmethod
    def each(
        cls,
        K_mm: Sequence[Tensor],
        jitter: Tensor,
        eta: Sequence[Tensor],
        precision: Sequence[Tensor],
    ) -> list[Whitened]:
        """The factors of several batches of nodes.

        Nothing here waits for a result, so that a GPU never stands still: failure shows in `sound`.

        Parameters
        ----------
        K_mm : sequence of tensors (V, M, M)
        jitter : tensor ()
            Relative to the diagonal of K_mm.
        eta, precision : sequences of tensors (V, M) and (V, M, M)
            η and P.

        Returns
        -------
        list of Whitened
        """
        # paper (5)
        tasks = [*(partial(gram_root_inverse, K, jitter) for K in K_mm), *(partial(root_inverse, P) for P in precision)]
        inverses = concurrently(tasks, jitter.device)
        roots, factors = inverses[: len(K_mm)], inverses[len(K_mm) :]
        return [cls.of(*each, jitter) for each in zip(roots, factors, eta, strict=True)]

    @classmethod
    def of(cls, root: Root, factor: Root, eta: Tensor, jitter: Tensor) -> Whitened:
        """From the inverse roots of K_mm with jitter, and of P."""
        (X, sound), (F, sound_P) = root, factor
        return cls(X, F, F.mT @ (F @ eta.unsqueeze(-1)), jitter, sound & sound_P)

    def rows(self, K_mn: Tensor, k_nn: Tensor) -> WhitenedRows:
        """Rows with k_mi as columns of K_mn (V, M, N) and k_ii (V, N)."""
        # paper (6)
        A = self.X @ K_mn
        C = self.F @ A
        # paper (14)
        variance = (k_nn - A.square().sum(-2)).clamp_min_(0.0) + C.square().sum(-2)
        return WhitenedRows(A, C, (self.mean.mT @ A).squeeze(-2), variance)


Root = tuple[Tensor, Tensor]
"""L⁻¹ (V, M, M), and whether there is one (V,)."""


def gram_root_inverse(K_mm: Tensor, jitter: Tensor) -> Root:
    """Of K_mm (V, M, M) whose diagonal is taken 1 + jitter times."""
    K = K_mm.clone()
    K.diagonal(dim1=-2, dim2=-1).mul_(1.0 + jitter)
    return _root_inverse(K)


def root_inverse(matrix: Tensor) -> Root:
    """L⁻¹ with L Lᵀ = matrix (V, M, M), and whether there is one (V,); where there is none, something finite."""
    return _root_inverse(matrix.clone())


def _root_inverse(matrix: Tensor) -> Root:
    X = torch.zeros_like(matrix)
    failures = _write_root_inverse(matrix, X)
    diagonal = X.diagonal(dim1=-2, dim2=-1)
    failed = torch.stack(failures).any(0) if len(failures) > 1 else failures[0].bool()
    failed = failed | ~((diagonal > 0) & (diagonal < torch.inf)).all(-1)
    X.masked_fill_(failed[:, None, None], 0.0)
    diagonal.add_(failed[:, None])
    return X, ~failed


def _write_root_inverse(matrix: Tensor, X: Tensor) -> list[Tensor]:
    """Write L⁻¹ to the lower triangle of X, and to the matrix what is left of it.

    Returns, for parts of the matrix, (V,) numbers that are 0 where the part was factorised. Where one was not, X holds
    anything.
    """
    n = matrix.shape[-1]
    if n > FACTORED_ORDER:
        # K = [[K₁₁, ·], [K₂₁, K₂₂]]: L₂₁ = K₂₁ X₁₁ᵀ, and L₂₂ is the root of K₂₂ − L₂₁ L₂₁ᵀ
        a, b = slice(0, n // 2), slice(n // 2, n)
        first = _write_root_inverse(matrix[:, a, a], X[:, a, a])
        below = times_lower_transposed(matrix[:, b, a], X[:, a, a])
        subtract_square(matrix[:, b, b], below)
        second = _write_root_inverse(matrix[:, b, b], X[:, b, b])
        subtract_lower_times(X[:, b, a], X[:, b, b], times_lower(below, X[:, a, a]))
        return first + second
    root, info = torch.linalg.cholesky_ex(matrix)
    triangular_inverse(root, out=X)
    return [info]


@dataclass(frozen=True)
class WhitenedRows:
    """N rows at V nodes."""

    A: Tensor
    """a_i as columns (V, M, N)."""
    C: Tensor
    """L_P⁻¹ a_i likewise."""
    mean: Tensor
    """a_iᵀ m (V, N)."""
    variance: Tensor
    """var(f_i) (V, N)."""

    def sums(self, lam: Tensor, shifted: Tensor) -> tuple[Tensor, Tensor]:
        """The natural statistics Σ κ̃ a (V, M) and Σ λ a aᵀ (V, M, M), κ̃ = κ − λ μ."""
        # paper (17)
        return (self.A @ shifted.unsqueeze(-1)).squeeze(-1), (self.A * lam.unsqueeze(-2)) @ self.A.mT

    def gradients(self, q: Whitened, lam: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """∂E/∂K_mm (V, M, M) and ∂E/∂K_mn (V, M, N), from λ and ∂E/∂E[f].

        The former is not symmetric: of a symmetric change of K_mm, as is every one, both halves say the same.
        """
        # G = m (κ − λ E[f])ᵀ + (A − P⁻¹ A) Λ
        G = torch.addcmul(q.mean * slope.unsqueeze(-2), self.A - q.F.mT @ self.C, lam.unsqueeze(-2))
        to_K_mm = semiseparable_sandwich(q.X, -G, self.A)
        to_K_mm.diagonal(dim1=-2, dim2=-1).mul_(1.0 + q.jitter)
        return to_K_mm, q.X.mT @ G


@dataclass(frozen=True)
class Likelihood:
    """The expected log-likelihood given E[f_i] and var(f_i), and its derivatives; elementwise, so of any shape."""

    mean: Tensor
    """E[f]."""
    value: Tensor
    """κ E[f] − b log(2 cosh(c / 2))."""
    lam: Tensor
    """λ = E[ω]; ∂E/∂k_ii is −½ λ."""
    slope: Tensor
    """∂E/∂E[f] = κ − λ E[f]."""

    @classmethod
    def of(cls, mean: Tensor, variance: Tensor, kappa: Tensor, b: Tensor) -> Likelihood:
        # paper (16)
        c = (variance + mean.square()).sqrt()
        lam = pg_mean(c, b)
        # paper (S2)
        return cls(mean, kappa * mean - b * log_2cosh_half(c), lam, kappa - lam * mean)


def whitened_kl(q: Whitened) -> Tensor:
    """KL(q(w) ‖ N(0, I)) (V,): ½ (tr P⁻¹ + mᵀ m − M + log |P|)."""
    *_, order = q.F.shape
    log_det = -2.0 * q.F.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    # paper (S4)
    return 0.5 * (q.F.square().sum((-2, -1)) + q.mean.square().sum((-2, -1)) - order + log_det)
