"""Sets and groups of classes.

Do prediction sets hold the right class as often as asked, and how much do coarse answers say?

Sets that should cover 90 % of the queries cover {mean covered at 90 | data=banking77 | shots=5 | wrong=null} % of
Banking77, {mean covered at 90 | data=clinc150 | shots=5 | wrong=null} % of CLINC150 and {mean covered at 90 |
data=cub200 | shots=5 | wrong=null} % of CUB with five shots a class, with {mean size at 90 | data=banking77 | shots=5 |
wrong=null}, {mean size at 90 | data=clinc150 | shots=5 | wrong=null} and {mean size at 90 | data=cub200 | shots=5 |
wrong=null} classes of 60 in a set. A single label is right for {mean accuracy | data=cub200 | shots=5 | wrong=null} %
of the CUB queries; groups of the tree that should be right for 95 % are so for {mean right at 95 | data=cub200 |
shots=5 | wrong=null} %, with {mean group at 95 | data=cub200 | shots=5 | wrong=null} classes on average.

Findings
--------
- A group of one tree is coarser than a set: it pays for being a place in a hierarchy. With the trees of the forest to
  choose from, groups at 95 % shrink from {mean group at 95 | data=cub200 | shots=20 | wrong=null} to {mean any group at
  95 | data=cub200 | shots=20 | wrong=null} classes on CUB with 20 shots, and are right for {mean any right at 95 |
  data=cub200 | shots=20 | wrong=null} % rather than {mean right at 95 | data=cub200 | shots=20 | wrong=null} %.
  `predict_coarse` keeps to the first tree, so that its groups are those of one hierarchy.
- Every class for itself can be covered with 20 shots: sets then have {mean class size at 90 | data=cub200 | shots=20 |
  wrong=null} classes on CUB instead of {mean size at 90 | data=cub200 | shots=20 | wrong=null}, and the tenth of the
  classes that fare worst are covered to {mean worst by class | data=cub200 | shots=20 | wrong=null} % instead of {mean
  worst | data=cub200 | shots=20 | wrong=null} %.
- Wrong labels do not make sets of all classes: with 20 % of them and five shots, sets that should cover 90 % of the
  queries have {mean size at 90 | data=banking77 | shots=5 | wrong=0.2}, {mean size at 90 | data=clinc150 | shots=5 |
  wrong=0.2} and {mean size at 90 | data=cub200 | shots=5 | wrong=0.2} classes and cover {mean covered at 90 |
  data=banking77 | shots=5 | wrong=0.2}, {mean covered at 90 | data=clinc150 | shots=5 | wrong=0.2} and {mean covered at
  90 | data=cub200 | shots=5 | wrong=0.2} %. Examples count by the belief in their labels: a wrong
  label has a tiny probability, so that to trust them all gave sets of 21 to 23 classes, on training rows kept apart.

Set-up
------
60 classes at random, the default forest, test queries of these classes. `predict_set` at coverages of 80, 90 and 95 %,
over all queries and, at 90 %, in every class; `predict_coarse` at a confidence of 80, 95 and 99 %. "Worst" is the
coverage at 90 % in the tenth of the classes where it is lowest, and "any tree" the smallest sure group among those of
all trees. Wrong labels are drawn as in [wrong labels and classes that overlap](noisy-labels.md), and test labels are
right. Nothing is chosen on test queries.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data import draw, load
from benchmarks.experiments.noisy_labels import with_wrong_labels
from gptree import GPForestClassifier
from gptree.estimators.answers import intervals, sure_vertices
from gptree.metrics import columns

GROUP, SEEDS = "Frozen features", 5

DATA, SHOTS, CLASSES = ("banking77", "clinc150", "cub200"), (3, 5, 20), 60
#: Shots with which a share of the labels is wrong.
WRONG_SHOTS, WRONG = (5, 20), 0.2
COVERAGES, CONFIDENCES = (80, 90, 95), (80, 95, 99)
COLUMNS = {
    "accuracy": Column("one label right %", "metrics.accuracy", 100, 1),
    **{f"covered at {c}": Column(f"covered %, asked {c}%", f"metrics.set_{c}.covered", 100, 1) for c in COVERAGES},
    **{f"size at {c}": Column(f"classes in a set, {c}%", f"metrics.set_{c}.size", 1, 2) for c in COVERAGES},
    "class covered at 90": Column("by class: covered %", "metrics.by_class_90.covered", 100, 1),
    "class size at 90": Column("by class: classes", "metrics.by_class_90.size", 1, 2),
    "worst": Column("worst classes %", "metrics.set_90.worst", 100, 1),
    "worst by class": Column("by class: worst classes %", "metrics.by_class_90.worst", 100, 1),
    **{f"right at {c}": Column(f"right %, asked {c}%", f"metrics.coarse_{c}.right", 100, 1) for c in CONFIDENCES},
    **{f"group at {c}": Column(f"classes in a group, {c}%", f"metrics.coarse_{c}.size", 1, 1) for c in CONFIDENCES},
    **{f"single at {c}": Column(f"single labels %, {c}%", f"metrics.coarse_{c}.single", 100, 1) for c in CONFIDENCES},
    "any right at 95": Column("any tree: right %", "metrics.any_tree_95.right", 100, 1),
    "any group at 95": Column("any tree: classes", "metrics.any_tree_95.size", 1, 1),
}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("answers", "gptree forest", data, seed, {"classes": CLASSES, "shots": shots})
        for data in DATA
        for shots in SHOTS
        for seed in range(seeds)
    ] + [
        Trial("answers", "gptree forest", data, seed, {"classes": CLASSES, "shots": shots, "wrong": WRONG})
        for data in DATA
        for shots in WRONG_SHOTS
        for seed in range(seeds)
    ]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    task = draw(load(trial.data, folder), trial.settings["classes"], trial.settings["shots"], trial.seed)
    task = with_wrong_labels(task, trial.settings.get("wrong", 0.0), trial.seed)
    forest = GPForestClassifier(random_state=trial.seed, device="cpu").fit(task.train_x, task.train_y)
    y, p = columns(task.test_y, forest.classes_), forest.predict_proba(task.test_x)
    metrics: dict[str, Any] = {"accuracy": float((p.argmax(1) == y).mean())}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # too few examples for a coverage in every class
        for percent in COVERAGES:
            metrics[f"set_{percent}"] = _sets(forest.predict_set(task.test_x, percent / 100), y)
        metrics["by_class_90"] = _sets(forest.predict_set(task.test_x, 0.9, by_class=True), y)
    for percent in CONFIDENCES:
        metrics[f"coarse_{percent}"] = _groups(forest.predict_coarse(task.test_x, percent / 100).members, y)
    metrics["any_tree_95"] = _groups(_smallest(forest, p, 0.95), y)
    return metrics


def _sets(sets: np.ndarray, y: np.ndarray) -> dict[str, float]:
    hit = sets[np.arange(len(y)), y]
    by_class = np.sort(np.bincount(y, hit) / np.bincount(y))
    worst = by_class[: max(1, len(by_class) // 10)].mean()
    return {"covered": float(hit.mean()), "size": float(sets.sum(1).mean()), "worst": float(worst)}


def _groups(members: np.ndarray, y: np.ndarray) -> dict[str, float]:
    right, sizes = members[np.arange(len(y)), y], members.sum(1)
    return {"right": float(right.mean()), "size": float(sizes.mean()), "single": float((sizes == 1).mean())}


def _smallest(forest: GPForestClassifier, p: np.ndarray, confidence: float) -> np.ndarray:
    """The smallest sure group among those of all trees, (n, C)."""
    best = np.ones(p.shape, dtype=bool)
    for tree in forest.model_.trees:
        vertex, _ = sure_vertices(tree, p, confidence)
        lo, hi = intervals(tree)
        members = (tree.position >= lo[vertex, None]) & (tree.position < hi[vertex, None])
        fewer = members.sum(1) < best.sum(1)
        best[fewer] = members[fewer]
    return best


def tables(rows: list[Row]) -> list[Table]:
    by = ["data", "settings.shots", "settings.wrong"]
    sets = [COLUMNS[name] for name in COLUMNS if name.startswith(("covered", "size", "class", "worst"))]
    groups = [COLUMNS[name] for name in COLUMNS if name.startswith(("right", "group", "single", "any"))]
    one = COLUMNS["accuracy"]
    return [listing("Sets", rows, by, [one, *sets]), listing("Groups", rows, by, [one, *groups])]
