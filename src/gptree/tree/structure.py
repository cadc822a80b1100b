"""`ClassTree`: an order of the classes, and intervals of it.

Put the classes in leaf order, left to right. Then every inner node owns a contiguous interval `[lo, hi)` of
leaf positions, cut at `mid`: its left child owns `[lo, mid)`, its right child `[mid, hi)`. Nodes are stored
in pre-order (a node, its left sub-tree, its right sub-tree), so that equal trees have equal arrays, and
structural questions are index arithmetic: the sub-tree of a node with n classes is n − 1 consecutive rows,
the first of them its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gptree.storage import JsonValue

_ARRAYS = ("order", "lo", "mid", "hi")
#: An inner node in pre-order, where a leaf is its class.
INNER = -1


@dataclass(frozen=True, eq=False, repr=False)
class ClassTree(JsonValue):
    """A binary tree over the classes 0 … C − 1; an immutable value.

    *Vertices* are inner nodes and leaves together: inner nodes are 0 … C − 2 (the root is 0), the leaf at
    position p is C − 1 + p. A tree over one class has no inner node; its leaf is vertex 0.

    Attributes
    ----------
    order : int64 array (C,)
        The class at each leaf position.
    lo, mid, hi : int64 arrays (C − 1,)
        The intervals of the inner nodes, in pre-order.

    Examples
    --------
    >>> from gptree import ClassTree
    >>> ClassTree.from_nested([["cat", "dog"], "car"], ["car", "cat", "dog"])
    ClassTree(n_classes=3, height=2)
    """

    order: np.ndarray
    lo: np.ndarray
    mid: np.ndarray
    hi: np.ndarray

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            object.__setattr__(self, name, _read_only_int64(name, getattr(self, name)))
        _check_invariants(self.order, self.lo, self.mid, self.hi)

    # ---------------------------------------------------------------- constructors

    @classmethod
    def from_preorder(cls, vertices: Sequence[int]) -> ClassTree:
        """The tree whose vertices in pre-order are these: a class for a leaf, −1 for an inner node."""
        pending: list[int] = []  # sizes of finished sub-trees, the leftmost on top
        sizes = []  # of the left side and of the whole of every inner node, last node first
        for vertex in reversed(vertices):
            if vertex >= 0:
                pending.append(1)
            elif len(pending) < 2:
                raise ValueError("An inner node lacks a side.")
            else:
                left, right = pending.pop(), pending.pop()
                pending.append(left + right)
                sizes.append((left, left + right))
        order: list[int] = []
        nodes = []
        for vertex in vertices:
            if vertex >= 0:
                order.append(vertex)
            else:
                left, both = sizes.pop()
                nodes.append((len(order), len(order) + left, len(order) + both))
        return cls.from_nodes(order, nodes)

    @classmethod
    def from_nodes(cls, order: Sequence[int] | np.ndarray, nodes: Sequence[tuple[int, int, int]]) -> ClassTree:
        """The tree with this leaf order and these (lo, mid, hi), in pre-order."""
        lo, mid, hi = np.array(nodes, dtype=np.int64).reshape(len(nodes), 3).T
        return cls(np.asarray(order), lo, mid, hi)

    @classmethod
    def from_nested(cls, nested: Any, labels: Sequence[Hashable]) -> ClassTree:
        """The tree written as nested pairs of labels, e.g. `[["cat", "dog"], "car"]`.

        `labels[c]` is the label of class c. A pair is a list or a tuple of two; anything else is a label.
        """
        index = {label: c for c, label in enumerate(labels)}
        if len(index) < len(labels):
            raise ValueError("The labels hold a duplicate.")
        preorder, stack = [], [nested]
        while stack:
            item = stack.pop()
            if not isinstance(item, list | tuple):
                preorder.append(_class_of(item, index))
            elif len(item) == 2:
                preorder.append(INNER)
                stack += (item[1], item[0])
            else:
                raise ValueError(f"A node of a nested tree has two sides, but one has {len(item)}.")
        count = Counter(preorder)
        for c, label in enumerate(labels):
            if count[c] != 1:
                where = "is missing in" if count[c] == 0 else "stands more than once in"
                raise ValueError(f"The label '{label}' {where} the nested tree.")
        return cls.from_preorder(preorder)

    def to_nested(self, labels: Sequence[Any]) -> Any:
        """Nested lists of labels; the inverse of `from_nested`. One class gives the bare label."""
        if len(labels) != self.n_classes:
            raise ValueError(f"{len(labels)} labels given for {self.n_classes} classes.")
        built: list[Any] = [None] * self.n_nodes + [labels[c] for c in self.order]
        for v in reversed(range(self.n_nodes)):
            built[v] = [built[self.left_child[v]], built[self.right_child[v]]]
        return built[0]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ClassTree:
        """The tree from the plain dictionary that `to_json` gives."""
        if not isinstance(data, Mapping) or set(data) != set(_ARRAYS):
            raise ValueError(f"A stored class tree is a dictionary with the keys {', '.join(_ARRAYS)}.")
        return cls(**{name: data[name] for name in _ARRAYS})

    def to_json(self) -> dict[str, list[int]]:
        """A dictionary of lists of plain integers."""
        return {name: getattr(self, name).tolist() for name in _ARRAYS}

    # ---------------------------------------------------------------- sizes and links

    @property
    def n_classes(self) -> int:
        return len(self.order)

    @property
    def n_nodes(self) -> int:
        """The number of inner nodes, C − 1."""
        return len(self.lo)

    @cached_property
    def position(self) -> np.ndarray:
        """The leaf position of each class: the inverse of `order`."""
        return _frozen(np.argsort(self.order))

    @cached_property
    def left_child(self) -> np.ndarray:
        """The vertex on the left of each inner node."""
        nodes = np.arange(self.n_nodes)
        return _frozen(np.where(self.mid - self.lo > 1, nodes + 1, self.n_nodes + self.lo))

    @cached_property
    def right_child(self) -> np.ndarray:
        """The vertex on the right of each inner node."""
        nodes = np.arange(self.n_nodes)
        # The left sub-tree fills mid − lo − 1 rows after the node's own.
        return _frozen(np.where(self.hi - self.mid > 1, nodes + (self.mid - self.lo), self.n_nodes + self.mid))

    @cached_property
    def parent(self) -> np.ndarray:
        """The inner node above each vertex; −1 at the root."""
        parent = np.full(2 * self.n_classes - 1, -1)
        parent[self.left_child] = parent[self.right_child] = np.arange(self.n_nodes)
        return _frozen(parent)

    @cached_property
    def node_depth(self) -> np.ndarray:
        """The number of decisions above each inner node (0 at the root)."""
        nodes = np.arange(self.n_nodes)
        # Node v is an ancestor of the rows v + 1 … v + n − 2, n = hi − lo.
        return _frozen(_count_covering(nodes + 1, nodes + (self.hi - self.lo) - 1, self.n_nodes))

    @cached_property
    def leaf_depth(self) -> np.ndarray:
        """The number of decisions on the path to the leaf at each position."""
        return _frozen(_count_covering(self.lo, self.hi, self.n_classes))

    @cached_property
    def path_nodes(self) -> np.ndarray:
        """The inner nodes on the path to each leaf position, root first, one position after another: Σ `leaf_depth`."""
        ends = np.cumsum(self.leaf_depth)
        nodes = np.empty(int(ends[-1]), dtype=np.int64)
        for depth, level in enumerate(self.levels):
            sizes = self.hi[level] - self.lo[level]
            firsts = np.cumsum(sizes) - sizes
            positions = np.arange(int(sizes.sum())) + np.repeat(self.lo[level] - firsts, sizes)
            nodes[(ends - self.leaf_depth)[positions] + depth] = np.repeat(level, sizes)
        return _frozen(nodes)

    @property
    def height(self) -> int:
        """The length of the longest path."""
        return int(self.leaf_depth.max())

    @cached_property
    def levels(self) -> tuple[np.ndarray, ...]:
        """The inner nodes of each depth, left to right; the nodes of one level own disjoint intervals."""
        if self.n_nodes == 0:
            return ()
        by_depth = np.argsort(self.node_depth, kind="stable")
        ends = np.cumsum(np.bincount(self.node_depth))
        return tuple(_frozen(level) for level in np.split(by_depth, ends[:-1]))

    # ---------------------------------------------------------------- classes of a vertex

    def left(self, node: int) -> np.ndarray:
        """The classes on the left of an inner node, in leaf order."""
        return self.order[self.lo[node] : self.mid[node]]

    def right(self, node: int) -> np.ndarray:
        """The classes on the right of an inner node, in leaf order."""
        return self.order[self.mid[node] : self.hi[node]]

    def members(self, vertex: int) -> np.ndarray:
        """The classes under a vertex (inner node or leaf), in leaf order."""
        self._check_vertex(vertex)
        if vertex >= self.n_nodes:
            return self.order[vertex - self.n_nodes : vertex - self.n_nodes + 1]
        return self.order[self.lo[vertex] : self.hi[vertex]]

    def path(self, class_index: int) -> list[tuple[int, bool]]:
        """The decisions from the root to the leaf of a class, as (inner node, goes left)."""
        if not 0 <= class_index < self.n_classes:
            raise ValueError(f"There is no class {class_index}: the classes are 0 … {self.n_classes - 1}.")
        decisions = []
        vertex = self.n_nodes + int(self.position[class_index])
        while (node := int(self.parent[vertex])) >= 0:
            decisions.append((node, bool(self.left_child[node] == vertex)))
            vertex = node
        return decisions[::-1]

    def subtree(self, vertex: int) -> tuple[ClassTree, np.ndarray]:
        """The tree under a vertex, and its classes.

        Class j of the new tree is class `classes[j]` of this one; `classes` is sorted.
        """
        members = self.members(vertex)
        classes = np.sort(members)
        # A leaf takes no rows; an inner node takes its own and those of its n − 2 descendants.
        rows = slice(vertex, vertex + len(members) - 1)
        cuts = (array[rows] - self.position[members[0]] for array in (self.lo, self.mid, self.hi))
        return ClassTree(np.searchsorted(classes, members), *cuts), classes

    def _check_vertex(self, vertex: int) -> None:
        if not 0 <= vertex < 2 * self.n_classes - 1:
            raise ValueError(f"There is no vertex {vertex}: the vertices are 0 … {2 * self.n_classes - 2}.")

    # ---------------------------------------------------------------- value semantics

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClassTree):
            return NotImplemented
        return np.array_equal(self.order, other.order) and np.array_equal(self.mid, other.mid)

    def __hash__(self) -> int:
        return hash((self.order.tobytes(), self.mid.tobytes()))  # in pre-order, mid determines lo and hi

    def __repr__(self) -> str:
        return f"ClassTree(n_classes={self.n_classes}, height={self.height})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled arrays come back writeable, so copies pass through the constructor.
        return ClassTree, tuple(getattr(self, name) for name in _ARRAYS)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def _read_only_int64(name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.asarray(None)  # ragged lists
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a one-dimensional array of integers.")
    return _frozen(array.astype(np.int64))  # astype copies, so the caller's array stays as it is


def _check_invariants(order: np.ndarray, lo: np.ndarray, mid: np.ndarray, hi: np.ndarray) -> None:
    n_classes, n_nodes = len(order), len(lo)
    if n_classes == 0:
        raise ValueError("A class tree needs at least one class.")
    if not np.array_equal(np.sort(order), np.arange(n_classes)):
        raise ValueError(f"order must hold each of the classes 0 … {n_classes - 1} once.")
    if not len(lo) == len(mid) == len(hi) == n_classes - 1:
        raise ValueError(f"lo, mid and hi need {n_classes - 1} entries each for {n_classes} classes.")
    if not np.all((lo >= 0) & (lo < mid) & (mid < hi) & (hi <= n_classes)):
        raise ValueError("Every node needs 0 ≤ lo < mid < hi ≤ C.")
    if n_nodes and (lo[0], hi[0]) != (0, n_classes):
        raise ValueError("The first node must be the root and own all leaf positions.")
    # If the root is right and every node's children stand where pre-order puts them, the whole tree is right.
    nodes = np.arange(n_nodes)
    for child, start, end in ((nodes + 1, lo, mid), (nodes + (mid - lo), mid, hi)):
        inner = end - start > 1
        child, start, end = child[inner], start[inner], end[inner]
        if np.any(child >= n_nodes) or np.any(lo[child] != start) or np.any(hi[child] != end):
            raise ValueError("The nodes are not in pre-order, or their intervals do not nest.")


def _count_covering(start: np.ndarray, end: np.ndarray, length: int) -> np.ndarray:
    """How many of the intervals [start, end) cover each of the integers 0 … length − 1."""
    opened = np.bincount(start, minlength=length + 1)
    closed = np.bincount(end, minlength=length + 1)
    return np.cumsum(opened - closed)[:length]


def _class_of(label: Any, index: Mapping[Hashable, int]) -> int:
    try:
        return index[label]
    except TypeError:
        raise ValueError(
            f"A nested tree is made of lists or tuples of two and of labels; got {type(label).__name__}."
        ) from None
    except KeyError:
        raise ValueError(f"The nested tree holds the label '{label}', which is none of the classes.") from None
