"""Rivals on the features as the forest sees them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from gptree.estimators import SphereMap


class Mapped(BaseEstimator):
    """An incremental rival behind `SphereMap`, fitted to the base session.

    The map is what the trees use by default and helps most methods: with it they are compared, and not their features.
    """

    def __init__(self, rival: Any):
        self.rival = rival

    def fit(self, X: Any, y: Any) -> Self:
        self.map_: Any = SphereMap().fit(X)
        self.rival.fit(self.map_.transform(X), y)
        return self

    def add_classes(self, X: Any, y: Any) -> Self:
        self.rival.add_classes(self.map_.transform(X), y)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return self.rival.predict_proba(self.map_.transform(X))

    @property
    def classes_(self) -> np.ndarray:
        return self.rival.classes_

    @property
    def memory_bytes_(self) -> int:
        return self.rival.memory_bytes_ + self.map_.mean_.nbytes
