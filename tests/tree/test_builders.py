from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

import numpy as np
import pytest
from random_trees import chain, clusters

from gptree.maths.sphere import unit_length
from gptree.tree import (
    BalancedTwoMeans,
    Chain,
    ClassTree,
    RandomBalanced,
    TreeBuilder,
    TwoMeans,
    Ward,
    build_tree,
    label_hashes,
    node_generator,
    node_key,
    permute,
)
from gptree.tree.builders import lloyd
from gptree.tree.builders.lloyd import halves, nearest, two_means

ALL = [TreeBuilder.of(name) for name in TreeBuilder.names()]
BALANCED = [BalancedTwoMeans(), RandomBalanced()]


def prototypes(n_classes: int, d: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n_classes, d))


def names(n_classes: int) -> list[str]:
    return [f"class {c}" for c in range(n_classes)]


# ---------------------------------------------------------------- all builders


@pytest.mark.parametrize("builder", ALL)
@pytest.mark.parametrize("n_classes", [1, 2, 3, 4, 17, 60])
def test_valid_oriented_and_deterministic(builder, n_classes: int):
    X, labels = prototypes(n_classes), names(n_classes)
    tree = builder.build(X, labels, 0)
    assert tree.n_classes == n_classes
    assert tree == builder.build(X.copy(), np.array(labels), 0)
    for v in range(tree.n_nodes):
        assert tree.left(v).min() < tree.right(v).min()


@pytest.mark.parametrize("builder", ALL)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_node_alone_gives_its_subtree(builder, seed: int):
    X, labels = prototypes(60, seed=seed), names(60)
    tree = builder.build(X, labels, seed)
    for v in range(tree.n_nodes):
        subtree, classes = tree.subtree(v)
        assert builder.build(X[classes], [labels[c] for c in classes], seed) == subtree


@pytest.mark.parametrize("builder", [TwoMeans(restarts=1), BalancedTwoMeans(restarts=1), RandomBalanced(), Ward()])
def test_numbering_of_the_classes_does_not_matter(builder):
    X, labels = prototypes(40), np.array(names(40))
    renumbered = np.random.default_rng(5).permutation(40)  # new class i is old class renumbered[i]
    tree = builder.build(X, labels, 3)
    other = builder.build(X[renumbered], labels[renumbered], 3)
    assert clusters(permute(other, renumbered)) == clusters(tree)


@pytest.mark.parametrize("builder", [TwoMeans(restarts=1), BalancedTwoMeans(restarts=1), RandomBalanced()])
def test_seeds_and_labels_matter(builder):
    X = prototypes(60, d=30)
    trees = {builder.build(X, names(60), seed) for seed in range(5)}
    assert len(trees) == 5
    assert builder.build(X, range(60), 0) not in trees


@pytest.mark.parametrize("builder", ALL)
@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_scale_of_the_means_does_not_matter(builder, scale: float):
    X, labels = prototypes(20), names(20)
    assert builder.build(X * scale, labels, 0) == builder.build(X, labels, 0)


@pytest.mark.parametrize("builder", ALL)
@pytest.mark.parametrize(
    "X",
    [
        np.zeros((9, 4)),
        np.full((9, 4), 0.1),
        np.repeat([[1.0, 2.0], [3.0, -1.0], [0.0, 0.0]], 3, axis=0),
        np.ones((9, 1)) + 1e-16 * np.arange(9)[:, None],
        np.eye(9),
    ],
    ids=["zero", "equal", "three of a kind", "nearly equal", "equidistant"],
)
def test_prototypes_that_cannot_be_told_apart(builder, X: np.ndarray):
    tree = builder.build(X, names(9), 0)
    assert tree == builder.build(X, names(9), 0)
    if isinstance(builder, TwoMeans) and len(np.unique(X, axis=0)) == 1:
        assert tree.order.tolist() == list(range(9))  # even splits in class order
        assert tree.height == 4


@pytest.mark.parametrize("builder", BALANCED)
@pytest.mark.parametrize("n_classes", [2, 3, 31, 64, 100])
def test_balanced_sizes_differ_by_at_most_one(builder, n_classes: int):
    tree = builder.build(prototypes(n_classes), names(n_classes), 0)
    assert np.all(np.abs((tree.hi - tree.mid) - (tree.mid - tree.lo)) <= 1)
    assert tree.height == int(np.ceil(np.log2(n_classes)))


@pytest.mark.parametrize("builder", ALL)
def test_bad_input(builder):
    for X, labels in ((np.zeros((2, 3)), ["a"]), (np.zeros(3), ["a", "b", "c"]), (np.zeros((0, 3)), [])):
        with pytest.raises(ValueError, match="one row for each"):
            builder.build(X, labels, 0)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="NaN or infinity"):
            builder.build(np.array([[1.0], [bad]]), ["a", "b"], 0)
    with pytest.raises(ValueError, match="duplicate"):
        builder.build(np.zeros((2, 3)), ["a", "a"], 0)


