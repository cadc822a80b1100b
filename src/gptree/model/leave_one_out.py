"""Left-out predictions of a fitted forest at its own training points, without refitting.

At nodes that hold a point it is divided out of the posterior, see `gptree.model.cavities`; at the others the ordinary
prediction is the left-out one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from gptree.experts import LeftOutScores
from gptree.inference import PredictAt
from gptree.maths.quadrature import log_mean_exp, log_sigmoid_expectation
from gptree.model.cavities import Cavities, Members, Places, StayingNodes, cavity, joined
from gptree.model.forest import ForestModel
from gptree.model.prior_means import finite_means

Array = TypeVar("Array", Tensor, np.ndarray)

#: So many left-out points should lie beyond a threshold; but no more than this share is turned away unasked.
POINTS_BEYOND, MOST_UNASKED = 4, 1 / 6


@dataclass(frozen=True)
class LeftOut:
    """Predictions at the training points, each without the point itself."""

    own: Tensor
    """(n,) log-probabilities of the points' own classes."""
    best: Tensor
    """(n,) those of the classes that are most probable without the point."""
    other: Tensor
    """(n,) those of the most probable among the classes that are not the point's own."""
    familiarity: Tensor
    """(n,): `ForestModel.familiarity` of the latter."""
    log_probabilities: Tensor | None
    """(n, C), where they were wanted."""

    @property
    def novelty(self) -> Tensor:
        """One minus confidence times familiarity, (n,): the score of models in older files, see `known_rows`."""
        return novelty(self.best.exp(), self.familiarity)


def novelty(confidence: Array, familiarity: Array) -> Array:
    """How strange a row is: one minus the probability of its best class times `ForestModel.familiarity`, (n,) each."""
    return 1.0 - confidence * familiarity


@torch.no_grad()
def left_out_predictions(
    model: ForestModel,
    y: np.ndarray,
    scores: Tensor | LeftOutScores | None = None,
    weights: Tensor | None = None,
    predict_at: PredictAt = "mean",
    staying: StayingNodes | None = None,
    dense: bool = True,
    learnt_prior: Tensor | None = None,
) -> LeftOut:
    """Left-out predictions at all rows the model was fitted on, whose classes are y (n,).

    `scores` and `weights` are those of the `TrainingData`: left-out class log-scores (n, C) or (1, C), likelihood
    weights (n,), which nodes know by themselves unless they are sparse for good, or linear and from an older file. ω is
    held fixed, and so are inducing points and the kernel. `staying` are nodes that models to come will have as well.
    Unless they are to be `dense`, the log-probabilities of all classes are not kept, which are n × C numbers.
    `learnt_prior` (C,) is what the scores of the `TrainingData` had added to those that are asked about, because
    another class prior was in them.
    """
    X = model.predictor.grams.X
    if len(y) != len(X):
        raise ValueError(f"y must hold a class for each of the {len(X)} rows of the model, got {len(y)}.")
    if model.n_classes == 1:  # no decision
        nothing = X.new_zeros(len(X), 1)
        return LeftOut(nothing[:, 0], nothing[:, 0], nothing[:, 0], X.new_ones(len(X)), nothing)
    if isinstance(scores, Tensor):
        scores = scores.to(X.dtype).expand(len(X), -1)
    classes = torch.as_tensor(y, device=X.device)
    places, staying = Places(model, classes), StayingNodes() if staying is None else staying
    members = joined([part for p in model.predictor.posteriors for part in staying.members(model, p, places)])
    own, best, other, winners, kept = [], [], [], [], []
    shares = _Shares(model)
    for chunk in model.chunks(X):
        some = None if scores is None else scores[chunk].to(X.dtype)
        prior = model.prior_means(some)
        learnt = prior if some is None or learnt_prior is None else model.prior_means(some + learnt_prior.to(some))
        cavities = [_without(part, chunk, places, prior, learnt, weights) for part in members]
        log_p = _log_probabilities(model, chunk, prior, predict_at, cavities)
        own.append(log_p.gather(1, classes[chunk, None])[:, 0])
        best.append(log_p.amax(1))
        winners.append(log_p.argmax(1))
        kept += [log_p] if dense else []
        other.append(log_p.scatter(1, classes[chunk, None], -torch.inf).amax(1))
        shares.add(chunk, winners[-1], cavities)
    return LeftOut(
        own=torch.cat(own),
        best=torch.cat(best),
        other=torch.cat(other),
        familiarity=shares.familiarity(torch.cat(winners)),
        log_probabilities=torch.cat(kept) if dense else None,
    )


