"""Files that were seen before: what their content was, so that it need not be read to be known."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gptree.embed.shards import KEY_BYTES
from gptree.embed.store import Store
from gptree.storage import StorageError, parse_document, write_atomically

#: A file that changed so recently, in nanoseconds, may change again within one tick of the clock of its file system.
_RECENT = 2_000_000_000


class SeenFiles:
    """The keys of files below a folder, by their size and times. What is wrong with it costs time, never truth.

    Parameters
    ----------
    store : Store or None
        Where it is kept.
    root : Path
        The folder that the files are in.
    """

    def __init__(self, store: Store | None, root: Path) -> None:
        self.path = None
        self.known: dict[str, list[object]] = {}
        self.is_new = False
        if store is not None:
            name = hashlib.blake2b(os.fsencode(root.resolve()), digest_size=8).hexdigest()
            self.path = store.folder / "seen" / f"{name}.json"
            with suppress(OSError, StorageError):
                found = parse_document(self.path.read_bytes(), self.path)
                self.known = found if isinstance(found, dict) else {}

    def key(self, path: Path) -> tuple[bytes | None, list[int] | None]:
        """The key of a file's content, if it is still the file that was seen, and what the file is like now."""
        try:
            stamp = _stamp(path)
            entry = self.known.get(str(path))
            if isinstance(entry, list) and entry[:-1] == stamp:
                key = bytes.fromhex(str(entry[-1]))
                return (key if len(key) == KEY_BYTES else None), stamp
            return None, stamp
        except (OSError, ValueError):
            return None, None

    def note(self, path: Path, stamp: Sequence[int] | None, key: bytes) -> None:
        """Remember the key of a file that was like `stamp` before it was read."""
        if stamp is not None and time.time_ns() - max(stamp[1:3]) > _RECENT:
            self.known[str(path)] = [*stamp, key.hex()]
            self.is_new = True

    def save(self) -> None:
        """Write it down, where there is a store; a disk that refuses is no reason to stop."""
        if self.path is not None and self.is_new:
            with suppress(OSError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self.path, json.dumps(self.known))


def _stamp(path: Path) -> list[int]:
    found = os.stat(path)
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
