"""Answers that carry their own doubt: sets of classes that hold the right one, and groups of classes in the tree."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch

from gptree.estimators.base import TreeEstimator
from gptree.estimators.known_rows import known_rows
from gptree.estimators.state import FittedState
from gptree.experts.wrong_labels import label_beliefs
from gptree.inference import PredictAt
from gptree.model.conformal import class_thresholds, informative, probability_threshold, supported_coverage
from gptree.tree import ClassTree


class Coarse(NamedTuple):
    """The most specific answer that is sure, for each of n rows."""

    vertex: np.ndarray
    """(n,) vertex of `tree_`: an inner node, or a leaf where a single class is sure."""
    members: np.ndarray
    """(n, C) bool: the classes under it, columns as in `classes_`."""
    probability: np.ndarray
    """(n,) of these classes together."""


class AnswersMixin(TreeEstimator):
    """Predictions of several classes where one would be too bold."""

    def predict_set(self, X: Any, coverage: float = 0.9, by_class: bool = False) -> np.ndarray:
        """Classes among which the right one is, for a share `coverage` of rows.

        A conformal set: the classes that are at least as probable as a threshold, and always the most probable one. The
        threshold comes from the training examples, each scored without itself. Classes count equally, and examples by
        the belief in their labels.

        Parameters
        ----------
        X : array-like (n, d)
        coverage : float
            Share of rows of known classes whose set holds their class, in (0, 1).
        by_class : bool
            Whether the rows of every single class should be covered so. A class needs coverage / (1 − coverage)
            examples whose labels are believed; those with fewer are covered together, and a warning says so.

        Returns
        -------
        ndarray of bool (n, C)
            Columns as in `classes_`. Where the examples are too few for this coverage, all classes, with a warning.
        """
        query = self._query(X)
        thresholds = _thresholds(query.state, self.predict_at, coverage, by_class)
        sets = query.log_p >= thresholds
        sets[np.arange(len(sets)), query.log_p.argmax(1)] = True
        return sets

    def predict_coarse(self, X: Any, confidence: float = 0.95) -> Coarse:
        """The deepest place in `tree_` that the row belongs to with probability `confidence` or more.

        Goes down from the root, to the more probable side, as long as the classes below hold that much probability
        together. A forest asks its first tree for the groups, the one that `explain` and pictures show, and all of its
        trees for the probabilities.

        Parameters
        ----------
        X : array-like (n, d)
        confidence : float
            In (0, 1].

        Returns
        -------
        Coarse
            Vertices, the classes below each, and their probability.
        """
        if not 0.0 < confidence <= 1.0:
            raise ValueError(f"confidence is a probability above 0 and must be at most 1, got {confidence!r}.")
        query = self._query(X)
        tree = query.state.model.trees[0]
        p = np.exp(query.log_p)
        vertex, probability = sure_vertices(tree, p, confidence)
        lo, hi = intervals(tree)
        members = (tree.position >= lo[vertex, None]) & (tree.position < hi[vertex, None])
        return Coarse(vertex, members, probability)


def intervals(tree: ClassTree) -> tuple[np.ndarray, np.ndarray]:
    """Leaf positions [lo, hi) under every vertex, (2C − 1,) each."""
    leaves = np.arange(tree.n_classes)
    return np.concatenate([tree.lo, leaves]), np.concatenate([tree.hi, leaves + 1])


def sure_vertices(tree: ClassTree, p: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Down from the root to the more probable side while it has `confidence`: vertices and their probability, (n,)."""
    sums = np.concatenate([np.zeros((len(p), 1)), np.cumsum(p[:, tree.order], axis=1)], axis=1)
    lo, hi = intervals(tree)
    vertex, probability = np.zeros(len(p), dtype=np.int64), np.ones(len(p))

    def mass(rows: np.ndarray, vertices: np.ndarray) -> np.ndarray:
        single = np.minimum(lo[vertices], tree.n_classes - 1)
        total = sums[rows, hi[vertices]] - sums[rows, lo[vertices]]
        return np.where(vertices >= tree.n_nodes, p[rows, tree.order[single]], total)  # exact at leaves

    rows = np.arange(len(p)) if tree.n_nodes else np.arange(0)
    while len(rows):
        left, right = tree.left_child[vertex[rows]], tree.right_child[vertex[rows]]
        in_left, in_right = mass(rows, left), mass(rows, right)
        best, child = np.maximum(in_left, in_right), np.where(in_left >= in_right, left, right)
        goes = best >= confidence
        vertex[rows[goes]], probability[rows[goes]] = child[goes], best[goes]
        rows = rows[goes & (child < tree.n_nodes)]
    return vertex, probability


def _thresholds(state: FittedState, predict_at: PredictAt, coverage: float, by_class: bool) -> np.ndarray:
    """Least log-probability in a set, of each class or of all, (C,) or (1,)."""
    known = known_rows(state, predict_at)
    if known.own is None:
        raise ValueError(
            "this model was saved by an older gptree, without the left-out probabilities of the examples of its base "
            "session that it dropped: fit it again to ask for sets."
        )
    usable = informative(known.y)
    own, y = known.own[usable], known.y[usable]
    beliefs = _beliefs(own, len(state.classes))
    if not by_class:
        threshold = np.array([probability_threshold(own, y, coverage, beliefs)])
        _warn_of_too_few(threshold, y, coverage, beliefs)
        return threshold
    thresholds, few = class_thresholds(own, y, len(state.classes), coverage, beliefs)
    if few.any():
        needed = math.ceil(coverage / (1.0 - coverage) - 1e-9)
        examples = "examples" if beliefs is None else "examples whose labels are believed"
        warnings.warn(
            f"{few.sum()} of {len(few)} classes have too few {examples}: a coverage of {coverage:g} in every class "
            f"needs {needed} of each. These classes are covered together.",
            UserWarning,
            stacklevel=3,
        )
        among = few[y]
        _warn_of_too_few(thresholds[few], y[among], coverage, None if beliefs is None else beliefs[among])
    return thresholds


def _beliefs(own: np.ndarray, n_classes: int) -> np.ndarray | None:
    """That labels of these left-out log-probabilities (n,) are right, if some seem to be wrong."""
    p = torch.as_tensor(own, dtype=torch.float64).exp()
    _, beliefs = label_beliefs(p, n_classes, torch.ones_like(p, dtype=torch.bool))
    return None if beliefs is None else beliefs.numpy()


def _warn_of_too_few(thresholds: np.ndarray, y: np.ndarray, coverage: float, beliefs: np.ndarray | None) -> None:
    if np.isneginf(thresholds).any():
        most = np.floor(1000 * supported_coverage(y, beliefs)) / 1000
        doubted = "" if beliefs is None else ", of which some labels are doubted,"
        warnings.warn(
            f"{len(y)} left-out examples{doubted} support a coverage of up to {most:g}; asked for {coverage:g}, every "
            "class is in every set. Ask for less, or give more examples.",
            UserWarning,
            stacklevel=4,
        )
