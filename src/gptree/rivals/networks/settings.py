"""Settings that all methods share: the steps of a session, what is kept of past classes, and how they predict."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

import numpy as np
from torch import nn

from gptree.deep import Cosine, Milestones, Objective, Schedule
from gptree.rivals.networks.classifiers import LearnedCosine
from gptree.settings import Settings, require, require_whole

Data = Literal["mini-imagenet", "cifar100", "cub"]
Trainable = Literal["last-block", "all"] | Callable[[nn.Module], Iterable[nn.Parameter]]

CONSTANT = Milestones(())


@dataclass(frozen=True, kw_only=True)
class SessionTraining(Settings):
    """Gradient steps of a session. Batch normalisation keeps its statistics and its parameters throughout.

    Parameters
    ----------
    learning_rate : float
        Of the network; 0 takes no step at all.
    classifier_learning_rate : float
        Times the learning rate, for class rows.
    steps : int
    batch_size : int or None
        Rows of a step; None is all of them, new ones and memory.
    trainable : "last-block", "all" or a function of the network
        What of the network is trained: the last block (for which it must be a `gptree.deep.StagedBackbone`), all, or
        the parameters that the function gives. A network that is cut before its last block is run once up to there for
        student and teacher.
    optimiser : "sgd" or "adam"
    momentum : float
        Of stochastic gradient descent, as is `nesterov`.
    nesterov : bool
    weight_decay : float
        Of matrices and convolutions that are trained.
    schedule : Schedule
        Of the learning rate; its time is counted in steps.
    clip : float or None
        Gradients are cut to ±clip, entry by entry.
    augment_memory : bool
        Whether pictures from the memory are augmented as new ones are.
    mixed_precision : "no" or "bf16"
        Of the network on CUDA; elsewhere there is none.

    Examples
    --------
    >>> from gptree.rivals import SessionTraining
    >>> SessionTraining(learning_rate=0.01, steps=50).trainable
    'last-block'
    """

    learning_rate: float = 1e-3
    classifier_learning_rate: float = 10.0
    steps: int = 100
    batch_size: int | None = None
    trainable: Trainable = "last-block"
    optimiser: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    schedule: Schedule = field(default_factory=Cosine)
    clip: float | None = None
    augment_memory: bool = True
    mixed_precision: Literal["no", "bf16"] = "bf16"

    def __post_init__(self) -> None:
        require_whole("steps", self.steps, 1)
        if self.batch_size is not None:
            require_whole("batch_size", self.batch_size, 1)
        for name in ("learning_rate", "classifier_learning_rate", "weight_decay"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"{name} is a finite number from 0 on, not {value}.")
        require(0 <= self.momentum < 1, f"momentum must lie in [0, 1), got {self.momentum}.")
        require(self.momentum > 0 or not self.nesterov, "Nesterov's step needs a momentum: set nesterov=False.")
        require(self.clip is None or self.clip > 0, f"clip must be positive, got {self.clip}.")
        for name, choices in (("optimiser", ("sgd", "adam")), ("mixed_precision", ("no", "bf16"))):
            require(getattr(self, name) in choices, f"{name} must be one of {choices}, got {getattr(self, name)!r}.")
        require(
            callable(self.trainable) or self.trainable in ("last-block", "all"),
            f'trainable is "last-block", "all" or a function of the network, not {self.trainable!r}.',
        )
        require(callable(getattr(self.schedule, "multiplier", None)), f"{self.schedule!r} is no schedule.")

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        return self.learning_rate * self.schedule.multiplier(step, self.steps)


# ----------------------------------------------------------------------------------------------------------- memory


class MemoryBudget(Settings, ABC):
    """How many pictures are kept of each class."""

    @abstractmethod
    def quotas(self, base: int, seen: int) -> np.ndarray:
        """(seen,) most pictures of each class, in order of arrival; the first `base` are base classes."""


@dataclass(frozen=True)
class PerClass(MemoryBudget):
    """The same number of every class.

    Parameters
    ----------
    base : int
        Of a base class.
    novel : int
        Of a class that arrived later.
    """

    base: int = 5
    novel: int = 5

    def __post_init__(self) -> None:
        require_whole("base", self.base, 0)
        require_whole("novel", self.novel, 0)

    def quotas(self, base: int, seen: int) -> np.ndarray:
        return np.where(np.arange(seen) < base, self.base, self.novel)


@dataclass(frozen=True)
class SharedBudget(MemoryBudget):
    """A number of pictures shared out among all classes seen; each new session takes some from the old ones.

    Parameters
    ----------
    total : int
    """

    total: int = 2000

    def __post_init__(self) -> None:
        require_whole("total", self.total, 1)

    def quotas(self, base: int, seen: int) -> np.ndarray:
        return np.full(seen, self.total // seen)


@dataclass(frozen=True)
class BaseOnly(MemoryBudget):
    """A number of pictures of the base classes, chosen once; nothing of later classes.

    Parameters
    ----------
    total : int
        The first classes have one more where it does not come out even.
    """

    total: int = 400

    def __post_init__(self) -> None:
        require_whole("total", self.total, 1)

    def quotas(self, base: int, seen: int) -> np.ndarray:
        each, more = divmod(self.total, base)
        classes = np.arange(seen)
        return np.where(classes < base, each + (classes < more), 0)


# ------------------------------------------------------------------------------------------------------- of a method


@dataclass(frozen=True, kw_only=True)
class NetworkRivalSettings(Settings, ABC):
    """What the settings of all methods have; a method adds its own and gives other defaults.

    Parameters
    ----------
    session : SessionTraining
    memory : MemoryBudget
        `PerClass(...)`, `SharedBudget(...)` or `BaseOnly(...)`.
    new_rows : "imprinted" or "random"
        Class rows of new classes: their mean unit features, with the mean length of the old rows; or N(0, 0.001²).
        Where features are nearer to any mean than to the row learned for their own class, imprinted classes take all
        until sessions have trained the rows apart; the rule of nearest means is spared.
    freeze_old : bool
        Whether class rows of earlier sessions stay as they are.
    rule : "classifier" or "nearest-mean"
        How classes are predicted: by the classifier, or the nearest mean of exemplars. It may be changed after fitting.
    temperature : float
        Scores are divided by it before the softmax; those of nearest means are minus squared distances of unit
        vectors. It changes probabilities only, and may be changed after fitting; `rehearse` chooses it.
    mirror : bool
        Whether means of exemplars that are pictures take in their mirror images.
    """

    session: SessionTraining = field(default_factory=SessionTraining)
    memory: MemoryBudget = field(default_factory=PerClass)
    new_rows: Literal["imprinted", "random"] = "imprinted"
    freeze_old: bool = False
    rule: Literal["classifier", "nearest-mean"] = "classifier"
    temperature: float = 1.0
    mirror: bool = True

    def __post_init__(self) -> None:
        require(isinstance(self.session, SessionTraining), f"session is SessionTraining(...), not {self.session!r}.")
        require(isinstance(self.memory, MemoryBudget), f"memory is PerClass(...) or another, not {self.memory!r}.")
        for name, choices in (("new_rows", ("imprinted", "random")), ("rule", ("classifier", "nearest-mean"))):
            require(getattr(self, name) in choices, f"{name} must be one of {choices}, got {getattr(self, name)!r}.")
        require(self.temperature > 0, f"temperature must be positive, got {self.temperature}.")

    @property
    def objective(self) -> Objective:
        """What the base network is trained with; methods whose objectives are equal can share one."""
        return LearnedCosine()

    @classmethod
    @abstractmethod
    def tao(cls, data: Data) -> Self:
        """The settings behind the rows that Tao et al. (2020) published for a data set."""

    @classmethod
    @abstractmethod
    def tuned(cls, exemplars: int = 5) -> Self:
        """The method of its own paper with settings for few shots, the start of a search by `rehearse`.

        Parameters
        ----------
        exemplars : int
            Pictures kept of a class.
        """

    @abstractmethod
    def candidates(self) -> list[Self]:
        """Settings for `rehearse` to choose from, around these; the first trains nothing (learning rate 0).

        They differ in what later sessions do, and share the state after the base session.
        """

    def varied(self, **choices: Iterable[Any]) -> list[Self]:
        """Learning rate 0, and these settings with all combinations of the values given by name."""
        found = [self]
        for name, values in choices.items():
            found = [settings.with_params(**{name: value}) for settings in found for value in values]
        return [self.with_params(session__learning_rate=0.0), *found]


def tao_session(learning_rate: float, steps: int, decay: int | None = None) -> SessionTraining:
    """Nesterov steps on all rows at one rate, divided by ten after `decay` steps; memory as it is."""
    return SessionTraining(
        learning_rate=learning_rate,
        classifier_learning_rate=1.0,
        steps=steps,
        schedule=CONSTANT if decay is None else Milestones((decay,)),
        augment_memory=False,
    )


def require_data(data: str) -> None:
    """Raise unless it is a data set of Tao et al."""
    require(data in get_args(Data), f"data must be one of {get_args(Data)}, got {data!r}.")
