"""What a project holds at one version, as a value that never changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gptree.embed import Item, Store, embed, encoder_of
from gptree.estimators import load_model
from gptree.incremental import Entry
from gptree.project.answers import Answers, answers_of, labels_of
from gptree.project.examples import Example, from_lines
from gptree.project.folder import EXAMPLES, MODEL, STORE, Record, read_record, stored_digest
from gptree.project.quality import Quality
from gptree.project.rows import Listed, vector_description
from gptree.storage import StorageError
from gptree.tree import ClassTree


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One version of a project, for whoever looks at it while it goes on changing.

    Attributes
    ----------
    version : int
    classes : tuple of labels
        In the order of arrival.
    counts : tuple of int
        Examples that each was taught with.
    sessions : tuple of int
        The number of the session that brought each class; 0 is the first fit.
    tree : ClassTree or None
        The first tree of the model; leaves are numbers of classes.
    journal : tuple of Entry
        What happened to the model.
    answers : Answers
        About the pool and the test rows.
    quality : Quality or None
        On the test rows; None without any, see `Project.quality`.
    """

    version: int
    classes: tuple[Any, ...]
    counts: tuple[int, ...]
    sessions: tuple[int, ...]
    tree: ClassTree | None
    journal: tuple[Entry, ...]
    answers: Answers
    quality: Quality | None


@dataclass(frozen=True, eq=False)
class State:
    """Record, examples in the order of arrival, their vectors (n, d), and the model."""

    record: Record
    examples: Mapping[str, Example]
    X: np.ndarray
    model: Any

    @cached_property
    def place(self) -> dict[str, int]:
        """The row of every id."""
        return {name: row for row, name in enumerate(self.examples)}

    @property
    def journal(self) -> tuple[Entry, ...]:
        return () if self.model is None else self.model.journal_

    def vectors(self, ids: Sequence[str]) -> np.ndarray:
        return self.X[[self.place[name] for name in ids]]

    def asked(self) -> tuple[list[Example], np.ndarray]:
        """Examples of the pool and the test rows, which the model is asked about, and their vectors."""
        rows = [each for each in self.examples.values() if each.split != "taught"]
        return rows, self.vectors([each.id for each in rows])

    def answers(
        self, version: int | None, progress: Callable[[int, int], None] | None = None
    ) -> tuple[Answers, Quality | None]:
        """Answers about the pool and the test rows, computed anew."""
        return answers_of(self.model, *self.asked(), self.record.reject, version, progress)

    def labels(self) -> Answers:
        """The same without novelty, which comes sooner."""
        return labels_of(self.model, *self.asked(), self.record.version)

    def snapshot(self, answers: Answers, quality: Quality | None) -> Snapshot:
        model, classes = self.model, () if self.model is None else tuple(self.model.classes_.tolist())
        taught = [each.label for each in self.examples.values() if each.split == "taught"]
        session = {
            label: i for i, labels in enumerate([] if model is None else model.sessions_) for label in labels.tolist()
        }
        return Snapshot(
            version=self.record.version,
            classes=classes,
            counts=_counts(taught, classes),
            sessions=tuple(session[label] for label in classes),
            tree=None if model is None else model.tree_,
            journal=self.journal,
            answers=answers,
            quality=quality,
        )


def _counts(taught: Sequence[Any], classes: Sequence[Any]) -> tuple[int, ...]:
    number = dict.fromkeys(classes, 0)
    for label in taught:
        if label in number:
            number[label] += 1
    return tuple(number.values())


def shelf(record: Record) -> dict[str, Any]:
    """What the vectors of a project are stored under."""
    return record.encoder or vector_description(record.dimension or 1)


def load_state(folder: Path) -> State:
    """What a folder holds; the caller has its lock, and no change is pending."""
    record = read_record(folder)
    examples = from_lines(folder / EXAMPLES)
    model = load_model(folder / MODEL) if stored_digest(folder) is not None else None
    return State(record, MappingProxyType(examples), _vectors(folder, record, examples), model)


def _vectors(folder: Path, record: Record, examples: Mapping[str, Example]) -> np.ndarray:
    """The vectors of all examples, from the store; those it lacks are encoded again."""
    if not examples:
        return np.zeros((0, record.dimension or 1), dtype=np.float32)
    store, keys = Store(folder / STORE), {bytes.fromhex(each.key) for each in examples.values()}
    found = store.find(shelf(record), list(keys))
    if len(found) < len(keys):
        lost = {each.key: each for each in examples.values() if bytes.fromhex(each.key) not in found}
        found |= _encoded_again(folder, record, store, lost)
    return np.stack([found[bytes.fromhex(each.key)] for each in examples.values()])


def _encoded_again(folder: Path, record: Record, store: Store, lost: Mapping[str, Example]) -> dict[bytes, np.ndarray]:
    items = [
        Item(e.id, e.text if e.text is not None else folder / e.source) for e in lost.values() if e.text or e.source
    ]
    trouble = (
        f"{folder / STORE} lacks the vectors of {len(lost):,} examples, the first {next(iter(lost.values())).id!r}"
    )
    if record.encoder is None or not items:
        raise StorageError(f"{trouble}: put the folder back.")
    again = embed(Listed(items, record.kind, folder), encoder_of(record.encoder), store=store)
    found = {bytes.fromhex(key): x for key, x in zip(again.keys, again.X, strict=True)}
    if found.keys() < {bytes.fromhex(key) for key in lost}:
        raise StorageError(f"{trouble}, and what they were made from has changed or is gone: put it back.")
    return found
