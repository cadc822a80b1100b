"""Small labelled data and trees for the tests of whole models."""

from __future__ import annotations

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.inference import Inference
from gptree.maths import as_kernel, make_kernel
from gptree.model import ForestModel, TrainingData, fit_forest
from gptree.tree import ClassTree

LABELS = ["ant", "bee", "cat", "dog", "eel"]
COUNTS = (9, 4, 12, 3, 7)
FIRST = ClassTree.from_nested([["ant", "bee"], ["cat", ["dog", "eel"]]], LABELS)
SECOND = ClassTree.from_nested([["cat", ["dog", "eel"]], ["ant", "bee"]], LABELS)
BUDGET = 2**30
D = 4


def data(weights: bool = False, scores: bool = False, seed: int = 0) -> TrainingData:
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat(np.arange(5), COUNTS))
    X = random.normal(size=(5, D))[y] + 0.7 * random.normal(size=(len(y), D))
    return TrainingData(
        torch.as_tensor(X),
        y,
        LABELS,
        torch.as_tensor(random.normal(size=(len(y), 5))) if scores else None,
        torch.as_tensor(random.choice([0.5, 1.0, 2.0], len(y))) if weights else None,
    )


def new_points(n: int = 6) -> Tensor:
    return torch.as_tensor(np.random.default_rng(9).normal(size=(n, D)))


def kernel(name: str = "rbf", scale: float = 3.0) -> Kernel:
    return as_kernel(make_kernel(name, scale, 1.3), torch.float64, torch.device("cpu"))


def fit(
    inference: Inference, trees=(FIRST,), with_data: TrainingData | None = None, k: Kernel | None = None, **how
) -> ForestModel:
    return fit_forest(
        trees,
        data() if with_data is None else with_data,
        kernel() if k is None else k,
        inference,
        **{"memory_budget": BUDGET, **how},
    )
