"""All trees of a forest as one numbered list of vertices, level by level: sums up to the nodes, and factors down."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gptree.tree import ClassTree


class Vertices:
    """The vertices of M trees over the same C ≥ 2 classes.

    Inner nodes have the numbers 0 … N − 1, level after level from the roots, all trees together: those of a level are a
    slice. The leaf of class c in tree m is N + m C + c.

    Parameters
    ----------
    trees : sequence of ClassTree
    node_of : sequence of int64 tensors (C − 1,)
        The number, among all fitted nodes, of each node of each tree.
    """

    def __init__(self, trees: Sequence[ClassTree], node_of: Sequence[Tensor]) -> None:
        self.n_trees, self.n_classes = len(trees), trees[0].n_classes
        depth = np.concatenate([tree.node_depth for tree in trees])
        order, bounds = np.argsort(depth, kind="stable"), np.cumsum([0, *np.bincount(depth)]).tolist()
        self.n_nodes, self.levels = len(depth), list(pairwise(bounds))
        place = np.argsort(order)
        children = np.concatenate(
            [self._children(tree, m, place[m * tree.n_nodes : (m + 1) * tree.n_nodes]) for m, tree in enumerate(trees)]
        )[order]
        parent = np.zeros(self.n_nodes + self.n_trees * self.n_classes, dtype=np.int64)  # that of a root is never used
        parent[children] = np.arange(self.n_nodes)[:, None]
        size = np.concatenate([tree.hi - tree.lo for tree in trees])[order]
        leaf = children >= self.n_nodes
        summed = np.where(leaf, self.n_nodes + (children - self.n_nodes) % self.n_classes, children)
        device = node_of[0].device
        self.children, self.parent, self.size, self.summed = (
            torch.from_numpy(np.ascontiguousarray(array)).to(device)
            for array in (children, parent, np.append(size, np.ones(self.n_trees * self.n_classes, np.int64)), summed)
        )
        self.number = torch.cat(list(node_of))[torch.from_numpy(order).to(device)]

    def _children(self, tree: ClassTree, m: int, place: np.ndarray) -> np.ndarray:
        children = np.stack([tree.left_child, tree.right_child], 1)
        leaf = children >= tree.n_nodes
        found = np.empty_like(children)
        found[leaf] = self.n_nodes + m * self.n_classes + tree.order[children[leaf] - tree.n_nodes]
        found[~leaf] = place[children[~leaf]]
        return found

    def sum_up(self, values: Tensor) -> None:
        """Fill the first N rows of values (N + C, T) with sums over the classes of nodes; the others are the classes'.

        `summed` (N, 2) says where both sides of a node stand there.
        """
        for start, stop in reversed(self.levels):
            left, right = (values.index_select(0, side) for side in self.summed[start:stop].unbind(1))
            torch.add(left, right, out=values[start:stop])

    def spread(self, factors: Tensor) -> Tensor:
        """(C, T) Σ over the trees of what stands on the way to each class, of factors (N + M C, T).

        Those of inner nodes become the sums on the way to them, too.
        """
        for start, stop in self.levels[1:]:
            factors[start:stop] += factors.index_select(0, self.parent[start:stop])
        total = factors[self.n_nodes :].view(self.n_trees, self.n_classes, -1).sum(0)
        for parents in self.parent[self.n_nodes :].view(self.n_trees, self.n_classes):
            total += factors.index_select(0, parents)
        return total
