"""Known rows: how a fitted state sees the examples it was taught, each without itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gptree.estimators.left_out import left_out_in_memory
from gptree.estimators.state import FittedState
from gptree.incremental import BaseState, GrownState, base_novelty
from gptree.inference import PredictAt
from gptree.model import LeftOut


class KnownRows(NamedTuple):
    """Left-out predictions at N known examples."""

    novelty: np.ndarray
    """(N,)."""
    own: np.ndarray | None
    """(N,) log-probabilities of their own classes; None of a base session in an older file, which did not keep them."""
    y: np.ndarray
    """(N,) class numbers."""


def known_rows(state: FittedState, predict_at: PredictAt) -> KnownRows:
    """The known rows of a state, computed once."""
    if predict_at not in state._known_rows:
        state._known_rows[predict_at] = _known_rows(state, predict_at)
    return state._known_rows[predict_at]


def _known_rows(state: FittedState, predict_at: PredictAt) -> KnownRows:
    if state.grown is not None:
        assert state.base is not None
        return _grown_rows(state, state.base, state.grown, predict_at)
    if state.base is not None:
        return _base_rows(state.base, predict_at, state.log_frequencies)
    left_out, y, _ = left_out_in_memory(state, predict_at)
    return _seen(left_out, y)


def _seen(left_out: LeftOut, y: np.ndarray) -> KnownRows:
    return KnownRows(left_out.novelty.cpu().numpy(), left_out.own.cpu().numpy(), y)


def _base_rows(base: BaseState, predict_at: PredictAt, log_frequencies: np.ndarray | None) -> KnownRows:
    kept = base_novelty(base, predict_at, log_frequencies)
    own = None if kept.own is None else kept.own.cpu().numpy()
    return KnownRows(kept.values.cpu().numpy(), own, kept.y.cpu().numpy())


def _grown_rows(state: FittedState, base: BaseState, grown: GrownState, predict_at: PredictAt) -> KnownRows:
    """Of the examples that a grown model keeps, and of those of the base session that it does not keep.

    Exemplars are typical of their class, and few. How all examples of the base session looked is known; in the grown
    model each is taken to have changed by as much as the exemplars of its class have, on average.
    """
    left_out, y, rows = left_out_in_memory(state, predict_at)
    now = _seen(left_out, y)
    before = _base_rows(base, predict_at, state.log_frequencies)
    exemplars = base_novelty(base, predict_at).exemplars.cpu().numpy()  # among all examples
    kept = base.exemplars.cpu().numpy()  # among the rows that the model keeps
    place = grown.registry.base_places(base.n_classes)
    stays = place[before.y] >= 0
    later = rows[rows >= len(base.X)]

    def moved(old: np.ndarray, new: np.ndarray, most: float) -> np.ndarray:
        change = np.bincount(before.y[exemplars], new[kept] - old[exemplars], base.n_classes)
        change /= np.bincount(before.y[exemplars], minlength=base.n_classes)
        return np.concatenate([np.minimum(old + change[before.y], most)[stays], new[later]])

    return KnownRows(
        novelty=np.maximum(moved(before.novelty, now.novelty, 1.0), 0.0),
        own=None if before.own is None or now.own is None else moved(before.own, now.own, 0.0),
        y=np.concatenate([place[before.y[stays]], y[later]]),
    )
