"""Maps from raw features to the unit vectors that the kernels see; ordinary scikit-learn transformers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from gptree.maths.sphere import unit_length
from gptree.storage import JsonValue

#: Large matrices are worked on in pieces of about so many numbers, so that nothing but the result is of their size.
CHUNK_NUMBERS = 2**21


def row_chunks(X: np.ndarray) -> Iterator[slice]:
    """Slices over the rows of X (n, …), one after the other."""
    step = max(1, CHUNK_NUMBERS * len(X) // max(1, X.size))
    return (slice(start, start + step) for start in range(0, len(X), step))


def all_finite(X: np.ndarray) -> bool:
    return all(bool(np.isfinite(X[some]).all()) for some in row_chunks(X))


class _FloatTransformer(JsonValue, TransformerMixin, BaseEstimator, ABC):
    """Keeps float32 as float32 and turns everything else into float64."""

    def _validated(self, X: Any, reset: bool) -> np.ndarray:
        return np.asarray(validate_data(self, X, dtype=[np.float64, np.float32], reset=reset))

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> _FloatTransformer:
        X, weights = self._validated(X, reset=True), None
        if sample_weight is not None:
            weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
            X, weights = X[weights > 0], weights[weights > 0]
        self._learn(X, weights)
        return self

    def transform(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self.mapped(self._validated(X, reset=False))

    def mapped(self, X: np.ndarray) -> np.ndarray:
        """Rows (n, d) that are known to be valid, mapped."""
        out = np.empty(X.shape, dtype=X.dtype)
        for some in row_chunks(X):
            out[some] = self._map(X[some])
        return out

    def _learn(self, X: np.ndarray, weights: np.ndarray | None) -> None:
        """What is learned from rows that count `weights` (n,) times: nothing, unless a map says otherwise."""

    @abstractmethod
    def _map(self, X: np.ndarray) -> np.ndarray:
        """Some rows, each for itself."""

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

    def _learn(self, X: np.ndarray, weights: np.ndarray | None) -> None:
        self.non_negative_ = all(bool((X[some] >= 0).all()) for some in row_chunks(X))
        total = np.zeros(X.shape[1])  # in float64: a float32 sum over a million rows loses several digits
        for some in row_chunks(X):
            total += self._first(X[some]).sum(0) if weights is None else weights[some] @ self._first(X[some])
        self.mean_ = (total / (len(X) if weights is None else weights.sum())).astype(X.dtype)

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
