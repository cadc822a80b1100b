"""The most probable classes of rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gptree.settings import require


class TopK(NamedTuple):
    """The most probable classes of n rows."""

    classes: np.ndarray
    """(n, k) labels, the most probable first; of equal ones, the first of `classes_`."""
    probabilities: np.ndarray
    """(n, k)."""
    outside: np.ndarray
    """(n,) the probability of all other classes together: no single one of them has more."""


def check_top(k: Any, n_classes: int) -> None:
    """Raise unless a model of so many classes has k of them."""
    whole = isinstance(k, int | np.integer) and not isinstance(k, bool)
    require(
        bool(whole and 1 <= k <= n_classes), f"k must be a whole number from 1 to the {n_classes} classes, not {k!r}."
    )


def top_k(labels: np.ndarray, p: np.ndarray, k: int) -> TopK:
    """Of class probabilities (n, C)."""
    first = np.argsort(-p, axis=1, kind="stable")[:, :k]
    chosen = np.take_along_axis(p, first, 1)
    others = p.copy()
    np.put_along_axis(others, first, 0.0, 1)
    return TopK(labels[first], chosen, others.sum(1))
