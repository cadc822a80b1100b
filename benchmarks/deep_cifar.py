"""CIFAR-10 and CIFAR-100 with ResNet-18: a deep GP-Tree beside the same network with a softmax head.

    python -m benchmarks.deep_cifar --pictures DIR --runs DIR [--data cifar100] [--methods softmax gp-tree]

`--pictures` is a folder of packs (`benchmarks.pictures`), `--runs` holds checkpoints: what was interrupted goes on from
there. Embedding 1,024, batch 256, SGD with Nesterov momentum, cosine schedule, random crops and flips, bfloat16 for the
network. All training pictures are trained on; nothing is chosen on the test set, which is measured as training goes
only to be drawn. Both methods share every setting, and the first 80 of 200 epochs are cross-entropy in both.
"""

from __future__ import annotations

import argparse
import functools
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.pictures import load
from benchmarks.rows import Row, Rows, Trial, run_trials
from benchmarks.tables import Column, markdown
from gptree.deep import Arrays, Cosine, RandomCrop, RandomFlip, SparseHead, Training, embed, measure, resnet18, train

RESULTS = Path(__file__).parent / "results" / "deep_cifar.jsonl"
LOGS = Path(__file__).parent / "results" / "logs"
DATA = ("cifar100", "cifar10")
#: The head's settings by method; softmax has none.
METHODS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "gp-tree": {"inducing": 40, "learn_kernel": "shared"},
    "gp-tree, at most 1,024 points a node": {"inducing": 40, "learn_kernel": "shared", "cap": 1024},
}
REFIT_SWEEPS = 10

COLUMNS = (
    Column("accuracy (%)", "metrics.test.accuracy", scale=100, digits=2),
    Column("NLL", "metrics.test.nll", digits=3),
    Column("ECE (%)", "metrics.test.ece", scale=100, digits=2),
    Column("NLL, sharpened", "metrics.sharpened.nll", digits=3),
    Column("ECE (%), sharpened", "metrics.sharpened.ece", scale=100, digits=2),
    Column("minutes", "metrics.train_seconds", scale=1 / 60, digits=1),
)


def trials(data: str, methods: list[str], seeds: int, epochs: int) -> list[Trial]:
    return [
        Trial("deep-cifar", method, data, seed, {"epochs": epochs, "batch": 256, "embedding": 1024, **METHODS[method]})
        for seed in range(seeds)
        for method in methods
    ]


def run(trial: Trial, pictures: Path, runs: Path) -> Mapping[str, Any]:
    found = load(pictures, trial.data)
    test = found.split == 1
    learned = Arrays(found.X[~test], augment=(RandomCrop(4), RandomFlip()))
    held_out = Arrays(found.X[test], mean=learned.mean, std=learned.std)
    epochs = trial.settings["epochs"]
    training = Training(
        epochs=epochs,
        cross_entropy_epochs=epochs if trial.method == "softmax" else round(0.4 * epochs),
        batch_size=trial.settings["batch"],
        learning_rate=0.2,
        schedule=Cosine(warmup=5),
        validation=None,
        validate_every=10,
        mixed_precision="bf16" if torch.cuda.is_available() else "no",
        checkpoint_epochs=20,
    )
    name = "-".join([trial.data, trial.method.split(",")[0], trial.key])
    result = train(
        resnet18(trial.settings["embedding"], "cifar", seed=trial.seed),
        learned,
        found.y[~test],
        found.names,
        training=training,
        head=SparseHead(**METHODS[trial.method]),
        seed=trial.seed,
        folder=runs / name,
        held_out=(held_out, found.y[test]),
    )
    LOGS.mkdir(parents=True, exist_ok=True)
    shutil.copy(runs / name / "log.jsonl", LOGS / f"{name}.jsonl")
    return {
        "test": {name: result.log[-1][name] for name in ("accuracy", "nll", "ece")},
        **after_training(result, learned, found.y[~test], held_out, found.y[test]),
    }


def after_training(result: Any, learned: Arrays, y: np.ndarray, held_out: Arrays, y_test: np.ndarray) -> dict[str, Any]:
    """Seconds of training; the layer sharpened; a head at latent means, and refitted on clean embeddings."""
    found: dict[str, Any] = {"train_seconds": sum(row["seconds"] for row in result.log)}
    device = next(result.network.parameters()).device
    train_x, test_x = (embed(result.network, s, np.arange(len(s)), device) for s in (learned, held_out))
    classes = torch.as_tensor(y_test, device=device)
    layer = result.objective_layer if result.head is None else result.head
    found["sharpened"] = sharpened(layer, test_x, classes)
    if result.head is None:
        return found
    found["at the mean"] = measure(result.head.log_probabilities(test_x, "mean"), classes)
    result.head.refit(train_x, torch.as_tensor(y, device=device), REFIT_SWEEPS)
    found["refit"] = measure(result.head.log_probabilities(test_x), classes)
    found["refit, sharpened"] = sharpened(result.head, test_x, classes)
    kernel = result.head.kernel
    found["kernel"] = {name: value.tolist() for name, value in kernel.named_parameters()}
    return found


def sharpened(layer: Any, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """Each half of the test rows with the sharpness that is best on the other half; the layer stays as it was."""
    second = torch.arange(len(y), device=y.device) % 2 == 1
    together = torch.empty(len(y), int(y.max()) + 1, dtype=torch.float64, device=y.device)
    for here in (second, ~second):
        layer.sharpen(x[~here], y[~here])
        together[here] = layer.log_probabilities(x[here]).double()
    layer.sharpness.fill_(1.0)
    return measure(together, y)


def table(rows: list[Row]) -> str:
    return markdown(rows, ["data", "settings.epochs", "method"], COLUMNS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True, help="folder of the packs")
    parser.add_argument("--runs", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--data", choices=DATA, default=DATA[0])
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=200)
    arguments = parser.parse_args()
    rows = Rows(arguments.results)
    wanted = trials(arguments.data, arguments.methods, arguments.seeds, arguments.epochs)
    run_trials(wanted, functools.partial(run, pictures=arguments.pictures, runs=arguments.runs), rows)
    print(table(list(rows)))


if __name__ == "__main__":
    main()
