"""Trees and superclasses: purity against its definition, and trials on made-up class means."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.core.trials import Row, Trial
from benchmarks.experiments import paper_trees, superclasses
from benchmarks.experiments.superclasses import group_numbers, purity, whole_groups
from gptree import ClassTree
from gptree.tree import RandomBalanced


def slow_purity(tree: ClassTree, groups: np.ndarray) -> float:
    """Every pair of one group, and the smallest sub-tree that holds both."""
    shares = []
    for a, b in combinations(range(len(groups)), 2):
        if groups[a] == groups[b]:
            smallest = min((tree.members(v) for v in range(tree.n_nodes) if {a, b} <= set(tree.members(v))), key=len)
            shares.append(np.mean(groups[smallest] == groups[a]))
    return float(np.mean(shares))


@given(st.integers(0, 20), st.integers(5, 12))
def test_purity(seed: int, classes: int) -> None:
    groups = np.random.default_rng(seed).permutation(np.arange(classes) % 3)
    for tree in (
        RandomBalanced().build(np.eye(classes), range(classes), seed),
        paper_trees.stick(np.eye(classes), tuple(map(str, range(classes))), seed),
    ):
        assert purity(tree, groups) == pytest.approx(slow_purity(tree, groups))


def test_groups_that_are_sub_trees() -> None:
    tree = ClassTree.from_nested([[0, 1], [[2, 3], [4, 5]]], range(6))
    for groups, share, whole in (
        ([0, 0, 1, 1, 1, 1], 1.0, 2),
        ([0, 0, 1, 1, 2, 2], 1.0, 3),
        ([0, 1, 0, 1, 0, 1], 0.5, 0),
        ([0, 0, 1, 1, 1, 2], None, 2),  # the pair 2 and 3 is only a part of its group; 5 is alone
    ):
        assert whole_groups(tree, np.array(groups)) == whole
        assert share is None or purity(tree, np.array(groups)) == pytest.approx(share)


@pytest.mark.parametrize(
    ("data", "classes", "groups"), [("cifar10", 10, 2), ("cifar100", 100, 20), ("clinc150", 150, 10)]
)
def test_every_class_is_in_one_group(data: str, classes: int, groups: int) -> None:
    names = " ".join(superclasses.GROUPS[data].values()).split()
    assert len(names) == len(set(names)) == classes
    counts = np.bincount(group_numbers(superclasses.GROUPS[data], names))
    assert len(counts) == groups
    assert data == "cifar10" or len(set(counts)) == 1


def test_a_class_without_a_group() -> None:
    with pytest.raises(ValueError, match="1 classes are in no group, the first 'unicorn'"):
        group_numbers(superclasses.CIFAR10, ["cat", "unicorn"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Means of CIFAR-10 that part animals and vehicles."""
    names = np.array(" ".join(superclasses.CIFAR10.values()).split())
    means = np.random.default_rng(0).normal(size=(10, 4)) + 9 * np.eye(4)[group_numbers(superclasses.CIFAR10, names)]
    (tmp_path / "class_means").mkdir()
    np.savez(tmp_path / "class_means" / "cifar10.npz", means=means, names=names, about="made up")
    return tmp_path


def test_trials_tables_and_picture(folder: Path, tmp_path: Path) -> None:
    cost = {"wall": 1.0, "cpu": 1.0}
    trials = [trial for trial in paper_trees.trials(2) if trial.data == "cifar10"]
    rows = [Row(trial, paper_trees.run(trial, folder), cost, None, {}, {}) for trial in trials]
    by = {(row.trial.method, row.trial.seed): row.metrics for row in rows}
    assert by["two-means", 0]["purity"] == 1
    assert by["two-means", 0]["whole"] == 2
    assert by["stick-breaking", 0]["levels"] == 9
    assert by["random tree", 0]["purity"] < 1
    assert "tree" not in by["two-means", 1]
    scores, whose = paper_trees.tables(rows)
    assert scores.lines[0][:3] == ["cifar10", "two-means", "100.0 ± 0.0"]
    assert whose.lines == [["CIFAR-10", "10", "2", "made up"]]
    paper_trees.figure(rows, tmp_path / "trees.png")
    assert (tmp_path / "trees.png").stat().st_size > 10_000


def test_missing_class_means(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"cifar100\.npz.*means, names, about"):
        paper_trees.run(Trial("paper-trees", "two-means", "cifar100", 0), tmp_path)
