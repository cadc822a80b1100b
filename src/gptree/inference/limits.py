"""Nodes with more points than a dense posterior should hold, and the choice of inducing points.

    SubsetOfData(1024)      the node sees at most 1,024 of its points, the same number from each class
    InducingPoints(256)     the node sees all its points through at most 256 inducing points (a sparse posterior)

Both choose within a class by an order that is fixed beforehand, so that the choice at one node never depends on the
others, and a node further down sees at least the points it was seen by above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gptree.maths.seeding import kmeans_plus_plus_order, kmeans_plus_plus_orders
from gptree.settings import Settings, require
from gptree.tree import node_generator, node_key


@dataclass(frozen=True)
class SubsetOfData(Settings):
    """Nodes with more than `points` points keep that many, drawn evenly over their classes.

    Parameters
    ----------
    points : int

    Examples
    --------
    >>> from gptree import GPForestClassifier, SubsetOfData
    >>> model = GPForestClassifier(node_limit=SubsetOfData(500))  # or node_limit=500
    """

    points: int = 1024

    def __post_init__(self) -> None:
        require(self.points >= 2, f"a node needs at least two points, got points={self.points}.")

    def orders(self, features: np.ndarray, randoms: Sequence[np.random.Generator], count: int) -> np.ndarray:
        """The order (B, n) in which the rows (B, n, d) of classes are taken, up to the first `count`: at random."""
        return np.array([random.permutation(features.shape[1]) for random in randoms])


@dataclass(frozen=True)
class InducingPoints(Settings):
    """Nodes with more than `points` points use that many of them as inducing points, evenly over their classes.

    Parameters
    ----------
    points : int

    Examples
    --------
    >>> from gptree import GPForestClassifier, InducingPoints
    >>> model = GPForestClassifier(node_limit=InducingPoints(100))
    """

    points: int = 256

    def __post_init__(self) -> None:
        require(self.points >= 2, f"a node needs at least two inducing points, got points={self.points}.")

    def orders(self, features: np.ndarray, randoms: Sequence[np.random.Generator], count: int) -> np.ndarray:
        """The order (B, n) in which the rows (B, n, d) of classes are taken, up to `count`: as k-means++ seeds."""
        return kmeans_plus_plus_orders(features, randoms, limit=count)


@dataclass(frozen=True)
class FixedInducingPoints(Settings):
    """Every node sees its points through given inducing rows of its classes, unless all of its points are such rows.

    Which rows these are is part of the data (`TrainingData.inducing`): the exemplars of a base session, which are
    what is kept when the other rows are dropped, or the inducing points that an inference chose.

    Parameters
    ----------
    inducing : int
        A node of no more inducing rows than this sees its points through all of them.
    points : int
        Most points of a node, evenly over its classes.
    fewer : int or None
        A node of more sees them through so many, evenly over its classes; None is `inducing`.
    """

    inducing: int = 1024
    points: int = 4000
    fewer: int | None = None


LargeNodes = SubsetOfData | InducingPoints | FixedInducingPoints


def as_large_nodes(value: str | int | LargeNodes | None, sparse: bool) -> LargeNodes | None:
    """The value of the parameter `node_limit`.

    Parameters
    ----------
    value : "auto", None, int, SubsetOfData or InducingPoints
        "auto" is `InducingPoints()` where inference has a sparse form, and `SubsetOfData()` where it has none; a number
        is `SubsetOfData` of so many points; None is no limit.
    sparse : bool
        Whether inference has a form with inducing points.

    Returns
    -------
    SubsetOfData, InducingPoints or None
    """
    if value == "auto":
        return InducingPoints() if sparse else SubsetOfData()
    if isinstance(value, bool) or not (
        value is None or isinstance(value, int | np.integer | SubsetOfData | InducingPoints)
    ):
        raise TypeError(f'node_limit must be "auto", None, a number, SubsetOfData or InducingPoints, not {value!r}.')
    return SubsetOfData(int(value)) if isinstance(value, int | np.integer) else value


def class_inducing(features: np.ndarray, y: np.ndarray, count: int, hashes: np.ndarray, seed: int) -> np.ndarray:
    """Inducing points of every class, as k-means++ seeds; all rows of a class that has no more.

    A row that equals one taken before, in its class or in another, is left out, unless it is the first of its class:
    equal points make K_mm singular, and no class is without one. Randomness is keyed by label and seed.

    Parameters
    ----------
    features : array (n, d)
    y : int array (n,)
        Class numbers.
    count : int
        At most so many a class.
    hashes : uint64 array (C,)
        `label_hashes` of the labels.
    seed : int

    Returns
    -------
    int64 array (m,)
        Row numbers, class after class.
    """
    order = np.argsort(y, kind="stable")
    taken: set[bytes] = set()
    rows = []
    for c, members in enumerate(np.split(order, np.cumsum(np.bincount(y, minlength=len(hashes)))[:-1])):
        random = node_generator(seed, node_key(hashes[c : c + 1]))
        # paper section 3.3
        for place, row in enumerate(members[kmeans_plus_plus_order(features[members], random, count)[:count]]):
            key = (features[row] + 0.0).tobytes()  # −0 is 0
            if place == 0 or key not in taken:
                rows.append(row)
            taken.add(key)
    return np.array(rows, dtype=np.int64)


def class_quota(counts: Sequence[int] | np.ndarray, points: int) -> int:
    """The largest q such that up to q rows of each class are at most `points` rows; 0 if even one each is too many.

    Parameters
    ----------
    counts : sequence of int
        Rows of each class.
    points : int

    Returns
    -------
    int
    """
    counts = np.asarray(counts)
    low, high = 0, int(counts.max(initial=0))
    while low < high:
        q = (low + high + 1) // 2
        if np.minimum(counts, q).sum() <= points:
            low = q
        else:
            high = q - 1
    return low
