"""How a class tree is built from class prototypes. Every builder is a value with one method, `build`.

Two rules hold for all builders. The side with the smallest class index is the left one. And what happens at
a node depends only on the prototypes, labels and relative order of its classes and on the seed: building over
the classes of a node alone gives the sub-tree at that node (with Ward's criterion: unless two distances are
equal).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

from gptree.settings import Settings
from gptree.tree.keys import label_hashes, node_generator, node_key
from gptree.tree.structure import ClassTree
from gptree.tree.two_means import Assignment, halves, nearest, two_means


@runtime_checkable
class TreeBuilder(Protocol):
    """Anything that turns class means (C, d) and their C labels into a tree."""

    def build(self, prototypes: np.ndarray, labels: Sequence[Any], seed: int) -> ClassTree: ...


@dataclass(frozen=True)
class TwoMeans(Settings):
    """The paper's tree: 2-means with k-means++ seeds on the normalised class means, again and again.

    Each split is the one of least inertia among `restarts` runs.
    """

    restarts: int = 10

    def build(self, prototypes: np.ndarray, labels: Sequence[Any], seed: int) -> ClassTree:
        return _build_by_two_means(prototypes, labels, seed, self.restarts, nearest)


@dataclass(frozen=True)
class BalancedTwoMeans(Settings):
    """2-means with both sides of equal size, up to one class, at every node: the depth is ⌈log₂ C⌉."""

    restarts: int = 10

    def build(self, prototypes: np.ndarray, labels: Sequence[Any], seed: int) -> ClassTree:
        return _build_by_two_means(prototypes, labels, seed, self.restarts, halves)


@dataclass(frozen=True)
class RandomBalanced(Settings):
    """The paper's "Rnd": a random half of the classes on each side. The prototypes play no part."""

    def build(self, prototypes: np.ndarray, labels: Sequence[Any], seed: int) -> ClassTree:
        _, hashes = _checked(prototypes, labels)

        def split(members: np.ndarray) -> np.ndarray:
            generator = node_generator(seed, node_key(hashes[members]))
            return generator.permutation(len(members)) < len(members) // 2

        return _divide(hashes, split)


@dataclass(frozen=True)
class Chain(Settings):
    """Stick-breaking: each class in the given order against all that follow."""

    def build(self, prototypes: np.ndarray, labels: Sequence[Any], seed: int) -> ClassTree:
        n_classes = len(_checked(prototypes, labels)[1])
        order = np.arange(n_classes)
        return ClassTree(order, order[:-1], order[:-1] + 1, np.full(n_classes - 1, n_classes))


@dataclass(frozen=True)
class Ward(Settings):
    """Agglomerative clustering of the normalised class means with Ward's criterion; needs 8 C² bytes."""

    def build(self, prototypes: np.ndarray, labels: Sequence[Any], seed: int) -> ClassTree:
        prototypes, _ = _checked(prototypes, labels)
        n_classes = len(prototypes)
        if n_classes == 1:
            return ClassTree.from_preorder([0])
        # Join k makes vertex C + k out of two earlier vertices; those below C are the classes.
        joins = linkage(pdist(unit_length(prototypes)), method="ward")[:, :2].astype(np.int64).tolist()
        smallest = list(range(n_classes))  # the smallest class under every vertex
        for join in joins:
            join.sort(key=smallest.__getitem__)
            smallest.append(smallest[join[0]])
        preorder, stack = [], [2 * n_classes - 2]
        while stack:
            vertex = stack.pop()
            if vertex < n_classes:
                preorder.append(vertex)
            else:
                preorder.append(-1)
                stack += reversed(joins[vertex - n_classes])
        return ClassTree.from_preorder(preorder)


_BUILDERS: dict[str, TreeBuilder] = {
    "two-means": TwoMeans(),
    "balanced": BalancedTwoMeans(),
    "random": RandomBalanced(),
    "chain": Chain(),
    "ward": Ward(),
}


