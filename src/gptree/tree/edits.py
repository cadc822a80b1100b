"""Edits of class trees: joining, relabelling, pruning, grafting, by index arithmetic on the intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gptree.tree.structure import ClassTree


def join(left: ClassTree, right: ClassTree) -> ClassTree:
    """A new root over two trees.

    Parameters
    ----------
    left, right : ClassTree

    Returns
    -------
    ClassTree
        The classes of the right tree come after those of the left one.
    """
    n_left, n_classes = left.n_classes, left.n_classes + right.n_classes
    return ClassTree(
        np.concatenate((left.order, right.order + n_left)),
        np.concatenate(([0], left.lo, right.lo + n_left)),
        np.concatenate(([n_left], left.mid, right.mid + n_left)),
        np.concatenate(([n_classes], left.hi, right.hi + n_left)),
    )


def permute(tree: ClassTree, mapping: Sequence[int] | np.ndarray) -> ClassTree:
    """The same tree with class c renamed to class ``mapping[c]``.

    Parameters
    ----------
    tree : ClassTree
    mapping : permutation of 0 … C − 1

    Returns
    -------
    ClassTree
    """
    mapping = np.asarray(mapping)
    if mapping.shape != tree.order.shape:
        raise ValueError(f"The mapping needs one entry for each of the {tree.n_classes} classes.")
    return ClassTree(mapping[tree.order], tree.lo, tree.mid, tree.hi)


def remove(tree: ClassTree, classes: Iterable[int]) -> ClassTree:
    """The tree without some classes. A node that loses one side vanishes, and the other side takes its place.

    Parameters
    ----------
    tree : ClassTree
    classes : iterable of int

    Returns
    -------
    ClassTree
        The other classes keep their relative order and are numbered from 0 again.
    """
    return surviving(tree, classes)[0]


def surviving(tree: ClassTree, classes: Iterable[int]) -> tuple[ClassTree, np.ndarray]:
    """The tree without some classes, and where its nodes come from.

    Parameters
    ----------
    tree : ClassTree
    classes : iterable of int

    Returns
    -------
    ClassTree
        As `remove` gives it.
    int64 array
        Which nodes of the old tree its nodes are.
    """
    kept = np.ones(tree.n_classes, dtype=bool)
    for c in classes:
        if not 0 <= c < tree.n_classes:
            raise ValueError(f"There is no class {c}: the classes are 0 … {tree.n_classes - 1}.")
        kept[c] = False
    if not kept.any():
        raise ValueError("A class tree needs at least one class, so not all can be removed.")
    new_class = np.cumsum(kept) - 1
    in_leaf_order = kept[tree.order]
    new_position = np.concatenate(([0], np.cumsum(in_leaf_order)))  # kept leaves left of each position
    lo, mid, hi = new_position[tree.lo], new_position[tree.mid], new_position[tree.hi]
    stays = (lo < mid) & (mid < hi)
    pruned = ClassTree(new_class[tree.order[in_leaf_order]], lo[stays], mid[stays], hi[stays])
    return pruned, np.flatnonzero(stays)


def replace_leaf(tree: ClassTree, class_index: int, subtree: ClassTree) -> ClassTree:
    """The tree with a sub-tree in place of the leaf of one class.

    Parameters
    ----------
    tree : ClassTree
    class_index : int
    subtree : ClassTree
        Its class 0 is the class `class_index`; its classes 1, 2, … become the new classes C, C + 1, ….

    Returns
    -------
    ClassTree
    """
    if not 0 <= class_index < tree.n_classes:
        raise ValueError(f"There is no class {class_index}: the classes are 0 … {tree.n_classes - 1}.")
    position = tree.position[class_index]
    grafted_classes = np.where(subtree.order == 0, class_index, tree.n_classes - 1 + subtree.order)
    # In pre-order lo never falls; the ancestors of the leaf and all nodes left of it have lo ≤ position.
    row = np.searchsorted(tree.lo, position, side="right")

    def graft(old: np.ndarray, grafted: np.ndarray) -> np.ndarray:
        shifted = old + (subtree.n_classes - 1) * (old > position)
        return np.concatenate((shifted[:row], grafted + position, shifted[row:]))

    return ClassTree(
        np.concatenate((tree.order[:position], grafted_classes, tree.order[position + 1 :])),
        graft(tree.lo, subtree.lo),
        graft(tree.mid, subtree.mid),
        graft(tree.hi, subtree.hi),
    )
