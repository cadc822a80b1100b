"""Kernel densities of the classes on the unit sphere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from torch import Tensor

from gptree.experts.base import Expert, Fit, FittedExpert, LeftOutAt, ScoreCache, positive_grid
from gptree.experts.calibration import fill_own, fit_tempered, tempered_at, tempering_bytes
from gptree.experts.examples import CHUNK_SIZE, MANY_CLASSES, Examples, check_features
from gptree.experts.products import LEAST_ROWS, check_unit_length, chunks, shared_products, working_dtype
from gptree.experts.scorers import DensityScores, FrozenDensityScores
from gptree.maths.frozen import Parts
from gptree.maths.linalg import BLOCK_ROWS
from gptree.storage import Array, Number, Sizes, ensure

#: Terms that are computed and added up at a time: on a processor, what its cache holds.
TERMS = 2**19


@dataclass(frozen=True)
class KernelDensity(Expert):
    """Kernel densities of the classes on the unit sphere.

        score_c(x) = log mean of exp(β(g − 1)) over the examples of class c, g the inner product with x

    Features must be of unit length. Left out exactly: without the fold. Cost: n² inner products and, for each
    sharpness β, n² exponentials; nothing of size n² is kept.

    Parameters
    ----------
    sharpnesses : tuple of float
        β is chosen among these by left-out NLL, together with the temperature.

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> model = GPTreeClassifier(prior_mean="kernel-density")
    """

    sharpnesses: tuple[float, ...] = (5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0)

    name = "kernel-density"

    def __post_init__(self) -> None:
        positive_grid(self, "sharpnesses")

    def on_exemplars(self, rows: Tensor, weights: Tensor) -> ExemplarDensity:
        return ExemplarDensity(rows, weights, self.sharpnesses)

    def settled(self, fitted: FittedExpert) -> KernelDensity:
        assert isinstance(fitted, FittedKernelDensity)
        return replace(self, sharpnesses=(fitted.sharpness,))

    def fit(self, examples: Examples) -> Fit:
        check_unit_length(examples.X)
        return fit_tempered(_Scorer(self, examples), examples)

    def fit_bytes(self, rows: int, columns: int, classes: int, itemsize: int) -> int:
        products = 5 * min(rows * rows, max(CHUNK_SIZE, LEAST_ROWS * rows) + rows)
        return itemsize * (rows * columns + products) + tempering_bytes(len(self.sharpnesses), rows, classes, itemsize)


@dataclass(frozen=True, eq=False)
class ExemplarDensity(Expert):
    """The kernel density of a few exemplars a class: what `KernelDensity` is in a base session.

    Left out by single examples: an exemplar does not score itself.

    Parameters
    ----------
    rows : int64 tensor (m,)
        Which examples the exemplars are.
    weights : tensor (m,)
        How many examples each stands for.
    sharpnesses : tuple of float
        As in `KernelDensity`.
    """

    rows: Tensor
    weights: Tensor
    sharpnesses: tuple[float, ...] = KernelDensity().sharpnesses

    def fit(self, examples: Examples) -> Fit:
        check_unit_length(examples.X)
        return fit_tempered(_ExemplarScorer(self, examples), examples)

    def itself(self, examples: Examples) -> Tensor:
        """(n,) which of the exemplars each example is, −1 for none."""
        places = torch.arange(len(self.rows), device=examples.y.device)
        return torch.full_like(examples.y, -1).index_copy_(0, self.rows, places)


@dataclass(frozen=True, eq=False)
class FittedKernelDensity(FittedExpert):
    """A fitted `KernelDensity` or `ExemplarDensity`.

    Attributes
    ----------
    points : tensor (n, d)
    labels : tensor (n,)
    weights : tensor (n,)
        How many examples each point stands for.
    masses : tensor (C,)
        The sum of the weights of each class.
    sharpness : float
        β.
    temperature : float
        τ.
    """

    points: Annotated[Tensor, Array("n d", least=-1.01, most=1.01)]
    labels: Annotated[Tensor, Array("n", least=0, whole=True)]
    weights: Annotated[Tensor, Array("n", above=0)]
    masses: Annotated[Tensor, Array("C", above=0)]
    sharpness: Annotated[float, Number(above=0)]
    temperature: Annotated[float, Number(above=0)]

    def check(self, name: str, sizes: Sizes) -> None:
        everybody = torch.arange(sizes["C"], device=self.labels.device)
        ensure(torch.equal(self.labels.unique(), everybody), f"{name}.labels lack a class, or hold others.")

    def scores(self, X: Tensor, sharpnesses: tuple[float, ...] | None = None, itself: Tensor | None = None) -> Tensor:
        """Untempered class scores at X, (len(sharpnesses), T, C).

        `itself` (T,) says which of the points each row is (−1: none of them); that point is left out of its score.
        """
        check_features(X, self.points.shape[1])
        sharpnesses = (self.sharpness,) if sharpnesses is None else sharpnesses
        scores = X.new_empty(len(sharpnesses), len(X), len(self.masses))
        for part in chunks(len(X), len(self.points), X.device):
            g = self.points @ X[part].to(self.points.dtype).T
            masses = self.masses[:, None]
            if itself is not None:
                column = (itself[part] >= 0).nonzero()[:, 0]
                point = itself[part][column]
                g[point, column] = -torch.inf
                masses = masses.repeat(1, len(part))
                masses[self.labels[point], column] -= self.weights[point]
                masses = masses.clamp_(min=torch.finfo(masses.dtype).eps)
            scores[:, part] = _log_means(g, self.labels, self.weights, masses, sharpnesses).to(X.dtype)
        return scores

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        products = shared_products(cache, X, self.points)
        if products is None:
            scores = self.scores(X)[0]
        else:
            scores = _log_means(products, self.labels, self.weights, self.masses[:, None], (self.sharpness,))[0]
        return (self.temperature * scores).log_softmax(1)

    def frozen(self, parts: Parts) -> DensityScores:
        points = parts.products(self.points)
        fitted = points, self.labels, self.weights, self.masses, self.sharpness, self.temperature
        return (FrozenDensityScores if parts.frozen else DensityScores)(*fitted)

    def knows_left_out(self, X: Tensor, y: Tensor) -> bool:
        if X.shape != self.points.shape or not torch.equal(y, self.labels):
            return False
        pairs = zip(X.split(BLOCK_ROWS), self.points.split(BLOCK_ROWS), strict=True)
        return all(torch.equal(x.to(points.dtype), points) for x, points in pairs)

    def left_out_at(self, examples: Examples) -> LeftOutAt:
        scorer = _Scorer(KernelDensity((self.sharpness,)), examples)
        return tempered_at(scorer, self.sharpness, self.temperature, examples)

    def at_exemplars(self, exemplars: Examples) -> LeftOutAt | None:
        if not torch.equal(exemplars.X.to(self.points), self.points):
            return None

        def at(rows: Tensor) -> Tensor:
            scores = self.scores(exemplars.X[rows], itself=rows)[0]
            return fill_own(scores, exemplars, rows).mul_(self.temperature)

        return at

    def grown(self, X: Tensor, y: Tensor, n_classes: int, weights: Tensor | None = None) -> FittedKernelDensity:
        weights = torch.ones_like(y) if weights is None else weights
        weights = torch.cat([self.weights, weights.to(self.weights)])
        labels = torch.cat([self.labels, y])
        points = torch.cat([self.points, X.to(self.points.dtype)])
        return replace(self, points=points, labels=labels, weights=weights, masses=_masses(weights, labels, n_classes))

    def only(self, classes: Tensor) -> FittedKernelDensity:
        place = -torch.ones_like(self.masses, dtype=torch.long)
        place[classes] = torch.arange(len(classes), device=classes.device)
        kept = place[self.labels] >= 0
        labels = place[self.labels[kept]]
        parts = {"points": self.points[kept], "labels": labels, "weights": self.weights[kept]}
        return replace(self, **parts, masses=self.masses[classes])


def _masses(weights: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    return weights.new_zeros(n_classes).index_add_(0, labels, weights)


def _log_means(g: Tensor, labels: Tensor, weights: Tensor, masses: Tensor, sharpnesses: tuple[float, ...]) -> Tensor:
    """Scores (len(sharpnesses), t, C) from inner products g (n, t), −∞ where masked, and class masses (C, t or 1).

    The largest term of a column is taken out of the sum before exponentiating. A class whose terms all vanish
    beside it, or are masked, gets the smallest positive number instead of 0.
    """
    top = g.amax(0)
    top = torch.where(top.isfinite(), top, 1)
    tiny = torch.finfo(g.dtype).tiny
    scores = g.new_empty(len(sharpnesses), g.shape[1], len(masses))
    weighted = bool((weights != 1).any())
    step = max(1, len(g) if g.is_cuda else TERMS // max(1, g.shape[1]))
    for k, sharpness in enumerate(sharpnesses):
        sums = g.new_zeros(len(masses), g.shape[1])
        for some, owners, counted in zip(g.split(step), labels.split(step), weights.split(step), strict=True):
            terms = (some - top).mul_(sharpness).exp_()
            sums.index_add_(0, owners, terms.mul_(counted[:, None]) if weighted else terms)
        scores[k] = (sums.clamp_(min=tiny).div_(masses).log_() + sharpness * (top - 1)).T
    return scores


class _Scorer:
    """Left-out scores: the sum runs over the examples outside the fold."""

    spread = 2.0

    def __init__(self, settings: KernelDensity, examples: Examples) -> None:
        self.grid, self.fallback, self.examples = settings.sharpnesses, min(settings.sharpnesses), examples
        self.points = examples.X.to(working_dtype(len(examples), examples.X.dtype))
        self.weights = examples.weights.to(self.points.dtype)
        self._last: tuple[int, tuple[Tensor, Tensor, Tensor, Tensor]] | None = None

    def scores(self, grid: tuple[float, ...], rows: Tensor) -> Tensor:
        ex = self.examples
        dtype = self.points.dtype if ex.n_classes > MANY_CLASSES else ex.X.dtype
        scores = ex.X.new_empty(len(grid), len(rows), ex.n_classes, dtype=dtype)
        for fold, members, asked in ex.by_fold(rows):
            if ex.n_classes > MANY_CLASSES:  # a copy of the other points would be large
                masses = (ex.counts - ex.fold_counts[fold]).to(self.points.dtype)[:, None]
                points, labels, weights, hidden = self.points, ex.y, self.weights, members
            else:
                (points, labels, weights, masses), hidden = self._without(fold), None
            for part in chunks(len(asked), len(points), rows.device):
                g = points @ self.points[rows[asked[part]]].T
                if hidden is not None:
                    g.index_fill_(0, hidden, -torch.inf)
                scores[:, asked[part]] = _log_means(g, labels, weights, masses, grid).to(scores.dtype)
        alone = ex.alone(rows)
        for part in chunks(len(alone), len(ex), rows.device):
            asked = rows[alone[part]]
            g = self.points @ self.points[asked].T
            g[asked, torch.arange(len(asked), device=asked.device)] = -torch.inf
            counts = ex.left_out_counts(asked).T.to(g.dtype)
            counts = counts.clamp(min=torch.finfo(g.dtype).tiny)  # of a class whose only example is masked
            scores[:, alone[part]] = _log_means(g, ex.y, self.weights, counts, grid).to(scores.dtype)
        return scores

    def _without(self, fold: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Points, labels, weights and masses (C, 1) of all other folds; those of the last one asked for are kept."""
        if self._last is None or self._last[0] != fold:
            ex, kept = self.examples, self.examples.folds != fold
            masses = (ex.counts - ex.fold_counts[fold]).to(self.points.dtype)[:, None]
            self._last = fold, (self.points[kept], ex.y[kept], self.weights[kept], masses)
        return self._last[1]

    def fitted(self, value: float, temperature: float) -> FittedKernelDensity:
        ex = self.examples
        masses = ex.counts.to(self.points.dtype)
        return FittedKernelDensity(self.points, ex.y, self.weights, masses, value, temperature)


