"""Experts for classes that arrive after the base session.

Four experts score base and novel classes alike: LDA on the features and on random features, both with the covariance of
the base classes; the kernel density of exemplars and shots; kernel ridge regression on the same points, unless there
are more base classes than it pays for. Two pools of them score (1) whether a point belongs to a novel class at all, and
(2) which of these it would be. Which base class it would be is scored by the experts of the base session, and nothing
that arrives later changes that, unless the network behind the features knew the base by heart. With τ fitted to the
left-out examples of the novel classes,

    r(x) = logsumexp over novel classes − logsumexp over base classes of Σ_k w_k log p_k(x), + bias
    M(x) = [log σ(−r) + M_base(x), log σ(r) + M_novel(x)]
    M_novel(x) = log-softmax over novel classes of τ Σ_k v_k log p_k(x)

Where shots of novel classes spread far wider than base examples, a network was trained on the latter, and they say
nothing about how sure to be of rows that it has not seen: r and M_base are then tempered by τ too, if it is below 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from gptree.experts.base import FittedExpert, LeftOutAt, ScoreCache, dense_left_out
from gptree.experts.calibration import best_temperature, fill_own, some
from gptree.experts.density import FittedKernelDensity
from gptree.experts.examples import Examples, row_chunks
from gptree.experts.lda import FittedLDA
from gptree.experts.pool import pooled
from gptree.experts.random_features import FittedRandomFeatures
from gptree.experts.ridge import FittedKernelRidge, KernelRidge
from gptree.experts.scorers import BaseNovelScores, OneClass
from gptree.maths.frozen import Parts
from gptree.storage import Array, Number, Part, Serializable, Sizes, ensure

#: A session may not take long: beyond so many examples in memory, regression is on a balanced part of them.
RIDGE = KernelRidge(at_most=1_000)
#: Left-out scores of novel classes that are kept, at most; more are computed whenever they are asked for.
MAX_TABLE = 2**24


@dataclass(frozen=True, eq=False)
class FittedSingle(FittedExpert):
    """The expert of a model that knows one class: it is that one."""

    fixed_sizes: ClassVar[Mapping[str, int]] = {"C": 1}

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        return X.new_zeros(len(X), 1)

    def frozen(self, parts: Parts) -> OneClass:
        return OneClass()


@dataclass(frozen=True, eq=False)
class NovelClassExperts(Serializable):
    """Four experts over the base classes, their settings for novel ones, and both pools; learnt in the base session.

    Attributes
    ----------
    lda : FittedLDA
    random_lda : FittedRandomFeatures
        On a FittedLDA.
    density : FittedKernelDensity
        Its points are the exemplars.
    ridge_penalty, ridge_temperature : float or None
        None where there are more base classes than ridge regression pays for; there are three experts then.
    root_weights : tensor (K,)
        w, K = 4 or 3.
    bias : float
    novel_weights : tensor (K,)
        v.
    base_mass : tensor (m,) or None
        logsumexp over the base classes of Σ_k w_k score_k at the exemplars, left out, without ridge regression: what
        arrivals do not change. None with ridge regression, which they do change, and until it is known.
    """

    lda: FittedLDA
    random_lda: FittedRandomFeatures
    density: FittedKernelDensity
    ridge_penalty: Annotated[float | None, Number(above=0)]
    ridge_temperature: Annotated[float | None, Number(above=0)]
    root_weights: Annotated[Tensor, Array("K")]
    bias: Annotated[float, Number()]
    novel_weights: Annotated[Tensor, Array("K")]
    base_mass: Annotated[Tensor | None, Array("m")] = None

    def check(self, name: str, sizes: Sizes) -> None:
        alike = self.base_mass is None or len(self.base_mass) == len(self.density.points)
        ensure(alike, f"{name}.base_mass is not that of the exemplars.")
        ensure(isinstance(self.random_lda.expert, FittedLDA), f"{name}.random_lda is not on a FittedLDA.")
        settings = (self.ridge_penalty, self.ridge_temperature)
        experts = 3 + sum(each is not None for each in settings) / 2
        ensure(len(self.root_weights) == experts, f"{name} does not have a weight for each expert.")

    def grown(
        self,
        base: FittedExpert,
        kept: Tensor,
        X: Tensor,
        y: Tensor,
        base_left_out: LeftOutAt,
        weights: Tensor | None = None,
        rows: Tensor | None = None,
        memorised: bool = False,
    ) -> tuple[FittedBaseNovelExpert, GrownScores]:
        """The experts over all classes, and their left-out class log-probabilities at the points in memory.

        The classes are the base classes `kept` and then the novel ones; `base` scores the kept classes. The points in
        memory are the exemplars of the kept classes (as many as `density` has of them) and then X (k, d) with class
        numbers y (k,): examples of novel classes, or further ones of base classes. `base_left_out` gives the
        log-probabilities of the kept classes at points in memory, by their numbers; `weights` is how many times each
        counts. At the points `rows`, in order and with all of X, they are computed at once, elsewhere when asked for.

        Left out: LDA means and counts without the point, and the covariance if it was made of it; the density without
        the point; kernel ridge regression without one shot of every class. Where arrivals are all that is new, base
        classes are scored at the arrivals alone: what they score at exemplars is known. It differs for exemplars that
        are alone in their class, which gets the mean score of the base classes there.

        `memorised`: the network behind the features knew the base examples by heart, so that they teach nothing about
        how sure to be. The examples of novel classes do, and what they say is then taken for all decisions.
        """
        C, n_base = int(y.max()) + 1, len(kept)
        everybody = n_base == len(self.lda.counts)
        lda, random_lda, exemplars = (
            each if everybody else each.only(kept) for each in (self.lda, self.random_lda, self.density)
        )
        m = len(exemplars.points)
        later = None if weights is None else weights[m:]
        lda, random_lda = lda.grown(X, y, C, later), random_lda.grown(X, y, C, later)
        density = exemplars.grown(X, y, C, later)
        points = density.points.to(X.dtype)
        examples = Examples.of(points, density.labels, C, weights=weights)
        discriminants = _Discriminants(lda, random_lda, density, examples, weights, m)
        everyone = torch.arange(len(points), device=X.device)
        rows = everyone if rows is None else rows
        fitted_ridge: Any = None
        ridge_at: LeftOutAt | None = None
        if self.ridge_penalty is not None:
            assert self.ridge_temperature is not None
            ridge = RIDGE.fit_at(examples, self.ridge_penalty, self.ridge_temperature)
            fitted_ridge, ridge_at = ridge.expert, ridge.at
            if fitted_ridge.points.dtype == density.points.dtype and len(fitted_ridge.points) == len(points):
                fitted_ridge = replace(fitted_ridge, points=density.points)  # one tensor: their products are shared
        arrivals_alone = everybody and not bool((y < n_base).any())

        def parts(asked: Tensor) -> tuple[Tensor, list[Tensor]]:
            """r (a,) at some points in memory, exemplars first, and the scores (a, N) of novel classes."""
            if arrivals_alone:
                before, after = asked[asked < m], asked[asked >= m]
                arrived = discriminants.at(after)
                at_exemplars = discriminants.at(before, n_base, self._whitened(discriminants, before))
                novel = [torch.cat([old, new[:, n_base:]]) for old, new in zip(at_exemplars, arrived, strict=True)]
                total = self._total([scores[:, :n_base] for scores in arrived])
                if self.base_mass is None:
                    total = torch.cat([self._base_totals(discriminants)[before], total])
                else:
                    total = torch.cat([self.base_mass[before], total.logsumexp(1)])[:, None]
            else:
                scores = discriminants.at(asked)
                novel, total = [each[:, n_base:] for each in scores], self._total([each[:, :n_base] for each in scores])
            if ridge_at is not None:
                ridge_scores = ridge_at(asked)
                total = total + self.root_weights[-1] * ridge_scores[:, :n_base]
                novel.append(ridge_scores[:, n_base:])
            return self._total(novel).logsumexp(1) - total.logsumexp(1) + self.bias, novel

        several = n_base + (examples.sizes[n_base:] > 1).nonzero()[:, 0]
        judges = some(rows[torch.isin(examples.y[rows], several)], len(several)) if len(several) > 1 else rows[:0]
        known = rows if len(rows) * (C - n_base) <= MAX_TABLE else judges
        odds, of_novel = parts(known)
        judged = [scores[torch.searchsorted(known, judges)][:, several - n_base] for scores in of_novel]
        sharpness = self._sharpness(judged, several, examples, judges)
        novel_weights, others = self.novel_weights * sharpness, min(1.0, sharpness) if memorised else 1.0
        place = torch.full_like(everyone, -1).index_copy_(0, known, torch.arange(len(known), device=X.device))
        table = torch.cat([others * odds[:, None], pooled(novel_weights, of_novel)], 1)

        def more(asked: Tensor) -> Tensor:
            odds, scores = parts(asked)
            return torch.cat([others * odds[:, None], pooled(novel_weights, scores)], 1)

        grown = FittedBaseNovelExpert(
            base, lda, random_lda, density, fitted_ridge, self.root_weights, self.bias, novel_weights, others
        )
        base_at: LeftOutAt = lambda asked: _tempered(base_left_out(asked), others)  # noqa: E731
        return grown, GrownScores(base_at, table, place, None if len(known) == len(points) else more)

    def with_base_mass(self, y: Tensor, weights: Tensor) -> NovelClassExperts:
        """With `base_mass`, at exemplars of classes y (m,) that count `weights` (m,) times each."""
        if self.ridge_penalty is not None:
            return self
        points, n_base = self.density.points, len(self.lda.counts)
        examples = Examples.of(points, y, n_base, weights=weights)
        experts = _Discriminants(self.lda, self.random_lda, self.density, examples, weights, len(points))
        chunks = row_chunks(torch.arange(len(points), device=points.device), n_base)
        return replace(self, base_mass=torch.cat([self._total(experts.at(rows)).logsumexp(1) for rows in chunks]))

    def _base_totals(self, grown: _Discriminants) -> Tensor:
        """Σ_k w_k score_k of the base classes at the exemplars (m, B), without ridge regression; computed once."""
        known = self.__dict__.get("_totals")
        if known is None:
            m, n_base = len(self.density.points), len(self.lda.counts)
            points, weights = grown.examples.X[:m], grown.examples.weights[:m]
            examples = Examples.of(points, self.density.labels, n_base, weights=weights)
            counted = None if grown.weights is None else weights
            experts = _Discriminants(self.lda, self.random_lda, self.density, examples, counted, m)
            known = self.__dict__["_totals"] = self._total(experts.at(torch.arange(m, device=points.device)))
        return known

    def _whitened(self, grown: _Discriminants, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Exemplars as LDA and LDA on random features see them; those of the last rows asked for are kept."""
        known = self.__dict__.get("_white")
        if known is None or not torch.equal(known[0], rows):
            known = self.__dict__["_white"] = rows, grown.whitened(rows)
        return known[1]

    def _total(self, scores: list[Tensor]) -> Tensor:
        """Σ_k w_k score_k of the decision between base and novel classes; of the first experts, if not of all."""
        weights = self.root_weights[: len(scores)]
        return torch.einsum("k,ktc->tc", weights, torch.stack(scores).to(weights))

    def _sharpness(self, scores: list[Tensor], classes: Tensor, examples: Examples, rows: Tensor) -> float:
        """The factor of the weights among novel classes: the temperature that their left-out examples ask for.

        How far apart classes lie is the one thing that base classes cannot teach about those that arrive. One number
        from examples of all of them is enough, with the weak prior of `best_temperature` around 1. Each expert scores
        `classes` (c,) of several examples at some of these, `rows` (r,); without any it is 1.
        """
        if len(rows) == 0:
            return 1.0
        labels = torch.searchsorted(classes, examples.y[rows])
        return best_temperature(pooled(self.novel_weights, scores), labels, 1.0, examples.weights[rows])[0]


