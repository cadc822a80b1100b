"""Telling queries of no known class from those of known ones: CLINC150 with its out-of-scope queries, all 150 classes.

    python -m benchmarks.novelty --data DIR [--jobs N]

The score is the AUROC of each method's strangeness, in-scope test queries against out-of-scope ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.data import Dataset, draw, load
from benchmarks.rows import Row, Trial, measure_and_print
from benchmarks.tables import Column, markdown
from gptree import GPForestClassifier, GPTreeClassifier, SphereMap
from gptree.metrics import auroc
from gptree.rivals import RIVALS

RESULTS = Path(__file__).parent / "results" / "novelty.jsonl"
NEIGHBOURS = (1, 3, 5, 10)
METHODS = (
    "gptree forest: novelty_score",
    "gptree: novelty_score",
    "gptree forest: 1 − max probability",
    "gptree forest: 1 − familiarity",
    "logistic regression: 1 − max probability",
    *(f"distance to {k} nearest neighbours" for k in NEIGHBOURS),
)


def trials() -> list[Trial]:
    return [
        Trial("novelty", method, "clinc150", seed, {"classes": None, "shots": shots})
        for shots in (5, 20)
        for seed in range(5)
        for method in METHODS
    ]


def run(trial: Trial, folder: str) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    dataset = load(trial.data, folder)
    task = draw(dataset, None, trial.settings["shots"], trial.seed)
    assert dataset.oos is not None
    inside, outside = strangeness(trial.method, task, trial.seed, (task.test_x, dataset.oos))
    return {"auroc": auroc(inside, outside)}


def strangeness(method: str, task: Dataset, seed: int, queries: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
    """A number for each query, larger = stranger."""
    sphere = SphereMap().fit(task.train_x)
    if method.startswith("distance"):
        k = int(method.split()[2])
        known = sphere.transform(task.train_x)
        cosines = (sphere.transform(x) @ known.T for x in queries)
        return [-np.sort(c, axis=1)[:, -k:].mean(1) for c in cosines]
    if method.startswith("logistic"):
        head = RIVALS["logistic"]().fit(sphere.transform(task.train_x), task.train_y)
        return [-head.predict_proba(sphere.transform(x)).max(1) for x in queries]
    family = GPTreeClassifier if method.startswith("gptree:") else GPForestClassifier
    estimator = family(random_state=seed, device="cpu").fit(task.train_x, task.train_y)
    if method.endswith("novelty_score"):
        return [estimator.novelty_score(x) for x in queries]
    confidence = [estimator.predict_proba(x).max(1) for x in queries]
    if method.endswith("max probability"):
        return [-c for c in confidence]
    # novelty = 1 − confidence × familiarity
    return [
        -(1.0 - estimator.novelty_score(x)) / np.maximum(c, 1e-12) for x, c in zip(queries, confidence, strict=True)
    ]


def table(rows: list[Row]) -> str:
    rows = sorted(rows, key=lambda row: (row.trial.settings["shots"], METHODS.index(row.trial.method)))
    return markdown(rows, ["data", "settings.shots", "method"], [Column("AUROC", "metrics.auroc", digits=4)])


def main() -> None:
    measure_and_print(__doc__, RESULTS, trials(), run, table)


if __name__ == "__main__":
    main()
