"""Linear algebra: Cholesky factors with and without jitter, triangular inverses, conjugate gradients.

The jitter here is for covariance matrices that stay as they are. Inducing points that move with a network have another
one, see `gptree.deep.heads.gp_tree`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

#: Rows that are copied or compared at a time.
BLOCK_ROWS = 2**14
#: Jitter tried on a covariance matrix, relative to its mean diagonal, smallest first. Zero comes first: a matrix that
#: factorises as it is stays as it is.
JITTER = {
    torch.float32: (0.0, 1e-6, 1e-5, 1e-4, 1e-3),
    torch.float64: (0.0, 1e-10, 1e-8, 1e-6, 1e-4),
}


def cholesky(matrix: Tensor) -> Tensor:
    """Lower Cholesky factor of well-conditioned matrices, such as B = I + Ω^½ K Ω^½; no jitter.

    Parameters
    ----------
    matrix : tensor (..., n, n)
        Only the lower triangle counts.

    Returns
    -------
    tensor (..., n, n)
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    if bool((info != 0).any()):
        raise ValueError(
            "a matrix of the form I + (positive semi-definite) could not be factorised: the kernel matrix is not "
            "positive semi-definite or holds huge values. Check the kernel and the scale of the features."
        )
    return factor


def covariance_root(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Lower Cholesky root of covariance matrices, with the smallest jitter that lets each one factorise.

    The jitter of a matrix is taken from the ladder `JITTER`, whatever its neighbours in the batch need.

    Parameters
    ----------
    covariance : tensor (..., n, n)

    Returns
    -------
    root : tensor (..., n, n)
        L with L Lᵀ = covariance + jitter · I; differentiable.
    jitter : tensor (...,)
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
    if used.any():  # at once for all of them, so that derivatives pass through
        root, _ = torch.linalg.cholesky_ex(_add_jitter(flat, used))
    return root.reshape(covariance.shape), used.reshape(batch)


def _add_jitter(matrices: Tensor, jitter: Tensor) -> Tensor:
    return matrices + torch.diag_embed(jitter.unsqueeze(-1).expand(matrices.shape[:-1]))


#: Triangular matrices up to about this order are inverted by solving; larger ones by products of their blocks.
SOLVED_ORDER = 32
#: Products of triangular matrices go by blocks of at most this order, and leave out those that are zero.
BLOCK_ORDER = 512
#: Products with triangular matrices of at least this order go by halves.
HALVED_ORDER = 768


def triangular_inverse(L: Tensor, out: Tensor | None = None) -> Tensor:
    """Inverses of lower triangular matrices (..., n, n).

    Blocks on the diagonal are inverted all at once, then joined in pairs: with X = L⁻¹, X₂₁ = −X₂₂ L₂₁ X₁₁. Nearly all
    of the work is in products, at which GPUs are several times faster than at solving with a triangular matrix.

    Parameters
    ----------
    L : tensor (..., n, n)
    out : tensor (V, n, n), optional
        Zeros to write to, for L (V, n, n).
    """
    *_, n = L.shape
    size, order = _halved(n)
    flat = L.reshape(-1, n, n)
    direct = len(flat) == 1 and order == n
    if direct:
        X = torch.zeros_like(flat) if out is None else out
    else:  # so far apart that the blocks on all diagonals are evenly spaced, and padded with the identity
        padded, X = flat.new_zeros(2, len(flat), order + 1, order)[:, :, :order]
        padded[:, :n, :n] = flat
        padded.diagonal(dim1=-2, dim2=-1)[:, n:].fill_(1.0)
        flat = padded
    _blocks(X, size).copy_(
        torch.linalg.solve_triangular(_blocks(flat, size), _identity(size, L.dtype, L.device), upper=False)
    )
    while size < order:
        first, second = _blocks(X, size)[::2], _blocks(X, size)[1::2]
        below, target = (_blocks(each[:, size:], size, beside=True)[::2] for each in (flat, X))
        target.baddbmm_(second, below @ first, beta=0.0, alpha=-1.0)
        size *= 2
    if direct:
        return X.reshape(L.shape)
    return X[:, :n, :n].contiguous().reshape(L.shape) if out is None else out.copy_(X[:, :n, :n])


@lru_cache
def _identity(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    identity = torch.eye(size, dtype=dtype, device=device)
    if device.type == "cuda":  # whatever stream asks next
        torch.cuda.current_stream(device).synchronize()
    return identity


def _halved(n: int) -> tuple[int, int]:
    """The size of the blocks that an inverse of order n begins with, and the order that doubling it leads to."""
    halvings = 0
    while n > SOLVED_ORDER << halvings:
        halvings += 1
    while n % (1 << halvings) and n >> (halvings - 1) <= 2.5 * SOLVED_ORDER:
        halvings -= 1  # somewhat larger blocks rather than padding
    size = -(-n >> halvings)  # rounded up
    return size, size << halvings


def _blocks(matrices: Tensor, size: int, beside: bool = False) -> Tensor:
    """The blocks of this size along all diagonals, (V n / size, size, size), as a view of evenly spaced matrices.

    Those `beside` the diagonal of matrices that have lost their first rows are one fewer, and the last is not among
    those at even places.
    """
    (count, n, _), (_, down, across) = matrices.shape, matrices.stride()
    number = max(0, count * (n // size) + (count - 1) * beside)
    shape, strides = (number, size, size), (size * (down + across), down, across)
    return matrices.as_strided(shape, strides, matrices.storage_offset())


def times_lower(B: Tensor, L: Tensor) -> Tensor:
    """B L (V, m, n) for lower triangular L (V, n, n); large ones leave out a zero quarter."""
    if L.shape[-1] < HALVED_ORDER:
        return B @ L
    out, (a, b) = torch.empty_like(B, memory_format=torch.contiguous_format), _halves(L)
    _put(out[..., a], B, L[:, :, a])
    _put(out[..., b], B[..., b], L[:, b, b])
    return out


def times_lower_transposed(B: Tensor, L: Tensor) -> Tensor:
    """B Lᵀ (V, m, n), likewise."""
    if L.shape[-1] < HALVED_ORDER:
        return B @ L.mT
    out, (a, b) = torch.empty_like(B, memory_format=torch.contiguous_format), _halves(L)
    _put(out[..., a], B[..., a], L[:, a, a].mT)
    _put(out[..., b], B, L[:, b, :].mT)
    return out


def subtract_lower_times(total: Tensor, L: Tensor, B: Tensor) -> None:
    """total −= L B (V, n, m), likewise."""
    if L.shape[-1] < HALVED_ORDER:
        total.baddbmm_(L, B, alpha=-1.0)
        return
    a, b = _halves(L)
    total[:, a].baddbmm_(L[:, a, a], B[:, a], alpha=-1.0)
    total[:, b].baddbmm_(L[:, b], B, alpha=-1.0)


def subtract_square(total: Tensor, B: Tensor) -> None:
    """total −= B Bᵀ (V, n, n), in its lower triangle; above it, only some of it in large matrices."""
    if total.shape[-1] < HALVED_ORDER:
        total.baddbmm_(B, B.mT, alpha=-1.0)
        return
    a, b = _halves(total)
    total[:, a, a].baddbmm_(B[:, a], B[:, a].mT, alpha=-1.0)
    total[:, b].baddbmm_(B[:, b], B.mT, alpha=-1.0)


def _halves(matrix: Tensor) -> tuple[slice, slice]:
    n = matrix.shape[-1]
    return slice(0, n // 2), slice(n // 2, n)


def _put(out: Tensor, A: Tensor, B: Tensor) -> None:
    """out = A B, without a matrix in between."""
    out.baddbmm_(A, B, beta=0.0)


def semiseparable_sandwich(X: Tensor, G: Tensor, A: Tensor) -> Tensor:
    """Xᵀ T X (V, n, n) for lower triangular X, T the lower triangle of G Aᵀ with half its diagonal; G, A (V, n, N).

    Left of a block on its diagonal T is a product of rank N: T X costs next to nothing. Xᵀ (T X) leaves out zeros.
    """
    *_, n = X.shape
    count = max(1, -(-n // BLOCK_ORDER))
    out, seen, start = torch.zeros_like(X), None, 0
    for i in range(count):
        end = n * (i + 1) // count
        rows, g, a = X[..., start:end, :end], G[..., start:end, :], A[..., start:end, :]
        T = (g @ a.mT).tril_()
        T.diagonal(dim1=-2, dim2=-1).mul_(0.5)
        TX = T @ rows
        if seen is not None:  # Σ a xᵀ over all rows above
            TX[..., :start] += g @ seen
        out[..., :end, :end].baddbmm_(rows.mT, TX)
        if end < n:
            above, seen = seen, a.mT @ rows
            if above is not None:
                seen[..., :start] += above
        start = end
    return out


#: Relative residual at which conjugate gradients stop, and the number of steps after which they give up.
CG_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
CG_STEPS = 200


def conjugate_gradients(apply: Callable[[Tensor], Tensor], rhs: Tensor) -> tuple[Tensor, bool]:
    """x with apply(x) = rhs for a symmetric positive definite map of the last dimension.

    All systems of the batch take their steps together, each with separate coefficients.

    Parameters
    ----------
    apply : function of tensors (..., n)
    rhs : tensor (..., n)

    Returns
    -------
    x : tensor (..., n)
    arrived : bool
        Whether all residuals fell below `CG_TOLERANCE` within `CG_STEPS` steps.
    """
    x, residual = torch.zeros_like(rhs), rhs.clone()
    direction = residual.clone()
    square = residual.square().sum(-1, keepdim=True)
    enough = square * CG_TOLERANCE[rhs.dtype] ** 2
    for _ in range(CG_STEPS):
        image = apply(direction)
        # a system that is solved exactly has a zero direction: 0/0 there is 0
        step = (square / (direction * image).sum(-1, keepdim=True)).nan_to_num()
        x += step * direction
        residual -= step * image
        square, before = residual.square().sum(-1, keepdim=True), square
        if bool((square <= enough).all()):
            return x, True
        direction = residual + (square / before).nan_to_num() * direction
    return x, False
