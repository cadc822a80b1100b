"""Tree builders, one family a file. A new file in this folder is found by the name that its builder gives itself."""

from gptree.tree.builders.base import TreeBuilder, build_tree, checked_prototypes, divide
from gptree.tree.builders.chain import Chain
from gptree.tree.builders.random_balanced import RandomBalanced
from gptree.tree.builders.two_means import BalancedTwoMeans, TwoMeans
from gptree.tree.builders.ward import Ward

__all__ = [
    "BalancedTwoMeans",
    "Chain",
    "RandomBalanced",
    "TreeBuilder",
    "TwoMeans",
    "Ward",
    "build_tree",
    "checked_prototypes",
    "divide",
]
