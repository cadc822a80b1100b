"""Networks for sessions.

Which networks, trained on the base classes, embed novel classes well?

Those trained with rotated pictures, and embedded in the view that held-out pictures chose: nearest class means get
{mean all | mini-rotations} % of all classes of mini-ImageNet, without them {mean all | mini-margin} %.

Set-up
------
The data folder holds packs of pictures in `pictures` (see `benchmarks.core.pictures`) and, for CUB, EfficientNet-Lite0
in `efficientnet_lite0` (see `benchmarks.experiments.fscil.efficientnet`). A network is trained on the base classes of
the public lists (an interrupted training goes on from `runs`) and then frozen, and the embeddings of all pictures,
averaged over the picture and its mirror image, are written to `networks`, from where the experiments on sessions read
them: files `NAME.0.npz`, … of float16 `x` with `y`, `split` (0 to learn from, 1 to test on, 2 to learn from but held
out of the network's training) and `path`. Accuracies are those of nearest class means. Logs of the trainings:
`benchmarks/results/logs/network-*.jsonl`.

A network trained on parts of pictures has seen things larger than they are in whole ones, and one trained on turned
pictures says something else about a picture each way up: the held-out pictures choose the size at which all are
embedded, and whether four rotations are, side by side.

- mini-margin: a ResNet-18 with a stem for small pictures, from scratch on the 60 base classes with rotated pictures, 72
  epochs with a cosine margin.
- mini-rotations: the same network, 100 epochs by cross-entropy; 20 pictures of each base class were held out, and chose
  108 pixels and four rotations, 2,048 features.
- cub: EfficientNet-Lite0 with ImageNet weights, on the 100 base classes by cross-entropy for 24 epochs.
- cub-held-out: the same training, but 5 of the 30 pictures of each base class were held out, and chose 288 pixels.
- cifar-plain: a ResNet-18 with a stem for 32 × 32 pixels, on the 60 base classes for 150 epochs by cross-entropy.
- cifar-rotations: the same network with rotated pictures, 75 epochs, squares of 8 pixels cut out; 25 of the 500
  pictures of each base class were held out, and chose four rotations, 2,048 features.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.core.pictures import Pictures, load
from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.fscil.efficientnet import efficientnet_lite0
from benchmarks.experiments.fscil.streams import HELD_OUT, TEST
from gptree.deep import (
    Arrays,
    ColourJitter,
    Cosine,
    CosineMargin,
    CrossEntropy,
    Cutout,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Training,
    VariationalTree,
    embed,
    resnet18,
    train,
)
from gptree.maths.sphere import unit_length

GROUP = "Classes that arrive later"

#: Of an output file, about: each stays small enough to travel alone.
BYTES_A_FILE = 14_000_000


@dataclass(frozen=True)
class Network:
    """A set of pictures, and how the network for it is trained."""

    data: str
    base: int
    training: Training
    augment: tuple[Any, ...]
    backbone: str = "resnet18"
    stem: Literal["small", "cifar"] = "small"
    size: int | None = None
    #: Sizes to which pictures may be enlarged before they are embedded, as chosen on those held out.
    enlarged: tuple[int, ...] = ()


class Enlarged(nn.Module):
    """A network that sees its pictures with `size` pixels a side."""

    def __init__(self, network: nn.Module, size: int) -> None:
        super().__init__()
        self.network, self.size = network, size

    def forward(self, x: Tensor) -> Tensor:
        return self.network(functional.interpolate(x, size=self.size, mode="bicubic"))


class Embeddings(NamedTuple):
    """Of pictures: x (n, d), class numbers y (n,), split (n,) 0 train 1 test, path (n,) `CLASS/FILE`."""

    x: np.ndarray
    y: np.ndarray
    split: np.ndarray
    path: np.ndarray


STRONG = (RandomResizedCrop(0.2), RandomFlip(), ColourJitter(0.4, 0.4, 0.4))
COMMON: dict[str, Any] = {
    "batch_size": 256,
    "schedule": Cosine(warmup=3),
    "validation": None,
    "mixed_precision": "bf16",
    "checkpoint_epochs": 20,
}


def pretrained(epochs: int, objective: Any, rate: float, **others: Any) -> Training:
    return Training(
        **{**COMMON, "epochs": epochs, "cross_entropy_epochs": epochs, "objective": objective, "learning_rate": rate}
        | others
    )


CUB = Network(
    "cub200",
    100,
    pretrained(24, CrossEntropy(label_smoothing=0.1), 0.01, batch_size=128),
    (RandomResizedCrop(0.3), RandomFlip(), ColourJitter(0.3, 0.3, 0.3)),
    backbone="efficientnet_lite0",
    size=224,
)
#: A name stands for one training: another one gets another name, for rows know no more than the name.
NETWORKS = {
    "mini-margin": Network(
        "mini_imagenet", 60, pretrained(72, CosineMargin(scale=16.0, margin=0.1, rotations=True), 0.1), STRONG
    ),
    "mini-rotations": Network(
        "mini_imagenet",
        60,
        pretrained(100, CrossEntropy(rotations=True), 0.1, validation=20, calibrate=False),
        STRONG,
        enlarged=(96, 108, 120),
    ),
    "cub": CUB,
    "cub-held-out": replace(CUB, training=replace(CUB.training, validation=5, calibrate=False), enlarged=(256, 288)),
    "cifar-plain": Network(
        "cifar100", 60, pretrained(150, CrossEntropy(), 0.2), (RandomCrop(4), RandomFlip()), stem="cifar"
    ),
    "cifar-rotations": Network(
        "cifar100",
        60,
        pretrained(75, CrossEntropy(rotations=True), 0.2, validation=25, calibrate=False),
        (RandomCrop(4), RandomFlip(), Cutout(8)),
        stem="cifar",
    ),
}


def make_backbone(network: Network, folder: Path) -> nn.Module:
    if network.backbone == "resnet18":
        return resnet18(stem=network.stem)
    return efficientnet_lite0(folder / "efficientnet_lite0")


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    """Train the network of a trial, and write the embeddings of all pictures."""
    network = NETWORKS[trial.method]
    pictures = load(folder / "pictures", network.data, size=network.size)
    base = (pictures.split == 0) & (pictures.y < network.base)
    # a network that normalises its input itself gets pixels from 0 to 255
    scaling = {"mean": (0.0,) * 3, "std": (1 / 255,) * 3} if network.backbone != "resnet18" else {}
    source = Arrays(pictures.X[base], augment=network.augment, **scaling)
    start = time.perf_counter()
    result = train(
        make_backbone(network, folder),
        source,
        pictures.y[base],
        pictures.names[: network.base],
        training=network.training,
        head=VariationalTree(inducing=5, learn_kernel="shared"),
        folder=folder / "runs" / trial.method,
    )
    seconds = time.perf_counter() - start
    pictures.split[np.delete(np.flatnonzero(base), result.rows)] = HELD_OUT
    x, held_out = best_view(network, result.network, pictures, source)
    write(x, pictures, folder / "networks", trial.method)
    learned, test, first = pictures.split != TEST, pictures.split == TEST, pictures.y < network.base
    return {
        "train_seconds": seconds,
        "base": nearest_mean_accuracy(x, pictures.y, learned & first, test & first),
        "all": nearest_mean_accuracy(x, pictures.y, learned, test),
        "held_out": held_out,
        "log": result.log[-1],
    }


def best_view(
    settings: Network, network: nn.Module, pictures: Pictures, source: Arrays
) -> tuple[np.ndarray, dict[str, float]]:
    """Embeddings of all pictures by the view that is best on held-out ones, and the accuracy of each view on these."""
    trained, held_out = (pictures.split == 0) & (pictures.y < settings.base), pictures.split == HELD_OUT
    lenses = {"as they are": network} | {f"{size} pixels": Enlarged(network, size) for size in settings.enlarged}
    views = {name: embedded(lens, pictures.X, source) for name, lens in lenses.items()}
    if not held_out.any():
        return views["as they are"], {}
    accuracy = {name: nearest_mean_accuracy(x, pictures.y, trained, held_out) for name, x in views.items()}
    best = max(accuracy, key=accuracy.__getitem__)
    if settings.training.objective.rotations:
        turned = (np.ascontiguousarray(np.rot90(pictures.X, k, (1, 2))) for k in (1, 2, 3))
        others = [embedded(lenses[best], X, source) for X in turned]
        x = np.concatenate([unit_length(view) for view in (views[best], *others)], axis=1)
        name = f"{best}, four rotations"
        views[name], accuracy[name] = x, nearest_mean_accuracy(x, pictures.y, trained, held_out)
    return views[max(accuracy, key=accuracy.__getitem__)], accuracy


def embedded(network: nn.Module, pictures: np.ndarray, source: Arrays) -> np.ndarray:
    """Embeddings (n, d) of pictures, averaged over the picture and its mirror image; normalised like the source's."""
    device = next(network.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):  # as it was trained
        both = [
            embed(network, Arrays(X, mean=source.mean, std=source.std), np.arange(len(X)), device).float()
            for X in (pictures, np.ascontiguousarray(pictures[:, :, ::-1]))
        ]
    return torch.stack(both).mean(0).cpu().numpy()


