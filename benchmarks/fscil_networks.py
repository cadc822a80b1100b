"""Networks for few-shot class-incremental learning from pictures: trained on the base classes, then frozen.

    python -m benchmarks.fscil_networks NAME --pictures DIR --runs DIR --out DIR [--weights DIR]

NAME is one of `NETWORKS`. Trains on the base classes of the public lists (what was interrupted goes on from `--runs`),
and writes to `--out` the embeddings of all pictures, averaged over the picture and its mirror image, as files
`NAME.0.npz`, … of float16 `x` with `y`, `split` (0 to learn from, 1 to test on, 2 to learn from but held out from the
network) and `path`: the folder `networks` of the experiments on sessions.
A network trained on parts of pictures has seen things larger than they are in whole ones, and one trained on turned
pictures says something else about a picture each way up: where pictures were held out, they choose the size at which
all are embedded, and whether four rotations are, side by side. Prints the accuracy of nearest class means, before any
head.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.pictures import Pictures, load
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

#: Values of `split`: rows to learn from are 0 where the network may have been trained on them.
TEST, HELD_BACK = 1, 2
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


def make_backbone(network: Network, weights: Path | None) -> nn.Module:
    if network.backbone == "resnet18":
        return resnet18(stem=network.stem)
    from benchmarks.backbones import efficientnet_lite0

    if weights is None:
        raise SystemExit("the weights of EfficientNet-Lite0 are needed: give --weights")
    return efficientnet_lite0(weights)


def run(name: str, pictures: Path, runs: Path, out: Path, weights: Path | None) -> dict[str, Any]:
    network = NETWORKS[name]
    found = load(pictures, network.data, size=network.size)
    base = (found.split == 0) & (found.y < network.base)
    # a network that normalises its own input gets pixels from 0 to 255
    own = {"mean": (0.0,) * 3, "std": (1 / 255,) * 3} if network.backbone != "resnet18" else {}
    source = Arrays(found.X[base], augment=network.augment, **own)
    start = time.perf_counter()
    result = train(
        make_backbone(network, weights),
        source,
        found.y[base],
        found.names[: network.base],
        training=network.training,
        head=VariationalTree(inducing=5, learn_kernel="shared"),
        folder=runs / name,
    )
    seconds = time.perf_counter() - start
    found.split[np.delete(np.flatnonzero(base), result.rows)] = HELD_BACK
    x, held_out = best_view(network, result.network, found, source)
    write(x, found, out, name)
    learned, test, first = found.split != TEST, found.split == TEST, found.y < network.base
    report = {
        "network": name,
        "seconds": seconds,
        "base": nearest_mean_accuracy(x, found.y, learned & first, test & first),
        "all": nearest_mean_accuracy(x, found.y, learned, test),
        "held out": held_out,
        "log": result.log[-1],
    }
    (out / f"{name}.json").write_text(json.dumps(report) + "\n")
    return report


def best_view(
    settings: Network, network: nn.Module, found: Pictures, source: Arrays
) -> tuple[np.ndarray, dict[str, float]]:
    """Embeddings of all pictures as those held out like them best, and what they say of each way to look."""
    trained, held_out = (found.split == 0) & (found.y < settings.base), found.split == HELD_BACK
    lenses = {"as they are": network} | {f"{size} pixels": Enlarged(network, size) for size in settings.enlarged}
    views = {name: embedded(lens, found.X, source) for name, lens in lenses.items()}
    if not held_out.any():
        return views["as they are"], {}
    accuracy = {name: nearest_mean_accuracy(x, found.y, trained, held_out) for name, x in views.items()}
    best = max(accuracy, key=accuracy.__getitem__)
    if settings.training.objective.rotations:
        turned = (np.ascontiguousarray(np.rot90(found.X, k, (1, 2))) for k in (1, 2, 3))
        others = [embedded(lenses[best], pictures, source) for pictures in turned]
        x = np.concatenate([unit_length(view) for view in (views[best], *others)], axis=1)
        name = f"{best}, four rotations"
        views[name], accuracy[name] = x, nearest_mean_accuracy(x, found.y, trained, held_out)
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


def write(x: np.ndarray, found: Pictures, out: Path, name: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    size = BYTES_A_FILE // (2 * x.shape[1])
    for part, first in enumerate(range(0, len(x), size)):
        rows = slice(first, first + size)
        np.savez_compressed(
            out / f"{name}.{part}.npz",
            x=x[rows].astype(np.float16),
            y=found.y[rows],
            split=found.split[rows],
            path=found.path[rows],
        )


def read(name: str, folder: Path) -> Embeddings:
    """What `write` wrote."""
    files = sorted(folder.glob(f"{name}.*.npz"), key=lambda file: int(file.suffixes[-2][1:]))
    if not files:
        weights = "" if NETWORKS[name].backbone == "resnet18" else " --weights DIR"
        raise FileNotFoundError(
            f"{folder} has no embeddings {name}.0.npz, …. Make them with `python -m benchmarks.fscil_networks {name} "
            f"--pictures DIR --runs DIR --out {folder}{weights}`."
        )
    parts = [np.load(file, allow_pickle=False) for file in files]
    x, y, split, path = (np.concatenate([part[array] for part in parts]) for array in Embeddings._fields)
    return Embeddings(x.astype(np.float32), y.astype(int), split, path)


def nearest_mean_accuracy(x: np.ndarray, y: np.ndarray, learned: np.ndarray, asked: np.ndarray) -> float:
    """Of the rows asked about, by cosine with the means of the classes in the learned rows."""
    unit = unit_length(x)
    classes = np.unique(y[learned])
    means = unit_length(np.stack([unit[learned & (y == c)].mean(0) for c in classes]))
    return float((classes[(unit[asked] @ means.T).argmax(1)] == y[asked]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(NETWORKS))
    for name in ("pictures", "runs", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    arguments = parser.parse_args()
    print(run(arguments.name, arguments.pictures, arguments.runs, arguments.out, arguments.weights))


if __name__ == "__main__":
    main()
