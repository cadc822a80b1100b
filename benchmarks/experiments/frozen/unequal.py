"""Classes of very unequal size.

When does the empirical class prior help?

Where new rows are as unequal as the training rows: there it lowers the NLL, {ahead skewed NLL | gptree forest,
empirical class prior | gptree forest | data=clinc150} on CLINC150 and {ahead skewed NLL | gptree forest, empirical
class prior | gptree forest | data=banking77} on Banking77. Where all classes count alike it costs ({behind accuracy |
gptree forest, empirical class prior | gptree forest | data=banking77} points of accuracy on Banking77).

Findings
--------
- With defaults 2 the nodes learnt the class sizes whatever the class prior was: better for new rows as unequal as the
  training rows, worse for others. Now the default takes all classes to be as frequent ({ahead NLL | gptree forest |
  gptree forest, defaults 2 | data=banking77} of NLL on Banking77), and `class_prior` says what else to expect.

Set-up
------
2 to 40 training examples a class. `class_prior="empirical"` is for test data that are as unequal as the training data;
the default makes no assumption about frequencies. "Unequal test": test rows in the proportions of the training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data import Dataset, load
from benchmarks.experiments.frozen.methods import ACCURACY, FOREST, MEAN, NLL, OLD, scored
from gptree.metrics import accuracy, nll

GROUP, SEEDS = "Frozen features", 5

COLUMNS = {
    "accuracy": ACCURACY,
    "NLL": NLL,
    "skewed": Column("accuracy %, unequal test", "metrics.skewed_accuracy", scale=100, digits=1),
    "skewed NLL": Column("NLL, unequal test", "metrics.skewed_nll", better=min),
}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("frozen-unequal", method, data, seed, {"classes": None, "shots": None})
        for seed in range(seeds)
        for data in ("clinc150", "banking77")
        for method in (FOREST, OLD, "gptree forest, empirical class prior", MEAN)
    ]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    task, skewed = unequal(load(trial.data, folder), trial.seed)
    scores, p, y = scored(trial, task)
    return {**scores, "skewed_accuracy": accuracy(p[skewed], y[skewed]), "skewed_nll": nll(p[skewed], y[skewed])}


def unequal(dataset: Dataset, seed: int) -> tuple[Dataset, np.ndarray]:
    """2 to 40 training rows a class, and the test rows that are as unequal as they are."""
    rng = np.random.default_rng(seed)
    counts = np.exp(rng.uniform(np.log(2), np.log(40), len(dataset.names))).round().astype(int)
    train, test = (
        np.concatenate(
            [rng.permutation(np.flatnonzero(y == c))[: max(1, int(share * n))] for c, n in enumerate(counts)]
        )
        for y, share in ((dataset.train_y, 1.0), (dataset.test_y, 0.7))
    )
    return replace(dataset, train_x=dataset.train_x[train], train_y=dataset.train_y[train]), test


def tables(rows: list[Row]) -> list[Table]:
    return [listing("2 to 40 examples a class", rows, ["data", "method"], COLUMNS.values())]
