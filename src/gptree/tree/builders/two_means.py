"""Trees by 2-means, free or balanced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gptree.maths.sphere import unit_length
from gptree.settings import require_whole
from gptree.tree.builders.base import TreeBuilder, checked_prototypes, divide
from gptree.tree.builders.lloyd import Assignment, halves, nearest, two_means
from gptree.tree.keys import node_generator, node_key
from gptree.tree.structure import ClassTree


@dataclass(frozen=True)
class TwoMeans(TreeBuilder):
    """The paper's tree (section 3.1): 2-means with k-means++ seeds on the normalised class means, again and again.

    Parameters
    ----------
    restarts : int
        Runs at every node; the split of least inertia is taken.

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> from gptree.tree import TwoMeans
    >>> model = GPTreeClassifier(tree=TwoMeans(restarts=3))  # or tree="two-means"
    """

    restarts: int = 10

    name = "two-means"

    def __post_init__(self) -> None:
        require_whole("restarts", self.restarts, 1)

    def build(self, prototypes: np.ndarray, labels: Sequence[Any], seed: int) -> ClassTree:
        # paper section 3.1
        return _build_by_two_means(prototypes, labels, seed, self.restarts, nearest)


@dataclass(frozen=True)
class BalancedTwoMeans(TreeBuilder):
    """2-means with both sides of equal size, up to one class, at every node: the depth is ⌈log₂ C⌉.

    Parameters
    ----------
    restarts : int
        Runs at every node; the split of least inertia is taken.

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> model = GPTreeClassifier(tree="balanced")
    """

    restarts: int = 10

    name = "balanced"

    def __post_init__(self) -> None:
        require_whole("restarts", self.restarts, 1)

    def build(self, prototypes: np.ndarray, labels: Sequence[Any], seed: int) -> ClassTree:
        return _build_by_two_means(prototypes, labels, seed, self.restarts, halves)


def _build_by_two_means(
    prototypes: np.ndarray, labels: Sequence[Any], seed: int, restarts: int, assign: Assignment
) -> ClassTree:
    prototypes, hashes = checked_prototypes(prototypes, labels)
    prototypes = unit_length(prototypes)

    def split(members: np.ndarray) -> np.ndarray:
        generator = node_generator(seed, node_key(hashes[members]))
        return two_means(prototypes[members], restarts, assign, generator)

    return divide(hashes, split)
