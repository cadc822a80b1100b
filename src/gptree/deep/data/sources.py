"""Where a network's inputs come from: arrays in memory, or the items of a data set.

A source is asked for a plan, a list of batches of row numbers, and gives the inputs of each on a device. What it gives
for a batch depends on the batch alone, not on the batches before it, on the number of processes that share it or on
the number of loading workers: training may stop and go on anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from gptree.deep.data.augment import Augmentation, augmented
from gptree.deep.data.inputs import as_inputs, as_tensor, channel_statistics, channel_values, require_finite
from gptree.settings import require

#: Items whose labels are compared with those that a data set keeps apart.
ITEMS_COMPARED = 16


@dataclass(frozen=True, eq=False)
class Batch:
    """One global batch: the rows that all processes handle together in one step."""

    rows: np.ndarray
    """(B,) row numbers of the source."""
    seed: int | None = None
    """Keys the random numbers of the augmentation; None: the clean inputs."""

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
    found = source.shape
    if found == fitted:
        return
    if len(found) == len(fitted) == 3 and found[0] != fitted[0]:
        raise ValueError(f"the pictures have {found[0]} channels, those at fit had {fitted[0]}: convert them.")
    if len(found) == len(fitted) == 3:
        sizes = f"{found[1]} × {found[2]} pixels, those at fit had {fitted[1]} × {fitted[2]}"
        raise ValueError(f"the pictures have {sizes}: resize them.")
    raise ValueError(f"the inputs have shape {found}, those at fit had {fitted}.")


class _Placed(NamedTuple):
    """What is kept on a device; pictures x become x · scale + shift."""

    X: Tensor
    scale: Tensor | None
    shift: Tensor | None


class Arrays:
    """Inputs in memory, copied to the device once and kept there; augmented on the device.

    `X` is pictures in uint8, (n, C, H, W), (n, H, W, C) or (n, H, W), with 1, 3 or 4 channels (channels first where
    both readings are possible), or floats of any shape (n, …). uint8 stays uint8 until a batch is taken, is augmented
    so, and becomes (x/255 − mean)/std in float32, channel by channel. `mean` and `std` are those of a sample of X
    unless given; give those of the training source to a source for prediction. Floats are augmented and otherwise
    taken as they are. On CUDA pictures come in channels-last memory.
    """

    labels: np.ndarray | None = None

    def __init__(
        self,
        X: np.ndarray | Tensor,
        augment: Sequence[Augmentation] = (),
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        self._X = as_inputs(X)
        if not isinstance(augment, Sequence) or not all(hasattr(each, "columns") for each in augment):
            raise TypeError(f"augment is a sequence of augmentations, such as (RandomCrop(4),), not {augment!r}.")
        self.augment = tuple(augment)
        require(
            not self.augment or self._X.dim() == 4,
            f"augmentation takes pictures (n, C, H, W), not floats of shape {tuple(self._X.shape)}.",
        )
        self.mean: tuple[float, ...] | None = None
        self.std: tuple[float, ...] | None = None
        if self._X.dtype == torch.uint8:
            found = channel_statistics(self._X) if mean is None or std is None else (mean, std)
            self.mean = channel_values("mean", found[0] if mean is None else mean, self.shape[0])
            self.std = channel_values("std", found[1] if std is None else std, self.shape[0])
            require(min(self.std) > 0, f"std must be positive in every channel, got {self.std}.")
        elif mean is not None or std is not None:
            raise ValueError("mean and std are for uint8 pictures; floats are taken as they are: normalise them first.")
        self._placed: dict[torch.device, _Placed] = {}

    def __len__(self) -> int:
        return len(self._X)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._X.shape[1:])

    def batches(
        self, plan: Sequence[Batch], device: torch.device, part: Callable[[int], slice] = whole
    ) -> Iterator[Tensor]:
        placed = self._on(device)
        columns = sum(augmentation.columns for augmentation in self.augment)
        for batch in plan:
            rows = batch.rows_of(part, len(self))
            x = placed.X.index_select(0, _sent(torch.from_numpy(rows), device))
            if batch.seed is not None and columns:
                # for the whole batch, then cut: every process sees the numbers it would see alone
                u = np.random.default_rng(batch.seed).random((len(batch.rows), columns), dtype=np.float32)
                u = np.ascontiguousarray(u[part(len(batch.rows))])
                x = augmented(x, self.augment, _sent(torch.from_numpy(u), device))
            yield self._finished(x, placed)

    def _on(self, device: torch.device) -> _Placed:
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if device not in self._placed:
            scale = shift = None
            if self.mean is not None and self.std is not None:
                mean, std = torch.tensor([self.mean, self.std], dtype=torch.float64)[:, :, None, None]
                scale, shift = (1 / (255 * std)).float().to(device), (-mean / std).float().to(device)
            self._placed[device] = _Placed(self._X.to(device), scale, shift)
        return self._placed[device]

    def _finished(self, x: Tensor, placed: _Placed) -> Tensor:
        if placed.scale is None or placed.shift is None:
            return _arranged(x)
        return _arranged(x, torch.float32).mul_(placed.scale).add_(placed.shift)


class FromDataset:
    """The items (x, label), or x alone, of a map-style data set; x is floats, of one shape in a batch.

    `clean` is the same data without augmentation, by default `dataset` itself. While an item is made, the global
    random numbers of torch, numpy and `random` are keyed by the batch's seed and the item's row, and restored
    afterwards. `workers` processes load ahead; they start with every plan, so long plans are better than many short
    ones.
    """

    def __init__(self, dataset: Dataset, clean: Dataset | None = None, workers: int = 0) -> None:
        self.dataset, self.clean, self.workers = dataset, dataset if clean is None else clean, workers
        require(workers >= 0, f"workers must not be negative, got {workers}.")
        self._length = _length(self.dataset)
        require(
            _length(self.clean) == self._length,
            f"dataset has {self._length} items and clean {_length(self.clean)}: they must be the same data.",
        )

    def __len__(self) -> int:
        return self._length

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(_input_of(self._first, 0).shape)

    @property
    def labels(self) -> np.ndarray | None:
        return self._labels

    @cached_property
    def _labels(self) -> np.ndarray | None:
        """Those the data set keeps in `targets`, as torchvision's do; else every item is read once for its label."""
        if not isinstance(self._first, tuple | list):
            return None
        stored = _stored_labels(self.clean)
        if stored is not None and self._agrees(stored):
            return stored
        keys = ([(row, None) for row in range(first, min(first + 64, len(self)))] for first in range(0, len(self), 64))
        return np.array([label for labels in self._load(keys, _labels_of) for label in labels])

    def _agrees(self, stored: np.ndarray) -> bool:
        """Whether items from the first to the last have the labels stored."""
        rows = spread(len(self), ITEMS_COMPARED).tolist()
        (labels,) = self._load([[(row, None) for row in rows]], _labels_of)
        return labels == stored[rows].tolist()

    def batches(
        self, plan: Sequence[Batch], device: torch.device, part: Callable[[int], slice] = whole
    ) -> Iterator[Tensor]:
        keys = ([(row, batch.seed) for row in batch.rows_of(part, len(self)).tolist()] for batch in plan)
        for x in self._load(keys, _stacked, pin=device.type == "cuda"):
            x = x if len(x) else x.new_empty((0, *self.shape))
            yield _arranged(x.to(device, non_blocking=True))

    @cached_property
    def _first(self) -> Any:
        return _KeyedItems(self.dataset, self.clean)[0, None][1]

    def _load(self, keys: Iterable[list], collate: Callable[[list], Any], pin: bool = False) -> Iterable:
        return DataLoader(
            _KeyedItems(self.dataset, self.clean),
            batch_sampler=keys,
            collate_fn=collate,
            num_workers=self.workers,
            pin_memory=pin,
            generator=torch.Generator(),  # or the loader would draw from the global one
        )


