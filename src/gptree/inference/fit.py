"""Fitting all nodes: batches within a memory budget, in one process or over joblib's workers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import torch
from gpytorch.kernels import Kernel
from joblib import Parallel, delayed, effective_n_jobs
from torch import Tensor

from gptree.inference.coordinate_ascent import LearnKernel, initial_state, sweep
from gptree.inference.gibbs import Diagnostics
from gptree.inference.grams import Grams
from gptree.inference.nodes import (
    LARGEST_PADDED_CPU,
    LARGEST_PADDED_CUDA,
    NodeBatch,
    NodeProblem,
    make_batches,
)
from gptree.inference.posterior import NodePosterior
from gptree.inference.sparse_variational import SparseVariational
from gptree.maths.conditional import log_augmented_marginal
from gptree.maths.kernels import node_kernels
from gptree.maths.polya_gamma import pg_mean


class Inference(Protocol):
    """What `Gibbs` and `CoordinateAscent` share: a batch of nodes in, their posterior out."""

    @property
    def draws(self) -> int: ...

    def fit(self, batch: NodeBatch, grams: Grams, work: int) -> tuple[NodePosterior, Diagnostics]: ...


@dataclass(frozen=True)
class NodeFits:
    """Posteriors of all nodes, batch by batch."""

    grams: Grams
    """The features and the kernel that was fitted."""
    posteriors: tuple[NodePosterior, ...]
    diagnostics: Diagnostics
    """In the order of the problems."""


def fit_nodes(
    problems: Sequence[NodeProblem],
    kernel: Kernel,
    X: Tensor,
    inference: Inference,
    *,
    memory_budget: int,
    n_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> NodeFits:
    """Fit every problem over the features X (n, d).

    Of `memory_budget` (bytes), up to a quarter may go to the shared Gram matrix, and an eighth to the matrices at work.
    `progress` is called with the number of nodes that have been finished.
    """
    work = memory_budget // X.element_size() // 8
    learn = getattr(inference, "learn", None)
    if learn is not None:
        seen = inference.thinned(problems) if isinstance(inference, SparseVariational) else problems
        kernel = learn_kernel(seen, kernel, X, learn, work)
    grams = Grams(kernel, X, memory_budget // 4)
    batches = _batches(problems, grams, work)
    if effective_n_jobs(n_jobs) == 1:  # pyright: ignore[reportArgumentType]  (None means the backend's default)
        results = []
        for batch in batches:
            results.append(_fit_batch(inference, batch, grams, work))
            if progress is not None:
                progress(len(batch))
    else:
        results = _fit_parallel(batches, grams, inference, work, n_jobs, progress)
    posteriors, diagnostics = zip(*results, strict=True) if results else ((), ())
    return NodeFits(grams, tuple(posteriors), _merge(diagnostics))


@torch.no_grad()
def _fit_batch(inference: Inference, batch: NodeBatch, grams: Grams, work: int) -> tuple[NodePosterior, Diagnostics]:
    return inference.fit(batch, grams, work)


def _fit_parallel(
    batches: list[NodeBatch],
    grams: Grams,
    inference: Inference,
    work: int,
    n_jobs: int | None,
    progress: Callable[[int], None] | None,
) -> list[tuple[NodePosterior, Diagnostics]]:
    """Each task carries the rows of its own batch only, and rebuilds their Gram matrix where it runs."""
    used = [batch.used_rows for batch in batches]
    tasks = (
        delayed(_fit_batch)(inference, batch.on_rows(rows), grams.restricted(rows), work)
        for batch, rows in zip(batches, used, strict=True)
    )
    results = []
    fitted: list[Any] = list(Parallel(n_jobs=n_jobs)(tasks))
    for batch, rows, (posterior, diagnostics) in zip(batches, used, fitted, strict=True):
        results.append((replace(posterior, rows=rows[posterior.rows]), diagnostics))
        if progress is not None:
            progress(len(batch))
    return results


def _batches(problems: Sequence[NodeProblem], grams: Grams, work: int) -> list[NodeBatch]:
    largest_padded = LARGEST_PADDED_CUDA if grams.X.is_cuda else LARGEST_PADDED_CPU
    gathers_features = grams.per_node or grams.features is not None
    width = grams.X.shape[1] if gathers_features else 1
    return list(make_batches(problems, grams.X.dtype, work // 3, largest_padded, width, grams.uses_weight_space))


def _merge(parts: Sequence[Diagnostics]) -> Diagnostics:
    """Diagnostics of all batches in the order of the nodes."""
    if not parts:
        return Diagnostics(torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long))
    order = torch.cat([part.nodes.cpu() for part in parts]).argsort()
    merged: dict[str, Any] = {
        field.name: torch.cat([getattr(part, field.name).cpu() for part in parts])[order]
        for field in fields(Diagnostics)
        if getattr(parts[0], field.name) is not None
    }
    return Diagnostics(**merged)


def learn_kernel(problems: Sequence[NodeProblem], kernel: Kernel, X: Tensor, learn: LearnKernel, work: int) -> Kernel:
    """Hyper-parameters by gradient ascent on the (weighted) sum of the node bounds; returns a new kernel.

    At fixed q(ω) the bound depends on the kernel through log p(y | E ω) alone (`collapsed_bound`), so every round
    updates q(ω) by one sweep and then follows the gradient of that.
    """
    kernel = node_kernels(kernel, len(problems)) if learn.per_node else copy.deepcopy(kernel)
    parameters = [p for p in kernel.parameters() if p.requires_grad]
    if not parameters or not problems:
        return kernel
    optimiser = torch.optim.Adam(parameters, lr=learn.rate, maximize=True)
    grams = Grams(kernel, X, cache_bytes=0)
    batches = _batches(problems, grams, work)
    states = [initial_state(batch)[0] for batch in batches]
    for _ in range(learn.steps):
        optimiser.zero_grad()
        grams = Grams(kernel, X, cache_bytes=0)
        for i, batch in enumerate(batches):
            with torch.no_grad():
                states[i], _ = sweep(grams.space(batch)[0], batch, pg_mean(states[i], batch.b))
            omega = pg_mean(states[i], batch.b)
            space, *_ = grams.space(batch)
            bounds = log_augmented_marginal(space, omega, batch.kappa, batch.b, batch.mu)
            # a row of weight b counts as b rows: those of a mini-batch then stand for all rows of their node
            sizes = batch.b.sum(-1) if learn.node_weights == "size" else 1.0
            (bounds / sizes).sum().backward(retain_graph=grams.features is not None)
        optimiser.step()
    return kernel.eval()
