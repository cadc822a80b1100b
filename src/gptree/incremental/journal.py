"""The journal of operations on classes, and the registry of classes that it leaves.

A journal is a sequence of entries; `replay` reads it from the start and says which classes there are, with which
examples. A grown model is a function of the base session and of this registry alone: a class that was added and
removed again leaves no trace, and taking an entry back is reading the journal without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gptree.experts import weighted_mean
from gptree.experts.examples import stable_order

Kind = Literal["fit", "add_classes", "add_examples", "remove_classes", "rename_class", "merge_classes"]


@dataclass(frozen=True, eq=False)
class Entry:
    """One operation: the labels it was about, and how many examples of each it brought.

    Attributes
    ----------
    kind : str
        "fit" or the name of the operation.
    labels : tuple
    counts : tuple of int
        Examples of each label.
    time : str
        When, ISO 8601 in UTC.
    note : str
    features : (k, d) or None
        Mapped features of the examples, label after label.
    rows : tuple of int
        (k,) where they stood in what was given.
    ids : tuple of str
        (k,) what they are called; of `fit`, one for each row that the model keeps. Empty where nothing was said.
    author : str
        Who did it, if that was said.
    weights : (k,) or None
        How many times each example counts; None is once.
    """

    kind: Kind
    labels: tuple[Any, ...]
    counts: tuple[int, ...] = ()
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    note: str = ""
    features: Tensor | None = None
    rows: tuple[int, ...] = ()
    ids: tuple[str, ...] = ()
    author: str = ""
    weights: Tensor | None = None

    def examples(self, label: Any) -> Tensor:
        """The features of one label."""
        assert self.features is not None
        return self.features[self._part(label)]

    def example_weights(self, label: Any) -> Tensor:
        """How many times each example of one label counts."""
        examples = self.examples(label)
        return examples.new_ones(len(examples)) if self.weights is None else self.weights[self._part(label)]

    def _part(self, label: Any) -> slice:
        at = self.labels.index(label)
        return slice(sum(self.counts[:at]), sum(self.counts[: at + 1]))

    @property
    def y(self) -> list[Any]:
        return [label for label, count in zip(self.labels, self.counts, strict=True) for _ in range(count)]


@dataclass(frozen=True, eq=False)
class NovelClass:
    label: Any
    key: Any
    """Keys of the random choices about the class: its first label, whatever it is called now."""
    session: int
    features: Tensor
    """(n, d), in the order of arrival."""
    weights: Tensor
    """(n,) how many times each counts."""
    arrival: Tensor
    """(n,) how many times it did when it came with the class itself, 0 if it came later: the tree is built from what
    came first, and later examples do not move it."""
    origins: tuple[tuple[int, int], ...]
    """For every row: the number of the journal's entry that brought it, and where it stood in what was given."""

    @cached_property
    def first(self) -> int:
        """Rows that came with the class itself; they stand before the others."""
        return int((self.arrival > 0).sum())

    @cached_property
    def mean(self) -> Tensor:
        """(d,) of these rows."""
        return weighted_mean(self.features[: self.first], self.arrival[: self.first])


@dataclass(frozen=True, eq=False)
class BaseClass:
    label: Any
    number: int
    """Of the base session."""
    extra: Tensor
    """(n, d) examples that came later."""
    weights: Tensor
    """(n,) how many times each counts."""
    origins: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class ClassRegistry:
    """The classes of a model: base classes, then novel ones, each in the order of arrival."""

    base: tuple[BaseClass, ...]
    novel: tuple[NovelClass, ...]
    base_keys: tuple[Any, ...]

    @property
    def labels(self) -> list[Any]:
        return [c.label for c in (*self.base, *self.novel)]

    def base_places(self, n_classes: int) -> np.ndarray:
        """Where each of the classes of the base session stands now, (n_classes,); −1 if it is gone."""
        place = -np.ones(n_classes, dtype=np.int64)
        place[[c.number for c in self.base]] = np.arange(len(self.base))
        return place

    @property
    def base_changed(self) -> bool:
        """Whether base classes are gone, or were given further examples."""
        return len(self.base) < len(self.base_keys) or any(c.origins for c in self.base)

    @property
    def sessions(self) -> list[list[int]]:
        """Places, among the novel classes, of those that each session added and that are still there."""
        places: dict[int, list[int]] = {}
        for i, c in enumerate(self.novel):
            places.setdefault(c.session, []).append(i)
        return [places[number] for number in sorted(places)]


