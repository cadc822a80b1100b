"""`Training`, the settings of a training, and its learning-rate schedules."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Integral
from typing import Literal, Protocol

from gptree.deep.objectives import CrossEntropy, Objective
from gptree.settings import Settings, require, require_whole


class Schedule(Protocol):
    """A learning rate as a function of time; `Cosine` and `Milestones` are schedules."""

    def multiplier(self, epoch: float, epochs: int) -> float:
        """Of the learning rate, `epoch` epochs (whole and broken) after the start of a training of `epochs`."""
        ...


@dataclass(frozen=True)
class Cosine(Settings):
    """Half a cosine from 1 down to 0.

    Parameters
    ----------
    warmup : float
        Epochs at the start in which the factor rises in a straight line.
    """

    warmup: float = 0.0

    def __post_init__(self) -> None:
        require(self.warmup >= 0, f"warmup is a number of epochs, not {self.warmup}.")

    def multiplier(self, epoch: float, epochs: int) -> float:
        """Of the learning rate at a time."""
        if epoch < self.warmup:
            return epoch / self.warmup
        return 0.5 * (1 + math.cos(math.pi * (epoch - self.warmup) / (epochs - self.warmup)))


@dataclass(frozen=True)
class Milestones(Settings):
    """Times a factor after each of some epochs.

    Parameters
    ----------
    at : tuple of int
        The epochs.
    factor : float
    """

    at: tuple[int, ...] = (100, 150)
    factor: float = 0.1

    def __post_init__(self) -> None:
        require(
            isinstance(self.at, tuple) and all(isinstance(epoch, Integral) for epoch in self.at),
            f"at is a tuple of epochs, such as (100, 150), not {self.at!r}.",
        )
        require(self.factor > 0, f"factor must be positive, got {self.factor}.")

    def multiplier(self, epoch: float, epochs: int) -> float:
        """Of the learning rate at a time."""
        return self.factor ** sum(epoch >= milestone for milestone in self.at)


@dataclass(frozen=True)
class Training(Settings):
    """Settings of the training of a network.

    Parameters
    ----------
    epochs : int
        All of them.
    cross_entropy_epochs : int
        Those that come first and minimise `objective`; the others train network and head jointly. As many as `epochs`
        trains no head: the softmax classifier that a GP-Tree is compared with.
    objective : Objective or its name
        What the first epochs minimise: `CrossEntropy(...)`, `CosineMargin(...)`, "cross-entropy", …
    objective_weight : float
        Of the objective's loss in joint training, on rows as they are, beside the head's; 0 leaves the network to the
        head, as the paper does.
    head_weight : float
        Of the head's loss in what the network learns beside the objective; what the head learns itself, its inducing
        points, posteriors and kernel, does not depend on it. Where the head is left alone its weight is 1.
    batch_size : int
        Rows a step, of all processes together. An epoch has as many full batches as its rows make; the few rows left
        over, other ones in every epoch, are left out of it.
    learning_rate, momentum : float
        Of stochastic gradient descent.
    nesterov : bool
    weight_decay : float
        Of weight matrices and convolutions; biases, the parameters of normalisations, inducing points and kernels have
        none.
    schedule : Cosine(...) or Milestones(...)
        Of the learning rate.
    head_learning_rate : float
        Times the learning rate, for inducing points and kernel.
    validation : float, int or None
        Rows held out of training and measured after every epoch: a share of every class (of two rows at least, of one
        where a class has fewer than four), or a number of rows of every class; None for no validation.
    validate_every : int
        Epochs; the last one is always measured.
    best : "last", "accuracy" or "nll"
        The state that is kept in the end: the last one, or the one of best accuracy or NLL on the validation rows,
        among the epochs of joint training (among all, if no head is trained), as the head has it alone.
    calibrate : bool
        In the end, choose on the validation rows, set aside or given, how confident predictions are, and the weight of
        the objective's layer where it was trained beside the head (see `WeightedEnsemble`). Otherwise the head
        predicts alone.
    mixed_precision : "no", "bf16" or "fp16"
        Of the network; the head has a dtype of its own.
    checkpoint_epochs : int
        Epochs between two checkpoints; after the last epoch there is always one.
    checkpoint_steps : int or None
        Steps within an epoch between two checkpoints; None for none.

    Examples
    --------
    >>> from gptree.deep import CosineMargin, Milestones, Training
    >>> training = Training(epochs=60, cross_entropy_epochs=30, objective=CosineMargin(), schedule=Milestones((40, 50)))
    """

    epochs: int = 200
    cross_entropy_epochs: int = 80
    objective: Objective = field(default_factory=CrossEntropy)
    objective_weight: float = 1.0
    head_weight: float = 0.1
    batch_size: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    schedule: Schedule = field(default_factory=Cosine)
    head_learning_rate: float = 1.0
    validation: float | int | None = 0.1
    validate_every: int = 1
    best: Literal["last", "accuracy", "nll"] = "last"
    calibrate: bool = True
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"
    checkpoint_epochs: int = 1
    checkpoint_steps: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "validate_every", "checkpoint_epochs"):
            require_whole(name, getattr(self, name), 1)
        require_whole("cross_entropy_epochs", self.cross_entropy_epochs, 0)
        require(
            self.cross_entropy_epochs <= self.epochs,
            f"cross_entropy_epochs are some of the {self.epochs} epochs, got {self.cross_entropy_epochs}.",
        )
        object.__setattr__(self, "objective", Objective.of(self.objective))
        require(
            callable(getattr(self.schedule, "multiplier", None)),
            f"schedule must be Cosine(...) or Milestones(...), not {self.schedule!r}.",
        )
        if self.checkpoint_steps is not None:
            require_whole("checkpoint_steps", self.checkpoint_steps, 1)
        for name in ("learning_rate", "head_learning_rate"):
            require(getattr(self, name) > 0, f"{name} must be positive, got {getattr(self, name)}.")
        require(0 <= self.momentum < 1, f"momentum must lie in [0, 1), got {self.momentum}.")
        require(self.momentum > 0 or not self.nesterov, "Nesterov's step needs a momentum: set nesterov=False.")
        require(self.objective_weight >= 0, f"objective_weight must not be negative, got {self.objective_weight}.")
        require(0 <= self.head_weight < math.inf, f"head_weight is a finite number from 0 on, not {self.head_weight}.")
        require(self.weight_decay >= 0, f"weight_decay must not be negative, got {self.weight_decay}.")
        for name, choices in (("best", ("last", "accuracy", "nll")), ("mixed_precision", ("no", "bf16", "fp16"))):
            require(getattr(self, name) in choices, f"{name} must be one of {choices}, got {getattr(self, name)!r}.")
        if isinstance(self.validation, Integral):
            require(self.validation >= 1, f"validation needs at least one row a class, got {self.validation}.")
        elif self.validation is not None:
            require(0 < self.validation < 1, f"a share for validation lies between 0 and 1, got {self.validation}.")

    @property
    def trains_head(self) -> bool:
        """Whether a head is trained, after the first epochs."""
        return self.cross_entropy_epochs < self.epochs

    @property
    def weight_of_head(self) -> float:
        """The weight of the head's loss in what the network learns."""
        return self.head_weight if self.objective_weight else 1.0

    def rate(self, epoch: float) -> float:
        """The learning rate at a time, in epochs; it depends on nothing else."""
        return self.learning_rate * self.schedule.multiplier(epoch, self.epochs)
