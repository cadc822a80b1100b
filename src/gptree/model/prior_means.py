"""Prior means of the nodes from class scores: μ_v(x) = logsumexp over the left classes − logsumexp over the right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gptree.progress import Advance
from gptree.tree import ClassTree, PathSums, node_log_odds, ragged, tree_paths

#: Rows are processed so many numbers at a time: (2C − 1) × rows of them.
CHUNK_NUMBERS = 2**24
#: On a processor, class scores that are summed along paths at a time: what a cache holds.
PIECE_NUMBERS = 2**20


def even(log_frequencies: np.ndarray) -> bool:
    """Whether all classes are as frequent: prior means that express it are those that do not."""
    return bool((log_frequencies == log_frequencies[0]).all())


def learnt_prior(log_frequencies: np.ndarray | None) -> Tensor | None:
    """What prior means at training rows express of log-frequencies (C,): themselves, or nothing if they are even."""
    return None if log_frequencies is None or even(log_frequencies) else torch.as_tensor(log_frequencies)


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
        self._y = torch.as_tensor(y, device=like.device)
        self._sizes = [torch.as_tensor(tree.leaf_depth[tree.position[y]], device=like.device) for tree in trees]
        self._starts = [sizes.cumsum(0) - sizes for sizes in self._sizes]
        self._values = [like.new_empty(int(sizes.sum())) for sizes in self._sizes]
        self._sums = [PathSums(tree, like.device) for tree in trees]

    def add(self, rows: Tensor, scores: Tensor) -> Tensor:
        """Class scores (r, C) of some rows (r,); returns the log-probabilities (r,) of their own classes."""
        step = len(rows) if scores.is_cuda else max(1, PIECE_NUMBERS // scores.shape[1])
        parts = zip(rows.split(max(1, step)), scores.split(max(1, step)), strict=True)
        return torch.cat([scores.new_zeros(0), *(self._add(*part) for part in parts)])

    def _add(self, rows: Tensor, scores: Tensor) -> Tensor:
        log_p = scores.new_zeros(len(rows))
        below = scores - scores.amax(1, keepdim=True)
        p = below.exp()
        for values, starts, sizes, sums in zip(self._values, self._starts, self._sizes, self._sums, strict=True):
            here, place = ragged(sizes[rows])
            odds, log_p = sums.log_odds(below, p, self._y[rows])
            values[starts[rows][here] + place] = odds.to(values.dtype)
        return log_p

    def done(self) -> PathOdds:
        """The table, when all rows were added."""
        return PathOdds(tuple(map(finite_means, self._values)), tuple(self._starts))


@dataclass(frozen=True, eq=False)
class RowScores:
    """What is kept of left-out class scores of training rows.

    Attributes
    ----------
    own : tensor (n,)
        Probabilities of the rows' own classes.
    odds : PathOdds or None
        Prior means on the paths of these; None without trees.
    spread : tensor (n,) or None
        By how many nats the scores of a row differ over the classes, where it was asked.
    unsure : tensor (n,) or None
        −log of the highest class probability, where it was asked.
    """

    own: Tensor
    odds: PathOdds | None
    spread: Tensor | None
    unsure: Tensor | None = None


def row_scores(
    parts: Iterable[tuple[Tensor, Tensor]],
    y: np.ndarray,
    like: Tensor,
    trees: Sequence[ClassTree] = (),
    prior: Tensor | None = None,
    *,
    spread: bool,
    unsure: bool = False,
    advance: Advance,
) -> RowScores:
    """Left-out class scores (n, C), read in parts: no array of that size is made.

    Parameters
    ----------
    parts : iterable of tensors (r,) and (r, C)
        Rows, each once, and their scores.
    y : int array (n,)
        The classes of the rows.
    like : tensor
        Of the dtype and device wanted.
    trees : sequence of ClassTree
    prior : tensor (C,), optional
        Added to the scores in the prior means.
    spread : bool
        Whether the spreads are asked for.
    unsure : bool
        Whether it is asked how unsure the scores are.
    advance : callable
        Called with the number of rows of each part.

    Returns
    -------
    RowScores
    """
    codes = torch.as_tensor(y, device=like.device)
    own = like.new_empty(len(y))
    spreads = like.new_full((len(y),), math.inf) if spread else None
    doubts = like.new_empty(len(y)) if unsure else None
    table = PathTable(trees, y, like) if trees else None
    for rows, scores in parts:
        if spreads is not None:
            spreads[rows] = scores.std(1, correction=0).to(spreads)
        if doubts is not None:
            doubts[rows] = (scores.logsumexp(1) - scores.amax(1)).to(doubts)
        log_p = None if table is None else table.add(rows, scores if prior is None else scores + prior)
        if log_p is None or prior is not None:
            log_p = scores.gather(1, codes[rows, None])[:, 0] - scores.logsumexp(1)
        own[rows] = log_p.exp().to(own.dtype)
        advance(len(rows))
    return RowScores(own, None if table is None else table.done(), spreads, doubts)


def training_log_odds(
    tree: ClassTree, scores: Tensor | PathOdds | None, nodes: Sequence[int], rows: Sequence[np.ndarray], number: int = 0
) -> list[Tensor | None]:
    """Prior means at each of the given nodes for its own rows, in the memory of the processor.

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
        return list(scores.at(number, depth, flat_rows).cpu().split(sizes))
    if len(scores) == 1:
        odds = finite_means(node_log_odds(tree, scores)[:, 0]).cpu()
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
    return list(finite_means(out).cpu().split(sizes))


def finite_means(means: Tensor) -> Tensor:
    """The prior means themselves, or an error that says what to do."""
    if not bool(torch.isfinite(means).all()):
        raise ValueError("the class scores of a training row give a prior mean that is not finite: bound the scores.")
    return means
