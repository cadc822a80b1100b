"""Logistic regression on a memory of examples, fitted anew in every session."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gptree.incremental.exemplars import KMeansExemplars, select_exemplars
from gptree.rivals.frozen.logistic import GRID, LogisticClassifier
from gptree.rivals.incremental.base import IncrementalRival
from gptree.settings import require
from gptree.tree import label_hashes


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticMemory(IncrementalRival):
    """Class-balanced logistic regression on a few exemplars of each base class and all examples of later ones.

    The exemplars of a class are its examples nearest to each of `exemplars` k-means centres. The penalty is
    chosen by cross-validation on the memory, anew in every session: keeping the base's is faster, as accurate,
    and at times less calibrated.

    Parameters
    ----------
    exemplars : int
        Examples kept of every base class.
    grid : tuple of float
        The inverse penalties to choose from, as in `LogisticClassifier`.
    random_state : int
        Seed of the k-means.

    Attributes
    ----------
    C_ : float
    coef_, intercept_ : ndarray (C, d) and (C,)
    memory_, codes_ : ndarray (n, d) and (n,)
        The examples kept, and their classes.

    Examples
    --------
    >>> from gptree.rivals import LogisticMemory
    >>> rival = LogisticMemory().fit([[1.0, 0.0], [0.0, 1.0]], [0, 1]).add_classes([[-1.0, 0.0]], [2])
    """

    name = "logistic-memory"
    exemplars: int = 5
    grid: tuple[float, ...] = GRID
    random_state: int = 0

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        require(self.exemplars >= 1, f"exemplars must be at least 1, got {self.exemplars}.")
        hashes = label_hashes(range(y.max() + 1))
        kept = select_exemplars(x, y, self.exemplars, KMeansExemplars(), hashes, self.random_state).rows
        self._refit(x[kept], y[kept])

    def _add(self, x: np.ndarray, y: np.ndarray) -> None:
        codes = len(self.classes_) + y
        self._refit(np.concatenate([self.memory_, x]), np.concatenate([self.codes_, codes]))

    def _refit(self, x: np.ndarray, y: np.ndarray) -> None:
        model = LogisticClassifier(grid=self.grid, balanced=True)
        model._fit(x, y)
        self.C_, self.coef_, self.intercept_ = model.C_, model.coef_, model.intercept_
        self.memory_, self.codes_ = x, y

    def _logits(self, x: np.ndarray) -> np.ndarray:
        return x @ self.coef_.T + self.intercept_
