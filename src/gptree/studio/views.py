"""What the page is told, made of immutable snapshots of a project."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gptree.project import Answers, Changes, Event, Example, Snapshot

#: Examples in one answer, changes that are listed, labels of a side of a decision and of an event.
MOST_EXAMPLES, MOST_CHANGES, MOST_LABELS, MOST_LISTED = 200, 500, 4, 12
NONE_FLAG, TAUGHT_FLAG, TEST_FLAG = 1, 2, 4

Json = dict[str, Any]


def url_key(name: str) -> str:
    """What stands for an id in an address: never a path, whatever the id looks like."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()


@dataclass(frozen=True, eq=False)
class View:
    """A snapshot with what is derived from it for the page.

    Attributes
    ----------
    snapshot : Snapshot
    by_id : mapping
        Examples in the order of arrival.
    model : fitted classifier or None
        Of this version; it is never changed.
    events : tuple of Event
    standing : frozenset of int
        Versions whose change is still there, and that can be gone back to.
    places : ndarray (n, 2) or None
        The map, one row an example; None while it is being drawn.
    """

    snapshot: Snapshot
    by_id: Mapping[str, Example]
    model: Any
    events: tuple[Event, ...]
    standing: frozenset[int]
    places: np.ndarray | None = None

    @property
    def version(self) -> int:
        return self.snapshot.version

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        return tuple(self.by_id.values())

    @cached_property
    def row_of(self) -> dict[str, int]:
        return {example.id: row for row, example in enumerate(self.examples)}

    @cached_property
    def row_of_key(self) -> dict[str, int]:
        return {url_key(example.id): row for row, example in enumerate(self.examples)}

    @cached_property
    def number(self) -> dict[Any, int]:
        """The number of each class."""
        return {label: number for number, label in enumerate(self.answers.classes)}

    @property
    def answers(self) -> Answers:
        return self.snapshot.answers

    @cached_property
    def columns(self) -> Columns:
        return Columns.of(self)

    # ------------------------------------------------------------------------------------------------------- parts

    def classes(self) -> list[Json]:
        """Name, examples that it was learnt from, answers, and the session that brought it, of each class."""
        columns, count = self.columns, len(self.number)
        waiting = (columns.split != TAUGHT) & ~columns.none & (columns.answer >= 0)
        answers = np.bincount(columns.answer[waiting], minlength=count)
        facts = zip(self.snapshot.classes, self.snapshot.counts, answers.tolist(), self.snapshot.sessions, strict=True)
        return [
            {"name": str(label), "taught": taught, "answers": given, "session": session}
            for label, taught, given, session in facts
        ]

    def journal(self) -> list[Json]:
        """What happened, the oldest first."""
        return [
            {
                "version": event.version,
                "what": event.what,
                "labels": [str(label) for label in event.labels[:MOST_LISTED]],
                "label_count": len(event.labels),
                "examples": len(event.ids),
                "time": event.time,
                "author": event.who,
                "note": event.note,
                "result": event.result,
                "accuracy": event.accuracy,
                "standing": event.version in self.standing,
            }
            for event in self.events
        ]

    def counts(self) -> Json:
        split = self.columns.split
        return {
            "examples": len(split),
            **{name: int((split == number).sum()) for number, name in enumerate(SPLITS)},
            "none": int((self.columns.none & (split != TAUGHT)).sum()),
        }

    def example(self, row: int) -> Json:
        """One example as the page shows it."""
        columns, example = self.columns, self.examples[row]
        name = self._name
        return {
            "row": row,
            "id": example.id,
            "key": url_key(example.id),
            "answer": name(columns.answer[row]),
            "p": round(float(columns.p[row]), 4),
            "runner_up": name(columns.second[row]),
            "none": bool(columns.none[row]),
            "novelty": round(float(columns.novelty[row]), 4),
            "given": None if example.label is None else str(example.label),
            "split": example.split,
            "text": example.text,
        }

    def _name(self, number: int) -> str:
        return "" if number < 0 else str(self.answers.classes[number])

    def map(self) -> bytes:
        """Positions and answers: n, version; x, y; class, probability, flags."""
        assert self.places is not None
        columns = self.columns
        flags = NONE_FLAG * columns.none + TAUGHT_FLAG * (columns.split == TAUGHT) + TEST_FLAG * (columns.split == TEST)
        parts = (
            np.array([len(columns.p), self.version], dtype="<u4"),
            self.places[:, 0].astype("<f4"),
            self.places[:, 1].astype("<f4"),
            np.clip(columns.answer, 0, 65535).astype("<u2"),
            np.round(255 * columns.p).astype("u1"),
            flags.astype("u1"),
        )
        return b"".join(part.tobytes() for part in parts)

    # ------------------------------------------------------------------------------------------------------ listing

    def page(
        self,
        *,
        labels: Iterable[str] = (),
        none: bool = False,
        split: str = "",
        text: str = "",
        order: str = "id",
        after: int | None = None,
        limit: int = 50,
    ) -> Json:
        """Examples that fit, in an order, after one of them."""
        columns = self.columns
        fits = np.ones(len(self.examples), dtype=bool)
        if split in SPLITS:
            fits &= columns.split == SPLITS.index(split)
        if none:
            fits &= columns.none
        wanted = set(labels)
        if wanted:
            numbers = [number for label, number in self.number.items() if str(label) in wanted]
            fits &= np.isin(columns.answer, numbers)
            if split != "taught":
                fits &= ~columns.none
        if text:
            fits &= self._holding(text.casefold())
        rows = self._ordered(np.flatnonzero(fits), order)
        start = 0
        if after is not None:
            found = np.flatnonzero(rows == after)
            start = int(found[0]) + 1 if len(found) else len(rows)
        shown = rows[start : start + limit]
        last = int(shown[-1]) if len(shown) and start + limit < len(rows) else None
        return {
            "version": self.version,
            "total": len(rows),
            "examples": [self.example(int(row)) for row in shown],
            "next": last,
        }

    def _holding(self, text: str) -> np.ndarray:
        return np.array([text in each.id.casefold() or text in (each.text or "").casefold() for each in self.examples])

    def _ordered(self, rows: np.ndarray, order: str) -> np.ndarray:
        columns = self.columns
        if order == "strangest":
            return rows[np.argsort(-columns.novelty[rows], kind="stable")]
        if order == "least-sure":
            return rows[np.argsort(columns.p[rows], kind="stable")]
        if order == "newest":
            return rows[::-1]
        return rows[np.argsort(np.array([self.examples[row].id for row in rows], dtype=object), kind="stable")]


