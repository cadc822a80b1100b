"""Class log-probabilities by beam search: Gaussian processes are asked only where a row may go.

The experts score all classes, and sums over intervals of leaves give the prior mean of any node. From the root down, a
beam of nodes is kept for every row, the most probable ones; only there the prior mean is corrected by the node's
Gaussian process. Sub-trees outside the beam keep their probability, which is exact, and divide it among their classes
as the experts do. So all classes have a probability, and these sum to one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gptree.experts import FittedExpert
from gptree.inference import DensePosterior, InducingPosterior
from gptree.inference.layer import Stationary
from gptree.maths.frozen import Parts, Rows, log_sigmoids
from gptree.model.forest import ForestModel, piece_rows
from gptree.model.node_sums import NodeSums
from gptree.model.prediction import Prediction, unit_rows
from gptree.tree import ClassTree, log_sums

#: Scores further below the best of their row count as this, so that no sum of them vanishes.
FLOOR = {torch.float32: -80.0, torch.float64: -700.0}
#: Arrays of a number a class that a search holds.
ARRAYS = 4
#: On a processor rows are searched for so many numbers at a time, and no more than that: the more there are, the more
#: of them ask the same nodes.
PIECE_NUMBERS, PIECE_ROWS = 2**26, 1_024
#: What is done with all classes is done with so many numbers at a time: arrays whose memory is used again.
STRIP_NUMBERS = 2**22
#: Up to so many leaves, sums are taken of the leaves themselves; beyond, of blocks of so many and the leaves beside.
WINDOW = 64


class Beam:
    """Beam search over the trees of a model.

    Parameters
    ----------
    prediction : Prediction
        Of the same model; its experts are asked.
    model : ForestModel
        One that `takes` accepts.
    dtype : torch.dtype
        What it computes in.
    experts : FittedExpert, optional
        Asked instead of those of the prediction, whose inner products are those that its nodes need.
    """

    def __init__(
        self, prediction: Prediction, model: ForestModel, dtype: torch.dtype, experts: FittedExpert | None = None
    ) -> None:
        self._prediction, self._dtype, self._n_classes = prediction, dtype, model.n_classes
        self._experts, parts = prediction.experts, Parts()
        if experts is not None:
            self._experts = experts.frozen(parts)
            parts.shared()
        self._sums = NodeSums(model.predictor, dtype)
        self._budget = model.memory_budget // (4 * dtype.itemsize)
        self._trees = [_Tree(tree, nodes) for tree, nodes in zip(model.trees, model.node_of, strict=True)]

    @staticmethod
    def takes(model: ForestModel) -> bool:
        """Whether a model has one set of weights a node, and a kernel that all share and whose formula is known."""
        single = all(
            isinstance(p, DensePosterior | InducingPosterior) and len(p.weights) == 1
            for p in model.predictor.posteriors
        )
        grams = model.predictor.grams
        return single and not grams.per_node and Stationary.takes(grams.kernel) and model.n_classes > 1

    def top_k(self, x: Tensor, width: int, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """The most probable classes of mapped features x (T, d), found with a beam of `width` nodes.

        Returns
        -------
        classes, probabilities : tensors (T, k)
            The most probable first.
        outside : tensor (T,)
            A bound on the exact probability of all other classes together: that of every leaf and every sub-tree where
            the search ended, unless all classes there are among the k.
        """
        most, likes = self._budget // (ARRAYS * self._n_classes), min(PIECE_NUMBERS // self._n_classes, PIECE_ROWS)
        pieces = x.split(piece_rows(x, most, likes))
        classes, p, outside = zip(*(self._top_k(some, width, k) for some in pieces), strict=True)
        return torch.cat(classes), torch.cat(p), torch.cat(outside)

    def _top_k(self, x: Tensor, width: int, k: int) -> tuple[Tensor, Tensor, Tensor]:
        (log_p, ends), best, p = self._log_probabilities(x, width), [], []
        for some in strips(log_p):
            found = some.topk(k, dim=1)
            best.append(self._trees[0].order[found.indices])
            p.append(found.values)
        classes = torch.cat(best)
        outside = torch.stack([_outside(*each, classes) for each in zip(self._trees, ends, strict=True)]).mean(0)
        return classes, torch.cat(p).sub_(math.log(len(self._trees))).exp_(), outside

    def _log_probabilities(self, x: Tensor, width: int) -> tuple[Tensor, list[_Ends]]:
        """(T, C), in the order of the leaves of the first tree, and up to the number of trees; where each ended."""
        first, *others = self._trees
        scores = x.new_empty(len(x), self._n_classes, dtype=self._dtype)
        for some, asked in zip(strips(scores), strips(x, self._n_classes), strict=True):
            torch.index_select(self._scores(asked), 1, first.order, out=some)
        x = x.to(self._dtype)
        found, end = _Search(first, scores.clone() if others else scores, x, self._sums).run(width)
        ends = [end]
        for tree in others:
            in_order = scores.index_select(1, first.position[tree.order])
            more, end = _Search(tree, in_order, x, self._sums).run(width)
            torch.logaddexp(found, more.index_select(1, tree.position[first.order]), out=found)
            ends.append(end)
        return found, ends

    def _scores(self, x: Tensor) -> Tensor:
        """The experts' scores, the best of each row 0."""
        prediction, prior = self._prediction, self._prediction.log_prior
        if self._experts is None:
            scores = torch.zeros(len(x), prediction.n_classes, dtype=self._dtype, device=x.device)
        else:
            scores = self._experts(Rows(x if prediction.unit_length else unit_rows(x))).to(self._dtype)
        scores = scores if prior is None else scores + prior.to(self._dtype)
        return (scores - scores.amax(1, keepdim=True)).clamp_(min=FLOOR[self._dtype])