def replay(base_labels: Sequence[Any], journal: Sequence[Entry], width: int, like: Tensor) -> ClassRegistry:
    """What a model holds after a journal; a ValueError says which operation cannot be done and why."""
    nothing = like.new_zeros(0, width)
    base = tuple(BaseClass(label, number, nothing, like.new_zeros(0), ()) for number, label in enumerate(base_labels))
    registry = ClassRegistry(base, (), tuple(base_labels))
    for number, entry in enumerate(journal):
        registry = _OPERATIONS[entry.kind](registry, entry, number)
    return _with_distinct_keys(registry)


def with_classes(registry: ClassRegistry, entry: Entry, number: int) -> ClassRegistry:
    """What `replay` gives after one more entry, of the kind "add_classes", from what it gave before it."""
    return _with_distinct_keys(_add_classes(registry, entry, number))


def _with_distinct_keys(registry: ClassRegistry) -> ClassRegistry:
    """A class that was renamed, or a base class, may have had the label first that a later class came with.

    Only classes that are still there count, and base classes: what was removed leaves no trace in the others' keys.
    """
    taken, novel = set(registry.base_keys), []
    for c in registry.novel:
        key, times = c.key, 1
        while key in taken:
            times += 1
            key = f"{c.key}\x00{times}"
        taken.add(key)
        novel.append(c if key == c.key else replace(c, key=key))
    return replace(registry, novel=tuple(novel))


def _fit(registry: ClassRegistry, entry: Entry, number: int) -> ClassRegistry:
    return registry


def _add_classes(registry: ClassRegistry, entry: Entry, number: int) -> ClassRegistry:
    there = set(registry.labels)
    known = [label for label in entry.labels if label in there]
    if known:
        raise ValueError(
            f"{_named(known)} already known: add_classes takes new labels only. Give further examples of known classes "
            "to add_examples, or remove_classes first."
        )
    added = []
    for label in entry.labels:
        features, weights = entry.examples(label), entry.example_weights(label)
        origins = _origins(entry, label, number)
        added.append(NovelClass(label, label, number, features, weights, weights, origins))
    return replace(registry, novel=(*registry.novel, *added))


def _add_examples(registry: ClassRegistry, entry: Entry, number: int) -> ClassRegistry:
    _check_known(registry, entry.labels, "add_examples takes labels of known classes; teach new ones with add_classes")

    def more(c: Any) -> Any:
        if c.label not in entry.labels:
            return c
        features, weights = entry.examples(c.label), entry.example_weights(c.label)
        shared = {
            "weights": torch.cat([c.weights, weights]),
            "origins": c.origins + _origins(entry, c.label, number),
        }
        if isinstance(c, BaseClass):
            return replace(c, extra=torch.cat([c.extra, features]), **shared)
        arrival = torch.cat([c.arrival, torch.zeros_like(weights)])
        return replace(c, features=torch.cat([c.features, features]), arrival=arrival, **shared)

    return replace(registry, base=tuple(map(more, registry.base)), novel=tuple(map(more, registry.novel)))


def _remove_classes(registry: ClassRegistry, entry: Entry, number: int) -> ClassRegistry:
    if not entry.labels:
        raise ValueError("remove_classes needs at least one class.")
    _check_known(registry, entry.labels, "only known classes can be removed")
    base = tuple(c for c in registry.base if c.label not in entry.labels)
    if not base:
        raise ValueError("at least one class of the base session has to stay: fit a new model instead.")
    return replace(registry, base=base, novel=tuple(c for c in registry.novel if c.label not in entry.labels))


