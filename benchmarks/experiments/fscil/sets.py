"""Sets of pictures for methods that train a network: the network, its training, and the rehearsed sessions."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from benchmarks.core.pictures import Pictures, load
from benchmarks.experiments.fscil.efficientnet import efficientnet_lite0
from benchmarks.experiments.fscil.streams import rehearsed, row_sessions
from gptree.deep import ColourJitter, Cosine, RandomCrop, RandomFlip, RandomResizedCrop, Training, resnet18
from gptree.protocols import SessionStream

PictureSet = Literal["mini-pictures", "cub-pictures", "cifar-pictures"]


@dataclass(frozen=True)
class Set:
    """A set of pictures.

    data : its module in `benchmarks.data`.
    published : its name in the published settings of rivals.
    base : base classes.
    rehearsal : base classes of the rehearsed stream, classes of its sessions, and the share of rows for testing.
    training : of base networks; `validation` rows of a class are held out, for classifiers on the embedding.
    views : random views of a picture that sessions see.
    size : pixels that pictures are brought to; None leaves them.
    """

    data: str
    published: Literal["mini-imagenet", "cub", "cifar100"]
    base: int
    rehearsal: tuple[int, int, float]
    training: Training
    augment: tuple[Any, ...]
    views: int = 8
    stem: Literal["small", "cifar"] | None = None
    size: int | None = None

    def backbone(self, folder: Path, seed: int, rectified: bool = True, embedding: int | None = None) -> nn.Module:
        """ResNet-18 with this stem, or, where there is none, EfficientNet-Lite0 with ImageNet weights."""
        if self.stem is None:
            return efficientnet_lite0(folder / "efficientnet_lite0", rectified)
        return resnet18(embedding, stem=self.stem, seed=seed, last_relu=rectified)

    @property
    def scaling(self) -> dict[str, Any]:
        """Of pixels; a network that normalises its input itself gets them from 0 to 255."""
        return {"mean": (0.0,) * 3, "std": (1 / 255,) * 3} if self.stem is None else {}


#: Of base networks: those of the paper.
EPOCHS = 100


def _training(rate: float, batch: int, validation: int, epochs: int = EPOCHS) -> Training:
    return Training(
        epochs=epochs,
        cross_entropy_epochs=epochs,
        learning_rate=rate,
        batch_size=batch,
        schedule=Cosine(warmup=3),
        validation=validation,
        validate_every=epochs,
        calibrate=False,
        mixed_precision="bf16" if torch.cuda.is_available() else "no",
        checkpoint_epochs=20,
    )


SETS: dict[str, Set] = {
    "mini-pictures": Set(
        "mini_imagenet",
        "mini-imagenet",
        60,
        (40, 5, 0.1),
        _training(0.2, 256, 20),
        (RandomResizedCrop(0.2), RandomFlip(), ColourJitter(0.4, 0.4, 0.4)),
        stem="small",
    ),
    "cub-pictures": Set(
        "cub200",
        "cub",
        100,
        (80, 10, 0.25),
        _training(0.1, 128, 5),
        (RandomResizedCrop(0.3), RandomFlip(), ColourJitter(0.3, 0.3, 0.3)),
        size=224,
    ),
    "cifar-pictures": Set(
        "cifar100",
        "cifar100",
        60,
        (40, 5, 0.1),
        _training(0.2, 256, 25),
        (RandomCrop(4), RandomFlip()),
        stem="cifar",
    ),
}
assert set(SETS) == set(get_args(PictureSet))


@functools.lru_cache(maxsize=1)
def pictures_of(data: str, folder: Path) -> Pictures:
    """All pictures of a set; read once."""
    return load(folder / "pictures", SETS[data].data, size=SETS[data].size)


def sessions_of(data: str, folder: Path, rehearsal: bool = False) -> SessionStream:
    """Its public sessions, or the rehearsed ones, as numbers of pictures."""
    stream = row_sessions(SETS[data].data, pictures_of(data, folder), folder, data)
    return rehearsed(stream, *SETS[data].rehearsal) if rehearsal else stream
