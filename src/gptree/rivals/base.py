"""What every frozen-feature head shares: validated input, labels, and a softmax over its class scores."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data


class RivalClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A classifier on given features.

    A head fits itself to coded labels in `_fit` and returns unnormalised class log-probabilities from
    `_logits`. The features arrive as float64 or float32, whichever the caller has; float32 is about twice as
    fast.
    """

    classes_: np.ndarray
    n_features_in_: int

    @abstractmethod
    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Fit to features x (n, d) and class codes y (n,), each of 0 … C−1 present at least once."""

    @abstractmethod
    def _logits(self, x: np.ndarray) -> np.ndarray:
        """Unnormalised class log-probabilities (n, C)."""

    def fit(self, X: Any, y: Any) -> Self:
        x, y = validated(self, X, y)
        with one_shot_allowed():
            check_classification_targets(y)
            classes, codes = np.unique(y, return_inverse=True)
            if len(classes) < 2:
                raise ValueError(f"{type(self).__name__} needs at least two classes, but y holds only one class.")
            self._fit(x, codes)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return softmax(self._checked_logits(X), axis=1)

    def predict(self, X: Any) -> np.ndarray:
        best = self._checked_logits(X).argmax(axis=1)
        return self.classes_[best]

    def _checked_logits(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._logits(validated(self, X, reset=False))


def validated(head: RivalClassifier, *arrays: Any, reset: bool = True) -> Any:
    """X, or X and y, checked; `reset` takes the number of features from X instead of checking it."""
    return validate_data(head, *arrays, reset=reset, dtype=[np.float64, np.float32])


@contextmanager
def one_shot_allowed() -> Iterator[None]:
    """scikit-learn warns of one shot a class as if it were a slip; here it is a use."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The number of unique classes is greater")
        yield
