from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trees import chain, class_trees, random_tree

from gptree.tree import ClassTree, join, permute, remove, replace_leaf


def nested(tree: ClassTree, offset: int = 0):
    return tree.to_nested(range(offset, offset + tree.n_classes))


@settings(deadline=None)
@given(class_trees(8), class_trees(8))
def test_join_puts_a_root_over_both(left: ClassTree, right: ClassTree):
    expected = [nested(left), nested(right, left.n_classes)]
    joined = join(left, right)
    assert nested(joined) == expected
    assert joined.subtree(joined.left_child[0])[0] == left
    assert joined.subtree(joined.right_child[0])[0] == right


@settings(deadline=None)
@given(class_trees(), st.randoms(use_true_random=False))
def test_permute_renames_the_classes(tree: ClassTree, random):
    mapping = list(range(tree.n_classes))
    random.shuffle(mapping)
    assert nested(permute(tree, mapping)) == tree.to_nested(mapping)
    assert permute(permute(tree, mapping), np.argsort(mapping)) == tree


@settings(deadline=None)
@given(class_trees(), st.data())
def test_remove_prunes_leaves(tree: ClassTree, data):
    everything = range(tree.n_classes)
    kept = data.draw(st.sets(st.sampled_from(everything), min_size=1))

    def prune(item):  # the slow twin: None where nothing is left
        if not isinstance(item, list):
            return sorted(kept).index(item) if item in kept else None
        sides = [side for side in map(prune, item) if side is not None]
        return sides if len(sides) == 2 else sides[0] if sides else None

    assert nested(remove(tree, set(everything) - kept)) == prune(nested(tree))


@settings(deadline=None)
@given(class_trees(), class_trees(6), st.data())
def test_replace_leaf_grafts(tree: ClassTree, graft: ClassTree, data):
    c = data.draw(st.integers(0, tree.n_classes - 1))
    grafted = graft.to_nested([c, *range(tree.n_classes, tree.n_classes + graft.n_classes - 1)])

    def replace(item):
        return [replace(side) for side in item] if isinstance(item, list) else grafted if item == c else item

    result = replace_leaf(tree, c, graft)
    assert nested(result) == replace(nested(tree))
    assert remove(result, range(tree.n_classes, result.n_classes)) == tree


def test_bad_classes_are_named():
    tree = random_tree(4, 0)
    with pytest.raises(ValueError, match="not all can be removed"):
        remove(tree, range(4))
    with pytest.raises(ValueError, match="no class 4"):
        remove(tree, [4])
    with pytest.raises(ValueError, match="no class -1"):
        replace_leaf(tree, -1, tree)
    with pytest.raises(ValueError, match="one entry for each"):
        permute(tree, [0, 1])
    with pytest.raises(ValueError, match="each of the classes"):
        permute(tree, [0, 1, 1, 2])


def test_deep_trees_need_no_recursion():
    tree = chain(10_000)
    assert remove(tree, range(0, 10_000, 2)) == chain(5_000)
    assert join(tree, chain(3)).n_classes == 10_003
    assert replace_leaf(tree, 9_999, chain(5)) == chain(10_004)
