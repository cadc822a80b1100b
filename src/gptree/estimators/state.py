"""The fitted state of a classifier: one frozen value that fitting, growing and loading return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from gptree.estimators.evidence import SCALES, ScaleEvidence
from gptree.estimators.feature_map import SphereMap, UnitLength, all_finite
from gptree.estimators.row_order import direction, in_order, merged_examples
from gptree.experts import MANY_CLASSES, FittedExpert, FittedPool, LeftOutScores, in_chunks
from gptree.experts.examples import row_chunks
from gptree.incremental import BaseState, ClassRegistry, Entry, GrownState, memory_scores, replay, with_classes
from gptree.inference import PredictAt
from gptree.maths.sphere import unit_length
from gptree.model import Beam, ForestModel, Prediction, StayingNodes
from gptree.model.prediction import CodeScores

#: A label is doubtful if its left-out probability is less than this share of that of another, and than an even chance.
DOUBTFUL = 0.1


def map_features(feature_map: Any, X: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Mapped features as a tensor; rows that the map cannot place are an error."""
    if is_unit(feature_map):  # finite, as X was found to be
        return torch.as_tensor(feature_map.mapped(X), dtype=dtype, device=device)
    mapped = X if feature_map is None else np.asarray(feature_map.transform(X))
    if not all_finite(mapped):
        raise ValueError("the feature map gives values that are not finite; scale the features or change the map.")
    return torch.as_tensor(mapped, dtype=dtype, device=device)


def is_unit(feature_map: Any) -> bool:
    """Whether a map gives features of unit length."""
    return isinstance(feature_map, SphereMap | UnitLength)


def on_sphere(feature_map: Any, features: Tensor) -> Tensor:
    """What experts see: features of unit length, whatever the map."""
    if is_unit(feature_map):
        return features
    return torch.as_tensor(unit_length(features.cpu().numpy()), dtype=features.dtype, device=features.device)


def fitted_value(name: str, doc: str) -> Any:
    """A property of an estimator: the value of this name in its fitted state."""
    return property(lambda estimator: getattr(estimator._state(), name), doc=doc)


class Query(NamedTuple):
    """Rows that a fitted state was asked about, and its answer."""

    state: FittedState
    raw: np.ndarray
    """(n, d) as they came."""
    features: Tensor
    """(n, d) mapped."""
    log_p: np.ndarray
    """(n, C) class log-probabilities."""


