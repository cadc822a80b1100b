"""Cross-entropy of a linear layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from gptree.deep.objectives.base import Objective, ObjectiveLayer
from gptree.settings import require


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Objective):
    """Cross-entropy of the softmax of a linear layer; `Objective` has more parameters.

    Parameters
    ----------
    label_smoothing : float
        This share of the target goes to all classes alike.

    Examples
    --------
    >>> from gptree.deep import CrossEntropy, Training
    >>> training = Training(objective=CrossEntropy(label_smoothing=0.1))
    """

    name: ClassVar[str] = "cross-entropy"
    bias: ClassVar[bool] = True

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.label_smoothing < 1, f"label_smoothing lies in [0, 1), got {self.label_smoothing}.")

    def logits(self, layer: ObjectiveLayer, embeddings: Tensor) -> Tensor:
        return functional.linear(embeddings, layer.weight, layer.bias)

    def cost(self, logits: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(logits, y, label_smoothing=self.label_smoothing)
