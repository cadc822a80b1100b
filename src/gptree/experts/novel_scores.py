"""Left-out scores of base and novel classes at the points that a growing model keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from gptree.experts.base import LeftOutAt, dense_left_out
from gptree.experts.calibration import fill_own
from gptree.experts.density import FittedKernelDensity
from gptree.experts.examples import Examples, row_chunks
from gptree.experts.lda import FittedLDA
from gptree.experts.random_features import FittedRandomFeatures

if TYPE_CHECKING:
    from gptree.experts.novel import NovelClassExperts


def combined(base: Tensor, odds: Tensor, novel: Tensor) -> Tensor:
    """M (T, C) from base classes (T, B) and novel ones (T, N), each among themselves, and r (T,)."""
    return torch.cat([base + logsigmoid(-odds)[:, None], novel + logsigmoid(odds)[:, None]], 1)


def root_log_odds(logs: Tensor, weights: Tensor, n_base: int) -> Tensor:
    """Σ_k w_k log p_k of (K, T, C), summed up as probabilities: novel classes against base classes, (T,).

    Parameters
    ----------
    logs : tensor (K, T, C)
    weights : tensor (K,)
    n_base : int
        The first so many classes are base classes.

    Returns
    -------
    tensor (T,)
    """
    total = torch.einsum("k,ktc->tc", weights, logs)
    return total[:, n_base:].logsumexp(1) - total[:, :n_base].logsumexp(1)


@dataclass(frozen=True, eq=False)
class Discriminants:
    """The experts other than ridge regression over all classes, and the examples in memory: exemplars, then others."""

    lda: FittedLDA
    random_lda: FittedRandomFeatures
    density: FittedKernelDensity
    examples: Examples
    weights: Tensor | None
    n_exemplars: int
    """So many of the examples, the first, are in the covariance."""

    def at(self, rows: Tensor, first: int = 0, white: tuple[Tensor, Tensor] | None = None) -> list[Tensor]:
        """Tempered left-out scores of some examples, (r, C) each; of exemplars also for novel classes from one on.

        `white` are the examples `whitened`, where they are known.
        """
        X, y = self.examples.X[rows], self.examples.y[rows]
        weights = None if self.weights is None else self.weights[rows]
        random_lda: Any = self.random_lda.expert
        inside = rows < self.n_exemplars
        novel = torch.arange(first, self.examples.n_classes, device=rows.device)
        white = self.whitened(rows) if white is None else white
        scores = [
            self.lda.left_out(white[0], y, inside, weights, first),
            random_lda.left_out(white[1], y, inside, weights, first),
            self.density.scores(X, itself=rows)[0] if first == 0 else self.density.only(novel).scores(X)[0],
        ]
        if first == 0:
            scores = [fill_own(each.to(X.dtype), self.examples, rows) for each in scores]
        temperatures = (self.lda.temperature, random_lda.temperature, self.density.temperature)
        return [tau * each.to(X.dtype) for tau, each in zip(temperatures, scores, strict=True)]

    def whitened(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Some examples in the coordinates of LDA, and of LDA on random features."""
        X, random_lda = self.examples.X[rows], self.random_lda
        assert isinstance(random_lda.expert, FittedLDA)
        return self.lda.whitened(X), random_lda.expert.whitened(random_lda.features(X))


@dataclass(frozen=True, eq=False)
class NovelScores:
    """r, and the scores of novel classes, at points in memory.

    Where only `arrivals_alone` are new, what base classes score at exemplars is known from the base session.
    """

    learnt: NovelClassExperts
    discriminants: Discriminants
    ridge: LeftOutAt | None
    n_base: int
    arrivals_alone: bool

    def at(self, rows: Tensor) -> tuple[Tensor, list[Tensor]]:
        """r (r,) at some points, in their order, and the scores (r, N) that each expert gives novel classes."""
        learnt, discriminants, n_base = self.learnt, self.discriminants, self.n_base
        if self.arrivals_alone:
            before, after = (rows[(rows < discriminants.n_exemplars) == old] for old in (True, False))
            arrived = discriminants.at(after)
            at_exemplars = discriminants.at(before, n_base, learnt.whitened(discriminants, before))
            novel = [torch.cat([old, new[:, n_base:]]) for old, new in zip(at_exemplars, arrived, strict=True)]
            total = learnt.total([each[:, :n_base] for each in arrived])
            if learnt.base_mass is None:
                counted = discriminants.examples.weights[: discriminants.n_exemplars]
                total = torch.cat([learnt.base_totals(counted)[before], total])
            else:
                total = torch.cat([learnt.base_mass[before], total.logsumexp(1)])[:, None]
        else:
            scores = discriminants.at(rows)
            novel, total = [each[:, n_base:] for each in scores], learnt.total([each[:, :n_base] for each in scores])
        if self.ridge is not None:
            of_ridge = self.ridge(rows)
            total = total + learnt.root_weights[-1] * of_ridge[:, :n_base]
            novel.append(of_ridge[:, n_base:])
        return learnt.total(novel).logsumexp(1) - total.logsumexp(1) + learnt.bias, novel


@dataclass(frozen=True, eq=False)
class GrownScores:
    """Left-out class log-probabilities M (n, C) over base and novel classes at n points in memory, by rows.

    Attributes
    ----------
    base : function from row numbers (r,) to a tensor (r, B)
        Log-probabilities of the base classes among themselves.
    table : tensor (k, 1 + N)
        r, and log-probabilities of the novel classes among themselves, where they are known.
    place : int64 tensor (n,)
        Where the rows stand in the table; −1 if they do not.
    more : function from row numbers (r,), in order, to a tensor (r, 1 + N), or None
        The same of rows that are not in the table; None if all are.
    """

    base: LeftOutAt
    table: Tensor
    place: Tensor
    more: LeftOutAt | None

    def __len__(self) -> int:
        return len(self.place)

    def at(self, rows: Tensor) -> Tensor:
        """Those of some rows, (r, C)."""
        odds, novel = self._novel(rows).tensor_split([1], 1)
        return combined(self.base(rows), odds[:, 0], novel)

    def dense(self) -> Tensor:
        """Those of all rows."""
        return dense_left_out(self.at, len(self), self.place.device)

    def chunks(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Rows (r,) in pieces whose scores are computed at a time."""
        return row_chunks(rows, self.table.shape[1])

    def against(self, rows: Tensor, first: int) -> Tensor:
        """Those of novel classes from the `first` on, and before them all other classes as one; (r, 1 + N − first)."""
        odds, earlier, novel = self._novel(rows).tensor_split([1, 1 + first], 1)
        others = logsigmoid(-odds)
        if first:
            others = torch.logaddexp(others, logsigmoid(odds) + earlier.logsumexp(1, keepdim=True))
        return torch.cat([others, logsigmoid(odds) + novel], 1)

    def _novel(self, rows: Tensor) -> Tensor:
        place = self.place[rows]
        there, missing = ((place >= 0) == known for known in (True, False))
        found = self.table.new_empty(len(rows), self.table.shape[1])
        found[there] = self.table[place[there]]
        if bool(missing.any()):
            assert self.more is not None
            at = missing.nonzero()[:, 0]
            at = at[rows[at].argsort()]
            found[at] = self.more(rows[at])
        return found
