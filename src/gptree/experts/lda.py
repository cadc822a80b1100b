"""Tempered linear discriminant analysis with a shrunken covariance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import torch
from torch import Tensor

from gptree.experts.base import Expert, Fit, FittedExpert, LeftOutAt, ScoreCache, cached, positive_grid
from gptree.experts.calibration import fill_own, fit_tempered, tempered_at, tempering_bytes, weighted_mean
from gptree.experts.examples import ALONE, MANY_CLASSES, Examples, check_features
from gptree.experts.lda_moments import LEFT, Moments, SpanDistances
from gptree.experts.scorers import LinearScores
from gptree.maths.frozen import Parts
from gptree.maths.linalg import BLOCK_ROWS
from gptree.settings import require
from gptree.storage import Array, Number

#: From so many degrees of freedom on, leaving a row out of the covariance moves the scores of all other classes alike,
#: but for 0.02 nats; below, what moves them costs another product with all class means.
STEADY_FREEDOM = 2e5


@dataclass(frozen=True)
class LDA(Expert):
    """Linear discriminant analysis: Gaussian classes that share the covariance Σ_λ = (1−λ) S_w + λ tr(S_w)/d · I.

        score_c(x) = −½ n_c/(n_c+1) · (x−μ_c)ᵀ Σ_λ⁻¹ (x−μ_c) − ½ ρ D log(1 + 1/n_c)

    S_w is the pooled within-class covariance with ν = n − C degrees of freedom. With ρ = 1 the score is the
    density of a new point of a class whose mean is known from n_c examples, D being the number of
    dimensions that count: the mean of n_c/(n_c+1)·(distance) over the examples and their own class, left out.
    Cost: one eigendecomposition of size min(n, d), and n·C·min(n, d) for each shrinkage λ.

    An example of weight w counts w times. Weights below one leave ν = Σ_c (n_c − min(1, Σ w²/n_c)), and in the score
    n_c is at least 1.

    Parameters
    ----------
    shrinkages : tuple of float
        λ is chosen among these by left-out NLL, together with the temperature.
    count_weight : float
        ρ. It matters only if classes differ in size. Real classes are not Gaussian and ρ = 1 rules the small ones out;
        0.15 was best or near it for 1 or 2 shots beside 5 or 20 on three data sets.

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> from gptree.experts import LDA
    >>> model = GPTreeClassifier(prior_mean=LDA(count_weight=0.5))
    """

    shrinkages: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)
    count_weight: float = 0.15

    name = "lda"

    def __post_init__(self) -> None:
        positive_grid(self, "shrinkages", most=1.0)
        require(self.count_weight >= 0, f"count_weight must not be negative; got {self.count_weight}.")

    def settled(self, fitted: FittedExpert) -> LDA:
        assert isinstance(fitted, FittedLDA)
        return replace(self, shrinkages=(fitted.shrinkage,))

    def fit(self, examples: Examples) -> Fit:
        return fit_tempered(_Scorer(self, examples), examples)

    def fit_bytes(self, rows: int, columns: int, classes: int, itemsize: int) -> int:
        arrays = 4 * rows * columns + 3 * columns * min(rows, columns)  # rotated rows, residuals, gaps, work
        return itemsize * arrays + tempering_bytes(len(self.shrinkages), rows, classes, itemsize)


@dataclass(frozen=True, eq=False)
class FittedLDA(FittedExpert):
    """A fitted `LDA`.

    Attributes
    ----------
    centre : tensor (d,)
        Mean of all examples; distances do not depend on it, rounding errors do.
    basis : tensor (d, r)
        Orthonormal, eigenvectors of S_w; r = min(n, d).
    variances : tensor (r,)
        Eigenvalues of S_w; 0 outside the basis.
    isotropic : float
        tr(S_w)/d.
    freedom : int or float
        ν.
    means : tensor (C, d)
        Of the classes, less the centre.
    counts : tensor (C,)
    shrinkage : float
        λ.
    count_penalty : float
        ρD.
    temperature : float
        τ.
    """

    centre: Annotated[Tensor, Array("d")]
    basis: Annotated[Tensor, Array("d r", least=-1.001, most=1.001)]
    variances: Annotated[Tensor, Array("r", least=0)]
    isotropic: Annotated[float, Number(least=1e-30)]
    freedom: Annotated[float, Number(above=0)]
    means: Annotated[Tensor, Array("C d")]
    counts: Annotated[Tensor, Array("C", above=0)]
    shrinkage: Annotated[float, Number(least=1e-6, most=1)]
    count_penalty: Annotated[float, Number(least=0)]
    temperature: Annotated[float, Number(above=0)]

    @classmethod
    def of(cls, examples: Examples) -> FittedLDA:
        """Means, counts and covariance of examples; shrinkage, penalty and temperature are for others to choose."""
        moments = Moments.of(examples)
        return cls.around(moments, examples, shrinkage=1.0, count_penalty=0.0, temperature=1.0)

    @classmethod
    def around(
        cls, moments: Moments, examples: Examples, shrinkage: float, count_penalty: float, temperature: float
    ) -> FittedLDA:
        """From the moments of examples."""
        return cls(
            centre=moments.centre,
            basis=moments.basis,
            variances=moments.variances,
            isotropic=moments.isotropic,
            freedom=moments.freedom,
            means=moments.means @ moments.basis.T,
            counts=examples.counts,
            shrinkage=shrinkage,
            count_penalty=count_penalty,
            temperature=temperature,
        )

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        scores = lda_scores(self.distances(X, cache), self.counts, self.count_penalty)
        return (self.temperature * scores).log_softmax(1).to(X.dtype)

    def distances(self, X: Tensor, cache: ScoreCache | None = None) -> Tensor:
        """(x − μ_c)ᵀ Σ_λ⁻¹ (x − μ_c), (T, C).

        Outside the basis Σ_λ⁻¹ is d/(λ tr S_w) · I: there x has a part, and so have the means of later classes.
        """
        key = ("coordinates", id(X), self.basis.data_ptr())
        x, coordinates = cached(cache, key, lambda: self._coordinates(X))
        A = _precisions(self.variances, self.isotropic, self.shrinkage)
        means = cached(cache, ("means", id(self.means), self.basis.data_ptr()), lambda: self.means @ self.basis)
        norms, mean_norms = coordinates.square() @ A, means.square() @ A
        if self.basis.shape[1] < len(self.centre):
            outside = 1 / (self.shrinkage * self.isotropic)
            norms = norms + outside * (x.square().sum(1) - coordinates.square().sum(1))
            mean_norms = mean_norms + outside * (self.means.square().sum(1) - means.square().sum(1))
            products = outside * x @ self.means.T + coordinates @ (means * (A - outside)).T
        else:
            products = coordinates @ (means * A).T
        return products.mul_(-2).add_(norms[:, None]).add_(mean_norms)

    def frozen(self, parts: Parts) -> LinearScores:
        double = self if self.basis.dtype == torch.float64 else _double(self)
        A, outside = _precisions(double.variances, self.isotropic, self.shrinkage), 0.0
        means = double.means @ double.basis
        norms = means.square() @ A
        if double.basis.shape[1] < len(double.centre):
            outside = 1 / (self.shrinkage * self.isotropic)
            A = A - outside
            norms = means.square() @ A + outside * double.means.square().sum(1)
        precision_means = double.basis @ (means * A).T + outside * double.means.T  # Σ_λ⁻¹ μ_c
        share = double.counts / (double.counts + 1)
        penalty = self.count_penalty * torch.log1p(1 / double.counts)
        uneven = -0.5 * self.temperature * (share - share.mean())  # of the squared length of x: what differs
        alike = bool(share.min() == share.max())
        return LinearScores(
            (self.temperature * share * precision_means).to(self.basis),
            (-0.5 * self.temperature * (share * norms + penalty)).to(self.basis),
            self.centre,
            None if alike else (self.basis, A.to(self.basis), outside, uneven.to(self.basis)),
        )

    def _coordinates(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Centred rows, and the same in the basis."""
        check_features(X, len(self.centre))
        x = X.to(self.basis.dtype) - self.centre
        return x, x @ self.basis

    def left_out(
        self, x: Tensor, y: Tensor, in_covariance: Tensor, weights: Tensor | None = None, first: int = 0
    ) -> Tensor:
        """Untempered scores (n, C) at `whitened` examples x of classes y, which count `weights` (n,) times, left out.

        The mean and count of its class are without it, and where `in_covariance` (n,) so is the covariance, by
        the rank-one change of `_Scorer`. For the only example of a class, the score of that class means nothing. The
        scores are those of the classes from the `first` on.
        """
        r, others = x - self._white_means[y], self._white_means[first:]
        distances = self._white_distances(x, first)
        rows = (y >= first).nonzero()[:, 0]
        own = y[rows] - first
        n, w = self.counts[y], (torch.ones_like(y) if weights is None else weights).to(self.counts)
        left = torch.where(n - w > LEFT * w, n - w, n)
        rAr = r.square().sum(1)
        rAr[rows] = distances[rows, own]
        distances[rows, own] = (rAr * (n / left).square())[rows]
        if bool(in_covariance.any()):
            # δᵀAr = xᵀAr − μ_cᵀAr; for the class of the example δ = r n/(n − w)
            cross = (x * r).sum(1)[:, None] - r @ others.T
            cross[rows, own] = (rAr * n / left)[rows]
            a = (1 - self.shrinkage) / self.freedom * w * n / left * in_covariance
            distances += (a / (1 - a * rAr))[:, None] * cross.square_()
        counts = self.counts[first:].repeat(len(x), 1)
        counts[rows, own] = left[rows]
        return lda_scores(distances, counts, self.count_penalty)

    def white_scores(self, x: Tensor) -> Tensor:
        """Untempered scores (n, C) at `whitened` points that it never saw."""
        return lda_scores(self._white_distances(x), self.counts, self.count_penalty)

    def _white_distances(self, x: Tensor, first: int = 0) -> Tensor:
        """Squared distances (n, C − first) of whitened points to class means from the `first` on."""
        products = x @ self._white_means[first:].T
        return products.mul_(-2).add_(x.square().sum(1)[:, None]).add_(self._white_norms[first:])

    def whitened(self, X: Tensor) -> Tensor:
        """Examples (n, d) in coordinates in which Σ_λ is the identity."""
        check_features(X, len(self.centre))
        return self._whitened(X.to(self.basis.dtype) - self.centre)

    def _whitened(self, x: Tensor) -> Tensor:
        """The same of centred ones."""
        inside = x @ self.basis
        white = inside * _precisions(self.variances, self.isotropic, self.shrinkage).sqrt()
        if self.basis.shape[1] == len(self.centre):
            return white
        return torch.cat([white, (x - inside @ self.basis.T) / (self.shrinkage * self.isotropic) ** 0.5], 1)

    @cached_property
    def _white_means(self) -> Tensor:
        """Class means, whitened. An expert that grew by classes has those of the one before it and of the new ones."""
        before: FittedLDA | None = self.__dict__.get("_before")
        if before is None:
            return self._whitened(self.means)
        return torch.cat([before._white_means, self._whitened(self.means[len(before.means) :])])

    @cached_property
    def _white_norms(self) -> Tensor:
        """Their squared lengths."""
        before: FittedLDA | None = self.__dict__.get("_before")
        if before is None:
            return self._white_means.square().sum(1)
        return torch.cat([before._white_norms, self._white_means[len(before.means) :].square().sum(1)])

    def knows_left_out(self, X: Tensor, y: Tensor) -> bool:
        return X.dtype == self.basis.dtype

    def left_out_at(self, examples: Examples) -> LeftOutAt:
        scorer = _Scorer(LDA((self.shrinkage,)), examples)
        scorer.count_penalties = [self.count_penalty]  # as it was found in the fit
        return tempered_at(scorer, self.shrinkage, self.temperature, examples)

    def at_exemplars(self, exemplars: Examples) -> LeftOutAt:
        # of few examples in many dimensions 1 − a rᵀAr has no digits left in single precision
        lda = self if self.basis.dtype == torch.float64 else _double(self)

        def at(rows: Tensor) -> Tensor:
            x, y = lda.whitened(exemplars.X[rows]), exemplars.y[rows]
            scores = lda.left_out(x, y, torch.ones_like(y, dtype=torch.bool), exemplars.weights[rows])
            return fill_own(scores, exemplars, rows).mul_(self.temperature)

        return at

    def grown(self, X: Tensor, y: Tensor, n_classes: int, weights: Tensor | None = None) -> FittedLDA:
        """Means and counts with the further examples; the covariance stays."""
        weights = torch.ones_like(y) if weights is None else weights
        known = len(self.counts)
        counts = torch.cat([self.counts, self.counts.new_zeros(n_classes - known)])
        touched, place = y.unique(return_inverse=True)  # the others keep their bits
        means = torch.cat([self.means, self.means.new_zeros(n_classes - known, len(self.centre))])
        sums = means[touched] * counts[touched, None]
        sums.index_add_(0, place, (X.to(sums.dtype) - self.centre) * weights.to(sums)[:, None])
        counts = counts.index_add(0, y, weights.to(counts))
        means[touched] = sums / counts[touched, None]
        grown = replace(self, means=means, counts=counts)
        if not bool((touched < known).any()):
            vars(grown)["_before"] = self
        return grown

    def only(self, classes: Tensor) -> FittedLDA:
        return replace(self, means=self.means[classes], counts=self.counts[classes])


