"""Examples of a project by id: what they are, where they come from, and what they are used for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from gptree.embed.collection import Label
from gptree.storage import ensure, parse_document

#: What an example is for: it waits in the pool, was taught, or tests.
Split = Literal["pool", "taught", "test"]


@dataclass(frozen=True)
class Example:
    """One picture, text or vector.

    Attributes
    ----------
    id : str
        What it is called; never a path that anybody opens.
    key : str
        Hash of its content, hexadecimal.
    source : str
        Where it came from: the path of a picture, relative to the project if it lies inside; else that of a file.
    text : str or None
        The text itself.
    split : "pool", "taught" or "test"
    label : label or None
        What somebody said it is, under the name that the class has now.
    fitted : label or None
        The label that the model was fitted with, where this is an example of the base session.
    time : str
        When it came, ISO 8601 in UTC.
    who : str
        Who brought or labelled it, if that was said.
    """

    id: str
    key: str
    source: str = ""
    text: str | None = None
    split: Split = "pool"
    label: Label | None = None
    fitted: Label | None = None
    time: str = ""
    who: str = ""


_FIELDS = [each.name for each in fields(Example)]


def to_lines(examples: Iterable[Example]) -> str:
    """Examples as JSONL."""
    written = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    return "".join(written(vars(each)) + "\n" for each in examples)


def from_lines(path: Path) -> dict[str, Example]:
    """Examples by id; a `StorageError` if the file holds something else."""
    found: dict[str, Example] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        values = parse_document(line, f"{path}, line {number}")
        ensure(_is_sound(values) and values["id"] not in found, f"{path}, line {number} is no example of a project.")
        found[values["id"]] = Example(**values)
    return found


def _is_sound(values: Any) -> bool:
    return (
        isinstance(values, Mapping)
        and list(values) == _FIELDS
        and all(isinstance(values[name], str) for name in ("id", "key", "source", "split", "time", "who"))
        and all(character in "0123456789abcdef" for character in values["key"])
        and isinstance(values["text"], str | None)
        and values["split"] in get_args(Split)
        and all(isinstance(values[name], str | int | float | None) for name in ("label", "fitted"))
    )
