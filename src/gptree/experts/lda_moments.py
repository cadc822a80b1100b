"""The pooled within-class covariance of examples, which linear discriminant analysis shrinks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

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

    @classmethod
    def of(cls, examples: Examples) -> Moments:
        n, d = examples.X.shape
        weights, blocks = examples.weights, examples.blocks()
        centre = weighted_mean(examples.X, weights)
        span = torch.linalg.qr((examples.X - centre).T).Q if d > n else None

        def coordinates(some: Tensor, basis: Tensor | None) -> Tensor:
            x = examples.X[some] - centre
            return x if basis is None else x @ basis

        def class_means(basis: Tensor | None) -> Tensor:
            shape = examples.n_classes, d if basis is None else basis.shape[1]
            sums = examples.X.new_zeros(shape, dtype=torch.result_type(examples.X, weights))
            for some in blocks:
                sums.index_add_(0, examples.y[some], coordinates(some, basis) * weights[some, None])
            return sums.div_(examples.counts[:, None])

        freedom, means = degrees_of_freedom(examples), class_means(span)
        scatter, squares = [], []
        for some in blocks:
            x = coordinates(some, span)
            residuals = x - means[examples.y[some]]
            scatter.append((residuals * weights[some, None]).T @ residuals)
            squares.append(x.square().sum(1))
        variances, basis = torch.linalg.eigh(reduce(torch.add, scatter) / freedom)
        variances = variances.clamp(min=0)
        spread = float(weighted_mean(torch.cat(squares), weights))
        isotropic = within_trace(variances, spread, d, scale=float(centre.square().sum())) / d
        within, basis = basis, basis if span is None else span @ basis
        return cls(centre, basis, variances, isotropic, freedom, means @ within)

    def coordinates(self, X: Tensor) -> Tensor:
        """Rows (…, d) in the eigenvectors, (…, r)."""
        return (X - self.centre) @ self.basis


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
