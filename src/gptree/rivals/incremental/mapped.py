"""`Mapped`: an incremental rival on the features as the forest sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from gptree.estimators import SphereMap


@dataclass(eq=False, repr=False)
class Mapped(BaseEstimator):
    """An incremental rival behind `SphereMap`, fitted to the base session.

    The map is what the trees use by default and helps most methods: with it they are compared, and not their features.

    Parameters
    ----------
    rival : IncrementalRival

    Examples
    --------
    >>> from gptree.rivals import INCREMENTAL, Mapped
    >>> model = Mapped(INCREMENTAL["slda"]())
    """

    rival: Any

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the map, then the rival, to the base session."""
        self.map_: Any = SphereMap().fit(X)
        self.rival.fit(self.map_.transform(X), y)
        return self

    def add_classes(self, X: Any, y: Any) -> Self:
        """Teach the rival new classes."""
        self.rival.add_classes(self.map_.transform(X), y)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities (n, C), columns in the order of `classes_`."""
        return self.rival.predict_proba(self.map_.transform(X))

    @property
    def classes_(self) -> np.ndarray:
        """The labels learned so far."""
        return self.rival.classes_

    @property
    def memory_bytes_(self) -> int:
        """Bytes that the rival and the map hold."""
        return self.rival.memory_bytes_ + self.map_.mean_.nbytes
