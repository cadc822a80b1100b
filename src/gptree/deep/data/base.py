"""The interface of sources: batches of row numbers, plans of batches, and what all sources share.

A source is asked for a plan, a list of batches of row numbers, and gives the inputs of each on a device. What it gives
for a batch depends on the batch alone, not on the batches before it, on the number of processes that share it or on
the number of loading workers: training may stop and go on anywhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gptree.settings import require

#: Keys that set the uses of one seed apart.
SPLIT, _ORDER, _STEP, FIRST_LAYER = range(4)


@dataclass(frozen=True, eq=False)
class Batch:
    """One global batch: the rows that all processes handle together in one step.

    Parameters
    ----------
    rows : int array (B,)
        Row numbers of the source.
    seed : int or None
        Keys the random numbers of the augmentation; None is for the clean inputs.
    """

    rows: np.ndarray
    seed: int | None = None

    def __post_init__(self) -> None:
        rows = np.asarray(self.rows)
        require(
            rows.ndim == 1 and (np.issubdtype(rows.dtype, np.integer) or rows.size == 0),
            f"rows must be a vector of row numbers, not an array of {rows.dtype} with shape {rows.shape}.",
        )
        require(self.seed is None or self.seed >= 0, f"the seed of a batch must not be negative, got {self.seed}.")
        object.__setattr__(self, "rows", rows.astype(np.int64))

    def rows_of(self, part: Callable[[int], slice], count: int) -> np.ndarray:
        """The rows of one process, after a check that all rows exist among `count`."""
        if self.rows.size and not 0 <= self.rows.min() <= self.rows.max() < count:
            raise ValueError(f"rows {self.rows.min()} … {self.rows.max()} asked of a source of {count} rows.")
        return np.ascontiguousarray(self.rows[part(len(self.rows))])


def spread(count: int, most: int) -> np.ndarray:
    """At most so many of the numbers 0 … count − 1, from the first to the last."""
    return np.unique(np.linspace(0, count - 1, most).astype(int))


def whole(count: int) -> slice:
    """The part of a process that works alone: all of a batch."""
    return slice(0, count)


class Source(Protocol):
    """Inputs of a network by row number. `Arrays` and `FromDataset` are sources; so is any class with these methods."""

    def __len__(self) -> int: ...

    @property
    def labels(self) -> np.ndarray | None:
        """(n,) raw labels, where the source has them."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one clean input: (C, H, W) for pictures."""
        ...

    def batches(
        self, plan: Sequence[Batch], device: torch.device, part: Callable[[int], slice] = whole
    ) -> Iterator[Tensor]:
        """For each batch the inputs of its rows [part(number of rows)], on the device, in a float dtype."""
        ...


def require_shape(source: Source, fitted: tuple[int, ...]) -> None:
    """Raise unless the inputs of the source have the shape of those at fit."""
    shape = source.shape
    if shape == fitted:
        return
    if len(shape) == len(fitted) == 3 and shape[0] != fitted[0]:
        raise ValueError(f"the pictures have {shape[0]} channels, those at fit had {fitted[0]}: convert them.")
    if len(shape) == len(fitted) == 3:
        sizes = f"{shape[1]} × {shape[2]} pixels, those at fit had {fitted[1]} × {fitted[2]}"
        raise ValueError(f"the pictures have {sizes}: resize them.")
    raise ValueError(f"the inputs have shape {shape}, those at fit had {fitted}.")


# ------------------------------------------------------------------------------------------------------------ plans


def epoch_plan(rows: np.ndarray, batch_size: int, seed: int, epoch: int) -> list[Batch]:
    """Full batches of the rows in random order; fewer rows than a batch are left over and left out."""
    order = np.random.default_rng([seed, _ORDER, epoch]).permutation(rows)
    steps = len(rows) // batch_size
    batches = order[: steps * batch_size].reshape(steps, -1)
    return [Batch(rows, key(seed, _STEP, epoch, step)) for step, rows in enumerate(batches)]


def clean_plan(rows: np.ndarray, at_once: int) -> list[Batch]:
    """All rows in their order, without augmentation."""
    return [Batch(rows[first : first + at_once]) for first in range(0, len(rows), at_once)]


def key(seed: int, *purpose: int) -> int:
    """A seed for one purpose."""
    words = np.random.SeedSequence([seed, *purpose]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))  # fits every generator's signed 64 bits


# ---------------------------------------------------------------------------------------------------------- tensors


def as_tensor(X: np.ndarray) -> Tensor:
    if X.dtype.kind not in "fiub":
        raise TypeError(f"inputs are pictures in uint8 (0 … 255) or floats, not an array of {X.dtype}.")
    with warnings.catch_warnings():  # of arrays that must not be written, such as files mapped for reading: we do not
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(X))


def require_finite(x: Tensor, rows: Sequence[int]) -> None:
    """Raise naming the first row that holds NaN or infinity; x (len(rows), …)."""
    if not x.isfinite().all():
        bad = int(x.flatten(1).isfinite().all(1).logical_not().nonzero()[0, 0])
        raise ValueError(f"row {rows[bad]} holds NaN or infinite values: repair it or leave it out.")


def arranged(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Dense memory; pictures on CUDA channels last, the order its convolutions are fastest in."""
    order = torch.channels_last if x.is_cuda and x.dim() == 4 else torch.contiguous_format
    return x.to(dtype or x.dtype, memory_format=order).contiguous(memory_format=order)
