"""Nearest neighbours by cosine, with votes weighted by similarity."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from sklearn.neighbors import NearestNeighbors

from gptree.rivals.base import RivalClassifier
from gptree.rivals.left_out import shot_folds

SHARPNESSES = (1.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0)
FLOORS = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
ONE_SHOT = (100, 15.0, 0.01)  # k, sharpness, floor


@dataclass(kw_only=True, eq=False, repr=False)
class NearestNeighbours(RivalClassifier):
    """p_c = (1 − ε) Σ w_i [y_i = c] / Σ w_i + ε / C over the k nearest points i, w_i = exp(β cos(x, x_i)).

    The number of neighbours k, the sharpness β and the floor ε are chosen together by the NLL of points whose
    neighbours come from the other folds (one shot left out). Where every class has one example they are `ONE_SHOT`.

    Parameters
    ----------
    ks : tuple of int
        The numbers of neighbours to choose from; those of β and ε are `SHARPNESSES` and `FLOORS`.

    Attributes
    ----------
    k_ : int
    sharpness_, floor_ : float

    Examples
    --------
    >>> from gptree.rivals import NearestNeighbours
    >>> NearestNeighbours(ks=(1, 3)).fit([[1.0, 0.0], [0.0, 1.0]], [0, 1]).predict([[0.9, 0.2]])
    array([0])
    """

    name = "knn"
    ks: tuple[int, ...] = (1, 3, 5, 10, 20, 50, 100)

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        folds = shot_folds(y, limit=30)
        self.k_, self.sharpness_, self.floor_ = self._choose(x, y, folds) if (folds >= 0).any() else ONE_SHOT
        self.k_ = min(self.k_, len(x))
        self.labels_ = y
        self.index_ = NearestNeighbors(n_neighbors=self.k_, metric="cosine", algorithm="brute").fit(x)

    def _choose(self, x: np.ndarray, y: np.ndarray, folds: np.ndarray) -> tuple[int, float, float]:
        distance, same_class = left_out_neighbours(x, y, folds, max(self.ks))
        best, chosen = np.inf, ONE_SHOT
        for k, sharpness in itertools.product(self.ks, SHARPNESSES):
            weight = np.exp(-sharpness * distance[:, :k])
            share = np.sum(weight * same_class[:, :k], axis=1) / np.sum(weight, axis=1)
            for floor in FLOORS:
                loss = -float(np.mean(np.log((1 - floor) * share + floor / (y.max() + 1))))
                if loss < best:
                    best, chosen = loss, (k, sharpness, floor)
        return chosen

    def _logits(self, x: np.ndarray) -> np.ndarray:
        distance, near = self.index_.kneighbors(x)
        weight = np.exp(-self.sharpness_ * distance)
        votes = np.zeros((len(x), len(self.classes_)))
        np.add.at(votes, (np.arange(len(x))[:, None], self.labels_[near]), weight)
        share = votes / votes.sum(axis=1, keepdims=True)
        return np.log((1 - self.floor_) * share + self.floor_ / len(self.classes_))


def left_out_neighbours(x: np.ndarray, y: np.ndarray, folds: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest points outside the fold of each point that has one, fewer if there are fewer.

    Returns their cosine distances, nearest first, and whether they share the point's class; points by fold.
    """
    parts = [folds == fold for fold in range(folds.max() + 1)]
    k = min(k, *(int(np.sum(~out)) for out in parts))
    distances, same_class = [], []
    for out in parts:
        index = NearestNeighbors(n_neighbors=k, metric="cosine", algorithm="brute").fit(x[~out])
        distance, near = index.kneighbors(x[out])
        distances.append(distance)
        same_class.append(y[~out][near] == y[out][:, None])
    return np.concatenate(distances), np.concatenate(same_class)
