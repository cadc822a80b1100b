"""Known rows: how a fitted state sees the examples it was taught, each without itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gptree.estimators.left_out import left_out_in_memory
from gptree.estimators.state import FittedState, Query
from gptree.incremental import BaseState, Novelty, base_novelty
from gptree.inference import PredictAt
from gptree.model import (
    Distances,
    KnownSigns,
    NoveltyScore,
    distance_rows,
    known_signs,
    novelty,
    signs,
)


class KnownRows(NamedTuple):
    """Left-out predictions at N known examples."""

    novelty: np.ndarray
    """(N,)."""
    own: np.ndarray | None
    """(N,) log-probabilities of their own classes; None of a base session in an older file, which did not keep them."""
    y: np.ndarray
    """(N,) class numbers."""
    score: NoveltyScore | None
    """From signs to novelty; None of a base session in an older file: one minus confidence times familiarity."""
    distances: Distances | None
    """What tells two of the signs; None where there are too many classes."""
    signs: np.ndarray | None
    """(N, 4)."""


def novelty_of(query: Query, predict_at: PredictAt) -> np.ndarray:
    """How strange the rows of a query are, (n,) in [0, 1]."""
    state = query.state
    if len(state.classes) == 1:
        return np.zeros(len(query.log_p))  # no decision, nothing to compare with
    known = known_rows(state, predict_at)
    best, familiarity = query.log_p.max(1), state.model.familiarity(query.features, query.log_p.argmax(1))
    if known.score is None:
        return novelty(np.exp(best), familiarity.cpu().numpy())
    return known.score(query_signs(query, familiarity, known.distances).cpu().numpy())


def query_signs(query: Query, familiarity: Tensor, distances: Distances | None) -> Tensor:
    """The signs of a stranger of the rows of a query, (n, 4)."""
    best = torch.as_tensor(query.log_p.max(1), device=familiarity.device)
    if distances is None:
        return signs(best, familiarity, best.new_zeros(len(best), 2))
    return signs(best, familiarity, distances.at(query.state.on_sphere(query.features)))


def known_rows(state: FittedState, predict_at: PredictAt) -> KnownRows:
    """The known rows of a state, computed once."""
    if predict_at not in state._known_rows:
        state._known_rows[predict_at] = _known_rows(state, predict_at)
    return state._known_rows[predict_at]


def _known_rows(state: FittedState, predict_at: PredictAt) -> KnownRows:
    base = state.base
    if base is None:
        found, y, _ = _memory(state, predict_at)
        return _scored(_arrays(found.known, found.left_out.own, None), y, found.variance_weight, found.distances)
    changed = state.grown is not None and bool(state.grown.registry.novel or state.grown.registry.base_changed)
    distances = None if changed else _base_distances(base, state)
    kept = base_novelty(base, predict_at, state.on_sphere, state.log_frequencies, distances)
    seen, y = _arrays(kept.signs, kept.own, kept.values), kept.y.cpu().numpy()
    if state.grown is None or not changed:
        return _scored(seen, y, kept.variance_weight, distances)
    found, now, rows = _memory(state, predict_at)
    later, place = rows[rows >= len(base.X)], state.grown.registry.base_places(base.n_classes)
    change = _Change(y, kept.exemplars.cpu().numpy(), base.exemplars.cpu().numpy(), place[y] >= 0, later)
    news = _arrays(found.known, found.left_out.own, found.left_out.novelty)
    moved = [None if old is None or new is None else change(old, new) for old, new in zip(seen, news, strict=True)]
    y = np.concatenate([place[y[change.stays]], now[later]])
    return _scored(moved, y, kept.variance_weight, found.distances)


Arrays = list[np.ndarray | None]
"""Signs (N, 4), log-probabilities of the own classes (N,) and the scores of an older version (N,) of known rows."""


def _arrays(*tensors: Tensor | None) -> Arrays:
    return [None if each is None else each.cpu().numpy() for each in tensors]


def _scored(seen: Arrays, y: np.ndarray, variance_weight: float | None, distances: Distances | None) -> KnownRows:
    known, own, older = seen
    own = None if own is None else np.minimum(own, 0.0)
    if known is None or variance_weight is None:
        assert older is not None
        return KnownRows(older.clip(0.0, 1.0), own, y, None, None, None)
    rounded = np.round(known, 9)  # the last bits depend on what was asked before, see `StayingNodes`
    score = NoveltyScore.of(rounded, y, variance_weight)
    return KnownRows(score(rounded), own, y, score, distances, known)


def seen_by_base(state: FittedState, exemplars: Tensor) -> dict[PredictAt, Novelty]:
    """What a model without growth knows of its rows, as the base session (with these exemplars) that it becomes."""
    found: dict[PredictAt, Novelty] = {}
    for predict_at, known in state._known_rows.items():
        own = torch.as_tensor(known.own).to(state.X)
        signs, y = torch.as_tensor(known.signs).to(own), torch.as_tensor(known.y, device=own.device)
        found[predict_at] = Novelty(signs, known.score.variance_weight, y, exemplars, own)
    return found


def _memory(state: FittedState, predict_at: PredictAt) -> tuple[KnownSigns, np.ndarray, np.ndarray]:
    """Signs of all rows of the features, their class numbers, and which of them are in memory."""
    left_out, y, rows = left_out_in_memory(state, predict_at)
    points = distance_rows(state.y, len(state.classes))
    return known_signs(left_out, state.on_sphere(state.X), np.maximum(state.y, 0), points), y, rows


def _base_distances(base: BaseState, state: FittedState) -> Distances | None:
    points = torch.as_tensor(distance_rows(base.y.cpu().numpy(), base.n_classes), device=base.y.device)
    return Distances(state.on_sphere(base.X)[points], base.y[points]) if len(points) else None


class _Change(NamedTuple):
    """How the examples of a base session look to a model that has grown from it.

    Exemplars are typical of their class, and few. How all examples of the base session looked is known; in the grown
    model each is taken to have changed by as much as the exemplars of its class have, on average.
    """

    y: np.ndarray
    """(n,) base classes of the examples."""
    before: np.ndarray
    """(m,) which of them are the exemplars."""
    now: np.ndarray
    """(m,) the exemplars among the rows of the grown model."""
    stays: np.ndarray
    """(n,) whether the class is still there."""
    later: np.ndarray
    """Rows of the grown model that came later."""

    def __call__(self, old: np.ndarray, new: np.ndarray) -> np.ndarray:
        """Values (n, …) of the examples and (N, …) of the rows of the grown model, as values of all known rows."""
        count = np.bincount(self.y[self.before])
        change = np.zeros((len(count), *old.shape[1:]))
        np.add.at(change, self.y[self.before], new[self.now] - old[self.before])
        change = (change.T / count).T
        return np.concatenate([(old + change[self.y])[self.stays], new[self.later]])
