"""Cosine similarity with a margin (CosFace)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from gptree.deep.objectives.base import Objective, ObjectiveLayer
from gptree.settings import require


@dataclass(frozen=True, kw_only=True)
class CosineMargin(Objective):
    """Cross-entropy of the softmax of scale · (cos θ_c − margin · [c = y]); `Objective` has more parameters.

    θ_c is the angle between embedding and class vector (CosFace, Wang et al. 2018). The head and nearest class means
    look at angles too, so that the features suit them.

    Parameters
    ----------
    scale : float
    margin : float
        A difference of cosines, in [0, 2).

    Examples
    --------
    >>> from gptree.deep import CosineMargin, Training
    >>> training = Training(objective=CosineMargin(margin=0.2))
    """

    name: ClassVar[str] = "cosine-margin"

    scale: float = 16.0
    margin: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.scale > 0, f"scale must be positive, got {self.scale}.")
        require(0 <= self.margin < 2, f"margin is a difference of cosines, in [0, 2), got {self.margin}.")

    def logits(self, layer: ObjectiveLayer, embeddings: Tensor) -> Tensor:
        towards, classes = functional.normalize(embeddings, dim=-1), functional.normalize(layer.weight, dim=-1)
        return self.scale * functional.linear(towards, classes)

    def cost(self, logits: Tensor, y: Tensor) -> Tensor:
        is_true = torch.arange(logits.shape[1], device=y.device) == y[:, None]
        return functional.cross_entropy(logits - self.scale * self.margin * is_true.to(logits), y)
