"""`Task`: data and settings of a training, checked. Nothing here changes while it runs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.deep.data.base import SPLIT, Batch, Source, require_shape
from gptree.deep.heads.base import DeepHead, HeadSettings, Problem
from gptree.deep.settings import Training
from gptree.settings import require


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a source, and their classes."""

    source: Source
    rows: np.ndarray
    y: np.ndarray
    """(len(rows),) class numbers."""


@dataclass(frozen=True, eq=False)
class Task:
    """Data and settings of a training.

    Attributes
    ----------
    learned : Rows
    held_out : Rows or None
        Not trained on, of the source or given beside it: measured as training goes on, and to calibrate in the end.
    """

    learned: Rows
    held_out: Rows | None
    labels: list[Any]
    training: Training
    head: HeadSettings[DeepHead]
    kernel: Kernel
    tree: Any
    seed: int

    @classmethod
    def checked(
        cls,
        source: Source,
        y: np.ndarray,
        labels: Sequence[Any],
        validation: tuple[Source, np.ndarray] | None,
        *,
        training: Training,
        **others: Any,
    ) -> Task:
        """Everything that can be wrong with data and settings shows here, before any work is done."""
        y, labels = _class_numbers(source, y, labels), list(labels)
        require(len(labels) >= 2, f"training needs at least two classes, got the labels {labels}.")
        require(others["seed"] >= 0, f"the seed must not be negative, got {others['seed']}.")
        rows, kept = split_rows(y, labels, training.validation, others["seed"])
        held_out = Rows(source, kept, y[kept]) if len(kept) else None
        if validation is not None:
            require(
                held_out is None,
                "validation rows are given, or set aside by Training(validation=…): set that to None.",
            )
            require_shape(validation[0], source.shape)
            classes = _class_numbers(validation[0], validation[1], labels)
            require(len(classes) > 0, "validation has no rows.")
            held_out = Rows(validation[0], np.arange(len(classes)), classes)
            missing = np.setdiff1d(np.arange(len(labels)), classes)
            if training.calibrate and len(missing):
                warnings.warn(
                    f"the rows to calibrate on have none of {[labels[c] for c in missing[:5]]}: how sure predictions "
                    "are is chosen without them. Give some of every class, or set Training(calibrate=False).",
                    UserWarning,
                    stacklevel=3,
                )
        require(
            training.best == "last" or held_out is not None,
            f"best={training.best!r} needs rows to measure: set Training(validation=…), or give validation.",
        )
        require(
            len(rows) >= training.batch_size,
            f"{len(rows)} rows to train on are less than one batch of {training.batch_size}: set a smaller batch_size.",
        )
        return cls(Rows(source, rows, y[rows]), held_out, labels, training, **others)

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return len(self.learned.rows) // self.training.batch_size

    def check_batches(self, processes: int) -> None:
        """Raise unless batches can be shared out among so many processes."""
        size = self.training.batch_size
        require(
            size % processes == 0, f"a batch of {size} rows cannot be cut into equal parts for {processes} processes."
        )
        self.training.objective.check_inputs(self.learned.source.shape, size // processes)

    def classes(self, plan: Sequence[Batch], device: torch.device) -> Tensor:
        """(steps, B) the classes of an epoch's batches: one transfer for all of them."""
        at = np.searchsorted(self.learned.rows, np.stack([batch.rows for batch in plan]))
        return torch.as_tensor(self.learned.y[at], device=device)

    # ------------------------------------------------------------------------------------------------- the head

    @property
    def problem(self) -> Problem:
        return Problem(self.learned.y, self.labels, self.kernel, self.tree, self.seed)

    def rehearse(self, width: int) -> None:
        """Make a head for one made-up embedding a class: what is wrong with tree, kernel or settings shows now."""
        embeddings = torch.randn(len(self.labels), width, generator=torch.Generator().manual_seed(0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.head.new_head(embeddings, replace(self.problem, y=np.arange(len(self.labels))))

    def new_head(self, embeddings: Tensor) -> DeepHead:
        """The head that training starts with, from the embeddings of all rows that are learned."""
        return self.head.new_head(embeddings, self.problem)


def split_rows(
    y: np.ndarray, labels: Sequence[Any], validation: float | int | None, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows for training and rows for validation, both in ascending order.

    Parameters
    ----------
    y : int array (n,)
        Class numbers.
    labels : sequence of C labels
    validation : float, int or None
        A share of every class, rounded and at least two rows, one of a class with fewer than four; a number of rows of
        every class; or none.
    seed : int
    """
    counts = np.bincount(y, minlength=len(labels))
    if validation is None:
        wanted = np.zeros_like(counts)
    elif isinstance(validation, float):
        wanted = np.maximum(np.where(counts < 4, 1, 2), np.rint(validation * counts).astype(np.int64))
    else:
        wanted = np.full_like(counts, validation)
    short = np.flatnonzero(counts <= wanted)
    if len(short):
        names = ", ".join(f"{labels[c]!r} ({counts[c]} rows)" for c in short[:5]) + (", …" if len(short) > 5 else "")
        asked = "" if validation is None else f" beside those for validation={validation}"
        raise ValueError(
            f"{len(short)} classes have no row to train on{asked}: {names}. Give more rows, fewer of them to "
            "validation, or leave the classes out of the labels."
        )
    order = np.random.default_rng([seed, SPLIT]).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]  # class after class, random within
    place = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    held_out = place < np.repeat(wanted, counts)
    return np.sort(order[~held_out]), np.sort(order[held_out])


def _class_numbers(source: Source, y: np.ndarray, labels: Sequence[Any]) -> np.ndarray:
    y = np.asarray(y)
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise TypeError(f"y must be a vector of class numbers, not an array of {y.dtype} with shape {y.shape}.")
    require(len(y) == len(source), f"the source has {len(source)} rows and y {len(y)}.")
    if y.size and not 0 <= y.min() <= y.max() < len(labels):
        raise ValueError(f"class numbers lie in 0 … {len(labels) - 1}, got {y.min()} … {y.max()}.")
    return y.astype(np.int64)
