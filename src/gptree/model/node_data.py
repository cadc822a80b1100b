"""The data of every node: which rows it sees, which of them go left, and with which prior mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gptree.inference import FixedInducingPoints, InducingPoints, LargeNodes, NodeProblem, class_quota
from gptree.model.prior_means import PathOdds, training_log_odds
from gptree.tree import ClassTree, label_hashes, node_generator, node_key

#: A node sees no more points than that through its inducing points, the same number of each class where that is
#: possible: many more say nothing new about so few.
MOST_POINTS = 2**16
#: The rows of a class of no more than so many are put in order at once, which of a larger class are asked for.
SMALL_CLASS = 16
#: Rows whose order is found together.
ORDERED_ROWS = 4_096
#: In place of the number of a node: it is yet to be fitted.
NEW = -1


@dataclass(frozen=True)
class TrainingData:
    """What every node draws its rows from."""

    X: Tensor
    """(n, d) mapped features."""
    y: np.ndarray
    """(n,) class numbers 0 … C − 1. A class without a row stands in no problem; each side of a new node has rows."""
    labels: Sequence
    """Label of each class: keys of the random choices."""
    scores: Tensor | PathOdds | None = None
    """Left-out class log-scores (n, C), or (1, C) if the same for all rows; or the prior means that they give on the
    rows' own paths; None is a zero prior mean."""
    weights: Tensor | None = None
    """Likelihood weights (n,)."""
    inducing: np.ndarray | None = None
    """Rows of the inducing points through which every node sees its points, for `FixedInducingPoints`."""


def node_problems(
    trees: Sequence[ClassTree],
    data: TrainingData,
    large_nodes: LargeNodes | None,
    seed: int,
    fitted: Sequence[np.ndarray] | None = None,
    n_fitted: int = 0,
) -> tuple[list[NodeProblem], tuple[Tensor, ...]]:
    """The distinct binary problems of all trees, and which of them each node of each tree is.

    `fitted` says for the nodes of each tree which node, of `n_fitted` that are fitted already, they are, or `NEW`; new
    ones are numbered after those. Problems are in the memory of the processor, wherever the features are.
    """
    hashes = label_hashes(data.labels)
    counts = np.bincount(data.y, minlength=len(hashes))
    class_rows = np.split(np.argsort(data.y, kind="stable"), np.cumsum(counts)[:-1])
    ranks = _Ranks(data, large_nodes, hashes, seed, class_rows)
    is_inducing = np.zeros(len(data.y), dtype=bool)
    is_inducing[() if data.inducing is None else data.inducing] = True
    weights = None if data.weights is None else data.weights.cpu()
    number_of: dict[tuple[int, int], int] = {}
    problems: list[NodeProblem] = []
    node_of = []
    for t, tree in enumerate(trees):
        rows = np.concatenate([class_rows[c] for c in tree.order])
        starts = np.concatenate([[0], np.cumsum(counts[tree.order])])
        keys = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes[tree.order], dtype=np.uint64)])
        left_keys, right_keys = keys[tree.mid] - keys[tree.lo], keys[tree.hi] - keys[tree.mid]  # modulo 2⁶⁴
        numbers, new_nodes, chosen = [], [], []
        for v in range(tree.n_nodes):
            if fitted is not None and fitted[t][v] != NEW:
                numbers.append(int(fitted[t][v]))
                continue
            lo, mid, hi = int(tree.lo[v]), int(tree.mid[v]), int(tree.hi[v])
            key = (int(left_keys[v]), int(right_keys[v]))
            if key not in number_of:
                number_of[key] = n_fitted + len(problems) + len(new_nodes)
                (node_seed,) = np.random.SeedSequence([seed, *key]).generate_state(1, np.uint64).tolist()
                new_nodes.append(v)
                node = _Node(
                    tree.order[lo:hi], rows[starts[lo] : starts[hi]], starts[lo : hi + 1] - starts[lo], mid - lo
                )
                chosen.append(_node_rows(node, ranks, large_nodes, node_seed, is_inducing))
            numbers.append(number_of[key])
        means = training_log_odds(tree, data.scores, new_nodes, [picked for picked, *_ in chosen], t)
        for (picked, left, inducing, node_seed), mean in zip(chosen, means, strict=True):
            problems.append(
                NodeProblem(
                    rows=torch.from_numpy(picked),
                    left=torch.from_numpy(left),
                    seed=node_seed,
                    mean=mean,
                    weight=None if weights is None else weights[picked],
                    inducing=None if inducing is None else torch.from_numpy(inducing),
                    self_contained=isinstance(large_nodes, FixedInducingPoints),
                )
            )
        node_of.append(torch.as_tensor(numbers, dtype=torch.long, device=data.X.device))
    return problems, tuple(node_of)


