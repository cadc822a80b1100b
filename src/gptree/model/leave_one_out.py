"""Left-out predictions of a fitted forest at its own training points, without refitting: cavities.

Given ω, a training point is one Gaussian factor exp(κ̃ h − ½ ω h²) of the posterior at every node that holds it, and
dividing by the factor is exact. With m and v the mean and variance of h,

    v∖ = v / (1 − ω v),    m∖ = (m − v κ̃) / (1 − ω v),    κ̃ = b (y − ½) − ω μ.

h is g at the point; with inducing points it is the part aᵀu of g that they explain, and the variance of the rest is
added afterwards. Dense and linear posteriors keep ω; a sparse one does not, and gets the ω of its next sweep. A dense
posterior tells κ̃ as well: its weights are α = κ̃ − ω m. At nodes that do not hold the point the ordinary prediction is
the left-out one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from gptree.experts import LeftOutScores, in_chunks
from gptree.inference import (
    DensePosterior,
    InducingPosterior,
    LinearPosterior,
    NodePosterior,
    PredictAt,
    SitesPosterior,
    select,
)
from gptree.maths import cholesky, covariance_root
from gptree.maths.polya_gamma import pg_mean
from gptree.maths.quadrature import log_mean_exp, log_sigmoid_expectation
from gptree.model.forest import ForestModel
from gptree.model.prior_means import PathTable

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
    learnt: Tensor | LeftOutScores | None = None,
) -> LeftOut:
    """Left-out predictions at all rows the model was fitted on, whose classes are y (n,).

    `scores` and `weights` are those of the `TrainingData`: left-out class log-scores (n, C) or (1, C), likelihood
    weights (n,), which dense nodes know by themselves. ω is held fixed, and so are inducing points and the kernel.
    `staying` are nodes that models to come will have as well. Unless they are to be `dense`, the log-probabilities of
    all classes are not kept, which are n × C numbers. Give `learnt` if the scores of the `TrainingData` differ from
    those that are asked about, because another class prior is in them.
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
    if isinstance(learnt, Tensor):
        learnt = learnt.to(X.dtype).expand(len(X), -1)
    cavities = _cavities(model, classes, scores, learnt, weights, staying)
    own, best, other, winners, kept = [], [], [], [], []
    for chunk in model.chunks(X):
        log_p = _log_probabilities(model, chunk, scores, predict_at, cavities)
        own.append(log_p.gather(1, classes[chunk, None])[:, 0])
        best.append(log_p.amax(1))
        winners.append(log_p.argmax(1))
        kept += [log_p] if dense else []
        other.append(log_p.scatter(1, classes[chunk, None], -torch.inf).amax(1))
    familiarity = _familiarity(model, torch.cat(winners), cavities)
    return LeftOut(
        own=torch.cat(own),
        best=torch.cat(best),
        other=torch.cat(other),
        familiarity=familiarity,
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


# ------------------------------------------------------------------------------------------------------- cavities


@dataclass(frozen=True)
class _Members:
    """Training points at nodes that hold them, P pairs of a node and a point, with S draws each."""

    nodes: Tensor
    points: Tensor
    omega: Tensor | None
    """(S, P), or None where it is not kept."""
    kappa: Tensor | None
    """κ̃ (S, P), or None where it is not kept."""
    mean: Tensor
    """m (S, P)."""
    variance: Tensor
    """v (S, P)."""
    residual: Tensor
    """(P,) what inducing points do not explain of g at the point."""
    prior: Tensor
    """(P,) k(x, x)."""


@dataclass(frozen=True)
class _Cavities:
    """Left-out moments of f = μ + g, (S, P) each, for P pairs of a node and a point."""

    nodes: Tensor
    points: Tensor
    mean: Tensor
    variance: Tensor
    share: Tensor
    """(P,) of the prior variance that the others explain."""
    lost: Tensor
    """(P,) and what the point alone explains of it."""


class _Places:
    """Where fitted nodes stand in the trees: their intervals, and positions and k(x, x) of the training points."""

    def __init__(self, model: ForestModel, y: Tensor, diagonal: Tensor | None) -> None:
        self._grams, self._diagonal = model.predictor.grams, diagonal
        self.tree, self.lo, self.mid, self.hi, self.depth = torch.zeros(
            5, model.predictor.n_nodes, dtype=torch.long, device=y.device
        )
        for t, (tree, nodes) in enumerate(zip(model.trees, model.node_of, strict=True)):
            self.tree[nodes] = t
            theirs_of = (self.lo, tree.lo), (self.mid, tree.mid), (self.hi, tree.hi), (self.depth, tree.node_depth)
            for mine, theirs in theirs_of:
                mine[nodes] = torch.as_tensor(theirs.copy(), device=y.device)
        self.positions = torch.stack([torch.as_tensor(t.position.copy(), device=y.device)[y] for t in model.trees])

    def goes_left(self, nodes: Tensor, points: Tensor) -> Tensor:
        return self.positions[self.tree[nodes], points] < self.mid[nodes]

    def members(self, nodes: Tensor) -> Tensor:
        """(V, n) which points are of a class below each node."""
        position = self.positions[self.tree[nodes]]
        return (position >= self.lo[nodes, None]) & (position < self.hi[nodes, None])

    def prior(self, nodes: Tensor, points: Tensor) -> Tensor:
        """k(x, x) at each node (V,), for points (V, N)."""
        return self._grams.diagonal(nodes, points) if self._diagonal is None else self._diagonal[points]


def _cavities(
    model: ForestModel,
    y: Tensor,
    scores: Tensor | LeftOutScores | None,
    learnt: Tensor | LeftOutScores | None,
    weights: Tensor | None,
    staying: StayingNodes | None,
) -> list[_Cavities]:
    grams = model.predictor.grams
    everyone = torch.arange(len(y), device=y.device)
    diagonal = None if grams.per_node else grams.diagonal(everyone, everyone)
    places = _Places(model, y, diagonal)
    staying = StayingNodes(()) if staying is None else staying
    members = [part for posterior in model.predictor.posteriors for part in staying.members(model, posterior, places)]
    pairs = [(part.nodes, part.points) for part in members]
    means = _prior_means(model, scores, y, places, pairs)
    theirs = means if learnt is None else _prior_means(model, learnt, y, places, pairs)
    out = []
    for part, mu, mine in zip(members, means, theirs, strict=True):
        b = torch.ones_like(mu) if weights is None else weights[part.points].to(mu)
        out.append(_cavity(part, mu, mine, b, places.goes_left(part.nodes, part.points)))
    return out


class StayingNodes:
    """Nodes that stay while a model grows around them: what is computed of them at their points is kept.

    Parameters
    ----------
    posteriors : sequence of NodePosterior
    """

    def __init__(self, posteriors: Sequence[NodePosterior]) -> None:
        self._posteriors = tuple(posteriors)
        self._known: dict[int, tuple[Tensor, list[_Members]]] = {}

    def members(self, model: ForestModel, posterior: NodePosterior, places: _Places) -> list[_Members]:
        """The moments at the points of a posterior; those of nodes that stay are computed once for the same points."""
        place = next((i for i, each in enumerate(self._posteriors) if each is posterior), None)
        if place is None:
            return list(_members(model, posterior, places))
        points = places.members(posterior.nodes).nonzero()
        if place not in self._known or not torch.equal(self._known[place][0], points):
            self._known[place] = points, list(_members(model, posterior, places))
        return self._known[place][1]


def _cavity(part: _Members, mu: Tensor, learnt: Tensor, b: Tensor, goes_left: Tensor) -> _Cavities:
    """Moments around the prior means `mu` (P,) of nodes that were fitted around those `learnt` (P,)."""
    m, v, omega, kappa = part.mean, part.variance, part.omega, part.kappa
    if omega is None:  # E[ω] = pg_mean(c), c² = E[f²]
        # paper (16)
        omega = pg_mean((v + part.residual + (learnt + m).square()).sqrt(), b)
    if kappa is None:
        kappa = b * (goes_left.to(mu) - 0.5) - omega * learnt
    # Exactly, 1 − ω v = v / v∖, and no v∖ exceeds the prior variance: rounding, or an ω that is not quite the one of
    # the posterior, must not make it do so.
    most = (part.prior - part.residual).clamp_min(torch.finfo(v.dtype).tiny)
    left = torch.maximum(1.0 - omega * v, v / most)
    variance = v / left + part.residual
    mean = (m - v * kappa) / left
    prior = part.prior.clamp_min(torch.finfo(v.dtype).tiny)
    share, lost = 1.0 - variance.mean(0) / prior, (variance - part.residual - v).mean(0) / prior
    return _Cavities(part.nodes, part.points, mu + mean, variance, share, lost)


def _prior_means(
    model: ForestModel,
    scores: Tensor | LeftOutScores | None,
    y: Tensor,
    places: _Places,
    pairs: list[tuple[Tensor, Tensor]],
) -> list[Tensor]:
    """μ at pairs of nodes and points, which are of a class below the node."""
    X = model.predictor.grams.X
    if scores is None:
        return [X.new_zeros(len(points)) for _, points in pairs]
    table = PathTable(model.trees, y.cpu().numpy(), X)
    for rows, some in in_chunks(scores):
        table.add(rows, some.to(X.dtype))
    odds = table.done()
    out = []
    for nodes, points in pairs:
        values = X.new_zeros(len(points))
        for t in range(len(model.trees)):
            here = (places.tree[nodes] == t).nonzero()[:, 0]
            values[here] = odds.at(t, places.depth[nodes[here]], points[here])
        out.append(values)
    return out


def _members(model: ForestModel, posterior: NodePosterior, places: _Places) -> Iterator[_Members]:
    work = model.memory_budget // (8 * model.predictor.grams.X.element_size())
    if not isinstance(posterior, InducingPosterior):
        yield _kept_members(model, posterior, places, work)
        return
    inside = places.members(posterior.nodes)
    most, inducing = int(inside.sum(1).max()), posterior.rows.shape[1]
    nodes = max(1, work // (6 * inducing * max(inducing, most)))
    for some in torch.arange(len(posterior.nodes), device=inside.device).split(nodes):
        part = select(posterior, some)
        assert isinstance(part, InducingPosterior)
        # each node's points first, in their order; nodes with fewer than others repeat whoever comes next
        points = inside[some].sort(dim=1, descending=True).indices[:, : int(inside[some].sum(1).max())]
        chunks = points.split(max(1, work // (4 * inducing * len(some))), dim=1)
        whole = len(chunks) == 1 and isinstance(part, SitesPosterior) and _holds_all(inside[some], part)
        factors = None if whole else part.factoriser(model.predictor.grams)(slice(None))
        for chunk in chunks:
            yield _sparse_members(model, part, factors, places, chunk, inside[some].gather(1, chunk))


def _holds_all(inside: Tensor, part: SitesPosterior) -> bool:
    """Whether the points that were in each node's fit are still inside (V, n)."""
    return bool((inside.gather(1, part.points) | (part.omega == 0)).all())


def _kept_members(
    model: ForestModel, posterior: DensePosterior | LinearPosterior, places: _Places, work: int
) -> _Members:
    """The points of a posterior that keeps them, padding left out."""
    grams, rows = model.predictor.grams, posterior.rows
    dense = isinstance(posterior, DensePosterior)
    if dense:
        cross, prior = grams.block(posterior.nodes, rows, rows), places.prior(posterior.nodes, rows)
    else:
        assert grams.features is not None
        cross = grams.features[rows].mT
        prior = cross.square().sum(-2)
    mean = (posterior.weights.transpose(0, 1) @ cross).transpose(0, 1)
    variance = torch.empty_like(posterior.sites)
    step = max(1, work // (3 * max(posterior.factor_numbers, rows.numel())))
    for start in range(0, len(variance), step):
        draws = slice(start, min(start + step, len(variance)))
        if isinstance(posterior, DensePosterior):
            variance[draws] = posterior.variance_at_rows(cross, draws)
        else:
            variance[draws] = posterior.variance(posterior.factoriser(grams)(draws), cross, prior, draws)
    variance.clamp_min_(0.0)  # rounding
    held = posterior.omega[0] > 0
    return _Members(
        nodes=posterior.nodes.unsqueeze(1).expand_as(rows)[held],
        points=rows[held],
        omega=posterior.omega[:, held],
        kappa=(posterior.weights + posterior.omega * mean)[:, held] if dense else None,
        mean=mean[:, held],
        variance=variance.expand_as(posterior.omega)[:, held],
        residual=torch.zeros_like(prior[held]),
        prior=prior[held],
    )


def _sparse_members(
    model: ForestModel, part: InducingPosterior, factors: Tensor | None, places: _Places, points: Tensor, held: Tensor
) -> _Members:
    """Some points (V, P) of nodes with inducing points, those that the nodes hold (V, P).

    Without factors, of nodes whose points are all here: their precision is made of what is computed anyway.
    """
    grams = model.predictor.grams
    cross, prior = grams.block(part.nodes, part.rows, points), places.prior(part.nodes, points)
    root = covariance_root(grams.block(part.nodes, part.rows, part.rows))[0] if factors is None else factors[0]
    # at the inducing points themselves L_m⁻¹ K_mm = L_mᵀ
    a = root.mT if torch.equal(points, part.rows) else torch.linalg.solve_triangular(root, cross, upper=False)
    if factors is None:
        assert isinstance(part, SitesPosterior)
        factor = cholesky(part.precisions_at(points, a))
    else:
        factor = factors[1]
    variance = torch.linalg.solve_triangular(factor, a, upper=False).square_().sum(-2)
    mean = (part.weights.transpose(0, 1) @ cross).transpose(0, 1)
    return _Members(
        nodes=part.nodes.unsqueeze(1).expand_as(points)[held],
        points=points[held],
        omega=None,
        kappa=None,
        mean=mean[:, held],
        variance=variance[held].unsqueeze(0),
        residual=(prior - a.square().sum(-2)).clamp_min(0.0)[held],
        prior=prior[held],
    )


# ---------------------------------------------------------------------------------------------------- predictions


def _log_probabilities(
    model: ForestModel,
    chunk: slice,
    scores: Tensor | LeftOutScores | None,
    predict_at: PredictAt,
    cavities: list[_Cavities],
) -> Tensor:
    """Left-out class log-probabilities of some of the training points."""
    x = model.predictor.grams.X[chunk]
    left, right = model.node_log_probabilities(x, None if scores is None else scores[chunk].to(x.dtype), predict_at)
    for part in cavities:
        here = ((part.points >= chunk.start) & (part.points < chunk.stop)).nonzero()[:, 0]
        mean, at = part.mean[:, here], (part.nodes[here], part.points[here] - chunk.start)
        if predict_at == "mean":
            both = logsigmoid(mean), logsigmoid(-mean)
        else:
            both = log_sigmoid_expectation(mean, part.variance[:, here])
        left[at], right[at] = map(log_mean_exp, both)
    return model.paths.class_log_probabilities(left, right)


def _familiarity(model: ForestModel, winners: Tensor, cavities: list[_Cavities]) -> Tensor:
    """As `ForestModel.familiarity` of the winners, less what a point alone explains at a decision it is part of."""
    X, trees = model.predictor.grams.X, len(model.trees)
    share, lost, part_of = X.new_zeros(3, len(X))
    for tree, nodes in zip(model.trees, model.node_of, strict=True):
        last = nodes[torch.as_tensor(tree.parent[tree.n_nodes + tree.position], device=nodes.device)][winners]
        for part in cavities:
            hit = (part.nodes == last[part.points]).nonzero()[:, 0]
            share[part.points[hit]] += part.share[hit] / trees
            lost[part.points[hit]] += part.lost[hit] / trees
            part_of[part.points[hit]] += 1
    rest = (part_of < trees).nonzero()[:, 0]  # most winners are right: their decisions are among the cavities
    share[rest] = model.familiarity(X[rest], winners[rest].cpu().numpy()) - lost[rest]
    return share.clamp_min(0.0)  # rounding
