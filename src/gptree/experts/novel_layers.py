"""Layers of novel classes: what those of earlier layers score together is known to the next one.

A new root tells the newest classes from all others. Of a novel class of an earlier layer it needs no score of its own,
but its share of two sums, at the points that roots are fitted to:

    logsumexp over novel classes of Σ_k w_k score_k                       in r
    S(τ) = logsumexp over novel classes of τ z,  z = Σ_k v_k score_k      in M_novel, and in the choice of τ

Scores of a class do not depend on others, so that a layer adds its classes to the sums of the one below. τ is chosen
anew in every layer: S is kept at Chebyshev nodes of log τ and interpolated. Where τ leaves their interval, all classes
are scored again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gptree.experts.examples import row_chunks
from gptree.experts.lda import FittedLDA
from gptree.experts.novel_scores import NovelScores
from gptree.experts.random_features import FittedRandomFeatures

#: Nodes of log τ, and half the length of their interval: log-probabilities are interpolated to 1e-7 there.
NODES = 16
REACH = 0.5
BISECTIONS = 50


@dataclass(frozen=True, eq=False)
class NovelSums:
    """What the novel classes of all layers so far score together, each point left out.

    Attributes
    ----------
    n_novel : int
    rows : int64 tensor (k,)
        Points in memory, in order.
    mass : tensor (k,)
        logsumexp over novel classes of Σ_k w_k score_k.
    own : tensor (k,)
        z of its own class; 0 for points of base classes.
    centre : float
        Of the interval of log τ.
    sums : tensor (k, NODES)
        S at `temperatures(centre)`.
    lda, random_lda : FittedLDA and FittedRandomFeatures
        Over base classes and these.
    """

    n_novel: int
    rows: Tensor
    mass: Tensor
    own: Tensor
    centre: float
    sums: Tensor
    lda: FittedLDA
    random_lda: FittedRandomFeatures

    @classmethod
    def of(cls, scores: NovelScores, rows: Tensor, tau: float) -> NovelSums:
        """From the scores of all novel classes at some points; τ is in the middle of the interval."""
        centre, parts = math.log(tau), []
        for some in row_chunks(rows, scores.n_novel):
            novel, _ = scores.apart(some)
            z = _total(scores.learnt.novel_weights, novel)
            sums = sums_at(z, temperatures(centre))
            parts.append((scores.learnt.total(novel).double().logsumexp(1), _own(scores, some, z), sums))
        mass, own, sums = map(torch.cat, zip(*parts, strict=True))
        discriminants = scores.discriminants
        return cls(scores.n_novel, rows, mass, own, centre, sums, discriminants.lda, discriminants.random_lda)


@dataclass(frozen=True, eq=False)
class Layer:
    """The newest classes of a model that grows by layers.

    Attributes
    ----------
    earlier : NovelSums or None
        Of the layers below, whose classes come first; None where they are not known.
    later : int64 tensor (k,)
        Points that the root of a next layer may be fitted to.
    """

    earlier: NovelSums | None
    later: Tensor


def layer_scores(
    scores: NovelScores, earlier: NovelSums, rows: Tensor, calibration: Tensor, later: Tensor
) -> tuple[float, Tensor, NovelSums] | None:
    """τ, r and log-probabilities among novel classes at points in memory, and the sums for the next layer.

    Parameters
    ----------
    scores : NovelScores
    earlier : NovelSums
    rows : int64 tensor (k,)
        Points in memory, in order; those of earlier classes are the rows of `earlier`.
    calibration : int64 tensor (r,)
        Those of them that τ is chosen on.
    later : int64 tensor
        Those that the sums are kept of.

    Returns
    -------
    (tau, table (k, 2 + new classes), NovelSums) or None
        The columns of the table are r, all earlier novel classes as one, and the new classes. None where `earlier` has
        other rows, or τ lies outside its interval.
    """
    learnt, examples, first = scores.learnt, scores.discriminants.examples, earlier.n_novel
    before = examples.y[rows] < scores.n_base + first
    old, new = rows[before], rows[~before]
    if not torch.equal(old, earlier.rows):
        return None
    (novel, base), (novel_new, base_new) = scores.apart(old, first), scores.apart(new)
    z, z_new = (_total(learnt.novel_weights, each) for each in (novel, novel_new))
    added, mass_new = (learnt.total(each).double().logsumexp(1) for each in (novel, novel_new))
    mass = torch.cat([torch.logaddexp(earlier.mass, added), mass_new])
    own = torch.cat([earlier.own, _own(scores, new, z_new)])

    asked = torch.isin(new, torch.cat([calibration, later]))
    known, taus = torch.cat([old, new[asked]]), temperatures(earlier.centre)
    sums = torch.cat([torch.logaddexp(earlier.sums, sums_at(z, taus)), sums_at(z_new[asked], taus)])
    odds = mass - torch.cat([base, base_new]).double() + learnt.bias
    at, asked = torch.searchsorted(known, calibration), torch.searchsorted(rows, calibration)
    of_asked = own[asked], odds[asked].sigmoid()
    counts = examples.weights[calibration].double()
    tau = chosen_between(scores.choose, sums[at], *of_asked, earlier.centre, counts)
    if tau is None:
        return None

    together = torch.cat([interpolated(earlier.sums, earlier.centre, tau), sums_at(z_new[:, :first], [tau])[:, 0]])
    newest = tau * torch.cat([z, z_new[:, first:]])
    total = torch.logaddexp(together, newest.logsumexp(1))[:, None]
    table = torch.cat([odds[:, None], together[:, None] - total, newest - total], 1).to(examples.X.dtype)
    kept, at = torch.searchsorted(rows, later), torch.searchsorted(known, later)
    experts = scores.discriminants.lda, scores.discriminants.random_lda
    return tau, table, NovelSums(scores.n_novel, later, mass[kept], own[kept], earlier.centre, sums[at], *experts)


class _OutsideError(Exception):
    """τ is not in its interval."""


def chosen_between(
    choose: Callable[..., Tensor],
    sums: Tensor,
    own: Tensor,
    is_novel: Tensor,
    centre: float,
    counts: Tensor,
) -> float | None:
    """The τ that `NovelScores.choose` takes, from S (r, NODES) and z of their own classes (r,) at some points.

    They are novel with the probabilities `is_novel` (r,), and count `counts` (r,) times each. None where a τ that is
    tried is not in the interval: with many wrong labels, the one that trusts them is far from the one that does not.
    """

    def best(believed: Tensor | None, _: Tensor | None) -> Tensor:
        times = counts if believed is None else believed
        n = float(times.sum())
        tau = best_between((times @ sums / n).tolist(), float(times @ own / n), n, centre)
        if tau is None:
            raise _OutsideError
        return sums.new_tensor(tau)

    def own_label(tau: Tensor) -> Tensor:
        return is_novel * (tau * own - interpolated(sums, centre, float(tau))).exp()

    try:
        return float(choose(best, own_label, counts))
    except _OutsideError:
        return None


def temperatures(centre: float) -> list[float]:
    """τ at the nodes around log τ = `centre`."""
    return np.exp(centre + REACH * np.polynomial.chebyshev.chebpts1(NODES)).tolist()


def sums_at(z: Tensor, taus: list[float]) -> Tensor:
    """S (r, k) of z (r, C) at k values of τ."""
    return torch.stack([(tau * z).logsumexp(1) for tau in taus], 1)


def interpolated(sums: Tensor, centre: float, tau: float) -> Tensor:
    """S (r,) at τ from those at the nodes (r, NODES)."""
    chebyshev = np.polynomial.chebyshev
    values = chebyshev.chebvander(np.array([(math.log(tau) - centre) / REACH]), NODES - 1)[0]
    of_nodes = chebyshev.chebvander(chebyshev.chebpts1(NODES), NODES - 1)
    return sums @ torch.as_tensor(np.linalg.solve(of_nodes.T, values)).to(sums)


def best_between(sums: list[float], own: float, n: float, centre: float) -> float | None:
    """The τ of `best_temperature` around 1 from mean S at the nodes and mean z of own classes of n points.

    None where it is not in the interval.
    """
    chebyshev = np.polynomial.chebyshev
    nodes = chebyshev.chebpts1(NODES)
    slope_of = chebyshev.chebder(np.linalg.solve(chebyshev.chebvander(nodes, NODES - 1), sums)) / REACH

    def slope(t: float) -> float:
        """Of S(τ) − τ z + t² / 2n in t = log τ."""
        return float(chebyshev.chebval((t - centre) / REACH, slope_of)) - math.exp(t) * own + t / n

    low, high = centre - REACH, centre + REACH
    if slope(low) >= 0 or slope(high) <= 0:
        return None
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return math.exp((low + high) / 2)


def _total(weights: Tensor, scores: list[Tensor]) -> Tensor:
    """z (r, C) in double precision."""
    total = torch.zeros_like(scores[0], dtype=torch.float64)
    for weight, score in zip(weights.tolist(), scores, strict=True):
        total.add_(score, alpha=weight)
    return total


def _own(scores: NovelScores, rows: Tensor, z: Tensor) -> Tensor:
    own = scores.discriminants.examples.y[rows] - scores.n_base
    return torch.where(own >= 0, z.gather(1, own.clamp(min=0)[:, None])[:, 0], 0)
