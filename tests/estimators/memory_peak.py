"""Peak memory of a fit and a prediction under a budget, above imports and the given features.

    python tests/estimators/memory_peak.py 30000 512 100 1000000000

prints a line of JSON: bytes at the peak of `fit` and of `predict_proba`. An optional fifth argument names the expert;
a budget of 0 is the smallest, which the error of a budget that is too small names. Arrays of less than 32 MiB say
little: the allocator of the C library keeps them for later.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gptree import GPForestClassifier


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@contextmanager
def highest() -> Iterator[Callable[[], int]]:
    """The highest resident memory while it is open, looked at every two milliseconds."""
    peak, done = [resident_bytes()], threading.Event()

    def watch() -> None:
        while not done.is_set():
            peak[0] = max(peak[0], resident_bytes())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: peak[0]
    finally:
        done.set()
        watcher.join()


def smallest_budget(model: GPForestClassifier, X: np.ndarray, y: np.ndarray) -> int:
    try:
        model.fit(X, y)
    except ValueError as error:
        found = re.search(r"the smallest is (\d+) bytes", str(error))
        if found is None:
            raise
        return int(found[1])
    raise AssertionError("a mebibyte is enough for this fit: give more rows.")


def measured(rows: int, columns: int, classes: int, budget: int, expert: str = "experts") -> dict[str, Any]:
    random = np.random.default_rng(0)
    centres, y = random.normal(size=(classes, columns)), np.arange(rows) % classes
    X = np.empty((rows, columns))
    for start in range(0, rows, 1000):  # nothing larger than X before the measurement
        some = y[start : start + 1000]
        X[start : start + 1000] = 0.25 * centres[some] + random.normal(size=(len(some), columns))
    settings: dict[str, Any] = {"prior_mean": expert, "random_state": 0, "device": "cpu"}
    GPForestClassifier(**settings).fit(X[:200], np.arange(200) % 4).predict_proba(X[:10])  # what is loaded once
    budget = budget or smallest_budget(GPForestClassifier(**settings, memory_budget=2**20), X, y)
    before = resident_bytes()
    with highest() as peak:
        model = GPForestClassifier(**settings, memory_budget=budget).fit(X, y)
        fit = peak() - before
    with highest() as peak:
        model.predict_proba(X)
        predict = peak() - before
    return {"budget": budget, "fit": fit, "predict_proba": predict}


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows, columns, classes, budget = map(int, sys.argv[1:5])
    print(json.dumps(measured(rows, columns, classes, budget, *sys.argv[5:])))
