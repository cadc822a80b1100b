"""Reading a run folder for a report: a damaged line is left out and complained about."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptree.tree import ClassTree

Row = dict[str, Any]
Bin = tuple[float, float, int]  # mean confidence, accuracy, count

_ALWAYS = ("accuracy", "base_accuracy", "nll", "ece", "seconds_add", "seconds_predict")  # numbers that every row has
_SOMETIMES = ("novel_accuracy", "harmonic_mean", "forgetting", "open_auroc", "bytes")  # a number or null


@dataclass(frozen=True)
class Detail:
    """The last session of one method and seed."""

    seed: int
    reliability: list[Bin]  # without empty bins
    confusion: list[tuple[Any, Any, int]]  # true label, predicted label, how often
    labels: list[Any]
    novel: list[bool]  # of each label
    tree: ClassTree | None


@dataclass(frozen=True)
class Run:
    """Sound rows and details by method, and complaints about the rest."""

    data: str
    rows: dict[str, list[Row]]  # one a seed and session
    details: dict[str, list[Detail]]
    complaints: list[str]

    @property
    def methods(self) -> list[str]:
        return list(self.rows)

    @property
    def all_rows(self) -> list[Row]:
        return [row for rows in self.rows.values() for row in rows]

    @property
    def n_sessions(self) -> int:
        return 1 + max(row["session"] for row in self.all_rows)

    def complete(self) -> list[Row]:
        """The rows of those methods and seeds that have all sessions."""
        incomplete = self.incomplete()
        return [row for row in self.all_rows if (row["method"], row["seed"]) not in incomplete]

    def incomplete(self) -> dict[tuple[str, int], int]:
        """How many sessions a method and seed has, where it has not all."""
        count, n_sessions = Counter((row["method"], row["seed"]) for row in self.all_rows), self.n_sessions
        return {key: n for key, n in count.items() if n < n_sessions}


def read_run(folder: Path) -> Run:
    """Read a run folder; a `ValueError` says why there is nothing to report on."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: make a run with gptree fscil DATA --out {folder}.")
    if not (folder / "rows.jsonl").is_file():
        raise ValueError(f"{folder} has no rows.jsonl: it is not the folder of a run; gptree fscil makes one.")
    complaints: list[str] = []
    sound: dict[tuple[str, int, int], Row] = {}
    for place, line in _lines(folder / "rows.jsonl"):
        try:
            row = _checked_row(line)
        except (ValueError, TypeError, KeyError) as error:
            complaints.append(f"{place} was left out: {_why(error)}.")
            continue
        key = (row["method"], row["seed"], row["session"])
        if key in sound:
            complaints.append(f"{place} repeats {key[0]}, seed {key[1]}, session {key[2]}: the later row counts.")
        sound[key] = row
    if not sound:
        first = f" ({len(complaints)} damaged lines; the first: {complaints[0]})" if complaints else ""
        raise ValueError(f"{folder / 'rows.jsonl'} has no usable row{first}: run gptree fscil again.")
    data = sorted({row["data"] for row in sound.values()})
    if len(data) > 1:
        raise ValueError(f"A report is about one data set; the rows are about {', '.join(data)}.")
    rows: dict[str, list[Row]] = {}
    for (method, *_), row in sound.items():
        rows.setdefault(method, []).append(row)
    details: dict[str, list[Detail]] = {method: [] for method in rows}
    for place, line in _lines(folder / "details.jsonl"):
        try:
            stored = _object(line)
            details[stored["method"]].append(_checked_detail(stored))
        except (ValueError, TypeError, KeyError) as error:
            complaints.append(f"{place} was left out: {_why(error)}.")
    return Run(data[0], rows, details, complaints)


def _lines(path: Path) -> list[tuple[str, str]]:
    """The lines of a file that are not empty, each with its place; none where there is no file."""
    if not path.is_file():
        return []
    lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")
    return [(f"{path.name}, line {i},", line) for i, line in enumerate(lines, 1) if line.strip()]


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "it is not JSON"
    return f"it has no {error.args[0]!r}" if isinstance(error, KeyError) else str(error).rstrip(".")


def _object(line: str) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def _checked_row(line: str) -> Row:
    row = _object(line)
    for key, kind in (("data", str), ("method", str), ("seed", int), ("session", int), ("classes", int)):
        if type(row[key]) is not kind or (kind is int and row[key] < 0):
            raise ValueError(f"'{key}' is {row[key]!r}")
    for key in (*_ALWAYS, *_SOMETIMES):
        if not (_is_number(row[key]) or (row[key] is None and key in _SOMETIMES)):
            raise ValueError(f"'{key}' is {row[key]!r}")
    accuracies = row["session_accuracy"] if isinstance(row["session_accuracy"], list) else []
    if len(accuracies) != row["session"] + 1 or not all(_is_number(accuracy) for accuracy in accuracies):
        raise ValueError("'session_accuracy' must have a number for each session so far")
    return row


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300  # not NaN, not infinite


def _checked_detail(stored: Mapping[str, Any]) -> Detail:
    labels, session_of = stored["labels"], stored["session_of"]
    tree = None if stored["tree"] is None else ClassTree.from_json(stored["tree"])
    if len(session_of) != len(labels) or (tree is not None and tree.n_classes != len(labels)):
        raise ValueError("'labels', 'session_of' and 'tree' differ in the number of classes")
    classes = set(labels)
    confusion = [(true, predicted, int(count)) for true, predicted, count in stored["confusion"]]
    if not all(true in classes and predicted in classes for true, predicted, _ in confusion):
        raise ValueError("'confusion' has a label that is not among 'labels'")
    return Detail(
        seed=int(stored["seed"]),
        reliability=[(float(sure), float(right), int(n)) for sure, right, n in stored["reliability"] if n],
        confusion=confusion,
        labels=labels,
        novel=[session > 0 for session in session_of],
        tree=tree,
    )
