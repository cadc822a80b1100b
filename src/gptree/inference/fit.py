"""Fitting all nodes: batches within a memory budget, in one process or over joblib's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from joblib import Parallel, delayed, effective_n_jobs
from torch import Tensor

from gptree.inference.base import Diagnostics, Inference
from gptree.inference.grams import Grams
from gptree.inference.learn_kernel import learn_kernel
from gptree.inference.nodes import NodeBatch, NodeProblem
from gptree.inference.posterior import NodePosterior, on_rows


@dataclass(frozen=True)
class NodeFits:
    """Posteriors of all nodes, batch by batch, with the kernel that was fitted.

    Attributes
    ----------
    grams : Grams
        The features and the kernel that was fitted.
    posteriors : tuple[NodePosterior, ...]
    diagnostics : Diagnostics
        In the order of the problems.
    """

    grams: Grams
    posteriors: tuple[NodePosterior, ...]
    diagnostics: Diagnostics


#: Up to so many rows one Gram matrix is cheaper than those of many small nodes, whatever these need of it.
SHARED_UP_TO = 2_000


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
    """Fit every node.

    Parameters
    ----------
    problems : sequence of NodeProblem
    kernel : Kernel
        Learnt first where ``inference.learn`` asks for it.
    X : tensor (n, d)
        Features that the problems' rows refer to.
    inference : Inference
    memory_budget : int
        Bytes: up to a quarter may go to the shared Gram matrix, where it pays, and an eighth to the matrices at work.
    n_jobs : int or None
        Workers, through joblib.
    progress : callable, optional
        Called with the number of nodes that have been finished.

    Returns
    -------
    NodeFits
    """
    work = memory_budget // X.element_size() // 8
    if not inference.sparse and any(problem.inducing is not None for problem in problems):
        raise ValueError(
            f"{type(inference).__name__} has no form with inducing points: use SubsetOfData for large nodes."
        )
    if inference.learn is not None:
        kernel = learn_kernel(inference.learning_problems(problems), kernel, X, inference.learn, work)
    asked = sum(len(each.rows) * len(each.rows if each.inducing is None else each.inducing) for each in problems)
    shared = len(X) <= SHARED_UP_TO or 2 * asked > len(X) ** 2  # the Gram matrix of all rows pays
    grams = Grams(kernel, X, memory_budget if shared else 0)
    batches = grams.batches(problems, work)
    if effective_n_jobs(n_jobs) == 1:  # pyright: ignore[reportArgumentType]  (None means the backend's default)
        results = []
        for batch in batches:
            results.append(_fit_batch(inference, batch, grams, work))
            if progress is not None:
                progress(len(batch))
    else:
        results = _fit_parallel(list(batches), grams, inference, work, n_jobs, progress)
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
    """Each task carries the rows of its batch only, and rebuilds their Gram matrix where it runs."""
    used = [batch.used_rows for batch in batches]
    tasks = (
        delayed(_fit_batch)(inference, batch.on_rows(rows), grams.restricted(rows), work)
        for batch, rows in zip(batches, used, strict=True)
    )
    results = []
    try:
        parallel = Parallel(n_jobs=n_jobs, return_as="generator")  # in order, each as soon as it is there
    except ValueError:  # multiprocessing, among others, hands over all at the end
        parallel = Parallel(n_jobs=n_jobs)
    fitted = cast("Iterable[Any]", parallel(tasks))
    for batch, rows, (posterior, diagnostics) in zip(batches, used, fitted, strict=True):
        results.append((on_rows(posterior, rows), diagnostics))
        if progress is not None:
            progress(len(batch))
    return results


def _merge(parts: Sequence[Diagnostics]) -> Diagnostics:
    """Diagnostics of all batches in the order of the nodes."""
    if not parts:
        return Diagnostics(torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long))
    order = torch.cat([part.nodes.cpu() for part in parts]).argsort()
    merged: dict[str, Any] = {
        field.name: torch.cat([getattr(part, field.name).cpu() for part in parts])[order]
        for field in fields(Diagnostics)
        if getattr(parts[0], field.name) is not None
    }
    return Diagnostics(**merged)
