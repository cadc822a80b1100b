"""Writing files as wholes, and what a writer that was killed leaves behind."""

from __future__ import annotations

import io
import os
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Temporary files, those of earlier versions too.
LEFT_OVERS = re.compile(r"\.gptree-[0-9a-f]{12}\.tmp|\.(arrays|(model|log|rows|details)\.jsonl?)-\d+\.tmp")


def write_atomically(path: Path, content: str | bytes | Iterable[bytes | memoryview]) -> None:
    """Replace a file, or make it: whatever is interrupted, the old content or the new one is there, never a part.

    Parameters
    ----------
    path : Path
        In a folder that exists. The content is first written beside it, as ``.gptree-….tmp``.
    content : str, bytes or an iterable of parts
        Text is written as UTF-8, parts one after the other.

    Raises
    ------
    OSError
        If it cannot be written, with a sentence that says why; the old content is still there.
    """
    target = Path(os.path.realpath(path))  # the file behind a link
    temporary = target.with_name(f".gptree-{secrets.token_hex(6)}.tmp")
    content = content.encode() if isinstance(content, str) else content
    parts = [content] if isinstance(content, bytes) else content
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:  # a device or a pipe, which must stay what it is
                file.writelines(parts)
            return
        try:
            with temporary.open("xb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise explained(error, f"{path} cannot be written: there is no folder {path.parent}.") from error
        reason = error.strerror or error
        raise explained(error, f"{path} was not written ({reason}); what was there before is unchanged.") from error
    _sync_folder(target.parent)


def explained(error: OSError, sentence: str) -> OSError:
    """The same error with a sentence for people instead of its words."""
    return OSError(sentence) if error.errno is None else OSError(error.errno, sentence)


def _sync_folder(folder: Path) -> None:
    """Have the new name on the disk too, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_figure(path: Path, figure: Any, **how: Any) -> None:
    """Write a matplotlib figure as a whole.

    Parameters
    ----------
    path : Path
        Its suffix says the format, such as .png, .svg or .pdf.
    figure : matplotlib.figure.Figure
    **how
        For `figure.savefig`.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:].lower(), **how)
    write_atomically(path, drawn.getvalue())


def clear_left_overs(folder: Path) -> None:
    """Remove what killed writers left in a folder; the caller holds its lock."""
    for path in folder.iterdir():
        if LEFT_OVERS.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()
