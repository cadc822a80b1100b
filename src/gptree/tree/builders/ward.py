"""Trees by agglomerative clustering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

from gptree.maths.sphere import unit_length
from gptree.tree.builders.base import TreeBuilder, checked_prototypes
from gptree.tree.structure import INNER, ClassTree


@dataclass(frozen=True)
class Ward(TreeBuilder):
    """Agglomerative clustering of the normalised class means with Ward's criterion; needs 8 C² bytes.

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> model = GPTreeClassifier(tree="ward")
    """

    name = "ward"

    def build(self, prototypes: np.ndarray, labels: Sequence[Any], seed: int) -> ClassTree:
        prototypes, _ = checked_prototypes(prototypes, labels)
        n_classes = len(prototypes)
        if n_classes == 1:
            return ClassTree.from_preorder([0])
        # Join k makes vertex C + k out of two earlier vertices; those below C are the classes.
        joins = linkage(pdist(unit_length(prototypes)), method="ward")[:, :2].astype(np.int64).tolist()
        smallest = list(range(n_classes))  # the smallest class under every vertex
        for join in joins:
            join.sort(key=smallest.__getitem__)
            smallest.append(smallest[join[0]])
        preorder, stack = [], [2 * n_classes - 2]
        while stack:
            vertex = stack.pop()
            if vertex < n_classes:
                preorder.append(vertex)
            else:
                preorder.append(INNER)
                stack += reversed(joins[vertex - n_classes])
        return ClassTree.from_preorder(preorder)
