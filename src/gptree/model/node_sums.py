"""Latent means for a search: of all nodes at once, or of single nodes at single rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gptree.inference import NodePredictor
from gptree.inference.layer import BLOCK_ROWS, Stationary
from gptree.maths.frozen import Parts, Rows, Sums
from gptree.tree import ragged

#: Nodes are asked together as if they had as many points, and as if as many rows asked: the next of these numbers.
GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, *(256 * 2**k for k in range(1, 21)))
#: A node answers so many rows at most with one product.
MOST_ROWS = 128
#: Coordinates of points and rows that are gathered at a time: on a processor, what its cache holds.
GATHERED, GATHERED_CUDA = 2**19, 2**26


class EveryNode:
    """k⋆ᵀ α of all nodes, which have one draw each and share a kernel.

    Parameters
    ----------
    predictor : NodePredictor
    sums : Sums
        The weights of all nodes.
    dtype : torch.dtype
        What it computes in.
    parts : Parts
    centre : tensor (d,), optional
        Taken off points and rows.
    """

    def __init__(
        self, predictor: NodePredictor, sums: Sums, dtype: torch.dtype, parts: Parts, centre: Tensor | None
    ) -> None:
        self._dtype, self._centre = dtype, centre
        self._kernel = _kernel(predictor, dtype, parts, centre)
        self._sums = copy.deepcopy(sums).to(dtype)

    def __call__(self, rows: Rows) -> Tensor:
        """(nodes, T)."""
        rows = rows if self._centre is None else Rows(_rounded(rows.x, self._centre, self._dtype))
        return self._sums(rows.of(self._kernel))


class NodeSums:
    """k⋆ᵀ α of nodes with one draw each and a kernel that all share: rows that ask the same node share a product.

    Parameters
    ----------
    predictor : NodePredictor
    sums : Sums
        The weights of all nodes.
    dtype : torch.dtype
        What it computes in.
    centre : tensor (d,), optional
        Taken off points and rows.
    """

    def __init__(self, predictor: NodePredictor, sums: Sums, dtype: torch.dtype, centre: Tensor | None) -> None:
        parts = Parts()
        self._dtype, self._centre = dtype, centre
        self._kernel = _kernel(predictor, dtype, parts, centre)
        parts.shared()
        self._starts, self._sizes = sums.ends[:-1].long(), sums.ends.diff().long()
        none = self._starts.new_zeros(1)  # for nodes without points
        self._points = torch.cat([sums.rows, none])
        self._weights = torch.cat([sums.weights.to(dtype), none.to(dtype)])
        self._grid = torch.tensor(GRID, device=none.device)

    def of(self, x: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """What gives them (P,) at pairs of a node and a row of x (T, d), (P,) each."""
        return partial(self._at, _rounded(x, self._centre, self._dtype))

    def _at(self, x: Tensor, nodes: Tensor, rows: Tensor) -> Tensor:
        found, order = x.new_empty(len(nodes)), nodes.argsort()
        rows = rows[order]
        visited, counts = nodes[order].unique_consecutive(return_counts=True)
        number, part = ragged(-(-counts // MOST_ROWS))
        node, first = visited[number], (counts.cumsum(0) - counts)[number] + part * MOST_ROWS
        count = (counts[number] - part * MOST_ROWS).clamp_(max=MOST_ROWS)
        points, asking = (torch.searchsorted(self._grid, sizes) for sizes in (self._sizes[node], count))
        shape = points * len(GRID) + asking
        for each in shape.unique().tolist():
            size, width = GRID[each // len(GRID)], GRID[each % len(GRID)]
            together = (GATHERED_CUDA if x.is_cuda else GATHERED) // ((size + width) * x.shape[1])
            for some in (shape == each).nonzero()[:, 0].split(max(1, together)):
                pair = first[some, None] + torch.arange(width, device=x.device)
                asked = pair < (first + count)[some, None]
                pair.clamp_(max=len(rows) - 1)
                asks = x.index_select(0, rows[pair].flatten()).view(*pair.shape, -1)
                sums = self._tile(node[some], size, asks)
                found[order[pair[asked]]] = sums[asked]
        return found

    def _tile(self, nodes: Tensor, size: int, x: Tensor) -> Tensor:
        """(B, w) at nodes (B,) of up to so many points, with w rows x (B, w, d) each."""
        place = torch.arange(size, device=x.device)
        missing = place >= self._sizes[nodes, None]
        place = (place + self._starts[nodes, None]).clamp_(max=len(self._points) - 1)
        weights = self._weights[place].masked_fill_(missing, 0.0)
        return (weights[:, None] @ self._kernel.among(self._points[place], x))[:, 0]


def _rounded(x: Tensor, centre: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Rows less the centre, which comes off first: far from the origin single precision has no digits for distances."""
    return (x if centre is None else x - centre).to(dtype)


def _kernel(predictor: NodePredictor, dtype: torch.dtype, parts: Parts, centre: Tensor | None) -> Stationary:
    """k(X, x⋆) of the rows that posteriors use, which are copied a block at a time; all less the centre."""
    grams, used = predictor.grams, predictor.used_rows
    X = grams.X.new_empty(len(used), grams.X.shape[1], dtype=dtype)
    for place, some in zip(X.split(BLOCK_ROWS), used.split(BLOCK_ROWS), strict=True):
        place.copy_(_rounded(grams.X[some], centre, dtype))
    return Stationary(copy.deepcopy(grams.kernel).to(dtype), X, parts)
