"""Log-odds of the decisions on the path of one class, from sums over intervals of leaves."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gptree.tree.structure import ClassTree

SMALL = {torch.float64: 1e-290, torch.float32: 1e-30}
"""Sums of probabilities below this are too near the smallest number for their logarithm to be exact."""


class PathSums:
    """What class scores say about the decisions on the way to one class of each row.

    The siblings along a path and its leaf cut the leaves into depth + 1 intervals. One pass over a row gives their sums
    of probabilities, and adding them up from the leaf gives both sides of every decision: all terms are positive, so
    that nothing cancels.

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
        parts = tree.order, tree.position, depth, first, right, interval, starts, turns
        self._order, self._position, self._depth, self._first, self._right, self._interval, self._starts, self._own = (
            torch.from_numpy(np.array(part)).to(device) for part in parts
        )

    def log_odds(self, scores: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """log-odds of left against right, (Σ depth,): row after row, from the root down; and log p of the classes (T,).

        Parameters
        ----------
        scores : tensor (T, C)
            Class log-scores.
        classes : int64 tensor (T,)
            The class whose path is asked for.
        """
        leaves, n_classes = self._position[classes], scores.shape[1]
        depth = self._depth[leaves]
        begin = (depth + 1).cumsum(0) - (depth + 1)  # where the intervals of a row begin
        row, place = ragged(depth + 1)
        starts = self._starts[(self._first[leaves] + leaves)[row] + place]
        in_order = scores.index_select(1, self._order)
        p = in_order.sub_(in_order.amax(1, keepdim=True)).exp().double()
        ends = torch.cat([starts + row * n_classes, row.new_full((1,), p.numel())])
        sums = torch.segment_reduce(p.flatten(), "sum", offsets=ends)
        row, place = ragged(depth)
        where = self._first[leaves][row] + place
        aside = begin[row] + self._interval[where]
        own = begin + self._own[leaves]
        small = (sums < SMALL[scores.dtype]).nonzero()[:, 0]
        sums = sums.log()
        if len(small) > 0:
            sums[small] = log_sums(in_order.flatten(), ends[small], ends[small + 1] - ends[small])
        outside = sums.new_full((len(classes), int(depth.max())), -torch.inf)
        outside[row, place] = sums[aside]
        within = torch.cat([outside[:, 1:], sums[own, None]], 1).flip(1).logcumsumexp(1).flip(1)
        log_p = sums[own] - torch.logaddexp(within[:, 0], outside[:, 0])
        within, outside = within[row, place], outside[row, place]
        odds = torch.where(within == outside, 0.0, within - outside)  # −∞ on both sides says nothing
        return torch.where(self._right[where], -odds, odds), log_p


def log_sums(values: Tensor, starts: Tensor, sizes: Tensor) -> Tensor:
    """log Σ e^value over intervals of values (n,), in double precision; −∞ where one is empty."""
    number, place = ragged(sizes)
    terms = values[starts[number] + place].double()
    top = torch.segment_reduce(terms, "max", lengths=sizes)
    top = torch.where(top > -torch.inf, top, 0.0)
    return top + torch.segment_reduce(terms.sub_(top[number]).exp_(), "sum", lengths=sizes).log_()


def ragged(sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Number of the list, and place in it, of the members of lists of these sizes, (Σ sizes,) each."""
    number = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
    return number, torch.arange(len(number), device=sizes.device) - (sizes.cumsum(0) - sizes)[number]
