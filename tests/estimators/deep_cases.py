"""Small deep classifiers on scikit-learn's digits."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

from gptree import DeepGPTreeClassifier
from gptree.deep import Training, VariationalTree, convnet, mlp

NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six"])


def pictures(classes: int = 5, n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """n pictures (n, 8, 8) in uint8 of the first digits, and their names."""
    found = load_digits()
    few = np.flatnonzero(found.target < classes)[:n]
    return (found.images[few] * 15).astype(np.uint8), NAMES[found.target[few]]


def network(seed: int = 0) -> nn.Module:
    return convnet(1, width=8, depth=2, embedding=6, seed=seed)


def vector_network() -> nn.Module:
    return mlp(64, hidden=(16,), embedding=6)


def small(backbone: nn.Module | None = None, *, how: dict[str, Any] | None = None, **others: Any) -> Any:
    """An unfitted classifier that is trained for four epochs."""
    training = {"epochs": 4, "cross_entropy_epochs": 2, "batch_size": 32, "learning_rate": 0.1} | (how or {})
    settings = {
        "training": Training(**training),
        "variational": VariationalTree(inducing=3),
        "random_state": 0,
        "device": "cpu",
    }
    return DeepGPTreeClassifier(network() if backbone is None else backbone, **{**settings, **others})
