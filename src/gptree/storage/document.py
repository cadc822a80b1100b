"""JSON documents and file names from elsewhere: read with bounded work, and never followed out of their folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from gptree.storage.errors import StorageError, ensure


def parse_document(content: bytes | str, name: object) -> Any:
    """The value of a JSON document; a `StorageError` for anything else, such as NaN or lists nested 100,000 deep."""
    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise StorageError(f"{name} is damaged: it is nested too deeply.") from None
    except ValueError as error:  # also text that is not UTF-8, and whole numbers of thousands of digits
        raise StorageError(f"{name} is damaged: it is not valid JSON ({error}).") from None


def inside(folder: Path, name: Any, suffix: str = "") -> Path:
    """The path of a file or folder that a document names: directly inside `folder`, and no link."""
    plain = isinstance(name, str) and name == Path(name).name and name not in ("", ".", "..") and "\0" not in name
    ensure(plain and name.endswith(suffix), f"{folder} is damaged: {name!r} is no name of a file in it.")
    path = folder / name
    ensure(not path.is_symlink(), f"{path} is a link: the files of a model lie in its own folder.")
    return path


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
