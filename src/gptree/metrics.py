"""How right, and how rightly sure, class probabilities are.

`p` is (n, C), rows summing to one; `y` is (n,), the column of the true class of each row (`columns` makes it
from labels). Confidence is the largest probability of a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy.stats import rankdata

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Binning = Literal["equal-width", "equal-mass"]

LEAST_PROBABILITY = 1e-15
"""A true class given less than this counts as given this much: one row costs at most 34.5 nats."""


def columns(labels: Sequence[Any] | np.ndarray, classes: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Index in `classes` of each label; a label that is not there is an error."""
    position = {label: index for index, label in enumerate(np.asarray(classes).tolist())}
    asked = np.asarray(labels).tolist()
    unknown = [label for label in asked if label not in position]
    if unknown:
        raise ValueError(f"{len(unknown)} labels, the first {unknown[0]!r}, are not among the {len(position)} classes.")
    return np.array([position[label] for label in asked], dtype=int)


def accuracy(p: np.ndarray, y: np.ndarray) -> float:
    """Share of the rows whose largest probability is the true class's."""
    p, y = _checked(p, y)
    return float(np.mean(p.argmax(axis=1) == y))


def nll(p: np.ndarray, y: np.ndarray) -> float:
    """Mean of −log p of the true class, p at least `LEAST_PROBABILITY`."""
    p, y = _checked(p, y)
    return -float(np.mean(np.log(np.maximum(p[np.arange(len(y)), y], LEAST_PROBABILITY))))


def brier(p: np.ndarray, y: np.ndarray) -> float:
    """Mean of Σ_c (p_c − [c = y])²: 0 for certain and right, 2 for certain and wrong."""
    p, y = _checked(p, y)
    own = p[np.arange(len(y)), y]
    return float(np.mean(np.sum(p**2, axis=1) - 2 * own + 1))


@dataclass(frozen=True)
class ReliabilityCurve:
    """Bins of confidence between `edges` (bins + 1,): mean confidence and accuracy (NaN if empty), and count."""

    edges: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray

    @property
    def ece(self) -> float:
        """Σ_b count_b/n · |accuracy_b − confidence_b|."""
        used = self.count > 0
        gap = np.abs(self.accuracy[used] - self.confidence[used])
        return float(np.sum(self.count[used] * gap) / self.count.sum())


def reliability_curve(
    p: np.ndarray, y: np.ndarray, bins: int = 15, binning: Binning = "equal-width"
) -> ReliabilityCurve:
    """Confidence against accuracy.

    Equal-width bins are (0, 1/bins], (1/bins, 2/bins], …; equal-mass bins are cut at the quantiles of the
    confidence, with equal confidences never parted, so that some bins may be empty and no result depends on
    the order of the rows.
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


def ece(p: np.ndarray, y: np.ndarray, bins: int = 15, binning: Binning = "equal-width") -> float:
    """Expected calibration error: the mean gap between accuracy and confidence over bins of confidence."""
    return reliability_curve(p, y, bins, binning).ece


class Confusion(NamedTuple):
    """`count` rows of class `true` were taken for `predicted`."""

    true: Any
    predicted: Any
    count: int


def most_confused(y: Sequence[Any] | np.ndarray, predicted: Sequence[Any] | np.ndarray, k: int = 10) -> list[Confusion]:
    """The k most frequent mistakes, most frequent first, equal counts in the order of the labels."""
    true, given = np.asarray(y).tolist(), np.asarray(predicted).tolist()
    if len(true) != len(given):
        raise ValueError(f"y has {len(true)} labels and predicted has {len(given)}; they must match.")
    counts = Counter((t, g) for t, g in zip(true, given, strict=True) if t != g)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [Confusion(t, g, count) for (t, g), count in ranked[:k]]


def auroc(scores_in: np.ndarray, scores_out: np.ndarray) -> float:
    """Probability that a score from outside exceeds one from inside, ties counting half."""
    inside, outside = np.ravel(scores_in), np.ravel(scores_out)
    if not len(inside) or not len(outside):
        raise ValueError("Both sets of scores need at least one value.")
    both = np.concatenate([outside, inside])
    if np.isnan(both).any():
        raise ValueError("The scores hold NaN.")
    ranks = rankdata(both)[: len(outside)]
    wins = ranks.sum() - len(outside) * (len(outside) + 1) / 2
    return float(wins / (len(inside) * len(outside)))


def plot_reliability(curve: ReliabilityCurve, ax: Axes) -> None:
    """Draw accuracy over confidence, the gap between them hatched, and a histogram of confidence beneath."""
    used = curve.count > 0
    left, right = curve.edges[:-1][used], curve.edges[1:][used]
    bars = {
        "x": left,
        "width": np.maximum(right - left, 0.004),
        "align": "edge",
    }  # a bin of one value stays visible
    share, confidence = curve.accuracy[used], curve.confidence[used]

    ax.bar(height=share, color="#8fb8de", edgecolor="white", linewidth=0.5, label="accuracy", **bars)
    gap = {"facecolor": "none", "edgecolor": "#c0392b", "linewidth": 0.6, "hatch": "////"}
    ax.bar(height=confidence - share, bottom=share, label="gap to confidence", **gap, **bars)
    ax.plot([0, 1], [0, 1], color="0.25", linewidth=1, linestyle="--", label="calibrated")
    ax.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy", aspect="equal")
    ax.tick_params(labelbottom=False)
    ax.legend(
        loc="upper left",
        title=f"ECE {100 * curve.ece:.1f} %",
        alignment="left",
        facecolor="white",
        framealpha=0.85,
        edgecolor="none",
    )

    below = ax.inset_axes((0, -0.28, 1, 0.22), sharex=ax)
    below.bar(
        height=100 * curve.count[used] / curve.count.sum(),
        color="0.65",
        edgecolor="white",
        linewidth=0.5,
        **bars,
    )
    below.set(xlabel="confidence", ylabel="% of rows")
    for axes in (ax, below):
        axes.spines[["top", "right"]].set_visible(False)


def _checked(p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p, y = np.asarray(p, dtype=float), np.asarray(y)
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
