"""Conformal prediction sets from left-out probabilities.

A class belongs to the set of a row if its probability is at least a threshold. The threshold comes from the
probabilities p_i that known rows give their own class, each without itself. If a new row is one more of these, its own
probability has each rank among them equally often, and falls below the k-th smallest of n with probability k / (n + 1).

Left-out rows know one example of their class less than a new row does, which makes their probabilities too small rather
than too large: sets err upwards.

Labels of known rows may be wrong, and those rows give their own class a tiny probability, as no new row does. So rows
count by the belief in their labels, if it is known.
"""

from __future__ import annotations

import numpy as np

#: Shares are compared up to rounding: 10 rows at coverage 0.9 leave room for one.
ROUNDING = 1e-9


def informative(y: np.ndarray) -> np.ndarray:
    """Rows (n,) whose left-out predictions say something: without its only example nothing is known of a class."""
    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    return counts[codes] > 1


def supported_coverage(y: np.ndarray, beliefs: np.ndarray | None = None) -> float:
    """The largest coverage that known rows of classes y (n,) support, classes counting equally.

    Parameters
    ----------
    y : int array (n,)
    beliefs : array (n,), optional
        That the labels are right; 1 by default.

    Returns
    -------
    float
        n / (n + 1) for n rows of classes of one size; 0 without rows.
    """
    if len(y) == 0:
        return 0.0
    weight, new = _weights(y, beliefs)
    return float(weight.sum() / (weight.sum() + new))


def probability_threshold(own: np.ndarray, y: np.ndarray, coverage: float, beliefs: np.ndarray | None = None) -> float:
    """The probability that a row's own class reaches with probability `coverage` or more, classes counting equally.

    Rows weigh the belief in their label / (rows of the class), and the new row as much as a row of the smallest class
    whose label is certain: the threshold is the largest t for which the rows with p_i < t and the new row together
    weigh at most 1 − coverage of everything.

    Parameters
    ----------
    own : array (n,)
        The left-out probability, or its logarithm, that each row gives its own class.
    y : int array (n,)
    coverage : float
    beliefs : array (n,), optional
        That the labels are right; 1 by default.

    Returns
    -------
    float
        −∞ where the rows do not support this coverage.
    """
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage is a share of the rows and must lie between 0 and 1, got {coverage!r}.")
    if len(own) == 0:
        return -np.inf
    weight, new = _weights(y, beliefs)
    order = np.argsort(own, kind="stable")
    values, weights = own[order], weight[order]
    below = np.concatenate([[0.0], np.cumsum(weights)])[np.searchsorted(values, values)]  # of all smaller values
    room = (1.0 - coverage) * (weights.sum() + new) + ROUNDING * weights.sum()
    allowed = np.flatnonzero(below + new <= room)
    return float(values[allowed[-1]]) if len(allowed) else -np.inf


def class_thresholds(
    own: np.ndarray, y: np.ndarray, n_classes: int, coverage: float, beliefs: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """A threshold for every class from its own rows, and which classes have too few of them, (C,) each.

    These share the threshold of all their rows together.
    """

    def of(rows: np.ndarray) -> float:
        return probability_threshold(own[rows], y[rows], coverage, None if beliefs is None else beliefs[rows])

    thresholds = np.array([of(y == c) for c in range(n_classes)])
    few = np.isneginf(thresholds)
    if few.any():
        thresholds[few] = of(few[y])
    return thresholds, few


def _weights(y: np.ndarray, beliefs: np.ndarray | None) -> tuple[np.ndarray, float]:
    """What rows of classes y weigh (n,), and what a new row does."""
    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    weight = np.reciprocal(counts[codes], dtype=float)
    return weight if beliefs is None else weight * beliefs, float(weight.max())
