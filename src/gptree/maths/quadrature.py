"""Logarithms of averages: of the logistic function under a Gaussian, by quadrature, and over draws."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from gptree.maths.frozen import log_sigmoids

# Beyond this variance a few quadrature points are too far apart, and a series takes their place.
WIDE = 12.0
# Its terms, the sum of which is then right to 2 (3 + √8)⁻ⁿ, 4e-11.
_TERMS = 14

# Elements worked on at a time; on a CPU their intermediate values, `points` for each, should fit the cache.
_BLOCK_CPU, _BLOCK_ACCELERATOR = 2**13, 2**20


def log_sigmoid_expectation(mean: Tensor, variance: Tensor, points: int = 20) -> tuple[Tensor, Tensor]:
    """log E[σ(f)] and log E[σ(−f)] for f ~ N(mean, variance), elementwise.

    Both logarithms keep their relative accuracy in either tail, their exponentials sum to one, and a change
    of the mean's sign swaps them exactly. A variance that rounding has left below zero counts as zero.
    With 20 points the error of the logarithms is below 1e-6 up to variance 2, 3e-5 at 4 and 6e-3 at 12, whatever
    the mean; larger variances are left to a series, whose error is below 1e-9.

    Parameters
    ----------
    mean, variance : tensors of any shapes that broadcast
    points : int
        Number of quadrature points.

    Returns
    -------
    two tensors of the common shape
    """
    nodes, weights = (torch.as_tensor(array).to(mean) for array in _gauss_hermite(points))
    # The added variance changes the value by less than rounding; it keeps the root's derivative finite at 0.
    deviation = torch.sqrt(variance.clamp_min(0.0) + torch.finfo(mean.dtype).eps)
    mean, deviation = torch.broadcast_tensors(mean, deviation)
    # The less probable side determines both: its probability p from the quadrature, the other's as 1 − p.
    negative = mean.signbit()
    distance = torch.where(negative, -mean, mean)
    block = _BLOCK_CPU if mean.device.type == "cpu" else _BLOCK_ACCELERATOR
    blocks = zip(distance.reshape(-1).split(block), deviation.reshape(-1).split(block), strict=True)
    lesser = torch.cat([_log_lesser(d, s, nodes, weights) for d, s in blocks]).reshape(mean.shape)
    wide = (deviation > math.sqrt(WIDE)) & distance.isfinite()
    if wide.any():
        lesser = lesser.index_put((wide,), _log_lesser_wide(distance[wide], deviation[wide]))
    greater = torch.log1p(-torch.exp(lesser))
    return torch.where(negative, lesser, greater), torch.where(negative, greater, lesser)


def log_sigmoid_expectation_blind(
    mean: Tensor, variance: Tensor, wide: bool, points: int = 20
) -> tuple[Tensor, Tensor]:
    """`log_sigmoid_expectation` as operations that do not depend on the numbers: what can be exported.

    Parameters
    ----------
    mean, variance : tensors of any shapes that broadcast
    wide : bool
        Whether a variance may be above 12.
    points : int

    Returns
    -------
    two tensors of the common shape
    """
    nodes, weights = (torch.as_tensor(array).to(mean) for array in _gauss_hermite(points))
    deviation = torch.sqrt(variance.clamp_min(0.0) + torch.finfo(mean.dtype).eps)
    distance, deviation = torch.broadcast_tensors(mean.abs(), deviation)
    terms = [log_sigmoids(x * deviation - distance)[0] + w for x, w in zip(nodes, weights.log(), strict=True)]
    lesser = torch.stack(terms).logsumexp(0)
    if wide:
        lesser = torch.where(deviation > math.sqrt(WIDE), _log_lesser_wide(distance, deviation), lesser)
    greater = torch.log1p(-torch.exp(lesser))
    negative = mean < 0
    return torch.where(negative, lesser, greater), torch.where(negative, greater, lesser)


def log_mean_exp(values: Tensor) -> Tensor:
    """log mean exp over the first dimension; −∞ is allowed. Of a single entry, that entry to the last bit.

    Parameters
    ----------
    values : tensor (S, ...)

    Returns
    -------
    tensor (...)
    """
    return values[0] if len(values) == 1 else values.logsumexp(0) - math.log(len(values))


@functools.cache
def _gauss_hermite(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights, each (points,), with Σ_i w_i g(x_i) ≈ E[g(x)] for x ~ N(0, 1)."""
    if points < 1:
        raise ValueError(f"points must be at least 1, not {points}")
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    return nodes, weights / weights.sum()


def _log_lesser(distance: Tensor, deviation: Tensor, nodes: Tensor, weights: Tensor) -> Tensor:
    """log Σ_i w_i σ(x_i · deviation − distance), distance ≥ 0; shapes (n,), (n,), (points,), (points,)."""
    f = torch.addcmul(-distance, deviation, nodes[:, None])
    far = -0.5 * math.log(torch.finfo(f.dtype).tiny)
    if (distance > far).any():
        return torch.logsumexp(logsigmoid(f) + weights.log()[:, None], 0)
    # paper (11)
    return torch.log(weights @ f.sigmoid_())  # the nodes near zero keep the sum away from underflow


def _log_lesser_wide(distance: Tensor, deviation: Tensor) -> Tensor:
    """log E[σ(f)] for f ~ N(−distance, deviation²), distance ≥ 0, by a series; shapes (n,).

    σ(f) is Σ_k (−1)^(k−1) e^{kf}, k ≥ 1, left of 0 and Σ_k (−1)^k e^{−kf}, k ≥ 0, right of it. With t = distance /
    deviation and s = deviation the expectations of the terms are

        A_k = E[e^{kf}; f < 0] = φ(t) M(ks − t),    B_k = E[e^{−kf}; f > 0] = φ(t) M(ks + t),    M(z) = Φ(−z) / φ(z).

    A_k − B_k are the moments of a positive measure on [0, 1], so that the alternating sum converges like (3 + √8)⁻ⁿ
    when its terms are weighted as Cohen, Rodriguez Villegas and Zagier do.
    """
    t = distance / deviation

    def log_term(z: Tensor) -> Tensor:
        """log φ(t) M(z); of φ(t) / φ(z) and Φ(−z) where z < 0, of φ(t) and M(z) elsewhere, which do not overflow."""
        below, above = z.clamp(max=0.0), z.clamp(min=0.0)
        ratio = 0.5 * (below - t) * (below + t)
        return ratio + torch.special.log_ndtr(-below) + torch.special.erfcx(above / math.sqrt(2.0)).log()

    right = torch.special.log_ndtr(-t)  # B_0
    largest = torch.maximum(right, log_term(deviation - t))
    total = torch.exp(right - largest)
    for k, weight in enumerate(_alternating_weights(_TERMS), start=1):
        a, b = (torch.exp(log_term(k * deviation + shift) - largest) for shift in (-t, t))
        total = total + weight * (a - b)
    return largest + total.log()


@functools.cache
def _alternating_weights(terms: int) -> tuple[float, ...]:
    """Weights w_k with Σ_k w_k a_k ≈ Σ_k (−1)^k a_k, k = 0, 1, …, for moments a_k of a positive measure on [0, 1]."""
    d = (3 + math.sqrt(8.0)) ** terms
    d = (d + 1 / d) / 2
    weights, b, c = [], -1.0, -d
    for k in range(terms):
        c = b - c
        weights.append(c / d)
        b *= (k + terms) * (k - terms) / ((k + 0.5) * (k + 1))
    return tuple(weights)
