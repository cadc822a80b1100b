"""Augmentation: random changes of training pictures, whole batches at once, on the device the pictures are on.

An augmentation is a value that is called with a batch of pictures (B, C, H, W) and uniform numbers (B, columns) in
[0, 1), a row a picture. It draws nothing itself, so the same numbers give the same pictures in every process and on
every device. Pictures keep their size and dtype: uint8 (0 … 255) is rounded and clamped where values are computed,
floats of any scale are not clamped. Nothing here waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from gptree.settings import Settings, require


class Augmentation(Protocol):
    """A random change of pictures. `RandomCrop` and the others are augmentations; so is any class with these."""

    columns: ClassVar[int]
    """Uniform numbers it needs for a picture."""

    def __call__(self, x: Tensor, u: Tensor) -> Tensor: ...


def augmented(x: Tensor, augment: Sequence[Augmentation], u: Tensor) -> Tensor:
    """The pictures (B, C, H, W) after all augmentations, in order; u (B, columns of all) is shared out among them."""
    for augmentation, numbers in zip(augment, u.split([a.columns for a in augment], dim=1), strict=True):
        x = augmentation(x, numbers)
    return x


@dataclass(frozen=True)
class RandomCrop(Settings):
    """Zeros around the picture, and a window of its own size at a random place.

    Parameters
    ----------
    padding : int
        Width of the zeros, in pixels.
    """

    padding: int = 4
    columns: ClassVar[int] = 2

    def __post_init__(self) -> None:
        require(self.padding >= 1, f"padding must be at least 1 pixel, not {self.padding}.")

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        batch, _, height, width = _checked(self, x, u)
        top, left = _integers(u, 2 * self.padding + 1).unbind(1)
        padded = functional.pad(x, (self.padding,) * 4)
        windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view: (B, C, top, left, H, W)
        return windows[torch.arange(batch, device=x.device), :, top, left]


@dataclass(frozen=True)
class RandomFlip(Settings):
    """Left and right exchanged.

    Parameters
    ----------
    probability : float
    """

    probability: float = 0.5
    columns: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(0 <= self.probability <= 1, f"probability must lie in [0, 1], not {self.probability}.")

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        _checked(self, x, u)
        return torch.where(u[:, :, None, None] < self.probability, x.flip(3), x)


@dataclass(frozen=True)
class RandomResizedCrop(Settings):
    """A random box of the picture, enlarged to the picture's size by linear interpolation.

    The box has an area of U(`smallest`, 1) of the picture and a width : height of exp U(log `ratio`), in whole pixels;
    a side that would be longer than the picture's is cut to it. Its place is uniform.

    Parameters
    ----------
    smallest : float
        Least share of the area.
    ratio : (float, float)
        Narrowest and widest width : height.
    """

    smallest: float = 0.2
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    columns: ClassVar[int] = 4

    def __post_init__(self) -> None:
        require(0 < self.smallest <= 1, f"smallest is a fraction of the area in (0, 1], not {self.smallest}.")
        narrow, wide = self.ratio
        require(0 < narrow <= wide, f"ratio must be (narrowest, widest) with 0 < narrowest ≤ widest, not {self.ratio}.")

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        batch, _, height, width = _checked(self, x, u)
        top, left, rows, columns = self.boxes(u, height, width)
        values = _floats(x)
        grid = torch.stack(
            (
                _positions(left, columns, width)[:, None, :].expand(batch, height, width),
                _positions(top, rows, height)[:, :, None].expand(batch, height, width),
            ),
            dim=-1,
        )
        enlarged = functional.grid_sample(values, grid.to(values), mode="bilinear", align_corners=False)
        return _as_before(enlarged, x)

    def boxes(self, u: Tensor, height: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(top, left, rows, columns) of each picture's box, (B,) whole numbers in float64."""
        area, shape, top, left = u.double().unbind(1)  # float64: rounding to pixels then agrees between devices
        area = (self.smallest + (1 - self.smallest) * area) * (height * width)
        narrow, wide = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratio = torch.exp(narrow + (wide - narrow) * shape)
        rows = (area / ratio).sqrt().round().clamp(1, height)
        columns = (area * ratio).sqrt().round().clamp(1, width)
        return (top * (height - rows + 1)).floor(), (left * (width - columns + 1)).floor(), rows, columns


