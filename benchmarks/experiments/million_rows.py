"""A million rows.

Can a tree be fitted to a million rows on two cores?

Yes: the fit takes {mean fit} s and {mean memory} GB, and {mean accuracy} % of new rows are right.

Set-up
------
`SparseVariational` on made-up features (`structured`), 512 of them, 100 classes, in random order, and 10,000 more rows
to predict; float32, zero prior mean, mini-batches, ten inducing points a class. Wall-clock seconds, in a fresh process,
whose peak memory has the data in it; run it on an otherwise idle machine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data.structured import class_by_class
from gptree import GPTreeClassifier, SparseVariational
from gptree.metrics import accuracy, ece, nll

GROUP, NEEDS_DATA, FRESH_PROCESS = "Speed and size", False, True

ROWS, DIMENSIONS, CLASSES, QUERIES = 1_000_000, 512, 100, 10_000

COLUMNS = {
    "fit": Column("fit (s)", "metrics.fit", digits=0),
    "predict": Column("predict 10,000 rows (s)", "metrics.predict", digits=2),
    "memory": Column("peak memory (GB)", "peak_memory_bytes", scale=1e-9, digits=2),
    "data": Column("of it the data (GB)", "metrics.data_bytes", scale=1e-9, digits=2),
    "accuracy": Column("accuracy %", "metrics.accuracy", scale=100, digits=1),
    "class means": Column("class means: accuracy %", "metrics.class_means", scale=100, digits=1),
    "NLL": Column("NLL", "metrics.nll"),
    "ECE": Column("ECE %", "metrics.ece", scale=100, digits=1),
}


def trials(seeds: int) -> list[Trial]:
    settings = {"rows": ROWS, "batch_size": 8192, "threads": 2}
    return [Trial("million-rows", "gptree, SparseVariational", "structured", seed, settings) for seed in range(seeds)]


def make_data(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """X and y in random order, and test rows; written class by class, so that nothing is there twice."""
    each, queries = rows // CLASSES, QUERIES // CLASSES
    X, y = np.empty((each * CLASSES, DIMENSIONS), dtype=np.float32), np.empty(each * CLASSES, dtype=np.int64)
    X_new, y_new = np.empty((QUERIES, DIMENSIONS), dtype=np.float32), np.repeat(np.arange(CLASSES), queries)
    places = np.random.default_rng(seed).permutation(len(y)).reshape(CLASSES, each)
    made = class_by_class(CLASSES, each + queries, DIMENSIONS, seed=seed)
    for c, (points, at) in enumerate(zip(made, places, strict=True)):
        X[at], y[at] = points[:each], c
        X_new[c * queries : (c + 1) * queries] = points[each:]
    return X, y, X_new, y_new


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(trial.settings["threads"])
    X, y, X_new, y_new = make_data(trial.settings["rows"], trial.seed)
    model = GPTreeClassifier(
        inference=SparseVariational(batch_size=trial.settings["batch_size"]),
        prior_mean=None,
        dtype="float32",
        device="cpu",
        random_state=trial.seed,
    )
    start = time.perf_counter()
    model.fit(X, y)
    fitted = time.perf_counter()
    p = model.predict_proba(X_new)
    done = time.perf_counter()
    diagnostics = model.diagnostics_
    return {
        "fit": fitted - start,
        "predict": done - fitted,
        "data_bytes": X.nbytes + y.nbytes + X_new.nbytes,
        "accuracy": accuracy(p, y_new),
        "nll": nll(p, y_new),
        "ece": ece(p, y_new),
        "class_means": _class_means(X, y, X_new, y_new),
        "largest_change": float(diagnostics["change"].max()),
        "jitter": float(diagnostics["jitter"].max()),
    }


def _class_means(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> float:
    """Accuracy of the nearest class mean: what the same rows give for nothing."""
    means = np.stack([X[y == c].mean(0) for c in range(CLASSES)])
    nearest = (X_new @ means.T - 0.5 * np.square(means).sum(1)).argmax(1)
    return float((nearest == y_new).mean())


def tables(rows: list[Row]) -> list[Table]:
    by = ["settings.rows", "settings.batch_size", "settings.threads"]
    return [listing("A million rows", rows, by, COLUMNS.values())]
