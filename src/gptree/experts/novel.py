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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from gptree.experts.base import Fit, FittedExpert, LeftOutAt, ScoreCache
from gptree.experts.calibration import best_temperature, some
from gptree.experts.density import FittedKernelDensity
from gptree.experts.examples import Examples, row_chunks
from gptree.experts.kernel_ridge import FittedKernelRidge, KernelRidge
from gptree.experts.lda import FittedLDA
from gptree.experts.novel_layers import Layer, NovelSums, layer_scores
from gptree.experts.novel_scores import Discriminants, GrownScores, NovelScores, combined, root_log_odds
from gptree.experts.pool import pooled
from gptree.experts.random_features import FittedRandomFeatures
from gptree.experts.scorers import BaseNovelScores, OneClass, tempered
from gptree.maths.frozen import Parts
from gptree.storage import Array, Number, Part, Serializable, Sizes, ensure

#: A session may not take long: beyond so many examples in memory, regression is on a balanced part of them. With more
#: base classes it is not asked: training rows left out of CLINC150 (120 of them) and CUB (150) had the same NLL without
#: it, to 0.003.
RIDGE = KernelRidge(at_most=2_000, most_classes=100)
#: Left-out scores of novel classes that are kept, at most; more are computed whenever they are asked for.
MAX_TABLE = 2**24


