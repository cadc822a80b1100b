"""Exemplars: the examples kept of a class, and how many examples each of them stands for."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from gptree.experts import shot_folds
from gptree.maths.seeding import first_nearest, kmeans_plus_plus_order
from gptree.settings import Settings
from gptree.tree import node_generator, node_key

#: Examples of earlier classes that a new root is fitted to, at most.
ROOT_ROWS = 2_000


class Selection(Settings, ABC):
    """A choice of exemplars: a frozen dataclass that subclasses this and has `choose`."""

    @abstractmethod
    def choose(
        self, features: np.ndarray, count: int, random: np.random.Generator, weights: np.ndarray | None = None
    ) -> np.ndarray:
        """Exemplars of one class.

        Parameters
        ----------
        features : (n, d)
            All examples of the class, of unit length.
        count : int
            Less than n.
        random : np.random.Generator
        weights : (n,), optional
            How many times each example counts.

        Returns
        -------
        int array
            At most `count` rows.
        """


@dataclass(frozen=True)
class KMeansExemplars(Selection):
    """k-means in each class: of every cluster the example nearest to its centre."""

    def choose(
        self, features: np.ndarray, count: int, random: np.random.Generator, weights: np.ndarray | None = None
    ) -> np.ndarray:
        seed = int(random.integers(2**31))
        with warnings.catch_warnings():  # fewer distinct examples than centres: some clusters are empty
            warnings.simplefilter("ignore", ConvergenceWarning)
            clusters: Any = KMeans(count, n_init=4, random_state=seed)  # pyright: ignore[reportArgumentType]
            clusters.fit(features, sample_weight=weights)
        used, cluster = np.unique(clusters.labels_, return_inverse=True)
        distances = _distances(features, clusters.cluster_centers_[used])
        distances[cluster[:, None] != np.arange(len(used))] = np.inf
        return first_nearest(distances)


@dataclass(frozen=True)
class Herding(Selection):
    """Examples one after the other such that the mean of those taken stays nearest to the mean of the class."""

    def choose(
        self, features: np.ndarray, count: int, random: np.random.Generator, weights: np.ndarray | None = None
    ) -> np.ndarray:
        mean, total = np.average(features, 0, weights), np.zeros(features.shape[1])
        taken: list[int] = []
        for k in range(1, count + 1):
            gaps = mean - (total + features) / k
            gaps = np.einsum("ij,ij->i", gaps, gaps)
            gaps[taken] = np.inf
            taken.append(int(first_nearest(gaps)))
            total = total + features[taken[-1]]
        return np.array(taken)


@dataclass(frozen=True)
class KMeansPlusPlusExemplars(Selection):
    """The inducing points of sparse posteriors: the example nearest to the mean, then each far from those before."""

    def choose(
        self, features: np.ndarray, count: int, random: np.random.Generator, weights: np.ndarray | None = None
    ) -> np.ndarray:
        return kmeans_plus_plus_order(features, random, count, weights)[:count]


class Exemplars(NamedTuple):
    """Exemplars of all classes."""

    rows: np.ndarray
    """(m,) of the examples, class after class."""
    weights: np.ndarray
    """(m,) how many examples of its class are nearest to each, plus ½, or half its own weight if that is less."""


def select_exemplars(
    features: np.ndarray,
    y: np.ndarray,
    count: int,
    selection: Selection,
    hashes: np.ndarray,
    seed: int,
    among: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> Exemplars:
    """At most `count` distinct examples of every class; all of a class that has no more.

    The choice in a class depends on its own examples, its label's hash and the seed only. `among` (n,) are booleans:
    the other examples do not exist for it. `weights` (n,) say how many times each counts.
    """
    order = np.argsort(y, kind="stable")
    rows, masses = [], []
    for c, members in enumerate(np.split(order, np.cumsum(np.bincount(y, minlength=len(hashes)))[:-1])):
        members = members if among is None else members[among[members]]
        x, counted = features[members], None if weights is None else weights[members]
        if len(members) > count:
            random = node_generator(seed, node_key(hashes[c : c + 1]))
            chosen = np.unique(selection.choose(x, count, random, counted))
        else:
            chosen = np.arange(len(members))
        nearest = first_nearest(_distances(x[chosen], x))
        rows.append(members[chosen])
        own = 1.0 if counted is None else np.minimum(counted[chosen], 1.0)
        masses.append(np.bincount(nearest, counted, minlength=len(chosen)) + 0.5 * own)
    return Exemplars(np.concatenate(rows), np.concatenate(masses))


def condensed(
    features: np.ndarray,
    y: np.ndarray,
    count: int,
    selection: Selection,
    hashes: np.ndarray,
    seed: int,
    weights: np.ndarray | None = None,
) -> Exemplars:
    """As `select_exemplars`, but what each counts for is exactly what is nearest to it: a class keeps its total."""
    rows = select_exemplars(features, y, count, selection, hashes, seed, weights=weights).rows
    masses = np.empty(len(rows))
    for c in range(len(hashes)):
        members, chosen = np.flatnonzero(y == c), np.flatnonzero(y[rows] == c)
        nearest = first_nearest(_distances(features[rows[chosen]], features[members]))
        nearest[np.searchsorted(members, rows[chosen])] = np.arange(len(chosen))  # each stands for itself at least
        masses[chosen] = np.bincount(nearest, None if weights is None else weights[members], minlength=len(chosen))
    return Exemplars(rows, masses)


def root_rows(y: Tensor, hashes: np.ndarray) -> Tensor:
    """Which examples of classes y (n,) a new root is fitted to, in order: all, or `ROOT_ROWS`.

    They are taken evenly: the first of every class before the second of any, classes by the hashes (C,) of their
    labels. Of more classes it is those among them, and fewer.
    """
    if len(y) <= ROOT_ROWS:
        return torch.arange(len(y), device=y.device)
    turn = torch.as_tensor(hashes.argsort().argsort(), device=y.device)[y]
    in_turn = (shot_folds(y, max_folds=len(y) + 1).clamp(min=0) * len(hashes) + turn).argsort()
    return in_turn[:ROOT_ROWS].sort().values


def _distances(x: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.square(x).sum(1)[:, None] - 2 * x @ other.T
