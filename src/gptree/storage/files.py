"""Writing a file as a whole."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file, or make it: whatever is interrupted, the old content or the new one is there, never a part.

    Parameters
    ----------
    path : Path
        The content is first written beside it, as ``.<name>-<process>.tmp``.
    content : str or bytes
        Text is written as UTF-8.
    """
    temporary = path.with_name(f".{path.name}-{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
