"""A neural gas (Martinetz and Schulten 1991): nodes spread over features, and edges between nodes that are neighbours.

TOPIC keeps its knowledge of old classes in one: each node has a centroid, a label, a picture and variances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gptree.settings import Settings, require, require_whole


class Gas(NamedTuple):
    """Nodes and edges."""

    centroids: Tensor
    """m (N, d)."""
    ages: Tensor
    """(N, N), symmetric: how often the edge between two nodes was passed over since it was last used; ∞: no edge."""


class Cells(NamedTuple):
    """What the rows next to each node say about it: all (N,) but `variances`; a node without rows has label −1."""

    labels: np.ndarray
    """c: the most frequent class of its rows, the first of several."""
    pictures: np.ndarray
    """z: the row of that class that is nearest to the node."""
    variances: Tensor
    """Λ (N, d) of the rows of that class."""


@dataclass(frozen=True)
class NeuralGas(Settings):
    """Settings of a gas; α and the lifetime of an edge are those of TOPIC, whose rate is not published.

    Parameters
    ----------
    rate : float
        η, by how much of the way the nearest node goes to a row.
    decay : float
        α: the node of rank i = 0, 1, … goes η exp(−i/α) of the way.
    lifetime : int
        T, the age above which an edge is removed.
    draws : int
        Rows that are drawn, one after the other without replacement; a pass over all rows if there are no more.
    """

    rate: float = 0.02
    decay: float = 10.0
    lifetime: int = 200
    draws: int = 10_000

    def __post_init__(self) -> None:
        for name, least in (("lifetime", 1), ("draws", 1)):
            require_whole(name, getattr(self, name), least)
        require(0 < self.rate <= 1, f"rate is a part of the way in (0, 1], not {self.rate}.")
        require(self.decay > 0, f"decay must be positive, not {self.decay}.")

    def fit(self, features: Tensor, nodes: int, seed: int) -> Gas:
        """The gas of N nodes, or as many as there are rows, after one pass over rows of features (n, d).

        It begins at random rows. Nodes move after every row, so this is a loop; it runs on the CPU, where a step costs
        least.
        """
        features = features.detach().cpu()
        require(min(nodes, len(features)) >= 2, "a neural gas needs at least two nodes and two rows.")
        random = np.random.default_rng(seed)
        first = random.choice(len(features), min(nodes, len(features)), replace=False)
        gas = Gas(features[torch.from_numpy(first)].clone(), torch.full((len(first),) * 2, torch.inf))
        for row in random.permutation(len(features))[: self.draws].tolist():
            self.step(gas, features[row])
        return gas

    def step(self, gas: Gas, f: Tensor) -> None:
        """Show the gas one row f (d,): nodes move and edges age, in place.

        m_{r_i} += η e^{−i/α} (f − m_{r_i}) for the nodes r_0, r_1, … in order of distance. The edge (r_0, r_1) gets age
        0, the other edges of r_0 grow older by one, and those older than T are removed.
        """
        m, ages = gas
        order = (torch.linalg.vector_norm(m, dim=1).square() - 2 * (m @ f)).argsort(stable=True)
        step = torch.empty(len(m), dtype=m.dtype)
        step[order] = self.rate * torch.exp(torch.arange(len(m), dtype=m.dtype) / -self.decay)
        m.lerp_(f, step[:, None])
        nearest, second = order[:2].tolist()
        row = ages[nearest] + 1
        row[second] = 0
        row[row > self.lifetime] = torch.inf
        ages[nearest] = ages[:, nearest] = row

    def grown(self, gas: Gas, features: Tensor, new: Tensor) -> Gas:
        """The gas with new nodes (k, d) behind the old ones, and the edges that rows (n, d) make when they are shown.

        All nodes stay where they are.
        """
        nodes, count = len(gas.centroids), len(new)
        centroids = torch.cat([gas.centroids, new.to(gas.centroids)]).cpu()
        ages = torch.full((nodes + count,) * 2, torch.inf)
        ages[:nodes, :nodes] = gas.ages
        moving = Gas(centroids.clone(), ages)
        for f in features.to(gas.centroids).cpu():
            self.step(moving, f)
        return Gas(centroids, ages)


def cells(features: Tensor, labels: np.ndarray, centroids: Tensor) -> Cells:
    """Label, picture and variances of every node, from rows (n, d) of classes `labels` (n,) ≥ 0.

    Every row belongs to the nearest node.
    """
    nodes, classes = len(centroids), int(labels.max()) + 1
    distance = torch.cdist(features, centroids.to(features))
    nearest, node = distance.min(1)
    y = torch.from_numpy(labels).to(features.device)
    counts = torch.zeros(nodes, classes, device=features.device)
    counts.index_put_((node, y), torch.ones_like(node, dtype=counts.dtype), accumulate=True)
    majority = counts.argmax(1)
    member = majority[node] == y
    rows = member.nonzero()[:, 0]
    rows = rows[nearest[rows].argsort(stable=True, descending=True)].cpu().numpy()
    pictures = np.full(nodes, -1)
    pictures[node[rows].cpu().numpy()] = rows  # the nearest is written last
    sums = features.new_zeros(2, nodes, features.shape[1])
    x = features[member]
    n = torch.bincount(node[member], minlength=nodes).clamp_min(1)[:, None]
    mean = sums[0].index_add_(0, node[member], x) / n
    variances = sums[1].index_add_(0, node[member], (x - mean[node[member]]).square()) / n
    found = np.where(pictures < 0, -1, majority.cpu().numpy())
    return Cells(found, pictures, variances)
