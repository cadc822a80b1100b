"""OVE: the one-vs-each composite likelihood with Pólya-Gamma variables (Snell and Zemel, 2021).

Every class has a latent function, f_c ~ GP(0, k), and the likelihood of a label is Π_{c ≠ y} σ(f_y − f_c), a lower
bound of its softmax probability. With ψ = A f, that is ψ_nc = f_y(x_n) − f_c(x_n) for c ≠ y_n, and ω_nc ~ PG(1, 0),

    Π_nc σ(ψ_nc) = E_ω Π_nc ½ exp(½ ψ_nc − ½ ω_nc ψ_nc²).

Hence ω_nc | f ~ PG(1, ψ_nc), and f | ω is Gaussian in all C·N latent values together, with κ = ½ and 𝐊 = I_C ⊗ K:

    Σ = (𝐊⁻¹ + Aᵀ Ω A)⁻¹,    mean Σ Aᵀ κ = 𝐊 α,    α = Aᵀ (κ − Ω^½ B⁻¹ Ω^½ A 𝐊 Aᵀ κ),    B = I + Ω^½ A 𝐊 Aᵀ Ω^½.

A draw is f₀ + 𝐊 Aᵀ (κ − Ω^½ B⁻¹ (Ω^½ A (𝐊 Aᵀ κ + f₀) + ε)), f₀ ~ N(0, 𝐊), ε ~ N(0, I), as at a node of a tree. Arrays
over n and c are (C, N), with ω = κ = 0 at c = y_n, which takes those places out.

B has the order (C − 1)·N, but is never formed. A product with it costs C products with K, so means and draws come by
conjugate gradients. Variances come by elimination: let t_n = f_{y_n}(x_n), the value of each point's own class. Given t
all ψ_c = t − f_c are independent over the classes. With R Rᵀ = [y_n = y_m] K_nm, the prior covariance of t = R u, and
O the points of class c, P = K_·O R_OO⁻ᵀ, K̃ = K − P Pᵀ (the prior of f_c given t), A_c = R − P (P in the columns of O):

    ψ_c = A_c u − g_c,  g_c ~ N(0, K̃),  u ~ N(0, I)
    S_c = Ω_c^½ (I + Ω_c^½ K̃ Ω_c^½)⁻¹ Ω_c^½,    u | ω has the precision Λ = I + Σ_c A_cᵀ S_c A_c,

C matrices of the order N and one more, instead of one of the order C·N: less time by the order of C², less memory by C.

Prediction. As in the authors' experiments, the score of class k is the expected logarithm of its likelihood, the sum
Σ_{c ≠ k} E[log σ(f_k − f_c)] of one-dimensional integrals; "mean" takes log σ at the mean of f_k − f_c. Over the draws
of ω there are two averages. `averaging="probabilities"` normalises the exponentials of the scores draw by draw and
averages those, as all other rivals here do: p is a mixture over the posterior of ω. `averaging="scores"` is that of the
code which the authors published (`set_forward`): it averages the scores and normalises once, so that p is a geometric
mean over the draws, normalised. With one draw the two are the same. That code also hands the variance of f_k − f_c to
the quadrature where it takes a deviation; this is not repeated here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from gptree.inference import Gibbs
from gptree.maths import FunctionSpace, cholesky, covariance_root, sample_pg
from gptree.maths.linalg import conjugate_gradients, triangular_inverse
from gptree.rivals.gibbs.base import SampledRival, prior_draw, run_chains
from gptree.settings import require

#: Conjugate gradients end at this relative residual, or after so many rounds, where elimination takes over.
TOLERANCE, ROUNDS = 1e-9, 10
#: Numbers of the covariances of new points that are held at a time.
HELD = 2**24


@dataclass(frozen=True)
class OneVsEach:
    """All arrays v over classes and points are (S, C, N), zero at the points' own classes."""

    space: FunctionSpace
    y: Tensor
    """Class codes (N,)."""
    classes: int

    @cached_property
    def others(self) -> Tensor:
        """1 where c ≠ y_n, else 0; (C, N)."""
        return (torch.arange(self.classes)[:, None] != self.y).to(torch.float64)

    @property
    def K(self) -> Tensor:
        return self.space.K[0]

    def first_auxiliaries(self, f: Tensor, random: torch.Generator) -> Tensor:
        return self.draw_auxiliaries(f, random)

    def draw_auxiliaries(self, f: Tensor, random: torch.Generator) -> Tensor:
        """ω | f ~ PG(1, ψ)."""
        return sample_pg(self.differences(f), self.others, generator=random)

    def draw_latent(self, omega: Tensor, z: Tensor, epsilon: Tensor) -> Tensor:
        """f | ω, from standard normals: for N(0, K), and one a class and point."""
        prior, kappa = prior_draw(self.space, z), 0.5 * self.others
        s = omega.sqrt()
        correction = self._solve(omega, s * (self.covariance(kappa) + self.differences(prior)) + self.others * epsilon)
        return prior + self.adjoint(kappa - s * correction) @ self.K

    def weights(self, omega: Tensor) -> Tensor:
        """α (S, C, N) with E[f⋆_c | ω] = k(x⋆, X) α_c."""
        kappa = 0.5 * self.others.expand_as(omega)
        s = omega.sqrt()
        return self.adjoint(kappa - s * self._solve(omega, s * self.covariance(kappa)))

    def differences(self, f: Tensor) -> Tensor:
        # A f
        of_true_class = f.gather(-2, self.y.expand_as(f[..., :1, :]))
        return of_true_class - f

    def adjoint(self, v: Tensor) -> Tensor:
        # Aᵀ v
        total = v.sum(-2, keepdim=True)
        return torch.scatter_add(-v, -2, self.y.expand_as(total), total)

    def covariance(self, v: Tensor) -> Tensor:
        # A 𝐊 Aᵀ v
        return self.differences(self.adjoint(v) @ self.K)

    def _solve(self, omega: Tensor, right: Tensor) -> Tensor:
        """B⁻¹ times (S, C, N)."""
        s = omega.sqrt()

        def apply(v: Tensor) -> Tensor:
            v = v.view_as(omega)
            return (v + s * self.covariance(s * v)).flatten(1)

        left = right.flatten(1)
        enough = TOLERANCE * left.norm(dim=1)
        x = torch.zeros_like(left)
        for _ in range(ROUNDS):  # each begins with what the one before has left over
            x += conjugate_gradients(apply, left)[0]
            left = right.flatten(1) - apply(x)
            if bool((left.norm(dim=1) <= enough).all()):
                return x.view_as(omega)
        return torch.stack([Elimination.of(self, o).solve(r) for o, r in zip(omega, right, strict=True)])


