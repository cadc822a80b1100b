"""Ten classes more.

What does a model that can grow cost, and how long do ten more classes take, with 100 to 10,000 base classes?

Ten classes of five examples take {mean first | classes=200} s of processor time in the first session and {mean tenth |
classes=200} s in the tenth with 200 base classes, {mean first | classes=2000} and {mean tenth | classes=2000} s with
2,000, {mean first | classes=10000} and {mean tenth | classes=10000} s with 10,000.

Findings
--------
- The base session costs {mean ratio | classes=200} times a plain fit with 200 classes, {mean ratio | classes=1000}
  times with 1,000 and {mean ratio | classes=10000} times with 10,000: it also fits experts on random features (up to
  2,000 classes) and rehearses sessions to come, but does not choose the output scale of the kernel. Up to 100 classes
  it rehearses four times instead of twice, with ridge regression, and costs {mean ratio | classes=100} times as much.
- The tenth session fits ten times as many novel classes as the first: the default strategy builds all of them anew.

Set-up
------
The made-up classes of [many classes](many-classes.md), five examples each with 256 features. A tree is fitted plainly,
and with `Growth()`; then ten sessions of ten classes come one after the other. 1,000 test rows of all classes. One
thread, a fresh process for each; processor seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.many_classes import make_data
from gptree import GPTreeClassifier, Growth
from gptree.metrics import accuracy, ece, nll

GROUP, NEEDS_DATA, FRESH_PROCESS = "Speed and size", False, True

CLASSES, WAY, SESSIONS = (100, 200, 500, 1_000, 2_000, 10_000), 10, 10

COLUMNS = {
    "plain": Column("plain fit (CPU s)", "metrics.plain", digits=1),
    "base": Column("base session (CPU s)", "metrics.base", digits=1),
    "ratio": Column("times", "metrics.ratio", digits=1),
    "first": Column("first session (CPU s)", "metrics.first", digits=2),
    "tenth": Column("tenth session (CPU s)", "metrics.tenth", digits=2),
    "accuracy": Column("accuracy %", "metrics.accuracy", scale=100, digits=1),
    "NLL": Column("NLL", "metrics.nll"),
    "ECE": Column("ECE %", "metrics.ece", scale=100, digits=1),
    "memory": Column("peak memory (GB)", "peak_memory_bytes", scale=1e-9, digits=2),
}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("growing-speed", f"gptree, {classes:,} base classes", "made-up", seed, {"classes": classes})
        for seed in range(seeds)
        for classes in CLASSES
    ]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    classes = trial.settings["classes"]
    X, y, X_new, y_new = make_data(classes + WAY * SESSIONS, trial.seed)
    old = y < classes
    few = y < 20
    GPTreeClassifier(random_state=0, device="cpu").fit(X[few], y[few])  # what a process loads once
    plain = _seconds(lambda: GPTreeClassifier(random_state=trial.seed, device="cpu").fit(X[old], y[old]))
    model = GPTreeClassifier(growth=Growth(), random_state=trial.seed, device="cpu")
    base = _seconds(lambda: model.fit(X[old], y[old]))
    added = []
    for session in range(SESSIONS):
        rows = (y - classes) // WAY == session
        added.append(_seconds(lambda rows=rows: model.add_classes(X[rows], y[rows])))
    p = model.predict_proba(X_new)
    found = {"plain": plain, "base": base, "ratio": base / plain, "first": added[0], "tenth": added[-1], "added": added}
    return found | {"accuracy": accuracy(p, y_new), "nll": nll(p, y_new), "ece": ece(p, y_new)}


def _seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def tables(rows: list[Row]) -> list[Table]:
    return [listing("Ten classes more", rows, ["settings.classes"], COLUMNS.values())]
