"""Inputs of a deep classifier as a source of `gptree.deep`, and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import column_or_1d
from torch import Tensor, nn
from torch.utils.data import Dataset

from gptree.deep import Arrays, Augmentation, FromDataset, Source, require_shape
from gptree.deep.data.arrays import as_inputs
from gptree.deep.data.base import as_tensor
from gptree.deep.loop.evaluation import precision_of
from gptree.estimators.validation import check_targets, to_numpy
from gptree.settings import require


@dataclass(frozen=True)
class Inputs:
    """What inputs were at fit, and others have to be."""

    shape: tuple[int, ...]
    """Of one input."""
    mean: tuple[float, ...] | None
    """Of the channels of pictures in uint8, as is `std`; floats are not normalised."""
    std: tuple[float, ...] | None
    dtype: str
    """That the network computes in; floats in memory are brought to it."""

    @classmethod
    def of(cls, source: Source, dtype: str) -> Inputs:
        return cls(source.shape, *_statistics(source), dtype)

    def source(self, X: Any) -> Source:
        """Inputs of this kind, normalised as those at fit were; others are an error."""
        if self.mean is not None and not _is_source(X):
            X = _in_memory(X, self.dtype)
            if X.dtype == torch.uint8 and as_inputs(X).shape[1:] == self.shape:
                X = Arrays(X, mean=self.mean, std=self.std)
        source = as_source(X, self.dtype)
        found, wanted = _statistics(source), (self.mean, self.std)
        known = isinstance(source, Arrays | FromDataset)  # how another source normalises is its author's business
        if known and (found == (None, None)) != (wanted == (None, None)):
            fitted = "floats" if self.mean is None else "pictures in uint8, which it normalises,"
            raise ValueError(f"the model was fitted to {fitted} and cannot take the other kind.")
        require_shape(source, self.shape)
        require(
            not known or found == wanted,
            f"pictures must be normalised as those at fit were: give the array, or Arrays(X, mean={self.mean}, "
            f"std={self.std}).",
        )
        return source


def dtype_of(network: nn.Module) -> str:
    """The dtype that a network computes in, by name."""
    return str(precision_of(network) or torch.get_default_dtype()).removeprefix("torch.")


def as_source(X: Any, dtype: str, augment: Sequence[Augmentation] = ()) -> Source:
    """A source as it is, a data set as one, and everything else as inputs in memory, floats in the dtype."""
    if not _is_source(X):
        x = _in_memory(X, dtype)
        require(
            x.dtype != torch.uint8 or dtype == "float32",
            f"pictures in uint8 become float32, but the network computes in {dtype}: give floats, or backbone.float().",
        )
        return Arrays(x, augment)
    require(
        not augment,
        "augment is for inputs in memory: put random changes into the transform of the data set, and the data without "
        "them into FromDataset(dataset, clean=…); or give Arrays(X, augment=…).",
    )
    return FromDataset(X) if isinstance(X, Dataset) else X


def labels_of(source: Source, y: Any) -> np.ndarray:
    """The labels given, or those that the source has; (n,)."""
    y = source.labels if y is None else column_or_1d(to_numpy(y))
    require(y is not None, "there are no labels: give y, or a data set of (x, label).")
    check_targets(np.asarray(y))
    return np.asarray(y)


def class_numbers(labels: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Where each label stands among the sorted `known` ones, of which it must be one; (n,)."""
    numbers = np.searchsorted(known, labels).clip(max=len(known) - 1)
    unknown = np.flatnonzero(known[numbers] != labels)
    require(not len(unknown), f"labels for validation that are not trained on: {labels[unknown][:5].tolist()}.")
    return numbers


def _is_source(X: Any) -> bool:
    """Whether it is a source or a data set; everything else is taken for inputs in memory."""
    return isinstance(X, Dataset) or hasattr(X, "batches")


def _in_memory(X: Any, dtype: str) -> Tensor:
    """A tensor, not copied unless floats have to be brought to the dtype."""
    x = X if isinstance(X, Tensor) else as_tensor(np.asarray(X))
    return x.to(getattr(torch, dtype)) if x.is_floating_point() else x


def _statistics(source: Source) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    return (source.mean, source.std) if isinstance(source, Arrays) else (None, None)
