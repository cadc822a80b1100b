"""Frozen records of tensors, plain values and other records that can be stored and restored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from gptree.storage.errors import StorageError, ensure
from gptree.storage.fields import Array, Number, Part, Sizes, agree, bare, conforms, declared, rule

State = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and a dictionary that JSON can hold."""


@dataclass(frozen=True, eq=False)
class Serializable:
    """A frozen record of tensors, plain values and other records that can be taken apart and put together again.

    What its fields must be is declared in their annotations; see `gptree.storage.fields`.
    """

    _kinds: ClassVar[dict[str, type[Serializable]]] = {}
    fixed_sizes: ClassVar[Mapping[str, int]] = {}
    """Sizes that all records of the class have, by their letters."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Serializable._kinds[cls.__name__] = cls

    def __post_init__(self) -> None:
        # as a file would give them back: another memory layout could change the last bits of a product
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Tensor):
                object.__setattr__(self, item.name, value.contiguous())

    def check(self, name: str, sizes: Sizes) -> None:
        """Raise a `StorageError` unless fields that were read from a file fit each other, beyond what they declare."""

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


def restore(tensors: Mapping[str, Tensor], settings: Any, sizes: Sizes | None = None, name: str = "record") -> Any:
    """The record whose `state()` this is, checked against what its class declares (see `gptree.storage.fields`).

    Parameters
    ----------
    tensors, settings : dict
        As `state` gives them.
    sizes : dict, optional
        Sizes that are known, such as C and d; those that the record had first are added.
    name : str
        For messages.

    Raises
    ------
    StorageError
        If it is not such a record.
    """
    sizes = {} if sizes is None else sizes
    ensure(isinstance(settings, dict), f"{name} is no stored record.")
    kind = Serializable._kinds.get(str(settings.get("kind")))
    if kind is None or kind.state is not Serializable.state:  # others say that they cannot be stored
        raise StorageError(
            f"{name}: unknown kind of stored value {settings.get('kind')!r:.80}: import the module that defines it."
        )
    for letter, size in kind.fixed_sizes.items():
        agree(name, sizes, letter, size)
    hints = declared(kind)
    values = {
        item.name: _restored_field(name, item.name, hints.get(item.name, Any), tensors, settings, sizes)
        for item in fields(kind)
        if item.default is not None or item.name in tensors or item.name in settings  # what a file may lack
    }
    names = {key.partition(".")[0] for key in tensors} | (settings.keys() - {"kind"})
    ensure(names <= values.keys(), f"{name} has the unknown parts {sorted(names - values.keys())!r:.80}.")
    precisions = {value.dtype for value in values.values() if isinstance(value, Tensor) and value.is_floating_point()}
    ensure(len(precisions) <= 1, f"{name} has arrays of different precisions.")
    record = kind(**values)
    record.check(name, sizes)
    return record


def _restored_field(
    record: str, name: str, annotation: Any, tensors: Mapping[str, Tensor], settings: Mapping[str, Any], sizes: Sizes
) -> Any:
    """One field of a record."""
    label = f"{record}.{name}"
    stated, kind = rule(annotation), bare(annotation)
    if name in tensors:
        ensure(name not in settings and conforms(tensors[name], kind), f"{label} is an array, but should be none.")
        if isinstance(stated, Array):
            return stated.check(label, tensors[name], sizes)
        finite = not tensors[name].is_floating_point() or bool(torch.isfinite(tensors[name]).all())
        ensure(finite, f"{label} holds numbers that are not finite.")
        return tensors[name]
    ensure(name in settings, f"{label} is missing.")
    value, part = settings[name], stated if isinstance(stated, Part) else Part()
    if isinstance(value, dict):
        value = _restored_part(label, below(name, tensors), value, part, sizes)
    elif isinstance(value, list):
        parts = enumerate(value)
        value = tuple(_restored_part(f"{label}.{k}", below(f"{name}.{k}", tensors), v, part, sizes) for k, v in parts)
        if part.count is not None:
            agree(label, sizes, part.count, len(value))
    ensure(conforms(value, kind), f"{label} is a {type(value).__name__}, which it cannot be.")
    return stated.check(label, value) if isinstance(stated, Number) and value is not None else value


def _restored_part(label: str, tensors: Mapping[str, Tensor], settings: Any, part: Part, sizes: Sizes) -> Any:
    within = part.sizes(sizes)
    value = restore(tensors, settings, within, label)
    part.take(label, within, sizes)
    return value


def present(prefix: str, /, **tensors: Tensor | None) -> dict[str, Tensor]:
    """The tensors that are not None, named below `prefix`."""
    return {f"{prefix}.{name}": value for name, value in tensors.items() if value is not None}


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors named below `prefix`, without it."""
    start = prefix + "."
    return {key.removeprefix(start): value for key, value in tensors.items() if key.startswith(start)}