def write(x: np.ndarray, pictures: Pictures, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    size = BYTES_A_FILE // (2 * x.shape[1])
    for part, first in enumerate(range(0, len(x), size)):
        rows = slice(first, first + size)
        np.savez_compressed(
            folder / f"{name}.{part}.npz",
            x=x[rows].astype(np.float16),
            y=pictures.y[rows],
            split=pictures.split[rows],
            path=pictures.path[rows],
        )


def read(name: str, folder: Path, made_by: str = "") -> Embeddings:
    """What `write` wrote.

    made_by : what makes the file, where it is no network of this experiment.
    """
    files = sorted(folder.glob(f"{name}.*.npz"), key=lambda file: int(file.suffixes[-2][1:]))
    if not files:
        command = f"`python -m benchmarks run fscil-networks --data {folder.parent} --methods {name}`"
        raise FileNotFoundError(f"{folder} has no embeddings {name}.0.npz, …. Make them with {made_by or command}.")
    parts = [np.load(file, allow_pickle=False) for file in files]
    x, y, split, path = (np.concatenate([part[array] for part in parts]) for array in Embeddings._fields)
    return Embeddings(x.astype(np.float32), y.astype(int), split, path)


def nearest_mean_accuracy(x: np.ndarray, y: np.ndarray, learned: np.ndarray, asked: np.ndarray) -> float:
    """Of the rows asked about, by cosine with the means of the classes in the learned rows."""
    unit = unit_length(x)
    classes = np.unique(y[learned])
    means = unit_length(np.stack([unit[learned & (y == c)].mean(0) for c in classes]))
    return float((classes[(unit[asked] @ means.T).argmax(1)] == y[asked]).mean())


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("fscil-networks", name, network.data, seed) for seed in range(seeds) for name, network in NETWORKS.items()
    ]


COLUMNS = {
    "base": Column("base classes, test (%)", "metrics.base", 100, 1),
    "all": Column("all classes, test (%)", "metrics.all", 100, 1),
    "training": Column("training (s)", "metrics.train_seconds", digits=0),
}


def tables(rows: list[Row]) -> list[Table]:
    views = [
        [row.trial.method, view, f"{100 * accuracy:.1f}"]
        for row in rows
        for view, accuracy in row.metrics["held_out"].items()
    ]
    return [
        listing("Nearest class means on the embeddings", rows, ["method", "data"], COLUMNS.values()),
        Table("Views of the pictures, on held-out ones", ["network", "view", "accuracy (%)"], views),
    ]
