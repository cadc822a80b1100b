"""Maps from raw features to the unit vectors that the kernels see; ordinary scikit-learn transformers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from gptree.tree import unit_length


class _FloatTransformer(TransformerMixin, BaseEstimator, ABC):
    """Keeps float32 as float32 and turns everything else into float64."""

    def _validated(self, X: Any, reset: bool) -> np.ndarray:
        return np.asarray(validate_data(self, X, dtype=[np.float64, np.float32], reset=reset))

    def fit(self, X: Any, y: Any = None) -> _FloatTransformer:
        self._learn(self._validated(X, reset=True))
        return self

    def transform(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._map(self._validated(X, reset=False))

    def _learn(self, X: np.ndarray) -> None:
        """What is learned from the training features: nothing, unless a map says otherwise."""

    @abstractmethod
    def _map(self, X: np.ndarray) -> np.ndarray: ...

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")


class UnitLength(_FloatTransformer):
    """Rows scaled to unit length: the paper's normalisation."""

    def _map(self, X: np.ndarray) -> np.ndarray:
        return unit_length(X)


class SphereMap(_FloatTransformer):
    """Square roots if no training feature is negative, unit length, minus the training mean, unit length again.

    Embeddings share a large common direction, and those that come out of a rectifier are skewed; without either, inner
    products tell classes apart better. Later negatives of a non-negative feature set are clamped at 0.

    Attributes
    ----------
    non_negative_ : bool
    mean_ : (n_features,) mean of the training rows after the first scaling.
    """

    def _learn(self, X: np.ndarray) -> None:
        self.non_negative_ = bool((X >= 0).all())
        self.mean_ = self._first(X).mean(0)

    def _first(self, X: np.ndarray) -> np.ndarray:
        if self.non_negative_:
            # the largest entry of each row goes first: square roots of tiny numbers keep their ratios
            X = np.sqrt(np.clip(X, 0.0, None))
        return unit_length(X)

    def _map(self, X: np.ndarray) -> np.ndarray:
        return unit_length(self._first(X) - self.mean_.astype(X.dtype))


FEATURE_MAPS = {"sphere": SphereMap, "unit": UnitLength}


def make_feature_map(spec: Any) -> Any:
    """None (features as they are), "sphere", "unit", or a copy of the user's transformer, not yet fitted."""
    if spec is None:
        return None
    if isinstance(spec, str):
        if spec not in FEATURE_MAPS:
            raise ValueError(f"unknown feature_map {spec!r}; name one of {sorted(FEATURE_MAPS)} or give a transformer.")
        return FEATURE_MAPS[spec]()
    if not hasattr(spec, "fit") or not hasattr(spec, "transform"):
        raise TypeError(f"feature_map must be None, a name or a transformer with fit and transform, not {spec!r}.")
    return clone(spec)
