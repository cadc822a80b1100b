"""Files that were seen before: what their content was, so that it need not be read to be known.

Notes are read, changed and written under the lock of their folder; who only looks takes no lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from gptree.embed.shards import KEY_BYTES
from gptree.storage import StorageError, clear_left_overs, locked, parse_document, write_atomically

#: The folder of the notes in a store.
SEEN = "seen"

#: A file that changed so recently, in nanoseconds, may change again within one tick of the clock of its file system.
_RECENT = 2_000_000_000


class SeenFiles:
    """The keys of files below a folder, by their size and times. What is wrong with it costs time, never truth.

    Of what it found at its start it writes nothing, since that may have been forgotten meanwhile.

    Parameters
    ----------
    store : Path or None
        The folder of the store in which it is kept.
    root : Path
        The folder that the files are in.
    """

    def __init__(self, store: Path | None, root: Path) -> None:
        self.path = None
        self.known: dict[str, object] = {}
        self.new: dict[str, object] = {}
        if store is not None:
            name = hashlib.blake2b(os.fsencode(root.resolve()), digest_size=8).hexdigest()
            self.path = store / SEEN / f"{name}.json"
            with suppress(OSError):
                self.known = _notes(self.path)

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
            self.new[str(path)] = [*stamp, key.hex()]

    def save(self) -> None:
        """Add what is new to what is there by now, where there is a store; a disk that refuses is no reason to stop."""
        if self.path is not None and self.new:
            with suppress(OSError), locked(self.path.parent):
                write_atomically(self.path, json.dumps(_notes(self.path) | self.new))


def forget_seen(store: Path, keys: Collection[bytes]) -> None:
    """Remove the files of these contents from all notes in the folder of a store."""
    folder, hashes = store / SEEN, {key.hex() for key in keys}
    if not folder.is_dir():
        return
    with locked(folder):
        clear_left_overs(folder)
        for path in folder.glob("*.json"):
            notes = _notes(path).items()
            left = {name: e for name, e in notes if not (isinstance(e, list) and hashes & set(map(str, e)))}
            write_atomically(path, json.dumps(left))


def _notes(path: Path) -> dict[str, object]:
    """What is written down; nothing if that is damaged."""
    try:
        found = parse_document(path.read_bytes(), path)
    except (FileNotFoundError, StorageError):
        return {}
    return found if isinstance(found, dict) else {}


def _stamp(path: Path) -> list[int]:
    found = os.stat(path)
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
