"""Fitted experts as pieces of a prediction: modules from rows to class scores, up to a constant a row.

What is the same for all classes cancels in the log-odds of every node: nothing is normalised that need not be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn

from gptree.maths.frozen import Chosen, DenseSums, Rows, log_sigmoids

#: Classes after the best one, whose mean is what it leads; and the lead, in nats, that `easing` leaves as it is.
RUNNERS_UP = 5
USUAL_LEAD = 3.0


class LinearScores(nn.Module):
    """(x − centre)ᵀ W + bias, and, where classes weigh it differently, the squared length of x − centre in a metric.

    Parameters
    ----------
    weights : tensor (d, C)
    bias, centre : tensors (C,) and (d,), optional
    metric : (basis (d, r), r weights, weight of the squared length itself, weights of the classes (C,)), optional
    """

    weights: Tensor
    bias: Tensor | None
    centre: Tensor | None
    basis: Tensor | None
    spread: Tensor
    outside: Any
    shares: Tensor

    def __init__(
        self,
        weights: Tensor,
        bias: Tensor | None = None,
        centre: Tensor | None = None,
        metric: tuple[Tensor, Tensor, float, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("weights", weights)
        self.register_buffer("bias", bias)
        self.register_buffer("centre", centre)
        basis, spread, self.outside, shares = (None,) * 4 if metric is None else metric
        self.register_buffer("basis", basis)
        self.register_buffer("spread", spread)
        self.register_buffer("shares", shares)

    def forward(self, rows: Rows) -> Tensor:
        x = rows.x.to(self.weights.dtype)
        x = x if self.centre is None else x - self.centre
        scores = x @ self.weights if self.bias is None else torch.addmm(self.bias, x, self.weights)
        if self.basis is None:
            return scores
        norms = (x @ self.basis).square() @ self.spread + self.outside * x.square().sum(1)
        return scores + norms[:, None] * self.shares


class KernelScores(nn.Module):
    """Σ_i exp(⟨x, x_i⟩ − 1) A_ic, of points x_i."""

    weights: Tensor

    def __init__(self, points: Chosen, weights: Tensor) -> None:
        super().__init__()
        self.points = points
        self.register_buffer("weights", weights)

    def forward(self, rows: Rows) -> Tensor:
        g = rows.of(self.points)
        return (g - 1).to(self.weights.dtype).exp_().mT @ self.weights


class DensityScores(nn.Module):
    """τ log mean of exp(β ⟨x, x_i⟩) over the points of each class."""

    def __init__(
        self, points: Chosen, labels: Tensor, weights: Tensor, masses: Tensor, sharpness: float, temperature: float
    ) -> None:
        super().__init__()
        self.points, self.sharpness, self.temperature = points, sharpness, temperature
        alike = bool((weights == 1).all())
        for name, values in (("labels", labels), ("weights", None if alike else weights), ("masses", masses)):
            self.register_buffer(name, values)

    labels: Tensor
    weights: Tensor | None
    masses: Tensor

    def forward(self, rows: Rows) -> Tensor:
        g = rows.of(self.points).to(self.masses.dtype)
        terms = (g - g.amax(0)).mul_(self.sharpness).exp_()  # the largest is 1
        terms = terms if self.weights is None else terms.mul_(self.weights[:, None])
        sums = self._added(terms).clamp(min=torch.finfo(terms.dtype).tiny)
        return self.temperature * (sums / self.masses[:, None]).log().mT

    def _added(self, terms: Tensor) -> Tensor:
        """Sums over the points of each class."""
        return terms.new_zeros(len(self.masses), terms.shape[1]).index_add_(0, self.labels, terms)


class FrozenDensityScores(DensityScores):
    """The same; where it is exported, with sums as matrix products."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        labels = self.labels
        points = torch.arange(len(labels), device=labels.device)
        shape = (len(self.masses), len(labels))
        self.sums = DenseSums(labels, points, self.masses.new_ones(len(labels)), shape)

    def _added(self, terms: Tensor) -> Tensor:
        return self.sums(terms) if torch.compiler.is_compiling() else super()._added(terms)