@dataclass(frozen=True, eq=False)
class FittedState:
    """Everything that a classifier has learnt.

    A state never changes, but for values that it computes when they are first asked for. `fit`, every operation on
    classes and `load` make a new one and publish it by one assignment to `state_`; whoever reads goes on with the state
    it began with.
    """

    classes: np.ndarray
    """(C,) labels, in the order of the columns of `predict_proba`."""
    seed: int
    feature_map: Any
    """The fitted map from raw features, or None."""
    model: ForestModel
    """Trees and node posteriors."""
    experts: FittedExpert | None
    """The source of prior means; None for zero prior means."""
    left_out: Tensor | LeftOutScores | None
    """(n, C) left-out class log-probabilities of the experts at the rows of `fit`."""
    y: np.ndarray
    """(N,) class number of every row of the model's features; −1 if its class is gone."""
    origins: np.ndarray
    """(N, 2) which journal entry brought the row, and its number there."""
    journal: tuple[Entry, ...]
    """What happened since the model was fitted, `fit` first."""
    class_log_prior: np.ndarray | None = None
    """(C,) log class prior that the prior means express, or None."""
    log_frequencies: np.ndarray | None = None
    """(C,) log class frequencies, which prior means from experts express at the rows of `fit`."""
    base: BaseState | None = None
    """The base session; None until a model that was fitted without growth changes."""
    grown: GrownState | None = None
    """The model of the journal's classes; None until the first operation."""
    weights: Tensor | None = None
    """(n,) how many times each row of `fit` counts; None is once."""
    beliefs: Tensor | None = None
    """(n,) the belief that the label of each row of `fit` is right; None is 1."""
    encoder: Mapping[str, Any] | None = None
    """The description of the encoder that gave the features, see `gptree.embed`; None if that is not known."""
    evidence: ScaleEvidence | None = None
    """Why the output scale is what it is, where `fit` chose it; not in files."""
    _known_rows: dict[PredictAt, Any] = field(default_factory=dict, repr=False)
    """Computed when first asked for, see `gptree.estimators.known_rows`."""

    @property
    def X(self) -> Tensor:
        """(N, d) mapped features that the model keeps."""
        return self.model.predictor.grams.X

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """(N,) what the rows of the model's features are called: the ids that were given, or row numbers."""
        named = {
            (number, row): name
            for number, entry in enumerate(self.journal)
            for row, name in zip(entry.rows, entry.ids, strict=False)
        }
        base, origins = self.journal[0].ids, map(tuple, self.origins.tolist())
        return tuple(
            base[i] if origin[0] == 0 and base else named.get(origin, str(origin[1]))
            for i, origin in enumerate(origins)
        )

    @property
    def base_labels(self) -> tuple[Any, ...]:
        """Labels of the classes of `fit`, as they were then."""
        return self.journal[0].labels

    def registry(self, journal: tuple[Entry, ...] | None = None, merged: bool = True) -> ClassRegistry:
        """The classes that a journal leaves, their examples in order; that of the state unless another is given.

        Equal examples of a class are one, unless they are not to be `merged`.
        """
        journal = self.journal if journal is None else journal
        if self.base is None:
            along = direction(self.X, torch.as_tensor(self.y, device=self.X.device), self.base_labels)
        else:
            along = direction(self.base.X, self.base.y, self.base.keys)
        if merged and self.grown is not None and journal[:-1] == self.journal and journal[-1].kind == "add_classes":
            known = self.grown.registry  # which stays as it is
            more = with_classes(known, journal[-1], len(journal) - 1)
            added = merged_examples(replace(more, base=(), novel=more.novel[len(known.novel) :]))
            return replace(more, novel=(*known.novel, *in_order(added, along, self.seed).novel))
        registry = replay(self.base_labels, journal, self.X.shape[1], self.X)
        return in_order(merged_examples(registry) if merged else registry, along, self.seed)

    # ------------------------------------------------------------------------------------------------ prediction

    def query(self, X: np.ndarray, predict_at: PredictAt) -> Query:
        """Ask about raw features X (n, d)."""
        features = self.features(X)
        return Query(self, X, features, self.log_probabilities(features, X, predict_at).cpu().numpy())

    def features(self, X: np.ndarray) -> Tensor:
        """Raw features X (n, d) as the model sees them."""
        return map_features(self.feature_map, X, self.X.dtype, self.X.device)

    def on_sphere(self, features: Tensor) -> Tensor:
        """Mapped features as the experts see them."""
        return on_sphere(self.feature_map, features)

    def log_probabilities(self, features: Tensor, raw: np.ndarray, predict_at: PredictAt) -> Tensor:
        """Class log-probabilities (n, C) at mapped features (n, d)."""
        prediction = self.prediction
        found = features.new_empty(0, len(self.classes))
        with torch.no_grad():
            for rows in self.model.chunks(features, prediction.width):
                part = prediction(features[rows], predict_at, raw[rows])
                if len(part) == len(features):
                    return part
                found = found if len(found) else part.new_empty(len(features), part.shape[1])
                found[rows] = part
        return found

    @cached_property
    def prediction(self) -> Prediction:
        """From mapped features to class log-probabilities; built when it is first asked for."""
        with torch.no_grad():
            return Prediction(self.model, self.experts, self.class_log_prior, is_unit(self.feature_map))

    @cached_property
    def staying(self) -> StayingNodes:
        """Its nodes, or those of the base session that it has grown from."""
        return StayingNodes(self.model.predictor.posteriors) if self.base is None else self.base.staying

    @cached_property
    def beam(self) -> Beam:
        """Beam search over the trees, for a model that `Beam.takes`."""
        with torch.no_grad():
            if len(self.classes) <= MANY_CLASSES:
                return Beam(self.prediction, self.model, self.X.dtype)
            known = type(self.experts) is FittedPool and not isinstance(self.prediction.experts, CodeScores)
            single = self.experts.single() if known and self.experts is not None else None  # a shortlist is so already
            return Beam(self.prediction, self.model, torch.float32, single)

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name not in ("prediction", "beam", "staying")}
        return kept | {"_known_rows": {}}  # computed again when asked for

    def class_scores(self, features: Tensor, raw: np.ndarray) -> Tensor | None:
        """Class log-scores (n, C), whose log-odds are the nodes' prior means; None if those are zero."""
        scores = None if self.experts is None else self.experts.log_probabilities(self.on_sphere(features), raw)
        scores = with_prior(scores, self.class_log_prior, features)
        return None if scores is None else scores.expand(len(features), -1)


