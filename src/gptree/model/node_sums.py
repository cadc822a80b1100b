"""Latent means of single nodes at single rows: rows that ask the same node are answered by one product."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from gptree.inference import NodePredictor
from gptree.inference.layer import BLOCK_ROWS, Stationary
from gptree.maths.frozen import Parts
from gptree.tree import ragged

#: Nodes are asked together as if they had as many points, and as if as many rows asked: the next of these numbers.
GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, *(256 * 2**k for k in range(1, 21)))
#: A node answers so many rows at most with one product.
MOST_ROWS = 128
#: Coordinates of points and rows that are gathered at a time: on a processor, what its cache holds.
GATHERED, GATHERED_CUDA = 2**19, 2**26


class NodeSums:
    """k⋆ᵀ α of nodes with one draw each and a kernel that all share.

    Parameters
    ----------
    predictor : NodePredictor
    dtype : torch.dtype
        What it computes in.
    """

    def __init__(self, predictor: NodePredictor, dtype: torch.dtype) -> None:
        grams, used = predictor.grams, predictor.used_rows
        X = grams.X.new_empty(len(used), grams.X.shape[1], dtype=dtype)
        for place, some in zip(X.split(BLOCK_ROWS), used.split(BLOCK_ROWS), strict=True):
            place.copy_(grams.X[some])
        parts = Parts()
        self._kernel = Stationary(copy.deepcopy(grams.kernel).to(dtype), X, parts)
        parts.shared()
        nodes, points, weights = [], [], []
        for p in predictor.posteriors:
            some = p.weights[0] != 0  # not the padding
            nodes.append(p.nodes[:, None].expand_as(p.rows)[some])
            points.append(torch.searchsorted(used, p.rows)[some])
            weights.append(p.weights[0][some])
        order = torch.cat(nodes).argsort(stable=True)
        self._sizes = torch.bincount(torch.cat(nodes), minlength=predictor.n_nodes)
        self._starts = self._sizes.cumsum(0) - self._sizes
        none = used.new_zeros(1)  # for nodes without points
        self._points = torch.cat([torch.cat(points)[order], none])
        self._weights = torch.cat([torch.cat(weights)[order].to(dtype), none.to(dtype)])
        self._grid = torch.tensor(GRID, device=used.device)

    def at(self, nodes: Tensor, rows: Tensor, x: Tensor) -> Tensor:
        """(P,) at pairs of a node and a row, (P,) each, of x (T, d)."""
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
