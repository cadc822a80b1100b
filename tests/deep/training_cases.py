"""Small trainings on scikit-learn's digits, and sources that fail on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from gptree.deep import Batch, Source, Trained, Training, VariationalTree, mlp, train, whole

FEW = 5  # classes
LABELS = ["zero", "one", "two", "three", "four"]


def digits(n: int = 200, dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """n pictures (n, 1, 8, 8) in [0, 1] of the digits 0 … 4, and their classes."""
    found = load_digits()
    few = np.flatnonzero(found.target < FEW)[:n]
    return (found.images[few, None] / 16).astype(dtype), found.target[few]


def network(seed: int = 0, **others: Any) -> nn.Module:
    return mlp(64, hidden=(12,), embedding=6, seed=seed, **{"normalise": False, **others})


class Interrupted(Exception):
    pass


class Failing:
    """A source that raises after so many batches."""

    labels = None

    def __init__(self, source: Source, after: int) -> None:
        self._source, self._left = source, after
        self.shape, self.augment = source.shape, getattr(source, "augment", ())

    def __len__(self) -> int:
        return len(self._source)

    def batches(
        self, plan: Sequence[Batch], device: torch.device, part: Callable[[int], slice] = whole
    ) -> Iterator[Tensor]:
        for x in self._source.batches(plan, device, part):
            if self._left == 0:
                raise Interrupted
            self._left -= 1
            yield x


def small_train(backbone: torch.nn.Module, source: Source, y: np.ndarray, **others: Any) -> Trained:
    how = {"epochs": 4, "cross_entropy_epochs": 2, "batch_size": 32, "learning_rate": 0.05}
    how |= others.pop("how", {})
    head = others.pop("head", VariationalTree(inducing=3))
    return train(backbone, source, y, LABELS, training=Training(**how), head=head, device="cpu", **others)


def tensors_of(trained: Trained) -> dict[str, Tensor]:
    """All parameters and buffers."""
    parts = {"network": trained.network, "ensemble": trained.ensemble}
    return {f"{part}.{name}": value for part, module in parts.items() for name, value in module.state_dict().items()}


def without_seconds(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in log]
