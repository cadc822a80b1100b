"""How examples come into a project: its first version, and imports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gptree.embed import Encoder, Failure, Item, Store, encoder, encoder_of
from gptree.embed.encoders import DEFAULTS, describes
from gptree.embed.vectors import Names
from gptree.project.examples import Example, Split
from gptree.project.folder import Record, with_mark
from gptree.project.lessons import forest
from gptree.project.rows import Listed, Progress, Rows, array_rows, free_name, gathered, held_out, plain
from gptree.project.state import State


@dataclass(frozen=True)
class Imported:
    """What came of an import.

    Attributes
    ----------
    ids : tuple of str
        Of the new examples.
    known : tuple of str
        Ids that were there already, with the same content.
    failed : tuple of Failure
        What was left out, and why.
    """

    ids: tuple[str, ...]
    known: tuple[str, ...]
    failed: tuple[Failure, ...]

    def __str__(self) -> str:
        text = f"{len(self.ids):,} new examples"
        text += f", {len(self.known):,} known ones" if self.known else ""
        if self.failed:
            text += f"; {len(self.failed):,} left out, the first {self.failed[0].id}: {self.failed[0].reason}"
        return text


@dataclass(frozen=True)
class Given:
    """Data as they were given to a project, and what their parts are called.

    Attributes
    ----------
    data : path, Collection, array (n, d) or list of texts
    features : str or None
    labels, ids : str, values or None
    """

    data: Any
    features: str | None = None
    labels: Any = None
    ids: Any = None

    def rows(
        self, encoder_for: Callable[[str], Encoder], store: Store, progress: Progress, kind: str | None = None
    ) -> Rows:
        """Vectors, encoded where they have to be and kept in the store."""
        data = self.data
        labels, ids = (None if isinstance(value, str) else value for value in (self.labels, self.ids))
        if hasattr(data, "ndim") or (isinstance(data, list | tuple) and data and not isinstance(data[0], str)):
            return array_rows(data, labels, ids, store)
        if isinstance(data, list | tuple) and data:
            data = _texts(data, labels, ids)
        elif labels is not None or ids is not None:
            raise ValueError("labels and ids are names of columns here: arrays and lists of texts alone take values.")
        names = Names(self.features, *(each if isinstance(each, str) else None for each in (self.labels, self.ids)))
        return gathered(data, names, encoder_for, kind, store, progress)


def _texts(texts: Any, labels: Any, ids: Any) -> Listed:
    labels = [None] * len(texts) if labels is None else [plain(label) for label in labels]
    ids = list(map(str, range(len(texts)) if ids is None else ids))
    if not len(texts) == len(labels) == len(ids):
        raise ValueError(f"there are {len(texts)} texts, {len(ids)} ids and {len(labels)} labels.")
    return Listed(list(map(Item, ids, texts, labels)), "text", Path("the texts"))


def chosen_encoder(
    given: str | Encoder | None,
    known: Mapping[str, Any] | None,
    is_fixed: bool,
    kind: str,
    weights: str | Path | None = None,
    download: bool = False,
) -> Encoder:
    """The encoder for pictures or texts: the one that was given, else the one that is known; others are refused."""
    if isinstance(given, Encoder):
        found = given
    elif known is not None:
        found = encoder_of(known, weights, download=download)
    elif is_fixed:
        raise ValueError(
            f"{'pictures' if kind == 'image' else 'texts'} have to be encoded here, but this model knows bare vectors: "
            "encode them by the encoder of those vectors, gptree embed DATA --out vectors.npz, and give vectors.npz."
        )
    else:
        found = encoder(given or DEFAULTS[kind], weights, download=download)  # pyright: ignore[reportArgumentType]
    if known is not None and found.describe() != dict(known):
        raise ValueError(f"the encoder {describes(known)} is needed here, not {describes(found.describe())}.")
    return found


def first_state(
    folder: Path, record: Record, rows: Rows | None, tests: Rows | None, model: Any, hold_out: float, author: str
) -> tuple[State, Imported]:
    """The first version, with a model that is fitted to what has a label, unless there is one already."""
    state = State(record, MappingProxyType({}), np.zeros((0, record.dimension or 1), dtype=np.float32), model)
    found = Imported((), (), ())
    if rows is not None:
        state, found = taken_in(state, folder, rows, "pool", author)
        examples = dict(state.examples)
        tested = held_out(rows.keys, rows.labels, hold_out)
        known = None if model is None else _entries(model, rows)
        for row, name in enumerate(rows.ids):
            if examples[name].label is None:
                continue
            if tested[row]:
                examples[name] = replace(examples[name], split="test")
            elif known is None or name in known:
                of_fit = examples[name].label if known is None or known[name] == 0 else None
                examples[name] = replace(examples[name], split="taught", fitted=of_fit)
        state = replace(state, examples=MappingProxyType(examples))
        taught = [each.id for each in examples.values() if each.split == "taught"]
        if model is None and taught:
            model = forest(state.record, state.vectors(taught), [examples[name].label for name in taught], taught)
    if model is not None:
        bare = replace(state.record, version=0, line=())
        state = replace(state, record=with_mark(bare, 1, model.journal_), model=model)
    if tests is not None:
        state, more = taken_in(state, folder, tests, "test", author)
        found = Imported((*found.ids, *more.ids), (*found.known, *more.known), (*found.failed, *more.failed))
    return replace(state, record=replace(state.record, version=1)), found


def _entries(model: Any, rows: Rows) -> dict[str, int]:
    """The ids of rows that a model was fitted to or taught, each with the number of the entry that first brought it.

    A model that keeps a few examples of its base session names those alone. Where as many rows have a label of the base
    session as it was fitted to, they are taken to be those rows.
    """
    journal = model.journal_
    named = {name: number for number, entry in reversed(list(enumerate(journal))) for name in entry.ids}
    fit, given = journal[0], zip(rows.ids, rows.labels, strict=True)
    others = [name for name, label in given if named.get(name, 0) == 0 and plain(label) in fit.labels]
    return named | dict.fromkeys(others, 0) if len(others) == sum(fit.counts) else named


def taken_in(state: State, folder: Path, rows: Rows, split: Split, author: str) -> tuple[State, Imported]:
    """The state with more examples in its pool or among its test rows; the same state if none is new."""
    _check_same_vectors(state, rows)
    examples, new, places, known, failed = dict(state.examples), [], [], [], list(rows.failed)
    taught = {each.key for each in examples.values() if each.split == "taught"}
    for row, name in enumerate(rows.ids):
        label, there = plain(rows.labels[row]), examples.get(name)
        if split == "test" and label is None:
            failed.append(Failure(name, "it has no label to test with"))
        elif split == "test" and rows.keys[row] in taught:
            failed.append(Failure(name, "the same content was taught"))
        elif there is not None and there.key == rows.keys[row]:
            known.append(name)
            if there.label is None and label is not None and there.split == split:
                examples[name] = replace(there, label=label, who=author or there.who)
        else:
            name = free_name(name, examples)
            examples[name] = _example(folder, rows, row, name, split, label, author)
            new.append(name)
            places.append(row)
    found = Imported(tuple(new), tuple(known), tuple(failed))
    if not new and all(examples[name] is state.examples[name] for name in known):
        return state, found
    record = replace(state.record, version=state.record.version + 1)
    if not state.examples and state.model is None:
        record = replace(record, kind=rows.kind, encoder=rows.encoder, dimension=rows.X.shape[1])
    X = np.concatenate([state.X, rows.X[places]]) if state.examples else rows.X[places]
    return State(record, MappingProxyType(examples), X, state.model), found


def _example(folder: Path, rows: Rows, row: int, name: str, split: Split, label: Any, author: str) -> Example:
    source, inside = rows.sources[row], folder.resolve()
    if source and Path(source).is_relative_to(inside):
        source = Path(source).relative_to(inside).as_posix()
    return Example(name, rows.keys[row], source, rows.texts[row], split, label, None, now(), author)


def _check_same_vectors(state: State, rows: Rows) -> None:
    """Complain of vectors of another encoder, or of another length."""
    record = state.record
    if not state.examples and state.model is None:
        return
    if rows.X.shape[1] != record.dimension:
        raise ValueError(f"the rows have {rows.X.shape[1]} numbers, but those of the project have {record.dimension}.")
    if rows.encoder is not None and rows.encoder != record.encoder:
        there = "bare vectors" if record.encoder is None else f"vectors of {describes(record.encoder)}"
        raise ValueError(f"the rows are vectors of {describes(rows.encoder)}, but the project holds {there}.")


def now() -> str:
    """The time, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
