"""Frozen records of tensors, plain values and other records that can be stored and restored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from torch import Tensor

State = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and a dictionary that JSON can hold."""


@dataclass(frozen=True, eq=False)
class Serializable:
    """A frozen record of tensors, plain values and other records that can be taken apart and put together again."""

    _kinds: ClassVar[dict[str, type[Serializable]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Serializable._kinds[cls.__name__] = cls

    def __post_init__(self) -> None:
        # as a file would give them back: another memory layout could change the last bits of a product
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Tensor):
                object.__setattr__(self, item.name, value.contiguous())

    def single(self) -> Self:
        """The same in single precision, throughout."""

        def less(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.float() if value.is_floating_point() else value
            if isinstance(value, tuple):
                return tuple(map(less, value))
            return value.single() if isinstance(value, Serializable) else value

        return replace(self, **{item.name: less(getattr(self, item.name)) for item in fields(self)})

    def state(self) -> State:
        """Everything `restore` needs to build it again."""
        tensors: dict[str, Tensor] = {}
        settings: dict[str, Any] = {"kind": type(self).__name__}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Tensor):
                tensors[item.name] = value
            elif isinstance(value, Serializable):
                settings[item.name] = _nest(item.name, value, tensors)
            elif isinstance(value, tuple):
                settings[item.name] = [_nest(f"{item.name}.{k}", part, tensors) for k, part in enumerate(value)]
            else:
                settings[item.name] = value
        return tensors, settings


def _nest(name: str, part: Serializable, tensors: dict[str, Tensor]) -> dict[str, Any]:
    inner, settings = part.state()
    tensors.update({f"{name}.{key}": value for key, value in inner.items()})
    return settings


def restore(tensors: dict[str, Tensor], settings: dict[str, Any]) -> Any:
    """The record whose `state()` this is."""
    kind = Serializable._kinds.get(settings.get("kind", ""))
    if kind is None:
        raise ValueError(f"unknown kind of stored value {settings.get('kind')!r}: import the module that defines it.")
    values: dict[str, Any] = {key: value for key, value in tensors.items() if "." not in key}
    for key, value in settings.items():
        if isinstance(value, dict):
            values[key] = restore(below(key, tensors), value)
        elif isinstance(value, list):
            values[key] = tuple(restore(below(f"{key}.{k}", tensors), part) for k, part in enumerate(value))
        elif key != "kind":
            values[key] = value
    return kind(**values)


def present(prefix: str, /, **tensors: Tensor | None) -> dict[str, Tensor]:
    """The tensors that are not None, named below `prefix`."""
    return {f"{prefix}.{name}": value for name, value in tensors.items() if value is not None}


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors named below `prefix`, without it."""
    start = prefix + "."
    return {key.removeprefix(start): value for key, value in tensors.items() if key.startswith(start)}
