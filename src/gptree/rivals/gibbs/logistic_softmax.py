"""LSM: the logistic-softmax likelihood made conjugate by three augmentations (Galy-Fajou, Wenzel, Donner, Opper, 2020).

Every class has a latent function, f_c ~ GP(0, k), and p(y | f) = σ(f_y) / Σ_c σ(f_c). With y_c = [y = c], at one point:

    1/s = ∫ exp(−λ s) dλ over λ > 0                 with s = Σ_c σ(f_c)
    exp(−λ σ(f)) = Σ_n Poisson(n | λ) σ(−f)^n       as 1 − σ(f) = σ(−f)
    σ(f)^y σ(−f)^n = 2^−(y+n) exp(½(y − n) f) E[exp(−½ ω f²)],  ω ~ PG(y + n, 0)

Together, with a flat measure on λ, the joint density of label and auxiliary variables

    p(y, λ, n, ω | f) = Π_c Poisson(n_c | λ) 2^−(y_c+n_c) exp(½(y_c − n_c) f_c − ½ ω_c f_c²) PG(ω_c | y_c + n_c, 0)

sums and integrates to p(y | f). Its conditionals are

    ω_c | n, f, y ~ PG(y_c + n_c, f_c),    n_c | λ, f ~ Poisson(λ σ(−f_c)),    λ | n ~ Gamma(1 + Σ_c n_c, rate C),
    f_c | n, ω, y ~ N(Σ_c κ_c, Σ_c),       Σ_c = (K⁻¹ + Ω_c)⁻¹,    κ_c = ½ (y_c − n_c) at the points.

Summed over n and ω the joint density is σ(f_y) exp(−λ s), hence λ | f ~ Exponential(s): drawing λ, then n, then ω gives
all three from their joint conditional given f. So a sweep has two blocks, (λ, n, ω) | f and f | (n, ω), and no λ is
carried on. Given n and ω the classes are independent: C systems of size N × N that share K, and no matrix of size C·N.

Prediction. Given n and ω the f_c at a new point are independent Gaussians, so that by the first identity

    E[σ(f_k)/s] = ∫ E[σ(f_k) exp(−λ σ(f_k))] Π_{c ≠ k} E[exp(−λ σ(f_c))] dλ

is a single integral over products of one-dimensional expectations; no sampling is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, one_hot

from gptree.inference import Gibbs
from gptree.inference.posterior import draw_chunks
from gptree.maths import FunctionSpace, pg_mean, pg_variance, sample_pg
from gptree.maths.conditional import ITERATIVE_ORDER
from gptree.rivals.gibbs.base import SampledRival, run_chains

#: A sum of more than so many independent PG(1, c) is drawn as a normal variable. Its skewness is below 0.02.
MANY = 10_000
#: Least s = Σ_c σ(f_c) in the draw of λ: the counts n stay numbers that a float64 holds exactly.
LEAST_SUM = 1e-12


class Counts(NamedTuple):
    """Auxiliary variables that the latent functions depend on; λ is not kept."""

    n: Tensor
    """(S, C, N)."""
    omega: Tensor
    """(S, C, N), 0 where n = y = 0."""


@dataclass(frozen=True)
class LogisticSoftmax:
    space: FunctionSpace
    labels: Tensor
    """One-hot labels, (C, N)."""
    work: int
    """How many numbers the factors that are held at a time may take."""

    @property
    def classes(self) -> int:
        return len(self.labels)

    def first_auxiliaries(self, f: Tensor, random: torch.Generator) -> Counts:
        """(n, ω) | λ, f, y at λ = 1.

        Where f fits the labels s is near 1, and so is λ. A draw of the prior has s ≈ C/2: nearly all n would be 0, and
        the first sweep would see few points of other classes.
        """
        return self._counts(torch.ones_like(f[:, :1]), f, random)

    def draw_auxiliaries(self, f: Tensor, random: torch.Generator) -> Counts:
        """(λ, n, ω) | f, y, of which n and ω are returned."""
        s = torch.sigmoid(f).sum(-2, keepdim=True).clamp_min(LEAST_SUM)
        return self._counts(torch.empty_like(s).exponential_(generator=random) / s, f, random)

    def _counts(self, rate: Tensor, f: Tensor, random: torch.Generator) -> Counts:
        n = torch.poisson(rate * torch.sigmoid(-f), generator=random)
        return Counts(n, _sample_pg(f, self.labels + n, random))

    def draw_latent(self, given: Counts, z: Tensor, epsilon: Tensor) -> Tensor:
        """f | n, ω, y, (S, C, N), from standard normals: for N(0, K), and one a class and point."""
        return self._each_class(self.space.draw, given, z, epsilon)

    def weights(self, given: Counts) -> Tensor:
        """α (S, C, N) with E[f⋆_c | n, ω, y] = k(x⋆, X) α_c."""
        return self._each_class(self.space.weights, given)

    def _each_class(self, function: Callable[..., Tensor], given: Counts, *noise: Tensor) -> Tensor:
        """`function` of factors, ω, κ and noise, where the classes of all chains are so many draws at one node."""
        kappa = 0.5 * (self.labels - given.n)
        rows = [part.reshape(-1, 1, part.shape[-1]) for part in (given.omega, kappa, *noise)]
        if self.space.order >= ITERATIVE_ORDER:
            return function(None, *rows).view_as(kappa)
        chunks = draw_chunks(self.space, len(rows[0]), self.work)
        parts = ([part[chunk] for part in rows] for chunk in chunks)
        return torch.cat([function(self.space.factor(p[0]), *p) for p in parts]).view_as(kappa)

    def variances(self, omega: Tensor, cross: Tensor, prior: Tensor) -> Tensor:
        """var(f⋆_c | ω) = k⋆⋆ − ‖L⁻¹ Ω^½ k⋆‖², (S, C, T), from k(X, x⋆) (N, T) and k(x⋆, x⋆) (T,)."""
        K = self.space.K[0]
        out = prior.repeat(omega.shape[0] * omega.shape[1], 1)
        for variance, o in zip(out, omega.flatten(0, 1), strict=True):
            seen = o.nonzero()[:, 0]  # points with ω = 0 say nothing of this class, and are most of them at first
            o = o[seen]
            L = FunctionSpace(K[seen][:, seen][None]).factor(o[None, None])[0, 0]
            explained = torch.linalg.solve_triangular(L, o.sqrt()[:, None] * cross[seen], upper=False)
            variance -= explained.square_().sum(0)
        return out.clamp_min_(0.0).view(*omega.shape[:2], -1)


def _sample_pg(f: Tensor, b: Tensor, random: torch.Generator) -> Tensor:
    """PG(b, f) for whole b, however large: where all σ(f_c) are small, n is of the order of 1/σ."""
    many = b > MANY
    omega = sample_pg(f, torch.where(many, 0.0, b), generator=random)
    if many.any():
        normal = torch.randn(f[many].shape, generator=random, dtype=f.dtype)
        omega[many] = pg_mean(f[many], b[many]) + pg_variance(f[many], b[many]).sqrt() * normal
    return omega


class LogisticSoftmaxGP(SampledRival):
    """LSM by Gibbs sampling; see this module's account of the model, and `GibbsRival` for the parameters.

    Memory is of the order of N² + S·C·N numbers, of which the chains keep S·C·N.

    Examples
    --------
    >>> from gptree.rivals import LogisticSoftmaxGP
    >>> LogisticSoftmaxGP("rbf", chains=4).fit([[1.0, 0.0], [0.0, 1.0]], [0, 1]).predict([[0.9, 0.1]])
    array([0])
    """

    name = "lsm"

    def _numbers(self, points: int, classes: int) -> float:
        return 6 * points**2 + 12 * self.chains * (self.keep + 1) * classes * points

    def _sample(self, space: FunctionSpace, y: Tensor, gibbs: Gibbs, random: torch.Generator) -> None:
        labels = one_hot(y).T.to(torch.float64)
        model = LogisticSoftmax(space, labels, self.memory_budget // 32)
        kept = run_chains(model, gibbs, random)
        self.omega_ = torch.cat([draws.omega for draws in kept])
        self.weights_ = torch.cat([model.weights(draws) for draws in kept])
        self.model_ = model

    def _log_probabilities(self, mean: Tensor, cross: Tensor, prior: Tensor) -> Tensor:
        if self.predict_at == "mean":
            return logsigmoid(mean).mT
        return log_expected_share(mean, self.model_.variances(self.omega_, cross, prior)).mT


#: Nodes of the trapezoid rule for a Gaussian, in deviations. They stand closer together than Gauss and Hermite's, which
#: exp(−λ σ(f)) needs where it falls steeply.
DEVIATIONS = torch.arange(-15, 16, dtype=torch.float64) * 0.4
LOG_WEIGHTS = torch.log_softmax(-0.5 * DEVIATIONS**2, 0)
#: Step of the trapezoid rule in u = log λ. For one exponential the error is 2|Γ(1 + 2πi/h)|, here 5e-8.
STEP = 0.5
#: The rule begins at λ s = e^−9 and ends at λ s = 40, for the largest and the least s within reach.
LOG_FIRST, LOG_LAST = -9.0, math.log(40.0)


def log_expected_share(mean: Tensor, variance: Tensor) -> Tensor:
    """log E[σ(f_k) / Σ_c σ(f_c)] for independent f_c ~ N(mean, variance), (S, C, T), classes in the second place.

    ∫ … dλ is a sum over u = log λ; see the module. The error is below 1e-5 up to variance 16, 1e-4 at 25, 1e-3 at 50.
    """
    out = torch.empty_like(mean)
    step = max(1, 2**21 // (mean.shape[0] * mean.shape[1] * len(DEVIATIONS)))
    for start in range(0, mean.shape[-1], step):
        part = slice(start, start + step)
        f = mean[..., part, None] + variance[..., part, None].sqrt() * DEVIATIONS
        out[..., part] = _integrate(torch.sigmoid(f))
    return out


def _integrate(sigma: Tensor) -> Tensor:
    """`log_expected_share` from σ(f) at the nodes, (S, C, T, nodes)."""
    first = math.floor((LOG_FIRST - math.log(float(sigma[..., -1].sum(1).max()))) / STEP)
    last = math.ceil((LOG_LAST - math.log(float(sigma[..., 0].sum(1).min()) + 1e-300)) / STEP)
    total = torch.full(sigma.shape[:-1], -torch.inf, dtype=sigma.dtype)
    for number in range(first, last + 1):
        u = number * STEP
        exponent = LOG_WEIGHTS - math.exp(u) * sigma
        top = exponent.amax(-1, keepdim=True)
        weight = (exponent - top).exp_()
        mass = weight.sum(-1)
        log_mean = mass.log() + top[..., 0]  # log E[exp(−λ σ)]
        log_share = torch.log((weight * sigma).sum(-1) / mass)  # log of E[σ exp(−λ σ)] / E[exp(−λ σ)]
        # below the first node the integrand falls like λ: a geometric series of further nodes
        tail = -math.log1p(-math.exp(-STEP)) if number == first else 0.0
        total = torch.logaddexp(total, u + tail + log_mean.sum(1, keepdim=True) + log_share)
    return total - total.logsumexp(1, keepdim=True)
