"""Deep kernels on CIFAR-10 and CIFAR-100: GP-Tree, SV-DKL and GPDNN on a ResNet-18, and softmax on the same network.

The data folder holds packs of pictures in `pictures` (see `benchmarks.pictures`); checkpoints go to `runs` in it, and
what was interrupted goes on from there. Embedding 1,024, batch 256, SGD with Nesterov momentum, cosine schedule, random
crops and flips, bfloat16 for the network; two fifths of the epochs are cross-entropy. All training pictures are trained
on, and the test set is measured as training goes to be drawn; what was chosen on it is said in `deep_shown.ABOUT`.
Methods that hold pictures back choose on them how sure they are, and see the test set once.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.experiment import RESULTS, Experiment
from benchmarks.experiments import deep_shown as shown
from benchmarks.experiments.deep_lines import MEASURED, NAME, NAMES, REFIT_SWEEPS, SOFTMAX, trials
from benchmarks.pictures import load
from benchmarks.rows import Trial
from gptree.deep import (
    Arrays,
    Cosine,
    CrossEntropy,
    Cutout,
    RandomCrop,
    RandomFlip,
    Trained,
    Training,
    VariationalTree,
    WeightedEnsemble,
    embed,
    measure,
    resnet18,
    train,
)
from gptree.rivals import GPDNN, SVDKL

LOGS = RESULTS / "logs"
#: Settings of a trial that are not the head's.
OF_TRAINING = (
    "epochs",
    "batch",
    "embedding",
    "learning_rate",
    "warmup",
    "objective_weight",
    "head_weight",
    "label_smoothing",
    "validation",
    "cutout",
)


def make_head(trial: Trial) -> Any:
    own = {name: value for name, value in trial.settings.items() if name not in OF_TRAINING}
    return {"SV-DKL": SVDKL, "GPDNN": GPDNN}.get(trial.method, VariationalTree)(**own)


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    found = load(folder / "pictures", trial.data)
    test = found.split == 1
    cut_out = (Cutout(trial.settings["cutout"]),) if "cutout" in trial.settings else ()
    learned = Arrays(found.X[~test], augment=(RandomCrop(4), RandomFlip(), *cut_out))
    held_out = Arrays(found.X[test], mean=learned.mean, std=learned.std)
    epochs, validation = trial.settings["epochs"], trial.settings.get("validation")
    joint = 0 if trial.method.startswith(SOFTMAX) else round(0.6 * epochs)
    training = Training(
        epochs=epochs,
        cross_entropy_epochs=epochs - joint,
        objective=CrossEntropy(label_smoothing=trial.settings.get("label_smoothing", 0.0)),
        objective_weight=trial.settings.get("objective_weight", 0.0),
        head_weight=trial.settings.get("head_weight", 1.0),
        batch_size=trial.settings["batch"],
        learning_rate=trial.settings["learning_rate"],
        schedule=Cosine(warmup=trial.settings["warmup"]),
        validation=validation,
        calibrate=validation is not None,  # and never on the test set
        validate_every=10,
        mixed_precision="bf16" if torch.cuda.is_available() else "no",
        checkpoint_epochs=20,
    )
    name = "-".join([trial.data, trial.method.split(",")[0].lower(), trial.key])
    measured = (held_out, found.y[test]) if validation is None else None
    result = train(
        resnet18(trial.settings["embedding"], "cifar", seed=trial.seed),
        learned,
        found.y[~test],
        found.names,
        training=training,
        head=make_head(trial),
        seed=trial.seed,
        folder=folder / "runs" / name,
        held_out=measured,
    )
    LOGS.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "runs" / name / "log.jsonl", LOGS / f"{name}.jsonl")
    scores = after_training(result, (learned, found.y[~test]), (held_out, found.y[test]))
    if measured is not None:
        scores |= {"curve": curve(result.log), "test": {name: result.log[-1][name] for name in MEASURED}}
    return scores


def curve(log: list[dict[str, Any]]) -> dict[str, list[float]]:
    """What was measured on the test set as training went on, and at which epochs."""
    rows = [row for row in log if "accuracy" in row]
    return {name: [row[name] for row in rows] for name in ("epoch", *MEASURED)}


def after_training(
    result: Trained[Any], learned: tuple[Arrays, np.ndarray], asked: tuple[Arrays, np.ndarray]
) -> dict[str, Any]:
    """Seconds of training; test scores, those sharpened, and before they were calibrated; a tree's alone, at its latent
    means, and refitted.

    All are in full precision.
    """
    found: dict[str, Any] = {"train_seconds": sum(row["seconds"] for row in result.log)}
    device = result.ensemble.weights.device
    (train_x, train_y), (x, y) = (
        (embed(result.network, source, np.arange(len(labels)), device), torch.as_tensor(labels, device=device))
        for source, labels in (learned, asked)
    )
    found["test"] = measure(result.log_probabilities(x), y)
    found["sharpened"] = sharpened(result.ensemble, x, y)
    head, held_out = result.head, np.setdiff1d(np.arange(len(train_y)), result.rows)
    if len(held_out):
        found["uncalibrated"] = measure(result.ensemble.first.log_probabilities(x), y)
    if head is not None and isinstance(head.settings, VariationalTree):
        alone = WeightedEnsemble(head)

        def measured(*how: str) -> dict[str, float]:
            if len(held_out):
                alone.choose(train_x[held_out], train_y[held_out], *how)
            return measure(alone.log_probabilities(x, *how), y)

        if len(held_out):
            found["alone"] = measured()
        found["at the mean"] = measured("mean")
        head.refit(train_x[result.rows], train_y[result.rows], REFIT_SWEEPS)
        found["refit"] = measured()
    return found


def sharpened(ensemble: WeightedEnsemble, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """Each half of the test rows with the weights that are best on the other half."""
    ensemble, second = WeightedEnsemble(*ensemble.layers), torch.arange(len(y), device=y.device) % 2 == 1
    together = torch.empty(len(y), int(y.max()) + 1, dtype=torch.float64, device=y.device)
    for here in (second, ~second):
        ensemble.choose(x[~here], y[~here])
        together[here] = ensemble.log_probabilities(x[here])
    return measure(together, y)


EXPERIMENTS = (
    Experiment(
        name=NAME,
        title="Deep kernels",
        paper="Table 2",
        seeds=3,
        trials=trials,
        run=run,
        tables=shown.tables,
        findings=shown.findings,
        figure=shown.figure,
        data_called=NAMES.__getitem__,
        quoted=(shown.QUOTED,),
        differs=shown.DIFFERS,
    ),
)
