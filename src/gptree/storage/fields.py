"""The statement of the format: what each stored array and number must be, next to the field that holds it.

    points: Annotated[Tensor, Array("n d")]
    labels: Annotated[Tensor, Array("n", below="C")]
    sharpness: Annotated[float, Number(above=0)]

Letters are sizes. All fields of a record agree on them, and so do the records that hold each other: C is the number of
classes and d that of features everywhere, unless a `Part` says that a size has another name inside. A size that is not
known beforehand is that of the first array which has it, and at least 1.
"""

from __future__ import annotations

import inspect
import math
import sys
import types
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from gptree.settings import NamedSettings
from gptree.storage.errors import StorageError, ensure

Sizes = dict[str, int]

#: No stored number is larger: products of several of them stay finite.
LARGEST = {torch.float64: 1e30, torch.float32: 1e12}


@dataclass(frozen=True)
class Array:
    """An array of finite numbers.

    Parameters
    ----------
    shape : str
        Sizes by name or number, as in "n d" or "1 V M".
    least, most, above : float, optional
        Bounds of its values; `above` is not reached.
    below : str, optional
        Whole numbers from 0 (or `least`) up to this size, which is not reached.
    whole, truth : bool
        Whole numbers, int64; truth values. Otherwise float64 or float32.
    distinct : bool
        Whether no value comes twice.
    """

    shape: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: str | None = None
    whole: bool = False
    truth: bool = False
    distinct: bool = False

    def check(self, name: str, value: Any, sizes: Sizes) -> Tensor:
        """The value itself; a `StorageError` unless it is such an array. Sizes it has first are added to `sizes`."""
        ensure(isinstance(value, Tensor), f"{name} is missing.")
        whole = self.whole or self.below is not None
        kinds = (torch.bool,) if self.truth else (torch.int64,) if whole else tuple(LARGEST)
        ensure(value.dtype in kinds, f"{name} is of type {value.dtype}, not {' or '.join(map(str, kinds))}.")
        letters = self.shape.split()
        ensure(value.dim() == len(letters), f"{name} has {value.dim()} dimensions, not {len(letters)}.")
        for letter, size in zip(letters, value.shape, strict=True):
            agree(name, sizes, letter, size)
        if value.numel() > 0 and not self.truth:
            self._check_values(name, value, sizes)
        return value

    def _check_values(self, name: str, value: Tensor, sizes: Sizes) -> None:
        low, high = (end.item() for end in value.aminmax())  # NaN, if there is one
        if value.is_floating_point():
            limit = LARGEST[value.dtype]
            ensure(-limit <= low and high <= limit, f"{name} holds {low} … {high}, which no model has.")
        least = 0 if self.least is None and self.below is not None else self.least
        ensure(least is None or low >= least, f"{name} holds {low}, less than {least}.")
        ensure(self.above is None or low > self.above, f"{name} holds {low}, not above {self.above}.")
        ensure(self.most is None or high <= self.most, f"{name} holds {high}, more than {self.most}.")
        if self.below is not None:
            size = sizes[self.below]
            ensure(high < size, f"{name} holds {high}, but there are {size} ({self.below}).")
        ensure(not self.distinct or len(value.unique()) == value.numel(), f"{name} holds a number twice.")


def check_precision(name: str, value: Tensor) -> None:
    """A `StorageError` unless matrices (…, n, n) are I + (positive semi-definite), up to rounding."""
    eye = torch.eye(value.shape[-1], dtype=value.dtype, device=value.device)
    slack = (1e3 * torch.finfo(value.dtype).eps * value.diagonal(dim1=-2, dim2=-1).amax(-1)).clamp_min(1e-6)
    sound = not bool(torch.linalg.cholesky_ex(value - (1 - slack[..., None, None]) * eye).info.any())
    ensure(sound, f"{name} is not I + (positive semi-definite).")


