"""Learning a kernel's hyper-parameters by gradient on the bounds of the nodes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.inference.grams import Grams
from gptree.inference.mean_field import initial_state, sweep
from gptree.inference.nodes import NodeProblem
from gptree.maths.conditional import log_augmented_marginal
from gptree.maths.kernels import node_kernels
from gptree.maths.polya_gamma import pg_mean
from gptree.settings import Settings, require


@dataclass(frozen=True)
class LearnKernel(Settings):
    """Learn the kernel's hyper-parameters by gradient on the summed node bounds.

    Each round takes one sweep of coordinate ascent and one step of Adam.

    Parameters
    ----------
    steps : int
        Rounds.
    rate : float
        Learning rate of Adam.
    per_node : bool
        Whether every node has its own set of hyper-parameters; otherwise one set is shared by all nodes.
    node_weights : "equal" or "size"
        What a node counts in the shared sum: its whole bound, so that nodes near the root, which have the most rows,
        decide; or, as in the paper, its bound a row.

    Examples
    --------
    >>> from gptree import CoordinateAscent, GPTreeClassifier, LearnKernel
    >>> model = GPTreeClassifier(kernel="rbf", inference=CoordinateAscent(learn=LearnKernel(steps=20)))
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


def learn_kernel(problems: Sequence[NodeProblem], kernel: Kernel, X: Tensor, learn: LearnKernel, work: int) -> Kernel:
    """Hyper-parameters by gradient ascent on the (weighted) sum of the node bounds.

    At fixed q(ω) the bound depends on the kernel through log p(y | E ω) alone (`collapsed_bound`), so every round
    updates q(ω) by one sweep and then follows the gradient of that.

    Parameters
    ----------
    problems : sequence of NodeProblem
    kernel : Kernel
        Where to begin; it is not changed.
    X : tensor (n, d)
    learn : LearnKernel
    work : int
        Numbers that may be held at a time, roughly.

    Returns
    -------
    Kernel
        A new one; of batch shape (number of problems,) where every node has its own hyper-parameters.
    """
    kernel = node_kernels(kernel, len(problems)) if learn.per_node else copy.deepcopy(kernel)
    parameters = [p for p in kernel.parameters() if p.requires_grad]
    if not parameters or not problems:
        return kernel
    optimiser = torch.optim.Adam(parameters, lr=learn.rate, maximize=True)
    batches = list(Grams(kernel, X).batches(problems, work))
    states = [initial_state(batch)[0] for batch in batches]
    for _ in range(learn.steps):
        optimiser.zero_grad()
        grams = Grams(kernel, X)
        for i, batch in enumerate(batches):
            with torch.no_grad():
                states[i], _ = sweep(grams.space(batch)[0], batch, pg_mean(states[i], batch.b))
            omega = pg_mean(states[i], batch.b)
            space, *_ = grams.space(batch)
            bounds = log_augmented_marginal(space, omega, batch.kappa, batch.b, batch.mu)
            # a row of weight b counts as b rows: those of a mini-batch then stand for all rows of their node
            sizes = batch.b.sum(-1) if learn.node_weights == "size" else 1.0
            # paper (15)
            (bounds / sizes).sum().backward(retain_graph=grams.features is not None)
        optimiser.step()
    return kernel.eval()
