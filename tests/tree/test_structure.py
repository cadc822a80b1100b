from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from random_trees import chain, class_trees, random_tree

from gptree.tree import ClassTree

# Leaf order 2 0 | 3 1; node 1 is {2, 0}, node 2 is {3, 1}.
FOUR = ClassTree([2, 0, 3, 1], [0, 0, 2], [2, 1, 3], [4, 2, 4])


def walk(tree: ClassTree) -> dict[int, tuple[int, list[tuple[int, bool]], list[int]]]:
    """The slow twin of the links: depth, path and members of every vertex, by recursion."""
    seen = {}
    node_of = {(lo, hi): v for v, (lo, hi) in enumerate(zip(tree.lo, tree.hi, strict=True))}

    def visit(lo: int, hi: int, path: list[tuple[int, bool]]) -> None:
        vertex = node_of[lo, hi] if hi - lo > 1 else tree.n_nodes + lo
        seen[vertex] = (len(path), path, tree.order[lo:hi].tolist())
        if hi - lo > 1:
            visit(lo, tree.mid[vertex], [*path, (vertex, True)])
            visit(tree.mid[vertex], hi, [*path, (vertex, False)])

    visit(0, tree.n_classes, [])
    return seen


@settings(deadline=None)
@given(class_trees())
def test_links_depths_and_paths_agree_with_recursion(tree: ClassTree):
    vertices = walk(tree)
    assert sorted(vertices) == list(range(2 * tree.n_classes - 1))
    for vertex, (depth, path, members) in vertices.items():
        assert tree.members(vertex).tolist() == members
        assert tree.parent[vertex] == (path[-1][0] if path else -1)
        if path:
            child = tree.left_child if path[-1][1] else tree.right_child
            assert child[path[-1][0]] == vertex
        if vertex < tree.n_nodes:
            assert tree.node_depth[vertex] == depth
            assert [*tree.left(vertex), *tree.right(vertex)] == members
            assert vertex in tree.levels[depth]
        else:
            assert tree.leaf_depth[vertex - tree.n_nodes] == depth
            assert tree.path(members[0]) == path
            assert tree.position[members[0]] == vertex - tree.n_nodes
    assert sum(map(len, tree.levels)) == tree.n_nodes
    assert tree.height == max(depth for depth, _, _ in vertices.values())


@settings(deadline=None)
@given(class_trees())
def test_subtree_of_every_vertex(tree: ClassTree):
    for vertex in range(2 * tree.n_classes - 1):
        subtree, classes = tree.subtree(vertex)
        assert classes.tolist() == sorted(tree.members(vertex).tolist())
        assert classes[subtree.order].tolist() == tree.members(vertex).tolist()
        inside = [v for v in range(tree.n_nodes) if set(tree.members(v)) <= set(classes)] if len(classes) > 1 else []
        assert [classes[subtree.left(u)].tolist() for u in range(subtree.n_nodes)] == [
            tree.left(v).tolist() for v in inside
        ]


@settings(deadline=None)
@given(class_trees())
def test_round_trips(tree: ClassTree):
    labels = [f"label {c}" for c in range(tree.n_classes)]
    copies = [
        ClassTree.from_nested(tree.to_nested(labels), labels),
        ClassTree.from_json(json.loads(json.dumps(tree.to_json()))),
        pickle.loads(pickle.dumps(tree)),
        copy.deepcopy(tree),
    ]
    for other in copies:
        assert other == tree
        assert hash(other) == hash(tree)
        assert not any(array.flags.writeable for array in (other.order, other.lo, other.mid, other.hi))


def test_nested_form():
    labels = ["cat", "dog", "car", "lorry"]
    assert FOUR.to_nested(labels) == [["car", "cat"], ["lorry", "dog"]]
    assert ClassTree.from_nested((("car", "cat"), ["lorry", "dog"]), labels) == FOUR
    assert ClassTree.from_nested("cat", ["cat"]).to_nested(["cat"]) == "cat"
    assert ClassTree.from_nested([np.int64(7), 3], np.array([3, 7])).order.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("nested", "message"),
    [
        (["a", "b"], "'c' is missing"),
        ([["a", "b"], ["c", "a"]], "'a' stands more than once"),
        ([["a", "b"], ["c", "d"]], "'d', which is none of the classes"),
        (["a", "b", "c"], "two sides, but one has 3"),
        ([["a", "b"], ["c"]], "two sides, but one has 1"),
        ([["a", "b"], {"c": 1}], "got dict"),
        ([["a", "b"], np.array(["c"])], "got ndarray"),
    ],
)
def test_bad_nested_trees_are_named(nested, message: str):
    with pytest.raises(ValueError, match=message):
        ClassTree.from_nested(nested, ["a", "b", "c"])