@dataclass(frozen=True)
class Number:
    """A finite number, or a whole one, within bounds; `above` is not reached."""

    least: float = -1e30
    most: float = 1e30
    above: float = -math.inf
    whole: bool = False

    def check(self, name: str, value: Any, sizes: Sizes | None = None) -> Any:
        """The value itself; a `StorageError` unless it is such a number."""
        kinds = int if self.whole else (int, float)
        ensure(isinstance(value, kinds) and not isinstance(value, bool), f"{name} is {value!r:.80}, not a number.")
        within = self.least <= value <= self.most and value > self.above
        ensure(within, f"{name} is {value!r:.80}, which no model has.")
        return value


#: Whole numbers that count something, and seeds.
COUNT = Number(least=0, most=2**62, whole=True)


class Part:
    """A record inside another one, or a tuple of them, some of whose sizes have another name outside.

    ``Part(C="B")`` is a record over B classes; ``Part(count="K")`` a tuple of K records.
    """

    def __init__(self, *, count: str | None = None, **names: str) -> None:
        self.count, self.names = count, {"C": "C", "d": "d"} | names

    def sizes(self, outside: Sizes) -> Sizes:
        """The sizes that are known inside."""
        return {within: outside[name] for within, name in self.names.items() if name in outside}

    def take(self, label: str, within: Sizes, outside: Sizes) -> None:
        """Sizes that the record inside had first."""
        for name, other in self.names.items():
            if name in within:
                agree(label, outside, other, within[name])


def agree(label: str, sizes: Sizes, name: str, size: int) -> None:
    """A `StorageError` unless a size, by name or a number, is what it is elsewhere."""
    known = int(name) if name.isdecimal() else sizes.get(name)
    if known is None:
        ensure(size >= 1, f"{label} is empty.")
        sizes[name] = size
    else:
        ensure(known == size, f"{label} has the size {size} where {name} is {known}.")


@cache
def declared(kind: type) -> Mapping[str, Any]:
    """The annotations of a class's fields, with what is declared about them; without those that cannot be read."""
    hints = {}
    for base in reversed(kind.__mro__):
        names = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
        for name, annotation in inspect.get_annotations(base).items():
            alone = type(base.__name__, (), {"__annotations__": {name: annotation}})
            with suppress(NameError, TypeError):  # names that only a type checker sees
                hints |= get_type_hints(alone, names, include_extras=True)
    return hints


def rule(annotation: Any) -> Any:
    """What is declared about a field: an `Array`, a `Number`, a `Part`, or None."""
    extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((extra for extra in extras if isinstance(extra, Array | Number | Part)), None)


def bare(annotation: Any) -> Any:
    """The type of a field."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def conforms(value: Any, annotation: Any) -> bool:
    """Whether a value is of an annotated type; annotations that are not understood are taken to be right."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return conforms(value, inner[0])
    if origin in (Union, types.UnionType):
        return any(conforms(value, each) for each in inner)
    if origin is Literal:
        return any(value == each and type(value) is type(each) for each in inner)
    if origin in (tuple, list):
        if not isinstance(value, tuple | list):
            return False
        each = inner[:1] * len(value) if origin is list or inner[-1:] == (Ellipsis,) else inner
        return len(each) == len(value) and all(map(conforms, value, each))
    if annotation is None or annotation is type(None):
        return value is None
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if annotation is bool:
        return value in (False, True) and isinstance(value, int)
    kind: Any = annotation if isinstance(annotation, type) and annotation is not Any else object
    if isinstance(value, str) and issubclass(kind, NamedSettings):
        return value in kind.names()
    return getattr(kind, "_is_protocol", False) or isinstance(value, kind)


def check_types(kind: type, values: Mapping[str, Any]) -> None:
    """A `StorageError` unless values are of the types that the class declares for its fields of these names."""
    hints = declared(kind)
    for name, value in values.items():
        if name in hints and not conforms(value, hints[name]):
            raise StorageError(f"{name} of a stored {kind.__name__} is {value!r:.80}.")
