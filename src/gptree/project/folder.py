"""The files of a project, and changes of several of them at once.

    project.json      name, kind, encoder, version, which journal the model has, and the versions that can be undone
    model/            the saved model; its journal is the truth about lessons
    examples.jsonl    a line an example, see `Example`
    embeddings/       a `gptree.embed.Store`
    inbox/            pictures that were handed over, named by their content
    events.jsonl      who did what when, and the versions before and after; append-only, not needed to load
    versions/         of each version: what it changed among the examples, and its answers, which may be deleted
    map.npz           the studio's map, which may be deleted

A change writes the new examples beside the old ones, then `change.json`, which says what is to be, then the model, then
moves everything into place. Whoever finds `change.json` finishes the change if the model is already the new one, and
drops it otherwise: after a kill the project is as before or as after. All of it happens under the lock of the folder.
Where examples are forgotten, `change.json` also says what has to go with them from the other files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from gptree.embed import Store
from gptree.incremental import Entry
from gptree.storage import (
    DOCUMENT,
    StorageError,
    clear_left_overs,
    clear_spare,
    ensure,
    parse_document,
    write_atomically,
)

FORMAT, VERSION = "gptree-project", 1
PROJECT, EXAMPLES, EVENTS = "project.json", "examples.jsonl", "events.jsonl"
MODEL, STORE, INBOX, VERSIONS, MAP = "model", "embeddings", "inbox", "versions", "map.npz"
_CHANGE, _NEXT = "change.json", "examples.next.jsonl"
_FACTS = ("kind", "labels", "counts", "time", "note", "rows", "ids", "author")


@dataclass(frozen=True)
class Mark:
    """A version whose lesson is still there: how long the journal was after it, and the hash of that."""

    version: int
    entries: int
    digest: str


@dataclass(frozen=True)
class Record:
    """What project.json holds."""

    name: str
    kind: str
    """"image", "text" or "vector"."""
    encoder: dict[str, Any] | None
    """The description of the encoder; None for bare vectors."""
    dimension: int | None
    """Numbers a vector; None while there is none."""
    reject: float
    """The share of known rows that may be called "none of these"."""
    seed: int
    version: int
    model: str | None
    """The hash of the model's journal; None while there is no model."""
    line: tuple[Mark, ...] = ()
    """Versions that can be undone, the oldest first; the first of them is the base session, which cannot."""


@dataclass(frozen=True)
class Event:
    """Who did what when.

    Attributes
    ----------
    version : int
        After it.
    before : int
        The version before.
    time, who, what, note : str
    labels : tuple
        Classes that it was about.
    ids : tuple of str
        Examples that it was about.
    result : str
        What came of it, in a sentence.
    accuracy : float or None
        On the test rows, after it.
    """

    version: int
    before: int
    time: str
    who: str
    what: str
    note: str = ""
    labels: tuple[Any, ...] = ()
    ids: tuple[str, ...] = ()
    result: str = ""
    accuracy: float | None = None


# ---------------------------------------------------------------------------------------------------------- reading


def is_project(folder: Path) -> bool:
    """Whether a folder holds a project."""
    return (folder / PROJECT).is_file()


