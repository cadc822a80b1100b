"""Multinomial logistic regression with label smoothing and a temperature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gptree.rivals.base import RivalClassifier
from gptree.rivals.frozen.logistic import GRID, ONE_SHOT_C
from gptree.rivals.frozen.softmax_regression import (
    LeftOut,
    choose,
    fit_softmax,
    left_out_folds,
    orthogonal_basis,
    require_positive,
    smoothed_targets,
)
from gptree.rivals.left_out import scale_of
from gptree.settings import require

SMOOTHINGS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6)


@dataclass(kw_only=True, eq=False, repr=False)
class SmoothedLogistic(RivalClassifier):
    """Logistic regression on soft targets (1 − ε) [y = c] + ε/C, its scores times a temperature.

    p(c | x) ∝ exp(τ (W x + b)_c). C, ε and τ have together the least left-out NLL, over the folds of `left_out_folds`;
    the search walks down from the middle of both grids. Where every class has one example, C is `ONE_SHOT_C` of
    `LogisticClassifier`, ε = 0 and τ = 1.

    Parameters
    ----------
    grid : tuple of float
        The inverse penalties C to choose from, in order, as in `LogisticClassifier`.
    smoothings : tuple of float
        The ε to choose from, in order, each at least 0 and below 1.

    Attributes
    ----------
    C_, smoothing_, temperature_ : float
    coef_, intercept_ : ndarray (C, d) and (C,)
        W and b, of the unscaled features.

    Examples
    --------
    >>> from gptree.rivals import SmoothedLogistic
    >>> SmoothedLogistic().fit([[0.0], [0.1], [0.9], [1.0]], [0, 0, 1, 1]).predict([[0.8]])
    array([1])
    """

    name = "logistic-smoothed"
    grid: tuple[float, ...] = GRID
    smoothings: tuple[float, ...] = SMOOTHINGS

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        require_positive("grid", self.grid)
        valid = len(self.smoothings) > 0 and all(0 <= smoothing < 1 for smoothing in self.smoothings)
        require(valid, f"smoothings must hold numbers from 0 to below 1, got {self.smoothings}.")
        mean, scale = x.mean(axis=0), x.dtype.type(scale_of(x))
        z = (x - mean) / scale
        basis = orthogonal_basis(z)
        phi, folds = z @ basis.T, left_out_folds(y)
        self.C_, self.smoothing_, self.temperature_ = ONE_SHOT_C, 0.0, 1.0
        if folds:
            left_out = LeftOut(phi, y, folds)
            chosen = choose(left_out.temperature, self.grid, self.smoothings)
            self.C_, self.smoothing_, self.temperature_ = chosen
        weights = fit_softmax(phi.astype(np.float64), smoothed_targets(y, self.smoothing_), self.C_)
        self.coef_ = weights.coef.T @ basis / scale
        self.intercept_ = weights.intercept - self.coef_ @ mean

    def _logits(self, x: np.ndarray) -> np.ndarray:
        return self.temperature_ * (x @ self.coef_.T + self.intercept_)