def _double(lda: FittedLDA) -> FittedLDA:
    tensors = {name: getattr(lda, name).double() for name in ("centre", "basis", "variances", "means", "counts")}
    return replace(lda, **tensors)


def _precisions(variances: Tensor, isotropic: float, shrinkage: float) -> Tensor:
    return 1 / ((1 - shrinkage) * variances + shrinkage * isotropic)


def lda_scores(distances: Tensor, counts: Tensor, count_penalty: float) -> Tensor:
    """Scores −½ [n/(n+1) · distance + penalty · log(1 + 1/n)] of distances (…, C), n the `counts` (…, C), at least 1.

    Parameters
    ----------
    distances : tensor (…, C)
    counts : tensor (C,) or (…, C)
    count_penalty : float
        ρD.

    Returns
    -------
    tensor (…, C)
    """
    n = counts.clamp(min=1)  # a mean rests on one example at least, however little it weighs
    return (n / (n + 1) * distances + count_penalty * torch.log1p(1 / n)).mul_(-0.5)


def distances_to_classes(
    examples: Examples, X: Tensor, y: Tensor, n_classes: int, weights: Tensor, points: Tensor
) -> tuple[Tensor, Callable[[float], Tensor]]:
    """The counts (C,) of classes, and for a shrinkage λ the squared distances (T, C) of points (T, d) to their means.

    As `FittedLDA.of` the examples has them, `grown` by X (k, d) of classes y (k,), which are not among the examples.
    """
    if len(examples) < examples.X.shape[1]:
        few = SpanDistances.of(examples, X, y, n_classes, weights, points)
        return few.counts, few.at
    fitted, cache = FittedLDA.of(examples).grown(X, y, n_classes, weights), {}
    return fitted.counts, lambda shrinkage: replace(fitted, shrinkage=shrinkage).distances(points, cache)


