"""Class trees: structure, builders, edits, text and pictures. Nothing here knows what decides at a node."""

from gptree.settings import import_modules
from gptree.tree import builders
from gptree.tree.builders import (
    BalancedTwoMeans,
    Chain,
    RandomBalanced,
    TreeBuilder,
    TwoMeans,
    Ward,
    build_tree,
    checked_prototypes,
    divide,
)
from gptree.tree.edits import join, permute, remove, replace_leaf, surviving
from gptree.tree.keys import label_hashes, node_generator, node_key
from gptree.tree.path_sums import PathSums, ragged
from gptree.tree.plot import plot_tree
from gptree.tree.probabilities import ForestPaths, class_log_probabilities, node_log_odds, tree_paths
from gptree.tree.structure import ClassTree
from gptree.tree.text import to_dot, to_newick, to_text

__all__ = [
    "BalancedTwoMeans",
    "Chain",
    "ClassTree",
    "ForestPaths",
    "PathSums",
    "RandomBalanced",
    "TreeBuilder",
    "TwoMeans",
    "Ward",
    "build_tree",
    "checked_prototypes",
    "class_log_probabilities",
    "divide",
    "join",
    "label_hashes",
    "node_generator",
    "node_key",
    "node_log_odds",
    "permute",
    "plot_tree",
    "ragged",
    "remove",
    "replace_leaf",
    "surviving",
    "to_dot",
    "to_newick",
    "to_text",
    "tree_paths",
]

import_modules(builders.__name__, builders.__path__)  # last: a new file may import the names above
