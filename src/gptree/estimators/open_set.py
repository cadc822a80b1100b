"""What a classifier does with rows of no class it knows, and which rows it would like to see labelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gptree.estimators.active import suggest
from gptree.incremental import BaseState, GrownState, with_novelty
from gptree.inference import PredictAt
from gptree.model import ForestModel, left_out_predictions, novelty_threshold


class OpenSetMixin:
    """Predictions that may be "none of these"."""

    # of the classifier
    classes_: np.ndarray
    model_: ForestModel
    y_: np.ndarray
    left_out_: Tensor | None
    base_: BaseState | None
    grown_: GrownState | None
    predict_at: PredictAt
    _explained: Callable[[Any], tuple[Tensor, np.ndarray, np.ndarray]]
    _with_prior: Callable[[Tensor | None], Tensor | None]

    def novelty_score(self, X: Any) -> np.ndarray:
        """How strange each row is, in [0, 1], (n,): larger is stranger.

        One minus confidence times familiarity: the probability of the predicted class, times the share of the prior
        variance that the training data took away at the last decision on its path.
        """
        features, _, log_p = self._explained(X)
        return self._novelty(features, log_p)

    def predict_open(self, X: Any, reject: float = 0.05, unknown: Any = None) -> np.ndarray:
        """The most probable label of each row, or `unknown` where its novelty is too high for any of the classes.

        The threshold comes from the training data alone: a share `reject` of the known examples that the model keeps,
        each scored without itself, would be turned away. Returns an array of objects if `unknown` is not of the kind of
        the labels.
        """
        features, _, log_p = self._explained(X)
        strange = self._novelty(features, log_p) > self.novelty_threshold(reject)
        labels = self.classes_[log_p.argmax(1)]
        if np.array([unknown]).dtype.kind != labels.dtype.kind:
            labels = labels.astype(object)
        elif labels.dtype.kind == "U":
            labels = labels.astype(np.result_type(labels, np.array([unknown])))
        labels[strange] = unknown
        return labels

    def novelty_threshold(self, reject: float = 0.05) -> float:
        """The novelty that a share `reject` of known rows should pass, classes counting equally."""
        novelty, y = self._left_out_novelty()
        return novelty_threshold(novelty, y, reject)

    def suggest(self, X: Any, n: int) -> np.ndarray:
        """Numbers of the n rows of unlabelled X (N, d) to label next, the most useful first.

        Rows that stand for many others the model is unsure of, and are unlike what is labelled and unlike each other.
        """
        features, _, log_p = self._explained(X)
        labelled = self.model_.predictor.grams.X[torch.as_tensor(self.y_ >= 0)]
        return suggest(log_p, features.cpu().numpy(), labelled.cpu().numpy(), n)

    def _novelty(self, features: Tensor, log_p: np.ndarray) -> np.ndarray:
        if len(self.classes_) == 1:
            return np.zeros(len(log_p))  # no decision, nothing to compare with
        familiarity = self.model_.familiarity(features, log_p.argmax(1)).cpu().numpy()
        return 1.0 - np.exp(log_p.max(1)) * familiarity

    def _left_out_novelty(self) -> tuple[np.ndarray, np.ndarray]:
        """Novelty of known examples, each without itself, and their class numbers.

        Computed when first asked for, and again when the model has changed.
        """
        known = self.__dict__.get("_novelty_of")
        if known is not None and known[0] is self.model_:
            return known[1]
        if self.grown_ is not None:
            found = self._grown_novelty(self.grown_)
        elif self.base_ is not None and self.base_.novelty is not None:
            found = self.base_.novelty.values.cpu().numpy(), self.base_.novelty.y.cpu().numpy()
        else:
            scores = self._with_prior(self.left_out_)
            left_out = left_out_predictions(self.model_, self.y_, scores, predict_at=self.predict_at)
            found = left_out.novelty.cpu().numpy(), self.y_
        self._novelty_of = (self.model_, found)
        return found

    def _grown_novelty(self, grown: GrownState) -> tuple[np.ndarray, np.ndarray]:
        """Of the examples that a grown model keeps, and of those of the base session that it does not keep.

        Exemplars are typical of their class, and few. How strange all examples of the base session were is known; in
        the grown model each is taken to be stranger by as much as the exemplars of its class have become, on average.
        """
        assert self.base_ is not None
        if self.base_.novelty is None:
            self.base_ = with_novelty(self.base_, self.predict_at)
        base, seen = self.base_, self.base_.novelty
        assert seen is not None
        y = np.zeros(len(self.y_), dtype=np.int64)  # what is said of rows that are not in memory is dropped
        rows = grown.rows.cpu().numpy()
        y[rows] = grown.y.cpu().numpy()
        scores = None
        if grown.left_out is not None:
            scores = grown.left_out.new_zeros(len(y), grown.left_out.shape[1])
            scores[grown.rows] = grown.left_out
        novelty = left_out_predictions(self.model_, y, scores, predict_at=self.predict_at).novelty.cpu().numpy()

        values, codes, exemplars = (part.cpu().numpy() for part in (seen.values, seen.y, seen.exemplars))
        kept = base.exemplars.cpu().numpy()
        risen = novelty[kept] - values[exemplars]
        risen = np.bincount(codes[exemplars], risen, base.n_classes) / np.bincount(codes[exemplars])
        place = grown.registry.base_places(base.n_classes)
        there = place[codes] >= 0
        later = rows[rows >= len(base.X)]
        return (
            np.concatenate([np.clip(values + risen[codes], 0.0, 1.0)[there], novelty[later]]),
            np.concatenate([place[codes[there]], y[later]]),
        )
