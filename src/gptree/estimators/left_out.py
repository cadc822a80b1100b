"""Left-out predictions of a fitted classifier at the examples that it keeps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gptree.estimators.base import TreeEstimator
from gptree.estimators.state import FittedState, with_prior
from gptree.experts.wrong_labels import likelihood_weights
from gptree.incremental import GrownState, memory_left_out
from gptree.inference import PredictAt
from gptree.model import LeftOut, even, left_out_predictions


class LeftOutRows(NamedTuple):
    """What a model says of its own examples, each as if it had not been shown it."""

    ids: tuple[str, ...]
    """(n,)."""
    y: np.ndarray
    """(n,) class numbers of the labels they were given."""
    probabilities: np.ndarray
    """(n, C), columns as in `classes_`."""


class LeftOutMixin(TreeEstimator):
    """A classifier that can be asked about its own examples."""

    def left_out(self) -> LeftOutRows:
        """Class probabilities of every example that the model keeps, each left out.

        Nothing is fitted again: at each node the example is divided out of the posterior, and experts were fitted
        without it. A model that was fitted with `growth` keeps a few examples of every base class, typical ones: on
        those it does better than on others.

        Returns
        -------
        LeftOutRows
            ids (n,), y (n,) class numbers, probabilities (n, C). Without its only example nothing is known of a class:
            its row says what the other classes make of it.
        """
        return left_out_rows(self._state(), self.predict_at)

    def split_sureness(self) -> np.ndarray:
        """How sure each decision of the tree is; of a forest, of the first tree.

        Returns
        -------
        ndarray (C − 1,)
            For every inner node, over the kept examples below it, each left out: the mean probability of the side that
            is right, given that the class is below the node. NaN at nodes with no examples below them.
        """
        found, tree = self.left_out(), self.tree_
        places = tree.position[found.y]
        order = np.argsort(places, kind="stable")
        places, p = places[order], found.probabilities[order][:, tree.order]
        upto = np.concatenate([np.zeros((len(p), 1)), np.cumsum(p, axis=1)], axis=1)
        sure = np.full(tree.n_nodes, np.nan)
        for node, (lo, mid, hi) in enumerate(zip(tree.lo, tree.mid, tree.hi, strict=True)):
            start, stop = np.searchsorted(places, (lo, hi))
            if start < stop:
                left, both = (upto[start:stop, end] - upto[start:stop, lo] for end in (mid, hi))
                share = left / np.maximum(both, np.finfo(float).tiny)
                sure[node] = np.where(places[start:stop] < mid, share, 1.0 - share).mean()
        return sure


def left_out_rows(state: FittedState, predict_at: PredictAt) -> LeftOutRows:
    """See `LeftOutMixin.left_out`."""
    left_out, y, rows = left_out_in_memory(state, predict_at, dense=True)
    ids = state.ids
    assert left_out.log_probabilities is not None
    log_p = left_out.log_probabilities.cpu().numpy()[rows]
    return LeftOutRows(tuple(ids[row] for row in rows), y[rows], np.exp(log_p))


def left_out_in_memory(
    state: FittedState, predict_at: PredictAt, dense: bool = False
) -> tuple[LeftOut, np.ndarray, np.ndarray]:
    """Predictions at all rows of the features, their class numbers, and which of the rows are in memory.

    What is said of the other rows, whose classes may be gone, means nothing. See `left_out_predictions` for `dense`.
    """
    y, scores = state.y, with_prior(state.left_out, state.class_log_prior, state.X)
    learnt = None
    if state.log_frequencies is not None and not (even(state.log_frequencies) and state.class_log_prior is None):
        asked = 0.0 if state.class_log_prior is None else state.class_log_prior
        learnt = torch.as_tensor(state.log_frequencies - asked)
    rows, base = np.arange(len(y)), state.base
    weights = likelihood_weights(state.weights, state.beliefs) if base is None else base.likelihood
    if state.grown is not None:
        rows = state.grown.rows.cpu().numpy()
        y = np.zeros(len(state.y), dtype=np.int64)
        y[rows] = state.grown.y.cpu().numpy()
        scores, learnt = None, None
        assert state.base is not None
        if weights is not None:
            weights = torch.cat([weights, weights.new_ones(len(y) - len(weights))])
        known = memory_left_out(state.base, state.grown, state.on_sphere)
        if known is not None:
            scores = known.new_zeros(len(y), known.shape[1]).index_copy_(0, state.grown.rows, known)
            learnt = _learnt_prior(state, state.grown)
    return left_out_predictions(state.model, y, scores, weights, predict_at, state.staying, dense, learnt), y, rows


def _learnt_prior(state: FittedState, grown: GrownState) -> Tensor | None:
    """The class sizes (C,), as logarithms, in the scores around which nodes were fitted: of the base, and later ones.

    At a node that tells base classes from novel ones this is an approximation, unless base classes are of one size.
    """
    prior = np.zeros(len(state.classes)) if grown.log_sizes is None else grown.log_sizes.cpu().numpy().copy()
    if state.log_frequencies is not None and not even(state.log_frequencies):
        place = grown.registry.base_places(len(state.log_frequencies))
        stays = place >= 0
        prior[place[stays]] += state.log_frequencies[stays] + np.log(len(place))
    return None if even(prior) else torch.as_tensor(prior)