#: Sizes of classes: those up to a size of this grid are compared with a row as if they had it.
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33, *(int(33 * 1.25**k) for k in range(1, 60)))
#: Classes of a group, whose highest score is found first.
GROUP = 16
PAIR_NUMBERS = 2**19  # coordinates of points gathered at a time: what a cache holds
PAIR_NUMBERS_CUDA = 2**29
#: On a processor rows that ask for the same classes share a product with all their points, if this gives no more than
#: so many times the numbers asked for, and no more than so many: it takes a fiftieth of the time of single ones.
SHARED, SHARED_PRODUCTS = 32, 2**23


class ClassPoints(nn.Module):
    """The points of every class, to be compared with rows class by class.

    Parameters
    ----------
    points : tensor (n, d)
    labels : int64 tensor (n,)
        Every class has one.
    weights : tensor (n,)
    masses : tensor (C,)
        The sums of the weights of each class.
    """

    points: Tensor
    weights: Tensor
    masses: Tensor
    counts: Tensor
    starts: Tensor
    order: Tensor | None

    def __init__(self, points: Tensor, labels: Tensor, weights: Tensor, masses: Tensor) -> None:
        super().__init__()
        counts = torch.bincount(labels, minlength=len(masses))
        in_order = bool((labels.diff() >= 0).all())
        self.alike = bool((weights == 1).all())
        self.size = int(counts.max()) if bool((counts == counts[0]).all()) else 0
        """How many points each class has, if all have as many."""
        for name, values in (
            ("points", points),
            ("weights", weights),
            ("masses", masses),
            ("counts", counts),
            ("starts", counts.cumsum(0) - counts),
            ("order", None if in_order else labels.argsort(stable=True)),
        ):
            self.register_buffer(name, values)

    def scores(
        self,
        x: Tensor,
        classes: Tensor,
        sharpness: float,
        temperature: float,
        masses: Tensor | None = None,
        hidden: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """τ log mean of exp(β (⟨x, x_i⟩ − 1)) over the points of some classes of each row, (T, k); −∞ without points.

        Parameters
        ----------
        x : tensor (T, d)
        classes : int64 tensor (T, k)
        sharpness, temperature : float
            β and τ.
        masses : tensor (T, k), optional
            What the sums are divided by, if not the masses of the classes.
        hidden : function, optional
            From numbers of rows (q,) and points (q, s) to those that are left out of the sums.
        """
        x, flat = x.to(self.points.dtype), classes.flatten()
        rows = torch.arange(len(x), device=x.device).repeat_interleave(classes.shape[1])
        sums = x.new_empty(len(flat))
        shared = None if x.is_cuda else self._shared_products(x, flat)
        numbers, width = PAIR_NUMBERS_CUDA if x.is_cuda else PAIR_NUMBERS, x.shape[1] if shared is None else 1
        for size, pairs in self._by_size(flat):
            step = torch.arange(size, device=x.device)
            for some in pairs.split(max(1, numbers // (size * width))):
                row, c = rows[some], flat[some]
                missing = step >= self.counts[c, None]
                place = (step + self.starts[c, None]).clamp_(max=len(self.points) - 1)
                place = place if self.order is None else self.order[place]
                if shared is None:
                    near = self.points.index_select(0, place.flatten()).view(*place.shape, x.shape[1])
                    g = near.mul_(x[row, None]).sum(-1)  # a product of so many small matrices is slower
                else:
                    products, first = shared
                    g = products[row[:, None], (step + first[c, None]).clamp_(max=products.shape[1] - 1)]
                terms = g.sub_(1.0).mul_(sharpness)
                if not self.alike:
                    terms = terms + self.weights[place].log()
                out = missing if hidden is None else missing | hidden(row, place)
                sums[some] = terms.masked_fill_(out, -torch.inf).logsumexp(1)
        masses = self.masses[classes] if masses is None else masses.to(sums)
        return (sums.view_as(classes) - masses.log()).mul_(temperature)

    def _shared_products(self, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor] | None:
        """Inner products (T, P) of rows x with all points of the classes (P,) that any of them asks for, class after
        class, and where those of each class (C,) begin; None if these are too many.
        """
        asked = torch.zeros_like(self.counts).index_fill_(0, classes, 1)
        ends = (asked * self.counts).cumsum(0)
        count = int(ends[-1])
        if count * len(x) > min(SHARED * int(self.counts[classes].sum()), SHARED_PRODUCTS):
            return None
        place = (asked.repeat_interleave(self.counts)).nonzero()[:, 0]
        place = place if self.order is None else self.order[place]
        return x @ self.points[place].T, ends - asked * self.counts

    def _by_size(self, classes: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Places of classes (P,) that are compared as if they had the same size, with the size."""
        everyone = torch.arange(len(classes), device=classes.device)
        if self.size:
            yield self.size, everyone
            return
        grid = torch.tensor(SIZES, device=classes.device)
        sizes = grid[torch.searchsorted(grid, self.counts[classes])]
        for size in sizes.unique().tolist():
            yield size, everyone[sizes == size]


class ShortlistScores(nn.Module):
    """Scores of one expert for all classes, and of densities for those that it finds best; see `with_tail`."""

    def __init__(
        self,
        guide: nn.Module,
        densities: Sequence[tuple[ClassPoints, float, float]],
        weights: Sequence[float],
        slopes: Sequence[float],
        size: int,
    ) -> None:
        super().__init__()
        self.guide, self.points = guide, nn.ModuleList([points for points, *_ in densities])
        self.settings = [tuple(settings) for _, *settings in densities]
        self.weights, self.slopes, self.size = tuple(weights), tuple(slopes), size

    def forward(self, rows: Rows) -> Tensor:
        guide = self.guide(rows)
        shortlist = best_classes(guide, self.size)
        points: Any = self.points
        found = [each.scores(rows.x, shortlist, *given) for each, given in zip(points, self.settings, strict=True)]
        return with_tail(guide, shortlist, found, self.weights, self.slopes)


def best_classes(guide: Tensor, size: int) -> Tensor:
    """The classes of the highest scores (T, C), the best first, (T, k).

    Of many classes they are sought in the groups of a few that have the k best highest scores.
    """
    width = guide.shape[1] // GROUP
    if width <= 2 * size:
        return guide.topk(min(size, guide.shape[1]), dim=1).indices
    whole = GROUP * width
    highest = guide[:, :whole].view(len(guide), GROUP, width).amax(1).topk(size, dim=1).indices
    steps = torch.arange(0, whole, width, device=guide.device)[:, None]
    rest = torch.arange(whole, guide.shape[1], device=guide.device).expand(len(guide), -1)
    asked = torch.cat([(highest[:, None] + steps).flatten(1), rest], 1)
    return asked.gather(1, guide.gather(1, asked).topk(size, dim=1).indices)


def with_tail(
    guide: Tensor, shortlist: Tensor, found: Sequence[Tensor], weights: Sequence[float], slopes: Sequence[float]
) -> Tensor:
    """Σ_k w_k score_k (T, C), where all but the first expert have scored a shortlist of classes only.

    Elsewhere score_k is slope_k · score_1 + the level of the row, which is the mean of what is missing to it over the
    worse half of the shortlist.

    Parameters
    ----------
    guide : tensor (T, C)
        score_1; it is overwritten.
    shortlist : int64 tensor (T, k)
        The best first.
    found : sequence of tensors (T, k)
        The scores of each of the others there.
    weights, slopes : of all experts.
    """
    near = guide.gather(1, shortlist)
    worse, total, level = near.shape[1] // 2, weights[0] * near, torch.zeros_like(near[:, :1])
    for scores, weight, slope in zip(found, weights[1:], slopes[1:], strict=True):
        above = scores.to(near) - slope * near
        known = above > -torch.inf  # of a class whose only example is left out there is nothing to score by
        above = torch.where(known, above, 0.0)
        mean = above[:, worse:].sum(1, keepdim=True) / known[:, worse:].sum(1, keepdim=True).clamp(min=1)
        total = total + weight * (slope * near + torch.where(known, above, mean))
        level = level + weight * mean
    factor = weights[0] + sum(weight * slope for weight, slope in zip(weights[1:], slopes[1:], strict=True))
    return guide.mul_(factor).add_(level).scatter_(1, shortlist, total)


class RandomRows(nn.Module):
    """Rows as their random features."""

    projection: Tensor

    def __init__(self, projection: Tensor, unit_length: bool) -> None:
        super().__init__()
        self.unit_length = unit_length
        self.register_buffer("projection", projection)

    def forward(self, rows: Rows) -> Rows:
        features = (rows.x.to(self.projection.dtype) @ self.projection).relu_()
        return Rows(nn.functional.normalize(features, dim=1) if self.unit_length else features)


class ScoresOf(nn.Module):
    """Scores from rows that a shared piece gives."""

    def __init__(self, features: nn.Module, scores: nn.Module) -> None:
        super().__init__()
        self._features = (features,)  # registered where it is owned
        self.scores = scores

    def forward(self, rows: Rows) -> Tensor:
        return self.scores(rows.of(self._features[0]))


class SomeScores(nn.Module):
    """Those of some classes."""

    classes: Tensor

    def __init__(self, scores: nn.Module, classes: Tensor) -> None:
        super().__init__()
        self.scores = scores
        self.register_buffer("classes", classes)

    def forward(self, rows: Rows) -> Tensor:
        return self.scores(rows).index_select(1, self.classes)


class OneClass(nn.Module):
    """One class, whatever the row."""

    def forward(self, rows: Rows) -> Tensor:
        return rows.x.new_zeros(rows.x.shape[0], 1)


class PooledScores(nn.Module):
    """See `pooled_scores`."""

    def __init__(
        self, scores: Sequence[nn.Module], weights: Sequence[float], eased: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        self.scores, self.weights = nn.ModuleList(scores), tuple(weights)
        self.eased = None if eased is None else tuple(eased)

    def forward(self, rows: Rows) -> Tensor:
        return pooled_scores([score(rows).to(rows.x.dtype) for score in self.scores], self.weights, self.eased)


class BaseNovelScores(nn.Module):
    """Base and novel classes, each among themselves, and the odds between them; see `gptree.experts.novel`."""

    def __init__(
        self,
        base: nn.Module,
        scores: Sequence[nn.Module],
        root_weights: Sequence[float],
        bias: float,
        novel_weights: Sequence[float],
        sharpness: float,
    ) -> None:
        super().__init__()
        self.base, self.scores, self.bias, self.sharpness = base, nn.ModuleList(scores), bias, sharpness
        self.root_weights, self.novel_weights = tuple(root_weights), tuple(novel_weights)

    def forward(self, rows: Rows) -> Tensor:
        base = tempered(self.base(rows).to(rows.x.dtype).log_softmax(1), self.sharpness)
        logs = [score(rows).to(rows.x.dtype) for score in self.scores]
        total, n_base = pooled_scores(logs, self.root_weights), base.shape[1]
        odds = total[:, n_base:].logsumexp(1) - total[:, :n_base].logsumexp(1) + self.bias
        novel = pooled_scores([log[:, n_base:] for log in logs], self.novel_weights).log_softmax(1)
        is_novel, is_base = log_sigmoids(self.sharpness * odds[:, None])
        return torch.cat([base + is_base, novel + is_novel], 1)


def tempered(log_p: Tensor, tau: float) -> Tensor:
    """Log-probabilities (T, B) sharpened τ times."""
    return log_p if tau == 1 else (tau * log_p).log_softmax(1)


def pooled_scores(scores: Iterable[Tensor], weights: Sequence[float], eased: Sequence[float] | None = None) -> Tensor:
    """Σ_k w_k score_k of scores (T, C), and Σ_k v_k easing_k score_k beside it, if there are weights v."""
    total = None
    for score, weight, ease in zip(scores, weights, eased or repeat(0.0), strict=False):
        if ease:
            score, weight = score * (weight + ease * easing(score)), 1.0
        total = score * weight if total is None else total.add(score, alpha=weight)
    assert total is not None
    return total


def easing(scores: Tensor) -> Tensor:
    """(1 + 3) / (1 + m), (…, 1) of scores (…, C), where the best class of a row leads the next five by m nats.

    Less than one where a class leads far, more where none does: times it, scores of rows differ less in how sure they
    are.
    """
    best = scores.topk(min(RUNNERS_UP + 1, scores.shape[-1]), dim=-1).values
    if best.shape[-1] == 1:  # nothing to lead
        return torch.ones_like(best)
    lead = best[..., :1] - best[..., 1:].mean(-1, keepdim=True)
    return (1 + USUAL_LEAD) / (1 + lead)
