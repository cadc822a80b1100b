"""Nodes without one of their points, without refitting: cavities.

Given ω, a training point is one Gaussian factor exp(κ̃ h − ½ ω h²) of the posterior at every node that holds it, and
dividing by the factor is exact. With m and v the mean and variance of h,

    v∖ = v / (1 − ω v),    m∖ = (m − v κ̃) / (1 − ω v),    κ̃ = b (y − ½) − ω μ.

h is g at the point; with inducing points it is the part aᵀu of g that they explain, and the variance of the rest is
added afterwards. Dense and linear posteriors keep ω; one with inducing points gets the ω of its next sweep. A dense
posterior tells κ̃ as well: its weights are α = κ̃ − ω m. The likelihood weights b are those of the fit, 0 at points that
a node holds but did not see; only a posterior that is sparse for good, or linear and from an older file, has to be told
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from gptree.inference import (
    DensePosterior,
    InducingPosterior,
    LinearPosterior,
    NodePosterior,
    SitesPosterior,
    select,
)
from gptree.maths import cholesky, covariance_root
from gptree.maths.polya_gamma import pg_mean
from gptree.model.forest import ForestModel

#: Pairs of a node and a point of which `StayingNodes` keeps what it knows.
KEPT_PAIRS = 2**20


@dataclass(frozen=True)
class Members:
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
    b: Tensor | None = None
    """b (P,), or None where it is not kept."""

    @property
    def kind(self) -> tuple[int, bool, bool, bool]:
        """How many draws there are, and what is kept."""
        return len(self.mean), self.omega is None, self.kappa is None, self.b is None

    def some(self, which: slice | Tensor) -> Members:
        """Some of the pairs."""
        return self.each(lambda values: values[..., which])

    def each(self, change: Callable[[Tensor], Tensor]) -> Members:
        """With every tensor changed."""
        changed: dict[str, Any] = {name: None if each is None else change(each) for name, each in vars(self).items()}
        return Members(**changed)


def joined(parts: Sequence[Members]) -> list[Members]:
    """All pairs of one kind as one, in the order of the points."""
    found = []
    for _, alike in groupby(sorted(parts, key=lambda part: part.kind), key=lambda part: part.kind):
        several = list(alike)
        order = torch.cat([part.points for part in several]).argsort(stable=True)
        whole: dict[str, Any] = {}
        for name, first in vars(several[0]).items():
            whole[name] = None if first is None else torch.cat([getattr(p, name) for p in several], -1)[..., order]
        found.append(Members(**whole))
    return found


@dataclass(frozen=True)
class Cavities:
    """Left-out moments of f = μ + g, (S, P) each, for P pairs of a node and a point."""

    nodes: Tensor
    points: Tensor
    mean: Tensor
    variance: Tensor
    share: Tensor
    """(P,) of the prior variance that the others explain."""
    lost: Tensor
    """(P,) and what the point alone explains of it."""


def cavity(part: Members, mu: Tensor, learnt: Tensor, b: Tensor, goes_left: Tensor) -> Cavities:
    """Moments around the prior means `mu` (P,) of nodes that were fitted around those `learnt` (P,).

    `b` (P,) are likelihood weights, for posteriors that do not keep theirs.
    """
    m, v, omega, kappa = part.mean, part.variance, part.omega, part.kappa
    b = b if part.b is None else part.b
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
    return Cavities(part.nodes, part.points, mu + mean, variance, share, lost)


class Places:
    """Where fitted nodes stand in the trees: their intervals, and positions and k(x, x) of the training points.

    Parameters
    ----------
    model : ForestModel
    y : int64 tensor (n,)
        Classes of its rows.
    """

    def __init__(self, model: ForestModel, y: Tensor) -> None:
        self._grams = grams = model.predictor.grams
        everyone = torch.arange(len(y), device=y.device)
        self._diagonal = None if grams.per_node else grams.diagonal(everyone, everyone)
        self._tree, self._lo, self._mid, self._hi = torch.zeros(
            4, model.predictor.n_nodes, dtype=torch.long, device=y.device
        )
        for t, (tree, nodes) in enumerate(zip(model.trees, model.node_of, strict=True)):
            self._tree[nodes] = t
            for mine, theirs in (self._lo, tree.lo), (self._mid, tree.mid), (self._hi, tree.hi):
                mine[nodes] = torch.as_tensor(theirs.copy(), device=y.device)
        self._positions = torch.stack([torch.as_tensor(t.position.copy(), device=y.device)[y] for t in model.trees])

    def asked(self, nodes: Tensor) -> Tensor:
        """(V,) which nodes are in a tree: those that were fitted again are not, nor are those that were cut out."""
        return self._lo[nodes] < self._hi[nodes]

    def goes_left(self, nodes: Tensor, points: Tensor) -> Tensor:
        return self._positions[self._tree[nodes], points] < self._mid[nodes]

    def members(self, nodes: Tensor) -> Tensor:
        """(V, n) which points are of a class below each node."""
        position = self._positions[self._tree[nodes]]
        return (position >= self._lo[nodes, None]) & (position < self._hi[nodes, None])

    def prior(self, nodes: Tensor, points: Tensor) -> Tensor:
        """k(x, x) at each node (V,), for points (V, N)."""
        return self._grams.diagonal(nodes, points) if self._diagonal is None else self._diagonal[points]


class StayingNodes:
    """Nodes that stay while a model grows around them: what is known of them at their points is kept, if there is room.

    Parameters
    ----------
    posteriors : sequence of NodePosterior
    """

    def __init__(self, posteriors: Sequence[NodePosterior] = ()) -> None:
        self._posteriors = tuple(posteriors)
        self._known: dict[int, tuple[Tensor, list[Members]]] = {}
        self._room = KEPT_PAIRS

    def members(self, model: ForestModel, posterior: NodePosterior, places: Places) -> list[Members]:
        """The moments at the points of a posterior; those of nodes that stay are computed once for the same points.

        Of a posterior no node of which is in a tree, nothing.
        """
        asked = places.asked(posterior.nodes)
        if not bool(asked.any()):
            return []
        place = next((i for i, each in enumerate(self._posteriors) if each is posterior), None)
        if place is None:
            return list(node_members(model, posterior, places))
        points = _points(posterior, places)
        before, found = self._known.get(place, (points[:0], []))
        left = before[asked[before[:, 0]]] if isinstance(posterior, InducingPosterior) else before
        if found and torch.equal(left, points):
            if len(left) < len(before):  # some nodes have gone since
                staying = posterior.nodes[asked]
                found = [part.some(torch.isin(part.nodes, staying)) for part in found]
        else:
            found = list(node_members(model, posterior, places))
            self._room += len(before) - len(points)
            if self._room < 0:
                self._room += len(points)
                self._known.pop(place, None)
            else:
                self._known[place] = points, found
        return found


def _points(posterior: NodePosterior, places: Places) -> Tensor:
    """What `node_members` gives the points of: pairs (P, 2) of a node and a point, by their numbers."""
    if isinstance(posterior, InducingPosterior):
        return places.members(posterior.nodes).nonzero()
    return posterior.rows.flatten()[:, None]  # those of its fit, whatever has come since


def node_members(model: ForestModel, posterior: NodePosterior, places: Places) -> Iterator[Members]:
    """The points of the nodes of a posterior, some at a time."""
    work = model.memory_budget // (8 * model.predictor.grams.X.element_size())
    if not isinstance(posterior, InducingPosterior):
        yield kept_members(model, posterior, places, work)
        return
    inside = places.members(posterior.nodes)
    most, inducing = int(inside.sum(1).max()), posterior.rows.shape[1]
    nodes = max(1, work // (6 * inducing * max(inducing, most)))
    grams = model.predictor.grams
    for some in places.asked(posterior.nodes).nonzero()[:, 0].split(nodes):
        part = select(posterior, some)
        assert isinstance(part, InducingPosterior)
        # each node's points first, in their order; nodes with fewer than others repeat whoever comes next
        points = inside[some].sort(dim=1, descending=True, stable=True).indices
        points = points[:, : int(inside[some].sum(1).max())]
        chunks = points.split(max(1, work // (4 * inducing * len(some))), dim=1)
        # the roots of several trees have the same inducing points
        alike = not grams.per_node and bool((part.rows == part.rows[:1]).all())
        first = slice(0, 1 if alike else None)
        K = grams.block(part.nodes[first], part.rows[first], part.rows[first])
        root = covariance_root(K)[0]
        whole = len(chunks) == 1 and isinstance(part, SitesPosterior) and _holds_all(inside[some], part)
        factor = None if whole else cholesky(part.precisions(grams, root.expand(len(some), -1, -1)))
        for chunk in chunks:
            yield _sparse_members(model, part, (K, root, factor), places, chunk, inside[some].gather(1, chunk))


def _holds_all(inside: Tensor, part: SitesPosterior) -> bool:
    """Whether the points that were in each node's fit are still inside (V, n)."""
    return bool((inside.gather(1, part.points) | (part.omega == 0)).all())


