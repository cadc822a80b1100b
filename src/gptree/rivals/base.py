"""`RivalClassifier`, the base of all rivals on given features, and their registries."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

Registry = dict[str, Callable[..., Any]]

RIVALS: Registry = {}
"""Classifiers on frozen features, by name: each value called without arguments makes one with its default settings."""


class RivalClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A classifier on given features, to compare with.

    A subclass fits itself to class codes in `_fit` and returns unnormalised class log-probabilities from `_logits`.
    The features arrive as float64 or float32, whichever the caller has; float32 is about twice as fast.

    A subclass with a `name` enters the registry of its family when it is defined, and the conformance tests of that
    family run over it. Nothing else has to be edited.

    Attributes
    ----------
    name : str
        Class variable: the name in the registry. A subclass without a name of its own is not registered.
    variants : Mapping[str, Mapping[str, Any]]
        Class variable: further names, each with the settings that it stands for.
    classes_ : ndarray (C,)
        The labels, in the order of the columns of `predict_proba`.

    Examples
    --------
    >>> class Uniform(RivalClassifier):
    ...     name = "uniform"
    ...     def _fit(self, x, y): self.n_classes_ = y.max() + 1
    ...     def _logits(self, x): return np.zeros((len(x), self.n_classes_))
    """

    name: ClassVar[str]
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    registry: ClassVar[Registry] = RIVALS

    classes_: np.ndarray
    n_features_in_: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in vars(cls):
            return
        for name, settings in {cls.name: {}, **cls.variants}.items():
            other = cls.registry.get(name)
            family = getattr(other, "func", other)  # a variant is a partial of its class
            if family is not None and (family.__module__, family.__qualname__) != (cls.__module__, cls.__qualname__):
                raise TypeError(f"{family.__module__} has a rival {name!r}: choose another name.")
            cls.registry[name] = partial(cls, **settings) if settings else cls

    @abstractmethod
    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Fit to features x (n, d) and class codes y (n,), each of 0 … C−1 present at least once."""

    @abstractmethod
    def _logits(self, x: np.ndarray) -> np.ndarray:
        """Unnormalised class log-probabilities (n, C)."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to features X (n, d) and labels y (n,) of at least two classes."""
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
        """Class probabilities (n, C), columns in the order of `classes_`."""
        return softmax(self._checked_logits(X), axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest label of each row (n,)."""
        best = self._checked_logits(X).argmax(axis=1)
        return self.classes_[best]

    def _checked_logits(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._logits(validated(self, X, reset=False))


def validated(rival: RivalClassifier, *arrays: Any, reset: bool = True) -> Any:
    """X, or X and y, checked; `reset` takes the number of features from X instead of checking it."""
    return validate_data(rival, *arrays, reset=reset, dtype=[np.float64, np.float32])


@contextmanager
def one_shot_allowed() -> Iterator[None]:
    """Silence scikit-learn's warning of few examples a class: here they are the use."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The number of unique classes is greater")
        yield
