"""A store of embeddings, keyed by content: what was encoded once is not encoded again.

    FOLDER/<key of the encoder>/encoder.json          the description of the encoder
    FOLDER/<key of the encoder>/<hash>.safetensors    a shard: keys (n, 16), X (n, d), sums (n,)
    FOLDER/seen/<hash>.json                           files of a folder, and what their content was

A shard is written as a whole and never changed; its name is that of its content. A killed run therefore loses what it
had not written, and nothing else, and stores are merged by copying files. A shard that is written takes in those that
are smaller than itself. One process writes at a time, under the lock of the folder; readers take no lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gptree.embed.encoders.base import Description, description_key
from gptree.embed.seen import SEEN, forget_seen
from gptree.embed.shards import KEY_BYTES, Rows, read_shard, shard_size, shards_in, write_shard
from gptree.storage import StorageError, clear_left_overs, locked, parse_document, write_atomically

#: Rows of a shard that takes in no more.
FULL = 4096
#: The environment variable that names the default store.
VARIABLE = "GPTREE_CACHE"

_ENCODER = "encoder.json"
_FOLDER = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Shelf:
    """What a store holds of one encoder.

    Attributes
    ----------
    key : str
    description : dict
    rows : int
    nbytes : int
    """

    key: str
    description: Description
    rows: int
    nbytes: int


class Store:
    """A folder of embeddings, by encoder and content.

    Parameters
    ----------
    folder : path, optional
        Made when something is first written. None is what the environment variable GPTREE_CACHE names, else
        `gptree` in the folder for caches, ~/.cache as a rule.

    Examples
    --------
    >>> store = Store("embeddings")             # doctest: +SKIP
    >>> embed(data, encoder, store=store)       # doctest: +SKIP
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = _default() if folder is None else Path(folder).expanduser()

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    # ------------------------------------------------------------------------------------------------------- reading

    def find(self, description: Mapping[str, Any], keys: Sequence[bytes]) -> Rows:
        """Vectors of those keys that are there.

        Parameters
        ----------
        description : dict
            Of the encoder.
        keys : sequence of bytes
            See `content_key`.

        Returns
        -------
        dict
            Vectors (d,), float32, by key; without those in files that cannot be read now, with a warning.
        """
        found: Rows = {}
        missing = set(keys)

        def readable(path: Path) -> Rows:
            try:
                return read_shard(path, missing, description["dimension"])
            except FileNotFoundError:
                raise  # it was put into a larger one
            except OSError as error:
                warnings.warn(f"{path} cannot be read now and was not used ({error}).", RuntimeWarning, stacklevel=4)
                return {}

        for rows in _of_shards(self._shelf(description), readable):
            found |= rows
            missing.difference_update(rows)
            if not missing:
                break
        return found

    def shelves(self) -> list[Shelf]:
        """What there is, encoder by encoder; the numbers are rough while another process writes."""
        return [
            Shelf(folder.name, description, *_held(folder))
            for folder in self._folders()
            if (description := _description(folder)) is not None
        ]

    # ------------------------------------------------------------------------------------------------------- writing

    def add(self, description: Mapping[str, Any], keys: Sequence[bytes], X: np.ndarray) -> None:
        """Keep vectors.

        Parameters
        ----------
        description : dict
            Of the encoder.
        keys : sequence of bytes
            See `content_key`.
        X : ndarray (n, d)

        Raises
        ------
        OSError
            If they cannot be written; what was there before is unchanged.
        """
        if not len(keys):
            return
        folder = self._shelf(description)
        rows = dict(zip(keys, np.asarray(X, dtype=np.float32), strict=True))
        with locked(folder):
            clear_left_overs(folder)
            if _description(folder) is None:
                if shards_in(folder):
                    raise StorageError(f"{folder} holds vectors of an unknown encoder: remove it.")
                write_atomically(folder / _ENCODER, json.dumps(dict(description), indent=1) + "\n")
            taken_in = []
            for path in sorted(shards_in(folder), key=lambda path: path.stat().st_size):
                with suppress(OSError):  # what cannot be read now stays as it is
                    if shard_size(path)[0] > len(rows) or len(rows) + shard_size(path)[0] > FULL:
                        break
                    rows = read_shard(path, None, description["dimension"]) | rows
                    taken_in.append(path)
            name = write_shard(folder, rows)
            for path in taken_in:
                if path.name != name:
                    with suppress(OSError):
                        path.unlink()

    def merge(self, other: Store) -> int:
        """Take in all that another store holds, such as that of another machine.

        Parameters
        ----------
        other : Store

        Returns
        -------
        int
            The number of vectors that were copied.

        Raises
        ------
        OSError
            If a file cannot be read or written. What was copied by then stays, and the rest can be copied later.
        """
        return sum(map(self._take_in, other._folders()))

    def remove(self, description: Mapping[str, Any], chosen: Callable[[np.ndarray], np.ndarray]) -> int:
        """Remove vectors for good: their contents are forgotten for all encoders, and so are their files.

        Parameters
        ----------
        description : dict
            Of the encoder.
        chosen : callable
            From vectors (n, d) to booleans (n,): which of them to remove.

        Returns
        -------
        int
            How many were removed.

        Raises
        ------
        OSError
            If a file cannot be read or changed; the same call does the rest later.
        """
        gone: set[bytes] = set()
        folder = self._shelf(description)
        for rows in _of_shards(folder, lambda path: read_shard(path, None, description["dimension"])):
            if rows:
                goes = chosen(np.stack(list(rows.values())))
                gone |= {key for key, each in zip(rows, goes, strict=True) if each}
        self._forget(gone, last=folder)
        return len(gone)

    def drop(self, keys: Collection[bytes]) -> int:
        """Remove the vectors of contents for good, of all encoders, and what is known of their files.

        Parameters
        ----------
        keys : collection of bytes
            See `content_key`.

        Returns
        -------
        int
            How many of the contents were there.

        Raises
        ------
        OSError
            If a file cannot be read or changed; the same call does the rest later.
        """
        return len(self._forget(set(keys)))

    def _forget(self, gone: set[bytes], last: Path | None = None) -> set[bytes]:
        """Remove contents; those that were there.

        The vectors that they were chosen by go last: as long as something is left, they can be chosen again.
        """
        if not gone:
            return set()
        forget_seen(self.folder, gone)
        folders = sorted(self._folders(), key=lambda folder: folder == last)
        return set().union(*(_drop(folder, gone) for folder in folders))

    def _take_in(self, source: Path) -> int:
        """Copy what the folder of an encoder has; how many vectors are new."""
        description, copied = _description(source), 0
        if description is None:
            return 0
        folder = self._shelf(description)

        def unknown(path: Path) -> Rows:
            return {} if (folder / path.name).exists() else read_shard(path, None, description["dimension"])

        for rows in _of_shards(source, unknown):
            new = rows.keys() - self.find(description, list(rows)).keys()
            self.add(description, list(new), np.array([rows[key] for key in new]))
            copied += len(new)
        return copied

    def clear(self, key: str | None = None) -> None:
        """Remove everything, or what one encoder gave.

        Parameters
        ----------
        key : str, optional
            Of the encoder, see `shelves`.
        """
        for folder in self._folders():
            if key in (None, folder.name):
                with locked(folder):
                    for path in [*shards_in(folder), folder / _ENCODER]:
                        path.unlink(missing_ok=True)
                with suppress(OSError):
                    folder.rmdir()
        seen = self.folder / SEEN
        if key is None and seen.is_dir():
            with locked(seen):
                shutil.rmtree(seen, ignore_errors=True)

    # --------------------------------------------------------------------------------------------------------- files

    def _shelf(self, description: Mapping[str, Any]) -> Path:
        """The folder of an encoder; a StorageError if something else is there."""
        folder = self.folder / description_key(description)
        if self.folder.exists() and not self.folder.is_dir():
            raise StorageError(f"{self.folder} is a file: name a folder for the store.")
        _description(folder)
        return folder

    def _folders(self) -> Iterator[Path]:
        if self.folder.is_dir():
            yield from sorted(
                f for f in self.folder.iterdir() if _FOLDER.fullmatch(f.name) and (f / _ENCODER).is_file()
            )


