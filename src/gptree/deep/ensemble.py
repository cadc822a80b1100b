"""`WeightedEnsemble`: layers on the same embeddings that predict together, a weighted product of probabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from gptree.experts.calibration import some
from gptree.experts.pool import pool_weights, pooled

#: Least sum of the weights: where predictions are worth nothing, they are unsure but not all the same.
LEAST = 0.05


class Layer(nn.Module, ABC):
    """A layer from embeddings to class log-probabilities."""

    @abstractmethod
    def scores(self, embeddings: Tensor, *how: Any) -> Tensor:
        """Class log-probabilities (T, C), up to a constant a row; some layers know several ways to predict."""

    @torch.no_grad()
    def log_probabilities(self, embeddings: Tensor, *how: Any) -> Tensor:
        """Class log-probabilities (T, C), from `scores` of this kind."""
        return self.scores(embeddings, *how).log_softmax(-1)


class WeightedEnsemble(nn.Module):
    """Class probabilities proportional to Π_k p_k^w_k, over the layers: a logarithmic opinion pool.

    Until weights are chosen the first layer decides. With one layer its weight is an inverse temperature: how
    confident predictions are, and nothing else.

    Parameters
    ----------
    *layers : Layer

    Attributes
    ----------
    weights : Tensor (K,)
    """

    weights: Tensor

    def __init__(self, *layers: Layer) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList(layers)
        device = next(layers[0].parameters()).device
        self.register_buffer("weights", torch.eye(len(layers), dtype=torch.float64, device=device)[0])

    @property
    def first(self) -> Any:
        """The first layer."""
        return self.layers[0]

    @torch.no_grad()
    def log_probabilities(self, embeddings: Tensor, *how: Any) -> Tensor:
        """Class log-probabilities (T, C); `how` is for the first layer."""
        return pooled(self.weights, self._each(embeddings, *how))

    @torch.no_grad()
    def choose(self, embeddings: Tensor, y: Tensor, *how: Any) -> None:
        """Choose the weights on held-out rows: the most probable ones, with a normal prior around 1/K of deviation 1.

        Half a row counts as one with an unknown label; otherwise a few rows that are all right would call for
        certainty.

        Parameters
        ----------
        embeddings : Tensor (n, d)
        y : Tensor (n,)
            Class numbers.
        *how
            For the first layer.
        """
        rows = some(torch.arange(len(y), device=y.device), int(y.max()) + 1)
        logs = torch.stack(self._each(embeddings[rows], *how))
        self.weights.copy_(pool_weights(logs, y[rows], prior=0.5))
        self.weights[0] += (LEAST - self.weights.sum()).clamp(min=0)

    def _each(self, embeddings: Tensor, *how: Any) -> list[Tensor]:
        first, *others = self.layers
        logs = [first.log_probabilities(embeddings, *how), *(layer.log_probabilities(embeddings) for layer in others)]
        return [log.double() for log in logs]
