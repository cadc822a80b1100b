"""The most probable classes of rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from gptree.estimators.state import FittedState
from gptree.inference import PredictAt
from gptree.model import Beam
from gptree.settings import require

#: Nodes of a beam, unless more classes are asked for; and how many classes are asked about without one: with fewer, a
#: search saves little time.
BEAM = 16
BEAM_FROM = 5_000


class TopK(NamedTuple):
    """The most probable classes of n rows."""

    classes: np.ndarray
    """(n, k) labels, the most probable first; without a beam, of equal ones the first of `classes_`."""
    probabilities: np.ndarray
    """(n, k)."""
    outside: np.ndarray
    """(n,) a bound on the probability of all other classes together, and so of any of them; without a beam it is that
    probability."""


def check_top(k: Any, n_classes: int) -> None:
    """Raise unless a model of so many classes has k of them."""
    whole = isinstance(k, int | np.integer) and not isinstance(k, bool)
    require(
        bool(whole and 1 <= k <= n_classes), f"k must be a whole number from 1 to the {n_classes} classes, not {k!r}."
    )


def beam_width(beam: Any, k: int, state: FittedState, predict_at: PredictAt) -> int | None:
    """The width of the beam that the parameter stands for; None for all nodes."""
    scored = state.experts is not None or state.class_log_prior is not None  # what sub-trees outside go by
    possible = predict_at == "mean" and scored and Beam.takes(state.model)
    if beam is None:
        return max(BEAM, k) if possible and len(state.classes) > BEAM_FROM else None
    whole = isinstance(beam, int | np.integer) and not isinstance(beam, bool)
    require(bool(whole and beam >= 1), f"beam must be a whole number, at least 1, or None, not {beam!r}.")
    require(
        possible or len(state.classes) == 1,
        'this model has no beam search: it takes a prior mean, predict_at="mean", one draw a node, and a kernel "rbf" '
        'or "matern52" that all nodes share. Leave beam=None.',
    )
    return int(beam) if possible else None


def searches(classifier: Any, k: int) -> bool:
    """Whether `predict_top_k` of a fitted classifier takes a beam where none is given."""
    state = getattr(classifier, "state_", None)
    return isinstance(state, FittedState) and beam_width(None, k, state, classifier.predict_at) is not None


def beam_top_k(state: FittedState, X: np.ndarray, k: int, width: int) -> TopK:
    """Of raw features X (n, d), by a beam of so many nodes."""
    with torch.no_grad():
        best, p, outside = (part.cpu().numpy() for part in state.beam.top_k(state.features(X), width, k, X))
    return TopK(state.classes[best], p.astype(np.float64), outside.astype(np.float64))


def top_k(labels: np.ndarray, p: np.ndarray, k: int) -> TopK:
    """Of class probabilities (n, C)."""
    first = np.argsort(-p, axis=1, kind="stable")[:, :k]
    chosen = np.take_along_axis(p, first, 1)
    others = p.copy()
    np.put_along_axis(others, first, 0.0, 1)
    return TopK(labels[first], chosen, others.sum(1))
