"""The rows and details of a run as they are stored, a JSON document a line, and what each of them must be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gptree.tree import ClassTree

Row = dict[str, Any]
Bin = tuple[float, float, int]  # mean confidence, accuracy, count

_ROUNDING = 1e-6
_SHARE = (0.0, 1.0)
_NOT_NEGATIVE = (0.0, 1e300)
#: Numbers that every row has, and those that are null in some, with the smallest and the largest that are possible.
_ALWAYS = {
    **dict.fromkeys(("accuracy", "base_accuracy", "ece"), _SHARE),
    **dict.fromkeys(("nll", "seconds_add", "seconds_predict"), _NOT_NEGATIVE),
}
_SOMETIMES = {
    **dict.fromkeys(("novel_accuracy", "harmonic_mean", "open_auroc"), _SHARE),
    "forgetting": (-1.0, 1.0),
    "bytes": _NOT_NEGATIVE,
}
#: What parsing a damaged line raises; `why` says it in words.
DAMAGE = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Detail:
    """The last session of one method and seed."""

    method: str
    seed: int
    reliability: list[Bin]  # without empty bins
    confusion: list[tuple[Any, Any, int]]  # true label, predicted label, how often
    mistakes: list[tuple[str, Any, Any, float]]  # id, true label, predicted label, its probability
    labels: list[Any]
    novel: list[bool]  # of each label
    tree: ClassTree | None


def parse_row(line: str) -> Row:
    """The row of a line, whose numbers are possible."""
    row = _object(line)
    _check_key(row)
    for key, kind, least in (("data", str, None), ("session", int, 0), ("classes", int, 1), ("settings", dict, None)):
        if type(row[key]) is not kind or (least is not None and row[key] < least):
            raise ValueError(f"'{key}' is {row[key]!r}")
    for key, (least, most) in (_ALWAYS | _SOMETIMES).items():
        if not (_is_within(row[key], least, most) or (row[key] is None and key in _SOMETIMES)):
            raise ValueError(f"'{key}' is {row[key]!r}")
    accuracies = row["session_accuracy"] if isinstance(row["session_accuracy"], list) else []
    if len(accuracies) != row["session"] + 1 or not all(_is_within(accuracy, *_SHARE) for accuracy in accuracies):
        raise ValueError("'session_accuracy' must have a number from 0 to 1 for each session so far")
    return row


def parse_detail(line: str) -> Detail:
    """The details of a line, whose numbers are possible."""
    stored = _object(line)
    _check_key(stored)
    labels, session_of = stored["labels"], stored["session_of"]
    tree = None if stored["tree"] is None else ClassTree.from_json(stored["tree"])
    if not isinstance(labels, list) or not all(isinstance(label, str | int | float) for label in labels):
        raise ValueError("'labels' must be text or numbers")
    if len(session_of) != len(labels) or (tree is not None and tree.n_classes != len(labels)):
        raise ValueError("'labels', 'session_of' and 'tree' differ in the number of classes")
    if not all(_is_count(session) for session in session_of):
        raise ValueError("'session_of' must be the number of a session for each label")
    classes = set(labels)
    confusion = [(true, predicted, count) for true, predicted, count in stored["confusion"]]
    mistakes = [(name, true, predicted, p) for name, true, predicted, p in stored.get("mistakes", [])]
    for part, pairs in (("confusion", [pair[:2] for pair in confusion]), ("mistakes", [row[1:3] for row in mistakes])):
        if not all(true in classes and predicted in classes for true, predicted in pairs):
            raise ValueError(f"'{part}' has a label that is not among 'labels'")
    if not all(isinstance(name, str) and _is_within(p, *_SHARE) for name, _, _, p in mistakes):
        raise ValueError("'mistakes' must have ids and probabilities from 0 to 1")
    bins = [(sure, right, n) for sure, right, n in stored["reliability"] if n != 0]
    if not all(_is_within(sure, *_SHARE) and _is_within(right, *_SHARE) for sure, right, _ in bins):
        raise ValueError("'reliability' has a confidence or an accuracy that is not from 0 to 1")
    if not all(_is_count(count) for *_, count in (*confusion, *bins)):
        raise ValueError("'confusion' and 'reliability' must count rows")
    return Detail(
        method=stored["method"],
        seed=stored["seed"],
        reliability=bins,
        confusion=confusion,
        mistakes=mistakes,
        labels=labels,
        novel=[session > 0 for session in session_of],
        tree=tree,
    )


def why(error: Exception) -> str:
    """What is wrong with a line, without a full stop."""
    if isinstance(error, json.JSONDecodeError):
        return "it is not JSON"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return f"it has no {error.args[0]!r}" if isinstance(error, KeyError) else str(error).rstrip(".")


def _object(line: str) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def _check_key(stored: Mapping[str, Any]) -> None:
    """Every line belongs to a method and a seed."""
    if not isinstance(stored["method"], str):
        raise ValueError(f"'method' is {stored['method']!r}")
    if not _is_count(stored["seed"]):
        raise ValueError(f"'seed' is {stored['seed']!r}")


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_within(value: Any, least: float, most: float) -> bool:
    """Whether it is a number from `least` to `most` but for rounding; NaN is not."""
    return type(value) in (int, float) and least - _ROUNDING <= value <= most + _ROUNDING
