"""The pooled within-class covariance of examples, which linear discriminant analysis shrinks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Self

import torch
from torch import Tensor

from gptree.experts.calibration import weighted_mean
from gptree.experts.examples import Examples

#: The share of a count at which nothing is left of it but rounding.
LEFT = 1e-6


@dataclass(frozen=True, eq=False)
class Moments:
    """The pooled within-class covariance in its eigenvectors, and class means written in them."""

    centre: Tensor
    basis: Tensor
    variances: Tensor
    isotropic: float
    freedom: float
    means: Tensor  # (C, r)
    inside: Tensor | None = None
    """The examples (n, r) in the eigenvectors, where these span no more."""

    @classmethod
    def of(cls, examples: Examples) -> Moments:
        n, d = examples.X.shape
        weights, blocks = examples.weights, examples.blocks()
        centre = weighted_mean(examples.X, weights)
        span, inside = torch.linalg.qr((examples.X - centre).T) if d > n else (None, None)

        def coordinates(some: Tensor) -> Tensor:
            """Within the span of the examples, where this is smaller."""
            return examples.X[some] - centre if inside is None else inside.T[some]

        def class_means() -> Tensor:
            shape = examples.n_classes, min(n, d)
            sums = examples.X.new_zeros(shape, dtype=torch.result_type(examples.X, weights))
            for some in blocks:
                sums.index_add_(0, examples.y[some], coordinates(some) * weights[some, None])
            return sums.div_(examples.counts[:, None])

        freedom, means = degrees_of_freedom(examples), class_means()
        scatter, squares = [], []
        for some in blocks:
            x = coordinates(some)
            residuals = x - means[examples.y[some]]
            scatter.append((residuals * weights[some, None]).T @ residuals)
            squares.append(x.square().sum(1))
        variances, basis = torch.linalg.eigh(reduce(torch.add, scatter) / freedom)
        variances = variances.clamp(min=0)
        spread = float(weighted_mean(torch.cat(squares), weights))
        isotropic = within_trace(variances, spread, d, scale=float(centre.square().sum())) / d
        within, basis = basis, basis if span is None else span @ basis
        inside = None if inside is None else inside.T @ within
        return cls(centre, basis, variances, isotropic, freedom, means @ within, inside)

    def coordinates(self, X: Tensor) -> Tensor:
        """Rows (…, d) in the eigenvectors, (…, r)."""
        return (X - self.centre) @ self.basis


@dataclass(frozen=True, eq=False)
class SpanDistances:
    """Squared distances from points to class means for any shrinkage, of fewer examples than features.

    With the residuals R (n, d) of the examples S_w = RᵀR/ν, and inner products are all that it takes:

        δᵀ Σ_λ⁻¹ δ = (‖δ‖² − δᵀRᵀ (RRᵀ + ν a/(1−λ) I)⁻¹ Rδ) / a,    a = λ tr(S_w)/d

    Attributes
    ----------
    counts : tensor (C,)
    squares : tensor (T, C)
        ‖δ‖².
    spectrum : tensor (n,)
        Eigenvalues of RRᵀ.
    points, means : tensors (T, n) and (C, n)
        R times both, in its eigenvectors.
    isotropic, freedom : float
        tr(S_w)/d and ν.
    """

    counts: Tensor
    squares: Tensor
    spectrum: Tensor
    points: Tensor
    means: Tensor
    isotropic: float
    freedom: float

    @classmethod
    def of(cls, examples: Examples, X: Tensor, y: Tensor, n_classes: int, weights: Tensor, points: Tensor) -> Self:
        """From `examples` of the first classes and X (k, d) of those after them, weighted, to points (T, d)."""
        centre = weighted_mean(examples.X, examples.weights)
        x, later, points = ((each - centre).double() for each in (examples.X, X, points))
        labels, counted = torch.cat([examples.y, y]), torch.cat([examples.weights, weights.to(examples.weights)])
        counts = counted.new_zeros(n_classes).index_add_(0, labels, counted)
        sums = x.new_zeros(n_classes, x.shape[1]).index_add_(0, labels, torch.cat([x, later]) * counted[:, None])
        means, freedom = sums / counts[:, None], degrees_of_freedom(examples)
        residuals = (x - means[examples.y]).mul_(examples.weights[:, None].sqrt())
        products = residuals @ residuals.T
        spread = float(weighted_mean(x.square().sum(1), examples.weights))
        scale = float(centre.square().sum())
        isotropic = within_trace(products.diagonal() / freedom, spread, x.shape[1], scale) / x.shape[1]
        squares = (points @ means.T).mul_(-2).add_(points.square().sum(1)[:, None]).add_(means.square().sum(1))
        spectrum, rotation = torch.linalg.eigh(products)
        points, means = (each @ residuals.T @ rotation for each in (points, means))
        return cls(counts, squares, spectrum.clamp(min=0), points, means, isotropic, freedom)

    def at(self, shrinkage: float) -> Tensor:
        """(T, C)."""
        a = shrinkage * self.isotropic
        if shrinkage == 1:
            return self.squares / a
        shares = 1 / (self.spectrum + self.freedom * a / (1 - shrinkage))
        norms = [each.square() @ shares for each in (self.points, self.means)]
        products = self.points @ (self.means * shares).T
        return (self.squares - norms[0][:, None] - norms[1]).add_(products, alpha=2).div_(a)


def degrees_of_freedom(examples: Examples) -> float:
    """ν: n − C for whole weights, and what an unbiased covariance takes for weights below one; 1 if it is none."""
    squares = examples.counts.new_zeros(examples.n_classes).index_add_(0, examples.y, examples.weights.square())
    freedom = float((examples.counts - (squares / examples.counts).clamp(max=1)).sum())
    if freedom <= LEFT * float(examples.counts.sum()):
        return 1
    return int(freedom) if freedom.is_integer() else freedom


def within_trace(variances: Tensor, total: float, d: int, scale: float) -> float:
    """tr(S_w); half the `total` spread if there is none within classes (one shot, copies); d if there is none."""
    eps, within = torch.finfo(variances.dtype).eps, float(variances.sum())
    if total <= (100 * eps) ** 2 * scale:
        return float(d)
    return within if within > eps * total else total / 2
