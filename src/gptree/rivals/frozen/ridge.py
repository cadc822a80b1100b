"""One-vs-rest ridge regression on one-hot targets, left-out scores in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gptree.rivals.base import RivalClassifier
from gptree.rivals.left_out import fit_temperature, scale_of, shot_folds

ONE_SHOT = (10.0, 170.0)  # alpha, temperature


@dataclass(kw_only=True, eq=False, repr=False)
class SoftmaxRidge(RivalClassifier):
    """Softmax of τ times the ridge scores of the classes; the intercept is not penalised.

    Penalty α and temperature τ have the least left-out NLL. Where every class has one example they are `ONE_SHOT`.

    Parameters
    ----------
    alphas : tuple of float
        The penalties to choose from, in units of the mean squared distance of the points from their mean.

    Attributes
    ----------
    alpha_, temperature_ : float
    coef_, intercept_ : ndarray (C, d) and (C,)

    Examples
    --------
    >>> from gptree.rivals import SoftmaxRidge
    >>> SoftmaxRidge().fit([[0.0], [1.0]], [0, 1]).predict([[0.8]])
    array([1])
    """

    name = "ridge"
    alphas: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        targets = np.eye(y.max() + 1, dtype=x.dtype)[y]
        x_mean, y_mean = x.mean(axis=0), targets.mean(axis=0)
        scale = scale_of(x)
        u, s, vt = np.linalg.svd((x - x_mean) / x.dtype.type(scale), full_matrices=False)
        projected = u.T @ (targets - y_mean)

        folds = shot_folds(y, limit=30)
        scored = folds >= 0
        self.alpha_, self.temperature_ = ONE_SHOT
        best = np.inf
        for alpha in self.alphas if scored.any() else ():
            scores = left_out_ridge(u, s**2 / (s**2 + alpha), targets, folds)
            temperature, loss = fit_temperature(scores[scored], y[scored])
            if loss < best:
                best, self.alpha_, self.temperature_ = loss, alpha, temperature

        self.coef_ = (vt.T @ ((s / (s**2 + self.alpha_))[:, None] * projected)).T / scale
        self.intercept_ = y_mean - self.coef_ @ x_mean

    def _logits(self, x: np.ndarray) -> np.ndarray:
        return self.temperature_ * (x @ self.coef_.T + self.intercept_)


def left_out_ridge(u: np.ndarray, shrink: np.ndarray, targets: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Ridge predictions (n, C) at each fold of the fit without it; rows with fold −1 are NaN.

    The hat matrix is H = 11ᵀ/n + U diag(shrink) Uᵀ for centred features U S Vᵀ and shrink = s²/(s² + α).
    Without fold F the residuals there are (I − H_FF)⁻¹ (Y − HY)_F, exactly.
    """
    residual = targets - targets.mean(axis=0) - (u * shrink) @ (u.T @ (targets - targets.mean(axis=0)))
    scores = np.full(targets.shape, np.nan, dtype=targets.dtype)
    for fold in range(folds.max() + 1):
        out = folds == fold
        hat = 1 / len(u) + (u[out] * shrink) @ u[out].T
        scores[out] = targets[out] - np.linalg.solve(np.eye(len(hat), dtype=hat.dtype) - hat, residual[out])
    return scores
