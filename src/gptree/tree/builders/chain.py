"""The chain of stick-breaking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gptree.tree.builders.base import TreeBuilder, checked_prototypes
from gptree.tree.structure import ClassTree


@dataclass(frozen=True)
class Chain(TreeBuilder):
    """Stick-breaking: each class in the given order against all that follow.

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> model = GPTreeClassifier(tree="chain")
    """

    name = "chain"

    def build(self, prototypes: np.ndarray, labels: Sequence[Any], seed: int) -> ClassTree:
        n_classes = len(checked_prototypes(prototypes, labels)[1])
        order = np.arange(n_classes)
        # paper (8)
        return ClassTree(order, order[:-1], order[:-1] + 1, np.full(n_classes - 1, n_classes))