SPLITS = ("pool", "taught", "test")
TAUGHT, TEST = 1, 2


@dataclass(frozen=True, eq=False)
class Columns:
    """Answers about all examples, one row each; those that were taught are what they were taught as.

    Attributes
    ----------
    answer, second : ndarray of int (n,)
        Numbers of classes, −1 for none.
    p, novelty : ndarray (n,)
    none : ndarray of bool (n,)
    split : ndarray of int (n,)
        Number in `SPLITS`.
    """

    answer: np.ndarray
    second: np.ndarray
    p: np.ndarray
    novelty: np.ndarray
    none: np.ndarray
    split: np.ndarray

    @classmethod
    def of(cls, view: View) -> Columns:
        answers, examples = view.answers, view.examples
        n = len(examples)
        split = np.array([SPLITS.index(each.split) for each in examples], dtype=int)
        answer = np.array([view.number.get(each.label, -1) for each in examples], dtype=int)
        columns = cls(answer, np.full(n, -1), np.ones(n), np.zeros(n), np.zeros(n, dtype=bool), split)
        rows = np.array([view.row_of[name] for name in answers.ids], dtype=int)
        pairs = (
            (columns.answer, answers.best),
            (columns.second, answers.second),
            (columns.p, answers.probability),
            (columns.novelty, answers.novelty),
            (columns.none, answers.none),
        )
        for mine, theirs in pairs:
            mine[rows] = theirs
        return columns


def changes_json(changes: Changes, view: View, lessons: Sequence[Json] = (), seconds: float = 0.0) -> Json:
    """What changed, numbers first."""
    right, wrong = set(changes.now_right), set(changes.now_wrong)

    def verdict(name: str) -> str:
        return "better" if name in right else "worse" if name in wrong else ""

    rows = []
    for item in changes.items[:MOST_CHANGES]:
        example = view.by_id.get(item.id)
        if example is None:
            continue
        rows.append(
            {
                "id": item.id,
                "key": url_key(item.id),
                "text": example.text,
                "was": item.was.shown,
                "now": item.now.shown,
                "p": round(item.now.probability, 4),
                "given": None if item.truth is None else str(item.truth),
                "verdict": verdict(item.id),
            }
        )
    moved = sum((item.now.label is None) - (item.was.label is None) for item in changes.items)
    none = int(view.columns.none.sum())
    test = {"rows": changes.test_rows, "right": len(right), "wrong": len(wrong)} if changes.test_rows else None
    return {
        "before": changes.before,
        "version": view.version if changes.after is None else changes.after,
        "of": changes.rows,
        "changed": len(changes.items),
        "test": test,
        "none": [none, none + moved] if changes.after is None else [none - moved, none],
        "seconds": round(seconds, 3),
        "lessons": list(lessons),
        "rows": rows,
    }


def explanation_json(explanation: Any, best: Sequence[tuple[Any, float]], view: View) -> Json:
    """Why an example has its answer."""

    def side(labels: Sequence[Any]) -> list[str]:
        return [str(label) for label in labels[:MOST_LABELS]]

    def neighbour(each: Any) -> Json:
        known = view.by_id.get(each.id)
        return {
            "id": each.id,
            "key": None if known is None else url_key(each.id),
            "similarity": round(each.similarity, 4),
            "text": None if known is None else known.text,
        }

    return {
        "label": str(explanation.label),
        "probability": explanation.probability,
        "path": [
            {
                "towards": side(step.towards),
                "away": side(step.away),
                "towards_count": len(step.towards),
                "away_count": len(step.away),
                "probability": step.probability,
            }
            for step in explanation.path
        ],
        "neighbours": [neighbour(each) for each in explanation.neighbours],
        "best": [{"label": str(label), "p": round(float(p), 4)} for label, p in best],
    }


def finite(value: Any) -> Any:
    """The value with None in the place of numbers that JSON cannot say."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