@dataclass(frozen=True)
class ColourJitter(Settings):
    """Brightness, contrast and saturation each times 1 + strength · U(−1, 1), in this order.

    Contrast moves a picture away from or towards its mean grey, saturation each pixel its own grey. Grey is the luma
    of three channels, and the mean of any other number of them (saturation does nothing to one channel).

    Parameters
    ----------
    brightness, contrast, saturation : float
        Strengths in [0, 1].
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    columns: ClassVar[int] = 3

    def __post_init__(self) -> None:
        for name, strength in self.get_params().items():
            require(0 <= strength <= 1, f"{name} is a strength in [0, 1], not {strength}.")

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        _checked(self, x, u)
        values = _floats(x)
        centred = (2 * u.to(values) - 1)[:, :, None, None, None]
        brightness = 1 + self.brightness * centred[:, 0]
        contrast = 1 + self.contrast * centred[:, 1]
        saturation = 1 + self.saturation * centred[:, 2]
        mean = _grey(values).mean((2, 3), keepdim=True)
        values = brightness * torch.lerp(mean, values, contrast)  # = m + c (b x − m) with m the mean grey of b x
        return _as_before(torch.lerp(_grey(values), values, saturation), x)


@dataclass(frozen=True)
class Cutout(Settings):
    """A square of `size` pixels around a random pixel takes the picture's mean colour; it may hang over the edge.

    The mean colour rather than black: the statistics that batch normalisation keeps for prediction, where nothing is
    cut out, then stay right.

    Parameters
    ----------
    size : int
        In pixels.
    """

    size: int = 8
    columns: ClassVar[int] = 2

    def __post_init__(self) -> None:
        require(self.size >= 1, f"size must be at least 1 pixel, not {self.size}.")

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        _, _, height, width = _checked(self, x, u)
        inside_rows = self._covered(u[:, :1], height)[:, None, :, None]
        inside_columns = self._covered(u[:, 1:], width)[:, None, None, :]
        colour = _as_before(_floats(x).mean((2, 3), keepdim=True), x)
        return torch.where(inside_rows & inside_columns, colour, x)

    def _covered(self, u: Tensor, length: int) -> Tensor:
        """Which pixels of a side the square covers, (B, length)."""
        first = _integers(u, length) - self.size // 2
        pixel = torch.arange(length, device=u.device)
        return (pixel >= first) & (pixel < first + self.size)


def _checked(augmentation: Augmentation, x: Tensor, u: Tensor) -> torch.Size:
    name = type(augmentation).__name__
    require(x.dim() == 4, f"{name} takes pictures (B, C, H, W), not a tensor of shape {tuple(x.shape)}.")
    wanted = (len(x), augmentation.columns)
    require(tuple(u.shape) == wanted, f"{name} needs uniform numbers of shape {wanted}, not {tuple(u.shape)}.")
    return x.shape


def _integers(u: Tensor, count: int) -> Tensor:
    """Uniform on 0 … count − 1; the product of a u just below 1 may be rounded up to count."""
    return (u * count).long().clamp_(max=count - 1)


def _positions(first: Tensor, count: Tensor, length: int) -> Tensor:
    """Where the `length` pixels of the result lie in a side of the picture, as `grid_sample` counts; (B, length).

    From the side's first edge, pixel i of the result lies at s = first + count (i + ½)/length, held half a pixel
    inside the box so that nothing outside it is mixed in; the grid counts the side from −1 to 1.
    """
    centres = torch.linspace(0.5 / length, 1 - 0.5 / length, length, dtype=first.dtype, device=first.device)
    first, count = first[:, None], count[:, None]
    s = torch.addcmul(first, count, centres).clamp(first + 0.5, first + count - 0.5)
    return s * (2 / length) - 1


def _grey(x: Tensor) -> Tensor:
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    red, green, blue = x.split(1, dim=1)
    return (0.299 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def _floats(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _as_before(values: Tensor, x: Tensor) -> Tensor:
    """The values in the dtype of the pictures x they were computed from."""
    return values.round().clamp(0, 255).to(x.dtype) if x.dtype == torch.uint8 else values.to(x.dtype)
