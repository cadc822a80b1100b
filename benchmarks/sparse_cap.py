"""What a cap on inducing points costs: accuracy, NLL and ECE of `SparseVariational` on real embeddings.

    python -m benchmarks.sparse_cap --data DIR [--jobs N]

All training rows, zero prior mean, float32, RBF kernel of output scale 10 (the default). Every node sees the inducing
points of its classes; where those are more than the cap, fewer of each. Seeds change the tree and the inducing points.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from benchmarks.data import load
from benchmarks.rows import Row, Trial, measure_and_print
from benchmarks.tables import Column, markdown
from gptree import GPTreeClassifier, SparseVariational
from gptree.metrics import accuracy, ece, nll

RESULTS = Path(__file__).parent / "results" / "sparse_cap.jsonl"
CLASSES = {"clinc150": 150, "cub200": 200}
INDUCING, CAPS = (1, 5, 10, 20), (64, 128, 256, 512, 1024, None)
SWEEPS = 20
#: More inducing points at the root than this would take minutes a run, and have no row.
LARGEST_ROOT = 2000

COLUMNS = (
    Column("at the root", "metrics.at_the_root", digits=0),
    Column("accuracy %", "metrics.accuracy", scale=100, digits=1),
    Column("NLL", "metrics.nll"),
    Column("ECE %", "metrics.ece", scale=100, digits=1),
    Column("fit (CPU s)", "metrics.fit", digits=1),
)


def trials() -> list[Trial]:
    """Every number a class at every cap that changes something, and without a cap where that is feasible."""
    return [
        Trial("sparse-cap", "gptree, SparseVariational", data, seed, {"inducing": inducing, "cap": cap})
        for seed in range(3)
        for data, classes in CLASSES.items()
        for inducing in INDUCING
        for cap in CAPS
        if (inducing * classes <= LARGEST_ROOT if cap is None else cap < inducing * classes)
    ]


def run(trial: Trial, folder: str) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    data, cap = load(trial.data, folder), trial.settings["cap"]
    inducing = trial.settings["inducing"]
    most = inducing * len(data.names) if cap is None else cap
    model = GPTreeClassifier(
        inference=SparseVariational(inducing=inducing, cap=most, sweeps=SWEEPS),
        prior_mean=None,
        dtype="float32",
        device="cpu",
        random_state=trial.seed,
    )
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.train_x, data.train_y)
    fit = time.process_time() - start
    p = model.predict_proba(data.test_x)
    found = model.diagnostics_
    return {
        "accuracy": accuracy(p, data.test_y),
        "nll": nll(p, data.test_y),
        "ece": ece(p, data.test_y),
        "fit": fit,
        "at_the_root": _root_points(model),
        "settled": float(np.mean(found["converged"])),
        "jitter": float(found["jitter"].max()),
        "bound": float(found["bound"].sum()),
    }


def _root_points(model: GPTreeClassifier) -> int:
    """Inducing points of the root: a cap takes whole points of every class, so it may leave room."""
    root = np.argmax(model.tree_.hi - model.tree_.lo)
    number = int(model.model_.node_of[0][root])
    return next(p.rows.shape[1] for p in model.model_.predictor.posteriors if number in p.nodes.tolist())


def table(rows: list[Row]) -> str:
    def place(row: Row) -> tuple[int, int, float]:
        cap = row.trial.settings["cap"]
        return list(CLASSES).index(row.trial.data), row.trial.settings["inducing"], math.inf if cap is None else cap

    return markdown(sorted(rows, key=place), ["data", "settings.inducing", "settings.cap"], COLUMNS)


def main() -> None:
    measure_and_print(__doc__, RESULTS, trials(), run, table)


if __name__ == "__main__":
    main()
