"""Kernel densities of the classes on the unit sphere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gptree.experts.examples import ALONE, Examples, check_features
from gptree.experts.interface import Fit, FittedExpert
from gptree.experts.sphere import check_unit_length, chunks, working_dtype
from gptree.experts.tempering import fit_tempered


@dataclass(frozen=True)
class KernelDensity:
    """score_c(x) = log mean of exp(β(g − 1)) over the examples of the class, g the inner product with x.

    Features must be of unit length. Left out exactly, by masking the fold. Cost: n² inner products and, for each
    sharpness β, n² exponentials; nothing of size n² is kept.
    """

    sharpnesses: tuple[float, ...] = (5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0)

    def __post_init__(self) -> None:
        if not self.sharpnesses or not all(value > 0 for value in self.sharpnesses):
            raise ValueError(f"sharpnesses must be positive numbers; got {self.sharpnesses}.")

    def fit(self, examples: Examples) -> Fit:
        check_unit_length(examples.X)
        return fit_tempered(_Scorer(self, examples), examples)


@dataclass(frozen=True, eq=False)
class FittedKernelDensity(FittedExpert):
    points: Tensor  # (n, d)
    labels: Tensor  # (n,)
    counts: Tensor  # (C,) points of each class
    sharpness: float  # β
    temperature: float  # τ

    def log_probabilities(self, X: Tensor, raw: Any = None) -> Tensor:
        check_features(X, self.points.shape[1])
        scores = X.new_empty(len(X), len(self.counts))
        for part in chunks(len(X), len(self.points), X.device):
            g = self.points @ X[part].to(self.points.dtype).T
            scores[part] = _log_means(g, self.labels, self.counts[:, None], (self.sharpness,))[0].to(X.dtype)
        return (self.temperature * scores).log_softmax(1)


def _log_means(g: Tensor, labels: Tensor, counts: Tensor, sharpnesses: tuple[float, ...]) -> Tensor:
    """Scores (len(sharpnesses), t, C) from inner products g (n, t), −∞ where masked, and class counts (C, t or 1).

    The largest term of a column is taken out of the sum before exponentiating. A class whose terms all vanish
    beside it, or are masked, gets the smallest positive number instead of 0.
    """
    top = g.max(0).values
    top = torch.where(top.isfinite(), top, 1)
    below = g - top
    tiny = torch.finfo(g.dtype).tiny
    scores = g.new_empty(len(sharpnesses), g.shape[1], len(counts))
    terms = torch.empty_like(g)
    for k, sharpness in enumerate(sharpnesses):
        torch.mul(below, sharpness, out=terms).exp_()
        sums = g.new_zeros(len(counts), g.shape[1]).index_add_(0, labels, terms)
        scores[k] = (sums.clamp_(min=tiny).div_(counts).log_() + sharpness * (top - 1)).T
    return scores


class _Scorer:
    """Left-out scores: the sum runs over the examples outside the fold."""

    spread = 2.0

    def __init__(self, settings: KernelDensity, examples: Examples) -> None:
        self.grid, self.fallback, self.examples = settings.sharpnesses, min(settings.sharpnesses), examples
        self.points = examples.X.to(working_dtype(len(examples), examples.X.dtype))

    def scores(self, grid: tuple[float, ...], rows: Tensor) -> Tensor:
        ex = self.examples
        scores = ex.X.new_empty(len(grid), len(rows), ex.n_classes)
        for at in chunks(len(rows), len(ex), rows.device):
            part = rows[at]
            g = self.points @ self.points[part].T
            folds = ex.folds[part]
            g.masked_fill_(ex.folds[:, None] == torch.where(folds == ALONE, ALONE - 1, folds), -torch.inf)
            g[part, torch.arange(len(part), device=part.device)] = -torch.inf
            counts = ex.left_out_counts(part).clamp_(min=1).T.to(g.dtype)
            scores[:, at] = _log_means(g, ex.y, counts, grid).to(scores.dtype)
        return scores

    def fitted(self, value: float, temperature: float) -> FittedKernelDensity:
        ex = self.examples
        return FittedKernelDensity(self.points, ex.y, ex.counts.to(self.points.dtype), value, temperature)
