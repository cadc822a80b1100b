"""Between classes and decisions: class log-probabilities from decisions, log-odds of decisions from class scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from gptree.maths.frozen import log_add_exp
from gptree.tree.structure import ClassTree


class ForestPaths(nn.Module):
    """The ways from the roots of trees to their leaves, as index tensors: level by level, all trees at once.

    For T rows the work is O(T·C) a tree, whatever its shape. The edges of a level are its left decisions, then its
    right ones.

    Parameters
    ----------
    trees : sequence of ClassTree
        Over the same classes.
    node_of : sequence of int arrays
        The number, among all nodes, of each node of each tree. Trees may share nodes, which have the same classes on
        either side in all of them.
    n_nodes : int
        How many nodes there are. Some may be in no tree any more, since classes were removed.
    """

    nodes: Tensor
    """Those of all levels from the top."""
    inner: Tensor
    """The edges of a level that lead to the nodes of the next one, level by level from the top."""
    leaf_edges: Tensor
    """The edge that leads to each class, tree after tree."""
    leaf_classes: Tensor
    """The classes that edges lead to, level by level from the bottom."""
    leads_to: Tensor
    """Where the edges of a level lead to: leaves below it, then the nodes of the next one; from the bottom."""
    place: Tensor
    """Where each node stands in the levels from the bottom; of one that trees share, once."""

    def __init__(self, trees: Sequence[ClassTree], node_of: Sequence[np.ndarray], n_nodes: int) -> None:
        super().__init__()
        self.n_trees, self.n_classes = len(trees), trees[0].n_classes
        starts = np.cumsum([0, *(tree.n_nodes for tree in trees)])
        numbers = _joined(node_of)
        owner = np.repeat(np.arange(len(trees)), np.diff(starts))
        depth = np.concatenate([tree.node_depth for tree in trees])
        sides = [
            [_lower(tree, s, getattr(tree, side)) for tree, s in zip(trees, starts[:-1], strict=True)]
            for side in ("left_child", "right_child")
        ]
        target, is_leaf = (np.stack([np.concatenate([t[k] for t in side]) for side in sides]) for k in range(2))
        levels = np.split(np.argsort(depth, kind="stable"), np.cumsum(np.bincount(depth))[:-1]) if len(depth) else []
        position = np.empty(len(depth), dtype=np.int64)
        for level in levels:
            position[level] = np.arange(len(level))

        self.sizes = [2 * len(level) for level in levels]
        leaf_edges = np.zeros((len(trees), self.n_classes), dtype=np.int64)
        inner, leaves, children, done = [], [], [], 0
        for level in levels:
            leaf, to = is_leaf[:, level].ravel(), target[:, level].ravel()
            leaf_edges[np.tile(owner[level], 2)[leaf], to[leaf]] = done + np.flatnonzero(leaf)
            done += len(to)
            below = np.empty((~leaf).sum(), dtype=np.int64)
            below[position[to[~leaf]]] = np.flatnonzero(~leaf)
            inner.append(below)
            leaves.append(to[leaf])
            child = np.empty(len(to), dtype=np.int64)
            child[leaf], child[~leaf] = np.arange(leaf.sum()), leaf.sum() + position[to[~leaf]]
            children.append(child)
        self.leaf_counts = [len(classes) for classes in leaves]
        upwards = _joined(numbers[level] for level in reversed(levels))
        place = np.zeros(n_nodes, dtype=np.int64)
        place[upwards] = np.arange(len(upwards))
        tensors = {
            "nodes": _joined(numbers[level] for level in levels),
            "inner": _joined(inner),
            "leaf_edges": leaf_edges.ravel(),
            "leaf_classes": _joined(reversed(leaves)),
            "leads_to": _joined(reversed(children)),
            "place": place,
        }
        for name, values in tensors.items():
            self.register_buffer(name, torch.from_numpy(values))

    def log_odds(self, scores: Tensor) -> Tensor:
        """log-odds of left against right at every node, (nodes, T), from class log-scores (T, C); −∞ is allowed.

        Sums of probabilities run from the leaves up.
        """
        leaves = scores.mT.contiguous().index_select(0, self.leaf_classes).split(self.leaf_counts[::-1])
        level = leaves[0][:0] if leaves else scores.mT[:0]
        odds = [level[:0]]
        for leaf, child in zip(leaves, self.leads_to.split(self.sizes[::-1]), strict=True):
            left, right = torch.cat([leaf, level]).index_select(0, child).chunk(2)
            odds.append(torch.where(left == right, 0.0, left - right))  # −∞ on both sides says nothing
            level = log_add_exp(left, right)
        return torch.cat(odds).index_select(0, self.place)

    def class_log_probabilities(self, log_left: Tensor, log_right: Tensor) -> Tensor:
        """log p(c), the mean over the trees of the products along the path of c, (T, C).

        Parameters
        ----------
        log_left, log_right : tensors (nodes, T)
            The log-probabilities of going left and right; −∞ is allowed.
        """
        inner = self.inner.split([*(size // 2 for size in self.sizes[1:]), 0][: len(self.sizes)])
        above = log_left.new_zeros(self.n_trees, log_left.shape[1])  # log-probability of reaching each node of a level
        passed = []
        for nodes, below in zip(self.nodes.split([size // 2 for size in self.sizes]), inner, strict=True):
            # paper (9)
            both = torch.cat([above + side.index_select(0, nodes) for side in (log_left, log_right)])
            passed.append(both)
            above = both.index_select(0, below)
        if not passed:
            return above[:1].mT
        by_edge, total = torch.cat(passed), None
        for edges in self.leaf_edges.split(self.n_classes):
            by_class = by_edge.index_select(0, edges)
            total = by_class if total is None else log_add_exp(total, by_class)
        assert total is not None
        return (total if self.n_trees == 1 else total - math.log(self.n_trees)).mT


def _lower(tree: ClassTree, start: int, child: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the edges of a side lead to: the class of a leaf or the number of a node, and which of them it is."""
    leaf = child >= tree.n_nodes
    target = child + start
    target[leaf] = tree.order[child[leaf] - tree.n_nodes]
    return target, leaf


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def tree_paths(tree: ClassTree, like: Tensor) -> ForestPaths:
    """The paths of one tree, on the device of a tensor."""
    return ForestPaths([tree], [np.arange(tree.n_nodes)], tree.n_nodes).to(like.device)


def node_log_odds(tree: ClassTree, scores: Tensor) -> Tensor:
    """log-odds of left against right at every node of a tree, (C − 1, T), from class log-scores (T, C); −∞ allowed."""
    return tree_paths(tree, scores).log_odds(scores)


def class_log_probabilities(tree: ClassTree, log_left: Tensor, log_right: Tensor) -> Tensor:
    """log p(c) = Σ over the path of c of log p(left) or log p(right), for all classes at once.

    Parameters
    ----------
    log_left, log_right : (C − 1, T)
        The log-probabilities of going left and right at every inner node; −∞ is allowed.

    Returns
    -------
    (T, C), columns in class order. Sums run from parent to child, one level of the tree after another, so the
    relative error is at most depth × machine epsilon and the work is O(T·C) for a tree of any shape.
    """
    if log_left.shape != log_right.shape or log_left.dim() != 2 or log_left.shape[0] != tree.n_nodes:
        raise ValueError(
            f"log_left and log_right must both have the shape ({tree.n_nodes}, T); "
            f"got {tuple(log_left.shape)} and {tuple(log_right.shape)}."
        )
    return tree_paths(tree, log_left).class_log_probabilities(log_left, log_right)
