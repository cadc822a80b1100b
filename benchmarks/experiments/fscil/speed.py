"""Speed of a session.

How long does it take to learn ten more classes?

Ten more classes take {mean add | classes=200} s of processor time where there are 200, and {mean add | classes=2000} s
where there are 2,000, of which 1,900 came later: the default strategy builds all of these anew. What base classes cost
is on [another page](growing-speed.md), and so is [a strategy for very many sessions](many-sessions.md).

Set-up
------
Made-up features of 512 dimensions: a base of 100 classes with 30 examples each, five of which are kept; novel classes
come with five. At each size, ten classes are added to a forest, and taken back, again and again: the median counts, and
the median of three predictions of 10,000 rows. One thread, each size in a fresh process; processor seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.core.figures import line_plot, panels
from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from gptree import GPForestClassifier, Growth

GROUP, NEEDS_DATA, FRESH_PROCESS = "Speed and size", False, True

DIMENSIONS, BASE, BASE_SHOTS, WAY, SHOTS = 512, 100, 30, 10, 5
SIZES = (200, 500, 1000, 2000)
QUERIES = 10_000
SPREAD = 2.5  # of a class around its mean, in units of the spread of the means

COLUMNS = {
    "add": Column("add 10 classes × 5 shots (CPU s)", "metrics.add.median", digits=2),
    "slowest": Column("slowest of them (CPU s)", "metrics.add.most", digits=2),
    "predict": Column("predict 10,000 rows (CPU s)", "metrics.predict.median", digits=2),
    "base": Column("base session (CPU s)", "metrics.fit", digits=1),
    "kept": Column("kept (MB)", "metrics.bytes", scale=1e-6, digits=0),
}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("fscil-speed", "gptree forest", "made-up", seed, {"classes": size, "repeats": repeats})
        for seed in range(seeds)
        for size, repeats in zip(SIZES, (20, 5, 3, 3), strict=True)
    ]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    random = np.random.default_rng(trial.seed)
    size, repeats = trial.settings["classes"], trial.settings["repeats"]
    means = random.normal(size=(size, DIMENSIONS))

    def draw(first: int, last: int, shots: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.repeat(np.arange(first, last), shots)
        return means[y] + SPREAD * random.normal(size=(len(y), DIMENSIONS)), y

    model = GPForestClassifier(growth=Growth(), random_state=trial.seed, device="cpu")
    base = draw(0, BASE, BASE_SHOTS)
    fit = _seconds(lambda: model.fit(*base))
    model.add_classes(*draw(BASE, size - WAY, SHOTS))
    newest = draw(size - WAY, size, SHOTS)
    added = [_seconds(lambda: model.add_classes(*newest))]
    for _ in range(repeats - 1):
        model.undo()
        added.append(_seconds(lambda: model.add_classes(*newest)))
    queries, y = draw(0, size, -(-QUERIES // size))
    predicted = [_seconds(lambda: model.predict(queries[:QUERIES])) for _ in range(3)]
    return {
        "fit": fit,
        "add": {"median": float(np.median(added)), "least": min(added), "most": max(added)},
        "predict": {"median": float(np.median(predicted)), "least": min(predicted), "most": max(predicted)},
        "accuracy": float(np.mean(model.predict(queries[:1000]) == y[:1000])),
        "bytes": model.memory_.nbytes,
    }


def _seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def tables(rows: list[Row]) -> list[Table]:
    return [listing("Speed of a session", rows, ["settings.classes", "settings.repeats"], COLUMNS.values())]


def figure(rows: list[Row], path: Path) -> None:
    picture, axes = panels(1, 2, width=3.5)
    for ax, column in zip(axes, (COLUMNS["add"], COLUMNS["predict"]), strict=True):
        line_plot(rows, "settings.classes", column, "method", ax)
        ax.set_ylim(bottom=0)
    picture.savefig(path, dpi=150)
