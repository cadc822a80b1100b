"""RanPAC (McDonnell et al. 2023) for classes that arrive later."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gptree.rivals.frozen.ranpac import (
    PENALTIES,
    held_out,
    one_hot,
    one_shot,
    random_projection,
    relu_features,
    ridge_solve,
)
from gptree.rivals.incremental.rehearsal import RehearsedRival
from gptree.rivals.left_out import fit_temperature


@dataclass(kw_only=True, eq=False, repr=False)
class SessionRanPAC(RehearsedRival):
    """`RanPAC` for classes that arrive later: sessions add to the Gram matrix and to the class sums.

    The paper chooses λ in every session on a fifth of the session's data, which suits neither sessions of a few shots
    nor, taken from the base, what comes after it. Here λ is chosen in the base session, by `rehearse`. The temperature
    is fitted on one fifth of each base class. Where every base class has one example the two are `ONE_SHOT`.

    Parameters
    ----------
    balanced : bool
        Every class has the same weight in both, so that one of five shots counts as much as one of hundreds.
        Otherwise every example has, as in the paper.
    features : int
        The paper has 10,000; a session costs their cube, the memory is their square.
    penalties : tuple of float
        The λ to choose from.
    shots : int
        Examples that novel classes have where λ is chosen.
    random_state : int
        Seed of the random features and of the rehearsals.

    Examples
    --------
    >>> from gptree.rivals import SessionRanPAC
    >>> rival = SessionRanPAC(features=50).fit([[1.0, 0.0], [0.0, 1.0]], [0, 1]).add_classes([[-1.0, 0.0]], [2])
    """

    name = "ranpac"
    variants: ClassVar = {"ranpac-balanced": {"balanced": True}}
    balanced: bool = False
    features: int = 2_000
    penalties: tuple[float, ...] = PENALTIES
    shots: int = 5
    random_state: int = 0

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
