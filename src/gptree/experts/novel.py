"""Experts for classes that arrive after the base session.

Four experts score base and novel classes alike: LDA on the features and on random features, both with the covariance of
the base classes; the kernel density of exemplars and shots; kernel ridge regression on the same points, unless there
are more base classes than it pays for. Two pools of them score (1) whether a point belongs to a novel class at all, and
(2) which of these it would be. Which base class it would be is scored by the experts of the base session, and nothing
that arrives later changes that. With τ fitted to the left-out examples of the novel classes,

    r(x) = logsumexp over novel classes − logsumexp over base classes of Σ_k w_k log p_k(x), + bias
    M(x) = [log σ(−r) + M_base(x), log σ(r) + M_novel(x)]
    M_novel(x) = log-softmax over novel classes of τ Σ_k v_k log p_k(x)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from gptree.experts.base import FittedExpert, ScoreCache
from gptree.experts.calibration import best_temperature, fill_own
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
RIDGE = KernelRidge(at_most=4_000)


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
        base_left_out: Tensor,
        weights: Tensor | None = None,
    ) -> tuple[FittedBaseNovelExpert, Tensor]:
        """The experts over all classes, and their left-out class log-probabilities at the points in memory.

        The classes are the base classes `kept` and then the novel ones; `base` scores the kept classes. The points in
        memory are the exemplars of the kept classes (as many as `density` has of them) and then X (k, d) with class
        numbers y (k,): examples of novel classes, or further ones of base classes. `base_left_out` are the
        log-probabilities of the kept classes at all points in memory, `weights` how many times each of these counts.

        Left out: LDA means and counts without the point, and the covariance if it was made of it; the density without
        the point; kernel ridge regression without one shot of every class.
        """
        C = int(y.max()) + 1
        exemplars = self.density.only(kept)
        later = None if weights is None else weights[len(exemplars.points) :]
        lda = self.lda.only(kept).grown(X, y, C, later)
        random_lda = self.random_lda.only(kept).grown(X, y, C, later)
        density = exemplars.grown(X, y, C, later)
        points = torch.cat([exemplars.points.to(X.dtype), X])
        examples = Examples.of(points, density.labels, C, weights=weights)
        experts = _Discriminants(lda, random_lda, density, examples, weights, len(exemplars.points))
        everyone = torch.arange(len(points), device=X.device)
        if self.base_mass is not None and len(kept) == len(self.lda.counts) and not bool((y < len(kept)).any()):
            return self._from_mass(base, experts, base_left_out)
        left_out = [scores.log_softmax(1) for scores in experts.at(everyone)]
        fitted_ridge: Any = None
        if self.ridge_penalty is not None:
            assert self.ridge_temperature is not None
            ridge = RIDGE.fit_at(examples, self.ridge_penalty, self.ridge_temperature)
            left_out.append(ridge.left_out)
            fitted_ridge = ridge.expert
            if fitted_ridge.points.dtype == density.points.dtype and len(fitted_ridge.points) == len(points):
                fitted_ridge = replace(fitted_ridge, points=density.points)  # one tensor: their products are shared
        novel_weights = self.novel_weights * self._sharpness(
            [log[:, len(kept) :] for log in left_out], examples, len(kept)
        )
        grown = FittedBaseNovelExpert(
            base, lda, random_lda, density, fitted_ridge, self.root_weights, self.bias, novel_weights
        )
        return grown, grown.combined(base_left_out, left_out)

    def with_base_mass(self, y: Tensor, weights: Tensor) -> NovelClassExperts:
        """With `base_mass`, at exemplars of classes y (m,) that count `weights` (m,) times each."""
        if self.ridge_penalty is not None:
            return self
        points, n_base = self.density.points, len(self.lda.counts)
        examples = Examples.of(points, y, n_base, weights=weights)
        experts = _Discriminants(self.lda, self.random_lda, self.density, examples, weights, len(points))
        chunks = row_chunks(torch.arange(len(points), device=points.device), n_base)
        return replace(self, base_mass=torch.cat([self._total(experts.at(rows)).logsumexp(1) for rows in chunks]))

    def _from_mass(
        self, base: FittedExpert, experts: _Discriminants, base_left_out: Tensor
    ) -> tuple[FittedBaseNovelExpert, Tensor]:
        """As `grown`, where arrivals are all that is new: base classes are scored at the arrivals alone.

        It differs for exemplars that are alone in their class, which gets the mean score of the base classes there.
        """
        assert self.base_mass is not None
        n_base, everyone = base_left_out.shape[1], torch.arange(len(base_left_out), device=base_left_out.device)
        before, after = everyone.tensor_split([experts.n_exemplars])
        arrived = experts.at(after)
        of_novel = [
            torch.cat([old, new[:, n_base:]]) for old, new in zip(experts.at(before, n_base), arrived, strict=True)
        ]
        mass = torch.cat([self.base_mass, self._total([scores[:, :n_base] for scores in arrived]).logsumexp(1)])
        odds = self._total(of_novel).logsumexp(1) - mass + self.bias
        weights = self.novel_weights * self._sharpness(of_novel, experts.examples, n_base)
        parts = (base, experts.lda, experts.random_lda, experts.density, None)
        grown = FittedBaseNovelExpert(*parts, self.root_weights, self.bias, weights)
        return grown, _combined(base_left_out, odds, pooled(weights, of_novel))

    def _total(self, scores: list[Tensor]) -> Tensor:
        """Σ_k w_k score_k of the decision between base and novel classes."""
        return torch.einsum("k,ktc->tc", self.root_weights, torch.stack(scores).to(self.root_weights))

    def _sharpness(self, novel: list[Tensor], examples: Examples, n_base: int) -> float:
        """The factor of the weights among novel classes: the temperature that their left-out examples ask for.

        How far apart classes lie is the one thing that base classes cannot teach about those that arrive. One number
        from the examples of all of them is enough, with the weak prior of `best_temperature` around 1.
        """
        several = n_base + (examples.sizes[n_base:] > 1).nonzero()[:, 0]
        if len(several) < 2:
            return 1.0
        rows = torch.isin(examples.y, several)
        scores = pooled(self.novel_weights, [log[rows][:, several - n_base] for log in novel])
        labels = torch.searchsorted(several, examples.y[rows])
        return best_temperature(scores, labels, 1.0, examples.weights[rows])[0]


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
    """

    base: Annotated[FittedExpert, Part(C="B")]
    lda: FittedLDA
    random_lda: FittedRandomFeatures
    density: FittedKernelDensity
    ridge: FittedKernelRidge | None
    root_weights: Annotated[Tensor, Array("K")]
    bias: Annotated[float, Number()]
    novel_weights: Annotated[Tensor, Array("K")]

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
        weights = self.root_weights.tolist(), self.bias, self.novel_weights.tolist()
        return BaseNovelScores(self.base.frozen(parts), scores, *weights)

    def combined(self, base: Tensor, logs: list[Tensor]) -> Tensor:
        """M (T, C) from the base classes' log-probabilities (T, B) and the experts' over all classes (T, C)."""
        odds = root_log_odds(torch.stack(logs), self.root_weights, base.shape[1]) + self.bias
        return _combined(base, odds, pooled(self.novel_weights, [log[:, base.shape[1] :] for log in logs]))


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

    def at(self, rows: Tensor, first: int = 0) -> list[Tensor]:
        """Tempered left-out scores of some examples, (r, C) each; of exemplars also for novel classes from one on."""
        X, y = self.examples.X[rows], self.examples.y[rows]
        weights = None if self.weights is None else self.weights[rows]
        random_lda: Any = self.random_lda.expert
        inside = rows < self.n_exemplars
        novel = torch.arange(first, self.examples.n_classes, device=rows.device)
        scores = [
            self.lda.left_out(X, y, inside, weights, first),
            random_lda.left_out(self.random_lda.features(X), y, inside, weights, first),
            self.density.scores(X, itself=rows)[0] if first == 0 else self.density.only(novel).scores(X)[0],
        ]
        if first == 0:
            scores = [fill_own(each.to(X.dtype), self.examples, rows) for each in scores]
        temperatures = (self.lda.temperature, random_lda.temperature, self.density.temperature)
        return [tau * each.to(X.dtype) for tau, each in zip(temperatures, scores, strict=True)]


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
