"""Random class trees for hypothesis, built by plain recursion on small sizes."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from gptree.tree import ClassTree


def random_nested(classes: list[int], generator: np.random.Generator):
    if len(classes) == 1:
        return classes[0]
    cut = int(generator.integers(1, len(classes)))
    return [random_nested(classes[:cut], generator), random_nested(classes[cut:], generator)]


def random_tree(n_classes: int, seed: int) -> ClassTree:
    generator = np.random.default_rng(seed)
    nested = random_nested(generator.permutation(n_classes).tolist(), generator)
    return ClassTree.from_nested(nested, range(n_classes))


def class_trees(max_classes: int = 20) -> st.SearchStrategy[ClassTree]:
    return st.builds(random_tree, st.integers(1, max_classes), st.integers(0, 2**32))


def chain(n_classes: int) -> ClassTree:
    order = np.arange(n_classes)
    return ClassTree(order, order[:-1], order[:-1] + 1, np.full(n_classes - 1, n_classes))


def clusters(tree: ClassTree) -> set[frozenset[int]]:
    """The tree without left and right: the sets of classes of its nodes."""
    return {frozenset(tree.members(v).tolist()) for v in range(tree.n_nodes)}
