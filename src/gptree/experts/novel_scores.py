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
from gptree.experts.examples import Examples, few_rows, row_chunks
from gptree.experts.lda import FittedLDA
from gptree.experts.random_features import FittedRandomFeatures
from gptree.experts.scorers import tempered
from gptree.experts.wrong_labels import AtRows, BestSettings, with_beliefs

if TYPE_CHECKING:
    from gptree.experts.novel import FittedBaseNovelExpert, NovelClassExperts
    from gptree.experts.novel_layers import NovelSums


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

    def at(
        self, rows: Tensor, first: int = 0, white: tuple[Tensor, Tensor] | None = None, sums: Tensor | None = None
    ) -> list[Tensor]:
        """Tempered left-out scores of some examples, (r, C) each.

        Those of the classes from the `first` on, if it is given: of these, all later examples must be. `white` are the
        examples `whitened`, where they are known; `sums` (r, 3) what each expert, untempered, scores the classes
        before the first in all, which later examples then need.
        """
        X, y = self.examples.X[rows], self.examples.y[rows]
        weights = None if self.weights is None else self.weights[rows]
        random_lda: Any = self.random_lda.expert
        inside = rows < self.n_exemplars
        white = self.whitened(rows) if white is None else white
        density, itself = self.density, rows
        if first:
            density = density.only(torch.arange(first, self.examples.n_classes, device=rows.device))
            itself = (rows - int((self.examples.y < first).sum())).clamp(min=-1)
        scores = [
            self.lda.left_out(white[0], y, inside, weights, first),
            random_lda.left_out(white[1], y, inside, weights, first),
            density.scores(X, itself=itself)[0],
        ]
        scores = [each.to(X.dtype) for each in scores]
        if first == 0:
            scores = [fill_own(each, self.examples, rows) for each in scores]
        elif sums is not None:
            self._fill_own(scores, rows, y - first, sums)
        temperatures = self.lda.temperature, random_lda.temperature, self.density.temperature
        return [tau * each for tau, each in zip(temperatures, scores, strict=True)]

    def _fill_own(self, scores: list[Tensor], rows: Tensor, own: Tensor, sums: Tensor) -> None:
        """As `fill_own`, in place, from scores (r, C − first) and the sums of the others."""
        single = (~self.examples.usable[rows]).nonzero()[:, 0]
        for each, others in zip(scores, sums.T, strict=True):
            each[single, own[single]] = 0
            mean = (each[single].sum(1) + others[single]) / (self.examples.n_classes - 1)
            each[single, own[single]] = mean

    def whitened(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Some examples in the coordinates of LDA, and of LDA on random features."""
        X, random_lda = self.examples.X[rows], self.random_lda
        assert isinstance(random_lda.expert, FittedLDA)
        return self.lda.whitened(X), random_lda.expert.whitened(random_lda.features(X))


@dataclass(frozen=True, eq=False)
class NovelScores:
    """r, and the scores of novel classes, at points in memory.

    Where only `arrivals` are new, what base classes score at exemplars is known from the base session.
    """

    learnt: NovelClassExperts
    discriminants: Discriminants
    ridge: LeftOutAt | None
    n_base: int
    arrivals: Tensor | None
    """(k, 4) `NovelClassExperts.at_arrivals` of all later examples; None if other things are new."""

    @property
    def n_novel(self) -> int:
        return self.discriminants.examples.n_classes - self.n_base

    @property
    def few(self) -> bool:
        """Whether novel classes have few examples: of all that are there, however many a choice is made on."""
        return few_rows(int(self.discriminants.examples.sizes[self.n_base :].sum()), self.n_novel)

    def choose(self, best: BestSettings, own: AtRows, counts: Tensor) -> Tensor:
        """Settings from rows (r,) of novel classes; by beliefs, see `with_beliefs`, if labels are not trusted.

        A wrong label may be that of a row of any class that is there: `own` are probabilities among all of them.
        """
        if self.learnt.trusts_labels:
            return best(counts, None)
        return with_beliefs(best, own, self.discriminants.examples.n_classes, counts, self.few)[0]

    def at(self, rows: Tensor) -> tuple[Tensor, list[Tensor]]:
        """r (r,) at some points, in their order, and the scores (r, N) that each expert gives novel classes."""
        novel, of_base = self.apart(rows)
        return self.learnt.total(novel).logsumexp(1) - of_base + self.learnt.bias, novel

    def apart(self, rows: Tensor, first: int = 0) -> tuple[list[Tensor], Tensor]:
        """The scores (r, N) that each expert gives novel classes, and what base classes score together (r,).

        Where only `arrivals` are new: (r, N − first) of the novel classes from the `first` on, if it is given. All of
        them must have several examples then.
        """
        learnt, discriminants, n_base = self.learnt, self.discriminants, self.n_base
        if self.arrivals is not None:
            before, after = (rows[(rows < discriminants.n_exemplars) == old] for old in (True, False))
            mass, sums = self.arrivals[after - discriminants.n_exemplars].tensor_split([1], 1)
            parts = [
                discriminants.at(before, n_base + first, learnt.whitened(discriminants, before)),
                discriminants.at(after, n_base + first, sums=None if first else sums),
            ]
            novel = [torch.cat(both) for both in zip(*parts, strict=True)]
            weights = None if discriminants.weights is None else discriminants.weights[: discriminants.n_exemplars]
            of_base = torch.cat([learnt.mass_at(before, weights), mass[:, 0]])
        else:
            scores = discriminants.at(rows)
            novel, total = [each[:, n_base:] for each in scores], learnt.total([each[:, :n_base] for each in scores])
            if self.ridge is not None:
                of_ridge = self.ridge(rows)
                total = total + learnt.root_weights[-1] * of_ridge[:, :n_base]
                novel.append(of_ridge[:, n_base:])
            of_base = total.logsumexp(1)
        return novel, of_base

    def of(self, grown: FittedBaseNovelExpert, base: LeftOutAt, known: Tensor, table: Tensor) -> GrownScores:
        """The log-probabilities of `grown` experts: in the table (k, 1 + N) at points `known` (k,), later elsewhere."""
        if len(known) == len(self.discriminants.examples):
            return grown.known_scores(base, table)
        place = self.place(known)

        def base_at(asked: Tensor) -> Tensor:
            return tempered(base(asked), grown.sharpness)

        def more(asked: Tensor) -> Tensor:
            return grown.entries(*self.at(asked))

        return GrownScores(base_at, table, place, more)

    def place(self, known: Tensor) -> Tensor:
        """Where points stand among the `known` ones, −1 if they do not."""
        place = known.new_full((len(self.discriminants.examples),), -1)
        return place.index_copy_(0, known, torch.arange(len(known), device=known.device))


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
    sums : NovelSums or None
        Of a layer, what the next one needs.
    together : int
        So many novel classes, those of earlier layers, have the first column together; by default each has its own.
    """

    base: LeftOutAt
    table: Tensor
    place: Tensor
    more: LeftOutAt | None
    sums: NovelSums | None = None
    together: int = 1

    def __len__(self) -> int:
        return len(self.place)

    def at(self, rows: Tensor) -> Tensor:
        """Those of some rows, (r, C); of classes that have one column together, their sum."""
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
        odds, earlier, novel = self._novel(rows).tensor_split([1, 2 + first - self.together], 1)
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
