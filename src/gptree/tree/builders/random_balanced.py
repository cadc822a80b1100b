"""Random balanced trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gptree.tree.builders.base import TreeBuilder, checked_prototypes, divide
from gptree.tree.keys import node_generator, node_key
from gptree.tree.structure import ClassTree


@dataclass(frozen=True)
class RandomBalanced(TreeBuilder):
    """The paper's "Rnd": a random half of the classes on each side. The prototypes play no part.

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> model = GPTreeClassifier(tree="random")
    """

    name = "random"

    def build(self, prototypes: np.ndarray, labels: Sequence[Any], seed: int) -> ClassTree:
        _, hashes = checked_prototypes(prototypes, labels)

        def split(members: np.ndarray) -> np.ndarray:
            generator = node_generator(seed, node_key(hashes[members]))
            return generator.permutation(len(members)) < len(members) // 2

        # paper section 5.1
        return divide(hashes, split)
