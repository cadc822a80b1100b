"""Sessions of the data sets as row numbers, and rehearsed ones inside the base classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gptree.protocols import SessionStream, hold_out, stream_from_arrays, stream_from_lists

#: Values of `split`: rows to learn from are 0 where a network may have been trained on them.
TEST, HELD_OUT = 1, 2
#: Sessions of CIFAR-100. Its public lists number the pictures by their place in a file that image folders do not have.
CIFAR_SESSIONS: dict[str, Any] = {"base": 60, "way": 5, "shot": 5, "seed": 0}
#: The one draw of rehearsed classes, shots and rows.
REHEARSAL_SEED = 0


class Rows(Protocol):
    """What is known of pictures: class numbers (n,), split (n,) and path (n,) `CLASS/FILE`."""

    @property
    def y(self) -> np.ndarray: ...
    @property
    def split(self) -> np.ndarray: ...
    @property
    def path(self) -> np.ndarray: ...


def row_sessions(data: str, rows: Rows, folder: Path, name: str) -> SessionStream:
    """The public sessions of a set of pictures; an X (n, 1) holds row numbers. All seeds have the same."""
    numbers = np.arange(len(rows.y))[:, None]
    if data != "cifar100":
        return stream_from_lists(folder / "fscil" / data, numbers, rows.y, paths=rows.path, name=name)
    test = rows.split == TEST
    parts = (array[some] for some in (~test, test) for array in (numbers, rows.y))
    # classes arrive in the order of their numbers, as in the public lists
    return stream_from_arrays(*parts, **CIFAR_SESSIONS, order=np.unique(rows.y), name=name)


def rehearsed(stream: SessionStream, base: int, way: int, share: float) -> SessionStream:
    """Sessions drawn from the base classes of a stream: `base` of them come first, then `way` at a time, five shots
    each. A share of the rows of every class is for testing; no later session is looked at.
    """
    first = stream.sessions[0]
    asked = hold_out(first.y, share, REHEARSAL_SEED)
    learned = first.X[~asked], first.y[~asked]
    return stream_from_arrays(
        *learned, first.X[asked], first.y[asked], base=base, way=way, shot=5, seed=REHEARSAL_SEED, name=stream.name
    )
