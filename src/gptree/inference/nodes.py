"""The binary problems at the nodes of a tree, and batches of them.

Nodes differ in size. They are processed in batches of similar size, padded to the largest of the batch; a padded point
has b = κ = ω = 0, which is exact (see `gptree.maths.conditional`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

#: Nodes larger than this are not padded: factorising one such node keeps a processor busy on its own.
LARGEST_PADDED_CPU = 128
LARGEST_PADDED_CUDA = 4096


@dataclass(frozen=True)
class NodeProblem:
    """The binary problem of one node.

    Attributes
    ----------
    rows : int64 tensor (n,)
        Rows of the feature matrix.
    left : bool tensor (n,)
        True where the row's class is on the left.
    seed : int
        Seeds everything random at this node, whatever else is fitted beside it.
    mean : tensor (n,) or None
        Prior mean μ at the rows; zero if None.
    weight : tensor (n,) or None
        Likelihood weight b at the rows; one if None.
    inducing : int64 tensor (m,) or None
        Rows of the feature matrix that serve as inducing points; None for the dense posterior.
    self_contained : bool
        Whether the posterior must do with the inducing points: the other rows will not be kept.
    """

    rows: Tensor
    left: Tensor
    seed: int
    mean: Tensor | None = None
    weight: Tensor | None = None
    inducing: Tensor | None = None
    self_contained: bool = False


@dataclass(frozen=True)
class NodeBatch:
    """V padded problems of at most N points each.

    Attributes
    ----------
    nodes : int64 tensor (V,)
        Which problems these are.
    rows : int64 tensor (V, N)
        Rows of the feature matrix; padding repeats row 0.
    kappa : tensor (V, N)
        κ = b (y − ½), 0 on padding.
    b : tensor (V, N)
        Likelihood weights, 0 on padding.
    mu : tensor (V, N)
        Prior means, 0 on padding.
    sizes, seeds : tuples of V int
        Points of each node without padding, and its seed.
    inducing : int64 tensor (V, M) or None
        Rows of inducing points.
    self_contained : bool
        As in `NodeProblem`.
    """

    nodes: Tensor
    rows: Tensor
    kappa: Tensor
    b: Tensor
    mu: Tensor
    sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    inducing: Tensor | None = None
    self_contained: bool = False

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def stack(cls, nodes: Sequence[int], problems: Sequence[NodeProblem], dtype: torch.dtype) -> NodeBatch:
        sizes = [len(p.rows) for p in problems]
        device = problems[0].rows.device
        shape = len(problems), max(sizes)
        real = torch.arange(shape[1], device=device) < torch.tensor(sizes, device=device)[:, None]
        rows = torch.zeros(shape, dtype=torch.long, device=device)
        rows[real] = torch.cat([p.rows for p in problems])
        kappa, b, mu = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(3))
        one, none = rows.new_ones(shape[1], dtype=dtype), rows.new_zeros(shape[1], dtype=dtype)
        weights = [one[:n] if p.weight is None else p.weight.to(dtype) for p, n in zip(problems, sizes, strict=True)]
        b[real] = torch.cat(weights)
        # paper (3)
        kappa[real] = b[real] * (torch.cat([p.left for p in problems]).to(dtype) - 0.5)
        means = [none[:n] if p.mean is None else p.mean.to(dtype) for p, n in zip(problems, sizes, strict=True)]
        mu[real] = torch.cat(means)
        inducing = None
        if problems[0].inducing is not None:
            inducing = torch.stack([p.inducing for p in problems if p.inducing is not None])
        return cls(
            nodes=torch.tensor(nodes, device=device),
            rows=rows,
            kappa=kappa,
            b=b,
            mu=mu,
            sizes=tuple(sizes),
            seeds=tuple(p.seed for p in problems),
            inducing=inducing,
            self_contained=problems[0].self_contained,
        )

    def to(self, device: torch.device) -> NodeBatch:
        """The same batch on a device."""
        moved = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **moved)

    def on_rows(self, used: Tensor) -> NodeBatch:
        """The same batch over the feature matrix restricted to the sorted row numbers `used`."""
        inducing = None if self.inducing is None else torch.searchsorted(used, self.inducing)
        return replace(self, rows=torch.searchsorted(used, self.rows), inducing=inducing)

    @property
    def used_rows(self) -> Tensor:
        parts = [self.rows.flatten()] if self.inducing is None else [self.rows.flatten(), self.inducing.flatten()]
        return torch.cat(parts).unique()


def size_class(n: int, largest_padded: int) -> int:
    """The padded size of a node with n points: the next value on a grid that grows by 1.25, or n itself if large."""
    if n > largest_padded:
        return n
    size = 4
    while size < n:
        size = int(size * 1.25)
    return size


def make_batches(
    problems: Sequence[NodeProblem],
    dtype: torch.dtype,
    budget: int,
    largest_padded: int,
    width: int,
    form: Callable[[int], bool],
) -> Iterator[NodeBatch]:
    """Batches of similar nodes, larger nodes first.

    A node of N points counts as N × max(N, width) numbers (N × max(M, width) with M inducing points), and a batch has
    at most `budget` of them, or is one node. `width` is the dimension where features are gathered for every node.
    Nodes of one batch agree in `form`, a property of the number of points: it must not depend on the neighbours.

    Parameters
    ----------
    problems : sequence of NodeProblem
    dtype : torch.dtype
    budget, largest_padded, width : int
    form : function from a number of points to bool

    Yields
    ------
    NodeBatch
    """
    groups: dict[tuple[int, bool, int, bool], list[int]] = {}
    for v, problem in enumerate(problems):
        n, inducing = len(problem.rows), problem.inducing
        size = size_class(n, largest_padded)
        m = size if inducing is None else len(inducing)
        groups.setdefault((size, inducing is not None, m, form(n)), []).append(v)
    for (size, _, m, _), members in sorted(groups.items(), reverse=True):
        numbers = size * max(m, width)
        step = max(1, budget // numbers)
        for start in range(0, len(members), step):
            chosen = members[start : start + step]
            yield NodeBatch.stack(chosen, [problems[v] for v in chosen], dtype)


def generators(seeds: Sequence[int], device: torch.device) -> list[torch.Generator]:
    """One generator a node, so that a node's randomness does not depend on what is fitted beside it.

    Parameters
    ----------
    seeds : sequence of int
        `NodeBatch.seeds`.
    device : torch.device

    Returns
    -------
    list of torch.Generator
    """
    return [torch.Generator(device=device).manual_seed(int(np.uint64(seed) >> np.uint64(1))) for seed in seeds]
