"""`IncrementalRival`, the base of rivals that learn further classes after they were fitted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from gptree.rivals.base import Registry, RivalClassifier, one_shot_allowed, validated

INCREMENTAL: Registry = {}
"""Rivals that learn further classes, by name: each value called without arguments makes one."""


class IncrementalRival(RivalClassifier):
    """A rival whose `fit` is the base session, and whose `add_classes` learns new classes, as often as needed.

    `classes_`, and so the columns of `predict_proba`, stand in order of arrival: the base sorted, then each
    session sorted. Settings left open are chosen in the base session, on left-out base points, unless a rival
    says otherwise. A subclass has `_fit`, `_add` and `_logits`. Its parameters `exemplars`, `shots` and `random_state`,
    where it has them, are set by `gptree.protocols.SessionMethod`.
    """

    registry: ClassVar[Registry] = INCREMENTAL

    @abstractmethod
    def _add(self, x: np.ndarray, y: np.ndarray) -> None:
        """Learn k new classes from features x (n, d) and codes y (n,), each of 0 … k−1 present.

        `classes_` still holds the classes before this session, and the new ones go behind them.
        """

    def add_classes(self, X: Any, y: Any) -> Self:
        """Learn new classes from features X (n, d) and labels y (n,).

        A label that has been learned already is an error, and the rival stays as it was.
        """
        check_is_fitted(self)
        x, y = validated(self, X, y, reset=False)
        with one_shot_allowed():
            check_classification_targets(y)
            new, codes = np.unique(y, return_inverse=True)
            require_new(new, self.classes_)
            self._add(x, codes)
        self.classes_ = np.concatenate([self.classes_, new])
        return self

    @property
    def memory_bytes_(self) -> int:
        """Bytes of all arrays that the rival holds, for its predictions and for later sessions."""
        check_is_fitted(self)
        return sum(array.nbytes for array in _arrays(self))


def require_new(labels: np.ndarray, known: np.ndarray) -> None:
    """Raise unless the labels of a session are of the kind of those known, and none of them."""
    if _is_text(labels) != _is_text(known):
        kinds = ("text", "numbers") if _is_text(labels) else ("numbers", "text")
        raise ValueError(f"The new labels are {kinds[0]} and the known ones {kinds[1]}; use one of the two.")
    old = np.intersect1d(labels, known)
    if len(old):
        raise ValueError(
            f"add_classes takes labels never seen before, but {len(old)} are known, the first {old[:1].tolist()[0]!r}; "
            "leave their rows out."
        )


def _arrays(holder: Any) -> Iterator[np.ndarray]:
    for value in vars(holder).values():
        if isinstance(value, np.ndarray):
            yield value
        elif is_dataclass(value):
            yield from _arrays(value)


def _is_text(labels: np.ndarray) -> bool:
    return labels.dtype.kind in "OUS"  # objects that are not text were refused as targets
