"""A cap on inducing points.

How much accuracy does a cap on the inducing points of a node cost?

Some: with ten points a class of CLINC150 a cap of 256 has {mean accuracy | data=clinc150 | inducing=10 | cap=256} %
accuracy and one of 1,024 {mean accuracy | data=clinc150 | inducing=10 | cap=1024} %. At a given cap, more points a
class cost little and help the nodes below it, so the cap is what to lower when the root is too slow.

Set-up
------
`SparseVariational` on real embeddings: all training rows, zero prior mean, float32, RBF kernel of output scale 10 (the
default), at most 20 steps on all rows. A node sees the inducing points of its classes, so many of each; where those are
more than the cap, fewer of each. Seeds change the tree and the inducing points, not the rows. The picture leaves out
what has no cap.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from benchmarks.core.figures import line_plot, panels
from benchmarks.core.tables import Column, Table, chosen, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data import load
from gptree import GPTreeClassifier, SparseVariational
from gptree.metrics import accuracy, ece, nll

GROUP, SEEDS = "Speed and size", 3

CLASSES = {"clinc150": 150, "cub200": 200}
INDUCING, CAPS = (1, 5, 10, 20), (64, 128, 256, 512, 1024, None)
SWEEPS = 20
#: More inducing points at the root than this would take minutes a run, and have no row.
LARGEST_ROOT = 2000

COLUMNS = {
    "root": Column("at the root", "metrics.at_the_root", digits=0),
    "accuracy": Column("accuracy %", "metrics.accuracy", scale=100, digits=1),
    "NLL": Column("NLL", "metrics.nll"),
    "ECE": Column("ECE %", "metrics.ece", scale=100, digits=1),
    "fit": Column("fit (CPU s)", "metrics.fit", digits=1),
}


def trials(seeds: int) -> list[Trial]:
    """Every number a class at every cap that changes something, and without a cap where that is feasible."""
    return [
        Trial("sparse-cap", "gptree, SparseVariational", data, seed, {"inducing": inducing, "cap": cap})
        for seed in range(seeds)
        for data, classes in CLASSES.items()
        for inducing in INDUCING
        for cap in CAPS
        if (inducing * classes <= LARGEST_ROOT if cap is None else cap < inducing * classes)
    ]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
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
    diagnostics = model.diagnostics_
    return {
        "accuracy": accuracy(p, data.test_y),
        "nll": nll(p, data.test_y),
        "ece": ece(p, data.test_y),
        "fit": fit,
        "at_the_root": _root_points(model),
        "settled": float(np.mean(diagnostics["converged"])),
        "jitter": float(diagnostics["jitter"].max()),
        "bound": float(diagnostics["bound"].sum()),
    }


def _root_points(model: GPTreeClassifier) -> int:
    """Inducing points of the root: a cap takes whole points of every class, so it may leave room."""
    root = np.argmax(model.tree_.hi - model.tree_.lo)
    number = int(model.model_.node_of[0][root])
    return next(p.rows.shape[1] for p in model.model_.predictor.posteriors if number in p.nodes.tolist())


def tables(rows: list[Row]) -> list[Table]:
    by = ["data", "settings.inducing", "settings.cap"]
    return [listing("Inducing points a class, and a cap", rows, by, COLUMNS.values())]


def figure(rows: list[Row], path: Path) -> None:
    picture, axes = panels(1, len(CLASSES))
    for ax, data in zip(axes, CLASSES, strict=True):
        capped = [row for row in chosen(rows, data=data) if row.trial.settings["cap"] is not None]
        line_plot(capped, "settings.cap", COLUMNS["accuracy"], "settings.inducing", ax)
        ax.set(title=data, xscale="log", xlabel="cap")
        ax.legend(frameon=False, fontsize="small", title="points a class")
    picture.savefig(path, dpi=150)
