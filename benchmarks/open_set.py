"""Turning unknown queries away: how many known and unknown ones pass a threshold that is set from training data alone.

    python -m benchmarks.open_set --data DIR [--jobs N]

Unknown are CLINC150's out-of-scope queries, and the test queries of classes held out of Banking77 and CUB. Of the known
test queries a share `reject` should be turned away, and as many unknown ones as can be. The threshold comes from the
novelty of the training points: left out, each without itself, or in-sample, as the fitted forest scores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.data import draw, load
from benchmarks.rows import Row, Trial, measure_and_print
from benchmarks.tables import Column, markdown
from gptree import GPForestClassifier
from gptree.metrics import auroc
from gptree.model import novelty_threshold

RESULTS = Path(__file__).parent / "results" / "open_set.jsonl"
#: Data and the number of known classes.
TASKS = (("clinc150", None), ("banking77", 50), ("cub200", 100))
METHODS = ("left-out novelty", "in-sample novelty")
REJECT = (0.05, 0.1)


def trials() -> list[Trial]:
    return [
        Trial("open_set", method, data, seed, {"classes": classes, "shots": shots})
        for data, classes in TASKS
        for shots in (5, 20)
        for seed in range(5)
        for method in METHODS
    ]


def run(trial: Trial, folder: str) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    dataset = load(trial.data, folder)
    task = draw(dataset, trial.settings["classes"], trial.settings["shots"], trial.seed)
    unknown = dataset.oos if dataset.oos is not None else dataset.test_x[~np.isin(dataset.test_y, task.test_y)]
    forest = GPForestClassifier(random_state=trial.seed, device="cpu").fit(task.train_x, task.train_y)
    inside, outside = forest.novelty_score(task.test_x), forest.novelty_score(unknown)
    trained = forest.novelty_score(task.train_x)
    found: dict[str, Any] = {"auroc": auroc(inside, outside)}
    for reject in REJECT:
        if trial.method == "left-out novelty":
            bar = forest.novelty_threshold(reject)
        else:
            bar = novelty_threshold(trained, task.train_y, reject)
        known, caught = (float((scores > bar).mean()) for scores in (inside, outside))
        found[f"at_{round(100 * reject)}"] = {"threshold": bar, "known": known, "unknown": caught}
    return found


def table(rows: list[Row]) -> str:
    columns = [
        Column(f"{who} turned away %, asked {reject:.0%}", f"metrics.at_{round(100 * reject)}.{who}", 100, 1)
        for reject in REJECT
        for who in ("known", "unknown")
    ]
    rows = sorted(rows, key=lambda row: trials().index(row.trial))
    return markdown(rows, ["data", "settings.classes", "settings.shots", "method"], columns)


def main() -> None:
    measure_and_print(__doc__, RESULTS, trials(), run, table)


if __name__ == "__main__":
    main()
