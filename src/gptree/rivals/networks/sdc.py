"""SDC, semantic drift compensation (Yu et al., 2020): a metric network, class prototypes, and their estimated drift."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gptree.deep import ObjectiveLayer, Source, embed
from gptree.deep.data.base import clean_plan
from gptree.rivals.networks.base import NetworkRival
from gptree.rivals.networks.blocks import class_means, precise, unit
from gptree.rivals.networks.classifiers import SessionClassifier, unit_rows
from gptree.rivals.networks.lesson import Lesson, Step, gradients_of
from gptree.rivals.networks.memory import Memory, raw_rows
from gptree.rivals.networks.model import BaseNetwork, Model, frozen
from gptree.rivals.networks.sessions import SessionState
from gptree.rivals.networks.settings import (
    CONSTANT,
    Data,
    MemoryBudget,
    NetworkRivalSettings,
    PerClass,
    SessionTraining,
    require_data,
)
from gptree.rivals.networks.triplet import TRIPLETS, balanced_batches
from gptree.settings import require, require_whole

#: Rows of a batch whose gradients are squared together, as in the released code.
IMPORTANCE_ROWS = 32
#: Of Adam in the released demonstration, for all sessions.
PUBLISHED_RATE = 1e-6


@dataclass(frozen=True, kw_only=True)
class SDCSettings(NetworkRivalSettings):
    """Settings of `SDC`; `NetworkRivalSettings` has more. No pictures are kept, prototypes alone.

    Parameters
    ----------
    triplet : "batch-hard" or "no-hard-mining"
        The metric loss: the farthest positive and the nearest negative of every row, or its j-th of both.
    margin : float
    regulariser : "lwf" or "mas"
        ½ Σ_i ‖z_i − z_i^old‖² over the batch, or ½ Σ_p Ω_p (θ_p − θ_p^old)².
    weight : float
        γ, of the regulariser.
    sigma : float
        Width of the neighbourhood from which the drift of a prototype is estimated.
    base_epochs : int
        Of metric learning in the base session, after the training of the base network; 0 leaves that as it is.
    base_learning_rate : float
        Of Adam, there.
    base_classes, base_instances : int
        Classes of a batch there, and rows of each.
    base_cross_entropy : float
        Weight of the cross-entropy beside the triplets there.
    """

    session: SessionTraining = field(default_factory=lambda: adam(1e-5, 50))
    memory: MemoryBudget = field(default_factory=lambda: PerClass(0, 0))
    temperature: float = 0.1
    triplet: Literal["batch-hard", "no-hard-mining"] = "batch-hard"
    margin: float = 0.0
    regulariser: Literal["lwf", "mas"] = "lwf"
    weight: float = 1.0
    sigma: float = 0.3
    base_epochs: int = 10
    base_learning_rate: float = 1e-4
    base_classes: int = 16
    base_instances: int = 8
    base_cross_entropy: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.triplet in TRIPLETS, f"triplet must be one of {tuple(TRIPLETS)}, got {self.triplet!r}.")
        require(self.regulariser in ("lwf", "mas"), f'regulariser is "lwf" or "mas", not {self.regulariser!r}.')
        for name in ("margin", "weight", "base_learning_rate", "base_cross_entropy"):
            require(getattr(self, name) >= 0, f"{name} must not be negative, got {getattr(self, name)}.")
        require(self.sigma > 0, f"sigma must be positive, got {self.sigma}.")
        for name, least in (("base_epochs", 0), ("base_classes", 2), ("base_instances", 2)):
            require_whole(name, getattr(self, name), least)
        require(self.memory == PerClass(0, 0), "SDC keeps prototypes and no pictures: leave memory at PerClass(0, 0).")
        require(
            self.rule == "classifier" and self.new_rows == "imprinted",
            'SDC tells classes by their prototypes, which are means of their rows: leave rule at "classifier" and '
            'new_rows at "imprinted".',
        )

    @classmethod
    def tao(cls, data: Data) -> Self:
        """As the GP-Tree paper says it ran SDC, and as the released code does where it does not say.

        100 steps on all rows of a session and the whole network; learning without forgetting with weight 1; the rate of
        the released demonstration, 1e-6, in the base session too, which begins with a network trained by cross-entropy.
        At 1e-4, the default of its command line, triplets of margin 0 draw all rows to one point.
        """
        require_data(data)
        fine = data == "cub"
        return cls(
            session=adam(PUBLISHED_RATE, 100, trainable="all"),
            triplet="batch-hard" if fine else "no-hard-mining",
            sigma=0.3 if fine else 0.2,
            base_learning_rate=PUBLISHED_RATE,
            base_cross_entropy=0.0,
        )

    @classmethod
    def tuned(cls, exemplars: int = 0) -> Self:
        """Few steps at a small rate, and cross-entropy beside the triplets of the base session; no exemplars."""
        return cls(memory=PerClass(exemplars, exemplars))

    def candidates(self) -> list[Self]:
        """Learning rates 0, 1e-6, 1e-5, 1e-4, weights 1, 10, 100 and widths 0.2, 0.3, 0.5."""
        return self.varied(session__learning_rate=(1e-6, 1e-5, 1e-4), weight=(1.0, 10.0, 100.0), sigma=(0.2, 0.3, 0.5))


def adam(learning_rate: float, steps: int, trainable: Literal["last-block", "all"] = "last-block") -> SessionTraining:
    """Adam at a constant rate with the weight decay of the released code, on all rows in every step."""
    return SessionTraining(
        learning_rate=learning_rate,
        steps=steps,
        optimiser="adam",
        weight_decay=2e-4,
        schedule=CONSTANT,
        trainable=trainable,
    )


class PrototypeClassifier(SessionClassifier):
    """Minus the squared distances of unit features from prototypes, which are means and need not have unit length."""

    def forward(self, features: Tensor) -> Tensor:
        return 2 * unit(features) @ self.weight.T - self.weight.square().sum(1) - 1


class SDC(NetworkRival[SDCSettings]):
    """SDC (Yu et al., 2020): a network trained with triplets, and prototypes that follow its estimated drift.

    `NetworkRival` has the parameters; settings are `SDCSettings`. Rows get the class of the nearest prototype.

    Examples
    --------
    >>> from gptree.deep import convnet
    >>> from gptree.rivals import SDC, SDCSettings
    >>> rival = SDC(convnet(channels=1, width=16), SDCSettings.tuned())
    """

    name: ClassVar[str] = "sdc"
    settings_type: ClassVar[Any] = SDCSettings

    def _classifier(self, layer: ObjectiveLayer) -> nn.Module:
        return PrototypeClassifier([unit_rows(layer)])

    def _begin(self, model: Model, base: BaseNetwork, source: Source, y: np.ndarray) -> SessionState:
        n, rows = len(base.labels), np.arange(len(y))
        network, log = self._metric_network(base, source, y)
        features = unit(embed(network, source, rows, self._device))
        means = class_means(features, torch.as_tensor(y, device=self._device), n)
        model = frozen(Model(network, PrototypeClassifier([means])))
        nothing = np.zeros(0, dtype=np.int64)
        memory = Memory(raw_rows(source, nothing), nothing)
        extra = self._importance(model, source, rows)
        return SessionState(model, base.labels, n, memory, None, base.inputs, extra, log)

    def _metric_network(self, base: BaseNetwork, source: Source, y: np.ndarray) -> tuple[nn.Module, list[Any]]:
        """The base network after the epochs of metric learning, and their log."""
        settings, network = self._settings, copy.deepcopy(base.network)
        if settings.base_epochs == 0 or settings.base_learning_rate == 0:
            return network, []
        random = np.random.default_rng([self.random_state, len(y)])
        batches = balanced_batches(y, settings.base_classes, settings.base_instances, settings.base_epochs, random)
        student = Model(network, SessionClassifier([unit_rows(base.layer)]))
        lesson = Lesson(
            student=student,
            teacher=student,
            arrays=self._arrays(raw_rows(source, np.arange(len(y))), base.inputs),
            y=y,
            memory=0,
            n_old=0,
            session=0,
            seed=self.random_state,
            device=self._device,
            log=[],
        )
        how = adam(settings.base_learning_rate, len(batches), trainable="all")
        lesson.train(self._metric_loss, how, batches=batches)
        return network, lesson.log

    def _metric_loss(self, step: Step) -> Tensor:
        settings = self._settings
        loss = TRIPLETS[settings.triplet](unit(step.student.features), step.y, settings.margin)
        return loss + settings.base_cross_entropy * cross_entropy(step.student.logits, step.y)

    def _rows(self, lesson: Lesson) -> Tensor:
        return self._new_means(lesson.teacher, lesson)

    def _loss(self, step: Step, lesson: Lesson) -> Tensor:
        settings, z = self._settings, unit(step.student.features)
        loss = TRIPLETS[settings.triplet](z, step.y, settings.margin)
        if settings.regulariser == "lwf":
            return loss + settings.weight * embedding_penalty(z, unit(step.teacher.features))
        trainable = settings.session.trainable
        now, old = (model.trained_parameters(trainable) for model in (lesson.student, lesson.teacher))
        return loss + settings.weight * importance_penalty(now, old, list(lesson.extra.values()))

    def _finished(self, lesson: Lesson, state: SessionState) -> SessionState:
        settings, student = self._settings, lesson.student
        before, after = (
            unit(embed(model, lesson.arrays, lesson.new_rows, lesson.device)) for model in (lesson.teacher, student)
        )
        old = compensated(lesson.teacher.classifier.weight, before, after, settings.sigma)
        blocks = [*old.split(lesson.teacher.classifier.sizes), self._new_means(student, lesson)]
        model = frozen(Model(student.network, PrototypeClassifier(blocks)))
        extra = self._importance(model, lesson.arrays, lesson.new_rows)
        return replace(state, model=model, extra=extra)

    def _new_means(self, model: Model, lesson: Lesson) -> Tensor:
        """(k, d) prototypes of the new classes."""
        features = unit(embed(model, lesson.arrays, lesson.new_rows, lesson.device))
        codes = lesson.codes[lesson.memory :] - lesson.n_old
        return class_means(features, codes, int(codes.max()) + 1)

    def _importance(self, model: Model, source: Source, rows: np.ndarray) -> dict[str, Tensor]:
        """Ω of the parameters that sessions train, where the regulariser needs it."""
        if self._settings.regulariser == "lwf":
            return {}
        weights = model.trained_parameters(self._settings.session.trainable)
        batches = source.batches(clean_plan(rows, IMPORTANCE_ROWS), self._device)
        with gradients_of(weights, model):
            found = importances(lambda x: precise(model.network(x)), batches, weights)
        return {f"importance {number:03d}": omega for number, omega in enumerate(found)}


def compensated(prototypes: Tensor, before: Tensor, after: Tensor, sigma: float) -> Tensor:
    """Prototypes moved by the drift of the rows near them.

    Δ_c = Σ_i w_ci (after_i − before_i), w_ci = softmax_i(−‖before_i − μ_c‖² / 2σ²): the published ratio of
    sums without its underflow for small σ.

    Parameters
    ----------
    prototypes : Tensor (C, d)
        μ, under the network before the session.
    before, after : Tensor (n, d)
        The session's rows under the network before and after it.
    sigma : float

    Returns
    -------
    Tensor (C, d)
    """
    squares = (prototypes[:, None] - before).square().sum(-1)
    return prototypes + (squares / (-2 * sigma**2)).softmax(1) @ (after - before)


def embedding_penalty(new: Tensor, old: Tensor) -> Tensor:
    """½ Σ_i ‖z_i − z_i^old‖² over the batch: learning without forgetting, on embeddings."""
    return 0.5 * (new - old).square().sum()


def importance_penalty(weights: Sequence[Tensor], old: Sequence[Tensor], importance: Sequence[Tensor]) -> Tensor:
    """½ Σ_p Ω_p (θ_p − θ_p^old)²: memory-aware synapses."""
    terms = [
        (omega * (new - before).square()).sum() for new, before, omega in zip(weights, old, importance, strict=True)
    ]
    return 0.5 * torch.stack(terms).sum()


def importances(
    embed: Callable[[Tensor], Tensor], batches: Iterable[Tensor], weights: Sequence[Tensor]
) -> list[Tensor]:
    """Ω, as in the released code: mean over batches of (∂ Σ_i ‖f(x_i)‖ / ∂θ)², f not scaled to unit length.

    Parameters
    ----------
    embed : callable
        From inputs (B, …) to embeddings (B, d).
    batches : iterable of Tensor
        Inputs of the last session.
    weights : sequence of Tensor
        θ, those that are trained.
    """
    total, count = [torch.zeros_like(weight) for weight in weights], 0
    for x in batches:
        gradients = torch.autograd.grad(embed(x).norm(dim=1).sum(), list(weights), allow_unused=True)
        for omega, gradient in zip(total, gradients, strict=True):
            if gradient is not None:
                omega += gradient.square()
        count += 1
    return [omega / max(count, 1) for omega in total]
