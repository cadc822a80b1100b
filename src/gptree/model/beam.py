"""Class probabilities by beam search: Gaussian processes are asked only where a row may go.

The experts score all classes, and sums over the classes of a node give the prior mean of any. From the roots down, a
beam of nodes is kept for every row in every tree, the most probable ones; only there the prior mean is corrected by the
node's Gaussian process. Sub-trees outside the beam keep their probability, which is exact, and divide it among their
classes as the experts do. So all classes have a probability, and these sum to one.

The trees are searched together, level by level: what they share is done once. Where there are few points, the latent
means of all nodes are computed at once, from inner products that the experts need, too, and looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gptree.experts import FittedExpert
from gptree.inference import DensePosterior, InducingPosterior
from gptree.inference.layer import Stationary
from gptree.maths.frozen import Parts, Rows, log_sigmoids
from gptree.model.beam_vertices import Vertices
from gptree.model.forest import ForestModel, piece_rows
from gptree.model.node_sums import EveryNode, NodeSums
from gptree.model.prediction import Prediction, unit_rows

#: Scores further below the best of their row count as this, so that no sum of them vanishes.
FLOOR = {torch.float32: -80.0, torch.float64: -700.0}
#: Up to so many points all nodes are asked at once, by the inner products that experts need of the same points.
EVERY_POINTS = 2**16
#: On a processor rows are searched for so many numbers at a time, but no fewer rows than that, if all nodes are asked:
#: its cache decides. Otherwise more numbers, and no more rows than that: the more, the more of them ask the same nodes.
NEAR_NUMBERS, NEAR_ROWS = 2**23, 128
PIECE_NUMBERS, PIECE_ROWS = 2**28, 1_024
#: Experts are asked for so many numbers at a time: arrays whose memory is used again.
STRIP_NUMBERS = 2**22


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
        self._prediction, self._dtype, X = prediction, dtype, model.predictor.grams.X
        self._vertices = Vertices(model.trees, model.node_of)
        parts, centre = ([Parts()], None) if prediction.unit_length else ([Parts(), Parts()], X.mean(0))
        self._experts = prediction.experts if experts is None else experts.frozen(parts[0])
        self._every: Callable[[Rows], Tensor] | None = None
        self._single: NodeSums | None = None
        points = len(model.predictor.used_rows)
        if points > EVERY_POINTS:
            self._single = NodeSums(model.predictor, prediction.nodes.sums, dtype, centre)
        elif dtype == X.dtype:
            self._every = prediction.nodes.single_draws
        else:
            self._every = EveryNode(model.predictor, prediction.nodes.sums, dtype, parts[-1], centre)
        for each in parts:
            each.shared()
        numbers = (3 * len(model.trees) + 2) * model.n_classes
        self._rows_on_processor = min(PIECE_NUMBERS // numbers, PIECE_ROWS)
        if self._every is not None:
            numbers += 4 * points + model.predictor.n_nodes
            self._rows_on_processor = max(NEAR_NUMBERS // numbers, NEAR_ROWS)
        self._rows_in_memory = model.memory_budget // (4 * dtype.itemsize * numbers)

    @staticmethod
    def takes(model: ForestModel) -> bool:
        """Whether a model has one set of weights a node, and a kernel that all share and whose formula is known."""
        single = all(
            isinstance(p, DensePosterior | InducingPosterior) and len(p.weights) == 1
            for p in model.predictor.posteriors
        )
        grams = model.predictor.grams
        return single and not grams.per_node and Stationary.takes(grams.kernel) and model.n_classes > 1

    def top_k(self, x: Tensor, width: int, k: int, raw: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        """The most probable classes of mapped features x (T, d), found with a beam of `width` nodes.

        `raw` is what these were computed from, for experts that ask for it.

        Returns
        -------
        classes, probabilities : tensors (T, k)
            The most probable first.
        outside : tensor (T,)
            A bound on the exact probability of all other classes together: that of every leaf and every sub-tree where
            the search ended, unless all classes there are among the k.
        """
        pieces = Rows(x, raw).split(piece_rows(x, self._rows_in_memory, self._rows_on_processor))
        classes, p, outside = zip(*(self._top_k(some, width, k) for some in pieces), strict=True)
        return torch.cat(classes), torch.cat(p), torch.cat(outside)

    def _top_k(self, rows: Rows, width: int, k: int) -> tuple[Tensor, Tensor, Tensor]:
        sums, latents = self._asked(rows)
        search = _Search(self._vertices, sums, latents)
        search.run(width)
        p = self._vertices.spread(search.factors).mul_(sums[self._vertices.n_nodes :]).div_(self._vertices.n_trees)
        best = [some.contiguous().topk(k, dim=1) for some in p.mT.split(strip_rows(p.mT))]
        classes = torch.cat([found.indices for found in best])
        return classes, torch.cat([found.values for found in best]), search.outside(classes)

    def _asked(self, rows: Rows) -> tuple[Tensor, Callable[[Tensor, Tensor], Tensor]]:
        """Sums of e^score (N + C, T), and what gives the latent means at pairs of a node and a row, (P,)."""
        vertices, means, x = self._vertices, [], rows.x
        sums = x.new_empty(vertices.n_nodes + vertices.n_classes, len(x), dtype=self._dtype)
        shares = sums[vertices.n_nodes :].mT
        step = strip_rows(shares)
        for some, into in zip(rows.split(step), shares.split(step), strict=True):
            seen = some if self._prediction.unit_length else Rows(unit_rows(some.x), some.raw)
            into.copy_(self._scores(seen).exp_())
            if self._every is not None:
                means.append(self._every(some))
        vertices.sum_up(sums)
        if self._single is not None:
            return sums, self._single.of(x)
        table, n_rows = (means[0] if len(means) == 1 else torch.cat(means, 1)).flatten(), len(x)
        return sums, lambda nodes, rows: table.index_select(0, nodes * n_rows + rows)

    def _scores(self, rows: Rows) -> Tensor:
        """The experts' scores, the best of each row 0."""
        prediction, prior = self._prediction, self._prediction.log_prior
        if self._experts is None:
            scores = torch.zeros(len(rows.x), prediction.n_classes, dtype=self._dtype, device=rows.x.device)
        else:
            scores = self._experts(rows).to(self._dtype)
        scores = scores if prior is None else scores + prior.to(self._dtype)
        return (scores - scores.amax(1, keepdim=True)).clamp_(min=FLOOR[self._dtype])


