"""EEIL (Castro et al., 2018): cross-entropy, distillation head by head, and balanced fine-tuning."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor

from gptree.rivals.networks.base import NetworkRival
from gptree.rivals.networks.blocks import cross_entropy, distillation
from gptree.rivals.networks.icarl import ICaRLSettings
from gptree.rivals.networks.lesson import Lesson, Step
from gptree.rivals.networks.memory import balanced_rows
from gptree.rivals.networks.model import frozen
from gptree.rivals.networks.settings import (
    BaseOnly,
    Data,
    NetworkRivalSettings,
    PerClass,
)
from gptree.settings import require, require_whole


@dataclass(frozen=True, kw_only=True)
class EEILSettings(NetworkRivalSettings):
    """Settings of `EEIL`; `NetworkRivalSettings` has more.

    The class rows have no bias and see unit features, so that the base network is that of other methods.

    Parameters
    ----------
    distillation : float
        Weight of the distillation.
    distillation_temperature : float
    per_head : bool
        Whether the classes of each session have a softmax of their own in the distillation, or all old ones share one.
    memory_weight : float or None
        None is cross-entropy and distillation on all rows; with a weight, as Tao et al. have it, cross-entropy on new
        rows, and on memory distillation and so many times cross-entropy.
    balanced_steps : int
        Steps of the second phase, on equally many rows of every class; 0 leaves it out.
    balanced_rate : float
        Times the learning rate, in the second phase.
    """

    distillation: float = 1.0
    distillation_temperature: float = 2.0
    per_head: bool = True
    memory_weight: float | None = None
    balanced_steps: int = 30
    balanced_rate: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("balanced_steps", self.balanced_steps, 0)
        require(self.distillation >= 0, f"distillation must not be negative, got {self.distillation}.")
        require(self.distillation_temperature > 0, "distillation_temperature must be positive.")
        require(self.memory_weight is None or self.memory_weight >= 0, "memory_weight must not be negative.")
        require(self.balanced_rate > 0, f"balanced_rate must be positive, got {self.balanced_rate}.")
        require(
            self.balanced_steps == 0 or not isinstance(self.memory, BaseOnly),
            "balanced fine-tuning needs pictures of every class: keep some of novel ones, or set balanced_steps=0.",
        )

    @classmethod
    def tao(cls, data: Data) -> Self:
        """EEIL* of Tao et al.: iCaRL* and a little cross-entropy on 400 base pictures, no second phase."""
        return cls(
            session=ICaRLSettings.tao(data).session,
            memory=BaseOnly(400),
            new_rows="random",
            distillation=0.8 if data == "cub" else 1.0,
            per_head=False,
            memory_weight=0.01 if data == "mini-imagenet" else 0.004,
            balanced_steps=0,
        )

    @classmethod
    def tuned(cls, exemplars: int = 5) -> Self:
        """Both phases, on exemplars of all classes."""
        return cls(memory=PerClass(exemplars, exemplars))

    def candidates(self) -> list[Self]:
        """Learning rates 0, 1e-3, 1e-2, weights of the distillation 1, 4, and last block or all."""
        return self.varied(
            session__learning_rate=(1e-3, 1e-2),
            distillation=(1.0, 4.0),
            session__trainable=("last-block", "all"),
        )


class EEIL(NetworkRival[EEILSettings]):
    """EEIL (Castro et al., 2018): cross-entropy, distillation head by head, and balanced fine-tuning.

    `NetworkRival` has the parameters; settings are `EEILSettings`.

    Examples
    --------
    >>> from gptree.deep import convnet
    >>> from gptree.rivals import EEIL, EEILSettings
    >>> rival = EEIL(convnet(channels=1, width=16), EEILSettings.tao("cub"))
    """

    name: ClassVar[str] = "eeil"
    settings_type: ClassVar[Any] = EEILSettings

    def _loss(self, step: Step, lesson: Lesson) -> Tensor:
        settings, logits, teacher = self._settings, step.student.logits, step.teacher.logits
        sizes = lesson.student.classifier.sizes if settings.per_head else [teacher.shape[1]]
        if settings.memory_weight is None:
            loss, distilled = cross_entropy(logits, step.y), None
        else:
            distilled = ~step.new
            loss = cross_entropy(logits, step.y, step.new)
            loss = loss + settings.memory_weight * cross_entropy(logits, step.y, distilled)
        kd = head_distillation(logits, teacher, sizes, settings.distillation_temperature, distilled)
        return loss + settings.distillation * kd

    def _train(self, lesson: Lesson) -> None:
        settings = self._settings
        super()._train(lesson)
        if settings.balanced_steps == 0 or settings.session.learning_rate == 0:
            return
        rows = balanced_rows(lesson)
        teacher = frozen(copy.deepcopy(lesson.student))  # with the new columns
        how = settings.session.with_params(
            steps=settings.balanced_steps, learning_rate=settings.balanced_rate * settings.session.learning_rate
        )
        lesson.train(lambda step: self._loss(step, lesson), how, rows=rows, teacher=teacher)


def head_distillation(
    logits: Tensor, teacher: Tensor, sizes: list[int], temperature: float, rows: Tensor | None = None
) -> Tensor:
    """Σ over heads of their distillation, each with a softmax of its own, mean over some rows or all.

    Heads are columns of logits (B, C), sizes[0] of them, then sizes[1], …; those that the teacher lacks are left out.
    """
    loss, first = logits.new_zeros(()), 0
    for size in sizes:
        if first < teacher.shape[1]:
            head = slice(first, first + size)
            loss = loss + distillation(logits[:, head], teacher[:, head], temperature, rows)
        first += size
    return loss
