"""Left-out scores, on which the rivals choose their settings: never on a test set.

Folds leave one shot out: fold k drops the k-th example of every class, so that the classes stay balanced and
every class keeps at least one example. The only example of a class is never left out, and so never scored.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from gptree import experts

LOG_TEMPERATURES = (-5.0, 8.0)  # far beyond what any rival needs on features of unit scale

Scorer = Callable[[np.ndarray], np.ndarray]


def shot_folds(y: np.ndarray, limit: int) -> np.ndarray:
    """Fold of each point (n,): its number inside its class modulo `limit`; −1 if it is alone in its class."""
    return experts.shot_folds(torch.as_tensor(y), limit).numpy()


def left_out_scores(
    scorer: Callable[[np.ndarray, np.ndarray], Scorer], x: np.ndarray, y: np.ndarray, folds: np.ndarray
) -> np.ndarray:
    """Scores (n, C) of each point by `scorer` fitted without the point's fold; NaN where the fold is −1."""
    scores = np.full((len(y), y.max() + 1), np.nan)
    for fold in range(folds.max() + 1):
        out = folds == fold
        scores[out] = scorer(x[~out], y[~out])(x[out])
    return scores


def mean_nll(log_p: np.ndarray, y: np.ndarray) -> float:
    """Mean negative log-likelihood, labels smoothed by 1/(2n) so that faultless scores stay finite."""
    smoothing = 0.5 / len(y)
    of_true_class = log_p[np.arange(len(y)), y]
    return -float(np.mean((1 - smoothing) * of_true_class + smoothing * log_p.mean(axis=1)))


def fit_temperature(scores: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The τ at which log-softmax(τ · scores) has the least mean NLL, and that NLL.

    `gptree.experts` has another objective, a prior on log τ instead of smoothed labels. The published numbers of the
    rivals are of this one.
    """

    def loss(log_tau: float) -> float:
        return mean_nll(log_softmax(np.exp(log_tau) * scores, axis=1), y)

    best = minimize_scalar(loss, bounds=LOG_TEMPERATURES, method="bounded", options={"xatol": 1e-3})
    return float(np.exp(best.x)), float(best.fun)  # pyright: ignore[reportAttributeAccessIssue]


def scale_of(x: np.ndarray) -> float:
    """Root mean square distance of the rows from their mean; 1 where all rows are equal."""
    return float(np.sqrt(np.mean(np.sum((x - x.mean(axis=0)) ** 2, axis=1)))) or 1.0


def class_means(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Means (C, d) of the classes 0 … C−1."""
    counts = np.bincount(y)
    sums = np.add.reduceat(x[np.argsort(y, kind="stable")], np.cumsum(counts) - counts)
    return sums / counts[:, None].astype(x.dtype)
