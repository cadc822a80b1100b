"""Class log-probabilities by beam search: Gaussian processes are asked only where a row may go.

The experts score all classes, and sums over intervals of leaves give the prior mean of any node. From the root down, a
beam of nodes is kept for every row, the most probable ones; only there the prior mean is corrected by the node's
Gaussian process. Sub-trees outside the beam keep their probability, which is exact, and divide it among their classes
as the experts do. So all classes have a probability, and these sum to one.
"""

from __future__ import annotations

import copy
import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.inference import DensePosterior, InducingPosterior, NodePredictor
from gptree.inference.layer import Stationary
from gptree.maths.frozen import Parts, Rows, log_sigmoids
from gptree.model.forest import PIECE_NUMBERS, PIECE_ROWS, ForestModel
from gptree.model.prediction import Prediction, unit_rows
from gptree.tree import ClassTree

#: Scores further below the best of their row count as this, so that no sum of them vanishes.
FLOOR = {torch.float32: -80.0, torch.float64: -700.0}
#: Points that the kernel is computed at together.
POINTS = 4_096
#: Arrays of a number a class that a search holds.
ARRAYS = 8
#: Up to so many leaves, sums are taken of the leaves themselves; beyond, as differences of cumulative sums.
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
    """

    def __init__(self, prediction: Prediction, model: ForestModel, dtype: torch.dtype) -> None:
        self._prediction, self._dtype, self._predictor = prediction, dtype, model.predictor
        grams, used = model.predictor.grams, model.predictor.used_rows
        kernel = copy.deepcopy(grams.kernel).to(dtype)
        self._kernels = [_kernel(kernel, grams.X[some].to(dtype)) for some in used.split(POINTS)]
        self._sums = _Sums(model.predictor, dtype)
        self._points, self._numbers = len(used), len(used) + ARRAYS * model.n_classes
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

    def pieces(self, x: Tensor) -> tuple[Tensor, ...]:
        """Rows (T, d) in pieces that stay within the memory budget, on a processor no more than its cache likes."""
        most = self._budget // self._numbers
        return x.split(max(1, most if x.is_cuda else min(most, max(PIECE_NUMBERS // self._numbers, PIECE_ROWS))))

    def log_probabilities(self, x: Tensor, width: int) -> Tensor:
        """(T, C), of mapped features x (T, d), with a beam of `width` nodes."""
        scores, single = self._scores(x), x.to(self._dtype)
        kernel = single.new_empty(len(x), self._points)
        for values, part in zip(kernel.split(POINTS, 1), self._kernels, strict=True):
            values.copy_(part(Rows(single)).mT)
        total: Tensor | None = None
        for tree in self._trees:
            in_order = scores.index_select(1, tree.order)
            found = _Search(tree, in_order, kernel, self._sums).run(width).index_select(1, tree.position)
            total = found if total is None else torch.logaddexp(total, found)
        assert total is not None
        return total - math.log(len(self._trees))

    def _scores(self, x: Tensor) -> Tensor:
        """The experts' scores, the best of each row 0."""
        prediction, prior = self._prediction, self._prediction.log_prior
        if prediction.experts is None:
            scores = torch.zeros(len(x), prediction.n_classes, dtype=self._dtype, device=x.device)
        else:
            scores = prediction.experts(Rows(x if prediction.unit_length else unit_rows(x))).to(self._dtype)
        scores = scores if prior is None else scores + prior.to(self._dtype)
        return (scores - scores.amax(1, keepdim=True)).clamp_(min=FLOOR[self._dtype])


def _kernel(kernel: Kernel, X: Tensor) -> Stationary:
    parts = Parts()
    made = Stationary(kernel, X, parts)
    parts.shared()
    return made


class _Tree:
    """A class tree as tensors."""

    def __init__(self, tree: ClassTree, nodes: Tensor) -> None:
        arrays = (tree.order, tree.position, tree.lo, tree.mid, tree.hi, tree.left_child, tree.right_child)
        self.order, self.position, self.lo, self.mid, self.hi, left, right = (
            torch.tensor(array, device=nodes.device) for array in arrays
        )
        self.children = torch.stack([left, right], 1)
        self.number, self.n_nodes = nodes, tree.n_nodes


class _Sums:
    """Latent means k⋆ᵀ α of single nodes, as sums over their points."""

    def __init__(self, predictor: NodePredictor, dtype: torch.dtype) -> None:
        nodes, points, weights = [], [], []
        for p in predictor.posteriors:
            some = p.weights[0] != 0  # not the padding
            nodes.append(p.nodes[:, None].expand_as(p.rows)[some])
            points.append(torch.searchsorted(predictor.used_rows, p.rows)[some])
            weights.append(p.weights[0][some])
        order = torch.cat(nodes).argsort(stable=True)
        self.sizes = torch.bincount(torch.cat(nodes), minlength=predictor.n_nodes)
        self.starts = self.sizes.cumsum(0) - self.sizes
        self.points, self.weights = torch.cat(points)[order], torch.cat(weights)[order].to(dtype)

    def at(self, nodes: Tensor, rows: Tensor, kernel: Tensor) -> Tensor:
        """(P,) at pairs of a node and a row, in the order of the rows, from k (T, n)."""
        sizes = self.sizes[nodes]
        where = _joined(self.starts[nodes], sizes)
        at = (rows * kernel.shape[1]).repeat_interleave(sizes).add_(self.points.index_select(0, where))
        terms = kernel.flatten().index_select(0, at).mul_(self.weights.index_select(0, where))
        return torch.segment_reduce(terms, "sum", lengths=sizes)


