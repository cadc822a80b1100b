"""Sparse variational inference by natural gradients: a few inducing points a class, rows in mini-batches.

With w = L⁻¹ u the whitened values at a node's inducing points (L Lᵀ = K_mm, prior w ~ N(0, I)) and a_i = L⁻¹ k_mi, the
node's q(w) = N(P⁻¹ η, P⁻¹) is kept by its natural parameters. For rows with E[ω_i] = λ_i the best ones are

    η̂ = Σ κ̃_i a_i,    P̂ = I + Σ λ_i a_i a_iᵀ,    κ̃_i = κ_i − λ_i μ_i,

and a mini-batch B of the n rows estimates both sums without bias when they are scaled by n / |B|. A natural-gradient
step of size s goes that share of the way, η ← (1 − s) η + s η̂ and the same for P. In between, c_i² = E[f_i²] is the
closed form of q(ω_i) = PG(b_i, c_i). Step 1 on all rows is coordinate ascent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gptree.inference.base import Diagnostics
from gptree.inference.coordinate_ascent import CoordinateAscent
from gptree.inference.grams import Grams
from gptree.inference.mean_field import initial_state
from gptree.inference.nodes import NodeBatch, NodeProblem, generators
from gptree.inference.posterior import NodePosterior, SparsePosterior
from gptree.maths.conditional import WeightSpace
from gptree.maths.linalg import cholesky, covariance_root
from gptree.maths.polya_gamma import pg_kl, pg_mean
from gptree.settings import require


@dataclass(frozen=True, kw_only=True)
class SparseVariational(CoordinateAscent):
    """Natural gradients on inducing points: every node sees its rows through a few points of each of its classes.

    Small nodes take natural-gradient steps on all their rows until no latent mean moves by more than `tolerance`.
    Larger ones go over their rows in mini-batches, and the steps fall evenly from `step` to nothing. Both end with one
    step of size 1 on all rows, which the bound belongs to; at large nodes `change` is what it changed at the inducing
    points. Memory does not grow with rows × inducing points. A node without inducing points has the dense posterior of
    `CoordinateAscent`.

    Parameters
    ----------
    sweeps : int
        At most so many steps on all rows.
    tolerance : float
        As in `CoordinateAscent`.
    learn : LearnKernel or None
        Learn the kernel first, of large nodes on one mini-batch each.
    inducing : int
        Inducing points of each class.
    cap : int
        Most inducing points of a node.
    batch_size : int or None
        Nodes of more rows use mini-batches of at most so many; None is all rows at every node.
    step : float
        Size s of a natural-gradient step, 0 < s ≤ 1.
    epochs : int
        So often a large node goes over its rows, and more often until it took `sweeps` steps.

    Examples
    --------
    >>> from gptree import GPForestClassifier, SparseVariational
    >>> model = GPForestClassifier(inference=SparseVariational(inducing=5, batch_size=1000))
    """

    name = "sparse-variational"

    inducing: int = 10
    cap: int = 1024
    batch_size: int | None = None
    step: float = 1.0
    epochs: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.inducing >= 1, f"a class needs at least one inducing point, got inducing={self.inducing}.")
        require(self.cap >= 2, f"a node needs at least two inducing points, got cap={self.cap}.")
        require(
            self.batch_size is None or self.batch_size >= 1,
            f"batch_size must be None (all rows) or a positive number, got {self.batch_size}.",
        )
        require(0 < self.step <= 1, f"step must lie between 0, not included, and 1, got {self.step}.")
        require(self.epochs >= 1, f"SparseVariational needs at least one epoch, got epochs={self.epochs}.")

    def fit(self, batch: NodeBatch, grams: Grams, work: int) -> tuple[NodePosterior, Diagnostics]:
        """Posterior of a batch, and diagnostics."""
        if batch.inducing is None:
            return super().fit(batch, grams, work)
        if not self._in_batches(max(batch.sizes)):
            return self._fit_full(batch, WhitenedBatch(batch, grams, work))
        parts = [self._fit_alone(_single(batch, v), grams, work) for v in range(len(batch))]
        return _join([posterior for posterior, _ in parts], [diagnostics for _, diagnostics in parts])

    def _in_batches(self, size: int) -> bool:
        return self.batch_size is not None and size > self.batch_size

    def _fit_alone(self, node: NodeBatch, grams: Grams, work: int) -> tuple[SparsePosterior, Diagnostics]:
        rows = WhitenedBatch(node, grams, work)
        return self._fit_batches(node, rows) if self._in_batches(node.sizes[0]) else self._fit_full(node, rows)

    def _fit_full(self, batch: NodeBatch, rows: WhitenedBatch) -> tuple[SparsePosterior, Diagnostics]:
        """All rows in every step. The last sums, at the c of the last q, are the step that ends it."""
        q, (sums, mean) = rows.prior(), rows.sums(None, None)
        change = torch.full_like(sums.constant, torch.inf)
        taken = torch.zeros_like(batch.nodes)
        for _ in range(self.sweeps):
            moving = change > self.tolerance  # a node that has settled stays: its result must not depend on others
            if not bool(moving.any()):
                break
            q = q.step(sums.best(1.0), self.step * moving.to(change))
            sums, new_mean = rows.sums(None, q)
            change = torch.where(moving, _largest(batch, new_mean - mean), change)
            mean = new_mean
            taken += moving
        return self._result(batch, rows, sums, taken, change)

    def _fit_batches(self, node: NodeBatch, rows: WhitenedBatch) -> tuple[SparsePosterior, Diagnostics]:
        """Mini-batches of one node, then all its rows."""
        assert self.batch_size is not None
        (random,), n, device = generators(node.seeds, node.rows.device), node.sizes[0], node.rows.device
        # batches of equal size: a small rest would be a noisy estimate
        count = math.ceil(n / self.batch_size)
        epochs = max(self.epochs, math.ceil(self.sweeps / count))
        shuffled = [torch.randperm(n, generator=random, device=device) for _ in range(epochs)]
        batches = [some for order in shuffled for some in order.tensor_split(count)]
        q = rows.prior()
        for t, some in enumerate(batches):
            sums, _ = rows.sums(some, q if t > 0 else None)
            rate = self.step * (1.0 - t / len(batches))
            q = q.step(sums.best(n / len(some)), q.eta.new_full((1,), rate))
        sums, _ = rows.sums(None, q)
        # E[u] = L E[w] at the inducing points, before and after the last step
        moved = rows.root @ (sums.best(1.0).mean - q.mean).unsqueeze(-1)
        change, taken = moved.squeeze(-1).abs().amax(-1), torch.full_like(node.nodes, epochs)
        return self._result(node, rows, sums, taken, change)

    def _result(
        self, batch: NodeBatch, rows: WhitenedBatch, sums: Sums, taken: Tensor, change: Tensor
    ) -> tuple[SparsePosterior, Diagnostics]:
        assert batch.inducing is not None
        q = sums.best(1.0)
        # paper (14): mean⋆ = k⋆ᵀ L⁻ᵀ t, t = E[w]
        weights = torch.linalg.solve_triangular(rows.root.mT, q.mean.unsqueeze(-1), upper=True).squeeze(-1)
        posterior = SparsePosterior(batch.nodes, batch.inducing, weights.unsqueeze(0), q.precision)
        diagnostics = Diagnostics(
            batch.nodes,
            taken,
            bound=sums.bound(),
            change=change,
            converged=self._settled(change),
            jitter=rows.jitter,
        )
        return posterior, diagnostics

    def learning_problems(self, problems: Sequence[NodeProblem]) -> list[NodeProblem]:
        """The problems as one mini-batch sees them: the rows of large nodes at random, each weighing n / |B| rows."""
        return [self._thin(p) if self._in_batches(len(p.rows)) else p for p in problems]

    def _thin(self, problem: NodeProblem) -> NodeProblem:
        device, n = problem.rows.device, len(problem.rows)
        (random,) = generators([problem.seed], device)
        kept = torch.randperm(n, generator=random, device=device)[: self.batch_size].sort().values
        weight = torch.ones(n, device=device) if problem.weight is None else problem.weight
        return replace(
            problem,
            rows=problem.rows[kept],
            left=problem.left[kept],
            mean=None if problem.mean is None else problem.mean[kept],
            weight=weight[kept] * (n / len(kept)),
        )


# ------------------------------------------------------------------------------------------------ the variables


@dataclass(frozen=True)
class Natural:
    """q(w) = N(P⁻¹ η, P⁻¹) at V nodes."""

    eta: Tensor
    """η (V, M)."""
    precision: Tensor
    """P (V, M, M); only the lower triangle counts."""

    def step(self, best: Natural, rate: Tensor) -> Natural:
        """A natural-gradient step of size `rate` (V,) towards the best q."""
        # paper (17)
        eta = self.eta.lerp(best.eta, rate[:, None])
        return Natural(eta, self.precision.lerp(best.precision, rate[:, None, None]))

    @property
    def mean(self) -> Tensor:
        return torch.cholesky_solve(self.eta.unsqueeze(-1), cholesky(self.precision)).squeeze(-1)


@dataclass(frozen=True)
class Sums:
    """Sums over some rows: their part of η̂, P̂ − I and the bound."""

    eta: Tensor
    """Σ κ̃ a, (V, M)."""
    precision: Tensor
    """Σ λ a aᵀ, (V, M, M), lower triangle."""
    constant: Tensor
    """Σ [κ μ − ½ λ μ² − ½ λ Q − b log 2 − KL(PG(b, c) ‖ PG(b, 0))], (V,)."""

    def best(self, scale: float) -> Natural:
        """The q that is best for these rows, each counted `scale` times."""
        # paper (17)
        precision = scale * self.precision
        precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
        return Natural(scale * self.eta, precision)

    def bound(self) -> Tensor:
        """The variational bound at the best q, (V,): constant + ½ ηᵀ P⁻¹ η − ½ log |P|."""
        q = self.best(1.0)
        log_root = cholesky(q.precision).diagonal(dim1=-2, dim2=-1).log().sum(-1)
        # paper (13)
        return self.constant + 0.5 * (q.eta * q.mean).sum(-1) - log_root


class WhitenedBatch:
    """The rows of a batch of nodes as a_i = L⁻¹ k_mi, a few at a time; all are kept where half of `work` holds them."""

    def __init__(self, batch: NodeBatch, grams: Grams, work: int) -> None:
        assert batch.inducing is not None
        self.batch, self.grams, self.inducing = batch, grams, batch.inducing
        # paper (5)
        self.root, self.jitter = covariance_root(grams.block(batch.nodes, batch.inducing, batch.inducing))
        nodes, points = batch.inducing.shape
        # at work: gathered features, kernel values, a, λ a, L⁻¹ a
        self.rows_at_once = max(1, work // (nodes * (4 * points + 3 * grams.X.shape[1])))
        self._kept = self._all() if 2 * nodes * points * batch.rows.shape[1] <= work else None

    def prior(self) -> Natural:
        nodes, points = self.inducing.shape
        identity = torch.eye(points).to(self.root)
        return Natural(self.root.new_zeros(nodes, points), identity.expand_as(self.root))

    def sums(self, columns: Tensor | None, q: Natural | None) -> tuple[Sums, Tensor]:
        """Sums over some or all columns of the batch at the c of q, and E[f] there, (V, columns).

        Without columns these are all, and without q it is the start.
        """
        given = None if q is None else (cholesky(q.precision), q.mean.unsqueeze(0))
        first, *others = self._chunks(columns)
        total, mean = self._part(first, given)
        means = [mean]
        for chunk in others:
            part, mean = self._part(chunk, given)
            total = Sums(total.eta + part.eta, total.precision + part.precision, total.constant + part.constant)
            means.append(mean)
        return total, torch.cat(means, -1)

    def _chunks(self, columns: Tensor | None) -> Sequence[Tensor | slice]:
        """Columns so many at a time as there is room for; slices need no copies."""
        if columns is not None:
            return columns.split(self.rows_at_once)
        return [slice(i, i + self.rows_at_once) for i in range(0, self.batch.rows.shape[1], self.rows_at_once)]

    def _part(self, columns: Tensor | slice, given: tuple[Tensor, Tensor] | None) -> tuple[Sums, Tensor]:
        A, residual = self._make(columns) if self._kept is None else [kept[:, columns] for kept in self._kept]
        space, batch = WeightSpace(A, residual), _columns(self.batch, columns)
        if given is None:
            c, mean = initial_state(batch)
        else:  # c² = E[f²] = Q + ‖L⁻¹ a‖² + (μ + aᵀ E[w])², L Lᵀ = P; solved from the right there are no copies
            mean = batch.mu + space.mean(given[1])
            spread = torch.linalg.solve_triangular(given[0].mT, A, upper=True, left=False).square_().sum(-1)
            # paper (16)
            c = (residual + spread + mean.square()).sqrt()
        lam = pg_mean(c, batch.b)
        shifted = (batch.kappa - lam * batch.mu)[0]
        constant = batch.kappa * batch.mu - 0.5 * lam * (batch.mu.square() + residual) - batch.b * math.log(2)
        precision = space.precision(lam)[0]
        precision.diagonal(dim1=-2, dim2=-1).sub_(1.0)
        eta = (shifted.unsqueeze(-2) @ A).squeeze(-2)
        return Sums(eta, precision, (constant - pg_kl(c, batch.b))[0].sum(-1)), mean[0]

    def _all(self) -> tuple[Tensor, Tensor]:
        parts = [self._make(some) for some in self._chunks(None)]
        return torch.cat([A for A, _ in parts], 1), torch.cat([residual for _, residual in parts], 1)

    def _make(self, columns: Tensor | slice) -> tuple[Tensor, Tensor]:
        """A and the residual Q of some columns, (V, columns, M) and (V, columns)."""
        nodes, rows = self.batch.nodes, self.batch.rows[:, columns]
        K_nm = self.grams.block(nodes, rows, self.inducing)
        # paper (6)
        A = torch.linalg.solve_triangular(self.root.mT, K_nm, upper=True, left=False)
        return A, (self.grams.diagonal(nodes, rows) - A.square().sum(-1)).clamp_min(0.0)


def _largest(batch: NodeBatch, change: Tensor) -> Tensor:
    """The largest change at the rows that count, (V,)."""
    return (change.abs() * (batch.b > 0)).amax(-1)


def _columns(batch: NodeBatch, columns: Tensor | slice) -> NodeBatch:
    parts = {name: getattr(batch, name)[:, columns] for name in ("rows", "kappa", "b", "mu")}
    return replace(batch, **parts)


def _single(batch: NodeBatch, v: int) -> NodeBatch:
    """One node of a batch, without padding."""
    one = slice(v, v + 1)
    assert batch.inducing is not None
    parts = {name: getattr(batch, name)[one, : batch.sizes[v]] for name in ("rows", "kappa", "b", "mu")}
    return NodeBatch(
        nodes=batch.nodes[one], sizes=batch.sizes[one], seeds=batch.seeds[one], inducing=batch.inducing[one], **parts
    )


def _join(
    posteriors: Sequence[SparsePosterior], diagnostics: Sequence[Diagnostics]
) -> tuple[SparsePosterior, Diagnostics]:
    """Single nodes with the same number of inducing points as one batch again."""
    posterior = SparsePosterior(
        nodes=torch.cat([p.nodes for p in posteriors]),
        rows=torch.cat([p.rows for p in posteriors]),
        precision=torch.cat([p.precision for p in posteriors]),
        weights=torch.cat([p.weights for p in posteriors], 1),
    )
    values = {
        name: torch.cat([getattr(d, name) for d in diagnostics])
        for name, value in vars(diagnostics[0]).items()
        if value is not None
    }
    return posterior, Diagnostics(**values)
