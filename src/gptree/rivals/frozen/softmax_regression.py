"""Softmax regression on given features with soft targets, and the choice of its settings on left-out rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from gptree.rivals.frozen.logistic import FEW_POINTS
from gptree.rivals.left_out import fit_temperature, shot_folds
from gptree.settings import require

FOLDS = 5
#: Relative gain of the objective at which a fit ends: that to predict with, and those among which settings are chosen.
TOLERANCE, TOLERANCE_OF_SEARCH = 1e-11, 1e-6
#: Steps on a grid of settings, those along one axis first.
NEIGHBOURS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1), (1, 1), (-1, -1))

Fold = tuple[np.ndarray, np.ndarray]
"""Rows to fit to, and rows left out; both (n,) of truth values."""


def require_positive(name: str, grid: tuple[float, ...]) -> None:
    """Raise a ValueError unless a grid holds positive numbers."""
    require(len(grid) > 0 and min(grid) > 0, f"{name} must hold positive numbers, got {grid}.")


class Weights(NamedTuple):
    """Class scores φ W + b."""

    coef: np.ndarray
    """W (D, C)."""
    intercept: np.ndarray
    """b (C,)."""

    def scores(self, phi: np.ndarray) -> np.ndarray:
        return phi @ self.coef + self.intercept


def smoothed_targets(y: np.ndarray, smoothing: float) -> np.ndarray:
    """(1 − ε) [y = c] + ε/C, (n, C)."""
    classes = int(y.max()) + 1
    return (1 - smoothing) * np.eye(classes)[y] + smoothing / classes


def fit_softmax(
    phi: np.ndarray, targets: np.ndarray, C: float, start: Weights | None = None, tolerance: float = TOLERANCE
) -> Weights:
    """The W and b with the least C Σ_ic −t_ic log softmax_c(φ_i W + b) + ½ ‖W‖², b free.

    By L-BFGS in coordinates whose curvature at equal probabilities is about one: fast where the columns of φ (n, D) are
    orthogonal. Targets t are (n, C), rows of sum one.
    """
    (n, classes), dtype = targets.shape, phi.dtype
    squares = np.append(np.einsum("ij,ij->j", phi, phi), n).astype(np.float64)
    unit = 1 / np.sqrt(squares / (classes * n) + np.append(np.full(phi.shape[1], 1 / (C * n)), 0))[:, None]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        both = unit * flat.reshape(-1, classes)
        W = both[:-1]
        log_p = log_softmax(phi @ W.astype(dtype) + both[-1].astype(dtype), axis=1)
        value = -np.vdot(targets, log_p) / n + 0.5 * np.vdot(W, W) / (C * n)
        error = (np.exp(log_p) - targets) / n
        gradient = np.concatenate([phi.T @ error + W / (C * n), error.sum(axis=0)[None]])
        return float(value), (unit * gradient).ravel()

    first = np.zeros((len(unit), classes)) if start is None else np.vstack([*start]) / unit
    options = {"maxiter": 1000, "maxcor": 20, "ftol": tolerance, "gtol": 1e-9}
    both = unit * minimize(loss, first.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(-1, classes)
    return Weights(both[:-1], both[-1])


def orthogonal_basis(z: np.ndarray) -> np.ndarray:
    """Directions (r, d) in which the rows of z vary, orthonormal: z Vᵀ has orthogonal columns.

    Those of no variance are left out. Weights that are penalised by their length lie in the span of the others.
    """
    if len(z) < z.shape[1]:
        _, s, V = np.linalg.svd(z, full_matrices=False)
        return V[s > s[0] * np.finfo(z.dtype).eps * len(s)] if s[0] > 0 else V[:1]
    values, vectors = np.linalg.eigh(z.T @ z)
    return vectors.T[values > values[-1] * np.finfo(z.dtype).eps * len(values)] if values[-1] > 0 else vectors.T[:1]


def left_out_folds(y: np.ndarray) -> list[Fold]:
    """Five folds of shots, or one of the five above `FEW_POINTS` rows; none where every class has one example."""
    folds = shot_folds(y, limit=FOLDS)
    count = folds.max() + 1 if len(y) <= FEW_POINTS else 1
    return [(folds != fold, folds == fold) for fold in range(count)] if (folds >= 0).any() else []


class LeftOut:
    """Left-out scores of one set of features along several settings, each fit starting from the one before."""

    def __init__(self, phi: np.ndarray, y: np.ndarray, folds: list[Fold]) -> None:
        self.phi, self.y, self.folds = phi, y, folds
        self.fits: list[Weights | None] = [None] * len(folds)

    def temperature(self, C: float, smoothing: float) -> tuple[float, float]:
        """The temperature of least left-out NLL, and that NLL."""
        targets = smoothed_targets(self.y, smoothing).astype(self.phi.dtype)
        scores = []
        for number, (rest, out) in enumerate(self.folds):
            fit = fit_softmax(self.phi[rest], targets[rest], C, self.fits[number], TOLERANCE_OF_SEARCH)
            scores.append(fit.scores(self.phi[out]))
            self.fits[number] = fit
        return fit_temperature(np.concatenate(scores), np.concatenate([self.y[out] for _, out in self.folds]))


Scored = Callable[[float, float], tuple[float, float]]
"""(C, another setting) → temperature and left-out NLL."""


def choose(scored: Scored, grid: tuple[float, ...], others: tuple[float, ...]) -> tuple[float, float, float]:
    """C, the other setting and the temperature of least left-out NLL, which is taken to have one valley on the grid."""
    scored = functools.cache(scored)
    i, j = descend(lambda i, j: scored(grid[i], others[j])[1], (len(grid), len(others)))
    return grid[i], others[j], scored(grid[i], others[j])[0]


def descend(loss: Callable[[int, int], float], shape: tuple[int, int]) -> tuple[int, int]:
    """Place on a grid whose eight neighbours are not lower: from the middle on to the first neighbour that is lower."""
    i, j = shape[0] // 2, shape[1] // 2
    while True:
        near = ((i + a, j + b) for a, b in NEIGHBOURS if 0 <= i + a < shape[0] and 0 <= j + b < shape[1])
        lower = next((place for place in near if loss(*place) < loss(i, j)), None)
        if lower is None:
            return i, j
        i, j = lower
