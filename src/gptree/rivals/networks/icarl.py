"""iCaRL (Rebuffi et al., 2017): cross-entropy, distillation of the old classes, nearest means of exemplars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from gptree.rivals.networks.base import NetworkRival
from gptree.rivals.networks.blocks import cross_entropy, distillation
from gptree.rivals.networks.lesson import Lesson, Step
from gptree.rivals.networks.settings import (
    BaseOnly,
    Data,
    NetworkRivalSettings,
    PerClass,
    require_data,
    tao_session,
)
from gptree.settings import require


@dataclass(frozen=True, kw_only=True)
class ICaRLSettings(NetworkRivalSettings):
    """Settings of `ICaRL`; `NetworkRivalSettings` has more.

    Parameters
    ----------
    loss : "softmax" or "sigmoid"
        Cross-entropy over all classes and distillation over the old ones; or, as in the first code, binary
        cross-entropies, whose targets are the teacher's sigmoids for old classes and 0 or 1 for new ones.
    distillation : float
        Weight of the distillation in the softmax form.
    distillation_temperature : float
    distil_memory_only : bool
        Cross-entropy on new rows and distillation on memory, as Tao et al. have it, instead of both on all rows.
    """

    loss: str = "softmax"
    distillation: float = 1.0
    distillation_temperature: float = 2.0
    distil_memory_only: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.loss in ("softmax", "sigmoid"), f'loss is "softmax" or "sigmoid", not {self.loss!r}.')
        require(self.distillation >= 0, f"distillation must not be negative, got {self.distillation}.")
        require(self.distillation_temperature > 0, "distillation_temperature must be positive.")

    @classmethod
    def tao(cls, data: Data) -> Self:
        """iCaRL* of Tao et al.: no nearest means, 400 base pictures that are distilled, random new rows."""
        require_data(data)
        sessions = {
            "mini-imagenet": tao_session(0.1, 100, 90),
            "cifar100": tao_session(0.1, 70, 60),
            "cub": tao_session(0.01, 100),
        }
        return cls(session=sessions[data], memory=BaseOnly(400), new_rows="random", distil_memory_only=True)

    @classmethod
    def tuned(cls, exemplars: int = 5) -> Self:
        """Cross-entropy and distillation on all rows, nearest means of exemplars."""
        return cls(memory=PerClass(exemplars, exemplars), rule="nearest-mean", temperature=0.1)

    def candidates(self) -> list[Self]:
        """Learning rates 0, 1e-4, 1e-3, 1e-2 and weights of the distillation 1, 4, 16."""
        return self.varied(session__learning_rate=(1e-4, 1e-3, 1e-2), distillation=(1.0, 4.0, 16.0))


class ICaRL(NetworkRival[ICaRLSettings]):
    """iCaRL (Rebuffi et al., 2017): cross-entropy, distillation of old classes, and nearest means of exemplars.

    `NetworkRival` has the parameters; settings are `ICaRLSettings`.

    Examples
    --------
    >>> from gptree.deep import convnet
    >>> from gptree.rivals import ICaRL, ICaRLSettings
    >>> rival = ICaRL(convnet(channels=1, width=16), ICaRLSettings.tuned())
    """

    name: ClassVar[str] = "icarl"
    settings_type: ClassVar[Any] = ICaRLSettings

    def _loss(self, step: Step, lesson: Lesson) -> Tensor:
        settings, logits, old = self._settings, step.student.logits, step.teacher.logits
        if settings.loss == "sigmoid":
            return sigmoid_loss(logits, old, step.y)
        learned, distilled = (step.new, ~step.new) if settings.distil_memory_only else (None, None)
        loss = cross_entropy(logits, step.y, learned)
        kd = distillation(logits[:, : lesson.n_old], old, settings.distillation_temperature, distilled)
        return loss + settings.distillation * kd


def sigmoid_loss(logits: Tensor, teacher: Tensor, y: Tensor) -> Tensor:
    """Mean over rows and columns of binary cross-entropies of logits (B, C), with teacher (B, C_old) and classes y.

    Targets are the teacher's sigmoids on old columns, for exemplars too, and one-hot on new ones.
    """
    targets = one_hot(y, logits.shape[1]).to(logits)
    targets[:, : teacher.shape[1]] = teacher.sigmoid()
    return binary_cross_entropy_with_logits(logits, targets)
