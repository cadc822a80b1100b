"""Raw inputs in memory: their checks, the order of their axes, and the statistics of their channels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gptree.settings import require

#: Pictures from which mean and standard deviation of the channels are computed: the standard error of a mean is then
#: about 0.005 in a range of 1, and the work is small for any number of pictures.
STATISTICS_SAMPLE = 2000
#: Numbers checked for NaN at a time: bounds the memory of the check.
CHECKED_AT_ONCE = 2**24


def as_inputs(X: np.ndarray | Tensor) -> Tensor:
    """X as a tensor, not copied; pictures in uint8 seen as (n, C, H, W)."""
    x = X.detach() if isinstance(X, Tensor) else as_tensor(np.asarray(X))
    if x.dtype != torch.uint8 and not x.is_floating_point():
        raise TypeError(f"inputs are pictures in uint8 (0 … 255) or floats, not {x.dtype}: convert them with astype.")
    require(x.dim() >= 2 and x.numel() > 0, f"inputs are (n, …) with n ≥ 1, not of shape {tuple(x.shape)}.")
    if x.dtype == torch.uint8:
        return _channels_first(x)
    some = max(1, CHECKED_AT_ONCE // x[0].numel())
    for first, chunk in zip(range(0, len(x), some), x.split(some), strict=True):
        require_finite(chunk, range(first, first + len(chunk)))
    return x


def as_tensor(X: np.ndarray) -> Tensor:
    if X.dtype.kind not in "fiub":
        raise TypeError(f"inputs are pictures in uint8 (0 … 255) or floats, not an array of {X.dtype}.")
    with warnings.catch_warnings():  # of arrays that must not be written, such as files mapped for reading: we do not
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(X))


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
    found = np.asarray(values, dtype=np.float64)
    if found.shape != (channels,) or not np.isfinite(found).all():
        raise ValueError(f"{name} must be {channels} finite numbers, one a channel, not {values!r}.")
    return tuple(found.tolist())


def require_finite(x: Tensor, rows: Sequence[int]) -> None:
    """Raise naming the first row that holds NaN or infinity; x (len(rows), …)."""
    if not x.isfinite().all():
        bad = int(x.flatten(1).isfinite().all(1).logical_not().nonzero()[0, 0])
        raise ValueError(f"row {rows[bad]} holds NaN or infinite values: repair it or leave it out.")
