"""Prior means of the nodes from class scores: μ_v(x) = logsumexp over the left classes − logsumexp over the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gptree.tree import ClassTree, ForestPaths, node_log_odds, tree_paths

#: Rows are processed so many numbers at a time: (2C − 1) × rows of them.
CHUNK_NUMBERS = 2**24


@dataclass(frozen=True, eq=False)
class PathOdds:
    """Prior means of training rows at the nodes on the path of their own class, and nowhere else: Σ depth numbers.

    Attributes
    ----------
    values : tuple of tensors (Σ depth,)
        Of each tree: row after row, from the root down.
    starts : tuple of int64 tensors (n,)
        Where the numbers of a row begin.
    """

    values: tuple[Tensor, ...]
    starts: tuple[Tensor, ...]

    def at(self, tree: int, depth: Tensor, rows: Tensor) -> Tensor:
        """μ of rows (P,) at the nodes of these depths (P,) on their paths in a tree."""
        return self.values[tree][self.starts[tree][rows] + depth]

    def some(self, rows: Tensor) -> PathOdds:
        """Those of some rows, by their numbers or as marked."""
        return replace(self, starts=tuple(starts[rows] for starts in self.starts))


class PathTable:
    """Makes `PathOdds` of class scores that come some rows after the other.

    Parameters
    ----------
    trees : sequence of ClassTree
        Over the same classes.
    y : int array (n,)
        The classes of the rows.
    like : tensor
        Of the dtype and device wanted.
    """

    def __init__(self, trees: Sequence[ClassTree], y: np.ndarray, like: Tensor) -> None:
        offsets = np.cumsum([0, *(tree.n_nodes for tree in trees)])
        numbers = [np.arange(tree.n_nodes) + offset for tree, offset in zip(trees, offsets, strict=False)]
        self._paths = ForestPaths(trees, numbers, int(offsets[-1])).to(like.device)
        self._trees = []
        for tree, offset in zip(trees, offsets, strict=False):
            nodes, depth = tree.path_nodes + offset, tree.leaf_depth
            position = tree.position[y]
            begins = (np.cumsum(depth) - depth)[position]
            size = depth[position]
            parts = nodes, begins, size, np.cumsum(size) - size
            self._trees.append([torch.as_tensor(part, device=like.device) for part in parts])
        self._values = [like.new_empty(int(size.sum())) for _, _, size, _ in self._trees]

    def add(self, rows: Tensor, scores: Tensor) -> None:
        """Class scores (r, C) of some rows (r,)."""
        pairs = []
        for nodes, begins, size, starts in self._trees:
            sizes = size[rows]
            place = torch.arange(int(sizes.sum()), device=rows.device)
            place -= (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
            here = torch.arange(len(rows), device=rows.device).repeat_interleave(sizes)
            pairs.append((nodes[begins[rows][here] + place], here, starts[rows][here] + place))
        nodes, at = (torch.cat([pair[k] for pair in pairs]) for k in range(2))
        odds = self._paths.log_odds_at(scores, nodes, at).split([len(at) for _, at, _ in pairs])
        for values, (_, _, place), found in zip(self._values, pairs, odds, strict=True):
            values[place] = found.to(values.dtype)

    def done(self) -> PathOdds:
        """The table, when all rows were added."""
        return PathOdds(tuple(map(_finite, self._values)), tuple(starts for *_, starts in self._trees))


def training_log_odds(
    tree: ClassTree, scores: Tensor | PathOdds | None, nodes: Sequence[int], rows: Sequence[np.ndarray], number: int = 0
) -> list[Tensor | None]:
    """Prior means at each of the given nodes for its own rows.

    `scores` are (n, C), or (1, C) for all rows alike, or the means on the rows' own paths, of which the tree is the one
    of that `number`.
    """
    if scores is None or len(nodes) == 0:
        return [None] * len(nodes)
    sizes = [len(r) for r in rows]
    if isinstance(scores, PathOdds):
        values = scores.values[number]
        flat_rows = torch.as_tensor(np.concatenate(rows), device=values.device)
        depth = torch.as_tensor(np.repeat(tree.node_depth[nodes], sizes), device=values.device)
        return list(scores.at(number, depth, flat_rows).split(sizes))
    if len(scores) == 1:
        odds = _finite(node_log_odds(tree, scores)[:, 0])
        return [odds[v].expand(len(r)) for v, r in zip(nodes, rows, strict=True)]
    flat_rows = torch.as_tensor(np.concatenate(rows), device=scores.device)
    flat_nodes = torch.as_tensor(np.repeat(nodes, sizes), device=scores.device)
    out = torch.empty(len(flat_rows), dtype=scores.dtype, device=scores.device)
    step = max(1, CHUNK_NUMBERS // (2 * tree.n_classes))
    paths = tree_paths(tree, scores)
    for start in range(0, len(scores), step):
        odds = paths.log_odds(scores[start : start + step])
        here = (flat_rows >= start) & (flat_rows < start + step)
        out[here] = odds[flat_nodes[here], flat_rows[here] - start]
    return list(_finite(out).split(sizes))


def _finite(means: Tensor) -> Tensor:
    if not bool(torch.isfinite(means).all()):
        raise ValueError("the class scores of a training row give a prior mean that is not finite: bound the scores.")
    return means
