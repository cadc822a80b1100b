"""A second softmax layer in the place of the tree: what two layers that predict together are worth by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gptree.deep.heads.base import DeepHead, Problem
from gptree.settings import Settings


@dataclass(frozen=True)
class SecondLayer(Settings):
    """Settings of `SoftmaxHead`: there are none."""

    def new_head(self, embeddings: Tensor, problem: Problem) -> SoftmaxHead:
        return SoftmaxHead(embeddings.shape[1], len(problem.labels), problem.seed).to(embeddings.device)

    def stored_head(self, structure: Any, tensors: Mapping[str, Tensor], problem: Problem) -> SoftmaxHead:
        return SoftmaxHead(tensors["layer.weight"].shape[1], len(problem.labels), problem.seed)


class SoftmaxHead(DeepHead):
    """A linear layer with its cross-entropy."""

    def __init__(self, width: int, n_classes: int, seed: int) -> None:
        super().__init__()
        self.settings, self.layer = SecondLayer(), nn.Linear(width, n_classes)
        random = torch.Generator().manual_seed(seed)
        for parameter in self.layer.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5, generator=random)

    def scores(self, embeddings: Tensor) -> Tensor:
        return self.layer(embeddings.float())

    def loss(self, embeddings: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(embeddings.device.type, enabled=False):
            return cross_entropy(self.scores(embeddings), y)

    def update(self) -> None:
        """Nothing: the optimiser has moved everything."""

    @torch.no_grad()
    def report(self, loss: Tensor) -> dict[str, Tensor]:
        """There is no posterior: in the place of the KL stands ½ ‖w‖²."""
        return {"expected_log_likelihood": -loss, "kl": self.layer.weight.square().sum() / 2, "bound": -loss}

    def structure(self) -> Any:
        """Nothing: the tensors say it all."""
        return {}
