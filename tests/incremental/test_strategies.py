"""Where new classes go: every placement is a tree over all classes, and base nodes stay what they were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptree.incremental import Graft, Logarithmic, RebuildTree, SessionTree, SharedRoot
from gptree.incremental.strategies import Placement
from gptree.tree import ClassTree, surviving


def random_nested(classes: list[int], random: np.random.Generator):
    if len(classes) == 1:
        return classes[0]
    cut = int(random.integers(1, len(classes)))
    return [random_nested(classes[:cut], random), random_nested(classes[cut:], random)]


def random_tree(n: int, seed: int) -> ClassTree:
    random = np.random.default_rng(seed)
    return ClassTree.from_nested(random_nested(random.permutation(n).tolist(), random), range(n))


def sides(tree: ClassTree, v: int, among: set[int]) -> tuple[set[int], set[int]]:
    return set(tree.left(v).tolist()) & among, set(tree.right(v).tolist()) & among


class Builder:
    """Builds random trees over given classes, and remembers them as nested lists of class numbers."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.built: dict[frozenset[int], object] = {}

    def __call__(self, classes: np.ndarray) -> ClassTree:
        tree = random_tree(len(classes), self.seed + len(self.built))
        self.built[frozenset(classes.tolist())] = tree.to_nested(classes.tolist())
        return tree


@st.composite
def cases(draw):
    """A base tree, sessions of novel classes numbered in the order of arrival, and the host of each of them."""
    base = random_tree(draw(st.integers(1, 12)), draw(st.integers(0, 2**20)))
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    numbers = base.n_classes + np.arange(sum(sizes))
    sessions = np.split(numbers, np.cumsum(sizes)[:-1])
    hosts = draw(st.lists(st.integers(0, base.n_classes - 1), min_size=sum(sizes), max_size=sum(sizes)))
    return base, sessions, np.array(hosts), Builder(draw(st.integers(0, 2**20)))


def check_base_nodes(base: ClassTree, placement: Placement) -> None:
    """Every base node is there once, in the order of the base tree, and separates the same base classes."""
    old = set(range(base.n_classes))
    places = np.flatnonzero(placement.base_nodes >= 0)
    assert placement.base_nodes[places].tolist() == list(range(base.n_nodes))
    for v in places:
        assert sides(placement.tree, int(v), old) == sides(base, int(placement.base_nodes[v]), old)
    novel = range(base.n_classes, placement.tree.n_classes)
    pruned, stays = surviving(placement.tree, novel)
    assert pruned == base
    assert placement.base_nodes[stays].tolist() == list(range(base.n_nodes))


@pytest.mark.parametrize("strategy", [SharedRoot(), Graft()], ids=["shared root", "graft"])
@settings(deadline=None, max_examples=60)
@given(case=cases())
def test_base_nodes_keep_their_identity(strategy, case) -> None:
    base, sessions, hosts, build = case
    placement = strategy.place(base, sessions, build, hosts)
    assert sorted(placement.tree.order.tolist()) == list(range(base.n_classes + len(hosts)))
    assert placement.base_nodes.shape == (placement.tree.n_nodes,)
    check_base_nodes(base, placement)


@settings(deadline=None, max_examples=40)
@given(case=cases())
def test_a_shared_root_joins_the_base_and_one_tree_of_all_novel_classes(case) -> None:
    base, sessions, hosts, build = case
    tree = SharedRoot().place(base, sessions, build, hosts).tree
    numbers = range(tree.n_classes)
    assert tree.to_nested(numbers) == [base.to_nested(range(base.n_classes)), *build.built.values()]
    assert list(build.built) == [frozenset(range(base.n_classes, tree.n_classes))]


@settings(deadline=None, max_examples=40)
@given(case=cases())
def test_session_trees_go_on_top_one_after_the_other(case) -> None:
    base, sessions, hosts, build = case
    tree, expected = base, base.to_nested(range(base.n_classes))
    for k, session in enumerate(sessions):
        placement = SessionTree().place(tree, sessions[: k + 1], build, hosts)
        check_base_nodes(tree, placement)
        tree = placement.tree
        expected = [expected, build.built[frozenset(session.tolist())]]
        assert tree.to_nested(range(tree.n_classes)) == expected


