"""The deterministic mean-field posterior q(f) q(ω) at the nodes, on the full Gram matrix or on inducing points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gptree.inference.gibbs import Diagnostics
from gptree.inference.grams import Grams
from gptree.inference.nodes import NodeBatch
from gptree.inference.posterior import NodePosterior, make_posterior
from gptree.maths.conditional import Space, collapsed_bound
from gptree.maths.polya_gamma import pg_mean
from gptree.settings import Settings, require


@dataclass(frozen=True)
class LearnKernel(Settings):
    """Learn the kernel's hyper-parameters by gradient on the summed node bounds.

    Each of `steps` rounds takes one sweep of coordinate ascent and one step of Adam at learning rate `rate`; with
    `per_node` every node has its own set of hyper-parameters, otherwise one set is shared by all nodes. Then
    `node_weights` says what a node counts in the sum: with "equal" its whole bound, so that nodes near the root, which
    have the most rows, decide; with "size", as in the paper, its bound a row.
    """

    steps: int = 50
    rate: float = 0.1
    per_node: bool = False
    node_weights: Literal["equal", "size"] = "equal"

    def __post_init__(self) -> None:
        require(self.steps >= 1, f"LearnKernel needs at least one step, got steps={self.steps}.")
        require(self.rate > 0, f"the learning rate must be positive, got rate={self.rate}.")
        require(
            self.node_weights in ("equal", "size"),
            f'node_weights must be "equal" or "size" (each bound divided by its rows), got {self.node_weights!r}.',
        )


@dataclass(frozen=True)
class CoordinateAscent(Settings):
    """Coordinate ascent on the variational bound: q(f) given E[ω], then q(ω) = PG(b, c) given q(f), in turn.

    Stops when no latent mean moved by more than `tolerance` in a sweep, or after `sweeps`. A tolerance of 0 asks for
    exactly so many sweeps, and whether they settled is then not judged.
    """

    sweeps: int = 50
    tolerance: float = 1e-2
    learn: LearnKernel | None = None

    draws = 1

    def __post_init__(self) -> None:
        require(self.sweeps >= 1, f"CoordinateAscent needs at least one sweep, got sweeps={self.sweeps}.")
        require(self.tolerance >= 0, f"tolerance must not be negative, got {self.tolerance}.")
        require(
            self.learn is None or isinstance(self.learn, LearnKernel),
            f"learn must be None or a LearnKernel, got {self.learn!r}.",
        )

    def fit(self, batch: NodeBatch, grams: Grams, work: int) -> tuple[NodePosterior, Diagnostics]:
        """Posterior of a batch, and diagnostics."""
        space, root, jitter = grams.space(batch)
        c, mean = initial_state(batch)
        real = batch.b > 0
        change = torch.full((len(batch),), torch.inf, dtype=c.dtype, device=c.device)
        taken = torch.zeros(len(batch), dtype=torch.long, device=c.device)
        for _ in range(self.sweeps):
            moving = change > self.tolerance  # a node that has settled stays: its result must not depend on others
            if not bool(moving.any()):
                break
            new_c, new_mean = sweep(space, batch, pg_mean(c, batch.b))
            change = torch.where(moving, ((new_mean - mean).abs() * real).amax((0, -1)), change)
            c = torch.where(moving.unsqueeze(-1), new_c, c)
            mean = torch.where(moving.unsqueeze(-1), new_mean, mean)
            taken += moving
        omega = pg_mean(c, batch.b)
        L = space.factor(omega)
        posterior = make_posterior(batch, space, root, omega, work, L)
        bound = collapsed_bound(space, c, omega, batch.kappa, batch.b, batch.mu, L)[0]
        found = Diagnostics(
            batch.nodes, taken, bound=bound, change=change, converged=self._settled(change), jitter=jitter
        )
        return posterior, found

    def _settled(self, change: Tensor) -> Tensor | None:
        return change <= self.tolerance if self.tolerance > 0 else None


def initial_state(batch: NodeBatch) -> tuple[Tensor, Tensor]:
    """c² = μ² + ¼ and the prior mean, (1, V, N) each."""
    return (batch.mu.square() + 0.25).sqrt().unsqueeze(0), batch.mu.unsqueeze(0)


def sweep(space: Space, batch: NodeBatch, omega: Tensor) -> tuple[Tensor, Tensor]:
    """One sweep from E[ω]: the best q(f), then c_i = √E[f_i²]; returns c and E[f], (1, V, N) each."""
    L = space.factor(omega)
    mean = batch.mu + space.mean(space.weights(L, omega, batch.kappa - omega * batch.mu))
    return (space.variance(L, omega) + mean.square()).sqrt(), mean