@dataclass(frozen=True)
class Elimination:
    """The factors of one draw ω (C, N); see the module for the letters."""

    model: OneVsEach
    root: Tensor
    """Ω^½, (C, N)."""
    R: Tensor
    """(N, N)."""
    L: Tensor
    """L_c L_cᵀ = I + Ω_c^½ K̃ Ω_c^½, (C, N, N)."""
    inverse: Tensor
    """M⁻¹ of the factor M Mᵀ = Λ, (N, N)."""

    @classmethod
    def of(cls, model: OneVsEach, omega: Tensor) -> Elimination:
        K, root = model.K, omega.sqrt()
        R = covariance_root(K * (model.y[:, None] == model.y))[0]
        L = K.new_empty(len(omega), *K.shape).mT  # by columns, as solvers like it
        precision = torch.eye(len(K), dtype=K.dtype)
        for c, s in enumerate(root):
            O = (model.y == c).nonzero()[:, 0]
            P = _projection(R, O, K)
            L[c] = FunctionSpace((K - P @ P.mT)[None]).factor(omega[c, None, None])[0, 0]
            A = R.clone()
            A[:, O] -= P
            W = torch.linalg.solve_triangular(L[c], s[:, None] * A, upper=False)
            precision += W.mT @ W
        return cls(model, root, R, L, triangular_inverse(cholesky(precision)))

    def solve(self, right: Tensor) -> Tensor:
        """B⁻¹ times (C, N): with H_c = I + Ω_c^½ K̃ Ω_c^½, in blocks, it is H⁻¹ − H⁻¹ Ω^½ A Λ⁻¹ Aᵀ Ω^½ H⁻¹."""
        moved = torch.zeros_like(right[0])  # Σ_c A_cᵀ Ω_c^½ H_c⁻¹ r_c
        for c, s in enumerate(self.root):
            O, P = self._members(c)
            v = s * self._solve_class(c, right[c])
            moved += self.R.mT @ v
            moved[O] -= P.mT @ v
        u = self.inverse.mT @ (self.inverse @ moved)
        out = torch.empty_like(right)
        for c, s in enumerate(self.root):
            O, P = self._members(c)
            out[c] = self._solve_class(c, right[c] - s * (self.R @ u - P @ u[O]))
        return out

    def _solve_class(self, c: int, v: Tensor) -> Tensor:
        return torch.cholesky_solve(v[:, None], self.L[c])[:, 0]

    def _members(self, c: int) -> tuple[Tensor, Tensor]:
        """O and P of a class."""
        O = (self.model.y == c).nonzero()[:, 0]
        return O, _projection(self.R, O, self.model.K)

    def difference_variances(self, cross: Tensor, prior: Tensor) -> Tensor:
        """var(f⋆_k − f⋆_c), (T, C, C), from k(X, x⋆) (N, T) and k(x⋆, x⋆) (T,).

        f⋆_c = pᵀ u + g⋆, p = R_OO⁻¹ k_O⋆, where g⋆ has the prior covariance k̃ = k_·⋆ − P p with g_c and is known
        through ψ_c: its variance given u is k⋆⋆ − pᵀp − k̃ᵀ S_c k̃, and it moves with u by A_cᵀ S_c k̃.
        """
        C, N = self.root.shape
        variance_given_u = prior.new_empty(len(prior), C)
        shared = prior.new_empty(len(prior), C, N)  # M⁻¹ times what f⋆_c moves with u
        with_R = self.inverse @ self.R.mT
        for c, s in enumerate(self.root):
            O, P = self._members(c)
            p = _projection(self.R, O, cross.mT).mT
            Y = torch.linalg.solve_triangular(self.L[c], s[:, None] * (cross - P @ p), upper=False)
            variance_given_u[:, c] = prior - p.square().sum(0) - Y.square().sum(0)
            x = s[:, None] * torch.linalg.solve_triangular(self.L[c].mT, Y, upper=True)
            shared[:, c] = (with_R @ x + self.inverse[:, O] @ (p - P.mT @ x)).mT
        covariance = shared @ shared.mT + torch.diag_embed(variance_given_u.clamp_min(0.0))
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        return (variance[..., :, None] + variance[..., None, :] - 2 * covariance).clamp_min_(0.0)


