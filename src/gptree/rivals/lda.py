"""Linear discriminant analysis with Ledoit-Wolf shrinkage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.covariance import ledoit_wolf_shrinkage

from gptree.rivals.base import Head
from gptree.rivals.left_out import class_means, fit_temperature, scale_of, shot_folds

LEAST_SHRINKAGE = 1e-6  # keeps the covariance positive definite where a feature is constant
ONE_SHOT_PRECISION = 14.0  # as the temperature of the nearest class mean, which LDA is then


class ShrinkageLDA(Head):
    """Gaussian classes of equal weight with one covariance Σ, pooled within classes and shrunk towards I.

    The logit of class c is −τ/2 (x − μ_c)ᵀ Σ⁻¹ (x − μ_c); the temperature τ has the least left-out NLL. Where
    no class varies (one example each), Σ is I times the mean squared distance of the points from their mean
    over `ONE_SHOT_PRECISION`, and τ = 1.

    Fitted: `means_` (C, d), `shrinkage_`, `temperature_`, `coef_` (C, d), `intercept_` (C,).
    """

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        x = x.astype(np.float64)  # a covariance shrunk by little is near singular
        self.means_ = class_means(x, y)
        within = Within.of(x - self.means_[y])
        if within is None:
            self.shrinkage_, self.temperature_ = 1.0, 1.0
            self.coef_ = self.means_ * ONE_SHOT_PRECISION / scale_of(x) ** 2
        else:
            scores, folds = left_out_discriminant(x, y, within), shot_folds(y, limit=30)
            self.shrinkage_ = within.shrinkage
            self.temperature_, _ = fit_temperature(scores[folds >= 0], y[folds >= 0])
            self.coef_ = within.solve(self.means_)
        self.intercept_ = -0.5 * np.sum(self.coef_ * self.means_, axis=1)

    def _logits(self, x: np.ndarray) -> np.ndarray:
        return self.temperature_ * (x @ self.coef_.T + self.intercept_)  # xᵀΣ⁻¹x is common to all classes


@dataclass(frozen=True)
class Within:
    """The covariance (1 − λ) RᵀR/n + λ tr(RᵀR)/(nd) I of residuals R (n, d), by its Cholesky factor."""

    residuals: np.ndarray
    shrinkage: float
    factor: tuple[np.ndarray, bool]

    @classmethod
    def of(cls, residuals: np.ndarray) -> Within | None:
        """With λ by Ledoit and Wolf; None where the residuals are all zero."""
        n, d = residuals.shape
        variance = float(np.sum(residuals**2)) / (n * d)
        if variance == 0:
            return None
        shrinkage = max(float(ledoit_wolf_shrinkage(residuals, assume_centered=True)), LEAST_SHRINKAGE)
        covariance = (1 - shrinkage) * residuals.T @ residuals / n
        covariance[np.diag_indices(d)] += shrinkage * variance
        return cls(residuals, shrinkage, cho_factor(covariance, overwrite_a=True))

    def solve(self, rows: np.ndarray) -> np.ndarray:
        """Σ⁻¹ times each row."""
        return cho_solve(self.factor, rows.T).T


def left_out_discriminant(x: np.ndarray, y: np.ndarray, within: Within) -> np.ndarray:
    """Scores −½ (x_i − μ_c)ᵀ Σ⁻¹ (x_i − μ_c), (n, C): μ_c without the fold of x_i, Σ without x_i.

    Taking x_i out of its class changes RᵀR by −n_y/(n_y − 1) r rᵀ, r = x_i − μ_y: a rank-one change of Σ
    (Sherman and Morrison). λ, n and the trace are kept. Points whose fold is −1 get NaN.
    """
    n, r = len(x), within.residuals
    counts = np.bincount(y)[y]
    solved_x, solved_r = within.solve(x), within.solve(r)
    a = (1 - within.shrinkage) / n * counts / np.maximum(counts - 1, 1)
    gain = a / (1 - a * np.sum(r * solved_r, axis=1))
    scores = np.full((n, y.max() + 1), np.nan)
    folds = shot_folds(y, limit=30)
    for fold in range(folds.max() + 1):
        out = folds == fold
        means = class_means(x[~out], y[~out])
        # δ = x_i − μ_c for all c at once: δᵀΣ⁻¹δ and δᵀΣ⁻¹r
        own = np.sum(x[out] * solved_x[out], axis=1)[:, None]
        quadratic = own - 2 * solved_x[out] @ means.T + np.sum(means * within.solve(means), axis=1)
        cross = np.sum(x[out] * solved_r[out], axis=1)[:, None] - solved_r[out] @ means.T
        scores[out] = -0.5 * (quadratic + gain[out, None] * cross**2)
    return scores
