"""Single precision.

What does the tree of a network lose in single precision?

Single less double precision, the same network, rows and points: {gap NLL | single | double | data=banking77 |
inducing=10} of NLL on Banking77, {gap NLL | single | double | data=clinc150 | inducing=10} on CLINC150 and {gap NLL |
single | double | data=cub200 | inducing=10} on CUB.

Set-up
------
A perceptron with a hidden layer of 512 and an embedding of 256 on frozen features, and a tree without a cap whose
points and kernel move: all 77 classes of Banking77, 75 of CLINC150 and 100 of CUB, drawn by the seed, all training
rows of them, 10 or 40 inducing points each. 15 epochs, six of cross-entropy first; a tenth of the rows calibrates. The
network is in single precision in both, and begins alike. "The tree alone" is without the layer of cross-entropy,
calibrated on the same rows; "refitted" after ten sweeps over all rows. Steps skipped are those where a node's matrices
did not factorise. Trainings with 40 points need a GPU; what a step takes is in [a training step](deep-step.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.core.gaps import gap_table
from benchmarks.core.tables import Column, Table, chosen, grouped, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data import draw, load
from benchmarks.experiments.deep.kernels import after_training
from gptree.deep import Arrays, Training, VariationalTree, mlp, train

GROUP, SEEDS = "Speed and size", 3

CLASSES = {"banking77": None, "clinc150": 75, "cub200": 100}
DTYPES: dict[str, Any] = {"double": "float64", "single": "float32"}
INDUCING, ON_GPU = (10, 40), 40
TRAINING = Training(epochs=15, cross_entropy_epochs=6, batch_size=256, validation=0.1, validate_every=15)

ACCURACY = Column("accuracy %", "metrics.test.accuracy", scale=100, digits=2)
NLL = Column("NLL", "metrics.test.nll", digits=4, better=min)
ECE = Column("ECE %", "metrics.test.ece", scale=100, digits=2, better=min)
COLUMNS = {
    "accuracy": ACCURACY,
    "NLL": NLL,
    "ECE": ECE,
    "alone": Column("NLL, the tree alone", "metrics.alone.nll", digits=4, better=min),
    "refit": Column("NLL, refitted", "metrics.refit.nll", digits=4, better=min),
    "skipped": Column("steps skipped", "metrics.skipped", digits=1),
    "jitter": Column("largest jitter", "metrics.jitter", digits=6),
    "seconds": Column("seconds of training", "metrics.train_seconds", digits=0),
}
BY = ["data", "settings.inducing"]


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("deep-precision", method, data, seed, {"classes": classes, "inducing": inducing})
        for inducing in INDUCING
        for seed in range(seeds)
        for data, classes in CLASSES.items()
        for method in DTYPES
    ]


def needs_gpu(trial: Trial) -> bool:
    return trial.settings["inducing"] == ON_GPU


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    task = draw(load(trial.data, folder), trial.settings["classes"], None, trial.seed)
    labels, train_y = np.unique(task.train_y, return_inverse=True)
    learned = Arrays(task.train_x), train_y
    result = train(
        mlp(task.train_x.shape[1], hidden=(512,), embedding=256, seed=trial.seed),
        *learned,
        labels.tolist(),
        training=TRAINING,
        head=VariationalTree(inducing=trial.settings["inducing"], dtype=DTYPES[trial.method]),
        seed=trial.seed,
    )
    head = result.head
    assert head is not None
    counted = {"skipped": int(head.skipped), "jitter": float(head.jitter), "points": len(head.points)}
    return counted | after_training(result, learned, (Arrays(task.test_x), np.searchsorted(labels, task.test_y)))


def tables(rows: list[Row]) -> list[Table]:
    pairs = {
        f"{data}, {points} points a class": (chosen(group, method="single"), chosen(group, method="double"))
        for (data, points), group in grouped(rows, BY).items()
    }
    told = [COLUMNS[name] for name in ("accuracy", "NLL", "ECE", "alone", "refit")]
    return [
        gap_table("Single less double precision", pairs, told),
        listing("Scores", rows, [*BY, "method"], COLUMNS.values()),
    ]
