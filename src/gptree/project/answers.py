"""What a model answers about the examples of a project, and what changes between two versions of it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gptree.project.examples import Example
from gptree.project.quality import Quality, quality_of_test
from gptree.storage import StorageError, parse_document, write_atomically

#: What is shown where a row is like no class.
NONE_OF_THESE = "none of these"


class Answer(NamedTuple):
    """The answer about one example.

    Attributes
    ----------
    id : str
    label : label or None
        What is shown: the most probable class, or None for "none of these".
    best : label or None
        The most probable class; None while there is no model.
    probability : float
        Of `best`.
    runner_up : label or None
        What comes second.
    novelty : float
        How strange the row is, from 0 to 1.
    truth : label or None
        The label of a test row.
    """

    id: str
    label: Any
    best: Any
    probability: float
    runner_up: Any
    novelty: float
    truth: Any

    @property
    def shown(self) -> str:
        """The answer as text."""
        return NONE_OF_THESE if self.label is None else str(self.label)


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers about the pool and the test rows, at one version. Nothing in it ever changes.

    Attributes
    ----------
    version : int or None
        None for a preview.
    ids : tuple of str (n,)
    test : ndarray of bool (n,)
        Which of them are test rows.
    truth : tuple (n,)
        Labels of the test rows, None for the others.
    classes : tuple of labels
    keys : tuple of str
        What stands for each class whatever it is called: a renamed class has the key that it had.
    best, second : ndarray of int (n,)
        Numbers of the classes that come first and second; −1 where there is none.
    probability, novelty : ndarray (n,)
    none : ndarray of bool (n,)
        Where the answer is "none of these".
    """

    version: int | None
    ids: tuple[str, ...]
    test: np.ndarray
    truth: tuple[Any, ...]
    classes: tuple[Any, ...]
    keys: tuple[str, ...]
    best: np.ndarray
    second: np.ndarray
    probability: np.ndarray
    novelty: np.ndarray
    none: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Answer]:
        return (self._at(row) for row in range(len(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __getitem__(self, name: str) -> Answer:
        return self._at(self._rows[name])

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}

    def _label(self, number: int) -> Any:
        return None if number < 0 else self.classes[number]

    def _at(self, row: int) -> Answer:
        best = self._label(int(self.best[row]))
        shown = None if self.none[row] else best
        second = self._label(int(self.second[row]))
        return Answer(
            self.ids[row],
            shown,
            best,
            float(self.probability[row]),
            second,
            float(self.novelty[row]),
            self.truth[row],
        )

    def shown_keys(self) -> np.ndarray:
        """(n,) what stands for each shown answer, "" for none of these."""
        names = np.array([*self.keys, ""], dtype=object)
        return names[np.where(self.none, len(self.keys), self.best)]

    def right(self) -> np.ndarray:
        """(n,) whether the shown answer is the label of a test row."""
        found = np.zeros(len(self), dtype=bool)
        for row in np.flatnonzero(self.test & ~self.none).tolist():
            found[row] = self._label(int(self.best[row])) == self.truth[row]
        return found

    # ------------------------------------------------------------------------------------------------------- files

    def save(self, path: Path) -> None:
        """Keep them, so that later versions can be compared."""
        names = {"ids": self.ids, "truth": self.truth, "classes": self.classes, "keys": self.keys}
        file = io.BytesIO()
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        np.savez_compressed(file, names=np.array(json.dumps(names)), **arrays)
        write_atomically(path, file.getvalue())

    @classmethod
    def load(cls, path: Path, version: int) -> Answers:
        """Answers that were kept; a `StorageError` if the file is damaged."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                names = parse_document(str(arrays["names"]), path)
                found = {name: arrays[name] for name in _ARRAYS}
            return cls(version, **{name: tuple(values) for name, values in names.items()}, **found)
        except (OSError, KeyError, ValueError, TypeError) as error:
            raise StorageError(f"{path} is damaged ({error}): remove it.") from None


_CHUNK = 4096  # rows that are answered at a time
_ARRAYS = ("test", "best", "second", "probability", "novelty", "none")


def answers_of(
    model: Any,
    rows: Sequence[Example],
    X: np.ndarray,
    reject: float,
    version: int | None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Answers, Quality | None]:
    """Answers about examples with the vectors X (n, d), and the quality on those that test, if any do.

    `progress` is called with (done, total) where that takes long.
    """
    answers = _unanswered(model, rows, version)
    if model is None or not rows:
        return answers, None
    parts, tested = [], []
    for some in _chunks(len(rows)):
        p, novelty = model.predict_with_novelty(X[some])
        parts.append((*_best_two(p), novelty))
        tested.append(p[answers.test[some]])
        if progress is not None:
            progress(some.stop, len(rows))
    best, second, probability, novelty = map(np.concatenate, zip(*parts, strict=True))
    threshold = model.novelty_threshold(reject)
    shown = {"best": best, "second": second, "probability": probability, "novelty": novelty}
    truth = [label for label, is_test in zip(answers.truth, answers.test, strict=True) if is_test]
    quality = quality_of_test(np.concatenate(tested), truth, answers.classes)
    return replace(answers, **shown, none=novelty > threshold), quality


def labels_of(model: Any, rows: Sequence[Example], X: np.ndarray, version: int | None) -> Answers:
    """Answers without novelty: no row is "none of these" yet. About half the work of `answers_of`, or less."""
    answers = _unanswered(model, rows, version)
    if model is None or not rows:
        return answers
    parts = [_best_two(model.predict_proba(X[some])) for some in _chunks(len(rows))]
    best, second, probability = map(np.concatenate, zip(*parts, strict=True))
    known = np.zeros(len(rows))
    return replace(answers, best=best, second=second, probability=probability, novelty=known, none=known > 0)


def _unanswered(model: Any, rows: Sequence[Example], version: int | None) -> Answers:
    """Everything is none of these."""
    n, test = len(rows), np.array([each.split == "test" for each in rows], dtype=bool)
    truth = tuple(each.label if each.split == "test" else None for each in rows)
    classes = () if model is None else tuple(model.classes_.tolist())
    keys, nothing = () if model is None else class_keys(model), np.full(n, -1)
    return Answers(
        *(version, tuple(each.id for each in rows), test, truth, classes, keys),
        *(nothing, nothing, np.zeros(n), np.ones(n), np.ones(n, dtype=bool)),
    )


def _chunks(n: int) -> list[slice]:
    return [slice(start, min(start + _CHUNK, n)) for start in range(0, n, _CHUNK)]


def _best_two(p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers (n,) of the classes that come first and second (−1 where there is none), and the larger probability."""
    best, sure = p.argmax(1), p.max(1)
    if p.shape[1] == 1:
        return best, np.full(len(p), -1), sure
    others = p.copy()
    others[np.arange(len(p)), best] = -1.0
    return best, others.argmax(1), sure


def class_keys(model: Any) -> tuple[str, ...]:
    """What stands for each class of a model, whatever it is called."""
    registry = model.state_.registry()
    base = [f"fit {registry.base_keys[c.number]}" for c in registry.base]
    return (*base, *(f"{c.key}" for c in registry.novel))


# --------------------------------------------------------------------------------------------------------- changes


class Change(NamedTuple):
    """An answer that is another one now."""

    id: str
    was: Answer
    now: Answer

    @property
    def truth(self) -> Any:
        """The label of a test row, else None."""
        return self.now.truth


@dataclass(frozen=True, eq=False)
class Changes:
    """What changed between two versions, or what a lesson would change.

    Attributes
    ----------
    before, after : int or None
        Versions; after is None for a preview.
    rows : int
        Examples that have an answer in both.
    items : tuple of Change
        The least sure of the new answers first.
    test_rows : int
        How many of the rows test.
    now_right, now_wrong : tuple of str
        Ids of test rows whose answer was wrong and is right, was right and is wrong.
    quality : Quality or None
        On the test rows, after.
    """

    before: int | None
    after: int | None
    rows: int
    items: tuple[Change, ...]
    test_rows: int
    now_right: tuple[str, ...]
    now_wrong: tuple[str, ...]
    quality: Quality | None = None

    def __len__(self) -> int:
        return len(self.items)

    def __str__(self) -> str:
        would = " would change" if self.after is None else " changed"
        text = f"{len(self):,} of {self.rows:,} answers{would}"
        if self.test_rows:
            text += f"; on the {self.test_rows:,} test rows {len(self.now_right):,} now right, "
            text += f"{len(self.now_wrong):,} now wrong"
        return text


def changes(was: Answers, now: Answers, quality: Quality | None = None) -> Changes:
    """What is another answer in `now` than it was; a class under another name is the same answer."""
    common = [name for name in now.ids if name in was]
    rows_was, rows_now = ([answers._rows[name] for name in common] for answers in (was, now))
    differs = was.shown_keys()[rows_was] != now.shown_keys()[rows_now]
    right_was, right_now, test = was.right()[rows_was], now.right()[rows_now], now.test[rows_now]
    items = [Change(common[i], was[common[i]], now[common[i]]) for i in np.flatnonzero(differs)]

    def those(mask: np.ndarray) -> tuple[str, ...]:
        return tuple(common[i] for i in np.flatnonzero(mask & test))

    return Changes(
        before=was.version,
        after=now.version,
        rows=len(common),
        items=tuple(sorted(items, key=lambda each: (each.now.probability, each.id))),
        test_rows=int(test.sum()),
        now_right=those(right_now & ~right_was),
        now_wrong=those(right_was & ~right_now),
        quality=quality,
    )
