"""LUCIR (Hou et al., 2019): a cosine classifier, features held to their old directions, and a margin to new classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from gptree.deep import ObjectiveLayer
from gptree.rivals.networks.base import NetworkRival
from gptree.rivals.networks.blocks import cross_entropy, mean_over
from gptree.rivals.networks.classifiers import ScaledLayer, SessionClassifier
from gptree.rivals.networks.lesson import Lesson, Step
from gptree.rivals.networks.model import require_signed
from gptree.rivals.networks.settings import (
    BaseOnly,
    Data,
    NetworkRivalSettings,
    PerClass,
    require_data,
    tao_session,
)
from gptree.settings import require, require_whole


@dataclass(frozen=True, kw_only=True)
class LUCIRSettings(NetworkRivalSettings):
    """Settings of `LUCIR`; `NetworkRivalSettings` has more.

    Parameters
    ----------
    classifier : "cosine" or "linear"
        Cosines times a learned scale, of features of both signs; or a linear layer on unit features.
    less_forget : float
        Weight of 1 − cos of old and new features.
    adaptive : bool
        Whether that weight is multiplied by the square root of old classes / new classes.
    memory_only : bool
        Cross-entropy on new rows and the weighted term on memory, as Tao et al. have it, instead of both on all rows.
    ranking : float
        Weight of the margin ranking loss.
    margin : float
        Of cosines.
    negatives : int
        New classes that the margin is kept from, those with the largest cosines.
    """

    freeze_old: bool = True
    classifier: Literal["cosine", "linear"] = "cosine"
    less_forget: float = 5.0
    adaptive: bool = True
    memory_only: bool = False
    ranking: float = 1.0
    margin: float = 0.5
    negatives: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.classifier in ("cosine", "linear"), f"unknown classifier {self.classifier!r}.")
        require_whole("negatives", self.negatives, 1)
        for name in ("less_forget", "ranking", "margin"):
            require(getattr(self, name) >= 0, f"{name} must not be negative, got {getattr(self, name)}.")

    @classmethod
    def tao(cls, data: Data) -> Self:
        """NCM* of Tao et al.: a linear classifier, the features of 400 base pictures held, no margin."""
        require_data(data)
        sessions = {
            "mini-imagenet": tao_session(0.1, 100),
            "cifar100": tao_session(0.1, 70),
            "cub": tao_session(0.01, 100),
        }
        return cls(
            session=sessions[data],
            memory=BaseOnly(400),
            new_rows="random",
            freeze_old=data != "mini-imagenet",
            classifier="linear",
            less_forget=50.0 if data == "cifar100" else 1.0,
            adaptive=False,
            memory_only=True,
            ranking=0.0,
        )

    @classmethod
    def tuned(cls, exemplars: int = 5) -> Self:
        """The method of the paper; 20 exemplars are its own number."""
        return cls(memory=PerClass(exemplars, exemplars))

    def candidates(self) -> list[Self]:
        """Learning rates 0, 1e-4, 1e-3, 1e-2 and weights of the features 5, 10, 30."""
        return self.varied(session__learning_rate=(1e-4, 1e-3, 1e-2), less_forget=(5.0, 10.0, 30.0))


class LUCIR(NetworkRival[LUCIRSettings]):
    """LUCIR (Hou et al., 2019), "NCM" in the comparison of Tao et al.

    A cosine classifier whose old class rows stay, features held to their old directions, and a margin between old rows
    and new classes. The backbone must give features of both signs, unless the classifier is linear. `NetworkRival` has
    the parameters; settings are `LUCIRSettings`.

    Examples
    --------
    >>> from gptree.deep import resnet18
    >>> from gptree.rivals import LUCIR, LUCIRSettings
    >>> rival = LUCIR(resnet18(last_relu=False), LUCIRSettings.tuned(exemplars=20))
    """

    name: ClassVar[str] = "lucir"
    settings_type: ClassVar[Any] = LUCIRSettings

    def _check(self) -> None:
        super()._check()
        if self._settings.classifier == "cosine":
            require_signed(self.backbone, "LUCIR with a cosine classifier")

    def _classifier(self, layer: ObjectiveLayer) -> nn.Module:
        if self._settings.classifier == "linear":
            return super()._classifier(layer)
        assert isinstance(layer, ScaledLayer)
        return SessionClassifier([layer.weight], layer.scale)

    def _loss(self, step: Step, lesson: Lesson) -> Tensor:
        settings, n_new = self._settings, step.student.logits.shape[1] - lesson.n_old
        weight = settings.less_forget * (math.sqrt(lesson.n_old / n_new) if settings.adaptive else 1.0)
        learned, held = (step.new, ~step.new) if settings.memory_only else (None, None)
        loss = cross_entropy(step.student.logits, step.y, learned)
        loss = loss + weight * less_forget(step.student.features, step.teacher.features, held)
        if settings.ranking:
            cosines = lesson.student.classifier.cosines(step.student.features)
            ranked = margin_ranking(cosines, step.y, lesson.n_old, settings.margin, settings.negatives)
            loss = loss + settings.ranking * ranked
        return loss


def less_forget(features: Tensor, teacher: Tensor, rows: Tensor | None = None) -> Tensor:
    """Mean over some rows or all of 1 − cos of features (B, d) and those of the teacher."""
    return mean_over(1 - cosine_similarity(features, teacher, dim=1), rows)


def margin_ranking(cosines: Tensor, y: Tensor, n_old: int, margin: float, negatives: int) -> Tensor:
    """Mean over rows of old classes and the new classes with the largest cosines of [margin − cos_y + cos_new]₊.

    Cosines are (B, C), the first `n_old` columns of old classes; zero where no row is of an old class.
    """
    nearest = cosines[:, n_old:].topk(min(negatives, cosines.shape[1] - n_old), dim=1).values
    losses = (margin - cosines.gather(1, y[:, None]) + nearest).clamp(min=0)
    return mean_over(losses.mean(1), y < n_old)
