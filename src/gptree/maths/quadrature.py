"""Logarithms of averages: of the logistic function under a Gaussian, by quadrature, and over draws."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

# Elements worked on at a time; on a CPU their intermediate values, `points` for each, should fit the cache.
_BLOCK_CPU, _BLOCK_ACCELERATOR = 2**13, 2**20


def log_sigmoid_expectation(mean: Tensor, variance: Tensor, points: int = 20) -> tuple[Tensor, Tensor]:
    """log E[σ(f)] and log E[σ(−f)] for f ~ N(mean, variance), elementwise.

    Both logarithms keep their relative accuracy in either tail, their exponentials sum to one, and a change
    of the mean's sign swaps them exactly. A variance that rounding has left below zero counts as zero.
    With 20 points and |mean| ≤ 20 the error of the logarithms is below 1e-6 up to variance 2, 3e-5 at 4,
    3e-3 at 10, 0.03 at 25 and 0.2 at 100.

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
    negative = mean < 0
    distance = torch.where(negative, -mean, mean)
    block = _BLOCK_CPU if mean.device.type == "cpu" else _BLOCK_ACCELERATOR
    blocks = zip(distance.reshape(-1).split(block), deviation.reshape(-1).split(block), strict=True)
    lesser = torch.cat([_log_lesser(d, s, nodes, weights) for d, s in blocks]).reshape(mean.shape)
    greater = torch.log1p(-torch.exp(lesser))
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
