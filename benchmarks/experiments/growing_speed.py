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
  it rehearses four times instead of twice, with ridge regression, and costs {mean ratio | method=gptree, 100
  base classes} times as much.
- Forests, and features of networks (second table), take at most twice a plain fit, too: {mean ratio | gptree forest,
  base session | data=banking77 | shots=5} times with all classes of Banking77 and five shots, {mean ratio | gptree
  forest, base session | data=clinc150 | shots=5} with those of CLINC150, {mean ratio | gptree forest, base session |
  data=cub200 | shots=5} with 100 classes of CUB. Two rehearsals instead of four would take less; with up to 100 classes
  they cost 0.003 of NLL and more on training rows kept apart.
- The tenth session fits ten times as many novel classes as the first: the default strategy builds all of them anew.

Set-up
------
The made-up classes of [many classes](many-classes.md), five examples each with 256 features. A tree is fitted plainly,
and with `Growth()`; then ten sessions of ten classes come one after the other. 1,000 test rows of all classes. The
second table has the medians of five fits of training rows. One thread, a fresh process for each; processor seconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data import draw, load
from benchmarks.experiments.many_classes import MADE_UP, SHOTS, make_data
from gptree import GPForestClassifier, GPTreeClassifier, Growth
from gptree.metrics import accuracy, ece, nll

GROUP, FRESH_PROCESS, SEEDS = "Speed and size", True, 1

CLASSES, WAY, SESSIONS = (100, 200, 500, 1_000, 2_000, 10_000), 10, 10
#: Base sessions alone: data, classes and shots, None for all classes there are.
BASE_MODELS = {"gptree, base session": GPTreeClassifier, "gptree forest, base session": GPForestClassifier}
BASES = (
    *((MADE_UP, classes, SHOTS) for classes in (20, 50, 100)),
    *(("banking77", None, 5), ("banking77", 60, 20), ("clinc150", None, 5), ("cub200", 100, 5), ("cub200", 60, 30)),
)
REPEATS = 5

COLUMNS = {
    "plain": Column("plain fit (CPU s)", "metrics.plain", digits=2),
    "base": Column("base session (CPU s)", "metrics.base", digits=2),
    "ratio": Column("times", "metrics.ratio", digits=2),
    "first": Column("first session (CPU s)", "metrics.first", digits=2),
    "tenth": Column("tenth session (CPU s)", "metrics.tenth", digits=2),
    "accuracy": Column("accuracy %", "metrics.accuracy", scale=100, digits=1),
    "NLL": Column("NLL", "metrics.nll"),
    "ECE": Column("ECE %", "metrics.ece", scale=100, digits=1),
    "memory": Column("peak memory (GB)", "peak_memory_bytes", scale=1e-9, digits=2),
}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("growing-speed", f"gptree, {classes:,} base classes", MADE_UP, seed, {"classes": classes})
        for seed in range(seeds)
        for classes in CLASSES
    ] + [
        Trial("growing-speed", method, data, seed, {"classes": classes, "shots": shots})
        for seed in range(seeds)
        for data, classes, shots in BASES
        for method in BASE_MODELS
    ]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    if trial.method in BASE_MODELS:
        return base_session(trial, folder)
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


def base_session(trial: Trial, folder: Path) -> dict[str, float]:
    """Seconds of a plain fit and of one with growth, medians over further fits after the first."""
    make, settings = BASE_MODELS[trial.method], trial.settings
    if trial.data == MADE_UP:
        X, y, *_ = make_data(settings["classes"], trial.seed)
    else:
        task = draw(load(trial.data, folder), settings["classes"], settings["shots"], trial.seed)
        X, y = task.train_x.astype(float), task.train_y
    seconds: dict[str, list[float]] = {"plain": [], "base": []}
    for _ in range(1 + REPEATS):
        for name, growth in ("plain", None), ("base", Growth()):
            model = make(growth=growth, random_state=0, device="cpu")
            seconds[name].append(_seconds(partial(model.fit, X, y)))
    plain, base = (statistics.median(each[1:]) for each in seconds.values())
    return {"plain": plain, "base": base, "ratio": base / plain}


def _seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def tables(rows: list[Row]) -> list[Table]:
    bases = [row for row in rows if row.trial.method in BASE_MODELS]
    sessions = [row for row in rows if row.trial.method not in BASE_MODELS]
    shown = [COLUMNS[name] for name in ("plain", "base", "ratio")]
    return [
        listing("Ten classes more", sessions, ["settings.classes"], COLUMNS.values()),
        listing("Base sessions", bases, ["data", "settings.classes", "settings.shots", "method"], shown),
    ]
