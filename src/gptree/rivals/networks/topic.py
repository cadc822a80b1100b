"""TOPIC (Tao et al., 2020): anchors at the nodes of a neural gas that must not move, and centres of new classes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from gptree.deep import Source, embed
from gptree.rivals.networks.base import NetworkRival
from gptree.rivals.networks.blocks import class_means, cross_entropy, mean_over, unit
from gptree.rivals.networks.lesson import Lesson, Step
from gptree.rivals.networks.memory import Memory, herded_rows, raw_rows
from gptree.rivals.networks.model import BaseNetwork, Model
from gptree.rivals.networks.neural_gas import Gas, NeuralGas, cells
from gptree.rivals.networks.sessions import SessionState
from gptree.rivals.networks.settings import (
    BaseOnly,
    Data,
    NetworkRivalSettings,
    PerClass,
    SessionTraining,
    require_data,
    tao_session,
)
from gptree.settings import require

#: Relative to the mean of all variances: a cell of one row has none.
LEAST_VARIANCE = 0.1


@dataclass(frozen=True, kw_only=True)
class TOPICSettings(NetworkRivalSettings):
    """Settings of `TOPIC`; `NetworkRivalSettings` has more. The number of nodes is that of pictures in memory.

    Parameters
    ----------
    form : "code" or "paper"
        What anchors must not move from, and which centres must keep away from each other. Released scripts: their own
        features before the session; centres of all classes. Paper: the centroid of their node, in units of the
        variances of its cell (times the mean variance, so that weights mean the same in both forms); each new node and
        its neighbours in the gas.
    anchor_weight, min_weight, max_weight : float
        Of the three terms beside the cross-entropy of new rows.
    centre_rate : float
        Learning rate of the centres of the new classes, which have plain gradient steps.
    margin : float
        Distance that centres keep in the form of the scripts; the largest one between nodes in that of the paper.
    gas : NeuralGas
    """

    session: SessionTraining = field(default_factory=lambda: SessionTraining(augment_memory=False))
    freeze_old: bool = True
    form: Literal["code", "paper"] = "code"
    anchor_weight: float = 350.0
    min_weight: float = 0.3
    max_weight: float = 1e-5
    centre_rate: float = 0.1
    margin: float = 0.5
    gas: NeuralGas = field(default_factory=NeuralGas)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.form in ("code", "paper"), f'form is "code" or "paper", not {self.form!r}.')
        for name in ("anchor_weight", "min_weight", "max_weight", "centre_rate", "margin"):
            require(getattr(self, name) >= 0, f"{name} must not be negative, got {getattr(self, name)}.")

    @classmethod
    def tao(cls, data: Data) -> Self:
        """TOPIC AL-MML of Tao et al.: 400 anchors among the base pictures, random new rows."""
        require_data(data)
        session, min_weight, centre_rate, max_weight = {
            "mini-imagenet": (tao_session(0.1, 100, 90), 0.3, 0.1, 1e-5),
            "cifar100": (tao_session(0.1, 70, 60), 0.3, 0.1, 1e-4),
            "cub": (tao_session(0.01, 120, 110), 5e-5, 0.5, 1e-6),
        }[data]
        return cls(
            session=session,
            memory=BaseOnly(400),
            new_rows="random",
            min_weight=min_weight,
            max_weight=max_weight,
            centre_rate=centre_rate,
        )

    @classmethod
    def tuned(cls, exemplars: int = 5) -> Self:
        """Exemplars of all classes; those of the base classes are the anchors of as many nodes, so many on average."""
        return cls(memory=PerClass(exemplars, exemplars))

    def candidates(self) -> list[Self]:
        """Learning rates 0, 1e-4, 1e-3, 1e-2, ten times as high for class rows, and anchor weights 35, 350, 3500."""
        return self.varied(session__learning_rate=(1e-4, 1e-3, 1e-2), anchor_weight=(35.0, 350.0, 3500.0))


class TOPIC(NetworkRival[TOPICSettings]):
    """TOPIC (Tao et al., 2020): a neural gas over the features, whose anchors must not move when classes arrive.

    `NetworkRival` has the parameters; settings are `TOPICSettings`.

    Examples
    --------
    >>> from gptree.deep import convnet
    >>> from gptree.rivals import TOPIC, TOPICSettings
    >>> rival = TOPIC(convnet(channels=1, width=16), TOPICSettings.tuned())
    """

    name: ClassVar[str] = "topic"
    settings_type: ClassVar[Any] = TOPICSettings

    def _begin(self, model: Model, base: BaseNetwork, source: Source, y: np.ndarray) -> SessionState:
        settings, n = self._settings, len(base.labels)
        features = unit(embed(model, source, np.arange(len(y)), self._device))
        gas = settings.gas.fit(features, int(settings.memory.quotas(n, n).sum()), self.random_state)
        found = cells(features, y, gas.centroids)
        used = np.flatnonzero(found.labels >= 0)
        used = used[np.argsort(found.labels[used], kind="stable")]
        memory = Memory(raw_rows(source, found.pictures[used]), found.labels[used])
        extra = {"centres": class_means(features, torch.as_tensor(y, device=features.device), n)}
        if settings.form == "paper":
            extra |= {
                "centroids": gas.centroids[used].to(features),
                "variances": found.variances[used],
                "ages": gas.ages[np.ix_(used, used)],
            }
        means = self._means(model, memory, n, base.inputs)
        return SessionState(model, base.labels, n, memory, means, base.inputs, extra)

    def _train(self, lesson: Lesson) -> None:
        settings, rate = self._settings, self._settings.session.learning_rate
        if rate == 0:
            return
        features, codes = self._new_features(lesson.teacher, lesson)
        centres = nn.Parameter(class_means(features, codes, int(codes.max()) + 1))
        apart = self._apart(lesson, features, centres.detach())
        times = {"times": settings.centre_rate / rate, "weight_decay": 0.0, "momentum": 0.0, "nesterov": False}

        def loss(step: Step) -> Tensor:
            y = (step.y - lesson.n_old).clamp(min=0)
            near = centre_loss(unit(step.student.features), centres, y, step.new)
            far = margin_loss(centres, *apart)
            return self._loss(step, lesson) + settings.min_weight * near + settings.max_weight * far

        extra = [{"params": [centres], **times}]
        lesson.train(loss, settings.session, freeze_old=settings.freeze_old, extra=extra)

    def _loss(self, step: Step, lesson: Lesson) -> Tensor:
        """Cross-entropy of the new rows, and the anchor loss of the memory."""
        settings, anchors = self._settings, ~step.new
        loss = cross_entropy(step.student.logits, step.y, step.new)
        targets, weights = unit(step.teacher.features), 1.0
        if settings.form == "paper":
            nodes = torch.where(anchors, step.rows, 0)
            targets = lesson.extra["centroids"][nodes]
            weights = precisions(lesson.extra["variances"])[nodes]
        return loss + settings.anchor_weight * anchor_loss(unit(step.student.features), targets, weights, anchors)

    def _apart(self, lesson: Lesson, features: Tensor, new: Tensor) -> Apart:
        """What the centres of new classes (k, d) must keep away from."""
        if self._settings.form == "code":
            return Apart(lesson.extra["centres"], self._settings.margin, None)
        nodes = lesson.extra["centroids"]
        grown = self._settings.gas.grown(Gas(nodes, lesson.extra["ages"]), features, new)
        return Apart(
            nodes, float(torch.cdist(nodes, nodes).max()), grown.ages[len(nodes) :].isfinite().to(nodes.device)
        )

    def _remember(self, model: Model, memory: Memory, pictures: Tensor, lesson: Lesson, n_base: int) -> Memory:
        """All anchors stay; new classes join within their quotas, in the paper's form by one picture each."""
        quotas = self._settings.memory.quotas(n_base, int(lesson.y.max()) + 1)
        features, _ = self._new_features(model, lesson)
        y = lesson.y[lesson.memory :]
        chosen = herded_rows(features, y, quotas.clip(max=1) if self._settings.form == "paper" else quotas)
        return Memory(torch.cat([memory.pictures, pictures[chosen]]), np.concatenate([memory.y, y[chosen]]))

    def _finished(self, lesson: Lesson, state: SessionState) -> SessionState:
        features, codes = self._new_features(state.model, lesson)
        means = class_means(features, codes, int(codes.max()) + 1)
        extra = {**state.extra, "centres": torch.cat([state.extra["centres"], means])}
        if self._settings.form == "paper" and len(state.memory.y) > lesson.memory:
            spread = class_means((features - means[codes]).square(), codes, len(means))
            gas = self._settings.gas.grown(Gas(extra["centroids"], extra["ages"]), features, means)
            extra |= {
                "centroids": gas.centroids.to(means),
                "variances": torch.cat([extra["variances"], spread]),
                "ages": gas.ages,
            }
        return replace(state, extra=extra)

    def _new_features(self, model: Model, lesson: Lesson) -> tuple[Tensor, Tensor]:
        """Unit features of the new rows, and their classes among the new ones."""
        features = unit(embed(model, lesson.arrays, lesson.new_rows, lesson.device))
        return features, lesson.codes[lesson.memory :] - lesson.n_old