class _Search:
    """One tree, some rows: scores (T, C) in the order of the leaves."""

    def __init__(self, tree: _Tree, scores: Tensor, kernel: Tensor, sums: _Sums) -> None:
        self._tree, self._scores, self._kernel, self._sums = tree, scores, kernel, sums
        self._n_rows, self._n_classes = scores.shape
        zero = scores.new_zeros(self._n_rows, 1, dtype=torch.float64)
        self._cumulative = torch.cat([zero, scores.exp().cumsum(1, dtype=torch.float64)], 1)
        self._pieces: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []

    def run(self, width: int) -> Tensor:
        """Log-probabilities (T, C) of the leaves."""
        nodes = torch.zeros(self._n_rows, 1, dtype=torch.long, device=self._scores.device)
        log_p = torch.zeros(self._n_rows, 1, dtype=self._scores.dtype, device=self._scores.device)
        while bool((log_p > -torch.inf).any()):
            nodes, log_p = self._level(nodes, log_p, width)
        rows, lo, hi, offset = (torch.cat(parts) for parts in zip(*self._pieces, strict=True))
        order = (rows * self._n_classes + lo).argsort()
        offsets = offset[order].repeat_interleave((hi - lo)[order]).view_as(self._scores)
        return self._scores + offsets

    def _level(self, nodes: Tensor, log_p: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """From the nodes (T, W) of one level, reached with log p, −∞ for no node, to those of the next."""
        tree, there = self._tree, log_p > -torch.inf
        rows, column = there.nonzero(as_tuple=True)
        v = nodes[rows, column]
        left, right = (self._mass(rows, *ends) for ends in ((tree.lo[v], tree.mid[v]), (tree.mid[v], tree.hi[v])))
        f = left - right + self._sums.at(tree.number[v], rows, self._kernel)
        below = nodes.new_zeros(*nodes.shape, 2)
        below[rows, column] = tree.children[v]
        reached = log_p.new_full(below.shape, -torch.inf)
        reached[rows, column] = log_p[rows, column, None] + torch.stack(log_sigmoids(f), 1)
        below, reached = below.flatten(1), reached.flatten(1)
        is_leaf = below >= tree.n_nodes
        open_ends = reached.masked_fill(is_leaf, -torch.inf)
        best = open_ends.topk(min(width, open_ends.shape[1]), dim=1)
        done = (reached > -torch.inf).scatter_(1, best.indices, False) | (is_leaf & (reached > -torch.inf))
        rows, column = done.nonzero(as_tuple=True)
        self._finish(rows, column, below, reached)
        return below.gather(1, best.indices), best.values

    def _finish(self, rows: Tensor, column: Tensor, below: Tensor, reached: Tensor) -> None:
        """Leaves that were reached, and sub-trees that are not entered."""
        tree, v = self._tree, below[rows, column]
        leaf = v >= tree.n_nodes
        node = torch.where(leaf, 0, v)
        lo = torch.where(leaf, v - tree.n_nodes, tree.lo[node])
        hi = torch.where(leaf, lo + 1, tree.hi[node])
        self._pieces.append((rows, lo, hi, reached[rows, column] - self._mass(rows, lo, hi)))

    def _mass(self, rows: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
        """log Σ e^score over the leaves [lo, hi) of rows, (P,)."""
        found = self._scores.new_empty(len(rows))
        wide = hi - lo > WINDOW
        E, r = self._cumulative, rows[wide]
        found[wide] = (E[r, hi[wide]] - E[r, lo[wide]]).clamp_(min=1e-300).log_().to(found.dtype)
        if bool(wide.all()):
            return found
        sizes = (hi - lo)[~wide]
        where = _joined((rows * self._n_classes + lo)[~wide], sizes)
        terms = self._scores.flatten().index_select(0, where)
        top = torch.segment_reduce(terms, "max", lengths=sizes)
        terms.sub_(top.repeat_interleave(sizes)).exp_()
        found[~wide] = top + torch.segment_reduce(terms, "sum", lengths=sizes).log_()
        return found


def _joined(starts: Tensor, sizes: Tensor) -> Tensor:
    """The whole numbers from each start on, so many of each, one after the other."""
    first = (starts - sizes.cumsum(0) + sizes).repeat_interleave(sizes)
    return first.add_(torch.arange(len(first), device=first.device))
