"""GP-Tree from pictures: network and tree are trained together on the base session, and classes are added to both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.core.pictures import Pictures
from benchmarks.core.trials import Trial
from benchmarks.experiments.fscil.networks import write
from benchmarks.experiments.fscil.sets import SETS, Set, pictures_of, sessions_of
from benchmarks.experiments.fscil.streams import HELD_OUT
from gptree import DeepGPTreeClassifier
from gptree.deep import Arrays, RandomCrop, RandomFlip
from gptree.protocols import run_stream

#: Of a session's row, what names the run: the trial has it already.
NAMES = ("data", "method", "settings", "seed", "versions", "machine", "commit")
VERSIONS = ("published", "corrected", "defaults")
#: Features of the linear layer on a ResNet-18, as in the paper.
EMBEDDING = 512


class OnPictures:
    """A deep classifier that is given numbers of pictures, (n, 1)."""

    def __init__(self, model: DeepGPTreeClassifier, pictures: Pictures, own: Set) -> None:
        self.model, self.pictures, self.own = model, pictures, own

    def fit(self, X: np.ndarray, y: np.ndarray) -> Any:
        augment, self.model.augment = self.model.augment, ()
        return self.model.fit(Arrays(self.pictures.X[X[:, 0]], augment=augment, **self.own.scaling), y)

    def add_classes(self, X: np.ndarray, y: np.ndarray) -> Any:
        return self.model.add_classes(self.pictures.X[X[:, 0]], y)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict_proba(self.pictures.X[X[:, 0]])

    @property
    def classes_(self) -> np.ndarray:
        return self.model.classes_

    @property
    def memory_(self) -> Any:
        return self.model.memory_


def make(data: str, version: Any, seed: int, folder: Path) -> DeepGPTreeClassifier:
    """The classifier of a version. CIFAR-100, which the paper has no sessions of, is trained as mini-ImageNet is."""
    own = SETS[data]
    changes: dict[str, Any] = {"augment": (RandomCrop(4), RandomFlip())} if own.published == "cifar100" else {}
    model = DeepGPTreeClassifier.paper(
        "cub" if own.published == "cub" else "mini-imagenet",
        own.backbone(folder, seed, embedding=EMBEDDING),
        version=version,
        growth=True,
        random_state=seed,
        folder=folder / "runs" / network_name(data, version, seed),
        **changes,
    )
    return model.set_params(
        training__mixed_precision="bf16" if torch.cuda.is_available() else "no", training__checkpoint_epochs=20
    )


def network_name(data: str, version: str, seed: int) -> str:
    """Of a trained network: the last two versions share one."""
    return f"{data}-{'published' if version == 'published' else 'corrected'}-{seed}"


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    """A version of the pipeline on all sessions; the embeddings of all pictures go to `networks`."""
    version = trial.method.removeprefix("pipeline: ")
    pictures, own = pictures_of(trial.data, folder), SETS[trial.data]
    model = OnPictures(make(trial.data, version, trial.seed, folder), pictures, own)
    stream = sessions_of(trial.data, folder)
    result = run_stream(model, stream, seed=trial.seed, method=trial.method)
    sessions = [{key: value for key, value in row.items() if key not in NAMES} for row in result.rows]
    split = pictures.split.copy()
    split[np.delete(stream.sessions[0].X[:, 0], model.model.rows_)] = HELD_OUT
    x = model.model.embed(pictures.X)
    known = Pictures(pictures.X, pictures.y, pictures.names, split, pictures.path)
    write(x, known, folder / "networks", network_name(trial.data, version, trial.seed))
    log = model.model.log_
    return {
        "sessions": sessions,
        "reliability": result.details["reliability"],
        "base_seconds": sum(row["seconds"] for row in log),
        "log": log[-1],
        "best_epoch": model.model.best_epoch_,
    }
