"""Class trees with a GP at every node: from features to class log-probabilities.

One tree is a forest of one. Nodes that several trees share (the same classes on the left, the same on the right) are
fitted once: `node_of[t][v]` is the number, among all fitted nodes, of node v of tree t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.inference import (
    Diagnostics,
    FixedInducingPoints,
    InducingPoints,
    Inference,
    LargeNodes,
    NodePredictor,
    NodeProblem,
    PredictAt,
    class_quota,
    fit_nodes,
    select,
)
from gptree.model.prior_means import node_log_odds, training_log_odds
from gptree.tree import ClassTree, class_log_probabilities, label_hashes, node_generator, node_key


@dataclass(frozen=True)
class ForestModel:
    """Fitted trees. `labels` are only keys for randomness; classes are column numbers here."""

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
            by_tree = [
                class_log_probabilities(tree, left[nodes], right[nodes])
                for tree, nodes in zip(self.trees, self.node_of, strict=True)
            ]
            mean = by_tree[0] if len(by_tree) == 1 else torch.stack(by_tree).logsumexp(0) - math.log(len(by_tree))
            parts.append(mean)
        return torch.cat(parts) if parts else x.new_zeros(0, self.n_classes)

    def chunks(self, x: Tensor) -> list[slice]:
        """Pieces of x whose node probabilities and cross-kernel values stay within the memory budget."""
        numbers = sum(p.weights.shape[0] * p.weights.shape[1] for p in self.predictor.posteriors)
        numbers = 4 * (numbers + len(self.predictor.used_rows) + 2 * self.n_classes * (1 + len(self.trees)))
        step = max(1, self.memory_budget // (4 * numbers * x.element_size()))
        return [slice(start, start + step) for start in range(0, len(x), step)]

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

    @cached_property
    def _last_decisions(self) -> tuple[NodePredictor, list[Tensor]]:
        """A predictor for the last nodes on all paths, and for each tree the place in it of each class's node."""
        device = self.node_of[0].device
        last = [
            nodes[torch.as_tensor(tree.parent[tree.n_nodes + tree.position], device=device)]
            for tree, nodes in zip(self.trees, self.node_of, strict=True)
        ]
        wanted = torch.cat(last).unique()
        if self.predictor.grams.per_node:  # a node's own kernel goes by its number: no renumbering
            wanted = torch.arange(self.predictor.n_nodes, device=device)
        posteriors = []
        for posterior in self.predictor.posteriors:
            chosen = torch.isin(posterior.nodes, wanted).nonzero()[:, 0]
            if len(chosen) > 0:
                part = select(posterior, chosen)
                posteriors.append(replace(part, nodes=torch.searchsorted(wanted, part.nodes)))
        predictor = NodePredictor(self.predictor.grams, posteriors, self.memory_budget)
        return predictor, [torch.searchsorted(wanted, nodes) for nodes in last]

    def prior_means(self, scores: Tensor | None) -> Tensor | None:
        """μ of all fitted nodes (nodes, T) from class log-scores (T, C)."""
        if scores is None:
            return None
        out = torch.zeros(self.predictor.n_nodes, len(scores), dtype=scores.dtype, device=scores.device)
        for tree, nodes in zip(self.trees, self.node_of, strict=True):
            out[nodes] = node_log_odds(tree, scores)
        return out


@dataclass(frozen=True)
class TrainingData:
    """What every node draws its rows from."""

    X: Tensor
    """(n, d) mapped features."""
    y: np.ndarray
    """(n,) class numbers 0 … C − 1, each present."""
    labels: Sequence
    """Label of each class: keys of the random choices."""
    scores: Tensor | None = None
    """Left-out class log-scores (n, C), or (1, C) if the same for all rows; None is a zero prior mean."""
    weights: Tensor | None = None
    """Likelihood weights (n,)."""
    exemplars: np.ndarray | None = None
    """Rows through which every node sees its points, for `FixedInducingPoints` as the limit of large nodes."""


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
    progress: Callable[[int], None] | None = None,
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
        progress=progress,
    )
    predictor = NodePredictor(fits.grams, fits.posteriors, memory_budget)
    return ForestModel(tuple(trees), node_of, predictor, fits.diagnostics, memory_budget)