def strips(values: Tensor, numbers: int | None = None) -> tuple[Tensor, ...]:
    """Rows of values (T, …), of so many `numbers` each, a few at a time."""
    numbers = values.shape[1] if numbers is None else numbers
    return values.split(len(values) if values.is_cuda else max(1, STRIP_NUMBERS // numbers))


class _Tree:
    """A class tree as tensors."""

    def __init__(self, tree: ClassTree, nodes: Tensor) -> None:
        arrays = (tree.order, tree.position, tree.lo, tree.mid, tree.hi, tree.left_child, tree.right_child)
        self.order, self.position, self.lo, self.mid, self.hi, left, right = (
            torch.tensor(array, device=nodes.device) for array in arrays
        )
        self.children = torch.stack([left, right], 1)
        self.number, self.n_nodes = nodes, tree.n_nodes


class _Ends(NamedTuple):
    """Where a search of one tree ended: leaves, and sub-trees that were not entered. Those of a row are all classes."""

    start: Tensor
    """(E,) number of the row times C, and the first leaf; ascending."""
    size: Tensor
    """(E,) how many leaves."""
    log_p: Tensor
    """(E,) the exact log-probability of all of them together."""
    counts: Tensor
    """(T,) how many there are of each row."""


def _outside(tree: _Tree, ends: _Ends, classes: Tensor) -> Tensor:
    """(T,) the probability of all ends that hold other classes than those of the row, (T, k)."""
    rows = torch.arange(len(classes), device=classes.device)[:, None]
    places = (tree.position[classes] + rows * len(tree.order)).flatten()
    within = torch.searchsorted(ends.start, places, right=True) - 1
    left_over = torch.bincount(within, minlength=len(ends.start)) < ends.size
    p = torch.where(left_over, ends.log_p.double().exp(), 0.0)
    return torch.segment_reduce(p, "sum", lengths=ends.counts).clamp_(max=1.0)


class _Search:
    """One tree, some rows x (T, d): scores (T, C) in the order of the leaves, which are overwritten."""

    def __init__(self, tree: _Tree, scores: Tensor, x: Tensor, sums: NodeSums) -> None:
        self._tree, self._scores, self._x, self._sums = tree, scores, x, sums
        self._n_rows, self._n_classes = scores.shape
        self._blocks = torch.cat([_block_sums(some) for some in strips(scores)])
        self._ends: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]] = []

    def run(self, width: int) -> tuple[Tensor, _Ends]:
        """Log-probabilities (T, C) of the leaves, and where the search ended."""
        nodes = torch.zeros(self._n_rows, 1, dtype=torch.long, device=self._scores.device)
        log_p = torch.zeros(self._n_rows, 1, dtype=self._scores.dtype, device=self._scores.device)
        while bool((log_p > -torch.inf).any()):
            nodes, log_p = self._level(nodes, log_p, width)
        rows, lo, hi, log_p, offset = (torch.cat(parts) for parts in zip(*self._ends, strict=True))
        starts, order = (rows * self._n_classes + lo).sort()
        sizes, offset, counts = (hi - lo)[order], offset[order], torch.bincount(rows)
        ends, start, row = counts.cumsum(0).tolist(), 0, 0  # of the intervals of each row
        for some in strips(self._scores):
            row += len(some)
            here = slice(start, start := ends[row - 1])
            some += offset[here].repeat_interleave(sizes[here], output_size=some.numel()).view_as(some)
        return self._scores, _Ends(starts, sizes, log_p[order], counts)

    def _level(self, nodes: Tensor, log_p: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """From the nodes (T, W) of one level, reached with log p, −∞ for no node, to those of the next."""
        tree = self._tree
        rows, column = (log_p > -torch.inf).nonzero(as_tuple=True)
        v = nodes[rows, column]
        masses = [self._mass(rows, *ends) for ends in ((tree.lo[v], tree.mid[v]), (tree.mid[v], tree.hi[v]))]
        f = masses[0] - masses[1] + self._sums.at(tree.number[v], rows, self._x)
        below, within = nodes.new_zeros(*nodes.shape, 2), log_p.new_zeros(*nodes.shape, 2)
        below[rows, column], within[rows, column] = tree.children[v], torch.stack(masses, 1)
        reached = log_p.new_full(below.shape, -torch.inf)
        reached[rows, column] = log_p[rows, column, None] + torch.stack(log_sigmoids(f), 1)
        below, within, reached = below.flatten(1), within.flatten(1), reached.flatten(1)
        is_leaf = below >= tree.n_nodes
        open_ends = reached.masked_fill(is_leaf, -torch.inf)
        best = open_ends.topk(min(width, open_ends.shape[1]), dim=1)
        done = (reached > -torch.inf).scatter_(1, best.indices, False) | (is_leaf & (reached > -torch.inf))
        rows = done.nonzero()[:, 0]
        self._finish(rows, below[done], reached[done], within[done])
        return below.gather(1, best.indices), best.values

    def _finish(self, rows: Tensor, v: Tensor, log_p: Tensor, within: Tensor) -> None:
        """Leaves that were reached, and sub-trees that are not entered; what is added to the scores there."""
        tree = self._tree
        leaf = v >= tree.n_nodes
        node = torch.where(leaf, 0, v)
        lo = torch.where(leaf, v - tree.n_nodes, tree.lo[node])
        hi = torch.where(leaf, lo + 1, tree.hi[node])
        self._ends.append((rows, lo, hi, log_p, log_p - within))

    def _mass(self, rows: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """log Σ e^score over the leaves [lo, hi) of rows, (P,)."""
        scores, begin, wide = self._scores.flatten(), rows * self._n_classes, (hi - lo > WINDOW).nonzero()[:, 0]
        first, last = -(-lo[wide] // WINDOW), hi[wide] // WINDOW  # the blocks within
        starts = torch.cat([lo, last * WINDOW])
        sizes = torch.cat([hi.index_copy(0, wide, first * WINDOW), hi[wide]]) - starts
        found = log_sums(scores, torch.cat([begin, begin[wide]]) + starts, sizes)
        before, after = found[: len(lo)], found[len(lo) :]
        middle = (self._blocks[rows[wide], last] - self._blocks[rows[wide], first]).clamp_(min=1e-300).log_()
        before[wide] = torch.stack([before[wide], middle, after]).logsumexp(0)
        return before.to(scores.dtype)


def _block_sums(scores: Tensor) -> Tensor:
    """Σ e^score (T, C // WINDOW + 1) before each block of so many leaves, of scores (T, C)."""
    blocks = scores.shape[1] // WINDOW
    sums = scores.exp()[:, : blocks * WINDOW].unflatten(1, (blocks, WINDOW)).sum(2).double()
    return torch.cat([sums.new_zeros(len(sums), 1), sums], 1).cumsum_(1)
