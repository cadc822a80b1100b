"""Class trees with a GP at every node: from features to class log-probabilities.

One tree is a forest of one. Nodes that several trees share (the same classes on the left, the same on the right) are
fitted once: `node_of[t][v]` is the number, among all fitted nodes, of node v of tree t.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.inference import (
    Diagnostics,
    Inference,
    LargeNodes,
    NodePredictor,
    PredictAt,
    fit_nodes,
    select,
)
from gptree.model.node_data import TrainingData, node_problems
from gptree.progress import Progress, silent
from gptree.tree import ClassTree, ForestPaths

#: On a processor rows are predicted so many numbers at a time, but no fewer rows than that.
PIECE_NUMBERS, PIECE_ROWS = 2**23, 64


@dataclass(frozen=True)
class ForestModel:
    """Fitted trees; classes are column numbers here."""

    trees: tuple[ClassTree, ...]
    node_of: tuple[Tensor, ...]
    predictor: NodePredictor
    diagnostics: Diagnostics
    memory_budget: int

    @property
    def n_classes(self) -> int:
        return self.trees[0].n_classes

    def log_probabilities(
        self,
        x: Tensor,
        class_scores: Callable[[slice], Tensor] | None = None,
        predict_at: PredictAt = "mean",
    ) -> Tensor:
        """Class log-probabilities (T, C) at new points x (T, d), averaged over the trees.

        `class_scores` gives log-scores (rows, C) for some of the rows of x, whose log-odds are the nodes' prior means;
        None is a zero prior mean.
        """
        parts = []
        for chunk in self.chunks(x):
            scores = None if class_scores is None else class_scores(chunk)
            left, right = self.node_log_probabilities(x[chunk], scores, predict_at)
            parts.append(self.paths.class_log_probabilities(left, right))
        return torch.cat(parts) if parts else x.new_zeros(0, self.n_classes)

    def chunks(self, x: Tensor, beside: int = 0) -> list[slice]:
        """Pieces of x whose node probabilities and cross-kernel values stay within the memory budget.

        A row needs so many numbers `beside`, once.
        """
        step = self.rows_at_a_time(x, beside)
        return [slice(start, start + step) for start in range(0, len(x), step)]

    def rows_at_a_time(self, like: Tensor, beside: int = 0) -> int:
        """How many rows a piece has; on a processor its cache decides."""
        numbers = sum(p.weights.shape[0] * p.weights.shape[1] for p in self.predictor.posteriors)
        numbers = 4 * (numbers + len(self.predictor.used_rows) + 2 * self.n_classes * (1 + len(self.trees))) + beside
        in_memory = self.memory_budget // (8 * numbers * like.element_size())
        return piece_rows(like, in_memory, max(PIECE_NUMBERS // numbers, PIECE_ROWS))

    def node_log_probabilities(self, x: Tensor, scores: Tensor | None, predict_at: PredictAt) -> tuple[Tensor, Tensor]:
        """log p(left) and log p(right) of all fitted nodes, (nodes, T) each."""
        return self.predictor.log_probabilities(x, self.prior_means(scores), predict_at)

    def familiarity(self, x: Tensor, classes: np.ndarray) -> Tensor:
        """How much of the prior variance is explained where each row's class is decided, in [0, 1], (T,).

        Looks at the last decision on the path of the given class, averaged over the trees: the one between it and its
        nearest relatives.
        """
        predictor, place = self._last_decisions
        total = torch.zeros(len(x), dtype=x.dtype, device=x.device)
        for chunk in self.chunks(x):
            share = predictor.explained_share(x[chunk])
            rows = torch.arange(share.shape[1], device=x.device)
            for last in place:
                total[chunk] += share[last[torch.as_tensor(classes[chunk], device=x.device)], rows]
        return total / len(self.trees)

    @property
    def last_nodes(self) -> list[Tensor]:
        """Of each tree the last node on the path of every class, (C,)."""
        return self._last_nodes

    @cached_property
    def _last_nodes(self) -> list[Tensor]:
        return [
            nodes[torch.as_tensor(tree.parent[tree.n_nodes + tree.position], device=nodes.device)]
            for tree, nodes in zip(self.trees, self.node_of, strict=True)
        ]

    @cached_property
    def _last_decisions(self) -> tuple[NodePredictor, list[Tensor]]:
        """A predictor for the last nodes on all paths, and for each tree the place in it of each class's node."""
        wanted = torch.cat(self.last_nodes).unique()
        if self.predictor.grams.per_node:  # a node's own kernel goes by its number: no renumbering
            wanted = torch.arange(self.predictor.n_nodes, device=wanted.device)
        posteriors = []
        for posterior in self.predictor.posteriors:
            chosen = torch.isin(posterior.nodes, wanted).nonzero()[:, 0]
            if len(chosen):
                part = select(posterior, chosen)
                posteriors.append(replace(part, nodes=torch.searchsorted(wanted, part.nodes)))
        predictor = NodePredictor(self.predictor.grams, posteriors, self.memory_budget)
        return predictor, [torch.searchsorted(wanted, nodes) for nodes in self.last_nodes]

    def prior_means(self, scores: Tensor | None) -> Tensor | None:
        """μ of all fitted nodes (nodes, T) from class log-scores (T, C)."""
        if scores is None:
            return None
        return self.paths.log_odds(scores)

    @cached_property
    def paths(self) -> ForestPaths:
        """The ways from the roots to the classes."""
        node_of = [nodes.cpu().numpy() for nodes in self.node_of]
        return ForestPaths(self.trees, node_of, self.predictor.n_nodes).to(self.predictor.grams.X.device)


def piece_rows(like: Tensor, in_memory: int, on_processor: int) -> int:
    """How many rows a piece has: those that fit `in_memory`, on a processor at most as many as are best there."""
    return max(1, in_memory if like.is_cuda else min(in_memory, on_processor))


def fit_forest(
    trees: Sequence[ClassTree],
    data: TrainingData,
    kernel: Kernel,
    inference: Inference,
    *,
    large_nodes: LargeNodes | None = None,
    memory_budget: int,
    n_jobs: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> ForestModel:
    """Fit the nodes of all trees, each distinct node once."""
    problems, node_of = node_problems(trees, data, large_nodes, seed)
    fits = fit_nodes(
        problems,
        kernel,
        data.X,
        inference,
        memory_budget=memory_budget,
        n_jobs=n_jobs,
        progress=progress("fitting nodes", len(problems)),
    )
    predictor = NodePredictor(fits.grams, fits.posteriors, memory_budget)
    return ForestModel(tuple(trees), node_of, predictor, fits.diagnostics, memory_budget)