def test_restarts_must_be_positive():
    for builder in (TwoMeans, BalancedTwoMeans):
        for restarts, error in ((0, ValueError), (-1, ValueError), (2.0, TypeError)):
            with pytest.raises(error, match="restarts"):
                builder(restarts=restarts)


def test_no_global_random_state_is_touched():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for builder in ALL:
        builder.build(prototypes(10), names(10), 0)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


# ---------------------------------------------------------------- single builders


def inertia(X: np.ndarray, side: np.ndarray) -> float:
    return sum(((X[part] - X[part].mean(axis=0)) ** 2).sum() for part in (side, ~side))


def all_sides(n: int, sizes=None):
    for bits in itertools.product([False, True], repeat=n - 1):
        side = np.array([False, *bits])
        if side.any() and (sizes is None or side.sum() in sizes):
            yield side


@pytest.mark.parametrize("shape", [(8, 3), (9, 20)])  # by X(Xᵀb), and by the Gram matrix
@pytest.mark.parametrize("seed", range(5))
def test_splits_reach_the_least_inertia_of_all_partitions(shape, seed: int):
    X = prototypes(*shape, seed=seed)
    X[::2] += 2 * prototypes(1, shape[1], seed=seed + 100)  # two clusters, so that Lloyd finds the best split
    n = len(X)
    for assign, sizes in ((nearest, None), (halves, (n // 2, n - n // 2))):
        side = two_means(X, 30, assign, np.random.default_rng(seed))
        least = min(inertia(X, other) for other in all_sides(n, sizes))
        assert inertia(X, side) == pytest.approx(least, rel=1e-12)


def plain_two_means(X: np.ndarray, seeds: tuple[int, int], balanced: bool) -> np.ndarray:
    """The slow twin of one run: Lloyd's algorithm from two given points, in loops."""
    centres = [X[seeds[0]], X[seeds[1]]]
    while True:
        gains = [((x - centres[0]) ** 2).sum() - ((x - centres[1]) ** 2).sum() for x in X]
        cut = sorted(gains)[-(len(X) // 2)] if balanced else 0.0
        side = np.array([gain >= cut for gain in gains])
        updated = [X[~side].mean(axis=0), X[side].mean(axis=0)]
        if all(np.array_equal(old, new) for old, new in zip(centres, updated, strict=True)):
            return side
        centres = updated


@pytest.mark.parametrize("shape", [(25, 4), (10, 30)])
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("restarts", [1, 4])
def test_equals_the_best_of_plain_runs_from_the_same_seeds(shape, balanced: bool, restarts: int):
    X = unit_length(prototypes(*shape))
    for seed in range(20):
        generator = np.random.default_rng(seed)
        firsts, levels = generator.integers(len(X), size=restarts), generator.random(restarts)
        runs = []
        for first, level in zip(firsts, levels, strict=True):
            weights = ((X - X[first]) ** 2).sum(axis=1)
            second = int(np.searchsorted(np.cumsum(weights) / weights.sum(), level))
            runs.append(plain_two_means(X, (first, second), balanced))
        best = min(runs, key=lambda side: inertia(X, side))
        side = two_means(X, restarts, halves if balanced else nearest, np.random.default_rng(seed))
        assert np.array_equal(side, best) or np.array_equal(side, ~best)


def test_close_pairs_far_from_the_origin_are_told_apart():
    # Two groups 1e-10 apart, all on one spot of the sphere: squared lengths alone could not tell them apart.
    X = np.ones((6, 50))
    X[[1, 3, 5], 0] += 1e-10
    tree = TwoMeans().build(X, names(6), 0)
    assert sorted(tree.left(0)) == [0, 2, 4]


def test_two_means_finds_the_groups_at_every_level():
    centres = prototypes(4, d=30, seed=1)
    X = np.repeat(centres, 5, axis=0) + 0.01 * prototypes(20, d=30, seed=2)
    groups = {frozenset(range(i, i + 5)) for i in range(0, 20, 5)}
    for builder in (TwoMeans(), Ward()):
        assert groups <= clusters(builder.build(X, names(20), 0))


def test_two_means_uses_directions_not_lengths():
    X = np.array([[1.0, 0.1], [100.0, 0.0], [0.0, 1.0], [0.1, 100.0]])
    for builder in (TwoMeans(), BalancedTwoMeans(), Ward()):
        assert builder.build(X, names(4), 0).to_nested(range(4)) == [[0, 1], [2, 3]]


def test_random_balanced_draws_a_uniform_half():
    # Each of the three splits of four classes into two pairs has probability 1/3. Over 3,000 seeds a count
    # has standard deviation 25.8; 4.5 of these keep the chance of a false alarm at about 2e-5.
    counts = {(0, 1): 0, (0, 2): 0, (0, 3): 0}
    for seed in range(3000):
        tree = RandomBalanced().build(np.zeros((4, 1)), "abcd", seed)
        counts[tuple(sorted(tree.left(0).tolist()))] += 1
    assert all(abs(count - 1000) < 116 for count in counts.values())


def test_random_choices_are_keyed_by_the_labels_of_the_node():
    labels = names(5)
    hashes = label_hashes(labels)
    by_hash = np.argsort(hashes)
    side = node_generator(9, node_key(hashes)).permutation(5) < 2
    expected = set(by_hash[side].tolist())
    tree = RandomBalanced().build(np.zeros((5, 1)), labels, 9)
    assert expected in ({*tree.left(0).tolist()}, {*tree.right(0).tolist()})


def test_chain_breaks_off_one_class_after_another():
    assert Chain().build(np.zeros((4, 1)), "dcba", 0).to_nested(range(4)) == [0, [1, [2, 3]]]


# ---------------------------------------------------------------- names and user trees


def test_builders_by_name():
    assert TreeBuilder.of("two-means") == TwoMeans()
    assert TreeBuilder.of("balanced") == BalancedTwoMeans()
    assert TreeBuilder.of("random") == RandomBalanced()
    assert TreeBuilder.of("chain") == Chain()
    assert TreeBuilder.of("ward") == Ward()
    assert TreeBuilder.of(TwoMeans(restarts=3)) == TwoMeans(restarts=3)
    with pytest.raises(ValueError, match="balanced, chain, random, two-means, ward"):
        TreeBuilder.of("kmeans")
    for wrong in (3, TwoMeans):
        with pytest.raises(TypeError, match=r"a value such as TwoMeans\(restarts=10\)"):
            TreeBuilder.of(wrong)


def test_build_tree_takes_whatever_a_user_may_give():
    X, labels = prototypes(3), ["a", "b", "c"]
    mine = ClassTree.from_nested([["c", "a"], "b"], labels)
    assert build_tree(None, X, labels, 0) == TwoMeans().build(X, labels, 0)
    assert build_tree("chain", X, labels, 0) == chain(3)
    assert build_tree(Ward(), X, labels, 0) == Ward().build(X, labels, 0)
    assert build_tree(mine, X, labels, 0) is mine
    assert build_tree([("c", "a"), "b"], X, np.array(labels), 0) == mine
    with pytest.raises(ValueError, match="3 classes, but the data have 2"):
        build_tree(mine, X[:2], labels[:2], 0)

    @dataclass(frozen=True)
    class Mine(TreeBuilder):
        def build(self, prototypes, labels, seed) -> ClassTree:
            return mine

    assert build_tree(Mine(), X, labels, 0) is mine


# ---------------------------------------------------------------- many classes


@pytest.mark.parametrize("builder", [TwoMeans(restarts=4), BalancedTwoMeans(restarts=2), RandomBalanced(), Chain()])
def test_ten_thousand_classes(builder):
    X = prototypes(10_000, d=64)
    X[:2_000] = 0  # and many that are equal
    start = time.perf_counter()
    tree = builder.build(X, range(10_000), 0)
    assert time.perf_counter() - start < 60  # a few seconds at most; a quadratic loop takes far longer
    assert tree.n_classes == 10_000


def test_ward_on_many_classes():
    assert Ward().build(prototypes(2_000, d=64), range(2_000), 0).n_classes == 2_000


@pytest.mark.parametrize("assign", [nearest, halves])
def test_many_points_are_clustered_from_the_best_start_of_some(assign, monkeypatch) -> None:
    """Two clear clusters are found, and the inertia of others is hardly larger than from all starts."""
    random = np.random.default_rng(0)
    clear = np.repeat([[0.0, 3.0], [0.0, -3.0]], 150, 0) + 0.1 * random.normal(size=(300, 2))
    cloud = random.normal(size=(300, 5))

    def inertia(points: np.ndarray, side: np.ndarray) -> float:
        return sum(np.square(points[part] - points[part].mean(0)).sum() for part in (side, ~side))

    whole = inertia(cloud, two_means(cloud, 10, assign, np.random.default_rng(1)))
    monkeypatch.setattr(lloyd, "MOST_RESTARTED", 40)
    side = two_means(clear, 3, assign, np.random.default_rng(1))
    assert len(set(side[:150].tolist())) == len(set(side[150:].tolist())) == 1
    assert inertia(cloud, two_means(cloud, 10, assign, np.random.default_rng(1))) < 1.02 * whole
    assert not two_means(np.ones((300, 2)), 3, assign, np.random.default_rng(1)).any()
