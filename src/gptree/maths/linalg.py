"""Linear algebra shared by everything above; the only place where jitter is added to a matrix."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: Jitter tried on a covariance matrix, relative to its mean diagonal, smallest first. Zero comes first: a matrix that
#: factorises as it is stays as it is.
JITTER = {
    torch.float32: (0.0, 1e-6, 1e-5, 1e-4, 1e-3),
    torch.float64: (0.0, 1e-10, 1e-8, 1e-6, 1e-4),
}


def cholesky(matrix: Tensor) -> Tensor:
    """Lower Cholesky factor of a matrix known to be well conditioned, such as B = I + Ω^½ K Ω^½; no jitter."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    if bool((info != 0).any()):
        raise ValueError(
            "a matrix of the form I + (positive semi-definite) could not be factorised: the kernel matrix is not "
            "positive semi-definite or holds huge values. Check the kernel and the scale of the features."
        )
    return factor


def covariance_root(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Lower Cholesky root of covariance matrices (..., n, n), and the jitter (...,) that each one needed.

    Every matrix of the batch gets the smallest jitter of the ladder `JITTER` that lets it factorise, so that the
    result for one matrix does not depend on its neighbours.
    """
    batch = covariance.shape[:-2]
    flat = covariance.reshape(-1, *covariance.shape[-2:])
    scale = flat.detach().diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(torch.finfo(flat.dtype).tiny)
    root, info = torch.linalg.cholesky_ex(flat)
    used = torch.zeros_like(scale)
    for relative in JITTER[flat.dtype][1:]:
        failed = (info != 0).nonzero()[:, 0]
        if len(failed) == 0:
            break
        used[failed] = relative * scale[failed]
        info[failed] = torch.linalg.cholesky_ex(_add_jitter(flat[failed].detach(), used[failed]))[1]
    if bool((info != 0).any()):
        raise ValueError(
            "a kernel matrix could not be factorised even with jitter: it is not positive semi-definite or not finite. "
            "Check the kernel and the scale of the features."
        )
    if bool((used > 0).any()):  # at once for all of them, so that derivatives pass through
        root, _ = torch.linalg.cholesky_ex(_add_jitter(flat, used))
    return root.reshape(covariance.shape), used.reshape(batch)


def _add_jitter(matrices: Tensor, jitter: Tensor) -> Tensor:
    return matrices + torch.diag_embed(jitter.unsqueeze(-1).expand(matrices.shape[:-1]))


#: Relative residual at which conjugate gradients stop, and the number of steps after which they give up.
CG_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
CG_STEPS = 200


def conjugate_gradients(apply: Callable[[Tensor], Tensor], rhs: Tensor) -> tuple[Tensor, bool]:
    """x with apply(x) = rhs for a symmetric positive definite map of the last dimension, and whether it was reached.

    All systems of the batch take their steps together, each with its own coefficients.
    """
    x, residual = torch.zeros_like(rhs), rhs.clone()
    direction = residual.clone()
    square = residual.square().sum(-1, keepdim=True)
    enough = square * CG_TOLERANCE[rhs.dtype] ** 2
    for _ in range(CG_STEPS):
        if bool((square <= enough).all()):
            return x, True
        image = apply(direction)
        # a system that is solved exactly has a zero direction: 0/0 there is 0
        step = (square / (direction * image).sum(-1, keepdim=True)).nan_to_num(nan=0.0)
        x += step * direction
        residual -= step * image
        square, before = residual.square().sum(-1, keepdim=True), square
        direction = residual + (square / before).nan_to_num(nan=0.0) * direction
    return x, bool((square <= enough).all())
