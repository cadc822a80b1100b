"""A tree builder to copy: rename, fill in `build`, and use it as `GPTreeClassifier(tree="alphabetical")`.

Importing the module is enough; a file in src/gptree/tree/builders is found without any import. Models that use the
builder are saved and loaded, and a grid search reaches its fields: {"tree__descending": [False, True]}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gptree.tree import ClassTree, TreeBuilder, checked_prototypes, divide


@dataclass(frozen=True)
class Alphabetical(TreeBuilder):
    """Halves of the classes in the order of their labels, again and again.

    Parameters
    ----------
    descending : bool
    """

    descending: bool = False

    name = "alphabetical"

    def build(self, prototypes: np.ndarray, labels: Sequence[Any], seed: int) -> ClassTree:
        prototypes, hashes = checked_prototypes(prototypes, labels)  # raises what a user should see
        rank = np.argsort(np.argsort([str(label) for label in labels]))
        rank = -rank if self.descending else rank

        def split(members: np.ndarray) -> np.ndarray:
            # True for one side. It may depend on prototypes, labels and seed of the members alone; random choices come
            # from node_generator(seed, node_key(hashes[members])).
            return rank[members] > np.sort(rank[members])[(len(members) - 1) // 2]

        return divide(hashes, split)