class _KeyedItems(Dataset):
    """(row, item) by (row, seed): the clean item where the seed is None."""

    def __init__(self, dataset: Any, clean: Any) -> None:
        self.dataset, self.clean = dataset, clean

    def __getitem__(self, key: tuple[int, int | None]) -> tuple[int, Any]:
        row, seed = key
        with _keyed_randomness(row, seed):
            return row, (self.clean if seed is None else self.dataset)[row]


@contextmanager
def _keyed_randomness(row: int, seed: int | None) -> Iterator[None]:
    """Transforms draw from global generators: key them, and put them back as they were.

    The generator of torch is set by itself, since `torch.manual_seed` would also set those of accelerators.
    """
    states = random.getstate(), np.random.get_state(), torch.default_generator.get_state()  # noqa: NPY002
    key = np.random.SeedSequence([0, row] if seed is None else [1, row, seed]).generate_state(3)
    random.seed(int(key[0]))
    np.random.seed(key[1])  # noqa: NPY002
    torch.default_generator.manual_seed(int(key[2]))
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.default_generator.set_state(states[2])


def _stacked(items: list[tuple[int, Any]]) -> Tensor:
    """The inputs of (row, item) pairs, (B, …)."""
    inputs = [_input_of(item, row) for row, item in items]
    for (row, _), x in zip(items, inputs, strict=True):
        if x.shape != inputs[0].shape:
            raise ValueError(
                f"the data set gives shape {tuple(inputs[0].shape)} for row {items[0][0]} and {tuple(x.shape)} for row "
                f"{row}: bring all to one shape in its transform."
            )
    x = torch.stack(inputs) if inputs else torch.empty(0)
    require_finite(x, [row for row, _ in items])
    return x


def _labels_of(items: list[tuple[int, Any]]) -> list:
    return [_label_of(item) for _, item in items]


def _input_of(item: Any, row: int) -> Tensor:
    x = item[0] if isinstance(item, tuple | list) else item
    if isinstance(x, np.ndarray):
        x = as_tensor(x)
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = f"a tensor of {x.dtype}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise TypeError(f"row {row} of the data set is {kind}: turn it into a tensor of floats in its transform.")
    return x


def _label_of(item: Any) -> Any:
    return item[1].item() if isinstance(item[1], Tensor | np.generic) else item[1]


def _stored_labels(dataset: Any) -> np.ndarray | None:
    """The labels that a data set, or the one it is a subset of, keeps in `targets`; None where it keeps none."""
    rows: Any = slice(None)
    while isinstance(dataset, Subset):
        rows = np.asarray(dataset.indices)[rows]
        dataset = dataset.dataset
    targets = getattr(dataset, "targets", None)
    if targets is None or getattr(dataset, "target_transform", None) is not None:
        return None
    targets = np.asarray(targets)
    return targets[rows] if targets.shape == (_length(dataset),) else None


def _length(dataset: Any) -> int:
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized) or not hasattr(dataset, "__getitem__"):
        raise TypeError(f"{type(dataset).__name__} is no map-style data set: it needs __len__ and __getitem__.")
    require(len(dataset) > 0, "the data set has no items.")
    return len(dataset)


def _sent(x: Tensor, device: torch.device) -> Tensor:
    """x on the device; to CUDA through pinned memory, so that the host need not wait for the copy."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


def _arranged(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Dense memory; pictures on CUDA channels last, the order its convolutions are fastest in."""
    order = torch.channels_last if x.is_cuda and x.dim() == 4 else torch.contiguous_format
    return x.to(dtype or x.dtype, memory_format=order).contiguous(memory_format=order)