def left_out_diagnostics(state: FittedState) -> dict[str, np.ndarray]:
    """What left-out rows said about the output scale, and which labels they doubt."""
    found = {}
    if (evidence := state.evidence) is not None:
        found = {
            "scales": np.array(SCALES),
            "scale_nll": evidence.nll,
            "scale_error": evidence.error,
            "scale_rows": np.array([evidence.rows]),
        }
    doubted = _doubted(state)
    if doubted is None:
        return found
    origins = state.origins[doubted]
    later = origins[:, 0] > 0
    found["doubtful"] = np.sort(origins[~later, 1])
    if state.grown is not None:
        found["doubtful_later"] = origins[later][np.lexsort(origins[later].T[::-1])]
    return found


def _doubted(state: FittedState) -> np.ndarray | None:
    """Which rows of the features have labels that are doubtful (N,), if experts can say.

    Rows of `fit` are judged as after `fit`, among the classes of it that are still there: what comes later brings no
    doubt about them. Later rows are judged among all classes.
    """
    base, grown = state.base, state.grown
    left_out, y = (state.left_out, state.y) if base is None else (base.left_out, base.y.cpu().numpy())
    if left_out is None or len(left_out) != len(y):
        return None
    doubted = np.zeros(len(state.y), dtype=bool)
    kept = None if grown is None else [c.number for c in grown.registry.base]
    codes = torch.as_tensor(state.y[: len(y)], device=state.X.device)
    for rows, log_p in in_chunks(left_out):
        there = codes[rows] >= 0
        if kept is not None and len(kept) < log_p.shape[1]:
            log_p = log_p[:, kept].log_softmax(1)
        doubted[rows[there].cpu().numpy()] = _is_doubtful(log_p[there], codes[rows[there]])
    doubted[: len(y)] &= np.bincount(y)[y] > 1  # of a single one nothing is known without the row
    if base is None or grown is None or len(state.y) == len(y):
        return doubted
    scores = memory_scores(base, grown, state.on_sphere)
    assert scores is not None
    later, several = (grown.rows >= len(y)).nonzero()[:, 0], torch.bincount(grown.y) > 1
    for some in row_chunks(later, len(state.classes)):
        judged = _is_doubtful(scores(some), grown.y[some]) & several[grown.y[some]].cpu().numpy()
        doubted[grown.rows[some].cpu().numpy()] = judged
    return doubted


def _is_doubtful(log_p: Tensor, y: Tensor) -> np.ndarray:
    """Of left-out log-probabilities (r, C) and labels y (r,): (r,) booleans, see `DOUBTFUL`."""
    own, best = log_p.gather(1, y[:, None])[:, 0].exp(), log_p.amax(1).exp()
    return ((own < 1 / log_p.shape[1]) & (own < DOUBTFUL * best)).cpu().numpy()


def with_ids(state: FittedState, ids: Sequence[str]) -> FittedState:
    """A state of `fit` whose rows are called as the rows of what was given."""
    entry = replace(state.journal[0], ids=tuple(ids[row] for row in state.origins[:, 1].tolist()))
    return replace(state, journal=(entry,))


@overload
def with_prior(scores: Tensor | None, log_prior: np.ndarray | None, like: Tensor) -> Tensor | None: ...
@overload
def with_prior(
    scores: Tensor | LeftOutScores | None, log_prior: np.ndarray | None, like: Tensor
) -> Tensor | LeftOutScores | None: ...
def with_prior(
    scores: Tensor | LeftOutScores | None, log_prior: np.ndarray | None, like: Tensor
) -> Tensor | LeftOutScores | None:
    """Class scores (n, C) and the class prior together; (1, C) if there is only the prior, None if neither."""
    if log_prior is None:
        return scores
    prior = torch.as_tensor(log_prior[None], dtype=like.dtype, device=like.device)
    if isinstance(scores, LeftOutScores):
        return scores.with_prior(prior)
    return prior if scores is None else scores + prior
