"""`Lesson`: the gradient steps of a session, from new pictures and those in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gptree.deep import Arrays, Batch
from gptree.deep.data.base import clean_plan, key
from gptree.rivals.networks.model import Model, Outputs
from gptree.rivals.networks.settings import SessionTraining

#: Keys that set the uses of a seed apart.
ORDER, STEP, ROWS = range(3)
#: Rows that go through the frozen part of a network together.
AT_ONCE = 512


class Step(NamedTuple):
    """What the loss of a step is computed from. Rows whose pictures were augmented come first."""

    rows: Tensor
    """(B,) row numbers of the lesson."""
    y: Tensor
    """(B,) columns of their classes."""
    new: Tensor
    """(B,) whether they are of this session; the others are from the memory."""
    student: Outputs
    teacher: Outputs
    """Of the same tensors, without gradient; it has the columns that the teacher has."""


Loss = Callable[[Step], Tensor]


@dataclass(eq=False)
class Lesson:
    """A session in progress: the student, the teacher, and the rows to learn from (memory first, then new ones).

    Attributes
    ----------
    student : Model
        Trained in place; a copy of the model before the session, its classifier grown by the new classes.
    teacher : Model
        The model before the session.
    arrays : Arrays
        The rows, with augmentation.
    y : int array (n,)
        Columns of their classes.
    memory : int
        The first so many rows are from the memory.
    n_old : int
        Columns before this session.
    session : int
        1 for the first after the base.
    seed : int
    device : torch.device
    log : list of dict
        A row a training: steps, first and last loss.
    extra : dict of Tensor
        What the method keeps beside, as it was before the session.
    """

    student: Model
    teacher: Model
    arrays: Arrays
    y: np.ndarray
    memory: int
    n_old: int
    session: int
    seed: int
    device: torch.device
    log: list[dict[str, Any]]
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    @cached_property
    def codes(self) -> Tensor:
        """`y` on the device."""
        return torch.as_tensor(self.y, device=self.device)

    @property
    def new_rows(self) -> np.ndarray:
        """Row numbers of the new rows."""
        return np.arange(self.memory, len(self.y))

    def train(
        self,
        loss: Loss,
        how: SessionTraining,
        *,
        freeze_old: bool = False,
        network: bool = True,
        rows: np.ndarray | None = None,
        batches: Sequence[np.ndarray] | None = None,
        teacher: Model | None = None,
        maps: bool = False,
        extra: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Take the steps; afterwards the student is in place.

        Parameters
        ----------
        loss : function of a Step
        how : SessionTraining
        freeze_old : bool
            Whether class rows of earlier sessions stay out of the optimiser.
        network : bool
            Whether the network is trained, or the classifier alone.
        rows : int array or None
            Some of the rows of the lesson; None is all.
        batches : sequence of int arrays or None
            The rows of every step; None lets `how` say it.
        teacher : Model or None
            None is the model before the session. The student itself is none: its own outputs then stand for the
            teacher's.
        maps : bool
            Whether the maps of the stages are wanted.
        extra : sequence of dict
            Further groups of the optimiser: "params", "times" the learning rate, "weight_decay".
        """
        if how.learning_rate == 0:
            return
        teacher = self.teacher if teacher is None else teacher
        rows = np.arange(len(self.y)) if rows is None else rows
        groups = [*self._groups(how, freeze_old, network), *extra]
        trained = [p for group in groups for p in group["params"]]
        with gradients_of(trained, self.student):
            optimiser, losses = make_optimiser(groups, how), []
            for number, (entered, of) in enumerate(self._entered(rows, how, batches)):
                rate = how.rate(number)
                for group in optimiser.param_groups:
                    group["lr"] = rate * group["times"]
                step = self._step(entered, of, how, teacher, maps)
                value = loss(step)
                optimiser.zero_grad(set_to_none=True)
                value.backward()
                if how.clip is not None:
                    torch.nn.utils.clip_grad_value_(trained, how.clip)
                optimiser.step()
                losses.append(value.detach())
        self._finish(how, torch.stack([losses[0], losses[-1]]).tolist(), trained)

    def _step(self, entered: Tensor, rows: Tensor, how: SessionTraining, teacher: Model, maps: bool) -> Step:
        with autocast(self.device, how):
            now = old = self.student.outputs(entered, how.trainable, maps)
            if teacher is not self.student:
                with torch.no_grad():
                    old = teacher.outputs(entered, how.trainable, maps)
        return Step(rows, self.codes[rows], rows >= self.memory, now, old)

    def _groups(self, how: SessionTraining, freeze_old: bool, network: bool) -> list[dict[str, Any]]:
        parameters = self.student.trained_parameters(how.trainable) if network else []
        rows = list(self.student.classifier.rows)
        others = [p for p in self.student.classifier.parameters() if all(p is not block for block in rows)]
        decay, times = how.weight_decay, how.classifier_learning_rate
        groups = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": decay, "times": 1.0},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0, "times": 1.0},
            {"params": rows[-1:] if freeze_old else rows, "weight_decay": decay, "times": times},
            {"params": others, "weight_decay": 0.0, "times": times},
        ]
        return [group for group in groups if group["params"]]

    def _entered(
        self, rows: np.ndarray, how: SessionTraining, batches: Sequence[np.ndarray] | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """For each step what enters the trained part of the network, and of which rows, augmented ones first.

        Rows that are not augmented go through the frozen part once for all steps. Nothing waits for the device.
        """
        changed = np.zeros(len(self.y), dtype=bool)
        if self.arrays.augment:
            changed[0 if how.augment_memory else self.memory :] = True
        plain, place = rows[~changed[rows]], np.zeros(len(self.y), dtype=np.int64)
        place[plain] = np.arange(len(plain))
        kept = self._frozen(plain, how) if len(plain) else None
        drawn = self._batches(rows, how) if batches is None else batches
        ordered = [batch[np.argsort(~changed[batch], kind="stable")] for batch in drawn]
        together, sizes = np.concatenate(ordered), [len(batch) for batch in ordered]
        of, places = (torch.as_tensor(each, device=self.device).split(sizes) for each in (together, place[together]))
        seen = [batch[changed[batch]] for batch in ordered]
        seeds = [key(self.seed, self.session, len(self.log), STEP, number) for number in range(len(seen))]
        plan = [Batch(batch, seed) for batch, seed in zip(seen, seeds, strict=True) if len(batch)]
        pictures = iter(self.arrays.batches(plan, self.device))
        for number, augmented in enumerate(seen):
            parts = []
            if len(augmented):
                with autocast(self.device, how):
                    parts.append(self.student.trunk(next(pictures), how.trainable))
            if kept is not None and len(augmented) < sizes[number]:
                parts.append(kept.index_select(0, places[number][len(augmented) :]))
            yield torch.cat(parts) if len(parts) > 1 else parts[0], of[number]

    @torch.no_grad()
    def _frozen(self, rows: np.ndarray, how: SessionTraining) -> Tensor:
        with autocast(self.device, how):
            batches = self.arrays.batches(clean_plan(rows, AT_ONCE), self.device)
            return torch.cat([self.student.trunk(x, how.trainable) for x in batches])

    def _batches(self, rows: np.ndarray, how: SessionTraining) -> Iterable[np.ndarray]:
        """All rows in every step, or batches of them in random order, epoch after epoch."""
        size = min(how.batch_size or len(rows), len(rows))
        if size == len(rows):
            return [rows] * how.steps
        random = np.random.default_rng([self.seed, self.session, len(self.log), ORDER])
        a_time = len(rows) // size
        epochs = [random.permutation(rows)[: a_time * size] for _ in range(-(-how.steps // a_time))]
        return np.concatenate(epochs).reshape(-1, size)[: how.steps]

    def _finish(self, how: SessionTraining, losses: list[float], trained: list[nn.Parameter]) -> None:
        self.log.append({"session": self.session, "steps": how.steps, "first_loss": losses[0], "last_loss": losses[1]})
        if not torch.stack([p.isfinite().all() for p in trained]).all():
            raise FloatingPointError(
                f"session {self.session}: the network is not finite after {how.steps} steps; the model is as it was "
                f"before. Try a learning rate below {how.learning_rate}."
            )


def make_optimiser(groups: list[dict[str, Any]], how: SessionTraining) -> torch.optim.Optimizer:
    """A new one, for one training."""
    fused = True if groups[0]["params"][0].is_cuda else None
    if how.optimiser == "adam":
        return torch.optim.Adam(groups, lr=how.learning_rate, fused=fused)
    return torch.optim.SGD(groups, lr=how.learning_rate, momentum=how.momentum, nesterov=how.nesterov, fused=fused)


def autocast(device: torch.device, how: SessionTraining) -> Any:
    """bf16 on CUDA, where it is wanted."""
    on = device.type == "cuda" and how.mixed_precision == "bf16"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=on)


@contextmanager
def gradients_of(parameters: Sequence[nn.Parameter], model: Model) -> Iterator[None]:
    """Gradients of these parameters alone, with the model in eval mode; of none afterwards."""
    model.eval().requires_grad_(False)
    try:
        for parameter in parameters:
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(False)
            parameter.grad = None
