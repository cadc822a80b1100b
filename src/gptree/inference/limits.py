"""What happens at nodes with more points than a dense posterior should hold.

    SubsetOfData(1024)   the node sees at most 1,024 of its points, the same number from each class
    InducingPoints(256)     the node sees all its points through at most 256 inducing points (a sparse posterior)

Both choose within a class by an order that is fixed beforehand, so that the choice at one node never depends on the
others, and a node further down sees at least the points it was seen by above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gptree.settings import Settings, require


@dataclass(frozen=True)
class SubsetOfData(Settings):
    """Nodes with more than `points` points keep that many, drawn evenly over their classes."""

    points: int = 1024

    def __post_init__(self) -> None:
        require(self.points >= 2, f"a node needs at least two points, got points={self.points}.")

    def order(self, features: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """The order in which a class's rows (n, d) are taken: at random."""
        return random.permutation(len(features))


@dataclass(frozen=True)
class InducingPoints(Settings):
    """Nodes with more than `points` points use that many of them as inducing points, evenly over their classes."""

    points: int = 256

    def __post_init__(self) -> None:
        require(self.points >= 2, f"a node needs at least two inducing points, got points={self.points}.")

    def order(self, features: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """The order in which a class's rows (n, d) are taken: as k-means++ seeds, each far from those before it."""
        return spread_order(features, random, limit=self.points)


@dataclass(frozen=True)
class FixedInducingPoints(Settings):
    """Every node, large or small, sees its points through the exemplars of its classes, and through nothing else.

    At most `inducing` exemplars and `points` points a node, evenly over its classes. Which rows are exemplars is
    part of the data: they are what is kept when the other rows are dropped.
    """

    inducing: int = 1024
    points: int = 4000


LargeNodes = SubsetOfData | InducingPoints | FixedInducingPoints


def as_large_nodes(value: str | int | LargeNodes | None, sparse: bool) -> LargeNodes | None:
    """None is no limit; a number is that many exemplars.

    "auto" is `InducingPoints()` where inference has a sparse form, and `SubsetOfData()` where it has none.
    """
    if value == "auto":
        return InducingPoints() if sparse else SubsetOfData()
    if isinstance(value, bool) or not (
        value is None or isinstance(value, int | np.integer | SubsetOfData | InducingPoints)
    ):
        raise TypeError(f'node_limit must be "auto", None, a number, SubsetOfData or InducingPoints, not {value!r}.')
    return SubsetOfData(int(value)) if isinstance(value, int | np.integer) else value


def spread_order(features: np.ndarray, random: np.random.Generator, limit: int) -> np.ndarray:
    """Rows in the order of k-means++ seeding, the one nearest to the mean first; rows past `limit` follow as they are.

    A row equal to one already taken comes after all others: duplicates would make a kernel matrix singular.
    """
    # squared distances that neither overflow nor vanish, whatever the scale of the features
    features = features / np.abs(features).max(initial=np.finfo(features.dtype).tiny)
    taken = np.zeros(len(features), dtype=bool)
    chosen: list[int] = []
    distance = np.square(features - features.mean(0)).sum(-1)
    pick = int(distance.argmin())
    distance = np.full(len(features), np.inf)
    while True:
        chosen.append(pick)
        taken[pick] = True
        distance = np.minimum(distance, np.square(features - features[pick]).sum(-1))
        distance[taken] = 0.0
        total = distance.sum()
        if len(chosen) >= min(limit, len(features)) or not total > 0.0:
            break
        pick = int(random.choice(len(features), p=distance / total))
    return np.concatenate([np.asarray(chosen, dtype=np.int64), np.flatnonzero(~taken)])


def class_quota(counts: Sequence[int] | np.ndarray, points: int) -> int:
    """The largest q such that up to q rows of each class are at most `points` rows; 0 if even one each is too many."""
    counts = np.asarray(counts)
    low, high = 0, int(counts.max(initial=0))
    while low < high:
        q = (low + high + 1) // 2
        if np.minimum(counts, q).sum() <= points:
            low = q
        else:
            high = q - 1
    return low
