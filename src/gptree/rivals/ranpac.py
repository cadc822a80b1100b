"""RanPAC (McDonnell et al. 2023): ridge prototypes on random ReLU features."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from gptree.rivals.base import Head
from gptree.rivals.left_out import fit_temperature, shot_folds

ONE_SHOT = (5.0, 150.0)  # penalty in units of the mean of ‖h(x)‖², temperature


class RanPAC(Head):
    """Scores h(x)ᵀ (HᵀH + λI)⁻¹ HᵀY with h(x) = relu(Wᵀx), W ~ N(0, 1) of shape (d, `features`), Y one-hot.

    λ, from `penalties`, has the least squared error on one fifth of each class, fitted on the rest, as in the
    paper; the temperature, which the paper lacks, is fitted to the same held-out scores. Where every class
    has one example the two are `ONE_SHOT`.

    Cost: min(n, `features`)³/3 operations for each λ; the smaller side of H is the one that is factorised.
    Fitted: `penalty_`, `temperature_`, `projection_` (d, `features`), `coef_` (`features`, C).
    """

    def __init__(
        self,
        features: int = 10_000,
        penalties: tuple[float, ...] = tuple(10.0**power for power in range(-8, 9)),
        random_state: int = 0,
    ):
        self.features = features
        self.penalties = penalties
        self.random_state = random_state

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        rng = np.random.default_rng(self.random_state)
        self.projection_ = rng.standard_normal((x.shape[1], self.features)).astype(x.dtype)
        h = self._lift(x)
        targets = np.eye(y.max() + 1, dtype=x.dtype)[y]
        out = shot_folds(y, limit=5) == 0
        if out.any():
            self.penalty_, held_out = self._choose(h, targets, out)
            self.temperature_, _ = fit_temperature(held_out, y[out])
        else:
            self.penalty_ = ONE_SHOT[0] * float(np.mean(np.sum(h**2, axis=1)) or 1.0)
            self.temperature_ = ONE_SHOT[1]
        self.coef_ = RidgePath(h, targets).weights(self.penalty_)

    def _lift(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x @ self.projection_, 0)

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
        return self.temperature_ * (self._lift(x) @ self.coef_)


class RidgePath:
    """Ridge weights of targets on h for several penalties; the Gram matrix of h's smaller side is made once.

    Penalties below the rounding error of the Gram matrix, `least_penalty`, are raised to it.
    """

    def __init__(self, h: np.ndarray, targets: np.ndarray):
        self.h, self.targets = h, targets
        self.dual = len(h) < h.shape[1]
        self.gram = h @ h.T if self.dual else h.T @ h
        self.least_penalty = 10 * float(np.finfo(h.dtype).eps * np.trace(self.gram)) or 1.0

    def weights(self, penalty: float) -> np.ndarray:
        gram = self.gram.copy()
        gram[np.diag_indices(len(gram))] += max(penalty, self.least_penalty)
        factor = cho_factor(gram, overwrite_a=True)
        if self.dual:  # Hᵀ (HHᵀ + λI)⁻¹ Y = (HᵀH + λI)⁻¹ HᵀY
            return self.h.T @ cho_solve(factor, self.targets)
        return cho_solve(factor, self.h.T @ self.targets)