def _rename_class(registry: ClassRegistry, entry: Entry, number: int) -> ClassRegistry:
    old, new = entry.labels
    _check_known(registry, [old], "only a known class can be renamed")
    if new in registry.labels:
        raise ValueError(f"the label {new!r} is taken; merge_classes makes one class of two.")
    return _relabelled(registry, old, new)


def _merge_classes(registry: ClassRegistry, entry: Entry, number: int) -> ClassRegistry:
    *labels, into = entry.labels
    _check_known(registry, labels, "only known classes can be merged")
    if len(set(labels)) < 2:
        raise ValueError("merge_classes needs at least two different classes.")
    if into in registry.labels and into not in labels:
        raise ValueError(f"{into!r} is another class: name it among the classes to merge, or choose a new label.")
    base = [c for c in registry.base if c.label in labels]
    novel = [c for c in registry.novel if c.label in labels]
    if len(base) > 1:
        raise ValueError(
            f"{_named([c.label for c in base])} of the base session, whose nodes are not fitted again: at most one "
            "base class can take part in a merge. Fit a new model with the labels merged."
        )
    if base:  # the base class takes in the examples of the novel ones
        host = base[0]
        merged = replace(
            host,
            extra=torch.cat([host.extra, *(c.features for c in novel)]),
            weights=torch.cat([c.weights for c in (host, *novel)]),
            origins=sum((c.origins for c in novel), host.origins),
        )
        registry = replace(
            registry,
            base=tuple(merged if c is host else c for c in registry.base),
            novel=tuple(c for c in registry.novel if c not in novel),
        )
        return _relabelled(registry, host.label, into)
    host = next((c for c in novel if c.label == into), novel[0])
    guests = [c for c in novel if c is not host]
    arrival = torch.cat([c.arrival for c in (host, *guests)])
    order = stable_order((arrival == 0).long())  # what came first with its class stays first
    origins = sum((c.origins for c in guests), host.origins)
    merged = replace(
        host,
        features=torch.cat([c.features for c in (host, *guests)])[order],
        weights=torch.cat([c.weights for c in (host, *guests)])[order],
        arrival=arrival[order],
        origins=tuple(origins[i] for i in order.tolist()),
    )
    kept = (merged if c is host else c for c in registry.novel if c not in guests)
    return _relabelled(replace(registry, novel=tuple(kept)), host.label, into)


_OPERATIONS = {
    "fit": _fit,
    "add_classes": _add_classes,
    "add_examples": _add_examples,
    "remove_classes": _remove_classes,
    "rename_class": _rename_class,
    "merge_classes": _merge_classes,
}


def _relabelled(registry: ClassRegistry, old: Any, new: Any) -> ClassRegistry:
    def renamed(c: Any) -> Any:
        return replace(c, label=new) if c.label == old else c

    return replace(registry, base=tuple(map(renamed, registry.base)), novel=tuple(map(renamed, registry.novel)))


def _origins(entry: Entry, label: Any, number: int) -> tuple[tuple[int, int], ...]:
    at = entry.labels.index(label)
    start = sum(entry.counts[:at])
    return tuple((number, row) for row in entry.rows[start : start + entry.counts[at]])


def _check_known(registry: ClassRegistry, labels: Sequence[Any], rule: str) -> None:
    there = set(registry.labels)
    unknown = [label for label in labels if label not in there]
    if unknown:
        raise ValueError(f"{_named(unknown)} unknown: {rule}.")


def _named(labels: Sequence[Any]) -> str:
    listed = ", ".join(repr(label) for label in labels[:5]) + (", …" if len(labels) > 5 else "")
    return f"the labels {listed} are" if len(labels) > 1 else f"the label {listed} is"