class _Ranks:
    """Places of rows in the order in which large nodes take those of their class.

    The order of a class is found when a large node first asks for it: many classes are never asked for.
    """

    def __init__(
        self,
        data: TrainingData,
        large_nodes: LargeNodes | None,
        hashes: np.ndarray,
        seed: int,
        rows: Sequence[np.ndarray],
    ) -> None:
        self._data, self._large_nodes, self._hashes, self._seed = data, large_nodes, hashes, seed
        self._rows = rows
        self._rank = np.zeros(len(data.y), dtype=np.int64)
        # how many places of each class; those without rows need none
        self._known = np.array([0 if len(members) else len(data.y) for members in rows], dtype=np.int64)
        self._place = np.full(len(data.y), len(data.y))
        if data.inducing is not None:
            self._place[data.inducing] = np.arange(len(data.inducing))

    def first(self, rows: np.ndarray, classes: np.ndarray, count: int) -> np.ndarray:
        """Which rows, of these classes and no others, are among the first `count` of their class."""
        new = classes[self._known[classes] < count]
        sizes = np.array([len(self._rows[c]) for c in new])
        for size in np.unique(sizes):
            reach = max(count, min(int(size), SMALL_CLASS))
            alike, step = new[sizes == size], max(1, ORDERED_ROWS // int(size))
            for some in (alike[start : start + step] for start in range(0, len(alike), step)):
                members = np.stack([self._rows[c] for c in some])
                self._rank[np.take_along_axis(members, self._orders(some, members, reach), 1)] = np.arange(size)
            self._known[alike] = reach if reach < size else len(self._rank)  # as many as can be asked for
        return self._rank[rows] < count

    def _orders(self, classes: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
        """The order (B, n) of the rows (B, n) of classes that have as many."""
        randoms = [node_generator(self._seed, node_key(self._hashes[c : c + 1])) for c in classes]
        if isinstance(self._large_nodes, FixedInducingPoints):  # inducing points first, in their order
            shuffled = np.stack([random.permutation(rows.shape[1]) for random in randoms])
            places = self._place[np.take_along_axis(rows, shuffled, 1)]
            return np.take_along_axis(shuffled, np.argsort(places, axis=1, kind="stable"), 1)
        assert self._large_nodes is not None
        at = torch.as_tensor(rows, device=self._data.X.device)
        return self._large_nodes.orders(self._data.X[at].cpu().numpy(), randoms, count)


class _Node(NamedTuple):
    """The classes below a node in leaf order, and their rows."""

    classes: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    """Where the rows of each class begin, and the end of all."""
    mid: int
    """How many classes are on the left."""


def _node_rows(
    node: _Node, ranks: _Ranks, large_nodes: LargeNodes | None, seed: int, is_inducing: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int]:
    """Rows of a node, which go left, its inducing rows if it is sparse, and its seed.

    Rows come sorted, so that a node is the same problem in every tree that holds it.
    """
    classes, rows, starts, mid = node
    inside, cut = np.argsort(rows), int(starts[mid])

    def some(inside: np.ndarray, counts: np.ndarray, limit: int) -> np.ndarray:
        """At most `limit` of the places `inside`, the same number from each class where that is possible."""
        if len(inside) <= limit:
            return inside
        quota = class_quota(counts, limit)
        if quota > 0:
            return inside[ranks.first(rows[inside], classes, quota)]
        # more classes than points: the first row each of an even choice of classes, some from either side
        random, there = np.random.default_rng(seed), np.flatnonzero(np.diff(starts))
        left, right = there[there < mid], there[there >= mid]
        on_left = min(max(1, round(limit * len(left) / len(there))), limit - 1)
        sides = ((left, on_left), (right, limit - on_left))
        drawn = np.concatenate([random.choice(each, size, replace=False) for each, size in sides])
        members = np.concatenate([np.arange(int(starts[c]), int(starts[c + 1])) for c in drawn.tolist()])
        taken = members[ranks.first(rows[members], classes[drawn], 1)]
        return taken[np.argsort(rows[taken])]

    counts = np.diff(starts)
    if isinstance(large_nodes, FixedInducingPoints):  # they come first among the rows of their class
        inducing = inside[is_inducing[rows[inside]]]
        per_class = np.diff(np.append(0, np.cumsum(is_inducing[rows]))[starts])
        seen = some(inside, counts, large_nodes.points)
        if len(inducing) > large_nodes.inducing:
            inducing = some(inducing, per_class, large_nodes.fewer or large_nodes.inducing)
        everyone = len(inducing) == len(seen)  # then they are no approximation
        return rows[seen], seen < cut, None if everyone else rows[inducing], seed
    if large_nodes is None or len(rows) <= large_nodes.points:
        return rows[inside], inside < cut, None, seed
    taken = some(inside, counts, large_nodes.points)
    if isinstance(large_nodes, InducingPoints):
        seen = some(inside, counts, MOST_POINTS)
        return rows[seen], seen < cut, rows[taken], seed
    return rows[taken], taken < cut, None, seed
