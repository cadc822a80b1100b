"""Metrics of class probabilities: accuracy, NLL, Brier score, calibration error, AUROC, most frequent mistakes.

`p` is (n, C), rows summing to one; `y` is (n,), the column of the true class of each row (`columns` makes it
from labels). Both are arrays or tensors on any device. Confidence is the largest probability of a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import rankdata
from torch import Tensor

__all__ = [
    "BINS",
    "LEAST_PROBABILITY",
    "Confusion",
    "ReliabilityCurve",
    "accuracy",
    "auroc",
    "brier",
    "columns",
    "ece",
    "most_confused",
    "nll",
    "reliability_curve",
]

Array = np.ndarray | Tensor
Binning = Literal["equal-width", "equal-mass"]

LEAST_PROBABILITY = 1e-15
"""A true class given less than this counts as given this much: one row costs at most 34.5 nats."""

BINS = 15
"""Bins of confidence, unless others are asked for."""


def columns(labels: Sequence[Any] | np.ndarray, classes: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Index in `classes` of each label.

    Parameters
    ----------
    labels : sequence of n labels
    classes : sequence of C labels
        In the order of the columns of probabilities: `classes_` of a classifier.

    Returns
    -------
    ndarray (n,) of int

    Raises
    ------
    ValueError
        If a label is not among the classes.

    Examples
    --------
    >>> columns(["b", "a"], ["a", "b", "c"])
    array([1, 0])
    """
    position = {label: index for index, label in enumerate(np.asarray(classes).tolist())}
    asked = np.asarray(labels).tolist()
    unknown = [label for label in asked if label not in position]
    if unknown:
        raise ValueError(f"{len(unknown)} labels, the first {unknown[0]!r}, are not among the {len(position)} classes.")
    return np.array([position[label] for label in asked], dtype=int)


def accuracy(p: Array, y: Array) -> float:
    """Share of the rows whose largest probability is the true class's.

    Parameters
    ----------
    p : (n, C)
        Class probabilities.
    y : (n,)
        Columns of the true classes.

    Examples
    --------
    >>> accuracy([[0.9, 0.1], [0.6, 0.4]], [0, 1])
    0.5
    """
    p, y = _checked(p, y)
    return float(np.mean(p.argmax(axis=1) == y))


def nll(p: Array, y: Array) -> float:
    """Negative log-likelihood: the mean of −log p of the true class, p at least `LEAST_PROBABILITY`.

    Parameters
    ----------
    p : (n, C)
        Class probabilities.
    y : (n,)
        Columns of the true classes.

    Examples
    --------
    >>> round(nll([[0.9, 0.1], [0.6, 0.4]], [0, 1]), 3)
    0.511
    """
    p, y = _checked(p, y)
    return -float(np.mean(np.log(np.maximum(p[np.arange(len(y)), y], LEAST_PROBABILITY))))


def brier(p: Array, y: Array) -> float:
    """Brier score: the mean of Σ_c (p_c − [c = y])², 0 for certain and right, 2 for certain and wrong.

    Parameters
    ----------
    p : (n, C)
        Class probabilities.
    y : (n,)
        Columns of the true classes.

    Examples
    --------
    >>> round(brier([[0.9, 0.1], [0.6, 0.4]], [0, 1]), 3)
    0.37
    """
    p, y = _checked(p, y)
    of_true_class = p[np.arange(len(y)), y]
    return float(np.mean(np.sum(p**2, axis=1) - 2 * of_true_class + 1))


@dataclass(frozen=True)
class ReliabilityCurve:
    """Accuracy over confidence, in bins of confidence.

    Attributes
    ----------
    edges : ndarray (bins + 1,)
    confidence, accuracy : ndarray (bins,)
        Their means in each bin; NaN in an empty one.
    count : ndarray (bins,) of int
        Rows in each bin.
    """

    edges: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray

    @property
    def ece(self) -> float:
        """Expected calibration error, Σ_b count_b/n · |accuracy_b − confidence_b|."""
        used = self.count > 0
        gap = np.abs(self.accuracy[used] - self.confidence[used])
        return float(np.sum(self.count[used] * gap) / self.count.sum())