def novelty_threshold(novelty: np.ndarray, y: np.ndarray, reject: float) -> float:
    """The value that a share `reject` of known points should pass, from left-out novelty (n,) and classes y (n,).

    Classes count equally. The distribution function is linear between the points, with room for one more: of n equal
    ones the k-th stands at k / (n + 1), which is where a new point falls on average; it starts at 0 and ends at 1.
    Without its only example nothing is known of a class: such points count only if there are no others.

    Few points do not tell where their largest values lie, and each of them knew one example of its class less than new
    points do. So a positive share is at least the `smallest_share` that they support.
    """
    novelty, y = np.asarray(novelty, dtype=float), np.asarray(y)
    if not 0.0 <= reject <= 1.0:
        raise ValueError(f"reject is a share of the known points and must lie between 0 and 1, got {reject!r}.")
    if reject > 0.0:
        reject = max(reject, smallest_share(y))
    chosen, weight = class_weights(y)
    novelty = novelty[chosen]
    order = np.argsort(novelty)
    points = 1.0 / np.square(weight).sum()  # so many equal ones
    share = np.cumsum(weight[order]) * points / (points + 1.0)
    return float(np.interp(1.0 - reject, [0.0, *share, 1.0], [0.0, *novelty[order], 1.0]))


def smallest_share(y: np.ndarray) -> float:
    """The smallest share to turn away that known points of classes y (n,) support: some points must lie beyond it."""
    _, weight = class_weights(np.asarray(y))
    return min(POINTS_BEYOND / (1.0 / np.square(weight).sum() + 1.0), MOST_UNASKED)


def class_weights(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which points count (n,), and their weights, by which classes count equally; they sum to one."""
    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    count = counts[codes]
    several = count > 1
    chosen = several if several.any() else ~several
    weight = np.reciprocal(count[chosen], dtype=float)
    return chosen, weight / weight.sum()


# ------------------------------------------------------------------------------------------------ some of the points


def _without(
    part: Members, chunk: slice, places: Places, prior: Tensor | None, learnt: Tensor | None, weights: Tensor | None
) -> Cavities:
    """Nodes without each of the points of a chunk, given the prior means of all nodes there, (nodes, T)."""
    start, stop = torch.searchsorted(part.points, part.points.new_tensor([chunk.start, chunk.stop])).tolist()
    part = part.some(slice(start, stop))
    at = part.nodes, part.points - chunk.start
    zero = torch.zeros_like(part.prior)
    mu = zero if prior is None else finite_means(prior[at])
    theirs = mu if learnt is prior or learnt is None else finite_means(learnt[at])
    b = zero + 1.0 if weights is None else weights[part.points].to(mu)
    return cavity(part, mu, theirs, b, places.goes_left(part.nodes, part.points))


def _log_probabilities(
    model: ForestModel, chunk: slice, prior: Tensor | None, predict_at: PredictAt, cavities: list[Cavities]
) -> Tensor:
    """Left-out class log-probabilities of some of the training points."""
    left, right = model.predictor.log_probabilities_at(chunk, prior, predict_at)
    for part in cavities:
        if predict_at == "mean":
            both = logsigmoid(part.mean), logsigmoid(-part.mean)
        else:
            both = log_sigmoid_expectation(part.mean, part.variance)
        at = part.nodes, part.points - chunk.start
        left[at], right[at] = map(log_mean_exp, both)
    return model.paths.class_log_probabilities(left, right)


class _Shares:
    """`ForestModel.familiarity` of the winners, less what a point alone explains at a decision it is part of."""

    def __init__(self, model: ForestModel) -> None:
        self._model = model
        self._share, self._lost, self._part_of = model.predictor.grams.X.new_zeros(3, len(model.predictor.grams.X))

    def add(self, chunk: slice, winners: Tensor, cavities: list[Cavities]) -> None:
        """Some of the points: what is known where their winners are decided."""
        for decisions in self._model.last_nodes:
            last = decisions[winners]
            for part in cavities:
                hit = (part.nodes == last[part.points - chunk.start]).nonzero()[:, 0]
                points = part.points[hit]
                self._share[points] += part.share[hit]
                self._lost[points] += part.lost[hit]
                self._part_of[points] += 1

    def familiarity(self, winners: Tensor) -> Tensor:
        """(n,), when all points were added."""
        trees, X = len(self._model.trees), self._model.predictor.grams.X
        share = self._share / trees
        rest = (self._part_of < trees).nonzero()[:, 0]  # most winners are right: their decisions are among the cavities
        share[rest] = self._model.familiarity(X[rest], winners[rest].cpu().numpy()) - self._lost[rest] / trees
        return share.clamp_min(0.0)  # rounding
