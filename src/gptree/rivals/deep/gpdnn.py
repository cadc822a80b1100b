"""GPDNN: a network with a sparse variational GP a class and the Robust-Max likelihood.

Bradshaw, Matthews and Ghahramani, "Adversarial examples, uncertainty, and transfer testing robustness in Gaussian
process hybrid deep networks", 2017. A row has the class whose latent value is the largest, but for labelling errors
of probability ε, which hit all other classes alike:
p(y | f) = 1 − ε if y = argmax_c f_c, else ε / (C − 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from gptree.deep.heads.base import Problem
from gptree.inference import class_inducing
from gptree.maths.kernels import as_kernel, gram, gram_diagonal
from gptree.rivals.deep.base import DeepRival, VariationalHead, WhitenedPosterior, gram_root
from gptree.settings import require
from gptree.tree import label_hashes

#: Of the Gauss-Hermite rule, as in the paper's software.
QUADRATURE_POINTS = 20


@dataclass(frozen=True)
class GPDNN(DeepRival):
    """Settings of the head; the kernel is that of the training.

    Parameters
    ----------
    inducing : int
        Points a class, at rows of it to begin with. The GPs of all classes share all points, and they move.
    epsilon : float
        Probability of a labelling error.
    covariance : "full" or "diagonal"
        Of each class's q; diagonal in whitened coordinates, where the full one is too large: it takes 13 MB for 10
        classes of 40 points but 13 GB for 100 of them, and as much each for gradients and momentum.
    start : "regression" or "prior"
        q begins as the posterior of GP regression on the class indicators, or as the prior, where the gradient is
        small, and with many classes so small that nothing is learned.

    Examples
    --------
    >>> from gptree.deep import Arrays, mlp, train
    >>> trained = train(mlp(64), Arrays(X), y, labels, head=GPDNN(inducing=10))  # doctest: +SKIP
    """

    name: ClassVar[str] = "gpdnn"

    inducing: int = 40
    epsilon: float = 1e-3
    covariance: Literal["full", "diagonal"] = "full"
    start: Literal["regression", "prior"] = "regression"

    def __post_init__(self) -> None:
        require(self.inducing >= 1, f"a class needs at least one inducing point, got inducing={self.inducing}.")
        require(0 < self.epsilon < 1, f"epsilon is a probability between 0 and 1, got {self.epsilon}.")
        for name, choices in (("covariance", ("full", "diagonal")), ("start", ("regression", "prior"))):
            require(getattr(self, name) in choices, f"{name} must be one of {choices}, got {getattr(self, name)!r}.")

    def new_head(self, embeddings: Tensor, problem: Problem) -> RobustMaxHead:
        x, y = normalize(embeddings, dim=-1), torch.as_tensor(problem.y, device=embeddings.device)
        rows = class_inducing(x.cpu().numpy(), problem.y, self.inducing, label_hashes(problem.labels), problem.seed)
        head = self._head_at(x[torch.as_tensor(rows, device=x.device)].double(), problem)
        if self.start == "regression":
            head.regress(embeddings, one_hot(y, len(problem.labels)).T.double())
        return head

    def stored_head(self, structure: Any, tensors: Mapping[str, Tensor], problem: Problem) -> RobustMaxHead:
        return self._head_at(torch.zeros_like(tensors["points"]), problem)

    def _head_at(self, points: Tensor, problem: Problem) -> RobustMaxHead:
        kernel = as_kernel(problem.kernel, points.dtype, points.device)
        return RobustMaxHead(points, len(problem.labels), len(problem.y), kernel, self).to(points.device)


class RobustMaxHead(VariationalHead):
    """The head; embeddings and points (M, d) are scaled to unit length."""

    def __init__(self, points: Tensor, n_classes: int, rows: int, kernel: Kernel, settings: GPDNN) -> None:
        super().__init__(WhitenedPosterior(n_classes, len(points), settings.covariance == "diagonal"), rows)
        self.points, self.kernel, self.settings = nn.Parameter(points), kernel, settings

    def _seen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = normalize(self.points, dim=-1)
        a = torch.linalg.solve_triangular(gram_root(self.kernel, z), gram(self.kernel, z, x), upper=False)
        rest = gram_diagonal(self.kernel, x) - a.square().sum(0)  # k_nn − k_nm K_mm⁻¹ k_mn
        return a, rest.clamp_min(torch.finfo(rest.dtype).eps)  # in rounding's reach of 0 at the points themselves

    def _expected_log_likelihood(self, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        best, epsilon = argmax_probability(mean, variance, y), self.settings.epsilon
        return best * math.log1p(-epsilon) + (1 - best) * math.log(epsilon / (len(mean) - 1))

    def _class_log_probabilities(self, mean: Tensor, variance: Tensor) -> Tensor:
        zero, epsilon = torch.zeros_like(mean[0], dtype=torch.long), self.settings.epsilon
        best = torch.stack([argmax_probability(mean, variance, zero + c) for c in range(len(mean))], -1)
        return (best * (1 - epsilon) + (1 - best) * (epsilon / (len(mean) - 1))).log()


def argmax_probability(mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
    """P(f_y > f_c for all c ≠ y), (B,), of independent f ~ N(mean, variance), (C, B) each, and classes y (B,).

    E_{f_y}[Π_{c≠y} Φ((f_y − μ_c)/σ_c)] by Gauss-Hermite quadrature.
    """
    nodes, weights = (torch.as_tensor(each).to(mean) for each in np.polynomial.hermite_e.hermegauss(QUADRATURE_POINTS))
    deviation, true = variance.sqrt(), y.unsqueeze(0)
    f = torch.addcmul(mean.gather(0, true), deviation.gather(0, true), nodes[:, None])  # (Q, B)
    log_below = torch.special.log_ndtr((f.unsqueeze(1) - mean) / deviation)
    is_true = torch.arange(len(mean), device=y.device)[:, None] == y
    return (weights / weights.sum()) @ log_below.masked_fill(is_true, 0.0).sum(1).exp()
