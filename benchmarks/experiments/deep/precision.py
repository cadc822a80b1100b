"""Single precision.

What does the tree of a network lose in single precision?

Nothing that matters: single less double precision, NLL differs by {gap NLL | single | double | data=banking77 |
inducing=10} on Banking77, {gap NLL | single | double | data=clinc150 | inducing=10} on CLINC150 and {gap NLL | single |
double | data=cub200 | inducing=10} on CUB with ten points a class, and by {gap NLL | single | double | data=cub200 |
inducing=40} on CUB with 40. A training takes {mean seconds | single | data=cub200 | inducing=40} in place of {mean
seconds | double | data=cub200 | inducing=40} seconds of a processor there.

Findings
--------
- Accuracy on Banking77, CLINC150 and CUB with ten points: {gap accuracy | single | double | data=banking77 |
  inducing=10}, {gap accuracy | single | double | data=clinc150 | inducing=10} and {gap accuracy | single | double |
  data=cub200 | inducing=10} points; ECE: {gap ECE | single | double | data=banking77 | inducing=10}, {gap ECE | single
  | double | data=clinc150 | inducing=10} and {gap ECE | single | double | data=cub200 | inducing=10} points.
- The tree alone, NLL: {gap alone | single | double | data=banking77 | inducing=10}, {gap alone | single | double |
  data=clinc150 | inducing=10} and {gap alone | single | double | data=cub200 | inducing=10}; refitted: {gap refit |
  single | double | data=banking77 | inducing=10}, {gap refit | single | double | data=clinc150 | inducing=10} and {gap
  refit | single | double | data=cub200 | inducing=10}. Where this is behind by two standard errors, it is by some 1e-5.
- No step was skipped in single precision ({mean skipped | single} a training), and no jitter was raised. The jitter is
  what the two differ by: 1e-4 of the diagonal of K_mm in single precision, 1e-6 in double. With the same jitter a small
  training ends with probabilities that agree to three digits, which a test holds.

Set-up
------
A perceptron with a hidden layer of 512 and an embedding of 256 on frozen features, and a tree without a cap whose
points and kernel move: all 77 classes of Banking77, 75 of CLINC150 and 100 of CUB, drawn by the seed, all training rows
of them, ten inducing points each, on CUB also 40. 15 epochs, six of cross-entropy first; a tenth of the rows
calibrates. The network is in single precision in both, and begins alike. "The tree alone" is without the layer of
cross-entropy, calibrated on the same rows; "refitted" after ten sweeps over all rows. Steps skipped are those where a
node's matrices did not factorise.
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
INDUCING = {10: tuple(CLASSES), 40: ("cub200",)}  # and the data: with 40 a training on Banking77 takes 40 minutes
TRAINING = Training(epochs=15, cross_entropy_epochs=6, batch_size=256, validation=0.1, validate_every=15)

#: What predicts: the two layers together, and the tree alone, before and after further sweeps.
PARTS = {"both layers": "test", "the tree alone": "alone", "the tree alone, refitted": "refit"}


def scores_of(part: str) -> dict[str, Column]:
    path = f"metrics.{PARTS[part]}"
    return {
        "accuracy": Column("accuracy %", f"{path}.accuracy", scale=100, digits=2),
        "NLL": Column("NLL", f"{path}.nll", digits=6, better=min),
        "ECE": Column("ECE %", f"{path}.ece", scale=100, digits=2, better=min),
    }


COLUMNS = {
    **scores_of("both layers"),
    "alone": Column("NLL, the tree alone", "metrics.alone.nll", digits=6, better=min),
    "refit": Column("NLL, refitted", "metrics.refit.nll", digits=6, better=min),
    "skipped": Column("steps skipped", "metrics.skipped", digits=1),
    "jitter": Column("largest jitter", "metrics.jitter", digits=6),
    "seconds": Column("seconds of the processor", "seconds.cpu", digits=0),
}
BY = ["data", "settings.inducing"]


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("deep-precision", method, data, seed, {"classes": CLASSES[data], "inducing": inducing})
        for inducing, sets in INDUCING.items()
        for seed in range(seeds)
        for data in sets
        for method in DTYPES
    ]


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
    differences = [gap_table(f"Single less double: {part}", pairs, scores_of(part).values()) for part in PARTS]
    return [*differences, listing("Scores", rows, [*BY, "method"], COLUMNS.values())]
