"""The interface of objectives: what a network learns before the head joins, a classification of single pictures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gptree.deep.ensemble import Layer
from gptree.settings import NamedSettings, require

#: Sets the random numbers of mixing apart from those of augmentation, which have the same seed.
_MIXING = 1


@dataclass(frozen=True, kw_only=True)
class Objective(NamedSettings, ABC):
    """An objective: a frozen dataclass that subclasses this and has `logits` and `cost`.

    It changes the pictures of a batch, and makes the layer that turns embeddings into a loss and into class
    log-probabilities. Its random numbers are keyed by the seed of the batch. With a `name` it is found by that name:
    ``Training(objective="cosine-margin")``.

    Parameters
    ----------
    rotations : bool
        Every picture is seen upright and turned by 90°, 180° and 270°, each a class of its own: C classes become 4 C,
        and a batch has four times the pictures. Features learned so serve novel classes better. Predictions are for
        upright pictures, among the C upright classes.
    mixup : float
        Parameter of the Beta distribution from which each batch draws its λ. Neighbours in a batch (which is in random
        order) are mixed, λ of the one and 1 − λ of the other, and so are their losses. 0 mixes nothing.

    Attributes
    ----------
    bias : bool
        Class variable: whether the layer has a bias.
    """

    family: ClassVar[str] = "objective"
    example: ClassVar[str] = "CrossEntropy(label_smoothing=0.1)"
    bias: ClassVar[bool] = False

    rotations: bool = False
    mixup: float = 0.0

    def __post_init__(self) -> None:
        require(self.mixup >= 0, f"mixup must not be negative, got {self.mixup}.")

    def check_inputs(self, shape: tuple[int, ...], rows: int) -> None:
        """Raise unless `rows` inputs of this shape can be changed."""
        square = len(shape) == 3 and shape[1] == shape[2]
        require(square or not self.rotations, f"rotations need square pictures (C, H, H), not inputs of shape {shape}.")
        require(rows % 2 == 0 or not self.mixup, f"mixup takes pairs: a process cannot have a batch of {rows} rows.")

    def pictures(self, x: Tensor, seed: int) -> Tensor:
        """The pictures that the network sees; (4 B, …) with rotations, those of a picture side by side."""
        if self.mixup:
            x = torch.lerp(_neighbours(x), x, self._share(seed))
        if not self.rotations:
            return x
        turned = torch.stack([torch.rot90(x, quarter, (2, 3)) for quarter in range(4)], 1).flatten(0, 1)
        return turned.contiguous(memory_format=torch.channels_last) if x.is_cuda else turned

    def targets(self, y: Tensor, n_classes: int, seed: int) -> list[tuple[float, Tensor]]:
        """Classes of these pictures, and with which weight."""
        share = self._share(seed)
        both = [(share, y), (1 - share, _neighbours(y))] if self.mixup else [(1.0, y)]
        if not self.rotations:
            return both
        quarters = n_classes * torch.arange(4, device=y.device)
        return [(weight, (classes[:, None] + quarters).flatten()) for weight, classes in both]

    def layer(self, width: int, n_classes: int, seed: int, dtype: torch.dtype) -> ObjectiveLayer:
        """The layer over embeddings of a width, with random weights."""
        return ObjectiveLayer(self, width, n_classes, seed, dtype)

    @abstractmethod
    def logits(self, layer: ObjectiveLayer, embeddings: Tensor) -> Tensor:
        """Class scores (B, C) of embeddings (B, d), from the weights of the layer."""

    @abstractmethod
    def cost(self, logits: Tensor, y: Tensor) -> Tensor:
        """The mean loss of rows with class scores (B, C) and classes y (B,)."""

    def _share(self, seed: int) -> float:
        return float(np.random.default_rng([seed, _MIXING]).beta(self.mixup, self.mixup)) if self.mixup else 1.0


class ObjectiveLayer(Layer):
    """Embeddings to a loss, or to class log-probabilities, as an objective says."""

    def __init__(self, objective: Objective, width: int, n_classes: int, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.objective, self.n_classes = objective, n_classes
        outputs = 4 * n_classes if objective.rotations else n_classes
        random = torch.Generator().manual_seed(seed)
        weight = torch.empty(outputs, width, dtype=dtype).uniform_(-1, 1, generator=random) / width**0.5
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(outputs, dtype=dtype)) if objective.bias else None

    def loss(self, embeddings: Tensor, y: Tensor, seed: int) -> Tensor:
        """Mean over the pictures that `objective.pictures` made of rows with classes y (B,)."""
        logits = self.objective.logits(self, embeddings)
        targets = self.objective.targets(y, self.n_classes, seed)
        return sum((weight * self.objective.cost(logits, t) for weight, t in targets), logits.new_zeros(()))

    def scores(self, embeddings: Tensor) -> Tensor:
        """Logits (T, C) of upright pictures: other rotations are left out of the softmax."""
        return self.objective.logits(self, embeddings)[:, : self.n_classes]

    def plain_loss(self, embeddings: Tensor, y: Tensor) -> Tensor:
        """Of rows as they are, with classes y (B,): no rotations, no mixing."""
        return self.objective.cost(self.scores(embeddings), y)


def _neighbours(x: Tensor) -> Tensor:
    """Every row replaced by its partner: 0 and 1 change places, 2 and 3, …"""
    return x.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