def reliability_curve(p: Array, y: Array, bins: int = BINS, binning: Binning = "equal-width") -> ReliabilityCurve:
    """Accuracy over confidence, in bins.

    Parameters
    ----------
    p : (n, C)
        Class probabilities.
    y : (n,)
        Columns of the true classes.
    bins : int
    binning : "equal-width" or "equal-mass"
        Bins (0, 1/bins], (1/bins, 2/bins], …; or bins cut at the quantiles of the confidence, with equal confidences
        never parted, so that some bins may be empty and no result depends on the order of the rows.

    Examples
    --------
    >>> reliability_curve([[0.9, 0.1], [0.6, 0.4]], [0, 1], bins=2).count
    array([0, 2])
    """
    p, y = _checked(p, y)
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}.")
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    cuts = np.linspace(0, 1, bins + 1)
    if binning == "equal-width":
        edges = cuts
    elif binning == "equal-mass":
        edges = np.quantile(confidence, cuts)
    else:
        raise ValueError(f'binning must be "equal-width" or "equal-mass", got {binning!r}.')
    bin_of = np.searchsorted(edges[1:-1], confidence, side="left")  # a bin holds its upper edge
    count = np.bincount(bin_of, minlength=bins)
    size = np.where(count > 0, count, np.nan)
    return ReliabilityCurve(
        edges=edges,
        confidence=np.bincount(bin_of, weights=confidence, minlength=bins) / size,
        accuracy=np.bincount(bin_of, weights=right, minlength=bins) / size,
        count=count,
    )


def ece(p: Array, y: Array, bins: int = BINS, binning: Binning = "equal-width") -> float:
    """Expected calibration error: the mean gap between accuracy and confidence, over bins of confidence.

    The parameters are those of `reliability_curve`.

    Examples
    --------
    >>> round(ece([[0.9, 0.1], [0.6, 0.4]], [0, 1]), 3)
    0.35
    """
    return reliability_curve(p, y, bins, binning).ece


class Confusion(NamedTuple):
    """`count` rows of class `true` were taken for `predicted`."""

    true: Any
    predicted: Any
    count: int


def most_confused(y: Sequence[Any] | np.ndarray, predicted: Sequence[Any] | np.ndarray, k: int = 10) -> list[Confusion]:
    """The k most frequent mistakes, most frequent first, equal counts in the order of the labels.

    Parameters
    ----------
    y, predicted : sequence of n labels
        True and predicted.
    k : int

    Examples
    --------
    >>> most_confused(["cat", "cat", "dog"], ["dog", "dog", "dog"])
    [Confusion(true='cat', predicted='dog', count=2)]
    """
    pairs = list(zip(np.asarray(y).tolist(), np.asarray(predicted).tolist(), strict=False))
    if not len(pairs) == len(y) == len(predicted):
        raise ValueError(f"y has {len(y)} labels and predicted has {len(predicted)}; they must match.")
    counts = Counter((true, guess) for true, guess in pairs if true != guess)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [Confusion(true, guess, count) for (true, guess), count in ranked[:k]]


def auroc(scores_in: Array, scores_out: Array) -> float:
    """Area under the ROC curve: the probability that a score from outside exceeds one from inside, ties counting half.

    Parameters
    ----------
    scores_in, scores_out : (n,), (m,)
        Novelty scores of rows of known classes, and of rows of other classes.

    Examples
    --------
    >>> auroc([0.1, 0.2], [0.2, 0.9])
    0.875
    """
    inside, outside = np.ravel(_numpy(scores_in)), np.ravel(_numpy(scores_out))
    if not len(inside) or not len(outside):
        raise ValueError("Both sets of scores need at least one value.")
    scores = np.concatenate([outside, inside])
    if np.isnan(scores).any():
        raise ValueError("The scores hold NaN.")
    ranks = rankdata(scores)[: len(outside)]  # scores may be infinite, which scikit-learn's roc_auc_score refuses
    wins = ranks.sum() - len(outside) * (len(outside) + 1) / 2
    return float(wins / (len(inside) * len(outside)))


def _numpy(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _checked(p: Array, y: Array) -> tuple[np.ndarray, np.ndarray]:
    p, y = _numpy(p).astype(float), _numpy(y)
    if p.ndim != 2 or y.shape != (len(p),):
        raise ValueError(f"p must be (n, C) and y (n,), got {p.shape} and {y.shape}.")
    if len(p) == 0:
        raise ValueError("There are no rows to measure.")
    if not np.issubdtype(y.dtype, np.integer):
        raise TypeError(f"y must hold column indices, got dtype {y.dtype}; columns(labels, classes) makes them.")
    if y.min() < 0 or y.max() >= p.shape[1]:
        raise ValueError(f"y must lie in 0 … {p.shape[1] - 1}, got {y.min()} … {y.max()}.")
    if not (np.all(p >= 0) and np.allclose(p.sum(axis=1), 1, atol=1e-4)):  # NaN fails the first
        raise ValueError("The rows of p must be probabilities that sum to one.")
    return p, y
