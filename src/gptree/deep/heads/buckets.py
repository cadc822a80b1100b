"""Nodes in batches of similar size, and their blocks of the kernel matrices over all inducing points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.inference import class_quota
from gptree.maths.kernels import gram, gram_diagonal, kernel_at
from gptree.tree import ClassTree

#: Nodes are batched with those that have at least this share of their points, and padded; smaller nodes with a smaller
#: share, since starting a kernel costs more than its arithmetic there. Large nodes keep a GPU busy alone.
SHARE, SMALL_SHARE, SMALL, LARGE = 0.75, 0.5, 128, 1024


@dataclass(frozen=True)
class Bucket:
    """V nodes of similar size, padded to M points."""

    nodes: Tensor
    """(V,)."""
    points: Tensor
    """(V, M); padding repeats point 0."""
    padding: Tensor | None
    """(V, M), True on padding; None if there is none."""
    span: slice | None
    """The points of a bucket of one node where they are neighbours: then its matrices are views."""

    def to(self, device: torch.device) -> Bucket:
        padding = None if self.padding is None else self.padding.to(device)
        return Bucket(self.nodes.to(device), self.points.to(device), padding, self.span)

    def square(self, K: Tensor) -> Tensor:
        """(V, M, M) of K (P, P)."""
        if len(K) == 0:  # not asked for
            return K
        if self.span is not None:
            return K[self.span, self.span].unsqueeze(0)
        return self.isolated(K[self.points.unsqueeze(-1), self.points.unsqueeze(-2)])

    def add_square(self, total: Tensor, K: Tensor) -> None:
        """total (P, P) += what (V, M, M) has for it; padding has nothing."""
        if self.span is not None:
            total[self.span, self.span] += K[0]
        else:
            places = self.points.unsqueeze(-1) * len(total) + self.points.unsqueeze(-2)
            total.view(-1).index_add_(0, places.flatten(), K.flatten())

    def rows(self, K: Tensor) -> Tensor:
        """(V, M, N) of K (P, N)."""
        return K[self.span].unsqueeze(0) if self.span is not None else self.masked(K[self.points])

    def add_rows(self, total: Tensor, K: Tensor) -> None:
        total.index_add_(0, self.points.flatten(), K.flatten(0, 1))

    def isolated(self, K: Tensor) -> Tensor:
        if self.padding is None or len(K) == 0:
            return K
        K = K.masked_fill(self.padding.unsqueeze(-1) | self.padding.unsqueeze(-2), 0.0)
        return K + torch.diag_embed(self.padding.to(K.dtype))

    def masked(self, K: Tensor) -> Tensor:
        return K if self.padding is None else K.masked_fill(self.padding.unsqueeze(-1), 0.0)


@dataclass(frozen=True)
class Block:
    """Kernel matrices of the V nodes of a bucket: (V, M, M), (V, M, N), (V, N)."""

    K_mm: Tensor
    K_mn: Tensor
    k_nn: Tensor


Gradients = tuple[Tensor, Tensor, Tensor]
"""Of a number, with respect to the matrices of a block."""


class Buckets(Sequence[Bucket]):
    """All buckets of a tree. Values over all nodes stand in the order in which the buckets hold the nodes.

    Parameters
    ----------
    buckets : sequence of Bucket
        The largest first.
    per_node : bool
        Whether every node has a kernel of its own. Then kernel matrices are made bucket by bucket; otherwise once, for
        all points, and cut.
    """

    def __init__(self, buckets: Sequence[Bucket], per_node: bool) -> None:
        self._buckets, self.per_node = list(buckets), per_node

    def __len__(self) -> int:
        return len(self._buckets)

    def __getitem__(self, index: Any) -> Any:
        return self._buckets[index]

    def to(self, device: torch.device) -> Buckets:
        return Buckets([bucket.to(device) for bucket in self], self.per_node)

    @property
    def nodes(self) -> Tensor:
        """The nodes of all buckets, (C − 1,)."""
        return torch.cat([bucket.nodes for bucket in self])

    @property
    def tree_order(self) -> Tensor:
        """Where each node of the tree stands in the order of the buckets."""
        return self.nodes.argsort()

    def cut(self, values: Tensor) -> tuple[Tensor, ...]:
        """The part of each bucket, of values over all nodes."""
        return values.split([len(bucket.nodes) for bucket in self])

    def kernel_matrices(self, kernel: Kernel, z: Tensor, x: Tensor, with_points: bool) -> list[Tensor]:
        """K_mm (nothing without `with_points`), K_mn and k_nn of points z (P, d) and rows x (N, d).

        Three matrices for all points, or three for every bucket.
        """
        if not self.per_node:
            return [gram(kernel, z) if with_points else z.new_zeros(0), gram(kernel, z, x), gram_diagonal(kernel, x)]
        parts = []
        for bucket in self:
            nodes_kernel, points = kernel_at(kernel, bucket.nodes), z[bucket.points]
            rows = x.expand(len(points), *x.shape)
            parts += [gram(nodes_kernel, points) if with_points else z.new_zeros(0)]
            parts += [gram(nodes_kernel, points, rows), gram_diagonal(nodes_kernel, rows)]
        return parts

    def block(self, i: int, parts: Sequence[Tensor]) -> Block:
        """The kernel matrices of a bucket; padding is independent of everything, with variance 1."""
        bucket: Bucket = self[i]
        if not self.per_node:
            K_mm, K_mn, k_nn = parts
            return Block(bucket.square(K_mm), bucket.rows(K_mn), k_nn.expand(len(bucket.nodes), -1))
        K_mm, K_mn, k_nn = parts[3 * i : 3 * i + 3]
        return Block(bucket.isolated(K_mm), bucket.masked(K_mn), k_nn)

    def blocks(self, parts: Sequence[Tensor]) -> list[Block]:
        return [self.block(i, parts) for i in range(len(self))]

    def to_parts(self, gradients: Sequence[Callable[[], Gradients]], parts: Sequence[Tensor]) -> list[Tensor]:
        """The transpose of `blocks`: gradients of the buckets' matrices to gradients of the parts.

        The smallest bucket is asked first.
        """
        if self.per_node:
            return [part for triple in gradients for part in triple()]
        to_K_mm, to_K_mn, to_k_nn = (torch.zeros_like(part) for part in parts)
        for bucket, triple in zip(reversed(self), reversed(gradients), strict=True):
            square, rows, diagonal = triple()
            bucket.add_square(to_K_mm, square)
            bucket.add_rows(to_K_mn, rows)
            to_k_nn += diagonal.sum(0)
        return [to_K_mm, to_K_mn, to_k_nn]


def make_buckets(tree: ClassTree, counts: np.ndarray, cap: int | None) -> list[Bucket]:
    """Nodes by their number of points, given that of every leaf; points are numbered in leaf order."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    rank = np.concatenate([np.arange(n) for n in counts])  # place among the points of its class
    nodes = []
    for v in range(tree.n_nodes):
        lo, hi = int(tree.lo[v]), int(tree.hi[v])
        inside = np.arange(starts[lo], starts[hi])
        if cap is not None and len(inside) > cap:
            quota = class_quota(counts[lo:hi], cap)
            if quota == 0:
                raise ValueError(f"cap={cap} is less than one inducing point a class at a node of {hi - lo} classes.")
            inside = inside[rank[inside] < quota]
        nodes.append((v, inside))
    buckets = []
    for members in _similar(nodes):
        size = len(members[0][1])
        points = np.zeros((len(members), size), dtype=np.int64)
        padding = np.ones((len(members), size), dtype=bool)
        for row, (_, inside) in enumerate(members):
            points[row, : len(inside)] = inside
            padding[row, : len(inside)] = False
        first = members[0][1]
        alone = len(members) == 1 and not padding.any() and first[-1] - first[0] + 1 == size
        buckets.append(
            Bucket(
                nodes=torch.tensor([v for v, _ in members]),
                points=torch.as_tensor(points),
                padding=torch.as_tensor(padding) if padding.any() else None,
                span=slice(int(first[0]), int(first[-1]) + 1) if alone else None,
            )
        )
    return buckets


def _similar(nodes: list[tuple[int, np.ndarray]]) -> list[list[tuple[int, np.ndarray]]]:
    """Groups of (node, points) with similar numbers of points, the largest first."""
    groups: list[list[tuple[int, np.ndarray]]] = []
    for node in sorted(nodes, key=lambda node: -len(node[1])):
        largest = len(groups[-1][0][1]) if groups else 0
        share = 1.0 if largest > LARGE else SHARE if largest > SMALL else SMALL_SHARE
        if groups and len(node[1]) >= share * largest:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups
