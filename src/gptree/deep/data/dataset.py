"""`FromDataset`: the items of a map-style data set of torch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from gptree.deep.data.base import Batch, arranged, as_tensor, require_finite, spread, whole
from gptree.settings import require

#: Items whose labels are compared with those that a data set keeps apart.
ITEMS_COMPARED = 16


class FromDataset:
    """A source of the items (x, label), or x alone, of a map-style data set; x is floats, of one shape in a batch.

    While an item is made, the global random numbers of torch, numpy and `random` are keyed by the batch's seed and the
    item's row, and restored afterwards.

    Parameters
    ----------
    dataset : torch.utils.data.Dataset
        With its augmentation.
    clean : torch.utils.data.Dataset or None
        The same data without augmentation; None is `dataset` itself.
    workers : int
        Processes that load ahead. They start with every plan, so long plans are better than many short ones.

    Examples
    --------
    >>> from gptree.deep import FromDataset
    >>> source = FromDataset(CIFAR10("data", transform=augmented), CIFAR10("data", transform=plain))  # doctest: +SKIP
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
            yield arranged(x.to(device, non_blocking=True))

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
