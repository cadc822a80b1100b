"""Growth settings, and the strategies that place novel classes in a tree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from gptree.incremental.exemplars import KMeansExemplars, Selection
from gptree.settings import NamedSettings, Settings, require
from gptree.tree import ClassTree, join, permute, replace_leaf


@dataclass(frozen=True)
class Placement:
    """A tree over all classes: the base classes first, then the novel ones in the order of their arrival."""

    tree: ClassTree
    base_nodes: np.ndarray
    """(nodes,) which node of the base tree each one is, or −1 for a new one."""
    novel: ClassTree | None = None
    """The tree of the last classes, joined with everything else under a new root: those nodes and the root are all that
    is new. None where new nodes stand elsewhere."""


class Build(Protocol):
    """Builds a tree over some of the classes, given by their numbers."""

    def __call__(self, classes: np.ndarray) -> ClassTree: ...


class Strategy(NamedSettings, ABC):
    """Where novel classes go in a tree: a frozen dataclass that subclasses this and has `place`.

    Attributes
    ----------
    rebuilds : bool
        Whether all nodes are fitted anew, so that nothing of the base posteriors stays.
    layered : bool
        Whether sessions, or `groups` of them, are fitted one after the other, each on top of the tree of those before.
    """

    family: ClassVar[str] = "strategy"
    example: ClassVar[str] = "SharedRoot()"
    rebuilds: ClassVar[bool] = False
    layered: ClassVar[bool] = False

    def groups(self, sessions: int) -> list[int]:
        """Of a layered strategy: how many sessions each layer holds, the oldest first; by default one.

        A beginning of the groups must be the groups of their sessions alone.
        """
        return [1] * sessions

    @abstractmethod
    def place(self, base: ClassTree, sessions: list[np.ndarray], build: Build, similar: np.ndarray) -> Placement:
        """A tree over base and novel classes.

        Parameters
        ----------
        base : ClassTree
            Over the base classes 0 … B − 1; if `layered`, over all classes of earlier groups of sessions too.
        sessions : list of int arrays
            Class numbers that each session brought.
        build : Build
            Builds a tree over some classes.
        similar : (novel classes,)
            The most similar base class of each.

        Returns
        -------
        Placement
        """


@dataclass(frozen=True)
class SharedRoot(Strategy):
    """The paper's: one sub-tree over all novel classes, joined with the base tree under a new root.

    Every session builds the sub-tree anew and fits it and the root; the base tree is never touched.
    """

    name: ClassVar[str | None] = "shared-root"

    def place(self, base: ClassTree, sessions: list[np.ndarray], build: Build, similar: np.ndarray) -> Placement:
        novel = np.concatenate(sessions)
        # paper section 3.4
        return _joined(base, np.arange(base.n_nodes), build(novel))


@dataclass(frozen=True)
class SessionTree(Strategy):
    """One sub-tree a session, joined with everything before under a new root; what was fitted earlier is not touched.

    Sessions are fitted one after the other: this places the last one on top of the tree of those before.
    """

    name: ClassVar[str | None] = "session-tree"
    layered: ClassVar[bool] = True

    def place(self, base: ClassTree, sessions: list[np.ndarray], build: Build, similar: np.ndarray) -> Placement:
        # paper section D.2
        return _joined(base, np.arange(base.n_nodes), build(sessions[-1]))


@dataclass(frozen=True)
class Logarithmic(Strategy):
    """Sub-trees over 1, 2, 4, … sessions: two of a size become one, as in a binary counter.

    S sessions stand in one sub-tree for each binary digit of S that is 1, the oldest sessions in the largest. Each is
    joined with everything before under a new root. Over S sessions a class is fitted again at most log₂ S times, and
    there are at most 1 + log₂ S roots above a base class, where `SharedRoot` fits all novel classes in every session
    and `SessionTree` has S roots.
    """

    name: ClassVar[str | None] = "logarithmic"
    layered: ClassVar[bool] = True

    def groups(self, sessions: int) -> list[int]:
        return [1 << k for k in reversed(range(sessions.bit_length())) if sessions >> k & 1]

    def place(self, base: ClassTree, sessions: list[np.ndarray], build: Build, similar: np.ndarray) -> Placement:
        newest = sessions[-self.groups(len(sessions))[-1] :]
        return _joined(base, np.arange(base.n_nodes), build(np.concatenate(newest)))


@dataclass(frozen=True)
class RebuildTree(Strategy):
    """A new tree over all classes in every session, every node fitted anew to the examples in memory.

    The one strategy that gives up what the base session fitted: base posteriors are replaced.
    """

    name: ClassVar[str | None] = "rebuild-tree"
    rebuilds: ClassVar[bool] = True

    def place(self, base: ClassTree, sessions: list[np.ndarray], build: Build, similar: np.ndarray) -> Placement:
        # paper section D.2
        tree = build(np.arange(base.n_classes + sum(map(len, sessions))))
        return Placement(tree, np.full(tree.n_nodes, -1))


@dataclass(frozen=True)
class Graft(Strategy):
    """Novel classes beside their most similar base class: the leaf of that class becomes a sub-tree over both.

    Base nodes above the leaf keep their posteriors; their prior means count the novel classes in.
    """

    name: ClassVar[str | None] = "graft"

    def place(self, base: ClassTree, sessions: list[np.ndarray], build: Build, similar: np.ndarray) -> Placement:
        tree, nodes = base, np.arange(base.n_nodes)
        arrived = []
        for host in np.unique(similar):
            guests = base.n_classes + np.flatnonzero(similar == host)
            members = np.concatenate([[host], guests])
            row = np.searchsorted(tree.lo, tree.position[host], side="right")  # as in `replace_leaf`
            subtree = build(members)
            tree = replace_leaf(tree, int(host), subtree)
            nodes = np.insert(nodes, row, np.full(subtree.n_nodes, -1))
            arrived.append(guests)
        mapping = np.concatenate([np.arange(base.n_classes), *arrived])
        return Placement(permute(tree, mapping), nodes)


def _joined(base: ClassTree, base_nodes: np.ndarray, novel: ClassTree) -> Placement:
    return Placement(join(base, novel), np.concatenate([[-1], base_nodes, np.full(novel.n_nodes, -1)]), novel)


@dataclass(frozen=True)
class Growth(Settings):
    """Settings of a model whose classes keep arriving.

    Parameters
    ----------
    exemplars : int
        Examples kept of each base class.
    shots : int
        Examples that a novel class is expected to come with; the base session rehearses with so many.
    strategy : SharedRoot(), SessionTree(), Logarithmic(), RebuildTree(), Graft(), one of your own, or a name
        Where novel classes go in a tree.
    selection : KMeansExemplars(), Herding(), KMeansPlusPlusExemplars() or one of your own
        Which examples of a class are kept.
    session_exemplars : int or None
        Examples that a session keeps of each of its classes, at most, chosen by `selection`: each counts as many times
        as there are examples that it is nearest to, and the others are dropped. The bound is for each call: every
        `add_examples` of a class adds up to as many, and a merge keeps those of all its classes. None keeps all.

    Examples
    --------
    >>> from gptree import GPForestClassifier, Growth, Herding
    >>> model = GPForestClassifier(growth=Growth(exemplars=10, selection=Herding()))
    """

    exemplars: int = 5
    shots: int = 5
    strategy: Strategy = field(default_factory=SharedRoot)
    selection: Selection = field(default_factory=KMeansExemplars)
    session_exemplars: int | None = None

    def __post_init__(self) -> None:
        for name in ("exemplars", "shots", "session_exemplars"):
            value = getattr(self, name)
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if name != "session_exemplars" or value is not None:
                require(bool(whole and value >= 1), f"{name} must be a whole number of at least 1, got {value!r}.")
        object.__setattr__(self, "strategy", Strategy.of(self.strategy))
        if not isinstance(self.selection, Selection):
            raise TypeError(
                "selection must be KMeansExemplars(), Herding(), KMeansPlusPlusExemplars() or one of your own, not "
                f"{self.selection!r}."
            )
