"""The updates of the mean-field posterior q(f) q(ω), which coordinate ascent and the learning of kernels share."""

from __future__ import annotations

from torch import Tensor

from gptree.inference.nodes import NodeBatch
from gptree.maths.conditional import Space


def initial_state(batch: NodeBatch) -> tuple[Tensor, Tensor]:
    """c² = μ² + ¼ and the prior mean, (1, V, N) each."""
    return (batch.mu.square() + 0.25).sqrt().unsqueeze(0), batch.mu.unsqueeze(0)


def sweep(space: Space, batch: NodeBatch, omega: Tensor) -> tuple[Tensor, Tensor]:
    """One sweep from E[ω]: the best q(f), then c_i = √E[f_i²]; returns c and E[f], (1, V, N) each."""
    L = space.factor(omega)
    mean = batch.mu + space.mean(space.weights(L, omega, batch.kappa - omega * batch.mu))
    # paper (16)
    return (space.variance(L, omega) + mean.square()).sqrt(), mean
