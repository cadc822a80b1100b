"""Experts on random features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from torch import Tensor

from gptree.experts.base import Expert, Fit, FittedExpert, LeftOutAt, ScoreCache, cached, require_expert
from gptree.experts.examples import Examples, check_features
from gptree.experts.lda import LDA
from gptree.experts.products import working_dtype
from gptree.experts.scorers import RandomRows, ScoresOf
from gptree.maths.frozen import Parts
from gptree.settings import require_whole
from gptree.storage import Array, Part


@dataclass(frozen=True)
class RandomFeatures(Expert):
    """An expert on random features relu(xW), W (d, count) of independent N(0, 1), instead of the features themselves.

    Parameters
    ----------
    expert : Expert
    count : int
        Number of random features.
    unit_length : bool
        Whether they are scaled to unit length.
    seed : int
        Draws W.

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> from gptree.experts import LDA, RandomFeatures
    >>> model = GPTreeClassifier(prior_mean=RandomFeatures(LDA(), 500))
    """

    expert: Expert
    count: int = 1_000
    unit_length: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        require_expert(self.expert, "RandomFeatures")
        require_whole("count", self.count, 1)

    @property
    def cannot_grow(self) -> str | None:
        return self.expert.cannot_grow

    def pays(self, n_classes: int) -> bool:
        return self.expert.pays(n_classes)

    def settled(self, fitted: FittedExpert) -> RandomFeatures:
        assert isinstance(fitted, FittedRandomFeatures)
        return replace(self, expert=self.expert.settled(fitted.expert))

    def on_exemplars(self, rows: Tensor, weights: Tensor) -> RandomFeatures:
        kind = SingleRandomFeatures if isinstance(self.expert, LDA) else RandomFeatures
        return kind(self.expert.on_exemplars(rows, weights), self.count, self.unit_length, self.seed)

    def fit_bytes(self, rows: int, columns: int, classes: int, itemsize: int) -> int:
        return itemsize * 2 * rows * self.count + self.expert.fit_bytes(rows, self.count, classes, itemsize)

    def fit(self, examples: Examples) -> Fit:
        projection = self.projection(examples.X)
        features = _features(examples.X, projection, self.unit_length)
        inner = self.expert.fit(replace(examples, X=features))
        return replace(inner, expert=FittedRandomFeatures(inner.expert, projection, self.unit_length))

    def projection(self, like: Tensor) -> Tensor:
        """W (d, count) for features (n, d) such as `like`."""
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randn(like.shape[1], self.count, generator=generator, dtype=torch.float64).to(like)


@dataclass(frozen=True)
class SingleRandomFeatures(RandomFeatures):
    """LDA on random features in a base session: that of many examples is in single precision, as it is kept."""

    def fit(self, examples: Examples) -> Fit:
        X = examples.X.to(working_dtype(len(examples), examples.X.dtype))
        about = examples.folds, examples.raw, examples.calibration, examples.weights
        return super().fit(Examples.of(X, examples.y, examples.n_classes, *about))


@dataclass(frozen=True, eq=False)
class FittedRandomFeatures(FittedExpert):
    """A fitted `RandomFeatures`.

    Attributes
    ----------
    expert : FittedExpert
    projection : tensor (d, count)
        W.
    unit_length : bool
    """

    expert: Annotated[FittedExpert, Part(d="count")]
    projection: Annotated[Tensor, Array("d count")]
    unit_length: bool

    def features(self, X: Tensor) -> Tensor:
        check_features(X, len(self.projection))
        return _features(X.to(self.projection.dtype), self.projection, self.unit_length)

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        key = ("random features", id(X), self.projection.data_ptr(), self.unit_length)
        features = cached(cache, key, lambda: self.features(X))
        return self.expert.log_probabilities(features, raw, cache).to(X.dtype)

    def frozen(self, parts: Parts) -> ScoresOf:
        key = ("random features", self.projection.data_ptr(), self.unit_length)
        features = parts.piece(key, lambda: RandomRows(self.projection, self.unit_length))
        return ScoresOf(features, self.expert.frozen(parts.within(key)))

    def knows_left_out(self, X: Tensor, y: Tensor) -> bool:
        return X.dtype == self.projection.dtype and self.expert.knows_left_out(self.features(X), y)

    def left_out_at(self, examples: Examples) -> LeftOutAt:
        return self.expert.left_out_at(replace(examples, X=self.features(examples.X)))

    def at_exemplars(self, exemplars: Examples) -> LeftOutAt | None:
        inner = self.expert.at_exemplars(replace(exemplars, X=self.features(exemplars.X)))
        return None if inner is None else lambda rows: inner(rows).to(exemplars.X.dtype)

    def grown(self, X: Tensor, y: Tensor, n_classes: int, weights: Tensor | None = None) -> FittedRandomFeatures:
        return replace(self, expert=self.expert.grown(self.features(X), y, n_classes, weights))

    def only(self, classes: Tensor) -> FittedRandomFeatures:
        return replace(self, expert=self.expert.only(classes))


def _features(X: Tensor, projection: Tensor, unit_length: bool) -> Tensor:
    features = (X @ projection).relu_()
    return torch.nn.functional.normalize(features, dim=1) if unit_length else features
