"""Gram matrices of the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.inference.nodes import LARGEST_PADDED_CPU, LARGEST_PADDED_CUDA, NodeBatch, NodeProblem, make_batches
from gptree.maths.conditional import FunctionSpace, Space, WeightSpace, points_at_a_time
from gptree.maths.kernels import batch_shape, gram, gram_diagonal, kernel_at, linear_features

#: Coordinates of points that are gathered at a time.
GATHERED_NUMBERS = 2**22
#: On a processor so many numbers are cut out of a matrix by their places, which is three times faster than by rows and
#: columns as long as the places stay near the processor.
CUT_NUMBERS = 2**17


def finite(matrix: Tensor) -> Tensor:
    """The matrix itself, or an error that says what to do."""
    # the sum is finite if all are, unless it overflows: a look at every number is rarely needed
    if not bool(torch.isfinite(matrix.sum())) and not bool(torch.isfinite(matrix).all()):
        raise ValueError(
            "the kernel gives values that are not finite on these features: scale the features (a feature_map does) "
            "or change the kernel."
        )
    return matrix


def _cut(full: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """full[rows, columns] (V, N, M) for rows (V, N) and columns (V, M)."""
    numbers, width = rows.shape[1] * columns.shape[1], full.shape[1]
    if full.is_cuda or numbers > CUT_NUMBERS:
        return full[rows.unsqueeze(-1), columns.unsqueeze(-2)]
    out, step = full.new_empty(*rows.shape, columns.shape[1]), max(1, CUT_NUMBERS // max(1, numbers))
    for here, r, c in zip(out.split(step), rows.split(step), columns.split(step), strict=True):
        places = (r.unsqueeze(-1) * width + c.unsqueeze(-2)).flatten()
        torch.index_select(full.view(-1), 0, places, out=here.view(-1))
    return out


class Grams:
    """Gram matrices of nodes, cut out of one matrix where the kernel is shared and memory allows.

    Parameters
    ----------
    kernel : Kernel
        One of batch shape (number of nodes,) has separate hyper-parameters at every node; then nothing is shared.
    X : tensor (n, d)
    memory_budget : int
        With a shared kernel the whole Gram matrix is computed once, if it takes at most a quarter of so many bytes.
    """

    def __init__(self, kernel: Kernel, X: Tensor, memory_budget: int = 0) -> None:
        self.kernel = kernel
        self.X = X
        self.per_node = len(batch_shape(kernel)) > 0
        self.features = None if self.per_node else linear_features(kernel, X)
        self._cache_bytes = memory_budget // 4
        self._full: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_full": None}  # a copy or a pickle computes it again where it is needed

    @property
    def _cached(self) -> Tensor | None:
        n = len(self.X)
        wanted = (
            not self.per_node and not torch.is_grad_enabled() and n * n * self.X.element_size() <= self._cache_bytes
        )
        if wanted and self._full is None:
            self._full = finite(self._shared(self.X, self.X))
        return self._full if wanted else None

    def _shared(self, x: Tensor, other: Tensor) -> Tensor:
        if self.features is not None:  # X comes first: its features are known
            left = self.features if x is self.X else linear_features(self.kernel, x)
            right = self.features if other is self.X else linear_features(self.kernel, other)
            assert left is not None
            assert right is not None
            return left @ right.mT
        return gram(self.kernel, x, other)

    def block(self, nodes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """k(X[rows], X[columns]) at each node, (V, N, M), for rows (V, N) and columns (V, M)."""
        full = self._cached
        if full is not None:
            return _cut(full, rows, columns)
        if self.per_node:
            return finite(gram(kernel_at(self.kernel, nodes), self.X[rows], self.X[columns]))
        if self.features is not None:
            return finite(self.features[rows] @ self.features[columns].mT)
        step = max(1, GATHERED_NUMBERS // ((rows.shape[1] + columns.shape[1]) * self.X.shape[1]))
        parts = zip(rows.split(step), columns.split(step), strict=True)
        if torch.is_grad_enabled():
            return finite(torch.cat([gram(self.kernel, self.X[r], self.X[c]) for r, c in parts]))
        K, points = self.X.new_empty(*rows.shape, columns.shape[1]), points_at_a_time(self.X)
        for nodes_K, (r, c) in zip(K.split(step), parts, strict=True):
            X_c = self.X[c]
            for some_K, some in zip(nodes_K.split(points, 1), r.split(points, 1), strict=True):
                some_K.copy_(gram(self.kernel, self.X[some], X_c))
        return finite(K)

    def known_cross(self, rows: Tensor, chunk: slice) -> Tensor | None:
        """k(X[rows], X[chunk]), if the whole Gram matrix is kept."""
        full = self._cached
        return None if full is None else full[:, chunk].index_select(0, rows)

    def diagonal(self, nodes: Tensor, rows: Tensor) -> Tensor:
        kernel = kernel_at(self.kernel, nodes) if self.per_node else self.kernel
        return gram_diagonal(kernel, self.X[rows])

    def uses_weight_space(self, size: int) -> bool:
        """A linear kernel works on the d × d side where a node has clearly more points than dimensions.

        Just above d, forming Aᵀ Ω A costs more than factorising an n × n matrix; they break even near 1.5 d.
        """
        return self.features is not None and size > 1.5 * self.features.shape[-1]

    def batches(self, problems: Sequence[NodeProblem], work: int) -> Iterator[NodeBatch]:
        """Problems in batches of similar size whose matrices hold at most a third of `work` numbers, one by one."""
        largest_padded = LARGEST_PADDED_CUDA if self.X.is_cuda else LARGEST_PADDED_CPU
        gathers_features = self.per_node or self.features is not None
        width = self.X.shape[1] * gathers_features
        made = make_batches(problems, self.X.dtype, work // 3, largest_padded, width, self.uses_weight_space)
        return (batch.to(self.X.device) for batch in made)

    def space(self, batch: NodeBatch) -> tuple[Space, Tensor | None, Tensor]:
        """The conditional of a batch, in the form that suits kernel and sizes.

        Parameters
        ----------
        batch : NodeBatch

        Returns
        -------
        space : FunctionSpace or WeightSpace
        root : tensor (V, M, M) or None
            The factor of K_mm where the batch has inducing points.
        jitter : tensor (V,)
            That the factor needed.
        """
        if batch.inducing is not None:
            return WeightSpace.from_inducing(
                self.block(batch.nodes, batch.inducing, batch.inducing),
                self.block(batch.nodes, batch.rows, batch.inducing),
                self.diagonal(batch.nodes, batch.rows),
            )
        none = torch.zeros(len(batch), dtype=self.X.dtype, device=self.X.device)
        if self.uses_weight_space(batch.rows.shape[1]):
            assert self.features is not None
            return WeightSpace(finite(self.features[batch.rows])), None, none
        return FunctionSpace(self.node_grams(batch), self._node_features(batch)), None, none

    def node_grams(self, batch: NodeBatch) -> Tensor:
        """K (V, N, N) with the identity on padded points: independent of all others, so K still has a root."""
        K = self.block(batch.nodes, batch.rows, batch.rows)
        sizes = torch.tensor(batch.sizes, device=K.device)
        padded = torch.arange(batch.rows.shape[1], device=K.device) >= sizes[:, None]
        if not bool(padded.any()):
            return K
        K = K.masked_fill(padded.unsqueeze(-1) | padded.unsqueeze(-2), 0.0)
        return K + torch.diag_embed(padded.to(K.dtype))

    def _node_features(self, batch: NodeBatch) -> Tensor | None:
        return None if self.features is None else self.features[batch.rows]

    def restricted(self, rows: Tensor) -> Grams:
        """Over some rows only: what a worker process needs for its batch."""
        return Grams(self.kernel, self.X[rows])

    def cross(self, X_new: Tensor, rows: Tensor | None = None) -> Tensor:
        """k(X_new, X[rows]), (T, n), for a shared kernel; all rows if None."""
        everything = rows is None or len(rows) == len(self.X)
        return finite(self._shared(X_new, self.X if everything else self.X[rows]))
