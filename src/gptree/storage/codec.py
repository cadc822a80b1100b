"""Parameters and labels as JSON: settings by the name of their class, never code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Self

import numpy as np
from gpytorch.kernels import Kernel

from gptree.settings import Settings
from gptree.storage.errors import StorageError, ensure
from gptree.storage.fields import check_types

#: Bytes that labels may take beyond what they need: an array of strings is as wide as its dtype says.
SPARE_LABEL_BYTES = 2**20

KERNEL = {"@": "kernel"}  # stands for a kernel object, which is stored beside the parameters


class JsonValue:
    """Mixin for values of the library that write themselves as JSON; known by their class name.

    A subclass outside the library has code of its own, which no file can hold: it is not registered.
    """

    _kinds: ClassVar[dict[str, type[JsonValue]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("gptree."):
            JsonValue._kinds[cls.__name__] = cls

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary; empty unless the class says otherwise."""
        return {}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The value again."""
        return cls(**data)


def encode(name: str, value: Any, inside: bool = False) -> Any:
    """The value of the parameter `name` as JSON; `inside` a settings value there can be no kernel.

    Raises
    ------
    StorageError
        If only code could make the value again.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic():
            return value.item()
        case np.ndarray() | list() | tuple():
            return [encode(name, item, inside) for item in value]
        case Kernel() if not inside:
            return KERNEL
        case np.random.RandomState():
            return None  # the seed drawn from it is stored beside the parameters
    kind = type(value)
    if JsonValue._kinds.get(kind.__name__) is kind:
        return {"@": kind.__name__, **value.to_json()}
    known = Settings.kind(kind.__name__)
    if is_dataclass(value) and known is kind:
        return {"@": kind.__name__} | {f.name: encode(name, getattr(value, f.name), True) for f in fields(value)}
    advice = (
        f"{kind.__name__} was defined again since: set_params({name}=…) to a value of the new class."
        if known is not None and issubclass(kind, Settings)
        else "Apply your own transformer before the estimator, in a Pipeline, and save the two separately."
        if name == "feature_map"
        else "Settings that can be stored are frozen dataclasses that subclass gptree.settings.Settings."
    )
    raise StorageError(
        f"the parameter {name} holds {value!r}, which cannot be stored without code (no pickles are written). {advice}"
    )


def decode(value: Any, settings: Sequence[type] = ()) -> Any:
    """The value that `encode` gave; `settings` are classes of the caller's own."""
    if isinstance(value, list):
        return [decode(item, settings) for item in value]
    if not isinstance(value, dict):
        return value
    name = value.get("@")
    ensure(isinstance(name, str), f"a stored value names no settings: {value!r:.80}.")
    if value == KERNEL:
        return None
    rest = {key: item for key, item in value.items() if key != "@"}
    if name in JsonValue._kinds:
        return JsonValue._kinds[name].from_json(rest)
    kind: Any
    kind = next((kind for kind in settings if kind.__name__ == name), Settings.kind(name))
    if kind is None:
        raise StorageError(
            f"the stored setting {name!r} is unknown here. Import the module that defines it, or hand the class over: "
            f"load_model(folder, settings=[{name}])."
        )
    values = {key: as_tuples(decode(item, settings)) for key, item in rest.items()}
    check_types(kind, values)
    return kind(**values)


def as_tuples(value: Any) -> Any:
    """Lists as the tuples that they were before JSON, also inside others: settings are hashable."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


def check_load_arguments(kernel: Any, settings: Any) -> None:
    """Raise a TypeError unless `kernel` is None or a kernel, and `settings` a sequence of classes."""
    if not isinstance(kernel, Kernel | None):
        raise TypeError(f"kernel must be a GPyTorch kernel like the stored one, not {kernel!r}.")
    if isinstance(settings, type) or not all(isinstance(kind, type) for kind in settings):
        raise TypeError(f"settings is a list of classes of your own, as in settings=[Mine]; got {settings!r}.")


def labels_to_json(labels: np.ndarray) -> dict[str, Any]:
    """Class labels with their dtype."""
    values = labels.tolist()
    if not all(isinstance(value, bool | int | float | str) for value in values):
        raise StorageError("labels must be numbers, strings or booleans to be stored.")
    return {"dtype": labels.dtype.str if labels.dtype.kind != "O" else "object", "values": values}


def labels_from_json(data: Mapping[str, Any], name: str = "classes") -> np.ndarray:
    """The labels that `labels_to_json` wrote: at least one, all different, and of the kind that their dtype says."""
    ensure(isinstance(data, Mapping) and data.keys() == {"dtype", "values"}, f"{name} are no labels.")
    dtype, values = data["dtype"], data["values"]
    ensure(isinstance(values, list) and len(values) > 0, f"{name} are no list of labels.")
    check_labels(values, name)
    if dtype == "object":
        return np.array(values, dtype=object)
    match = re.fullmatch(r"([<>|=])(?:(b)1|([iu])[1248]|(f)[248]|(U)(\d{1,9}))", str(dtype))
    ensure(match is not None, f"{name} have the dtype {dtype!r:.80}, which labels cannot have.")
    assert match is not None
    kind: Any = bool if match[2] else int if match[3] else float if match[4] else str
    ensure({type(value) for value in values} == {kind}, f"{name} are not of the dtype {dtype}.")
    if match[5]:
        width, longest = int(match[6]), max(map(len, values))
        spare = 4 * len(values) * (width - longest)
        ensure(0 <= spare <= SPARE_LABEL_BYTES, f"{name} have the dtype {dtype}; the longest has {longest} letters.")
    labels = np.array(values, dtype=np.dtype(dtype))
    ensure(labels.tolist() == values, f"{name} do not fit the dtype {dtype}.")
    return labels


def check_labels(values: Sequence[Any], name: str) -> None:
    """A `StorageError` unless values are numbers, strings or booleans, and all different."""
    for value in values:
        plain = isinstance(value, bool | int | float | str)
        ensure(
            plain and (not isinstance(value, float) or np.isfinite(value)),
            f"{name} hold {value!r:.80}, which is no label.",
        )
    ensure(len(set(values)) == len(values), f"{name} hold a label twice.")
