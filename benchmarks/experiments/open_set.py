"""Turning strangers away.

Is the share of known queries that `predict_open` turns away the one asked for?

About: asked for 5 %, on CLINC150 with 20 shots {mean known at 5 | left-out novelty | data=clinc150 | shots=20} % of the
known queries and {mean unknown at 5 | left-out novelty | data=clinc150 | shots=20} % of the unknown ones are turned
away. In-sample scores would turn away {mean known at 5 | in-sample novelty | data=clinc150 | shots=20} % of the known.
With eight classes of three examples the evidence supports no less than 16 %, which a warning says; over twenty draws
{mean known at 5 | left-out novelty | data=clinc150 | shots=3}, {mean known at 5 | left-out novelty | data=banking77 |
shots=3} and {mean known at 5 | left-out novelty | data=cub200 | shots=3} % of the known queries of CLINC150, Banking77
and CUB are turned away, and more unknown ones: {mean unknown at 5 | left-out novelty | data=clinc150 | shots=3}, {mean
unknown at 5 | left-out novelty | data=banking77 | shots=3} and {mean unknown at 5 | left-out novelty | data=cub200 |
shots=3} %.

Set-up
------
What `predict_open` turns away when a share of 5 or 10 % of the known queries should be: how many test queries of known
classes, and how many of no known class. Unknown are CLINC150's out-of-scope queries, and test queries of classes held
out of Banking77 and CUB. The threshold comes from the novelty of the training points: left out, each without itself, or
in-sample, as the fitted forest scores them. The forests are fitted without `growth`, so that they keep all examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data import draw, load
from gptree import GPForestClassifier
from gptree.metrics import auroc
from gptree.model import novelty_threshold

GROUP, SEEDS = "Frozen features", 5

#: Data and the number of known classes.
TASKS = (("clinc150", None), ("banking77", 50), ("cub200", 100))
LEFT_OUT = "left-out novelty"
METHODS = (LEFT_OUT, "in-sample novelty")
#: Too few examples for a share of 5 %; they have four times as many draws.
FEW = {"classes": 8, "shots": 3}
REJECT = (0.05, 0.1)
COLUMNS = {
    f"{who} at {percent}": Column(f"{who} turned away %, asked {percent}%", f"metrics.at_{percent}.{who}", 100, 1)
    for percent in (5, 10)
    for who in ("known", "unknown")
}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("open-set", method, data, seed, {"classes": classes, "shots": shots})
        for data, classes in TASKS
        for shots in (5, 20)
        for seed in range(seeds)
        for method in METHODS
    ] + [Trial("open-set", LEFT_OUT, data, seed, FEW) for data, _ in TASKS for seed in range(4 * seeds)]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    dataset = load(trial.data, folder)
    task = draw(dataset, trial.settings["classes"], trial.settings["shots"], trial.seed)
    unknown = dataset.oos if dataset.oos is not None else dataset.test_x[~np.isin(dataset.test_y, task.test_y)]
    forest = GPForestClassifier(random_state=trial.seed, device="cpu").fit(task.train_x, task.train_y)
    inside, outside = forest.novelty_score(task.test_x), forest.novelty_score(unknown)
    trained = forest.novelty_score(task.train_x)
    metrics: dict[str, Any] = {"auroc": auroc(inside, outside)}
    for reject in REJECT:
        if trial.method == LEFT_OUT:
            threshold = forest.novelty_threshold(reject)
        else:
            threshold = novelty_threshold(trained, task.train_y, reject)
        known, caught = (float((scores > threshold).mean()) for scores in (inside, outside))
        metrics[f"at_{round(100 * reject)}"] = {"threshold": threshold, "known": known, "unknown": caught}
    return metrics


def tables(rows: list[Row]) -> list[Table]:
    by = ["data", "settings.classes", "settings.shots", "method"]
    return [listing("Known and unknown queries", rows, by, COLUMNS.values())]