def node_problems(
    trees: Sequence[ClassTree],
    data: TrainingData,
    large_nodes: LargeNodes | None,
    seed: int,
    fitted: Sequence[np.ndarray] | None = None,
    n_fitted: int = 0,
) -> tuple[list[NodeProblem], tuple[Tensor, ...]]:
    """The distinct binary problems of all trees, and which of them each node of each tree is.

    `fitted` says for the nodes of each tree which node, of `n_fitted` that are fitted already, they are, or −1; the new
    ones are numbered after those.
    """
    hashes = label_hashes(data.labels)
    device = data.X.device
    class_rows = _class_rows(data, large_nodes, hashes, seed)
    counts = np.bincount(data.y, minlength=len(hashes))
    is_exemplar = np.zeros(len(data.y), dtype=bool)
    is_exemplar[() if data.exemplars is None else data.exemplars] = True
    known: dict[tuple[int, int], int] = {}
    problems: list[NodeProblem] = []
    node_of = []
    for t, tree in enumerate(trees):
        rows = np.concatenate([class_rows[c] for c in tree.order])
        rank = np.concatenate([np.arange(len(class_rows[c])) for c in tree.order])  # place in the order of its class
        starts = np.concatenate([[0], np.cumsum(counts[tree.order])])
        keys = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes[tree.order], dtype=np.uint64)])
        left_keys, right_keys = keys[tree.mid] - keys[tree.lo], keys[tree.hi] - keys[tree.mid]  # modulo 2⁶⁴
        numbers, fresh, chosen = [], [], []
        for v in range(tree.n_nodes):
            if fitted is not None and fitted[t][v] >= 0:
                numbers.append(int(fitted[t][v]))
                continue
            lo, mid, hi = int(tree.lo[v]), int(tree.mid[v]), int(tree.hi[v])
            key = (int(left_keys[v]), int(right_keys[v]))
            if key not in known:
                known[key] = n_fitted + len(problems) + len(fresh)
                node_seed = int(np.random.SeedSequence([seed, *key]).generate_state(1, np.uint64)[0])
                fresh.append(v)
                chosen.append(_node_rows(rows, rank, starts, (lo, mid, hi), large_nodes, node_seed, is_exemplar))
            numbers.append(known[key])
        means = training_log_odds(tree, data.scores, fresh, [picked for picked, *_ in chosen])
        for (picked, left, inducing, node_seed), mean in zip(chosen, means, strict=True):
            at = torch.as_tensor(picked, device=device)
            problems.append(
                NodeProblem(
                    rows=at,
                    left=torch.as_tensor(left, device=device),
                    seed=node_seed,
                    mean=mean,
                    weight=None if data.weights is None else data.weights[at],
                    inducing=None if inducing is None else torch.as_tensor(inducing, device=device),
                )
            )
        node_of.append(torch.as_tensor(numbers, dtype=torch.long, device=device))
    return problems, tuple(node_of)


def _class_rows(data: TrainingData, large_nodes: LargeNodes | None, hashes: np.ndarray, seed: int) -> list[np.ndarray]:
    """Rows of each class, in the order in which large nodes take them."""
    order = np.argsort(data.y, kind="stable")
    counts = np.bincount(data.y, minlength=len(hashes))
    rows = np.split(order, np.cumsum(counts)[:-1])
    few = large_nodes is None or len(data.y) <= large_nodes.points
    if large_nodes is None or (few and not isinstance(large_nodes, FixedInducingPoints)):
        return rows
    random = [node_generator(seed, node_key(hashes[c : c + 1])) for c in range(len(rows))]
    if isinstance(large_nodes, FixedInducingPoints):  # exemplars first and in their order, the others at random
        assert data.exemplars is not None
        place = np.full(len(data.y), len(data.y))
        place[data.exemplars] = np.arange(len(data.exemplars))
        shuffled = [r.permutation(each) for r, each in zip(random, rows, strict=True)]
        return [each[np.argsort(place[each], kind="stable")] for each in shuffled]
    features = data.X.cpu().numpy()
    return [each[large_nodes.order(features[each], r)] for r, each in zip(random, rows, strict=True)]


def _node_rows(
    rows: np.ndarray,
    rank: np.ndarray,
    starts: np.ndarray,
    node: tuple[int, int, int],
    large_nodes: LargeNodes | None,
    seed: int,
    is_exemplar: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int]:
    """Rows of a node, which go left, its inducing rows if it is sparse, and its seed.

    Rows come sorted, so that a node is the same problem in every tree that holds it.
    """
    lo, mid, hi = node
    begin, cut, end = int(starts[lo]), int(starts[mid]), int(starts[hi])
    inside = begin + np.argsort(rows[begin:end])

    def some(inside: np.ndarray, counts: np.ndarray, limit: int) -> np.ndarray:
        """At most `limit` of the places `inside`, the same number from each class where that is possible."""
        if len(inside) <= limit:
            return inside
        quota = class_quota(counts, limit)
        if quota > 0:
            return inside[rank[inside] < quota]
        # more classes than points: one row each of an even choice of classes, some from either side
        random = np.random.default_rng(seed)
        on_left = min(max(1, round(limit * (mid - lo) / (hi - lo))), limit - 1, mid - lo)
        sides = ((starts[lo:mid], on_left), (starts[mid:hi], min(limit - on_left, hi - mid)))
        taken = np.concatenate([random.choice(each, size, replace=False) for each, size in sides])
        return taken[np.argsort(rows[taken])]

    counts = np.diff(starts[lo : hi + 1])
    if isinstance(large_nodes, FixedInducingPoints):  # they come first among the rows of their class
        exemplars = inside[is_exemplar[rows[inside]]]
        per_class = np.add.reduceat(is_exemplar[rows[begin:end]].astype(int), starts[lo:hi] - begin)
        seen = some(inside, counts, large_nodes.points)
        return rows[seen], seen < cut, rows[some(exemplars, per_class, large_nodes.inducing)], seed
    if large_nodes is None or end - begin <= large_nodes.points:
        return rows[inside], inside < cut, None, seed
    taken = some(inside, counts, large_nodes.points)
    if isinstance(large_nodes, InducingPoints):
        return rows[inside], inside < cut, rows[taken], seed
    return rows[taken], taken < cut, None, seed
