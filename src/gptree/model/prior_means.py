"""Prior means of the nodes from class scores: μ_v(x) = logsumexp over the left classes − logsumexp over the right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gptree.tree import ClassTree, node_log_odds, tree_paths

#: Rows are processed so many numbers at a time: (2C − 1) × rows of them.
CHUNK_NUMBERS = 2**24


def training_log_odds(
    tree: ClassTree, scores: Tensor | None, nodes: Sequence[int], rows: Sequence[np.ndarray]
) -> list[Tensor | None]:
    """Prior means at each of the given nodes for its own rows; `scores` is (n, C), or (1, C) for all rows alike."""
    if scores is None or len(nodes) == 0:
        return [None] * len(nodes)
    if len(scores) == 1:
        odds = _finite(node_log_odds(tree, scores)[:, 0])
        return [odds[v].expand(len(r)) for v, r in zip(nodes, rows, strict=True)]
    sizes = [len(r) for r in rows]
    flat_rows = torch.as_tensor(np.concatenate(rows), device=scores.device)
    flat_nodes = torch.as_tensor(np.repeat(nodes, sizes), device=scores.device)
    out = torch.empty(len(flat_rows), dtype=scores.dtype, device=scores.device)
    step = max(1, CHUNK_NUMBERS // (2 * tree.n_classes))
    paths = tree_paths(tree, scores)
    for start in range(0, len(scores), step):
        odds = paths.log_odds(scores[start : start + step])
        here = (flat_rows >= start) & (flat_rows < start + step)
        out[here] = odds[flat_nodes[here], flat_rows[here] - start]
    return list(_finite(out).split(sizes))


def _finite(means: Tensor) -> Tensor:
    if not bool(torch.isfinite(means).all()):
        raise ValueError("the class scores of a training row give a prior mean that is not finite: bound the scores.")
    return means