def merged_in_turn(sessions: int) -> list[list[int]]:
    """Which sessions share a sub-tree: each arrives alone, and as long as the last two are of a size they merge."""
    groups: list[list[int]] = []
    for session in range(sessions):
        groups.append([session])
        while len(groups) > 1 and len(groups[-1]) == len(groups[-2]):
            last = groups.pop()
            groups[-1] = groups[-1] + last
    return groups


def test_sessions_share_a_sub_tree_as_in_a_binary_counter() -> None:
    refits = np.zeros(64, dtype=int)
    before: list[list[int]] = []
    for sessions in range(1, 65):
        expected = merged_in_turn(sessions)
        assert Logarithmic().groups(sessions) == [len(group) for group in expected]
        for end in range(1, len(expected)):  # a beginning is what its sessions would be alone
            assert Logarithmic().groups(sum(map(len, expected[:end]))) == [len(group) for group in expected[:end]]
        for group in expected:
            if group not in before:
                refits[group] += 1
        before = expected
        assert len(expected) <= 1 + np.log2(sessions)
    assert refits.max() == 7  # log₂ 64, and the first time


@settings(deadline=None, max_examples=40)
@given(case=cases())
def test_logarithmic_trees_hold_the_sessions_of_a_group(case) -> None:
    base, sessions, hosts, build = case
    tree, expected, seen = base, base.to_nested(range(base.n_classes)), 0
    for group in merged_in_turn(len(sessions)):
        seen += len(group)
        placement = Logarithmic().place(tree, sessions[:seen], build, hosts)
        check_base_nodes(tree, placement)
        tree = placement.tree
        members = np.concatenate([sessions[k] for k in group])
        expected = [expected, build.built[frozenset(members.tolist())]]
        assert tree.to_nested(range(tree.n_classes)) == expected


@settings(deadline=None, max_examples=60)
@given(case=cases())
def test_a_graft_replaces_the_leaf_of_the_host(case) -> None:
    base, sessions, hosts, build = case
    tree = Graft().place(base, sessions, build, hosts).tree
    families = {
        host: frozenset([host, *(base.n_classes + np.flatnonzero(hosts == host)).tolist()])
        for host in set(hosts.tolist())
    }
    assert set(build.built) == set(families.values())

    def grafted(item):
        if isinstance(item, list):
            return [grafted(side) for side in item]
        return build.built[families[item]] if item in families else item

    assert tree.to_nested(range(tree.n_classes)) == grafted(base.to_nested(range(base.n_classes)))


def test_a_rebuilt_tree_keeps_no_node() -> None:
    base, build = random_tree(5, 0), Builder(1)
    placement = RebuildTree().place(base, [np.array([5, 6]), np.array([7])], build, np.zeros(3, dtype=int))
    assert placement.base_nodes.tolist() == [-1] * 7
    assert list(build.built) == [frozenset(range(8))]
    assert RebuildTree().rebuilds
    assert not any(strategy.rebuilds for strategy in (SharedRoot(), SessionTree(), Graft()))


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 14), seed=st.integers(0, 2**20), data=st.data())
def test_survivors_of_a_pruned_tree(n: int, seed: int, data) -> None:
    """A node stays if classes are left on both its sides, and separates what is left of them."""
    tree = random_tree(n, seed)
    kept = data.draw(st.sets(st.integers(0, n - 1), min_size=1))
    pruned, stays = surviving(tree, set(range(n)) - kept)
    assert stays.tolist() == [v for v in range(tree.n_nodes) if all(sides(tree, v, kept))]
    new = {c: i for i, c in enumerate(sorted(kept))}
    for place, v in enumerate(stays):
        expected = tuple({new[c] for c in side} for side in sides(tree, int(v), kept))
        assert sides(pruned, place, set(range(n))) == expected