def _projection(R: Tensor, O: Tensor, K: Tensor) -> Tensor:
    """P = K_·O R_OO⁻ᵀ."""
    return torch.linalg.solve_triangular(R[O][:, O].mT, K[:, O], upper=True, left=False)


@dataclass(eq=False, repr=False)
class OneVsEachGP(SampledRival):
    """OVE by Gibbs sampling; see this module's account of the model, and `GibbsRival` for the other parameters.

    Memory is of the order of C·N² numbers, for the factors of one draw at a time; the chains keep S·C·N.

    Parameters
    ----------
    averaging : "probabilities" or "scores"
        Of the draws: their probabilities, or their scores before these are normalised, as in the published code. It may
        be changed after `fit`.

    Examples
    --------
    >>> from gptree.rivals import OneVsEachGP
    >>> OneVsEachGP("rbf", chains=4).fit([[1.0, 0.0], [0.0, 1.0]], [0, 1]).predict([[0.9, 0.1]])
    array([0])
    """

    name = "ove"
    averaging: Literal["probabilities", "scores"] = field(default="probabilities", kw_only=True)

    def _gibbs(self) -> Gibbs:
        self._averages_scores()
        return super()._gibbs()

    def _averages_scores(self) -> bool:
        valid = self.averaging in ("probabilities", "scores")
        require(valid, f'averaging must be "probabilities" or "scores", not {self.averaging!r}.')
        return self.averaging == "scores"

    def _averaged(self, scores: Tensor) -> Tensor:
        return scores.mean(0) if self._averages_scores() else super()._averaged(scores)

    def _numbers(self, points: int, classes: int) -> float:
        return (classes + 10) * points**2 + 12 * self.chains * (self.keep + 1) * classes * points

    def _sample(self, space: FunctionSpace, y: Tensor, gibbs: Gibbs, random: torch.Generator) -> None:
        self.model_ = OneVsEach(space, y, int(y.max()) + 1)
        self.omega_ = torch.cat(run_chains(self.model_, gibbs, random))
        self.weights_ = self.model_.weights(self.omega_)

    def _log_probabilities(self, mean: Tensor, cross: Tensor, prior: Tensor) -> Tensor:
        scores = torch.empty_like(mean.mT)
        step = max(1, HELD // (mean.shape[1] * (len(cross) + mean.shape[1])))
        for score, m, omega in zip(scores, mean, self.omega_, strict=True):
            factors = Elimination.of(self.model_, omega) if self.predict_at == "quadrature" else None
            for start in range(0, len(prior), step):
                part = slice(start, start + step)
                gaps = m.T[part, :, None] - m.T[part, None, :]
                if factors is None:
                    terms = logsigmoid(gaps)
                else:
                    terms = expected_log_sigmoid(gaps, factors.difference_variances(cross[:, part], prior[part]))
                score[part] = terms.sum(-1) - terms.diagonal(dim1=-2, dim2=-1)
        return scores


NODES, WEIGHTS = (torch.as_tensor(array) for array in np.polynomial.hermite_e.hermegauss(20))
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def expected_log_sigmoid(mean: Tensor, variance: Tensor) -> Tensor:
    """E[log σ(f)] for f ~ N(mean, variance), elementwise, by Gauss and Hermite's rule."""
    deviation = variance.sqrt()
    total = torch.zeros_like(mean)
    for node, weight in zip(NODES.tolist(), WEIGHTS.tolist(), strict=True):
        total += weight * logsigmoid(mean + node * deviation)
    return total
