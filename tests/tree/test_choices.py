"""Choices of the tree builders that leave the tree as it is, and limits of texts, shapes and numbers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from gptree.tree import ClassTree, class_log_probabilities, label_hashes, to_text
from gptree.tree.builders.base import divide
from gptree.tree.builders.lloyd import gram_pays
from gptree.tree.text import shorten


def test_a_split_is_asked_for_three_classes_or_more() -> None:
    asked: list[int] = []

    def split(members: np.ndarray) -> np.ndarray:
        asked.append(len(members))
        return members == members.min()

    tree = divide(label_hashes(["a", "b", "c", "d"]), split)
    assert asked == [4, 3]
    assert len(tree.levels) == 3


def test_members_of_an_empty_side_are_halved_in_class_order() -> None:
    for n, left in ((3, [0, 1]), (4, [0, 1]), (5, [0, 1, 2])):
        for side in (False, True):
            tree = divide(label_hashes(list(range(n))), lambda members, side=side: np.full(len(members), side))
            assert sorted(tree.order[: tree.mid[0]].tolist()) == left


def test_a_gram_matrix_pays_for_few_points() -> None:
    """No more than there are dimensions, and than ten for each restart."""
    assert [gram_pays(n, 5, 3) for n in (5, 6)] == [True, False]
    assert [gram_pays(n, 99, 3) for n in (30, 31)] == [True, False]


def test_a_sub_tree_is_summed_up_by_four_of_its_classes() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    chain = ClassTree.from_nested(["a", ["b", ["c", ["d", ["e", "f"]]]]], names)
    assert to_text(chain, names, max_depth=1) == "┬─ a\n└─ [5 classes: b, c, d, e, …]"
    assert to_text(chain, names, max_depth=2) == "┬─ a\n└─┬─ b\n  └─ [4 classes: c, d, e, f]"
    assert to_text(chain, names, max_depth=0) == "[6 classes: a, b, c, d, …]"
    assert to_text(chain, names) == to_text(chain, names, max_depth=5)


def test_names_are_cut_to_a_width() -> None:
    assert [shorten(name, 5) for name in ("abcde", "abcdef", "abc defg", "abcd efgh")] == [
        "abcde",
        "abcd…",
        "abc…",
        "abcd…",
    ]


def test_probabilities_of_other_shapes_are_refused() -> None:
    tree = ClassTree.from_nested(["a", ["b", "c"]], ["a", "b", "c"])
    right = torch.zeros(2, 5)
    for left, other in (
        (torch.zeros(2, 4), right),
        (torch.zeros(3, 5), torch.zeros(3, 5)),
        (torch.zeros(2), torch.zeros(2)),
        (torch.zeros(2, 5, 1), torch.zeros(2, 5, 1)),
    ):
        with pytest.raises(ValueError, match="must both have the shape"):
            class_log_probabilities(tree, left, other)
    with pytest.raises(ValueError, match="2 names given for 3 classes"):
        to_text(tree, ["a", "b"])


@pytest.mark.parametrize("vertex", [-1, 5])
def test_vertices_end_at_the_last_leaf(vertex: int) -> None:
    tree = ClassTree.from_nested(["a", ["b", "c"]], ["a", "b", "c"])
    with pytest.raises(ValueError, match=f"no vertex {vertex}: the vertices are 0 … 4"):
        tree.members(vertex)
    assert [tree.members(v).tolist() for v in range(5)] == [[0, 1, 2], [1, 2], [0], [1], [2]]
    assert [tree.subtree(v)[1].tolist() for v in range(5)] == [[0, 1, 2], [1, 2], [0], [1], [2]]


def wrong_with(arrays: np.ndarray, n_classes: int) -> str:
    """What an obvious walk finds wrong with lo, mid and hi (3, nodes), if anything."""
    nodes = arrays.T.tolist()
    if any(not 0 <= lo < mid < hi <= n_classes for lo, mid, hi in nodes):
        return "needs 0 ≤ lo < mid < hi ≤ C"
    if (nodes[0][0], nodes[0][2]) != (0, n_classes):
        return "must be the root"
    waiting, place = [(0, n_classes)], 0
    while waiting:
        lo, hi = waiting.pop()
        if hi - lo == 1:
            continue
        if place == len(nodes) or (nodes[place][0], nodes[place][2]) != (lo, hi):
            return "not in pre-order"
        mid = nodes[place][1]
        waiting += [(mid, hi), (lo, mid)]
        place += 1
    return ""


@pytest.mark.parametrize(
    "nested",
    [[[["a", "b"], "c"], "d"], [["a", "b"], ["c", "d"]], ["a", ["b", ["c", "d"]]], ["a", [["b", "c"], "d"]]],
    ids=str,
)
def test_intervals_are_refused_exactly_where_a_walk_finds_them_wrong(nested: list[Any]) -> None:
    """Every tree of four classes with one or two of its numbers changed to any other."""
    tree = ClassTree.from_nested(nested, list("abcd"))
    right = np.stack([tree.lo, tree.mid, tree.hi])
    for first, second in itertools.combinations_with_replacement(range(9), 2):
        for values in itertools.product(range(-1, 6), repeat=2):
            arrays = right.copy()
            arrays.flat[[first, second]] = values
            message = wrong_with(arrays, 4)
            if message:
                with pytest.raises(ValueError, match=message):
                    ClassTree(tree.order, *arrays)
            else:
                ClassTree(tree.order, *arrays)


def test_every_vertex_has_a_parent_and_the_root_none() -> None:
    tree = ClassTree.from_nested(["a", ["b", "c"]], ["a", "b", "c"])
    assert tree.parent.tolist() == [-1, 0, 0, 1, 1]
    assert tree.left_child.tolist() == [2, 3]
    assert tree.right_child.tolist() == [1, 4]