def as_builder(builder: str | TreeBuilder) -> TreeBuilder:
    """The builder of a name, or the builder itself."""
    if isinstance(builder, str):
        if builder not in _BUILDERS:
            raise ValueError(f"Unknown tree builder {builder!r}; choose from {', '.join(_BUILDERS)}.")
        return _BUILDERS[builder]
    if not isinstance(builder, TreeBuilder) or isinstance(builder, type):
        raise TypeError(
            f"A tree builder is a value such as TwoMeans(restarts=10), or one of the names "
            f"{', '.join(_BUILDERS)}; got {builder!r}."
        )
    return builder


def build_tree(
    spec: str | TreeBuilder | ClassTree | list[Any] | tuple[Any, ...] | None,
    prototypes: np.ndarray,
    labels: Sequence[Any],
    seed: int,
) -> ClassTree:
    """The tree that a user asks for.

    `spec` is a builder or its name, a tree over the same classes, nested lists of labels, or None: 2-means.
    """
    if isinstance(spec, ClassTree):
        if spec.n_classes != len(labels):
            raise ValueError(f"The given tree has {spec.n_classes} classes, but the data have {len(labels)}.")
        return spec
    if isinstance(spec, list | tuple):
        return ClassTree.from_nested(spec, labels)
    return as_builder(TwoMeans() if spec is None else spec).build(prototypes, labels, seed)


def unit_length(prototypes: np.ndarray) -> np.ndarray:
    """Rows of length one; zero rows stay zero."""
    # Scaled by their largest entries, rows of size 1e-300 and 1e300 have squares that are ordinary numbers.
    largest = np.abs(prototypes).max(axis=1, keepdims=True, initial=0.0)
    scaled = prototypes / np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    return scaled / np.where(length > 0, length, 1.0)


def _checked(prototypes: np.ndarray, labels: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The prototypes in float64, and the hashes of the labels."""
    prototypes = np.asarray(prototypes, dtype=np.float64)
    if prototypes.ndim != 2 or len(prototypes) != len(labels) or len(labels) == 0:
        raise ValueError(
            f"Prototypes need one row for each of the {len(labels)} labels (at least one); "
            f"got the shape {prototypes.shape}."
        )
    if not np.isfinite(prototypes).all():
        raise ValueError("The prototypes hold NaN or infinity.")
    hashes = label_hashes(labels)
    if len(np.unique(hashes)) < len(hashes):
        raise ValueError("The labels hold a duplicate.")
    return prototypes, hashes


def _build_by_two_means(
    prototypes: np.ndarray, labels: Sequence[Any], seed: int, restarts: int, assign: Assignment
) -> ClassTree:
    if restarts < 1:
        raise ValueError(f"restarts must be at least 1; got {restarts}.")
    prototypes, hashes = _checked(prototypes, labels)
    prototypes = unit_length(prototypes)

    def split(members: np.ndarray) -> np.ndarray:
        generator = node_generator(seed, node_key(hashes[members]))
        return two_means(prototypes[members], restarts, assign, generator)

    return _divide(hashes, split)


def _divide(hashes: np.ndarray, split: Callable[[np.ndarray], np.ndarray]) -> ClassTree:
    """Split from the root down. `split(members)` marks the members of one side.

    Members are handed over in the order of their hashes, so a random choice among them does not depend on how
    the classes are numbered. A split that leaves one side empty is replaced by two halves in class order.
    """
    order = np.empty(len(hashes), dtype=np.int64)
    nodes = []
    stack = [(0, np.argsort(hashes))]
    while stack:
        lo, members = stack.pop()
        if len(members) == 1:
            order[lo] = members[0]
            continue
        side = split(members) if len(members) > 2 else np.array([False, True])
        if side.all() or not side.any():
            side = members > np.sort(members)[(len(members) - 1) // 2]
        if side[np.argmin(members)]:
            side = ~side
        mid = lo + len(members) - int(side.sum())
        nodes.append((lo, mid, lo + len(members)))
        stack += ((mid, members[side]), (lo, members[~side]))
    return ClassTree.from_nodes(order, nodes)
