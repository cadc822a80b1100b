"""Classes of one example.

Does a forest learn a class from one example, alone and among classes of five?

Better than its rivals do: with 20 one-shot classes among those of Banking77 it gets
{mean single | gptree forest | data=banking77 | one_shot=20} % of their test rows, nearest class means
{mean single | rival: class-mean | data=banking77 | one_shot=20} %
({ahead single | gptree forest | rival: class-mean | data=banking77 | one_shot=20} points), logistic regression
{mean single | rival: logistic | data=banking77 | one_shot=20} %. With one example everywhere all methods are close.

Set-up
------
20 random classes keep one of their five examples; and one example everywhere. "One-shot classes" is the accuracy on the
test rows of the classes that have one example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core.tables import Column, Table, chosen, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data import Dataset, draw, load
from benchmarks.experiments.frozen.methods import (
    ACCURACY,
    BY,
    ECE,
    FOREST,
    LOGISTIC,
    MEAN,
    NLL,
    OLD,
    POOL,
    TREE,
    scored,
)
from gptree.metrics import accuracy

GROUP, SEEDS = "Frozen features", 5

SINGLE = Column("one-shot classes %", "metrics.one_shot_accuracy", scale=100, digits=1)
COLUMNS = {"accuracy": ACCURACY, "NLL": NLL, "ECE": ECE, "single": SINGLE}


def trials(seeds: int) -> list[Trial]:
    settings = ({"classes": None, "shots": 1}, {"classes": None, "shots": 5, "one_shot": 20})
    return [
        Trial("frozen-one-shot", method, data, seed, each)
        for seed in range(seeds)
        for data in ("clinc150", "banking77", "cub200")
        for each in settings
        for method in (POOL, TREE, FOREST, OLD, MEAN, LOGISTIC)
    ]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    task = draw(load(trial.data, folder), trial.settings["classes"], trial.settings["shots"], trial.seed)
    task, single = with_one_shot_classes(task, trial.settings.get("one_shot", 0), trial.seed)
    scores, p, y = scored(trial, task)
    of_single = np.isin(task.test_y, single)
    return {**scores, "one_shot_accuracy": accuracy(p[of_single], y[of_single]) if of_single.any() else None}


def with_one_shot_classes(task: Dataset, count: int, seed: int) -> tuple[Dataset, np.ndarray]:
    """`count` random classes keep one of their examples; and which classes those are."""
    single = np.random.default_rng([seed, count]).permutation(np.unique(task.train_y))[:count]
    keep = np.ones(len(task.train_y), dtype=bool)
    for c in single:
        keep[np.flatnonzero(task.train_y == c)[1:]] = False
    return replace(task, train_x=task.train_x[keep], train_y=task.train_y[keep]), single


def tables(rows: list[Row]) -> list[Table]:
    by = [*BY, "settings.one_shot", "method"]
    return [listing("Classes of one example", rows, by, COLUMNS.values())]


def glance(rows: list[Row]) -> Table:
    return listing("One-shot classes", chosen(rows, one_shot=20), ["data", "method"], COLUMNS.values())
