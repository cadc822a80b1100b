"""k-means++ seeding as an order of the rows, and the nearest of several rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def first_nearest(distances: np.ndarray, scale: float = 1.0) -> np.ndarray:
    """The row of least distance in each column; the first of those that rounding cannot tell apart.

    Two rows are equally far from their mean, whichever way rounding turns.

    Parameters
    ----------
    distances : array (n, …)
        Squared.
    scale : float
        Largest squared length of the vectors between which they lie.

    Returns
    -------
    int64 array (…)
    """
    rounding = 1e3 * np.finfo(distances.dtype).eps * scale
    return (distances <= distances.min(0) + rounding).argmax(0)


def kmeans_plus_plus_order(
    features: np.ndarray, random: np.random.Generator, limit: int, weights: np.ndarray | None = None
) -> np.ndarray:
    """Row numbers in the order of k-means++ seeding, the row nearest to the mean first.

    Each further row is drawn with probability proportional to its squared distance to the rows before it, times its
    weight. A row equal to one already taken comes after all others: duplicates would make a kernel matrix singular.

    Parameters
    ----------
    features : array (n, d)
    random : Generator
    limit : int
        So many rows are drawn, at most; the others follow in their own order.
    weights : array (n,), optional
        How many times each row counts.

    Returns
    -------
    int64 array (n,)
    """
    # squared distances that neither overflow nor vanish, whatever the scale of the features
    features = features / np.abs(features).max(initial=np.finfo(features.dtype).tiny)
    taken = np.zeros(len(features), dtype=bool)
    chosen: list[int] = []
    distance = _squared(features - np.average(features, 0, weights))
    pick = int(first_nearest(distance, float(_squared(features).max())))
    distance, difference = np.full(len(features), np.inf), np.empty_like(features)
    while True:
        chosen.append(pick)
        taken[pick] = True
        np.subtract(features, features[pick], out=difference)
        distance = np.minimum(distance, _squared(difference))
        distance[taken] = 0.0
        chances = distance if weights is None else distance * weights
        total = chances.sum()
        if len(chosen) >= min(limit, len(features)) or not total > 0.0:
            break
        pick = int(random.choice(len(features), p=chances / total))
    return np.concatenate([np.asarray(chosen, dtype=np.int64), np.flatnonzero(~taken)])


def kmeans_plus_plus_orders(features: np.ndarray, randoms: Sequence[np.random.Generator], limit: int) -> np.ndarray:
    """`kmeans_plus_plus_order` of several sets of as many rows each, all at once.

    Parameters
    ----------
    features : array (B, n, d)
    randoms : sequence of B generators
    limit : int

    Returns
    -------
    int64 array (B, n)
    """
    sets, n, _ = features.shape
    everyone = np.arange(sets)
    uniform = np.array([random.random(max(0, min(limit, n) - 1)) for random in randoms])
    scaled = features / np.maximum(np.abs(features).max((1, 2)), np.finfo(features.dtype).tiny)[:, None, None]
    lengths = np.square(scaled).sum(-1).max(1)
    from_mean = np.square(scaled - scaled.mean(1, keepdims=True)).sum(-1)
    rounding = 1e3 * np.finfo(features.dtype).eps * lengths
    pick = (from_mean <= from_mean.min(1, keepdims=True) + rounding[:, None]).argmax(1)
    rank, distance = np.full((sets, n), n), np.full((sets, n), np.inf)
    rank[everyone, pick] = 0
    for step, drawn in enumerate(uniform.T, 1):
        distance = np.minimum(distance, np.square(scaled - scaled[everyone, pick][:, None]).sum(-1))
        distance[rank < n] = 0.0
        total = distance.sum(1)
        going = total > 0.0  # otherwise the others are equal to rows that were taken
        chances = np.cumsum(distance / np.where(going, total, 1.0)[:, None], 1)
        chances /= np.where(going, chances[:, -1], 1.0)[:, None]
        pick = np.where(going, (chances <= drawn[:, None]).sum(1), pick)
        rank[everyone[going], pick[going]] = step
    return np.argsort(rank, axis=1, kind="stable")


def _squared(rows: np.ndarray) -> np.ndarray:
    """Squared lengths."""
    return np.einsum("ij,ij->i", rows, rows)
