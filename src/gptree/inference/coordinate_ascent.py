"""Coordinate ascent on the mean-field posterior q(f) q(ω), on the full Gram matrix or on inducing points."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gptree.inference.base import Diagnostics, Inference
from gptree.inference.grams import Grams
from gptree.inference.learn_kernel import LearnKernel
from gptree.inference.mean_field import initial_state, sweep
from gptree.inference.nodes import NodeBatch
from gptree.inference.posterior import NodePosterior, make_posterior
from gptree.maths.conditional import collapsed_bound
from gptree.maths.polya_gamma import pg_mean
from gptree.settings import require


@dataclass(frozen=True)
class CoordinateAscent(Inference):
    """Coordinate ascent on the variational bound: q(f) given E[ω], then q(ω) = PG(b, c) given q(f), in turn.

        q(f) = N(μ + Σ κ̃, Σ),  Σ = (K⁻¹ + diag E[ω])⁻¹,  κ̃ = κ − E[ω] μ,    c_i² = E[f_i²]

    Parameters
    ----------
    sweeps : int
        At most so many.
    tolerance : float
        A node stops when none of its latent means moved by more than this in a sweep. 0 asks for exactly `sweeps`
        sweeps, and `Diagnostics.converged` is then None.
    learn : LearnKernel or None
        Learn the kernel first.

    Examples
    --------
    >>> from gptree import CoordinateAscent, GPTreeClassifier
    >>> model = GPTreeClassifier(prior_mean=None, inference=CoordinateAscent(sweeps=20))
    """

    sweeps: int = 50
    tolerance: float = 1e-2
    learn: LearnKernel | None = None

    name = "coordinate-ascent"
    sparse = True

    def __post_init__(self) -> None:
        require(self.sweeps >= 1, f"{type(self).__name__} needs at least one sweep, got sweeps={self.sweeps}.")
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
            # paper section 3.2
            new_c, new_mean = sweep(space, batch, pg_mean(c, batch.b))
            change = torch.where(moving, ((new_mean - mean).abs() * real).amax((0, -1)), change)
            c = torch.where(moving.unsqueeze(-1), new_c, c)
            mean = torch.where(moving.unsqueeze(-1), new_mean, mean)
            taken += moving
        omega = pg_mean(c, batch.b)
        L = space.factor(omega)
        posterior = make_posterior(batch, space, omega, work, root=root, L=L)
        bound = collapsed_bound(space, c, omega, batch.kappa, batch.b, batch.mu, L)[0]
        diagnostics = Diagnostics(
            batch.nodes, taken, bound=bound, change=change, converged=self._settled(change), jitter=jitter
        )
        return posterior, diagnostics

    def _settled(self, change: Tensor) -> Tensor | None:
        return change <= self.tolerance if self.tolerance > 0 else None
