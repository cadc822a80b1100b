"""Class log-probabilities from the log-probabilities of the decisions."""

from __future__ import annotations

import numpy as np
import torch

from gptree.tree.structure import ClassTree


def class_log_probabilities(tree: ClassTree, log_left: torch.Tensor, log_right: torch.Tensor) -> torch.Tensor:
    """log p(c) = Σ over the path of c of log p(left) or log p(right), for all classes at once.

    Parameters
    ----------
    log_left, log_right : (C − 1, T)
        The log-probabilities of going left and right at every inner node; −∞ is allowed.

    Returns
    -------
    (T, C), columns in class order. Sums run from parent to child, one level of the tree after another, so the
    relative error is at most depth × machine epsilon and the work is O(T·C) for a tree of any shape.
    """
    if log_left.shape != log_right.shape or log_left.dim() != 2 or log_left.shape[0] != tree.n_nodes:
        raise ValueError(
            f"log_left and log_right must both have the shape ({tree.n_nodes}, T); "
            f"got {tuple(log_left.shape)} and {tuple(log_right.shape)}."
        )
    above = log_left.new_zeros(1, log_left.shape[1])  # log-probability of reaching each node of the level
    if tree.n_nodes == 0:
        return above.T

    def rows(indices: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(np.array(indices), device=log_left.device)

    leaves, leaf_rows = [], []
    for level in tree.levels:
        nodes = rows(level)
        # paper (9)
        both = torch.stack((above + log_left[nodes], above + log_right[nodes]), dim=1).flatten(0, 1)
        children = np.stack((tree.left_child[level], tree.right_child[level]), axis=1).ravel()
        is_leaf = children >= tree.n_nodes
        leaves.append(children[is_leaf] - tree.n_nodes)
        leaf_rows.append(both[rows(is_leaf.nonzero()[0])])
        above = both[rows((~is_leaf).nonzero()[0])]
    row_of_class = np.argsort(tree.order[np.concatenate(leaves)])
    return torch.cat(leaf_rows).T.index_select(1, rows(row_of_class))
