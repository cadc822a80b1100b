"""Multinomial logistic regression with its penalty chosen by cross-validation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from gptree.rivals.base import RivalClassifier
from gptree.rivals.left_out import mean_nll, scale_of, shot_folds

GRID = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
ONE_SHOT_C = 1e4
FEW_POINTS = 3000
TOLERANCE = 1e-6  # of the gradient; scikit-learn's 1e-4 stops too early here when the penalty is weak


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticClassifier(RivalClassifier):
    """Multinomial logistic regression on features divided by their root mean square distance from the mean.

    Parameters
    ----------
    C : float or None
        Inverse penalty, as in scikit-learn, on those features. None chooses it from `grid` by left-out NLL over folds
        of shots: five, or three above `FEW_POINTS` points, where a fold matters less and costs more. The NLL is taken
        to have one valley along the grid: the search starts in the middle and walks down. Where every class has one
        example, C is `ONE_SHOT_C`.
    grid : tuple of float
        The values of C to choose from, in order.
    balanced : bool
        Every class weighs the same, however many examples it has.

    Attributes
    ----------
    C_ : float
    coef_, intercept_ : ndarray (C, d) and (C,)
        Of the unscaled features.

    Examples
    --------
    >>> from gptree.rivals import LogisticClassifier
    >>> LogisticClassifier(C=1.0).fit([[0.0], [1.0]], [0, 1]).predict([[0.8]])
    array([1])
    """

    name = "logistic"
    C: float | None = None
    grid: tuple[float, ...] = GRID
    balanced: bool = False

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        # The intercept is free and penalised weights lie in the span of the centred rows: centring, and turning to
        # that span where n < d, change nothing but the cost.
        mean, scale = x.mean(axis=0), x.dtype.type(scale_of(x))
        z = (x - mean) / scale
        basis = np.linalg.svd(z, full_matrices=False)[2] if len(x) < x.shape[1] else None
        z = z if basis is None else z @ basis.T
        self.C_ = self._choose(z, y) if self.C is None else self.C
        weights, intercept = _all_classes(self._model(self.C_).fit(z, y))
        self.coef_ = (weights if basis is None else weights @ basis) / scale
        self.intercept_ = intercept - self.coef_ @ mean

    def _choose(self, z: np.ndarray, y: np.ndarray) -> float:
        folds = shot_folds(y, limit=5 if len(y) <= FEW_POINTS else 3)
        scored = folds >= 0
        if not scored.any():
            return ONE_SHOT_C
        parts = [folds == fold for fold in range(folds.max() + 1)]
        models = [self._model(self.grid[0]) for _ in parts]  # warm starts: each model walks along the grid

        @functools.cache
        def loss(index: int) -> float:
            logits = np.empty((len(y), y.max() + 1))
            for out, model in zip(parts, models, strict=True):
                weights, intercept = _all_classes(model.set_params(C=self.grid[index]).fit(z[~out], y[~out]))
                logits[out] = z[out] @ weights.T + intercept
            return mean_nll(log_softmax(logits[scored], axis=1), y[scored])

        return self.grid[_walk_down(loss, len(self.grid))]

    def _model(self, C: float) -> LogisticRegression:
        weight = "balanced" if self.balanced else None
        return LogisticRegression(C=C, tol=TOLERANCE, max_iter=2000, warm_start=True, class_weight=weight)

    def _logits(self, x: np.ndarray) -> np.ndarray:
        return x @ self.coef_.T + self.intercept_


def _all_classes(model: LogisticRegression) -> tuple[np.ndarray, np.ndarray]:
    """Weights and intercepts of every class: for two classes scikit-learn keeps only the second's."""
    weights, intercept = np.asarray(model.coef_), np.asarray(model.intercept_)
    if len(weights) > 1:
        return weights, intercept
    return np.concatenate([np.zeros_like(weights), weights]), np.concatenate([np.zeros_like(intercept), intercept])


def _walk_down(loss: Callable[[int], float], length: int) -> int:
    """Index of the valley of `loss` on 0 … length−1, walking from the middle to the side that is lower."""
    best = length // 2
    for step in (1, -1):
        while 0 <= best + step < length and loss(best + step) < loss(best):
            best += step
    return best