@dataclass(frozen=True, eq=False)
class FittedBaseNovelExpert(FittedExpert):
    """A fitted expert over base and novel classes; the base classes come first.

    Attributes
    ----------
    base : FittedExpert
    lda : FittedLDA
    random_lda : FittedRandomFeatures
    density : FittedKernelDensity
    ridge : FittedKernelRidge or None
    root_weights : tensor
    bias : float
    novel_weights : tensor
    sharpness : float
        τ of the other decisions, r and which base class: 1 unless the base was known by heart.
    """

    base: Annotated[FittedExpert, Part(C="B")]
    lda: FittedLDA
    random_lda: FittedRandomFeatures
    density: FittedKernelDensity
    ridge: FittedKernelRidge | None
    root_weights: Annotated[Tensor, Array("K")]
    bias: Annotated[float, Number()]
    novel_weights: Annotated[Tensor, Array("K")]
    sharpness: Annotated[float, Number(above=0, most=1)] = 1.0

    def check(self, name: str, sizes: Sizes) -> None:
        ensure(sizes.get("B", 1) < sizes["C"], f"{name}.base leaves no class for the novel ones.")
        ensure(len(self.root_weights) == len(self.experts), f"{name} does not have a weight for each expert.")

    @property
    def experts(self) -> list[FittedExpert]:
        """Those over all classes."""
        return [each for each in (self.lda, self.random_lda, self.density, self.ridge) if each is not None]

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        cache = {} if cache is None else cache
        logs = [expert.log_probabilities(X, raw, cache) for expert in self.experts]
        return self.combined(self.base.log_probabilities(X, raw, cache), logs)

    def frozen(self, parts: Parts) -> BaseNovelScores:
        scores = [expert.frozen(parts) for expert in self.experts]
        weights = self.root_weights.tolist(), self.bias, self.novel_weights.tolist(), self.sharpness
        return BaseNovelScores(self.base.frozen(parts), scores, *weights)

    def combined(self, base: Tensor, logs: list[Tensor]) -> Tensor:
        """M (T, C) from the base classes' log-probabilities (T, B) and the experts' over all classes (T, C)."""
        odds = root_log_odds(torch.stack(logs), self.root_weights, base.shape[1]) + self.bias
        novel = pooled(self.novel_weights, [log[:, base.shape[1] :] for log in logs])
        return _combined(_tempered(base, self.sharpness), self.sharpness * odds, novel)


def _tempered(log_p: Tensor, tau: float) -> Tensor:
    """Log-probabilities (T, B) sharpened τ times."""
    return log_p if tau == 1 else (tau * log_p).log_softmax(1)


def _combined(base: Tensor, odds: Tensor, novel: Tensor) -> Tensor:
    """M (T, C) from base classes (T, B) and novel ones (T, N), each among themselves, and r (T,)."""
    return torch.cat([base + logsigmoid(-odds)[:, None], novel + logsigmoid(odds)[:, None]], 1)


@dataclass(frozen=True, eq=False)
class _Discriminants:
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
        return _combined(self.base(rows), odds[:, 0], novel)

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
