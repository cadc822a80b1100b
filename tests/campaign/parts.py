"""Parts of the campaign: pieces of work that are numbered, so that each can be done again alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Part:
    """One kind of trouble, in numbered units.

    `check(unit, folder)` makes trouble in an empty folder of its own and returns how many tries that were. It raises if
    something was lost, impossible or an error that is not documented.
    """

    name: str
    says: str
    """What is tried, a sentence for the page."""
    units: int
    """In a whole campaign."""
    check: Callable[[int, Path], int]
    seconds: float = 120.0
    """After which a unit is said to hang."""
    share: tuple[int, ...] = (0,)
    """Units that `make test` does."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a file; a line that was cut off is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows
