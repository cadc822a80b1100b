"""One number that sets how sure predictions are, chosen on rows that were not trained on."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

#: Between these, and to this accuracy in log sharpness, is searched.
LEAST, MOST, ACCURACY = 0.05, 20.0, 1e-3


class Sharpened(nn.Module, ABC):
    """A layer from embeddings to class probabilities that are proportional to exp(sharpness · score)."""

    sharpness: Tensor
    """1 unless `sharpen` has been called."""

    def __init__(self, dtype: torch.dtype = torch.float64, device: torch.device | None = None) -> None:
        super().__init__()
        self.register_buffer("sharpness", torch.ones((), dtype=dtype, device=device))

    @abstractmethod
    def scores(self, embeddings: Tensor, *how: Any) -> Tensor:
        """Class log-probabilities (T, C) as the model has them, up to a constant a row; some layers know several."""

    @torch.no_grad()
    def log_probabilities(self, embeddings: Tensor, *how: Any) -> Tensor:
        """Class log-probabilities (T, C), from `scores` of this kind."""
        return (self.sharpness * self.scores(embeddings, *how)).log_softmax(-1)

    @torch.no_grad()
    def sharpen(self, embeddings: Tensor, y: Tensor, *how: Any) -> None:
        """Choose `sharpness` for rows that were not trained on. It changes no order of classes."""
        self.sharpness.fill_(best_sharpness(self.scores(embeddings, *how), y))


def best_sharpness(scores: Tensor, y: Tensor) -> float:
    """The most probable sharpness, given scores (n, C) of rows and their true classes y, by golden-section search.

    Its logarithm is standard normal beforehand. Without that, a few rows that are all right would call for certainty.
    """
    shrink = (math.sqrt(5) - 1) / 2

    def cost(log_sharpness: float) -> float:
        log_p = (math.exp(log_sharpness) * scores).log_softmax(-1)
        return float(-log_p.gather(1, y[:, None]).sum()) + 0.5 * log_sharpness**2

    low, high = math.log(LEAST), math.log(MOST)
    inner = [high - shrink * (high - low), low + shrink * (high - low)]
    costs = [cost(inner[0]), cost(inner[1])]
    while high - low > ACCURACY:
        if costs[0] < costs[1]:
            high, inner, costs = inner[1], [0.0, inner[0]], [0.0, costs[0]]
            inner[0] = high - shrink * (high - low)
            costs[0] = cost(inner[0])
        else:
            low, inner, costs = inner[0], [inner[1], 0.0], [costs[1], 0.0]
            inner[1] = low + shrink * (high - low)
            costs[1] = cost(inner[1])
    return math.exp((low + high) / 2)
