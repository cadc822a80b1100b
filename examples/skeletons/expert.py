"""An expert to copy: rename, fill in the scores, and use it as `GPForestClassifier(prior_mean="class-mean")`.

Importing the module is enough; a file in src/gptree/experts is found without any import. Models around it are saved and
loaded, can grow, and a grid search reaches its fields: {"prior_mean__shrinkages": [(0.2,), (0.5,)]}.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gptree.experts import Examples, Expert, Fit, FittedExpert, ScoreCache, check_features, fit_tempered
from gptree.settings import require


@dataclass(frozen=True)
class ClassMean(Expert):
    """score_c(x) = −‖x − m_c‖², m_c the class mean drawn to the mean of all: (1 − s) x̄_c + s x̄.

    Parameters
    ----------
    shrinkages : tuple of float
        s is chosen among these by left-out NLL.
    """

    shrinkages: tuple[float, ...] = (0.1, 0.3, 0.6)

    name = "class-mean"

    def __post_init__(self) -> None:  # settings check themselves when made
        require(all(0 <= s < 1 for s in self.shrinkages), f"shrinkages must lie in [0, 1); got {self.shrinkages}.")

    def fit(self, examples: Examples) -> Fit:
        return fit_tempered(_Scorer(self, examples), examples)


@dataclass(frozen=True, eq=False)
class FittedClassMean(FittedExpert):
    """A fitted `ClassMean`. Tensors, numbers and other fitted experts are stored without further code."""

    means: Tensor  # (C, d) of the classes, as they are
    counts: Tensor  # (C,)
    centre: Tensor  # (d,)
    shrinkage: float
    temperature: float

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        check_features(X, len(self.centre))
        return (self.temperature * _scores(X, self.means, self.centre, self.shrinkage)).log_softmax(1)

    def grown(self, X: Tensor, y: Tensor, n_classes: int, weights: Tensor | None = None) -> FittedClassMean:
        """With further examples of its classes. (Optional: without it the expert stays as it was.)"""
        weights = (torch.ones_like(y) if weights is None else weights).to(self.counts)
        counts = self.counts.index_add(0, y, weights)
        sums = (self.means * self.counts[:, None]).index_add(0, y, X.to(self.means.dtype) * weights[:, None])
        return replace(self, means=sums / counts[:, None], counts=counts)


class _Scorer:
    """Scores of examples that are left out, for the values of a grid; `fit_tempered` chooses value and temperature."""

    spread = 2.0  # of tempered scores over classes where nothing can be learnt; see `temperature_centre`

    def __init__(self, settings: ClassMean, examples: Examples) -> None:
        self.grid, self.fallback = settings.shrinkages, max(settings.shrinkages)  # the smoothest
        self.examples, self.X = examples, examples.X * examples.weights[:, None]  # each counts as often as it weighs
        self.centre = self.X.sum(0) / examples.weights.sum()
        self.sums = examples.class_sums(self.X)

    def scores(self, grid: tuple[float, ...], rows: Tensor) -> Tensor:
        """(len(grid), len(rows), C): each row scored without the examples of its fold."""
        ex = self.examples
        out = ex.X.new_empty(len(grid), len(rows), ex.n_classes)
        for fold, members, at in ex.by_fold(rows):  # a fold holds one shot of every class, or none
            left = ex.counts - ex.fold_counts[fold]
            means = (self.sums - ex.class_sums(self.X[members], members)) / left[:, None]
            for k, s in enumerate(grid):
                out[k, at] = _scores(ex.X[rows[at]], means, self.centre, s)
        for i in ex.alone(rows).tolist():  # and these are left out alone
            x, c = ex.X[rows[i]], ex.y[rows[i]]
            means = self.sums / ex.counts[:, None]
            if ex.usable[rows[i]]:  # of the only example of a class, any finite score will do
                means[c] = (self.sums[c] - self.X[rows[i]]) / (ex.counts[c] - ex.weights[rows[i]])
            for k, s in enumerate(grid):
                out[k, i] = _scores(x[None], means, self.centre, s)[0]
        return out

    def fitted(self, value: float, temperature: float) -> FittedClassMean:
        ex = self.examples
        return FittedClassMean(self.sums / ex.counts[:, None], ex.counts, self.centre, value, temperature)


def _scores(X: Tensor, means: Tensor, centre: Tensor, shrinkage: float) -> Tensor:
    return -torch.cdist(X, (1 - shrinkage) * means + shrinkage * centre).square()
