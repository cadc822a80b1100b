"""Shards of a store: files of keys, vectors and their check sums, named by their content."""

from __future__ import annotations

import hashlib
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gptree.storage import write_atomically

#: Bytes of a key.
KEY_BYTES = 16

#: Vectors (d,) by key.
Rows = dict[bytes, np.ndarray]

_NAME = re.compile(r"[0-9a-f]{16}\.safetensors")


def shards_in(folder: Path) -> list[Path]:
    """The files of the shards in a folder; none if the folder is gone."""
    try:
        return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []


def write_shard(folder: Path, rows: Mapping[bytes, np.ndarray]) -> str:
    """Write a shard; its name."""
    X = np.stack(list(rows.values()))
    keys = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, KEY_BYTES)
    sums = np.array([_sum(key, x) for key, x in zip(rows, X, strict=True)], dtype=np.uint32)
    content = save({"keys": np.ascontiguousarray(keys), "X": X, "sums": sums})
    name = f"{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
    write_atomically(folder / name, content)
    return name


def shard_size(path: Path) -> tuple[int, int]:
    """Rows and bytes of a shard; none of one that is damaged. An OSError is no damage, see `read_shard`."""
    try:
        with _opened(path) as shard:
            return shard.get_slice("keys").get_shape()[0], path.stat().st_size
    except (SafetensorError, IndexError):
        return 0, 0


def read_shard(path: Path, wanted: set[bytes] | None, width: int) -> Rows:
    """Vectors of a shard by key, all or those that are wanted. Rows that are damaged are left out, with a warning.

    An OSError, such as too many open files, goes through: the shard may be sound, and be read another time.
    """
    found: Rows = {}
    damaged = 0
    try:
        with _opened(path) as shard:
            keys, sums, X = shard.get_tensor("keys"), shard.get_tensor("sums"), shard.get_slice("X")
            if X.get_shape() != [len(keys), width] or keys.shape[1:] != (KEY_BYTES,) or len(sums) != len(keys):
                raise ValueError("its arrays do not fit each other")
            names = [keys[i].tobytes() for i in range(len(keys))]
            places = [i for i, name in enumerate(names) if wanted is None or name in wanted]
            for first, last in _runs(places):
                for i, x in enumerate(X[first:last], first):
                    if _sum(names[i], x) == sums[i]:
                        found[names[i]] = x
                    else:
                        damaged += 1
    except (SafetensorError, ValueError, IndexError) as error:
        warnings.warn(f"{path} is damaged and was not used ({error}).", RuntimeWarning, stacklevel=3)
        return {}
    if damaged:
        warnings.warn(f"{path} is damaged: {damaged} vectors were not used.", RuntimeWarning, stacklevel=3)
    return found


def _opened(path: Path) -> safe_open:
    """An open shard; a FileNotFoundError only if there is none."""
    try:
        return safe_open(path, "np")
    except FileNotFoundError:  # safetensors says so whatever the reason is
        path.open("rb").close()
        raise OSError(f"{path} could not be opened: try again.") from None


def _sum(key: bytes, x: np.ndarray) -> int:
    return zlib.crc32(x.tobytes(), zlib.crc32(key))


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Intervals [first, last) of numbers that follow each other."""
    start = 0
    for i in range(1, len(places) + 1):
        if i == len(places) or places[i] != places[i - 1] + 1:
            yield places[start], places[i - 1] + 1
            start = i
