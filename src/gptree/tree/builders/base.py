"""The interface of tree builders, and what they share.

Two rules hold for all builders. The side with the smallest class index is the left one. And what happens at a node
depends only on the prototypes, labels and relative order of its classes and on the seed: building over the classes of
a node alone gives the sub-tree at that node (with Ward's criterion: unless two distances are equal).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from gptree.settings import NamedSettings
from gptree.tree.keys import label_hashes
from gptree.tree.structure import ClassTree


class TreeBuilder(NamedSettings, ABC):
    """Builds a class tree from class means. A builder is a frozen dataclass that subclasses this and has `build`.

    With a `name` it is found by that name: ``GPTreeClassifier(tree="two-means")``.

    Examples
    --------
    >>> from gptree.tree import TreeBuilder
    >>> "two-means" in TreeBuilder.names()
    True
    """

    family: ClassVar[str] = "tree builder"
    example: ClassVar[str] = "TwoMeans(restarts=10)"

    @abstractmethod
    def build(self, prototypes: np.ndarray, labels: Sequence[Any], seed: int) -> ClassTree:
        """The tree over the classes.

        Parameters
        ----------
        prototypes : array (C, d)
            Class means.
        labels : sequence of C labels
            Random choices at a node are keyed by them.
        seed : int

        Returns
        -------
        ClassTree
        """


def build_tree(
    spec: str | TreeBuilder | ClassTree | list[Any] | tuple[Any, ...] | None,
    prototypes: np.ndarray,
    labels: Sequence[Any],
    seed: int,
) -> ClassTree:
    """The tree that the parameter `tree` of the estimators describes.

    Parameters
    ----------
    spec : a builder, its name, a ClassTree over the same classes, nested lists of labels, or None
        None is `TwoMeans()`.
    prototypes : array (C, d)
        Class means.
    labels : sequence of C labels
    seed : int

    Returns
    -------
    ClassTree
    """
    if isinstance(spec, ClassTree):
        if spec.n_classes != len(labels):
            raise ValueError(f"The given tree has {spec.n_classes} classes, but the data have {len(labels)}.")
        return spec
    if isinstance(spec, list | tuple):
        return ClassTree.from_nested(spec, labels)
    return TreeBuilder.of("two-means" if spec is None else spec).build(prototypes, labels, seed)


def checked_prototypes(prototypes: np.ndarray, labels: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The prototypes in float64, and the hashes of the labels.

    Raises
    ------
    ValueError
        If they do not belong together, are not finite, or a label stands twice.
    """
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


def divide(hashes: np.ndarray, split: Callable[[np.ndarray], np.ndarray]) -> ClassTree:
    """The tree that arises from splitting the classes from the root down.

    Members are handed over in the order of their hashes, so a random choice among them does not depend on how
    the classes are numbered. A split that leaves one side empty is replaced by two halves in class order.

    Parameters
    ----------
    hashes : uint64 array (C,)
        `label_hashes` of the labels.
    split : function from class numbers (m,) to booleans (m,)
        Marks the members of one side; asked at nodes of three classes or more.

    Returns
    -------
    ClassTree
    """
    order = np.empty(len(hashes), dtype=np.int64)
    nodes = []
    stack = [(0, np.argsort(hashes))]
    while stack:
        lo, members = stack.pop()
        if len(members) == 1:
            order[lo] = members[0]
            continue
        halves = members > np.sort(members)[(len(members) - 1) // 2]
        side = split(members) if len(members) > 2 else halves
        if side.all() or not side.any():
            side = halves
        if side[np.argmin(members)]:
            side = ~side
        mid = lo + len(members) - int(side.sum())
        nodes.append((lo, mid, lo + len(members)))
        stack += ((mid, members[side]), (lo, members[~side]))
    return ClassTree.from_nodes(order, nodes)
