"""Novelty.

How well does `novelty_score` rank queries of no class above those of known classes?

`novelty_score` of the default forest has an AUROC of {mean AUROC | gptree forest: novelty_score | shots=20} with 20
shots a class, the distance to three nearest neighbours {mean AUROC | distance to 3 nearest neighbours | shots=20}.
Familiarity alone has {mean AUROC | gptree forest: 1 − familiarity | shots=20} on these queries; it was worse on
held-out classes of CUB and Banking77, where the strange is near the known.

Set-up
------
CLINC150 with its out-of-scope queries, trained on all 150 classes: the AUROC of each method's strangeness, in-scope
test queries against out-of-scope ones. The weights of `novelty_score` were chosen on other draws (seeds 100 up) of
training rows alone, with classes of CLINC150, Banking77 and CUB that played strangers. Familiarity is the share of the
prior variance that the last decision on the path of the predicted class explains, one of the signs that it adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data import Dataset, draw, load
from gptree import GPForestClassifier, GPTreeClassifier, SphereMap
from gptree.metrics import auroc
from gptree.rivals import RIVALS

GROUP, SEEDS = "Frozen features", 5

COLUMNS = {"AUROC": Column("AUROC", "metrics.auroc", digits=4)}
NEIGHBOURS = (1, 3, 5, 10)
METHODS = (
    "gptree forest: novelty_score",
    "gptree: novelty_score",
    "gptree forest: 1 − max probability",
    "gptree forest: 1 − familiarity",
    "logistic regression: 1 − max probability",
    *(f"distance to {k} nearest neighbours" for k in NEIGHBOURS),
)


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("novelty", method, "clinc150", seed, {"classes": None, "shots": shots})
        for shots in (5, 20)
        for seed in range(seeds)
        for method in METHODS
    ]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
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
        learned = sphere.transform(task.train_x)
        cosines = (sphere.transform(x) @ learned.T for x in queries)
        return [-np.sort(c, axis=1)[:, -k:].mean(1) for c in cosines]
    if method.startswith("logistic"):
        rival = RIVALS["logistic"]().fit(sphere.transform(task.train_x), task.train_y)
        return [-rival.predict_proba(sphere.transform(x)).max(1) for x in queries]
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


def tables(rows: list[Row]) -> list[Table]:
    return [listing("Out-of-scope queries of CLINC150", rows, ["data", "settings.shots", "method"], COLUMNS.values())]
