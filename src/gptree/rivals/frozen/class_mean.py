"""Nearest class mean: the simplest rival, and a strong one with few shots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.metrics.pairwise import cosine_similarity, euclidean_distances

from gptree.rivals.base import RivalClassifier
from gptree.rivals.left_out import Scorer, class_means, fit_temperature, left_out_scores, scale_of, shot_folds

ONE_SHOT_TEMPERATURE = 14.0  # the best for one-shot draws of three sets of embeddings: 12 to 18


@dataclass(kw_only=True, eq=False, repr=False)
class NearestClassMean(RivalClassifier):
    """Softmax over the similarity of a point to the class means, at a fitted temperature.

    p(c | x) ∝ exp(τ s(x, μ_c)), s the similarity and μ_c the mean of class c.

    Parameters
    ----------
    metric : "cosine" or "euclidean"
        The angle to the mean, or minus half the squared distance in units of the mean squared distance of the training
        points from their centre.
    temperature : float or None
        The factor τ of the scores. None fits it by the left-out NLL. Where every class has one example there is
        nothing to leave out, and τ is `ONE_SHOT_TEMPERATURE`.

    Attributes
    ----------
    temperature_ : float
    means_ : ndarray (C, d)
    scale_ : float
        The unit of distance.

    Examples
    --------
    >>> from gptree.rivals import NearestClassMean
    >>> NearestClassMean().fit([[1.0, 0.0], [0.0, 1.0]], ["a", "b"]).predict([[0.9, 0.2]])
    array(['a'], dtype='<U1')
    """

    name = "class-mean"
    metric: Literal["cosine", "euclidean"] = "cosine"
    temperature: float | None = None

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        if self.metric not in ("cosine", "euclidean"):
            raise ValueError(f'metric must be "cosine" or "euclidean", got {self.metric!r}.')
        self.scale_ = scale_of(x)
        self.means_ = class_means(x, y)
        folds = shot_folds(y, limit=30)
        scored = folds >= 0
        if self.temperature is not None:
            self.temperature_ = self.temperature
        elif scored.any():
            scores = left_out_scores(self._scorer, x, y, folds)
            self.temperature_, _ = fit_temperature(scores[scored], y[scored])
        else:
            self.temperature_ = ONE_SHOT_TEMPERATURE

    def _scorer(self, x: np.ndarray, y: np.ndarray) -> Scorer:
        means = class_means(x, y)
        return lambda new: self._similarity(new, means)

    def _similarity(self, x: np.ndarray, means: np.ndarray) -> np.ndarray:
        if self.metric == "cosine":
            return cosine_similarity(x, means)
        return -0.5 * euclidean_distances(x, means, squared=True) / self.scale_**2

    def _logits(self, x: np.ndarray) -> np.ndarray:
        return self.temperature_ * self._similarity(x, self.means_)