class _ExemplarScorer:
    """Left-out scores of exemplars: of those that are exemplars themselves, without themselves."""

    spread = 2.0

    def __init__(self, settings: ExemplarDensity, examples: Examples) -> None:
        self.grid, self.fallback, self.examples = settings.sharpnesses, min(settings.sharpnesses), examples
        points, many = examples.X[settings.rows], examples.n_classes > MANY_CLASSES
        points = points.to(working_dtype(len(points), points.dtype)) if many else points
        self.density = exemplar_density(points, examples.y[settings.rows], settings.weights, examples.n_classes)
        self.itself = settings.itself(examples)

    def scores(self, grid: tuple[float, ...], rows: Tensor) -> Tensor:
        return self.density.scores(self.examples.X[rows], grid, self.itself[rows])

    def fitted(self, value: float, temperature: float) -> FittedKernelDensity:
        return replace(self.density, sharpness=value, temperature=temperature)


def exemplar_density(
    points: Tensor, labels: Tensor, weights: Tensor, n_classes: int, sharpness: float = 1.0, temperature: float = 1.0
) -> FittedKernelDensity:
    """The kernel density of exemplars (m, d) with class numbers (m,) that stand for `weights` (m,) examples each.

    Parameters
    ----------
    points : tensor (m, d)
    labels : int64 tensor (m,)
    weights : tensor (m,)
    n_classes : int
    sharpness, temperature : float

    Returns
    -------
    FittedKernelDensity
    """
    weights = weights.to(points)
    masses = _masses(weights, labels, n_classes)
    return FittedKernelDensity(points, labels, weights, masses, sharpness, temperature)
