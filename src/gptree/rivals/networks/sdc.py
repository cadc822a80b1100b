"""SDC, semantic drift compensation (Yu et al. 2020)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor


def compensated(prototypes: Tensor, before: Tensor, after: Tensor, sigma: float) -> Tensor:
    """Prototypes moved by the drift of the rows near them.

    Δ_c = Σ_i w_ci (after_i − before_i), w_ci = softmax_i(−‖before_i − μ_c‖² / 2σ²): the published ratio of
    sums without its underflow for small σ.

    Parameters
    ----------
    prototypes : Tensor (C, d)
        μ, under the network before the session.
    before, after : Tensor (n, d)
        The session's rows under the network before and after it.
    sigma : float

    Returns
    -------
    Tensor (C, d)
    """
    squares = (prototypes[:, None] - before).square().sum(-1)
    return prototypes + (squares / (-2 * sigma**2)).softmax(1) @ (after - before)


def embedding_penalty(new: Tensor, old: Tensor) -> Tensor:
    """½ Σ_i ‖z_i − z_i^old‖² over the batch: learning without forgetting, on embeddings."""
    return 0.5 * (new - old).square().sum()


def importance_penalty(weights: Sequence[Tensor], old: Sequence[Tensor], importance: Sequence[Tensor]) -> Tensor:
    """½ Σ_p Ω_p (θ_p − θ_p^old)²: memory-aware synapses."""
    terms = [
        (omega * (new - before).square()).sum() for new, before, omega in zip(weights, old, importance, strict=True)
    ]
    return 0.5 * torch.stack(terms).sum()


def importances(
    embed: Callable[[Tensor], Tensor], batches: Iterable[Tensor], weights: Sequence[Tensor]
) -> list[Tensor]:
    """Ω, as in the released code: mean over batches of (∂ Σ_i ‖f(x_i)‖ / ∂θ)², f not scaled to unit length.

    Parameters
    ----------
    embed : callable
        From inputs (B, …) to embeddings (B, d).
    batches : iterable of Tensor
        Inputs of the last session.
    weights : sequence of Tensor
        θ, those that are trained.
    """
    total, count = [torch.zeros_like(weight) for weight in weights], 0
    for x in batches:
        gradients = torch.autograd.grad(embed(x).norm(dim=1).sum(), list(weights), allow_unused=True)
        for omega, gradient in zip(total, gradients, strict=True):
            if gradient is not None:
                omega += gradient.square()
        count += 1
    return [omega / max(count, 1) for omega in total]
