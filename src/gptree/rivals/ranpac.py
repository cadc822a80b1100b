"""RanPAC (McDonnell et al. 2023): ridge prototypes on random ReLU features."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from gptree.rivals.base import RivalClassifier
from gptree.rivals.left_out import fit_temperature, shot_folds
from gptree.rivals.random_features import random_projection, relu_features
from gptree.rivals.rehearsal import RehearsedHead

PENALTIES = tuple(10.0**power for power in range(-8, 9))
ONE_SHOT = (5.0, 150.0)  # penalty in units of the mean of ‖h(x)‖², temperature


class RanPAC(RivalClassifier):
    """Scores h(x)ᵀ (HᵀH + λI)⁻¹ HᵀY with h(x) = relu(Wᵀx), W ~ N(0, 1) of shape (d, `features`), Y one-hot.

    λ, from `penalties`, has the least squared error on one fifth of each class, fitted on the rest, as in the
    paper; the temperature, which the paper lacks, is fitted to the same held-out scores. Where every class
    has one example the two are `ONE_SHOT`.

    Cost: min(n, `features`)³/3 operations for each λ; the smaller side of H is the one that is factorised.
    Fitted: `penalty_`, `temperature_`, `projection_` (d, `features`), `coef_` (`features`, C).
    """

    def __init__(self, features: int = 10_000, penalties: tuple[float, ...] = PENALTIES, random_state: int = 0):
        self.features = features
        self.penalties = penalties
        self.random_state = random_state

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


class SessionRanPAC(RehearsedHead):
    """`RanPAC` for classes that arrive later: sessions add to the Gram matrix and to the class sums.

    balanced: every class has the same weight in both, so that one of five shots counts as much as one of
        hundreds; otherwise every example has, as in the paper.
    penalties: the λ to choose from. The paper chooses it in every session on a fifth of the session's data,
        which suits neither sessions of a few shots nor, taken from the base, what comes after it. `shots` is the
        number of examples that novel classes have where λ is chosen. The temperature is fitted on one fifth
        of each base class.
    features: the paper has 10,000; a session costs their cube, the memory is their square.
    Where every base class has one example, λ and the temperature are `ONE_SHOT`.
    """

    def __init__(
        self,
        balanced: bool = False,
        features: int = 2_000,
        penalties: tuple[float, ...] = PENALTIES,
        shots: int = 5,
        random_state: int = 0,
    ):
        self.balanced = balanced
        self.features = features
        self.penalties = penalties
        self.shots = shots
        self.random_state = random_state

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        self.projection_ = random_projection(x, self.features, self.random_state)
        super()._fit(x, y)

    def _map(self, x: np.ndarray) -> np.ndarray:
        return relu_features(x, self.projection_)

    def _settings(self) -> tuple[float, ...]:
        return self.penalties

    def _begin(self, h: np.ndarray, y: np.ndarray) -> RidgeSums:
        nothing = np.zeros((h.shape[1], h.shape[1]), h.dtype), np.zeros((h.shape[1], 0), h.dtype)
        return RidgeSums(*nothing, self.balanced).add(h, y)

    def _temperature(self, h: np.ndarray, y: np.ndarray) -> float:
        out = held_out(y)
        coef, _ = self._begin(h[~out], y[~out]).weights(self.setting_)
        return fit_temperature(h[out] @ coef, y[out])[0]

    def _one_shot(self, h: np.ndarray) -> tuple[float, float]:
        return one_shot(h)


@dataclass(frozen=True, eq=False)
class RidgeSums:
    """G = Σ w h hᵀ and the sums of w h over each class, w = 1 or one over the size of the class."""

    gram: np.ndarray  # (D, D)
    sums: np.ndarray  # (D, C)
    balanced: bool

    def add(self, h: np.ndarray, y: np.ndarray) -> RidgeSums:
        w = 1 / np.bincount(y)[y] if self.balanced else np.ones(len(y))
        weighted = (h * w[:, None].astype(h.dtype)).T
        return replace(self, gram=self.gram + weighted @ h, sums=np.hstack([self.sums, weighted @ one_hot(y, h.dtype)]))

    def weights(self, setting: float) -> tuple[np.ndarray, np.ndarray]:
        return ridge_solve(self.gram, self.sums, setting), np.zeros(self.sums.shape[1])


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
    """Whether a point belongs to the fifth of its class that settings are judged by; (n,), none if all are alone."""
    return shot_folds(y, limit=5) == 0


def one_shot(h: np.ndarray) -> tuple[float, float]:
    """Penalty and temperature where every class has one example."""
    return ONE_SHOT[0] * float(np.mean(np.sum(h**2, axis=1)) or 1.0), ONE_SHOT[1]


def one_hot(y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.eye(y.max() + 1, dtype=dtype)[y]
