"""Logistic regression on a memory of examples, fitted anew in every session."""

from __future__ import annotations

import numpy as np

from gptree.incremental.exemplars import KMeansExemplars, select_exemplars
from gptree.rivals.incremental import IncrementalRival
from gptree.rivals.logistic import GRID, LogisticRival
from gptree.settings import require
from gptree.tree import label_hashes


class LogisticMemory(LogisticRival, IncrementalRival):
    """Class-balanced logistic regression on a few exemplars of each base class and all examples of later ones.

    The exemplars of a class are its examples nearest to each of `exemplars` k-means centres. The penalty is
    chosen by cross-validation on the memory, anew in every session: keeping the base's is faster, as accurate,
    and at times less calibrated.

    Fitted: as `LogisticRival`, and `memory_` (n, d), the examples kept, with their classes `codes_` (n,).
    """

    def __init__(self, exemplars: int = 5, grid: tuple[float, ...] = GRID, random_state: int = 0):
        super().__init__(grid=grid, balanced=True)
        self.exemplars = exemplars
        self.random_state = random_state

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        require(self.exemplars >= 1, f"exemplars must be at least 1, got {self.exemplars}.")
        hashes = label_hashes(range(y.max() + 1))
        kept = select_exemplars(x, y, self.exemplars, KMeansExemplars(), hashes, self.random_state).rows
        self._remember(x[kept], y[kept])

    def _add(self, x: np.ndarray, y: np.ndarray) -> None:
        codes = len(self.classes_) + y
        self._remember(np.concatenate([self.memory_, x]), np.concatenate([self.codes_, codes]))

    def _remember(self, x: np.ndarray, y: np.ndarray) -> None:
        super()._fit(x, y)
        self.memory_, self.codes_ = x, y
