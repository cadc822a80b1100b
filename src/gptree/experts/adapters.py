"""Adapters: scikit-learn classifiers, and class scores that the user already has, as experts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor

from gptree.experts.base import Expert, Fit, FittedExpert, ScoreCache
from gptree.experts.calibration import (
    balanced,
    best_temperature,
    fit_tempered,
    some,
    temperature_centre,
    weighted_mean,
)
from gptree.experts.examples import ALONE, Examples, check_features, describe, shot_folds
from gptree.settings import require_whole
from gptree.storage.record import State

SPREAD = 2.0  # of tempered log-probabilities over classes; see `temperature_centre`


@dataclass(frozen=True)
class SklearnExpert(Expert):
    """Any scikit-learn classifier with `predict_proba`; its score is the logarithm, tempered like every other.

    Left out by cross-validation over shot folds, whatever the folds of the examples. One-shot classes
    are never left out of these fits; their examples are scored by one more fit, without all of them.
    Probabilities are mixed with 1/(2n) of the uniform ones, so that none is zero. A classifier that takes no weights is
    fitted to repeated rows where weights are whole numbers. Can neither be saved nor grow.

    Parameters
    ----------
    estimator : classifier
        It is cloned before it is fitted.
    folds : int

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from gptree import GPTreeClassifier
    >>> from gptree.experts import LDA, Pool, SklearnExpert
    >>> model = GPTreeClassifier(prior_mean=Pool((LDA(), SklearnExpert(LogisticRegression()))))
    """

    estimator: Any
    folds: int = 5

    def __post_init__(self) -> None:
        require_whole("folds", self.folds, 2)

    @property
    def cannot_grow(self) -> str:
        return (
            f"{type(self.estimator).__name__} learns from all examples at once, and a model that grows keeps only a "
            'few of each class; take an expert of gptree.experts or prior_mean="experts"'
        )

    def fit(self, examples: Examples) -> Fit:
        if not hasattr(self.estimator, "predict_proba"):
            raise TypeError(
                f"{type(self.estimator).__name__} has no predict_proba; switch it on (for example probability=True) "
                "or wrap it in sklearn.calibration.CalibratedClassifierCV."
            )
        model = self._fitted(examples, torch.ones_like(examples.usable))
        return fit_tempered(_GivenScores(self._left_out(examples), model), examples)

    def _fitted(self, examples: Examples, rows: Tensor) -> FittedSklearn:
        X, y, weights = (_numpy(values[rows]) for values in (examples.X, examples.y, examples.weights))
        estimator: Any = clone(self.estimator)
        fit_weighted(estimator, X, y, None if (weights == 1).all() else weights)
        smoothing = 1 / (2 * max(float(examples.weights.sum()), 1.0))
        return FittedSklearn(estimator, examples.n_classes, smoothing, temperature=1.0)

    def _left_out(self, examples: Examples) -> Tensor:
        """(n, C) log-probabilities."""
        scores = examples.X.new_zeros(len(examples), examples.n_classes)
        groups, usable = shot_folds(examples.y, self.folds), examples.usable
        if int((examples.sizes > 1).sum()) < 2:  # fewer than two classes to train on
            return scores
        for group in groups[usable].unique():
            fold = groups == group
            scores[fold] = self._fitted(examples, ~fold).scores(examples.X[fold])
        if not usable.all():
            alone = groups == ALONE
            one_shot = (examples.sizes == 1).nonzero()[:, 0]
            rows = self._fitted(examples, usable).scores(examples.X[alone])
            # what such a class gets from points of others
            rows[:, one_shot] = weighted_mean(scores[usable][:, one_shot], examples.weights[usable])
            scores[alone] = rows
        return scores


def fit_weighted(estimator: Any, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> None:
    """Fit an estimator to rows that count `weights` (n,) times each; None is once.

    One that takes no weights is fitted to repeated rows. If they are no whole numbers that is a ValueError.
    """
    if weights is None:
        estimator.fit(X, y)
    elif has_fit_parameter(estimator, "sample_weight"):
        estimator.fit(X, y, sample_weight=weights)
    elif (weights == weights.round()).all():
        estimator.fit(*(np.repeat(values, weights.astype(int), axis=0) for values in (X, y)))
    else:
        raise ValueError(
            f"{type(estimator).__name__} takes no sample_weight, and the weights are no whole numbers, for which rows "
            "could be repeated: take one that does, or round the weights."
        )


@dataclass(frozen=True, eq=False)
class FittedSklearn(FittedExpert):
    """A fitted `SklearnExpert`."""

    estimator: Any
    n_classes: int
    smoothing: float
    temperature: float  # τ

    def scores(self, X: Tensor) -> Tensor:
        """Smoothed log-probabilities (T, C); classes the estimator has not seen get the least."""
        given = torch.from_numpy(np.asarray(self.estimator.predict_proba(_numpy(X)))).to(X)
        p = X.new_zeros(len(X), self.n_classes)
        p[:, torch.as_tensor(self.estimator.classes_, device=X.device)] = given
        return ((1 - self.smoothing) * p + self.smoothing / self.n_classes).log()

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        check_features(X)
        return (self.temperature * self.scores(X)).log_softmax(1)

    def state(self) -> State:
        raise TypeError(
            f"an expert around the scikit-learn estimator {type(self.estimator).__name__} cannot be saved: that would "
            "need a pickle, and none is ever written here. Save a pool without it, or fit again after loading."
        )


@dataclass(frozen=True)
class PriorScores(Expert):
    """Class scores that owe nothing to the labels, for example a zero-shot model's.

    Nothing has to be left out, not even of one-shot classes; only the temperature is learnt. Can neither be saved nor
    grow.

    Parameters
    ----------
    source : callable, or object with `predict_proba`
        From inputs to scores (n, C), any unnormalised log-probabilities, in the order of the classes. It is given the
        raw inputs where there are any (`Examples.raw`), otherwise the features.

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> from gptree.experts import PriorScores
    >>> model = GPTreeClassifier(prior_mean=PriorScores(lambda raw: raw[:, :3]))  # three columns, three classes
    """

    source: Any

    def __post_init__(self) -> None:
        if not callable(self.source) and not hasattr(self.source, "predict_proba"):
            raise TypeError(f"source must be callable or have predict_proba; got {describe(self.source)}.")

    @property
    def cannot_grow(self) -> str:
        return (
            "prior scores are those of a fixed list of classes, from raw inputs that a model which grows does not "
            'keep; take an expert of gptree.experts or prior_mean="experts"'
        )

    def fit(self, examples: Examples) -> Fit:
        prior = FittedPriorScores(self.source, examples.n_classes, temperature=1.0)
        raw = examples.raw() if callable(examples.raw) else examples.raw
        scores = prior.scores(examples.X, raw)
        rows = some(examples.calibration.nonzero()[:, 0], examples.n_classes)
        weights = balanced(examples.weights[rows], examples.y[rows])
        centre = temperature_centre(scores[rows], SPREAD, weights)
        tau, _ = best_temperature(scores[rows], examples.y[rows], centre, weights)
        return Fit(replace(prior, temperature=tau), tau * scores, examples.usable)


@dataclass(frozen=True, eq=False)
class FittedPriorScores(FittedExpert):
    """A fitted `PriorScores`."""

    source: Any
    n_classes: int
    temperature: float  # τ

    def scores(self, X: Tensor, raw: Any) -> Tensor:
        inputs = X if raw is None else raw
        if hasattr(self.source, "predict_proba"):
            inputs = _numpy(inputs) if isinstance(inputs, Tensor) else inputs
            scores = torch.as_tensor(np.asarray(self.source.predict_proba(inputs)))
            scores = scores.clamp(min=torch.finfo(torch.float32).tiny).log()
        else:
            scores = torch.as_tensor(self.source(inputs))
        if scores.shape != (len(X), self.n_classes) or not torch.isfinite(scores).all():
            raise ValueError(
                f"prior scores must be finite and of shape {(len(X), self.n_classes)}, a column for each class in the "
                f"order of the labels; got {describe(scores)}."
            )
        return scores.to(X)

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        return (self.temperature * self.scores(X, raw)).log_softmax(1)

    def state(self) -> State:
        raise TypeError(
            "prior scores cannot be saved: their source is code, and no pickle is ever written here. "
            "Save a pool without them, or fit again after loading."
        )


class _GivenScores:
    """Left-out scores (n, C) that are there already: only the temperature is chosen."""

    grid = (1.0,)
    fallback = 1.0
    spread = SPREAD

    def __init__(self, scores: Tensor, model: FittedSklearn) -> None:
        self.given, self.model = scores, model

    def scores(self, grid: tuple[float, ...], rows: Tensor) -> Tensor:
        return self.given[rows][None]

    def fitted(self, value: float, temperature: float) -> FittedExpert:
        return replace(self.model, temperature=temperature)


def _numpy(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()
