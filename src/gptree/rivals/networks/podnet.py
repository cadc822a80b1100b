"""PODNet (Douillard et al., 2020): several proxies a class, and pooled outputs of all stages that must stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from gptree.deep import Cosine, ObjectiveLayer, embed
from gptree.deep.data.base import key
from gptree.rivals.networks.base import NetworkRival
from gptree.rivals.networks.lesson import ROWS, Lesson, Step
from gptree.rivals.networks.memory import balanced_rows
from gptree.rivals.networks.model import require_signed, staged
from gptree.rivals.networks.pod import (
    NCA,
    ProxyClassifier,
    ProxyNCA,
    adaptive_factor,
    imprinted_proxies,
    pod_flat,
    pod_spatial,
)
from gptree.rivals.networks.settings import (
    Data,
    NetworkRivalSettings,
    PerClass,
    SessionTraining,
    Trainable,
    require_data,
)
from gptree.settings import require

#: Gradients are cut to ± this, entry by entry.
CLIP = 5.0


@dataclass(frozen=True, kw_only=True)
class PODNetSettings(NetworkRivalSettings):
    """Settings of `PODNet`; `NetworkRivalSettings` has more.

    Parameters
    ----------
    proxies : int
        K, of a class. A class of fewer rows has its rows for proxies, and noisy copies of them.
    nca : "paper" or "code"
        Form of the classifier's loss; the released one ignores the margin.
    margin : float
        δ, of that loss.
    weights : (float, float)
        λ of the maps of the stages and of the features, both times the root of classes seen / new classes.
    noise : float
        Relative length of the noise on proxies that are copies.
    fine_tuning : SessionTraining or None
        Of the classifier alone, after each session, on equally many rows of every class; None leaves it out.
    """

    session: SessionTraining = field(default_factory=lambda: sgd(1e-2, 100))
    freeze_old: bool = True
    proxies: int = 10
    nca: NCA = "paper"
    margin: float = 0.6
    weights: tuple[float, float] = (3.0, 1.0)
    noise: float = 0.01
    fine_tuning: SessionTraining | None = field(default_factory=lambda: sgd(1e-2, 20))

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.objective  # which checks proxies, margin and form
        require(
            isinstance(self.weights, tuple) and len(self.weights) == 2 and min(self.weights) >= 0,
            f"weights are two numbers that are not negative, such as (3.0, 1.0), not {self.weights!r}.",
        )
        require(self.noise >= 0, f"noise must not be negative, got {self.noise}.")
        require(self.freeze_old, "PODNet keeps old proxies as they are until fine-tuning: leave freeze_old at True.")
        require(self.new_rows == "imprinted", 'PODNet imprints its proxies: leave new_rows at "imprinted".')
        require(
            self.fine_tuning is None or min(self.memory.quotas(1, 2)) > 0,
            "fine-tuning needs pictures of every class: keep some of novel ones, or set fine_tuning=None.",
        )

    @property
    def objective(self) -> ProxyNCA:
        """Several proxies a class."""
        return ProxyNCA(proxies=self.proxies, margin=self.margin, form=self.nca)

    @classmethod
    def tao(cls, data: Data) -> Self:
        """As the GP-Tree paper says it ran PODNet, and as the released settings have it where it does not say.

        100 steps on the whole network; 20 exemplars a class; 1e-3, the least of the rates that the paper tries. A step
        has 256 rows for the sake of memory and time, where the paper shows all. The released rates of sessions (0.1 and
        0.05) go with batch normalisation that is trained; where it is held, the distilled distances, whose gradient is
        as large near zero as far from it, throw a network off in the second step.
        """
        require_data(data)
        cifar = data == "cifar100"
        return cls(
            session=sgd(1e-3, 100, batch_size=256, trainable="all"),
            memory=PerClass(20, 20),
            weights=(3.0, 1.0) if cifar else (8.0, 10.0),
            fine_tuning=sgd(0.05 if cifar else 0.01, 20),
        )

    @classmethod
    def tuned(cls, exemplars: int = 5) -> Self:
        """The method of the paper on the last block; 20 exemplars are its own number."""
        return cls(memory=PerClass(exemplars, exemplars))

    def candidates(self) -> list[Self]:
        """Learning rates 0, 1e-3, 1e-2, 5e-2 and weights (3, 1), (8, 10), (24, 30)."""
        weights = ((3.0, 1.0), (8.0, 10.0), (24.0, 30.0))
        return self.varied(session__learning_rate=(1e-3, 1e-2, 5e-2), weights=weights)


def sgd(
    learning_rate: float, steps: int, batch_size: int | None = None, trainable: Trainable = "last-block"
) -> SessionTraining:
    """Half a cosine of plain momentum steps, one rate for network and classifier, gradients cut."""
    return SessionTraining(
        learning_rate=learning_rate,
        classifier_learning_rate=1.0,
        steps=steps,
        batch_size=batch_size,
        trainable=trainable,
        nesterov=False,
        schedule=Cosine(),
        clip=CLIP,
    )


class PODNet(NetworkRival[PODNetSettings]):
    """PODNet (Douillard et al., 2020): proxies, and pooled outputs of the network's stages that must stay.

    The backbone must show its stages and give features of both signs. Stages that are not trained stay as they are and
    count with distance 0. `NetworkRival` has the parameters; settings are `PODNetSettings`.

    Examples
    --------
    >>> from gptree.deep import resnet18
    >>> from gptree.rivals import PODNet, PODNetSettings
    >>> rival = PODNet(resnet18(last_relu=False), PODNetSettings.tuned(exemplars=20))
    """

    name: ClassVar[str] = "podnet"
    settings_type: ClassVar[Any] = PODNetSettings

    def _check(self) -> None:
        super()._check()
        staged(self.backbone)
        require_signed(self.backbone, "PODNet")

    def _classifier(self, layer: ObjectiveLayer) -> nn.Module:
        return ProxyClassifier([layer.weight], getattr(layer, "scale", None))

    def _rows(self, lesson: Lesson) -> Tensor:
        """(k, K, d) proxies of the new classes."""
        settings, codes = self._settings, lesson.codes[lesson.memory :] - lesson.n_old
        features = embed(lesson.teacher, lesson.arrays, lesson.new_rows, lesson.device)
        norm = float(lesson.teacher.classifier.weight.norm(dim=-1).mean())
        found = []
        for c in range(int(codes.max()) + 1):
            seed = key(lesson.seed, lesson.session, ROWS, c) % 2**32
            found.append(imprinted_proxies(features[codes == c], settings.proxies, norm, settings.noise, seed))
        return torch.stack(found)

    def _train(self, lesson: Lesson) -> None:
        settings = self._settings
        if settings.session.learning_rate == 0:
            return
        lesson.train(lambda step: self._loss(step, lesson), settings.session, freeze_old=True, maps=True)
        if settings.fine_tuning is not None:
            rows = balanced_rows(lesson)
            student = lesson.student  # its own teacher: features stay, so that distillation has no gradient
            lesson.train(
                lambda step: self._nca(step, lesson), settings.fine_tuning, network=False, rows=rows, teacher=student
            )

    def _loss(self, step: Step, lesson: Lesson) -> Tensor:
        maps, (spatial, flat) = step.student.maps, self._settings.weights
        seen = step.student.logits.shape[1]
        trained = len(maps) / staged(lesson.student.network).stage_count
        pod = spatial * trained * pod_spatial(step.teacher.maps, maps)
        pod = pod + flat * pod_flat(step.teacher.features, step.student.features)
        return self._nca(step, lesson) + adaptive_factor(seen, seen - lesson.n_old) * pod

    def _nca(self, step: Step, lesson: Lesson) -> Tensor:
        return self._settings.objective.cost(step.student.logits, step.y, lesson.student.classifier.scale)
