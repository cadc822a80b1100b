"""`Arrays`: inputs in memory, their checks, the order of their axes, and the statistics of their channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gptree.deep.data.augment import Augmentation, augmented
from gptree.deep.data.base import Batch, arranged, as_tensor, require_finite, whole
from gptree.settings import require

#: Pictures from which mean and standard deviation of the channels are computed: the standard error of a mean is then
#: about 0.005 in a range of 1, and the work is small for any number of pictures.
STATISTICS_SAMPLE = 2000
#: Numbers checked for NaN at a time: bounds the memory of the check.
CHECKED_AT_ONCE = 2**24


class _Placed(NamedTuple):
    """Inputs on a device; pictures x become x · scale + shift."""

    X: Tensor
    scale: Tensor | None
    shift: Tensor | None


class Arrays:
    """A source of inputs in memory, copied to the device once and kept there; augmented on the device.

    uint8 stays uint8 until a batch is taken, is augmented so, and becomes (x/255 − mean)/std in float32, channel by
    channel. Floats are augmented and otherwise taken as they are. On CUDA pictures come in channels-last memory.

    Parameters
    ----------
    X : array or tensor
        Pictures in uint8, (n, C, H, W), (n, H, W, C) or (n, H, W), with 1, 3 or 4 channels (channels first where both
        readings are possible), or floats of any shape (n, …).
    augment : sequence of Augmentation
        Of the batches of training, one after the other.
    mean, std : sequence of C floats or None
        Of uint8 pictures; None computes them from a sample of X. Give those of the training source to a source for
        prediction.

    Examples
    --------
    >>> from gptree.deep import Arrays, RandomCrop
    >>> source = Arrays(np.zeros((10, 3, 32, 32), dtype=np.uint8), augment=(RandomCrop(4),))
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
            measured = channel_statistics(self._X) if mean is None or std is None else (mean, std)
            self.mean = channel_values("mean", measured[0] if mean is None else mean, self.shape[0])
            self.std = channel_values("std", measured[1] if std is None else std, self.shape[0])
            require(min(self.std) > 0, f"std must be positive in every channel, got {self.std}.")
        elif mean is not None or std is not None:
            raise ValueError("mean and std are for uint8 pictures; floats are taken as they are: normalise them first.")
        self._placed: dict[torch.device, _Placed] = {}

    def __len__(self) -> int:
        return len(self._X)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._X.shape[1:])

    def rows(self, rows: np.ndarray) -> Tensor:
        """Inputs of some rows as they were given: a copy, not normalised, pictures as (n, C, H, W)."""
        return self._X[torch.from_numpy(np.asarray(rows))].cpu()

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
            return arranged(x)
        return arranged(x, torch.float32).mul_(placed.scale).add_(placed.shift)


def _sent(x: Tensor, device: torch.device) -> Tensor:
    """x on the device; to CUDA through pinned memory, so that the host need not wait for the copy."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


def as_inputs(X: np.ndarray | Tensor) -> Tensor:
    """X as a tensor, not copied; pictures in uint8 seen as (n, C, H, W)."""
    x = X.detach() if isinstance(X, Tensor) else as_tensor(np.asarray(X))
    if x.dtype != torch.uint8 and not x.is_floating_point():
        raise TypeError(f"inputs are pictures in uint8 (0 … 255) or floats, not {x.dtype}: convert them with astype.")
    require(x.dim() >= 2 and x.numel() > 0, f"inputs are (n, …) with n ≥ 1, not of shape {tuple(x.shape)}.")
    if x.dtype == torch.uint8:
        return _channels_first(x)
    size = max(1, CHECKED_AT_ONCE // x[0].numel())
    for first, chunk in zip(range(0, len(x), size), x.split(size), strict=True):
        require_finite(chunk, range(first, first + len(chunk)))
    return x


def _channels_first(x: Tensor) -> Tensor:
    if x.dim() == 3:
        return x[:, None]
    if x.dim() == 4 and x.shape[1] in (1, 3, 4):
        return x
    if x.dim() == 4 and x.shape[3] in (1, 3, 4):
        return x.permute(0, 3, 1, 2)
    raise ValueError(
        f"pictures in uint8 are (n, C, H, W), (n, H, W, C) or (n, H, W) with 1, 3 or 4 channels, not of shape "
        f"{tuple(x.shape)}: reshape them, or give floats."
    )


def channel_statistics(x: Tensor) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, in units of 255, over a sample of evenly spaced pictures.

    From counts of the 256 values, hence without rounding; a channel that is constant is only centred.
    """
    sample = x[:: -(-len(x) // STATISTICS_SAMPLE)]
    counts = torch.stack([sample[:, c].flatten().bincount(minlength=256) for c in range(x.shape[1])]).double().cpu()
    share, value = counts / counts.sum(1, keepdim=True), torch.arange(256, dtype=torch.float64) / 255
    mean = share @ value
    std = (share * (value - mean[:, None]).square()).sum(1).sqrt()
    return mean.tolist(), torch.where(std > 0, std, 1).tolist()


def channel_values(name: str, values: Sequence[float], channels: int) -> tuple[float, ...]:
    """The values as floats, checked to be one for each channel."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.shape != (channels,) or not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be {channels} finite numbers, one a channel, not {values!r}.")
    return tuple(numbers.tolist())