def test_trees_are_values():
    assert random_tree(9, 1) == random_tree(9, 1)
    assert len({random_tree(9, 1), random_tree(9, 1), random_tree(9, 2)}) == 2
    assert FOUR != "a tree"
    assert repr(FOUR) == "ClassTree(n_classes=4, height=2)"
    mine = np.array([2, 0, 3, 1])
    tree = ClassTree(mine, [0, 0, 2], [2, 1, 3], [4, 2, 4])
    mine[:] = 0
    assert tree == FOUR
    with pytest.raises(ValueError, match="read-only"):
        tree.order[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        tree.parent[0] = 1
    with pytest.raises(AttributeError):
        tree.order = mine  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([], [], [], []), "at least one class"),
        (([0, 0], [0], [1], [2]), "each of the classes"),
        (([0, 2], [0], [1], [2]), "each of the classes"),
        (([1, 0], [], [], []), "1 entries each"),
        (([1, 0], [0], [1], [2, 2]), "1 entries each"),
        (([1, 0], [0], [2], [2]), "lo < mid < hi"),
        (([1, 0], [0], [1], [3]), "lo < mid < hi"),
        (([1, 0, 2], [0, 0], [1, 1], [2, 3]), "root"),
        (([0, 1, 2, 3], [0, 2, 0], [2, 3, 1], [4, 4, 2]), "pre-order"),  # right child before left
        (([0, 1, 2, 3], [0, 0, 1], [2, 1, 2], [4, 2, 3]), "pre-order"),  # overlapping children
        (([0, 1, 2, 3, 4], [0, 0, 1, 3], [3, 1, 2, 4], [5, 2, 3, 5]), "pre-order"),  # a child too narrow
        (([0, 1, 2], [0, 0], [1, 1], [3, 2]), "pre-order"),  # an inner node where a leaf should be
        (([[0]], [], [], []), "one-dimensional"),
        (([0.0, 1.0], [0], [1], [2]), "integers"),
        (([True], [], [], []), "integers"),
        (([0, [1]], [0], [1], [2]), "integers"),
    ],
)
def test_invariants_are_checked(arrays, message: str):
    with pytest.raises(ValueError, match=message):
        ClassTree(*arrays)


@pytest.mark.parametrize("data", [{}, [], {"order": [0], "lo": [], "mid": []}, {**FOUR.to_json(), "extra": 1}])
def test_foreign_json_is_refused(data):
    with pytest.raises(ValueError, match="dictionary with the keys"):
        ClassTree.from_json(data)


def test_unknown_class_and_vertex():
    with pytest.raises(ValueError, match="no class 4"):
        FOUR.path(4)
    for vertex in (-1, 7):
        with pytest.raises(ValueError, match="no vertex"):
            FOUR.subtree(vertex)
    with pytest.raises(ValueError, match="3 labels given for 4"):
        FOUR.to_nested("abc")
    with pytest.raises(ValueError, match="lacks a side"):
        ClassTree.from_preorder([-1, 0])


def test_chain_of_ten_thousand_classes():
    n = 10_000
    tree = chain(n)
    assert ClassTree.from_nested(tree.to_nested(range(n)), range(n)) == tree
    nested_left: object = 0
    for c in range(1, n):
        nested_left = [nested_left, c]
    leftward = ClassTree.from_nested(nested_left, range(n))
    assert tree.height == leftward.height == n - 1
    assert tree.path(n - 1) == [(v, False) for v in range(n - 1)]
    assert leftward.path(0) == [(v, True) for v in range(n - 1)]
    subtree, classes = tree.subtree(5000)
    assert subtree == chain(5000)
    assert classes[0] == 5000


def test_trees_are_equal_in_order_and_shape() -> None:
    """Of three classes there are two shapes, and orders in which either can stand."""
    left, right, turned = (
        ClassTree.from_nested(nested, range(3)) for nested in ([[0, 1], 2], [0, [1, 2]], [[1, 0], 2])
    )
    assert left == ClassTree.from_nested([[0, 1], 2], range(3))
    assert np.array_equal(left.order, right.order)
    assert left != right
    assert np.array_equal(left.mid, turned.mid)
    assert left != turned