class _Scorer:
    """Left-out scores: class means and counts without the whole fold, the covariance without x_i only.

    Taking x_i out of S_w, with ν and the trace kept, is a rank-one change (Sherman-Morrison). With A = Σ_λ⁻¹,
    r = x_i − μ_{y_i}, δ = x_i − μ_c (left-out mean), w the weight of x_i and a = (1−λ)/ν · w n_y/(n_y−w),
      δᵀAδ becomes δᵀAδ + a (δᵀAr)² / (1 − a rᵀAr).
    This is not a refit without the fold, whose covariance would rest on fewer points than the final one does.
    All vectors are written in the eigenvectors of S_w, within the span of the examples if d > n.
    """

    spread = 2.0

    def __init__(self, settings: LDA, examples: Examples) -> None:
        self.examples, self.grid, self.fallback = examples, settings.shrinkages, max(settings.shrinkages)
        self.moments, many = Moments.of(examples), examples.n_classes > MANY_CLASSES
        self.dtype = torch.float32 if many else examples.X.dtype
        self._known = None if many else self.moments.inside  # otherwise they are a large copy
        if self._known is None and not many:
            self._known = self.moments.coordinates(examples.X)
        self.means = self.moments.means.to(self.dtype)
        self.steady = examples.n_classes > MANY_CLASSES and self.moments.freedom >= STEADY_FREEDOM
        self._last: tuple[tuple[int, int], tuple[Tensor, Tensor, Tensor]] | None = None
        self._measure(settings.count_weight)

    def _measure(self, count_weight: float) -> None:
        """Terms that depend on an example and λ only, for all λ at once: arrays (n, grid), and ρD (grid)."""
        ex, moments = self.examples, self.moments
        A = torch.stack([_precisions(moments.variances, moments.isotropic, value) for value in self.grid])
        self.A = A.to(self.dtype)
        left, cell, removed = self._cells()
        parts = [self._terms(rows, left, removed[cell[rows]]) for rows in ex.blocks()]
        self.xAx, self.xAr, self.rAr, self.downdate, self.to_class = map(torch.cat, zip(*parts, strict=True))
        n, rows = left.clamp(min=1), ex.calibration_rows
        D = weighted_mean((n / (n + 1) * self.to_class.T)[:, rows].T, ex.weights[rows])
        D = D.nan_to_num(nan=float(len(moments.centre)))  # no class has two examples: its expectation
        self.count_penalties = (count_weight * D).tolist()

    def _terms(self, rows: Tensor, left: Tensor, removed: Tensor) -> tuple[Tensor, ...]:
        """xᵀAx, xᵀAr, rᵀAr, a / (1 − a rᵀAr) and the distance to the own class, (len(rows), grid) each."""
        ex, x = self.examples, self._rows(rows)
        r = self._residuals(x, rows)
        gaps = r + removed / left[rows, None].to(r)  # μ without the cell is μ − Σ_cell w r / left
        n, w = ex.counts[ex.y[rows]][:, None], ex.weights[rows, None]
        usable = ex.usable[rows, None]
        a = (1 - ex.X.new_tensor(self.grid)) / self.moments.freedom * n / torch.where(usable, n - w, n) * w
        rAr = r.square() @ self.A.T
        downdate = a.to(rAr) / (1 - a.to(rAr) * rAr)
        to_class = gaps.square() @ self.A.T + downdate * ((gaps * r) @ self.A.T).square()
        return x.square() @ self.A.T, (x * r) @ self.A.T, rAr, downdate, to_class

    def _rows(self, rows: Tensor) -> Tensor:
        """Examples (r,) in the eigenvectors of S_w."""
        if self._known is not None:
            return self._known[rows]
        return self.moments.coordinates(self.examples.X[rows]).to(self.dtype)

    def _residuals(self, x: Tensor, rows: Tensor) -> Tensor:
        return x - self.means[self.examples.y[rows]]

    def _cells(self) -> tuple[Tensor, Tensor, Tensor]:
        """`counts` of an example's class left without its fold (n,), its cell, and the sum Σ w r of every cell.

        A cell is what is left out of a class together.
        """
        ex = self.examples
        alone = ~torch.arange(len(ex), device=ex.y.device)  # −1, −2, …: a cell of its own for each
        cells = torch.where(ex.folds == ALONE, alone, ex.folds * ex.n_classes + ex.y)
        numbers, cell = cells.unique(return_inverse=True)
        removed = self.means.new_zeros(len(numbers), self.means.shape[1])
        for rows in ex.blocks():
            residuals = self._residuals(self._rows(rows), rows)
            removed.index_add_(0, cell[rows], residuals * ex.weights[rows, None].to(removed))
        gone = ex.weights.new_zeros(len(numbers)).index_add_(0, cell, ex.weights)
        return torch.where(ex.usable, ex.counts[ex.y] - gone[cell], 1), cell, removed

    def scores(self, grid: tuple[float, ...], rows: Tensor) -> Tensor:
        ex = self.examples
        fold = int(ex.folds[rows[0]]) if len(rows) > 0 else ALONE
        if len(grid) == 1 and fold != ALONE and bool((ex.folds[rows] == fold).all()):  # without a copy
            members = (ex.folds == fold).nonzero()[:, 0]
            return self._scores_of(rows, fold, members, self.grid.index(grid[0]))[None]
        scores = self.means.new_empty(len(grid), len(rows), ex.n_classes)
        for j, k in enumerate(map(self.grid.index, grid)):
            for fold, members, at in ex.by_fold(rows):
                scores[j, at] = self._scores_of(rows[at], fold, members, k)
            alone = ex.alone(rows)
            if len(alone) == 0:
                continue
            single, y = rows[alone], ex.y[rows[alone]]
            scores[j, alone] = self._scores_of(single, ALONE, single, k)
            left = ex.counts[y] - torch.where(ex.usable, ex.weights, ex.counts[ex.y])[single]
            scores[j, alone, y] = lda_scores(self.to_class[single, k], left.to(scores), self.count_penalties[k])
        return scores

    def _scores_of(self, rows: Tensor, fold: int, members: Tensor, k: int) -> Tensor:
        """(len(rows), C) scores with the k-th λ, class means and counts without a fold."""
        weighted, norms, left = self._without(fold, members, k)
        if self.steady:
            return self._steady_scores(rows, k, weighted, norms, left)
        x = self._rows(rows)
        distances = torch.addmm(norms, x, weighted, alpha=-2).add_(self.xAx[rows, k, None])
        cross = torch.addmm(self.xAr[rows, k, None], self._residuals(x, rows), weighted, alpha=-1)  # δᵀAr
        distances.add_(cross.square_().mul_(self.downdate[rows, k, None]))
        return lda_scores(distances, left, self.count_penalties[k])

    def _steady_scores(self, rows: Tensor, k: int, weighted: Tensor, bias: Tensor, left: Tensor) -> Tensor:
        """The same where δᵀAr may be rᵀAr for all classes but the example's own: one product."""
        lengths = self.xAx[rows, k] + self.downdate[rows, k] * self.rAr[rows, k].square()
        scores = torch.addmm(bias, torch.cat([self._rows(rows), lengths[:, None]], 1), weighted)
        y = self.examples.y[rows]
        own = lda_scores(self.to_class[rows, k], left[y], self.count_penalties[k])
        scores[torch.arange(len(rows), device=rows.device), y] = own
        return scores

    def _without(self, fold: int, members: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """A μ_c (r, C), μ_cᵀ A μ_c (C,) and counts (C,) without a fold; those of the last one asked for are kept.

        Where scores are steady, what they are made of: the first with −½ below it, times n_c/(n_c+1), and a bias.
        """
        if self._last is None or self._last[0] != (fold, k):
            ex, means, left = self.examples, self.means, self.examples.counts.to(self.dtype)
            if fold != ALONE:
                left = (ex.counts - ex.fold_counts[fold]).to(left)
                inside = torch.zeros_like(means)
                for some in members.split(BLOCK_ROWS):
                    inside.index_add_(0, ex.y[some], self._rows(some) * ex.weights[some, None].to(left))
                means = torch.mul(self.means, ex.counts[:, None].to(left)).sub_(inside).div_(left[:, None])
                del inside
            weighted, norms = means * self.A[k], means.square() @ self.A[k]
            if self.steady:
                share = left.clamp(min=1) / (left.clamp(min=1) + 1)
                weighted = torch.cat([weighted, torch.full_like(weighted[:, :1], -0.5)], 1).mul_(share[:, None])
                norms = lda_scores(norms, left, self.count_penalties[k])
            self._last = (fold, k), (weighted.T, norms, left)
        return self._last[1]

    def fitted(self, value: float, temperature: float) -> FittedLDA:
        penalty = self.count_penalties[self.grid.index(value)]
        return FittedLDA.around(self.moments, self.examples, value, penalty, temperature)
