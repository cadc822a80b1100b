"""Block Gibbs sampling at the nodes: f | ω, y is Gaussian, ω | f is Pólya-Gamma."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gptree.inference.base import Diagnostics, Inference
from gptree.inference.grams import Grams
from gptree.inference.nodes import NodeBatch, generators
from gptree.inference.posterior import EXPLICIT_ORDER, NodePosterior, draw_chunks, make_posterior
from gptree.maths.conditional import ITERATIVE_ORDER, Space
from gptree.maths.polya_gamma import sample_pg
from gptree.settings import require


@dataclass(frozen=True)
class Gibbs(Inference):
    """Block Gibbs sampling: f | ω, y ~ N(μ + Σ κ̃, Σ) with Σ = (K⁻¹ + Ω)⁻¹, then ω_i | f ~ PG(b_i, f_i), in turn.

    Every chain starts from the prior: f ~ N(μ, K), ω ~ PG(b, f). Has no form with inducing points.

    Parameters
    ----------
    chains : int
        Independent chains.
    steps : int
        Sweeps of each chain.
    keep : int
        The last so many ω of each chain predict: ``chains * keep`` draws at every node.
    pooled : bool
        At large nodes, of more than 192 points, compute variances once, at the mean ω of the draws, and not for every
        draw: faster with many draws, while probabilities move a little.

    Examples
    --------
    >>> from gptree import Gibbs, GPTreeClassifier
    >>> model = GPTreeClassifier.paper("rbf", inference=Gibbs(chains=20, steps=5))
    """

    chains: int = 10
    steps: int = 1
    keep: int = 1
    pooled: bool = False

    name = "gibbs"

    def __post_init__(self) -> None:
        require(self.chains >= 1, f"Gibbs needs at least one chain, got chains={self.chains}.")
        require(self.steps >= 1, f"Gibbs needs at least one step, got steps={self.steps}.")
        require(1 <= self.keep <= self.steps, f"keep must lie between 1 and steps={self.steps}, got {self.keep}.")

    def fit(self, batch: NodeBatch, grams: Grams, work: int) -> tuple[NodePosterior, Diagnostics]:
        """Posterior of a batch, and diagnostics. `work` bounds the numbers held in one go."""
        space, *_ = grams.space(batch)
        random = generators(batch.seeds, batch.rows.device)
        start = space.prior_draw(_normals(batch, self.chains, space.noise_widths[0], random))
        omega = _sample_omega(batch, batch.mu + start, random)
        kept_f, kept_omega = [], []
        for step in range(self.steps):
            # paper section 3.2
            f = self._sample_f(batch, space, omega, random, work)
            omega = _sample_omega(batch, f, random)
            if step >= self.steps - self.keep:
                kept_f.append(f)
                kept_omega.append(omega)
        pooled = self.pooled and space.order > EXPLICIT_ORDER
        posterior = make_posterior(batch, space, torch.cat(kept_omega), work, pooled=pooled)
        r_hat = None
        if self.keep > 1:  # padded points are drawn as well, but are no part of a node
            r_hat = split_r_hat(torch.stack(kept_f, 1)).masked_fill(batch.b == 0, -torch.inf).amax(-1)
        sweeps = torch.full((len(batch),), self.steps)
        return posterior, Diagnostics(batch.nodes, sweeps, r_hat=r_hat)

    def _sample_f(
        self, batch: NodeBatch, space: Space, omega: Tensor, random: list[torch.Generator], work: int
    ) -> Tensor:
        """f ~ p(f | ω, y), (chains, V, N)."""
        z, epsilon = (_normals(batch, self.chains, width, random) for width in space.noise_widths)
        if space.order >= ITERATIVE_ORDER:
            return batch.mu + space.draw(None, omega, batch.kappa - omega * batch.mu, z, epsilon)
        f = torch.empty(self.chains, *batch.rows.shape, dtype=omega.dtype, device=omega.device)
        for chunk in draw_chunks(space, self.chains, work):
            L, o = space.factor(omega[chunk]), omega[chunk]
            f[chunk] = batch.mu + space.draw(L, o, batch.kappa - o * batch.mu, z[chunk], epsilon[chunk])
        return f


def _normals(batch: NodeBatch, draws: int, width: int | None, random: list[torch.Generator]) -> Tensor:
    """Standard normals (draws, V, width) from each node's generator; None is one a point, zero on padding."""
    size = batch.rows.shape[1] if width is None else width
    out = batch.mu.new_zeros(draws, len(batch), size)
    for v, (n, generator) in enumerate(zip(batch.sizes, random, strict=True)):
        count = n if width is None else width
        out[:, v, :count] = torch.randn(draws, count, generator=generator, dtype=out.dtype, device=out.device)
    return out


def _sample_omega(batch: NodeBatch, f: Tensor, random: list[torch.Generator]) -> Tensor:
    """ω ~ PG(b, f), zero on padding."""
    omega = torch.zeros_like(f)
    for v, (n, generator) in enumerate(zip(batch.sizes, random, strict=True)):
        # paper (4)
        omega[:, v, :n] = sample_pg(f[:, v, :n].contiguous(), batch.b[v, :n], generator=generator)
    return omega


def split_r_hat(draws: Tensor) -> Tensor:
    """Split R̂ (Gelman et al.): each chain's halves count as two chains.

    With fewer than four kept draws a chain is not halved; with a single chain of under four draws R̂ is NaN.

    Parameters
    ----------
    draws : tensor (chains, kept, ...)

    Returns
    -------
    tensor (...)
    """
    chains, kept = draws.shape[:2]
    if kept >= 4:
        half = kept // 2
        draws = torch.cat([draws[:, :half], draws[:, -half:]])
        chains, kept = draws.shape[:2]
    if chains < 2 or kept < 2:
        return torch.full(draws.shape[2:], torch.nan, dtype=draws.dtype, device=draws.device)
    within = draws.var(1).mean(0)
    between = draws.mean(1).var(0)
    tiny = torch.finfo(draws.dtype).tiny
    ratio = ((kept - 1) / kept * within + between) / within.clamp_min(tiny)
    never_moved = (within <= tiny) & (between <= tiny)  # and all at one place: nothing disagrees
    return torch.where(never_moved, torch.ones_like(ratio), ratio).sqrt()
