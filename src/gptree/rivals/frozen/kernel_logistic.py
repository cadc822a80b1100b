"""Kernel logistic regression."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

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

LENGTH_SCALES = (0.5, 1.0, 2.0, 4.0)
ONE_SHOT_LENGTH = 2.0
LEAST_EIGENVALUE = 1e-6  # of K on the landmarks, relative to the largest


@dataclass(kw_only=True, eq=False, repr=False)
class KernelLogistic(RivalClassifier):
    """Multinomial logistic regression on functions f_c of an RBF kernel, at a temperature.

    f has the least C Σ_i −log softmax_{y_i}(f(x_i) + b) + ½ Σ_c ‖f_c‖² in the norm of the kernel exp(−‖x − x′‖²/2ℓ²),
    and p(c | x) ∝ exp(τ (f_c(x) + b_c)). C, ℓ and τ have together the least left-out NLL, as in `SmoothedLogistic`.
    Where every class has one example, C is `ONE_SHOT_C` of `LogisticClassifier`, ℓ is `ONE_SHOT_LENGTH` and τ = 1.

    Parameters
    ----------
    grid : tuple of float
        The inverse penalties C to choose from, in order.
    length_scales : tuple of float
        The ℓ to choose from, in order, in units of the root mean square distance of the rows from their mean.
    landmarks : int
        f is a sum of kernel functions at so many training rows, as many of each class as possible (Nyström): it is
        exact up to this number of rows.
    random_state : int
        Seed of the landmarks.

    Attributes
    ----------
    C_, length_scale_, temperature_ : float
    landmarks_ : ndarray (m, d)
    coef_, intercept_ : ndarray (m, C) and (C,)
        Weights of the kernel functions, and b.

    Examples
    --------
    >>> from gptree.rivals import KernelLogistic
    >>> KernelLogistic().fit([[0.0], [0.1], [0.9], [1.0]], [0, 0, 1, 1]).predict([[0.8]])
    array([1])
    """

    name = "kernel-logistic"
    grid: tuple[float, ...] = GRID
    length_scales: tuple[float, ...] = LENGTH_SCALES
    landmarks: int = 2_000
    random_state: int = 0

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        require_positive("grid", self.grid)
        require_positive("length_scales", self.length_scales)
        require(self.landmarks >= 1, f"landmarks must be at least 1, got {self.landmarks}.")
        self.scale_ = scale_of(x)
        self.landmarks_ = x[spread_rows(y, self.landmarks, self.random_state)]
        folds = left_out_folds(y)

        @functools.cache
        def features(length_scale: float) -> tuple[np.ndarray, np.ndarray, LeftOut]:
            """Feature map (m, r) of the kernel functions, its mean, and left-out scores on the features."""
            to_features = self._feature_map(length_scale)
            phi = self._kernel(x, length_scale) @ to_features
            mean = phi.mean(axis=0)
            basis = orthogonal_basis(phi - mean)
            to_features, mean = to_features @ basis.T, basis @ mean
            return to_features, mean, LeftOut(phi @ basis.T - mean, y, folds)

        def scored(C: float, length_scale: float) -> tuple[float, float]:
            return features(length_scale)[2].temperature(C, 0.0)

        self.C_, self.length_scale_, self.temperature_ = ONE_SHOT_C, ONE_SHOT_LENGTH, 1.0
        if folds:
            self.C_, self.length_scale_, self.temperature_ = choose(scored, self.grid, self.length_scales)
        to_features, mean, left_out = features(self.length_scale_)
        weights = fit_softmax(left_out.phi.astype(np.float64), smoothed_targets(y, 0.0), self.C_)
        self.coef_ = to_features @ weights.coef
        self.intercept_ = weights.intercept - mean @ weights.coef

    def _kernel(self, x: np.ndarray, length_scale: float) -> np.ndarray:
        squared = euclidean_distances(x, self.landmarks_, squared=True)
        return np.exp(squared * x.dtype.type(-0.5 / (length_scale * self.scale_) ** 2))

    def _feature_map(self, length_scale: float) -> np.ndarray:
        """M (m, r) with k(x, X_m) M Mᵀ k(X_m, x′) ≈ k(x, x′), equal at the landmarks."""
        values, vectors = np.linalg.eigh(self._kernel(self.landmarks_, length_scale).astype(np.float64))
        kept = values > LEAST_EIGENVALUE * values[-1]
        return (vectors[:, kept] / np.sqrt(values[kept])).astype(self.landmarks_.dtype)

    def _logits(self, x: np.ndarray) -> np.ndarray:
        return self.temperature_ * (self._kernel(x, self.length_scale_) @ self.coef_ + self.intercept_)


def spread_rows(y: np.ndarray, limit: int, seed: int) -> np.ndarray:
    """At most `limit` random rows, in ascending order, as many of each class as possible."""
    if len(y) <= limit:
        return np.arange(len(y))
    order = np.random.default_rng(seed).permutation(len(y))
    by_class = order[np.argsort(y[order], kind="stable")]
    counts = np.bincount(y)
    shot = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)  # number of a row inside its class
    return np.sort(by_class[np.argsort(shot, kind="stable")[:limit]])
