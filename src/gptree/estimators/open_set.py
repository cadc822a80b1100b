"""Rows of no known class, and rows that are worth a label."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from gptree.estimators.active import suggest
from gptree.estimators.base import TreeEstimator
from gptree.estimators.known_rows import known_rows, novelty_of
from gptree.estimators.state import FittedState
from gptree.inference import PredictAt
from gptree.model import novelty_threshold, smallest_share


class OpenSetMixin(TreeEstimator):
    """Predictions that may be "none of these"."""

    def novelty_score(self, X: Any) -> np.ndarray:
        """How strange each row is.

        The sum of four signs of a stranger, in standard deviations of the training rows, each left out: a class that is
        not known yet explains the row better than all that are; the predicted class is not probable; little of the
        prior variance is explained where that class is decided; and the row is far from all others. Known classes that
        play strangers choose how much the last one counts. A model from a file that was written before version 7, with
        `growth`, has the score of its time: one minus the probability of the predicted class times the share of
        variance that is explained.

        Parameters
        ----------
        X : array-like (n, d)

        Returns
        -------
        ndarray (n,)
            In [0, 1]; larger is stranger.
        """
        return novelty_of(self._query(X), self.predict_at)

    def predict_with_novelty(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Class probabilities and novelty in one pass over the rows, for those who need both.

        Parameters
        ----------
        X : array-like (n, d)

        Returns
        -------
        probabilities : ndarray (n, C)
            As `predict_proba` gives them.
        novelty : ndarray (n,)
            As `novelty_score` gives it.
        """
        query = self._query(X)
        return np.exp(query.log_p), novelty_of(query, self.predict_at)

    def predict_open(self, X: Any, reject: float = 0.05, unknown: Any = None) -> np.ndarray:
        """The most probable label of each row, or `unknown` where its novelty is too high for any of the classes.

        The threshold comes from the training data alone: a share `reject` of the known examples, each scored without
        itself, would be turned away. Where they are too few to tell, the smallest share that they support is taken, and
        a warning names it.

        Parameters
        ----------
        X : array-like (n, d)
        reject : float
            Share of known rows to turn away, in (0, 1).
        unknown : optional
            What stands for "none of these".

        Returns
        -------
        ndarray (n,)
            Of objects if `unknown` is not of the kind of the labels.
        """
        query = self._query(X)
        strange = novelty_of(query, self.predict_at) > _threshold(query.state, self.predict_at, reject)
        return open_labels(query.state.classes[query.log_p.argmax(1)], strange, unknown)

    def novelty_threshold(self, reject: float = 0.05) -> float:
        """The novelty that a share `reject` of known rows should pass, classes counting equally.

        Parameters
        ----------
        reject : float
            In (0, 1).

        Returns
        -------
        float
        """
        return _threshold(self._state(), self.predict_at, reject)

    def suggest(self, X: Any, n: int) -> np.ndarray:
        """The rows of unlabelled X to label next, the most useful first.

        They stand for many others that the model is unsure of, and are unlike what is labelled and unlike each other.

        Parameters
        ----------
        X : array-like (N, d)
        n : int

        Returns
        -------
        ndarray (n,)
            Row numbers.
        """
        query = self._query(X)
        labelled = query.state.X[torch.as_tensor(query.state.y >= 0)]
        return suggest(query.log_p, query.features.cpu().numpy(), labelled.cpu().numpy(), n)


def _threshold(state: FittedState, predict_at: PredictAt, reject: float) -> float:
    """See `novelty_threshold`."""
    known = known_rows(state, predict_at)
    threshold, least = novelty_threshold(known.novelty, known.y, reject), smallest_share(known.y)
    if 0.0 < reject < least:
        warnings.warn(
            f"{len(known.y)} left-out examples are too few to turn away a share of {reject:g} of known rows: the "
            f"smallest that they support, {least:.2g}, is taken. Give more examples, or ask for more.",
            UserWarning,
            stacklevel=3,
        )
    return threshold


def open_labels(labels: np.ndarray, strange: np.ndarray, unknown: Any) -> np.ndarray:
    """Labels (n,) with `unknown` in place of those that are strange; objects if it is of another kind."""
    if np.array([unknown]).dtype.kind != labels.dtype.kind:
        labels = labels.astype(object)
    elif labels.dtype.kind == "U":
        labels = labels.astype(np.result_type(labels, np.array([unknown])))
    return np.where(strange, np.array(unknown, dtype=labels.dtype), labels)
