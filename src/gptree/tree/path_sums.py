"""Log-odds of the decisions on the path of one class, from sums over intervals of leaves."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gptree.tree.structure import ClassTree

#: Leaves of a block, which is added up once.
BLOCK = 32
SMALL = {torch.float64: 1e-290, torch.float32: 1e-30}
"""Sums of probabilities below this are too near the smallest number for their logarithm to be exact."""


class PathSums:
    """What class scores say about the decisions on the way to one class of each row.

    The siblings along a path and its leaf cut the leaves into depth + 1 intervals. Their sums of probabilities, added
    up from the leaf, give both sides of every decision: all terms are positive, so that nothing cancels. A sum is one
    of whole blocks of leaves, and of the leaves of the blocks in which intervals begin.

    Parameters
    ----------
    tree : ClassTree
        Of two classes or more.
    device : torch.device
    """

    def __init__(self, tree: ClassTree, device: torch.device) -> None:
        depth, nodes = tree.leaf_depth, tree.path_nodes
        first = np.cumsum(depth) - depth
        leaf = np.repeat(np.arange(tree.n_classes), depth)
        step = np.arange(len(nodes)) - first[leaf]
        right = leaf >= tree.mid[nodes]
        before = np.cumsum(right) - right
        before -= before[first][leaf]  # right turns before this one: intervals further left
        interval = np.where(right, before, depth[leaf] - (step - before))
        turns = np.add.reduceat(right.astype(np.int64), first)
        starts = np.empty(len(nodes) + tree.n_classes, dtype=np.int64)
        starts[first[leaf] + leaf + interval] = np.where(right, tree.lo[nodes], tree.mid[nodes])
        starts[first + np.arange(tree.n_classes) + turns] = np.arange(tree.n_classes)
        self._blocks = -(-tree.n_classes // BLOCK)
        leaves = np.arange(self._blocks * BLOCK).reshape(-1, BLOCK).T.ravel()  # side by side: they are added fast
        classes, missing = tree.order[leaves % tree.n_classes], np.flatnonzero(leaves >= tree.n_classes)
        parts = tree.order, classes, missing, tree.position, depth, first, right, interval, starts, turns
        self._order, self._classes, self._missing, self._position, *paths = (
            torch.from_numpy(np.array(part)).to(device) for part in parts
        )
        self._depth, self._first, self._right, self._interval, self._starts, self._own = paths

    def log_odds(self, below: Tensor, p: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """log-odds of left against right, (Σ depth,): row after row, from the root down; and log p of the classes (T,).

        Parameters
        ----------
        below, p : tensors (T, C)
            Class log-scores less the best one of their row, and their exponentials.
        classes : int64 tensor (T,)
            The class whose path is asked for.
        """
        leaves = self._position[classes]
        depth = self._depth[leaves]
        begin = (depth + 1).cumsum(0) - (depth + 1)  # where the intervals of a row begin
        row, place = ragged(depth + 1)
        starts = self._starts[(self._first[leaves] + leaves)[row] + place]
        sums = self._interval_sums(p, row, starts)
        small = (sums < SMALL[p.dtype]).nonzero()[:, 0]
        sums = sums.log()
        if len(small) > 0:
            ends = torch.cat([starts[1:], starts[:1]]).masked_fill_(place == depth[row], below.shape[1])
            which, leaf = ragged((ends - starts)[small])
            number = small[which]
            sums[small] = _log_sums(below[row[number], self._order[starts[number] + leaf]], (ends - starts)[small])
        row, place = ragged(depth)
        where = self._first[leaves][row] + place
        aside = begin[row] + self._interval[where]
        own = begin + self._own[leaves]
        outside = sums.new_full((len(classes), int(depth.max())), -torch.inf)
        outside[row, place] = sums[aside]
        within = torch.cat([outside[:, 1:], sums[own, None]], 1).flip(1).logcumsumexp(1).flip(1)
        log_p = sums[own] - torch.logaddexp(within[:, 0], outside[:, 0])
        within, outside = within[row, place], outside[row, place]
        odds = torch.where(within == outside, 0.0, within - outside)  # −∞ on both sides says nothing
        return torch.where(self._right[where], -odds, odds), log_p

    def _interval_sums(self, p: Tensor, row: Tensor, starts: Tensor) -> Tensor:
        """Sums of probabilities p (T, C) over intervals that cut the leaves of each row, from their rows and starts."""
        in_blocks = p.index_select(1, self._classes)
        in_blocks[:, self._missing] = 0.0
        blocks = in_blocks.view(len(p), BLOCK, self._blocks).sum(1).double().flatten()
        begins = row * self._blocks + starts // BLOCK
        opened, number = begins.unique_consecutive(return_inverse=True)
        blocks[opened] = 0.0
        inside = in_blocks.view(len(p), BLOCK, self._blocks)[opened // self._blocks, :, opened % self._blocks]
        parts = (blocks, begins), (inside.double().flatten(), number * BLOCK + starts % BLOCK)
        sums = [torch.segment_reduce(v, "sum", offsets=torch.cat([at, at.new_tensor([len(v)])])) for v, at in parts]
        return sums[0] + sums[1]


def _log_sums(terms: Tensor, sizes: Tensor) -> Tensor:
    """log Σ e^term over lists of terms (n,) of these sizes, one after the other, in double precision."""
    terms, number = terms.double(), ragged(sizes)[0]
    top = torch.segment_reduce(terms, "max", lengths=sizes)
    top = torch.where(top > -torch.inf, top, 0.0)
    return top + torch.segment_reduce((terms - top[number]).exp_(), "sum", lengths=sizes).log_()


def ragged(sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Number of the list, and place in it, of the members of lists of these sizes, (Σ sizes,) each."""
    number = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
    return number, torch.arange(len(number), device=sizes.device) - (sizes.cumsum(0) - sizes)[number]
