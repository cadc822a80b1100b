"""A tree head node by node in plain loops: no buckets, no padding, explicit inverses, gradients by autograd alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

import slow_twins as slow
from gptree.deep import TreeHead, VariationalTree
from gptree.maths import make_kernel
from gptree.tree import ClassTree

FLOAT = torch.float64
#: Settings of a head that is compared with its twins.
in_double = partial(VariationalTree, dtype="float64")
DIMENSION = 5

TREES = {
    "two classes": ClassTree.from_nested([1, 0], range(2)),
    "chain": ClassTree.from_nested([3, [0, [4, [1, 2]]]], range(5)),
    "balanced": ClassTree.from_nested([[[5, 1], [2, 7]], [[3, 0], [4, 6]]], range(8)),
    "leaning": ClassTree.from_nested([[[2, 5], 0], [1, [4, 3]]], range(6)),
}


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=FLOAT)


def points_a_class(tree: ClassTree) -> list[int]:
    return [(3, 1, 4, 2, 5)[c % 5] for c in range(tree.n_classes)]


def rows_a_class(tree: ClassTree) -> list[int]:
    return [(4, 9, 3, 6, 5)[c % 5] for c in range(tree.n_classes)]


def make_head(
    tree: ClassTree,
    settings: VariationalTree,
    *,
    kernel: str = "rbf",
    points: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    device: str = "cpu",
) -> TreeHead:
    """A head with given numbers of points and of training rows a class; the points come in no order."""
    counts = points_a_class(tree) if points is None else points
    classes = torch.arange(tree.n_classes).repeat_interleave(torch.tensor(counts))
    classes = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(1))]
    rows = rows_a_class(tree) if rows is None else rows
    places = randn(len(classes), DIMENSION, seed=2)
    parts = places, classes, torch.tensor(rows)
    return TreeHead(tree, *(part.to(device) for part in parts), make_kernel(kernel, 4.0, 0.8), settings)


def training_rows(tree: ClassTree, seed: int = 0) -> tuple[Tensor, Tensor]:
    """All rows of `rows_a_class`, not of unit length, in no order."""
    y = torch.arange(tree.n_classes).repeat_interleave(torch.tensor(rows_a_class(tree)))
    y = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))]
    x = 2.0 * randn(len(y), DIMENSION, seed=seed + 1) + randn(tree.n_classes, DIMENSION, seed=99)[y]
    return x, y


def spread(head: TreeHead) -> None:
    """Hyper-parameters of its own for every node, where nodes have them."""
    with torch.no_grad():
        for i, p in enumerate(head.kernel.parameters()):
            p += 0.2 * randn(*p.shape, seed=20 + i).to(p)


def walk(head: TreeHead, steps: int = 3) -> None:
    """Some natural steps on batches of all classes, so that q is nothing special."""
    x, y = training_rows(head.tree, seed=5)
    for _ in range(steps):
        head.loss(x.to(head.points), y.to(head.points.device))
        head.update()


class Twin:
    """One head, looked at node by node. Of its state it reads points, kernel, jitter and q."""

    def __init__(self, head: TreeHead, rows: Sequence[int] | None = None) -> None:
        self.head, self.tree = head, head.tree
        self.rows = rows_a_class(self.tree) if rows is None else rows
        self.z = unit_length(head.points)

    def classes(self, v: int) -> list[int]:
        return [int(c) for c in self.tree.order[self.tree.lo[v] : self.tree.hi[v]]]

    def n_rows(self, v: int) -> int:
        return sum(self.rows[c] for c in self.classes(v))

    def points(self, v: int) -> list[int]:
        """Of each class at the node, in leaf order, the first few: as many a class as the cap allows, or all."""
        own = [(self.head.point_class == c).nonzero()[:, 0].tolist() for c in self.classes(v)]
        cap, quota = self.head.settings.cap, max(len(some) for some in own)
        while cap is not None and sum(len(some[:quota]) for some in own) > cap:
            quota -= 1
        return [i for some in own for i in some[:quota]]

    def natural(self, v: int) -> tuple[Tensor, Tensor]:
        """η and P of a node; what is padding must be as in the prior, and tell nothing."""
        for i, bucket in enumerate(self.head.buckets):
            for place in (bucket.nodes == v).nonzero()[:, 0].tolist():
                eta, precision = (self.head.get_buffer(f"{name}_{i}")[place] for name in ("eta", "precision"))
                n = len(self.points(v))
                assert (eta[n:] == 0).all()
                assert torch.equal(precision[n:, n:], torch.eye(len(eta) - n).to(precision))
                assert (precision[:n, n:] == 0).all()
                assert (precision[n:, :n] == 0).all()
                return eta[:n].clone(), precision[:n, :n].clone()
        raise AssertionError(f"no bucket holds node {v}")

    def kernel(self, v: int, a: Tensor, b: Tensor) -> Tensor:
        kernel = self.head.kernel
        if type(kernel.base_kernel) is not RBFKernel:
            return kernel(a, b).to_dense()
        scale, length = kernel.outputscale.reshape(-1), kernel.base_kernel.lengthscale.reshape(-1)
        at = v if self.head.settings.learn_kernel == "per-node" else 0
        return scale[at] * torch.exp(-0.5 * (a[:, None] - b).square().sum(-1) / length[at] ** 2)

    def matrices(self, v: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """K_mm with its jitter, K_mn and k_nn."""
        z, x = self.z[self.points(v)], unit_length(x)
        K_mm, k_nn = self.kernel(v, z, z), torch.stack([self.kernel(v, row, row)[0, 0] for row in x.split(1)])
        return K_mm + self.head.jitter * torch.diag(K_mm.diagonal()), self.kernel(v, z, x), k_nn

    def moments(self, v: int, x: Tensor, q: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """A (M, N), E[f] and var(f) of all rows."""
        eta, precision = self.natural(v) if q is None else q
        K_mm, K_mn, k_nn = self.matrices(v, x)
        A = torch.linalg.solve(torch.linalg.cholesky(K_mm), K_mn)
        covariance = torch.linalg.inv(precision)
        return A, A.T @ covariance @ eta, k_nn - (A * A).sum(0) + (A * (covariance @ A)).sum(0)

    def inside(self, v: int, y: Tensor) -> tuple[list[int], Tensor]:
        """The rows of a batch at the node, and their κ."""
        classes = self.classes(v)
        rows = [i for i, c in enumerate(y.tolist()) if c in classes]
        left = classes[: int(self.tree.mid[v] - self.tree.lo[v])]
        return rows, torch.tensor([0.5 if int(y[i]) in left else -0.5 for i in rows], dtype=FLOAT)

    def expected_log_likelihood(self, v: int, x: Tensor, y: Tensor, q: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Of the rows of a batch that are at the node, each counted once."""
        rows, kappa = self.inside(v, y)
        _, mean, variance = self.moments(v, x[rows], q)
        c = (variance + mean**2).sqrt()
        return (kappa * mean - torch.log(2 * torch.cosh(c / 2))).sum()

    def node_loss(self, v: int, x: Tensor, y: Tensor) -> Tensor:
        """Its part of the loss; 0 without a row."""
        hits = len(self.inside(v, y)[0])
        if hits == 0:
            return torch.zeros((), dtype=FLOAT)
        n, kind = self.n_rows(v), self.head.settings.node_weights
        weight = 1 / sum(self.rows) if kind == "equal" else 1 / n
        if kind == "balanced":  # as if each of V nodes had its share of Σ_v n_v / N
            weight *= sum(self.n_rows(u) for u in range(self.tree.n_nodes)) / self.tree.n_nodes / sum(self.rows)
        return -weight * n / hits * self.expected_log_likelihood(v, x, y)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([self.node_loss(v, x, y) for v in range(self.tree.n_nodes)]).sum()

    def best(self, v: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """η̂ and P̂ that a batch says are best: n / |B| Σ κ a and I + n / |B| Σ λ a aᵀ, row by row."""
        rows, kappa = self.inside(v, y)
        A, mean, variance = self.moments(v, x[rows])
        eta, precision = torch.zeros(len(A), dtype=FLOAT), torch.eye(len(A), dtype=FLOAT)
        for i in range(len(rows)):
            c = (variance[i] + mean[i] ** 2).sqrt()
            scale = self.n_rows(v) / len(rows)
            eta = eta + scale * kappa[i] * A[:, i]
            precision = precision + scale * slow.pg_mean(torch.ones(()), c) * torch.outer(A[:, i], A[:, i])
        return eta, precision

    def bound(self, v: int, x: Tensor, y: Tensor, q: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The bound of a node in terms of u = L w, on its rows, at the best c."""
        eta, precision = self.natural(v) if q is None else q
        rows, kappa = self.inside(v, y)
        K_mm, K_mn, k_nn = self.matrices(v, x[rows])
        root, covariance = torch.linalg.cholesky(K_mm), torch.linalg.inv(precision)
        _, mean, variance = self.moments(v, x[rows], (eta, precision))
        c, ones = (variance + mean**2).sqrt(), torch.ones(len(rows), dtype=FLOAT)
        m, S = root @ covariance @ eta, root @ covariance @ root.T
        return slow.bound(K_mm, K_mn, k_nn, m, S, c, kappa, ones, torch.zeros_like(ones))

    def probabilities(self, x: Tensor, at_mean: bool) -> Tensor:
        """(T, C) products of the decisions on the way to each class."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(20)
        p = torch.ones(len(x), self.tree.n_classes, dtype=FLOAT)
        for v in range(self.tree.n_nodes):
            _, mean, variance = self.moments(v, x)
            f = mean[:, None] + (0.0 if at_mean else variance.sqrt()[:, None]) * torch.as_tensor(nodes)
            left = f.sigmoid() @ torch.as_tensor(weights / weights.sum())
            for place, c in enumerate(self.classes(v)):
                p[:, c] *= left if place < self.tree.mid[v] - self.tree.lo[v] else 1 - left
        return p


def unit_length(x: Tensor) -> Tensor:
    return x / x.square().sum(-1, keepdim=True).sqrt()
