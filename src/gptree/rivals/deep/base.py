"""`DeepRival` and `VariationalHead`, the bases of rivals on a network: J GPs with whitened posteriors.

A GP's values at its M inducing points are u = L v with K_mm = L Lᵀ, so that v ~ N(0, I) under the prior. A row sees v
through a(x): f(x) = a(x)ᵀ v + whatever v does not determine. The loss is minus the bound, a row:
KL(q(v) ‖ N(0, I)) / n − mean of E[log p(y | f)]; it is minimised by gradients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.nn.functional import normalize

from gptree.deep.heads.base import DeepHead, Problem
from gptree.maths.kernels import gram
from gptree.maths.linalg import cholesky
from gptree.settings import NamedSettings

#: Relative to the diagonal of K_mm.
JITTER = 1e-6
#: Variance of the noise in the regression that q may start from.
FIRST_NOISE = 1.0
#: Rows that predictions and the regression look at together.
ROWS_AT_ONCE = 1024


class DeepRival(NamedSettings, ABC):
    """Settings of a head to compare with: a frozen dataclass that subclasses this and makes the head.

    With a `name` it is found by that name, ``DeepRival.of("gpdnn")``, and the tests of deep rivals run over it.
    """

    family: ClassVar[str] = "deep rival"
    example: ClassVar[str] = "GPDNN(inducing=10)"

    @abstractmethod
    def new_head(self, embeddings: Tensor, problem: Problem) -> DeepHead:
        """The head that training starts with, from the embeddings (n, d) of all rows that are learned."""

    @abstractmethod
    def stored_head(self, structure: Any, tensors: Mapping[str, Tensor], problem: Problem) -> DeepHead:
        """A head that such tensors of a `state_dict` can be loaded into."""


class WhitenedPosterior(nn.Module):
    """q(v) = N(m, S) of J GPs with S = UᵀU, U triangular or diagonal; it begins as the prior N(0, I)."""

    def __init__(self, gps: int, points: int, diagonal: bool = False) -> None:
        super().__init__()
        one = torch.ones(points, dtype=torch.float64)
        one = one if diagonal else one.diag()
        self.mean = nn.Parameter(one.new_zeros(gps, points))
        self.root = nn.Parameter(one.expand(gps, *one.shape).clone())  # U; the other triangle stays zero
        self.diagonal = diagonal

    def moments(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """E[aᵀv] and var(aᵀv), (J, B), of a (M, B), or (J, M, B) where every GP has its own."""
        projected = self.root.unsqueeze(-1) * a if self.diagonal else self.root.tril() @ a
        return (self.mean.unsqueeze(-2) @ a).squeeze(-2), projected.square().sum(-2)

    def kl(self) -> Tensor:
        """½ [tr S + ‖m‖² − M − log|S|] of all GPs together. The signs in the diagonal of U mean nothing."""
        scale = self.root if self.diagonal else self.root.diagonal(0, -2, -1)
        traces, logarithms = self.root.square().sum(), scale.square().log().sum()
        return 0.5 * (traces + self.mean.square().sum() - scale.numel() - logarithms)

    @torch.no_grad()
    def set_natural(self, eta: Tensor, precision: Tensor) -> None:
        """The Gaussian with S⁻¹m = eta (J, M) and S⁻¹ = precision, (M, M) or (J, M, M); its best diagonal one."""
        factor = cholesky(precision)  # S = P⁻¹ = C⁻ᵀC⁻¹
        self.mean.copy_(torch.cholesky_solve(eta.unsqueeze(-1), factor).squeeze(-1))
        if self.diagonal:
            self.root.copy_(precision.diagonal(0, -2, -1).rsqrt())
        else:
            one = torch.eye(factor.shape[-1]).to(factor)
            self.root.copy_(torch.linalg.solve_triangular(factor, one, upper=False))


class VariationalHead(DeepHead):
    """A head with such posteriors; a subclass says how rows see them, and has the likelihood.

    Parameters
    ----------
    q : WhitenedPosterior
    rows : int
        n, all that are trained on.
    """

    def __init__(self, q: WhitenedPosterior, rows: int) -> None:
        super().__init__()
        self.q, self.rows = q, rows

    @abstractmethod
    def _seen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """a(x), (M, B) or (J, M, B), and the variance that v does not determine, (B,), of unit vectors x (B, d)."""

    @abstractmethod
    def _expected_log_likelihood(self, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """E[log p(y | f)], (B,), for independent f ~ N(mean, variance), (J, B) each."""

    @abstractmethod
    def _class_log_probabilities(self, mean: Tensor, variance: Tensor) -> Tensor:
        """log E[p(c | f)], (B, C)."""

    # ------------------------------------------------------------------------------------------------- training

    def loss(self, embeddings: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(embeddings.device.type, enabled=False):
            expected = self._expected_log_likelihood(*self.latents(_on_sphere(embeddings)), y)
            return self.q.kl() / self.rows - expected.mean()

    def update(self) -> None:
        """Nothing: the optimiser has moved everything."""

    @torch.no_grad()
    def report(self, loss: Tensor) -> dict[str, Tensor]:
        kl = self.q.kl() / self.rows
        return {"expected_log_likelihood": kl - loss, "kl": kl, "bound": -loss}

    @torch.no_grad()
    def regress(self, embeddings: Tensor, targets: Tensor) -> None:
        """q becomes the posterior of GP regression on targets (J, n), which has a closed form."""
        eta, precision = torch.zeros_like(self.q.mean), torch.eye(self.q.mean.shape[1]).to(self.q.mean)
        for x, t in zip(_on_sphere(embeddings).split(ROWS_AT_ONCE), targets.split(ROWS_AT_ONCE, -1), strict=True):
            a, _ = self._seen(x)
            eta = eta + (t.unsqueeze(-2) @ a.mT).squeeze(-2) / FIRST_NOISE
            precision = precision + a @ a.mT / FIRST_NOISE
        self.q.set_natural(eta, precision)

    # ----------------------------------------------------------------------------------------------- prediction

    def latents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """E[f] and var(f), (J, B), of unit vectors x (B, d)."""
        a, rest = self._seen(x)
        mean, variance = self.q.moments(a)
        return mean, variance + rest

    @torch.no_grad()
    def scores(self, embeddings: Tensor) -> Tensor:
        return torch.cat([self._class_log_probabilities(*latents) for latents in self._all_latents(embeddings)])

    def _all_latents(self, embeddings: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for x in _on_sphere(embeddings).split(ROWS_AT_ONCE):
            yield self.latents(x)

    def structure(self) -> Any:
        """Nothing: the tensors and the settings say it all."""
        return {}


def gram_root(kernel: Kernel, points: Tensor) -> Tensor:
    """L with K_mm = L Lᵀ, (..., M, M), a little jitter added; NaN where there is none, which a training reports."""
    K = gram(kernel, points)
    jitter = JITTER * K.diagonal(0, -2, -1)
    L, failed = torch.linalg.cholesky_ex(K + jitter.diag_embed())
    return L.masked_fill(failed[..., None, None] != 0, torch.nan)


def _on_sphere(embeddings: Tensor) -> Tensor:
    return normalize(embeddings.double(), dim=-1)