def strip_rows(values: Tensor) -> int:
    """How many rows of values (T, C) experts are asked for at a time."""
    return len(values) if values.is_cuda else max(1, STRIP_NUMBERS // values.shape[1])


class _Search:
    """Of T rows in all trees. Tables are read by one index, vertex times T plus row: that takes least time.

    Parameters
    ----------
    vertices : Vertices
    sums : tensor (N + C, T)
        Of e^score, see `Vertices.sum_up`.
    latents : function
        The latent means at nodes (P,), by their numbers among those that were fitted, and rows (P,).
    """

    def __init__(self, vertices: Vertices, sums: Tensor, latents: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._vertices, self._sums, self._latents, self._n_rows = vertices, sums.flatten(), latents, sums.shape[1]
        self.factors = sums.new_zeros(len(vertices.size), self._n_rows)
        """(N + M C, T): where the search ended, the probability of a leaf or a sub-tree over its sum of e^score."""
        self._ends: list[tuple[Tensor, Tensor]] = []

    def run(self, width: int) -> None:
        """Fill `factors`."""
        vertices, device = self._vertices, self._sums.device
        nodes = torch.arange(vertices.n_trees, device=device).repeat_interleave(self._n_rows)[:, None]
        row = torch.arange(self._n_rows, device=device).repeat(vertices.n_trees)[:, None]
        log_p = self._sums.new_zeros(nodes.shape)
        while nodes.shape[1]:
            nodes, log_p = self._level(nodes, log_p, row, width)

    def _level(self, nodes: Tensor, log_p: Tensor, row: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """From the nodes (M T, W) of one level, reached with log p, −∞ for no node, to those of the next."""
        asked = (log_p > -torch.inf).flatten().nonzero()[:, 0]
        v, row, above = (values.expand(nodes.shape).flatten().index_select(0, asked) for values in (nodes, row, log_p))
        tree, n_rows = self._vertices, self._n_rows
        places = tree.summed.index_select(0, v).mul_(n_rows).add_(row[:, None])
        within = self._sums.index_select(0, places.flatten()).log_().view(-1, 2)
        f = within[:, 0] - within[:, 1] + self._latents(tree.number.index_select(0, v), row)
        reached = torch.stack(log_sigmoids(f), 1).add_(above[:, None])
        below = tree.children.index_select(0, v)
        going = reached.masked_fill(below >= tree.n_nodes, -torch.inf)

        shape, pairs = (len(nodes), 2 * nodes.shape[1]), (nodes.numel(), 2)
        going = log_p.new_full(pairs, -torch.inf).index_copy_(0, asked, going).view(shape)
        most = int((going > -torch.inf).sum(1).max())
        best = going.topk(min(width, most), dim=1, sorted=False)
        on = torch.zeros(shape, dtype=torch.bool, device=nodes.device).scatter_(
            1, best.indices, best.values > -torch.inf
        )
        ended = (~on.view(pairs).index_select(0, asked)).flatten().nonzero()[:, 0]
        places = below.mul(n_rows).add_(row[:, None])
        self._end(*(values.flatten().index_select(0, ended) for values in (places, reached, within)))
        kept = nodes.new_zeros(pairs).index_copy_(0, asked, below).view(shape)
        return kept.gather(1, best.indices), best.values

    def _end(self, places: Tensor, log_p: Tensor, within: Tensor) -> None:
        """Leaves that were reached, and sub-trees that are not entered."""
        factors = (log_p - within).exp_().clamp_(min=torch.finfo(log_p.dtype).tiny)  # not 0, by which ends are known
        self.factors.view(-1).index_copy_(0, places, factors)
        self._ends.append((places, log_p))

    def outside(self, classes: Tensor) -> Tensor:
        """(T,) the probability of all ends that hold other classes than those of the row (T, k), mean over the trees.

        `Vertices.spread` has been through the factors, which are overwritten.
        """
        tree, n_rows, (_, k) = self._vertices, self._n_rows, classes.shape
        factors, row = self.factors.view(-1), torch.arange(n_rows, device=classes.device)[:, None]
        first = tree.n_nodes + tree.n_classes * torch.arange(tree.n_trees, device=classes.device)
        v, row = (first[:, None, None] + classes).flatten(), row.expand(tree.n_trees, n_rows, k).flatten()
        while True:  # up to the ends, as far as these may be full
            up = tree.parent.index_select(0, v)
            higher = (tree.size.index_select(0, up) <= k) & (factors.index_select(0, up * n_rows + row) > 0)
            if not bool(higher.any()):
                break
            v = torch.where(higher, up, v)
        places = v * n_rows + row
        factors.index_copy_(0, places, tree.size.index_select(0, v).to(factors))
        factors.index_add_(0, places, -torch.ones_like(places).to(factors))  # 0 where all classes are among the k
        ends, log_p = (torch.cat(parts) for parts in zip(*self._ends, strict=True))
        p = torch.where(factors.index_select(0, ends) > 0, log_p.double().exp(), 0.0)
        total: Any = p.new_zeros(n_rows).index_add_(0, ends % n_rows, p)
        return (total / tree.n_trees).clamp_(max=1.0)