def read_record(folder: Path) -> Record:
    """What project.json says; a `StorageError` if the folder holds no project."""
    path = folder / PROJECT
    if not path.is_file():
        raise StorageError(f"{folder} holds no project: there is no {PROJECT} in it.")
    document = parse_document(path.read_bytes(), path)
    ensure(isinstance(document, dict) and document.get("format") == FORMAT, f"{path} was not written by gptree.")
    if document.get("format_version") != VERSION:
        raise StorageError(
            f"{folder} holds a project of format version {document.get('format_version')!r:.20}; this gptree reads "
            f"version {VERSION}: install the gptree that wrote it."
        )
    try:
        return _record(document["project"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(f"{path} is damaged ({type(error).__name__}: {error}).") from None


def _record(values: Mapping[str, Any]) -> Record:
    record = Record(**{**values, "line": tuple(Mark(**mark) for mark in values["line"])})
    numbers = (record.version, record.seed, *(m.version for m in record.line), *(m.entries for m in record.line))
    if not all(type(number) is int and number >= 0 for number in numbers) or not 0 < record.reject < 1:
        raise ValueError("a number is out of its range")
    texts = (record.name, record.kind, *(m.digest for m in record.line))
    if not all(isinstance(text, str) for text in texts) or not isinstance(record.model, str | None):
        raise ValueError("a text is missing")
    if not isinstance(record.encoder, dict | None) or not isinstance(record.dimension, int | None):
        raise ValueError("the encoder is none")
    return record


def journal_digest(journal: Iterable[Entry | Mapping[str, Any]]) -> str:
    """A hash of what happened to a model, from its journal or from that of its document."""
    plain = [
        [entry[name] if isinstance(entry, Mapping) else getattr(entry, name) for name in _FACTS] for entry in journal
    ]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:32]


def stored_digest(folder: Path) -> str | None:
    """The hash of the journal of the model in a project; None if there is none."""
    path = folder / MODEL / DOCUMENT
    if not path.is_file():
        return None
    document = parse_document(path.read_bytes(), path)
    journal = document.get("journal") if isinstance(document, dict) else None
    ensure(isinstance(journal, list), f"{path} is damaged: there is no journal.")
    return journal_digest([{**dict.fromkeys(_FACTS), **entry} for entry in journal])  # pyright: ignore


def read_events(folder: Path) -> tuple[Event, ...]:
    """All events; lines that a kill tore are left out."""
    path, found = folder / EVENTS, []
    names = {each.name for each in fields(Event)}
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            values = parse_document(line, path)
        except StorageError:
            continue
        if isinstance(values, dict) and values.keys() == names:
            found.append(Event(**{**values, "labels": tuple(values["labels"]), "ids": tuple(values["ids"])}))
    return tuple(found)


def version_file(folder: Path, version: int) -> Path:
    """What a version changed among the examples."""
    return folder / VERSIONS / f"{version:06}.json"


def read_version(folder: Path, version: int) -> dict[str, Any]:
    """Entries and hash of the journal at a version, and `before`: split and label of the examples that it changed."""
    path = version_file(folder, version)
    if not path.is_file():
        raise ValueError(f"there is no version {version} in {folder}.")
    document = parse_document(path.read_bytes(), path)
    sound = isinstance(document, dict) and document.keys() == {"entries", "digest", "before"}
    ensure(sound and isinstance(document["before"], dict), f"{path} is damaged.")
    return document


# ---------------------------------------------------------------------------------------------------------- writing


def commit(
    folder: Path,
    record: Record,
    event: Event,
    lines: str | None,
    model: Any,
    version: Mapping[str, Any],
    forgotten: Mapping[str, Any] | None = None,
) -> None:
    """Write a change; the caller holds the lock.

    Parameters
    ----------
    record, event : after the change.
    lines : the new examples.jsonl; None leaves it as it is.
    model : the changed estimator; None leaves the stored one as it is.
    version : see `read_version`.
    forgotten : what has to go from other files, see `_scrub`; None for nothing.
    """
    (folder / VERSIONS).mkdir(exist_ok=True)
    clear_left_overs(folder)
    write_atomically(version_file(folder, record.version), json.dumps(dict(version)))
    if lines is not None:
        write_atomically(folder / _NEXT, lines)
    change = {"record": asdict(record), "event": asdict(event), "examples": lines is not None, "forgotten": forgotten}
    change["was"] = None if model is None else _document(folder)
    write_atomically(folder / _CHANGE, json.dumps(change, allow_nan=False))
    try:
        if model is not None:
            model.save(folder / MODEL)
    except BaseException:
        if not _is_done(folder, change):
            _drop(folder)
        raise
    _finish(folder, change)


def recover(folder: Path) -> None:
    """Finish or drop a change that was interrupted; the caller holds the lock."""
    path = folder / _CHANGE
    clear_left_overs(folder)
    if not path.is_file():
        return
    change = {"was": None, "forgotten": None, **parse_document(path.read_bytes(), path)}
    if _is_done(folder, change):
        _finish(folder, change)
    else:
        _drop(folder)


def _is_done(folder: Path, change: Mapping[str, Any]) -> bool:
    """Whether the model is already the one that a change is to leave."""
    is_new = change["was"] is None or change["was"] != _document(folder)
    return is_new and stored_digest(folder) == change["record"]["model"]


def _document(folder: Path) -> str:
    """A hash of the model's document, which names its arrays by their content."""
    path = folder / MODEL / DOCUMENT
    return hashlib.sha256(path.read_bytes() if path.is_file() else b"").hexdigest()


def _scrub(folder: Path, forgotten: Mapping[str, Any]) -> None:
    """Take forgotten examples out of events, versions, store and inbox; doing it again does no harm."""
    ids = set(forgotten["ids"])
    events = (asdict(replace(each, ids=tuple(i for i in each.ids if i not in ids))) for each in read_events(folder))
    write_atomically(folder / EVENTS, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in events))
    for path in (folder / VERSIONS).glob("*.json"):
        then = read_version(folder, int(path.stem))
        entries, digest = forgotten["versions"].get(str(int(path.stem)), (then["entries"], then["digest"]))
        before = {name: value for name, value in then["before"].items() if name not in ids}
        write_atomically(path, json.dumps({"entries": entries, "digest": digest, "before": before}))
    for path in [*(folder / VERSIONS).glob("*.npz"), folder / MAP, *(folder / name for name in forgotten["files"])]:
        path.unlink(missing_ok=True)
    clear_left_overs(folder / VERSIONS)
    Store(folder / STORE).drop([bytes.fromhex(key) for key in forgotten["keys"]])
    if (folder / MODEL).is_dir():
        clear_spare(folder / MODEL)


def _finish(folder: Path, change: Mapping[str, Any]) -> None:
    if change["forgotten"] is not None:
        _scrub(folder, change["forgotten"])
    if change["examples"] and (folder / _NEXT).is_file():
        os.replace(folder / _NEXT, folder / EXAMPLES)
    document = {"format": FORMAT, "format_version": VERSION, "project": change["record"]}
    write_atomically(folder / PROJECT, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    if not any(event.version == change["event"]["version"] for event in read_events(folder)[-1:]):
        _append(folder / EVENTS, json.dumps(change["event"], ensure_ascii=False))
    (folder / _CHANGE).unlink(missing_ok=True)


def _append(path: Path, line: str) -> None:
    with path.open("ab") as file:
        torn = file.tell() > 0 and path.read_bytes()[-1:] != b"\n"
        file.write((b"\n" if torn else b"") + line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _drop(folder: Path) -> None:
    (folder / _NEXT).unlink(missing_ok=True)
    (folder / _CHANGE).unlink(missing_ok=True)


def with_mark(record: Record, version: int, journal: Sequence[Entry]) -> Record:
    """The record of a version that brought something to the journal."""
    digest = journal_digest(journal)
    return replace(record, version=version, model=digest, line=(*record.line, Mark(version, len(journal), digest)))