def content_key(content: bytes | str) -> bytes:
    """The key of the content of a file, or of a text: a BLAKE2b hash of 16 bytes."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()


def _default() -> Path:
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    return Path(caches).expanduser() / "gptree"


def _description(folder: Path) -> Description | None:
    """The encoder of a folder, None where none is written down; a StorageError unless the folder has its name."""
    try:
        description = parse_document((folder / _ENCODER).read_bytes(), folder / _ENCODER)
    except (FileNotFoundError, NotADirectoryError):  # perhaps another process has just cleared the folder
        return None
    sound = isinstance(description, dict) and isinstance(description.get("dimension"), int)
    if not sound or description_key(description) != folder.name:
        raise StorageError(f"{folder} holds vectors of another encoder than its name says: remove the folder.")
    return description


def _held(folder: Path) -> tuple[int, int]:
    """Rows and bytes of the shards in a folder that can be read now."""
    rows = nbytes = 0
    for path in shards_in(folder):
        with suppress(OSError):
            more, size = shard_size(path)
            rows, nbytes = rows + more, nbytes + size
    return rows, nbytes


def _of_shards(folder: Path, read: Callable[[Path], Rows]) -> Iterator[Rows]:
    """What `read` gives of each shard, until two lists of the folder are the same.

    While it is listed or read, a shard may be put into a larger one, so that a list has one of the two, or neither.
    """
    before, done = None, set()
    while (shards := shards_in(folder)) != before:
        for path in shards:
            if path not in done:
                with suppress(FileNotFoundError):
                    yield read(path)
                done.add(path)
        before = shards


def _drop(folder: Path, keys: set[bytes]) -> set[bytes]:
    """Remove the rows of these keys from all shards of a folder; those that were there."""
    found: set[bytes] = set()
    with locked(folder):
        clear_left_overs(folder)
        if (description := _description(folder)) is None:
            return found
        for path in shards_in(folder):
            rows = read_shard(path, None, description["dimension"])
            rest = {key: x for key, x in rows.items() if key not in keys}
            found |= rows.keys() & keys
            if not rest or len(rest) < shard_size(path)[0]:  # damaged rows go, too: they may be of any key
                if rest:
                    write_shard(folder, rest)
                path.unlink()
    return found