class Apart(NamedTuple):
    """What new centres (k, d) must keep away from; arguments of `margin_loss`."""

    others: Tensor
    margin: float
    near: Tensor | None


def anchor_loss(features: Tensor, targets: Tensor, weights: Tensor | float = 1.0, rows: Tensor | None = None) -> Tensor:
    """mean_{j,d} v_jd (f_jd − t_jd)²: how far the anchors have moved.

    Parameters
    ----------
    features : Tensor (N, d)
        Unit features of the anchors under the network that is trained.
    targets : Tensor (N, d)
        Released scripts: the same under the network before the session. Paper: centroids of the nodes.
    weights : Tensor (N, d) or float
        v. Released scripts: 1, but less where a variance exceeds ½, which those of unit features do not. Paper: inverse
        variances of the cells, the Mahalanobis distance.
    rows : bool Tensor (N,) or None
        The anchors among the rows; None is all.
    """
    return mean_over((weights * (features - targets).square()).mean(1), rows)


def precisions(variances: Tensor) -> Tensor:
    """mean(Λ) / Λ of variances (N, d), those below a tenth of the mean raised to it."""
    mean = variances.mean().clamp_min(torch.finfo(variances.dtype).tiny)
    return mean / variances.clamp_min(LEAST_VARIANCE * mean)


