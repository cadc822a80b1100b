"""Triplet losses on unit vectors: rows of the same class nearer than rows of others, by a margin."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import relu

from gptree.settings import require


def distances(z: Tensor) -> Tensor:
    """‖z_i − z_j‖, (n, n), with a gradient that stays finite where two rows are equal."""
    return (z[:, None] - z).square().sum(-1).clamp_min(1e-12).sqrt()


def batch_hard(z: Tensor, y: Tensor, margin: float = 0.0) -> Tensor:
    """mean_i [max_pos d_ip − min_neg d_in + margin]₊ over rows that have a positive and a negative; 0 without any.

    Parameters
    ----------
    z : Tensor (n, d)
        Unit vectors.
    y : Tensor (n,)
        Their classes.
    margin : float
    """
    d = distances(z)
    same = y[:, None] == y
    positive = same & ~torch.eye(len(y), dtype=torch.bool, device=y.device)
    usable = positive.any(1)  # without negatives the nearest is ∞ away and the loss 0
    hardest = d.masked_fill(~positive, -torch.inf).amax(1) - d.masked_fill(same, torch.inf).amin(1)
    losses = relu(torch.where(usable, hardest, 0.0) + margin)
    return (losses * usable).sum() / usable.sum().clamp_min(1)


def no_hard_mining(z: Tensor, y: Tensor, margin: float = 0.0) -> Tensor:
    """mean of [d_ip − d_in + margin]₊ over anchors i and j: the j-th positive of i with its j-th negative.

    Positives and negatives stand in the order of the batch; i has as many pairs as the smaller of both numbers, and
    the loss is 0 where no row has a pair.

    Parameters
    ----------
    z, y, margin
        As in `batch_hard`.
    """
    d = distances(z)
    same = y[:, None] == y
    positive = same & ~torch.eye(len(y), dtype=torch.bool, device=y.device)
    pairs = torch.minimum(positive.sum(1), (~same).sum(1))
    first = [(~mask).to(torch.int8).argsort(dim=1, stable=True) for mask in (positive, ~same)]
    used = torch.arange(len(y), device=y.device) < pairs[:, None]
    losses = relu(d.gather(1, first[0]) - d.gather(1, first[1]) + margin)
    return (losses * used).sum() / used.sum().clamp_min(1)


def balanced_batches(
    y: np.ndarray, classes: int, instances: int, epochs: int, random: np.random.Generator
) -> list[np.ndarray]:
    """Batches of P `classes` with k `instances` each.

    Parameters
    ----------
    y : int array (n,)
    classes, instances : int
        P and k. A class of fewer than k rows repeats some; all classes are taken where they are fewer than P.
    epochs : int
        An epoch has n / (P k) batches, rounded up.
    random : Generator

    Returns
    -------
    list of int arrays
        The rows of each batch.
    """
    require(classes >= 2 and instances >= 2, "a triplet needs two classes and two instances of a class in a batch.")
    members = [np.flatnonzero(y == c) for c in np.unique(y)]
    classes = min(classes, len(members))
    batches = []
    for _ in range(epochs * -(-len(y) // (classes * instances))):
        chosen = random.choice(len(members), classes, replace=False)
        rows = [random.choice(members[c], instances, replace=len(members[c]) < instances) for c in chosen]
        batches.append(np.concatenate(rows))
    return batches


TRIPLETS = {"batch-hard": batch_hard, "no-hard-mining": no_hard_mining}
