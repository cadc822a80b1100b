"""Choices of the tree builders that leave the tree as it is."""

from __future__ import annotations

import numpy as np

from gptree.tree import label_hashes
from gptree.tree.builders.base import divide
from gptree.tree.builders.lloyd import gram_pays


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