def centre_loss(features: Tensor, centres: Tensor, y: Tensor, rows: Tensor | None = None) -> Tensor:
    """½ mean_i ‖f_i − c_{y_i}‖², the min term: rows are drawn to the centre of their class.

    Parameters
    ----------
    features : Tensor (B, d)
    centres : Tensor (C, d)
    y : Tensor (B,)
        Rows of `centres`.
    rows : bool Tensor (B,) or None
        Those that count; None is all.
    """
    return 0.5 * mean_over((features - centres[y]).square().sum(1), rows)


def margin_loss(new: Tensor, others: Tensor, margin: float, near: Tensor | None = None) -> Tensor:
    """Σ [margin − ‖c_i − c_j‖]₊ over pairs of centres with at least one new class: the max term.

    Parameters
    ----------
    new, others : Tensor (k, d), (N, d)
    margin : float
    near : bool Tensor (k, N + k) or None
        The pairs that count, first with `others`, then among the new ones; None is all.
    """
    gaps = (new[:, None] - torch.cat([others.to(new), new])).square().sum(-1).clamp_min(1e-12).sqrt()
    pairs = torch.ones_like(gaps, dtype=torch.bool).triu(len(others) + 1)
    pairs[:, : len(others)] = True
    return (relu(margin - gaps) * (pairs if near is None else pairs & near)).sum()
