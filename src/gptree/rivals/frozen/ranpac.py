"""RanPAC (McDonnell et al. 2023): ridge prototypes on random ReLU features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from gptree.rivals.base import RivalClassifier
from gptree.rivals.left_out import fit_temperature, shot_folds

PENALTIES = tuple(10.0**power for power in range(-8, 9))
ONE_SHOT = (5.0, 150.0)  # penalty in units of the mean of ‖h(x)‖², temperature


@dataclass(kw_only=True, eq=False, repr=False)
class RanPAC(RivalClassifier):
    """Scores h(x)ᵀ (HᵀH + λI)⁻¹ HᵀY with h(x) = relu(Wᵀx), W ~ N(0, 1) of shape (d, `features`), Y one-hot.

    λ has the least squared error on one fifth of each class, fitted on the rest, as in the paper; the temperature,
    which the paper lacks, is fitted to the same held-out scores. Where every class has one example the two are
    `ONE_SHOT`. The cost is min(n, `features`)³/3 operations for each λ; the smaller side of H is factorised.

    Parameters
    ----------
    features : int
    penalties : tuple of float
        The λ to choose from.
    random_state : int
        Seed of W.

    Attributes
    ----------
    penalty_, temperature_ : float
    projection_ : ndarray (d, `features`)
    coef_ : ndarray (`features`, C)

    Examples
    --------
    >>> from gptree.rivals import RanPAC
    >>> RanPAC(features=50).fit([[1.0, 0.0], [0.0, 1.0]], [0, 1]).predict([[0.9, 0.1]])
    array([0])
    """

    name = "ranpac"
    features: int = 10_000
    penalties: tuple[float, ...] = PENALTIES
    random_state: int = 0

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        self.projection_ = random_projection(x, self.features, self.random_state)
        h = relu_features(x, self.projection_)
        targets = one_hot(y, h.dtype)
        out = held_out(y)
        if out.any():
            self.penalty_, scores = self._choose(h, targets, out)
            self.temperature_, _ = fit_temperature(scores, y[out])
        else:
            self.penalty_, self.temperature_ = one_shot(h)
        self.coef_ = RidgePath(h, targets).weights(self.penalty_)

    def _choose(self, h: np.ndarray, targets: np.ndarray, out: np.ndarray) -> tuple[float, np.ndarray]:
        """The penalty with the least squared error on `out` when fitted on the rest, and its scores there."""
        path = RidgePath(h[~out], targets[~out])
        best, chosen = np.inf, (0.0, np.empty(0))
        for penalty in sorted({max(penalty, path.least_penalty) for penalty in self.penalties}):
            scores = h[out] @ path.weights(penalty)
            loss = float(np.mean((scores - targets[out]) ** 2))
            if loss < best:
                best, chosen = loss, (penalty, scores)
        return chosen

    def _logits(self, x: np.ndarray) -> np.ndarray:
        return self.temperature_ * (relu_features(x, self.projection_) @ self.coef_)


class RidgePath:
    """Ridge weights of targets on h for several penalties; the Gram matrix of h's smaller side is made once."""

    def __init__(self, h: np.ndarray, targets: np.ndarray):
        self.h, self.targets = h, targets
        self.dual = len(h) < h.shape[1]
        self.gram = h @ h.T if self.dual else h.T @ h
        self.least_penalty = least_penalty(self.gram)

    def weights(self, penalty: float) -> np.ndarray:
        if self.dual:  # Hᵀ (HHᵀ + λI)⁻¹ Y = (HᵀH + λI)⁻¹ HᵀY
            return self.h.T @ ridge_solve(self.gram, self.targets, penalty)
        return ridge_solve(self.gram, self.h.T @ self.targets, penalty)


def ridge_solve(gram: np.ndarray, right: np.ndarray, penalty: float) -> np.ndarray:
    """(G + λI)⁻¹ times `right`, where a λ below the rounding error of G, `least_penalty`, is raised to it."""
    gram = gram.copy()
    gram[np.diag_indices(len(gram))] += max(penalty, least_penalty(gram))
    return cho_solve(cho_factor(gram, overwrite_a=True), right)


def least_penalty(gram: np.ndarray) -> float:
    return 10 * float(np.finfo(gram.dtype).eps * np.trace(gram)) or 1.0


def held_out(y: np.ndarray) -> np.ndarray:
    """Whether a point is in the fifth of its class that settings are chosen on; (n,), none if all are alone."""
    return shot_folds(y, limit=5) == 0


def one_shot(h: np.ndarray) -> tuple[float, float]:
    """Penalty and temperature where every class has one example."""
    return ONE_SHOT[0] * float(np.mean(np.sum(h**2, axis=1)) or 1.0), ONE_SHOT[1]


def one_hot(y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.eye(y.max() + 1, dtype=dtype)[y]


def random_projection(x: np.ndarray, features: int, seed: int) -> np.ndarray:
    """W (d, features) of independent N(0, 1) for rows like those of x (n, d)."""
    return np.random.default_rng(seed).standard_normal((x.shape[1], features)).astype(x.dtype)


def relu_features(x: np.ndarray, projection: np.ndarray) -> np.ndarray:
    """relu(Wᵀx) of each row, (n, features)."""
    return np.maximum(x @ projection, 0)
