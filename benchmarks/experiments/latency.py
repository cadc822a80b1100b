"""One row.

How long does one answer take, and how long until the first?

One row of 256 features, half of 200 calls within: {mean one | method=gptree, tree | classes=100} ms for a tree of 100
classes and {mean one | method=gptree, tree | classes=1000} ms for one of 1,000; forests
{mean one | method=gptree, forest | classes=100} and {mean one | method=gptree, forest | classes=1000} ms; logistic
regression {mean one | method=logistic regression | classes=100} and
{mean one | method=logistic regression | classes=1000} ms. `gptree --help` takes
{mean start | method=gptree --help} s of processor time.

Findings
--------
- `freeze()` leaves the checks of the estimator out: {mean one | method=gptree, tree, frozen | classes=100} ms for a
  tree of 100 classes and {mean one | method=gptree, forest, frozen | classes=100} ms for a forest, {mean one |
  method=gptree, tree, frozen | classes=1000} and {mean one | method=gptree, forest, frozen | classes=1000} ms with
  1,000.
  A thousand rows take {mean thousand | method=gptree, tree, frozen | classes=1000} and {mean thousand | method=gptree,
  forest, frozen | classes=1000} s with 1,000 classes.
- A thousand rows at 1,000 classes: tree {mean thousand | method=gptree, tree | classes=1000} s, forest
  {mean thousand | method=gptree, forest | classes=1000} s, logistic regression
  {mean thousand | method=logistic regression | classes=1000} s. Logistic regression multiplies a row by one vector a
  class; a tree compares it with the examples, too, and will not come near.
- The first `predict_open` looks at all examples, each left out. A tree that was just fitted takes {mean unasked |
  method=gptree, tree} s for it and a forest {mean unasked | method=gptree, forest}, with growth, where `fit` has looked
  already, {mean unasked | method=gptree, tree, growth} and {mean unasked | method=gptree, forest, growth}; a grown
  forest {mean after add | method=gptree, forest} to {mean after add | method=gptree, forest, growth}. Where ten classes
  have further examples, nodes on the paths of these are new, and it takes {mean after examples | method=gptree, forest}
  and {mean after examples | method=gptree, forest, growth} s, a tree {mean after examples | method=gptree, tree} and
  {mean after examples | method=gptree, tree, growth}. A loaded model
  computes again what is not in its file, among it what the experts say of each example without it: {mean loaded |
  method=gptree, tree} and {mean loaded | method=gptree, forest} s, with growth {mean loaded | method=gptree, tree,
  growth} and {mean loaded | method=gptree, forest, growth}.

Set-up
------
The made-up classes of [many classes](many-classes.md), five examples each; default models in double precision, one
thread, a fresh process for each. One row: the median of 200 calls with a row each, after ten more, in milliseconds of
wall clock and of processor time; the first is what a user waits, the second what is left of it on a busy machine.
A thousand rows: the median of five calls. Logistic regression is scikit-learn's after 20 steps, since the time of a
prediction does not depend on the weights. The first `predict_open`: processor seconds for a hundred rows, 100 classes,
the median of five models after one more: after `fit`, once with `predict_proba` asked before, so that what counts is
what the model looks up of its own examples, and once without; after ten classes were added to a model that had been
asked, then ten examples to ten classes, then three classes were taken away, and that was undone; and of a loaded model
that was never asked. Starts: processor seconds of a process and its children, the median of five after one more.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.many_classes import MADE_UP, SHOTS, make_data
from gptree import GPForestClassifier, GPTreeClassifier, load_model
from gptree.incremental import Growth

GROUP, NEEDS_DATA, FRESH_PROCESS, SEEDS = "Speed and size", False, True, 1

CLASSES, CALLS, WARM_UP, REPEATS = (100, 1_000), 200, 10, 5
OPEN_SET, OPEN_CLASSES, ADDED, OPEN_ROWS = "first predict_open", 100, 10, 100
OPEN_MODELS: dict[str, Callable[[], Any]] = {
    "gptree, tree": lambda: GPTreeClassifier(random_state=0, device="cpu"),
    "gptree, tree, growth": lambda: GPTreeClassifier(random_state=0, device="cpu", growth=Growth()),
    "gptree, forest": lambda: GPForestClassifier(random_state=0, device="cpu"),
    "gptree, forest, growth": lambda: GPForestClassifier(random_state=0, device="cpu", growth=Growth()),
}
START = "start"
STARTS = {
    "python": "pass",
    "import gptree": "import gptree",
    "from gptree import GPTreeClassifier": "from gptree import GPTreeClassifier",
    "gptree --version": "import sys; sys.argv = ['gptree', '--version']; from gptree.cli.main import app; app()",
    "gptree --help": "import sys; sys.argv = ['gptree', '--help']; from gptree.cli.main import app; app()",
    "from sklearn.linear_model import LogisticRegression": "from sklearn.linear_model import LogisticRegression",
}
COLUMNS = {
    "one": Column("one row (ms)", "metrics.one_wall_ms", digits=2, better=min),
    "one cpu": Column("one row (CPU ms)", "metrics.one_cpu_ms", digits=2, better=min),
    "thousand": Column("1,000 rows (CPU s)", "metrics.thousand_cpu", digits=3, better=min),
    "after fit": Column("after `fit` (CPU s)", "metrics.first_open_cpu", digits=3, better=min),
    "unasked": Column("the same, never asked", "metrics.unasked_open_cpu", digits=3, better=min),
    "after add": Column("after `add_classes`", "metrics.added_open_cpu", digits=3, better=min),
    "after examples": Column("then `add_examples`", "metrics.taught_open_cpu", digits=3, better=min),
    "after remove": Column("then `remove_classes`", "metrics.removed_open_cpu", digits=3, better=min),
    "after undo": Column("then `undo`", "metrics.undone_open_cpu", digits=3, better=min),
    "loaded": Column("loaded, never asked", "metrics.loaded_open_cpu", digits=3, better=min),
    "start": Column("CPU s", "metrics.cpu", digits=2, better=min),
}

Predict = Callable[[np.ndarray], Any]


def trials(seeds: int) -> list[Trial]:
    answers = [
        Trial("latency", method, MADE_UP, seed, {"classes": classes})
        for seed in range(seeds)
        for classes in CLASSES
        for method in MODELS
    ]
    first = [Trial("latency", method, OPEN_SET, seed) for seed in range(seeds) for method in OPEN_MODELS]
    return [*answers, *first, *(Trial("latency", method, START, 0) for method in STARTS)]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    if trial.data == START:
        return {"cpu": start_seconds(STARTS[trial.method])}
    if trial.data == OPEN_SET:
        return first_open(OPEN_MODELS[trial.method], trial.seed)
    task = make_data(trial.settings["classes"], trial.seed)
    return latencies(MODELS[trial.method](task.X, task.y), task.X_new)


def _tree(X: np.ndarray, y: np.ndarray) -> Predict:
    return GPTreeClassifier(random_state=0, device="cpu").fit(X, y).predict_proba


def _forest(X: np.ndarray, y: np.ndarray) -> Predict:
    return GPForestClassifier(random_state=0, device="cpu").fit(X, y).predict_proba


def _frozen(model: Any) -> Callable[[np.ndarray, np.ndarray], Predict]:
    def fitted(X: np.ndarray, y: np.ndarray) -> Predict:
        module = model(random_state=0, device="cpu").fit(X, y).freeze()

        @torch.inference_mode()
        def predict(rows: np.ndarray) -> torch.Tensor:
            return module(torch.as_tensor(rows))

        return predict

    return fitted


def _logistic(X: np.ndarray, y: np.ndarray) -> Predict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fit that is stopped
        return LogisticRegression(max_iter=20).fit(X, y).predict_proba


MODELS: dict[str, Callable[[np.ndarray, np.ndarray], Predict]] = {
    "gptree, tree": _tree,
    "gptree, forest": _forest,
    "gptree, tree, frozen": _frozen(GPTreeClassifier),
    "gptree, forest, frozen": _frozen(GPForestClassifier),
    "logistic regression": _logistic,
}


def latencies(predict: Predict, X: np.ndarray) -> dict[str, float]:
    """Medians over calls with one row, and with all rows."""
    wall, cpu = [], []
    for call in range(WARM_UP + CALLS):
        row = X[call % len(X)][None]
        began = time.perf_counter(), time.process_time()
        predict(row)
        wall.append(time.perf_counter() - began[0])
        cpu.append(time.process_time() - began[1])
    thousand = []
    for _ in range(REPEATS):
        began = time.process_time()
        predict(X)
        thousand.append(time.process_time() - began)
    return {
        "one_wall_ms": 1_000 * float(np.median(wall[WARM_UP:])),
        "one_cpu_ms": 1_000 * float(np.median(cpu[WARM_UP:])),
        "thousand_cpu": float(np.median(thousand)),
    }


def first_open(make: Callable[[], Any], seed: int) -> dict[str, float]:
    """Processor seconds of the first `predict_open`, medians over models of different data; the first warms up.

    After `fit`, with `predict_proba` asked before and without; after classes were added to a model that was asked, and
    after three more changes, one after the other; and of a loaded model.
    """
    names = "first", "unasked", "added", "taught", "removed", "undone", "loaded"
    found: dict[str, list[float]] = {name: [] for name in names}
    for repeat in range(1 + REPEATS):
        task = make_data(OPEN_CLASSES + ADDED, seed + repeat)
        known, rows = task.y < OPEN_CLASSES, task.X_new[:OPEN_ROWS]
        model, unasked = (make().fit(task.X[known], task.y[known]) for _ in range(2))
        with tempfile.TemporaryDirectory() as folder:
            model.save(folder)
            loaded = load_model(folder)
        model.predict_proba(rows)
        for name, each in ("first", model), ("unasked", unasked), ("loaded", loaded):
            found[name].append(_open_seconds(each, rows))
        again = np.flatnonzero(known)[:: OPEN_CLASSES // ADDED * SHOTS]  # of ten classes one example
        near = 1.1 * task.X[again] - 0.1 * task.X[again + 1]
        changes = {
            "added": partial(model.add_classes, task.X[~known], task.y[~known]),
            "taught": partial(model.add_examples, near, task.y[again]),
            "removed": partial(model.remove_classes, [*range(3)]),
            "undone": model.undo,
        }
        for name, change in changes.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of classes that are cut out
                change()
            model.predict_proba(rows)
            found[name].append(_open_seconds(model, rows))
    return {f"{name}_open_cpu": float(np.median(seconds[1:])) for name, seconds in found.items()}


def _open_seconds(model: Any, rows: np.ndarray) -> float:
    began = time.process_time()
    model.predict_open(rows)
    return time.process_time() - began


def start_seconds(code: str) -> float:
    """Processor seconds of a Python process that runs this and ends."""
    seconds = []
    for _ in range(1 + REPEATS):
        before = _children()
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        seconds.append(_children() - before)
    return float(np.median(seconds[1:]))


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tables(rows: list[Row]) -> list[Table]:
    of = {data: [row for row in rows if row.trial.data == data] for data in (MADE_UP, OPEN_SET, START)}
    columns = [COLUMNS[name] for name in ("one", "one cpu", "thousand")]
    changes = "after add", "after examples", "after remove", "after undo"
    opened = [COLUMNS[name] for name in ("after fit", "unasked", *changes, "loaded")]
    return [
        listing("Answers", of[MADE_UP], ["settings.classes", "method"], columns),
        listing("The first `predict_open`", of[OPEN_SET], ["method"], opened),
        listing("Starts", of[START], ["method"], [COLUMNS["start"]]),
    ]
