"""Many sessions.

What does a session of ten classes cost after a thousand others?

With `Growth(strategy=Logarithmic())`, on average {mean session | logarithmic | sessions=1000} s of processor time
after 992 sessions, {mean session | logarithmic | sessions=100} s after 92; with the default, which fits all novel
classes in every session, {mean session | shared-root | sessions=304} s after 296 and {mean session | shared-root |
sessions=100} s after 92.

Findings
--------
- Accuracy after 100 sessions, 1,600 classes: {mean accuracy | logarithmic | sessions=100} %, by default {mean
  accuracy | shared-root | sessions=100} %, with all nodes fitted anew {mean accuracy | rebuild-tree | sessions=100} %;
  after 304 {mean accuracy | logarithmic | sessions=304}, {mean accuracy | shared-root | sessions=304} and {mean
  accuracy | rebuild-tree | sessions=304} %.
- After 1,000 sessions, 10,600 classes, the logarithmic strategy has {mean accuracy | logarithmic | sessions=1000} %
  and trees of height {mean height | logarithmic | sessions=1000}; with all nodes fitted anew, {mean session |
  rebuild-tree | sessions=1000} s a session, {mean accuracy | rebuild-tree | sessions=1000} %.
- A tree that is fitted to all classes at once has {mean accuracy | at once | sessions=100} % and {mean accuracy | at
  once | sessions=1000} %, with an ECE of {mean ECE | at once | sessions=1000} % after the last session, where the
  logarithmic strategy has {mean ECE | logarithmic | sessions=1000} %: 600 base classes chose the map of features,
  covariances and the kernel once and for all. Where that matters, fit again.
- What still grows with all classes: the experts score the rows of a session for each of them, and rows are copied. What
  the classes of earlier sessions say together at rows that a new root sees is kept.

Set-up
------
The made-up classes of [many classes](many-classes.md), five examples each with 256 features: a base session of 600
classes, and sessions of ten. A grown model is a function of its journal, so that one of many sessions is made from
its journal at once; then eight sessions (two, where all nodes are fitted anew) are added one after the other and
timed, their mean and the slowest: of eight, four fit one session, two fit two, one fits four and one eight. 1,000
test rows of all classes. One thread, a fresh process for each; processor seconds. The default is measured up to 304
sessions. "At once" is a plain tree of all classes; its seconds are those of the fit.
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
from benchmarks.experiments.many_classes import make_data
from gptree import GPTreeClassifier, Growth
from gptree.incremental import Entry, Strategy
from gptree.metrics import accuracy, ece, nll

GROUP, NEEDS_DATA, FRESH_PROCESS = "Speed and size", False, True

BASE, WAY = 600, 10
#: Strategies, up to how many sessions each is tried, and how many of them are timed.
STRATEGIES = {"logarithmic": (1_000, 8), "shared-root": (304, 8), "rebuild-tree": (1_000, 2)}
SESSIONS = (8, 32, 100, 304, 1_000)
#: All classes in one fit, without growth.
AT_ONCE = "at once"

COLUMNS = {
    "session": Column("a session (CPU s)", "metrics.session", digits=2),
    "slowest": Column("slowest of them", "metrics.slowest", digits=2),
    "accuracy": Column("accuracy %", "metrics.accuracy", scale=100, digits=1),
    "NLL": Column("NLL", "metrics.nll"),
    "ECE": Column("ECE %", "metrics.ece", scale=100, digits=1),
    "height": Column("height", "metrics.height", digits=0),
    "memory": Column("peak memory (GB)", "peak_memory_bytes", scale=1e-9, digits=2),
}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("many-sessions", strategy, "made-up", seed, {"sessions": sessions})
        for seed in range(seeds)
        for sessions in SESSIONS
        for strategy, (most, _) in (STRATEGIES | {AT_ONCE: (max(SESSIONS), 1)}).items()
        if sessions <= most
    ]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    sessions = trial.settings["sessions"]
    X, y, X_new, y_new = make_data(BASE + WAY * sessions, trial.seed)
    if trial.method == AT_ONCE:
        began = time.process_time()
        model = GPTreeClassifier(random_state=trial.seed, device="cpu").fit(X, y)
        return _found(model, [time.process_time() - began], X_new, y_new)
    timed = STRATEGIES[trial.method][1]
    model = GPTreeClassifier(growth=Growth(strategy=Strategy.of(trial.method)), random_state=trial.seed, device="cpu")
    model.fit(X[y < BASE], y[y < BASE])
    rows = [np.flatnonzero((y - BASE) // WAY == k) for k in range(sessions)]
    entries = [
        Entry("add_classes", note="", author="", **model._examples(X[some], y[some], None, None))
        for some in rows[: sessions - timed]
    ]
    if entries:
        model._become((*model.journal_, *entries))
    seconds = []
    for some in rows[sessions - timed :]:
        began = time.process_time()
        model.add_classes(X[some], y[some])
        seconds.append(time.process_time() - began)
    return _found(model, seconds, X_new, y_new)


def _found(model: GPTreeClassifier, seconds: list[float], X_new: np.ndarray, y_new: np.ndarray) -> Mapping[str, Any]:
    p = model.predict_proba(X_new)
    found = {"session": float(np.mean(seconds)), "slowest": max(seconds), "height": model.tree_.height}
    return found | {"accuracy": accuracy(p, y_new), "nll": nll(p, y_new), "ece": ece(p, y_new)}


def tables(rows: list[Row]) -> list[Table]:
    return [listing("Many sessions", rows, ["settings.sessions", "method"], COLUMNS.values())]