@dataclass(frozen=True, eq=False)
class FittedSingle(FittedExpert):
    """The expert of a model that knows one class: it is that one."""

    fixed_sizes: ClassVar[Mapping[str, int]] = {"C": 1}

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        return X.new_zeros(len(X), 1)

    def at_exemplars(self, exemplars: Examples) -> LeftOutAt:
        return lambda rows: exemplars.X.new_zeros(len(rows), 1)

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
    trusts_labels : bool
        Whether examples count by their weight alone, as in files before version 7, and not also by the belief that
        their label is right.
    base_mass : tensor (k,) or None
        logsumexp over the base classes of Σ_k w_k score_k at exemplars, left out, without ridge regression: what
        arrivals do not change. None with ridge regression, which they do change, and until it is known.
    base_rows : int64 tensor (k,) or None
        At which exemplars, in order; None is at all.
    """

    lda: FittedLDA
    random_lda: FittedRandomFeatures
    density: FittedKernelDensity
    ridge_penalty: Annotated[float | None, Number(above=0)]
    ridge_temperature: Annotated[float | None, Number(above=0)]
    root_weights: Annotated[Tensor, Array("K")]
    bias: Annotated[float, Number()]
    novel_weights: Annotated[Tensor, Array("K")]
    trusts_labels: bool
    base_mass: Annotated[Tensor | None, Array("k")] = None
    base_rows: Annotated[Tensor | None, Array("k", least=0, whole=True)] = None

    def check(self, name: str, sizes: Sizes) -> None:
        m, rows = len(self.density.points), self.base_rows
        if self.base_mass is not None:
            alike = len(self.base_mass) == m if rows is None else bool((rows.diff() > 0).all() and rows[-1] < m)
            ensure(alike, f"{name}.base_mass is not that of the exemplars.")
        ensure(self.base_mass is not None or rows is None, f"{name}.base_rows are there, but no base_mass.")
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
        arrivals: Tensor | None = None,
        layer: Layer | None = None,
    ) -> tuple[FittedBaseNovelExpert, GrownScores]:
        """The experts over all classes, and their left-out class log-probabilities at the points in memory.

        The classes are the base classes `kept` and then the novel ones; `base` scores the kept classes. The points in
        memory are the exemplars of the kept classes (as many as `density` has of them) and then X (k, d) with class
        numbers y (k,): examples of novel classes, or further ones of base classes. `base_left_out` gives the
        log-probabilities of the kept classes at points in memory, by their numbers; `weights` is how many times each
        counts. At the points `rows`, in order and with all of X, they are computed at once, elsewhere when asked for.

        Left out: LDA means and counts without the point, and the covariance if it was made of it; the density without
        the point; kernel ridge regression without one shot of every class. Where `arrivals` are all that is new, (k, 4)
        `at_arrivals` of X, base classes are scored nowhere: what they score at exemplars is known, too. It differs for
        exemplars that are alone in their class, which gets the mean score of the base classes there.

        `memorised`: the network behind the features knew the base examples by heart, so that they teach nothing about
        how sure to be. The examples of novel classes do, and what they say is then taken for all decisions.

        Of the newest `layer` where only arrivals are new, the scores are those `against` all earlier classes if their
        sums are known; its own are given for the next one.
        """
        layer = None if arrivals is None else layer
        earlier = None if layer is None else layer.earlier
        discriminants, n_base = self._over(kept, X, y, weights, earlier), len(kept)
        density, examples = discriminants.density, discriminants.examples
        fitted_ridge: Any = None
        ridge: Fit | None = None
        if self.ridge_penalty is not None:
            assert self.ridge_temperature is not None
            ridge = RIDGE.fit_at(examples, self.ridge_penalty, self.ridge_temperature)
            fitted_ridge = ridge.expert
            if fitted_ridge.points.dtype == density.points.dtype and len(fitted_ridge.points) == len(examples):
                fitted_ridge = replace(fitted_ridge, points=density.points)  # one tensor: their products are shared
        scores = NovelScores(self, discriminants, None if ridge is None else ridge.at, n_base, arrivals)
        everyone = torch.arange(len(examples), device=X.device)
        rows = everyone if rows is None else rows
        several = n_base + (examples.sizes[n_base:] > 1).nonzero()[:, 0]
        calibration = some(rows[torch.isin(examples.y[rows], several)], len(several)) if len(several) > 1 else rows[:0]
        experts = base, discriminants.lda, discriminants.random_lda, density, fitted_ridge

        def sharpened(sharpness: float) -> FittedBaseNovelExpert:
            others = min(1.0, sharpness) if memorised else 1.0
            return FittedBaseNovelExpert(*experts, self.root_weights, self.bias, self.novel_weights * sharpness, others)

        if len(several) < scores.n_novel or len(several) == 1:
            layer = None
        newest = 0 if earlier is None else int((examples.y[rows] >= n_base + earlier.n_novel).sum())
        if layer is not None and earlier is not None and newest * scores.n_novel <= MAX_TABLE:
            found = layer_scores(scores, earlier, rows, calibration, layer.later)
            if found is not None:
                grown, table, sums = sharpened(found[0]), *found[1:]
                table[:, 0] *= grown.sharpness
                left_out = grown.known_scores(base_left_out, table)
                return grown, replace(left_out, place=scores.place(rows), sums=sums, together=earlier.n_novel)
        known = rows if len(rows) * scores.n_novel <= MAX_TABLE else calibration
        odds, of_novel = scores.at(known)
        scored = [each[torch.searchsorted(known, calibration)][:, several - n_base] for each in of_novel]
        is_novel = odds[torch.searchsorted(known, calibration)].sigmoid()
        sharpness = self._sharpness(scores, scored, several, calibration, is_novel)
        grown = sharpened(sharpness)
        sums = None if layer is None else NovelSums.of(scores, layer.later, sharpness)
        return grown, replace(scores.of(grown, base_left_out, known, grown.entries(odds, of_novel)), sums=sums)

    def left_out(
        self,
        grown: FittedBaseNovelExpert,
        kept: Tensor,
        X: Tensor,
        y: Tensor,
        base_left_out: LeftOutAt,
        weights: Tensor | None = None,
        arrivals: Tensor | None = None,
    ) -> GrownScores:
        """The left-out log-probabilities of the experts that `grown` gave for the rest, computed when asked for."""
        discriminants = self._over(kept, X, y, weights)
        ridge = None if grown.ridge is None else grown.ridge.left_out_at(discriminants.examples)
        scores = NovelScores(self, discriminants, ridge, len(kept), arrivals)
        return scores.of(grown, base_left_out, kept[:0], X.new_zeros(0, 1 + len(grown.lda.counts) - len(kept)))

    def _over(
        self, kept: Tensor, X: Tensor, y: Tensor, weights: Tensor | None, earlier: NovelSums | None = None
    ) -> Discriminants:
        """The experts but for ridge regression over base classes `kept` and what came later, see `grown`.

        Those of `earlier` layers have all classes but the newest.
        """
        C, lda, random_lda, exemplars = int(y.max()) + 1, self.lda, self.random_lda, self.density
        if len(kept) < len(lda.counts):
            lda, random_lda, exemplars = lda.only(kept), random_lda.only(kept), exemplars.only(kept)
        m = len(exemplars.points)
        later = X, y, C, None if weights is None else weights[m:]
        density = exemplars.grown(*later)
        examples = Examples.of(density.points.to(X.dtype), density.labels, C, weights=weights)
        if earlier is not None:
            lda, random_lda, newest = earlier.lda, earlier.random_lda, y >= len(kept) + earlier.n_novel
            later = X[newest], y[newest], C, None if weights is None else weights[m:][newest]
        return Discriminants(lda.grown(*later), random_lda.grown(*later), density, examples, weights, m)

    def with_base_mass(self, weights: Tensor, rows: Tensor | None = None) -> NovelClassExperts:
        """With `base_mass`, unless ridge regression is asked.

        Parameters
        ----------
        weights : tensor (m,)
            How many times each exemplar counts.
        rows : int64 tensor (k,), optional
            The exemplars, in order, that sessions will ask for; elsewhere it is computed whenever it is needed.
        """
        if self.ridge_penalty is not None:
            return self
        asked = torch.arange(len(weights), device=weights.device) if rows is None else rows
        return replace(self, base_mass=self._mass_at(asked, weights), base_rows=rows)

    def mass_at(self, rows: Tensor, weights: Tensor | None) -> Tensor:
        """`base_mass` of some exemplars (r,), all of which count `weights` (m,) times."""
        assert self.base_mass is not None
        if self.base_rows is None:
            return self.base_mass[rows]
        place = torch.searchsorted(self.base_rows, rows).clamp(max=len(self.base_rows) - 1)
        mass, missing = self.base_mass[place], (self.base_rows[place] != rows).nonzero()[:, 0]
        if len(missing) > 0:
            weights = torch.ones_like(self.density.weights) if weights is None else weights
            mass[missing] = self._mass_at(rows[missing], weights.to(mass))
        return mass

    def _mass_at(self, rows: Tensor, weights: Tensor) -> Tensor:
        experts = self._of_base(weights)
        chunks = row_chunks(rows, len(self.lda.counts))
        return torch.cat([self.total(experts.at(some)).logsumexp(1) for some in chunks])

    def at_arrivals(self, X: Tensor, sizes: Sequence[int]) -> Tensor:
        """What base classes score at new points (n, d): as `base_mass`, and the sum of each expert's scores; (n, 4).

        Points come class after class, so many of each. Every class is scored for itself, so that it does not matter,
        to the last bit, which others there are; those of the last time are known.
        """
        before, now, keys = vars(self).get("_arrivals", {}), {}, []
        for points in X.split(list(sizes)):
            keys.append(key := blake2b(points.cpu().numpy().tobytes()).digest())
            now[key] = before[key] if key in before else self._at_new(points.clone())
        vars(self)["_arrivals"] = now
        return torch.cat([now[key] for key in keys])

    def _at_new(self, X: Tensor) -> Tensor:
        random_lda: Any = self.random_lda.expert
        experts = [self.lda, random_lda, self.density]
        white = self.lda.whitened(X), random_lda.whitened(self.random_lda.features(X))
        scores = [self.lda.white_scores(white[0]), random_lda.white_scores(white[1]), self.density.scores(X)[0]]
        scores = [each.to(X.dtype) for each in scores]
        total = self.total([expert.temperature * each for expert, each in zip(experts, scores, strict=True)])
        return torch.stack([total.logsumexp(1), *(each.sum(1) for each in scores)], 1)

    def _of_base(self, weights: Tensor) -> Discriminants:
        """The experts before anything arrived."""
        points, labels = self.density.points.to(weights), self.density.labels
        examples = Examples.of(points, labels, len(self.lda.counts), weights=weights)
        return Discriminants(self.lda, self.random_lda, self.density, examples, weights, len(points))

    def whitened(self, grown: Discriminants, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Exemplars as LDA and LDA on random features see them; those of the last rows asked for are kept."""
        known = vars(self).get("_white")
        if known is None or not torch.equal(known[0], rows):
            known = vars(self)["_white"] = rows, grown.whitened(rows)
        return known[1]

    def total(self, scores: list[Tensor]) -> Tensor:
        """Σ_k w_k score_k of the decision between base and novel classes; of the first experts, if not of all."""
        weights = self.root_weights[: len(scores)]
        return torch.einsum("k,ktc->tc", weights, torch.stack(scores).to(weights))

    def _sharpness(
        self, scores: NovelScores, scored: list[Tensor], classes: Tensor, rows: Tensor, is_novel: Tensor
    ) -> float:
        """The factor of the weights among novel classes: the temperature that their left-out examples ask for.

        How far apart classes lie is the one thing that base classes cannot teach about those that arrive. One number
        from examples of all of them is enough, with the weak prior of `best_temperature` around 1; where labels seem to
        be wrong, they count by the belief in theirs. Each expert has `scored` classes (c,) of several examples at some
        of these, `rows` (r,), which are novel with the probabilities `is_novel`; without any it is 1.
        """
        if len(rows) == 0:
            return 1.0
        examples = scores.discriminants.examples
        labels, logs = torch.searchsorted(classes, examples.y[rows]), pooled(self.novel_weights, scored)

        def best(counts: Tensor | None, _: Tensor | None) -> Tensor:
            return logs.new_tensor(best_temperature(logs, labels, 1.0, counts)[0], dtype=torch.float64)

        def own(tau: Tensor) -> Tensor:
            return is_novel * (tau * logs).log_softmax(1).gather(1, labels[:, None])[:, 0].exp()

        return float(scores.choose(best, own, examples.weights[rows]))


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

    def entries(self, odds: Tensor, of_novel: list[Tensor]) -> Tensor:
        """r (T,) and the experts' scores (T, N) of novel classes as rows (T, 1 + N) of `GrownScores`."""
        return torch.cat([self.sharpness * odds[:, None], pooled(self.novel_weights, of_novel)], 1)

    def known_scores(self, base: LeftOutAt, table: Tensor) -> GrownScores:
        """Left-out log-probabilities where the `entries` (n, 1 + N) of all points are known, and those of the base."""
        everyone = torch.arange(len(table), device=table.device)
        return GrownScores(lambda asked: tempered(base(asked), self.sharpness), table, everyone, None)

    def combined(self, base: Tensor, logs: list[Tensor]) -> Tensor:
        """M (T, C) from the base classes' log-probabilities (T, B) and the experts' over all classes (T, C)."""
        odds = root_log_odds(torch.stack(logs), self.root_weights, base.shape[1]) + self.bias
        novel = pooled(self.novel_weights, [log[:, base.shape[1] :] for log in logs])
        return combined(tempered(base, self.sharpness), self.sharpness * odds, novel)
