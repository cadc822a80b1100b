"""A million rows of 512 features and 100 classes on two cores: seconds, memory and accuracy of `SparseVariational`.

    python -m benchmarks.million_rows                  # measures what has no row yet, prints the table
    python -m benchmarks.million_rows --rows 50000     # a smaller size

Needs no data: "structured" features of `benchmarks.make_features`, in random order, and 10,000 more to predict. Each
size in a fresh process; its peak memory has the data in it. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.make_features import class_by_class
from benchmarks.rows import Row, Rows, Trial, run_trials
from benchmarks.tables import Column, markdown
from gptree import GPTreeClassifier, SparseVariational
from gptree.metrics import accuracy, ece, nll

RESULTS = Path(__file__).parent / "results" / "million_rows.jsonl"
ROWS, DIMENSIONS, CLASSES, QUERIES = 1_000_000, 512, 100, 10_000

COLUMNS = (
    Column("fit (s)", "metrics.fit", digits=0),
    Column("predict 10,000 rows (s)", "metrics.predict", digits=2),
    Column("peak memory (GB)", "peak_memory_bytes", scale=1e-9, digits=2),
    Column("of it the data (GB)", "metrics.data_bytes", scale=1e-9, digits=2),
    Column("accuracy %", "metrics.accuracy", scale=100, digits=1),
    Column("class means: accuracy %", "metrics.class_means", scale=100, digits=1),
    Column("NLL", "metrics.nll"),
    Column("ECE %", "metrics.ece", scale=100, digits=1),
)


def trial(rows: int, batch_size: int, threads: int) -> Trial:
    settings = {"rows": rows, "batch_size": batch_size, "threads": threads}
    return Trial("million-rows", "gptree, SparseVariational", "structured", 0, settings)


def make_data(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """X and y in random order, and test rows; written class by class, so that nothing is there twice."""
    each, queries = rows // CLASSES, QUERIES // CLASSES
    X, y = np.empty((each * CLASSES, DIMENSIONS), dtype=np.float32), np.empty(each * CLASSES, dtype=np.int64)
    X_new, y_new = np.empty((QUERIES, DIMENSIONS), dtype=np.float32), np.repeat(np.arange(CLASSES), queries)
    places = np.random.default_rng(seed).permutation(len(y)).reshape(CLASSES, each)
    made = class_by_class(CLASSES, each + queries, "structured", DIMENSIONS, seed=seed)
    for c, (points, at) in enumerate(zip(made, places, strict=True)):
        X[at], y[at] = points[:each], c
        X_new[c * queries : (c + 1) * queries] = points[each:]
    return X, y, X_new, y_new


def run(trial: Trial) -> Mapping[str, Any]:
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
    found = model.diagnostics_
    return {
        "fit": fitted - start,
        "predict": done - fitted,
        "data_bytes": X.nbytes + y.nbytes + X_new.nbytes,
        "accuracy": accuracy(p, y_new),
        "nll": nll(p, y_new),
        "ece": ece(p, y_new),
        "class_means": _class_means(X, y, X_new, y_new),
        "largest_change": float(found["change"].max()),
        "jitter": float(found["jitter"].max()),
    }


def _class_means(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> float:
    """Accuracy of the nearest class mean: what the same rows give for nothing."""
    means = np.stack([X[y == c].mean(0) for c in range(CLASSES)])
    nearest = (X_new @ means.T - 0.5 * np.square(means).sum(1)).argmax(1)
    return float((nearest == y_new).mean())


def table(rows: Iterable[Row]) -> str:
    by = ["settings.rows", "settings.batch_size", "settings.threads"]
    return markdown(sorted(rows, key=lambda row: row.trial.settings["rows"]), by, COLUMNS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help="training rows")
    parser.add_argument("--batch-size", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows = Rows(arguments.results)
    wanted = trial(arguments.rows, arguments.batch_size, arguments.threads)
    run_trials([wanted], run, rows, fresh_process=True)
    print(table(rows))


if __name__ == "__main__":
    main()