def kept_members(model: ForestModel, posterior: DensePosterior | LinearPosterior, places: Places, work: int) -> Members:
    """The points of a posterior that keeps them, padding left out."""
    grams, rows, omega, b = model.predictor.grams, posterior.rows, posterior.omega, None
    step = max(1, work // (3 * max(posterior.factor_numbers, rows.numel())))
    starts = range(0, len(posterior.sites), step)
    draws = [slice(start, min(start + step, len(posterior.sites))) for start in starts]
    if isinstance(posterior, DensePosterior):
        cross, prior = grams.block(posterior.nodes, rows, rows), places.prior(posterior.nodes, rows)
        mean = _times(posterior.weights, cross)
        kappa = (posterior.weights + omega * mean).flatten(1)
        variance = torch.cat([posterior.variance_at_rows(cross, some) for some in draws])
    else:
        assert grams.features is not None
        cross = grams.features[rows].mT
        prior = cross.square().sum(-2)
        mean, kappa = _times(posterior.weights, cross), None
        b = None if posterior.b is None else posterior.b.flatten()
        factoriser = posterior.factoriser(grams)
        variance = torch.cat([posterior.variance(factoriser(some), cross, prior, some) for some in draws])
    variance.clamp_min_(0.0)  # rounding
    whole = Members(
        nodes=posterior.nodes.unsqueeze(1).expand_as(rows).flatten(),
        points=rows.flatten(),
        omega=omega.flatten(1),
        kappa=kappa,
        b=b,
        mean=mean.flatten(1),
        variance=variance.expand_as(omega).flatten(1),
        residual=torch.zeros_like(prior).flatten(),
        prior=prior.flatten(),
    )
    held = (omega[0].flatten() > 0).nonzero()[:, 0]
    return whole.each(lambda values: values.index_select(-1, held))


def _times(weights: Tensor, cross: Tensor) -> Tensor:
    """Means (S, V, N) of weights (S, V, M) and cross (V or 1, M, N)."""
    return (weights.transpose(0, 1) @ cross).transpose(0, 1)


def _sparse_members(
    model: ForestModel,
    part: InducingPosterior,
    known: tuple[Tensor, Tensor, Tensor | None],
    places: Places,
    points: Tensor,
    held: Tensor,
) -> Members:
    """Some points (V, P) of nodes with inducing points, those that the nodes hold (V, P).

    What is known are K_mm and its root (V or 1, M, M), which may be one for all nodes, and the factor of the precision,
    unless the points of the nodes are all here: the precision is made of what is computed anyway.
    """
    grams, (K, root, factor) = model.predictor.grams, known
    prior = places.prior(part.nodes, points)
    alike = len(root) == 1 and bool((points == points[:1]).all())
    some = slice(0, 1 if alike else None)
    nodes, rows, asked = part.nodes[some], part.rows[some], points[some]
    if torch.equal(asked, rows):  # at the inducing points themselves L_m⁻¹ K_mm = L_mᵀ
        cross, a = K, root.mT
    else:
        cross = grams.block(nodes, rows, asked)
        a = torch.linalg.solve_triangular(root, cross, upper=False)
    if factor is None:
        assert isinstance(part, SitesPosterior)
        factor = cholesky(part.precisions_at(points, a))
    variance = torch.linalg.solve_triangular(factor, a, upper=False).square_().sum(-2)
    pairs = held.flatten().nonzero()[:, 0]
    whole = Members(
        nodes=part.nodes.unsqueeze(1).expand_as(points).flatten(),
        points=points.flatten(),
        omega=None,
        kappa=None,
        b=part.likelihood_weights_at(points).flatten() if isinstance(part, SitesPosterior) else None,
        mean=_times(part.weights, cross).flatten(1),
        variance=variance.flatten().unsqueeze(0),
        residual=(prior - a.square().sum(-2)).clamp_min(0.0).flatten(),
        prior=prior.flatten(),
    )
    return whole.each(lambda values: values.index_select(-1, pairs))
