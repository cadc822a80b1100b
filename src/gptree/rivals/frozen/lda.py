"""Linear discriminant analysis with Ledoit-Wolf shrinkage."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.covariance import ledoit_wolf_shrinkage

from gptree.rivals.base import RivalClassifier
from gptree.rivals.left_out import class_means, fit_temperature, scale_of, shot_folds

LEAST_SHRINKAGE = 1e-6  # keeps the covariance positive definite where a feature is constant
ONE_SHOT_PRECISION = 14.0  # as the temperature of the nearest class mean, which LDA is then


class ShrinkageLDA(RivalClassifier):
    """Gaussian classes of equal weight with one covariance Σ, pooled within classes and shrunk towards I.

    The logit of class c is −τ/2 (x − μ_c)ᵀ Σ⁻¹ (x − μ_c); the temperature τ has the least left-out NLL. Where
    no class varies (one example each), Σ is I times the mean squared distance of the points from their mean
    over `ONE_SHOT_PRECISION`, and τ = 1.

    Attributes
    ----------
    means_ : ndarray (C, d)
    shrinkage_, temperature_ : float
    coef_, intercept_ : ndarray (C, d) and (C,)

    Examples
    --------
    >>> from gptree.rivals import ShrinkageLDA
    >>> ShrinkageLDA().fit([[0.0], [0.2], [1.0], [1.2]], [0, 0, 1, 1]).predict([[0.9]])
    array([1])
    """

    name = "lda"

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        x = x.astype(np.float64)  # a covariance shrunk by little is near singular
        self.means_ = class_means(x, y)
        residuals, covariance = x - self.means_[y], within_covariance(x, y)
        self.shrinkage_, self.temperature_ = 1.0, 1.0
        if np.sum(residuals**2) > 0:
            by_ledoit_wolf = float(ledoit_wolf_shrinkage(residuals, assume_centered=True))
            self.shrinkage_ = max(by_ledoit_wolf, LEAST_SHRINKAGE)
            self.temperature_ = left_out_temperature(x, y, covariance, self.shrinkage_)
        coef, self.intercept_ = discriminant(self.means_, covariance, self.shrinkage_)
        self.coef_ = coef.T

    def _logits(self, x: np.ndarray) -> np.ndarray:
        return self.temperature_ * (x @ self.coef_.T + self.intercept_)


def within_covariance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """S = RᵀR/n of the residuals R of x from the class means, or its stand-in where no class varies."""
    residuals = x - class_means(x, y)[y]
    covariance = residuals.T @ residuals / len(x)
    if np.trace(covariance) > 0:
        return covariance
    return np.eye(x.shape[1]) * scale_of(x) ** 2 / ONE_SHOT_PRECISION


def discriminant(means: np.ndarray, covariance: np.ndarray, shrinkage: float) -> tuple[np.ndarray, np.ndarray]:
    """W (d, C) and b (C,) with xᵀW + b = −½ (x − μ_c)ᵀ Σ_λ⁻¹ (x − μ_c) but for what is common to all classes."""
    coef = _solve(covariance, shrinkage, means).T
    return coef, -0.5 * np.sum(coef * means.T, axis=0)


def _solve(covariance: np.ndarray, shrinkage: float, rows: np.ndarray) -> np.ndarray:
    """Σ_λ⁻¹ times each row, Σ_λ = (1 − λ) S + λ tr(S)/d I."""
    sigma = (1 - shrinkage) * covariance
    sigma[np.diag_indices(len(sigma))] += shrinkage * np.trace(covariance) / len(sigma)
    return cho_solve(cho_factor(sigma, overwrite_a=True), rows.T).T


def left_out_temperature(x: np.ndarray, y: np.ndarray, covariance: np.ndarray, shrinkage: float) -> float:
    """The τ of least left-out NLL; at least one class must have two examples."""
    scores = left_out_discriminant(x, y, covariance, shrinkage)
    scored = ~np.isnan(scores[:, 0])
    return fit_temperature(scores[scored], y[scored])[0]


def left_out_discriminant(x: np.ndarray, y: np.ndarray, covariance: np.ndarray, shrinkage: float) -> np.ndarray:
    """Scores −½ (x_i − μ_c)ᵀ Σ_λ⁻¹ (x_i − μ_c), (n, C): μ_c without the fold of x_i, S without x_i.

    Taking x_i out of its class changes nS by −n_y/(n_y − 1) r rᵀ, r = x_i − μ_y: a rank-one change of Σ_λ
    (Sherman and Morrison). λ, n and the trace are kept. Points whose fold is −1 get NaN.
    """
    counts, folds = np.bincount(y)[y], shot_folds(y, limit=30)
    solved_x = _solve(covariance, shrinkage, x)
    r, solved_r = x - class_means(x, y)[y], solved_x - class_means(solved_x, y)[y]
    a = (1 - shrinkage) / len(x) * counts / np.maximum(counts - 1, 1)
    gain = a / (1 - a * np.sum(r * solved_r, axis=1))
    scores = np.full((len(x), y.max() + 1), np.nan)
    for fold in range(folds.max() + 1):
        out = folds == fold
        means, solved_means = class_means(x[~out], y[~out]), class_means(solved_x[~out], y[~out])
        # δ = x_i − μ_c for all c at once: δᵀΣ⁻¹δ and δᵀΣ⁻¹r
        of_x = np.sum(x[out] * solved_x[out], axis=1)[:, None]
        quadratic = of_x - 2 * solved_x[out] @ means.T + np.sum(means * solved_means, axis=1)
        cross = np.sum(x[out] * solved_r[out], axis=1)[:, None] - solved_r[out] @ means.T
        scores[out] = -0.5 * (quadratic + gain[out, None] * cross**2)
    return scores
