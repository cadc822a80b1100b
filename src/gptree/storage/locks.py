"""`locked`: one writer of a folder at a time, by a lock of the operating system.

The lock is on a file in the folder, which is there while somebody writes. The kernel frees it when its process ends,
however that ends; the file that a killed process leaves is no obstacle. Readers take no lock and never wait.
"""

from __future__ import annotations

import errno
import os
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gptree.storage.files import explained

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
    import msvcrt

LOCK = ".gptree-lock"
#: Seconds that a writer waits for another one.
WAIT = 60.0

_LONGEST_PAUSE = 0.05  # seconds between two looks at a lock
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)  # of some network file systems


class _Mine(threading.local):
    """Folders that this thread has locked, each with its process: a forked child does not hold its parent's locks."""

    def __init__(self) -> None:
        self.folders: set[tuple[int, Path]] = set()


_mine = _Mine()
_descriptors: set[int] = set()  # of all locks that this process holds


@contextmanager
def locked(folder: str | Path, wait: float | None = None) -> Iterator[None]:
    """Be the only writer of a folder: read, change and write what it holds within this context.

    `save` takes the lock itself. Take it around loading, changing and saving, so that what others save in between is
    not lost. A thread that holds the lock may take it again.

    Parameters
    ----------
    folder : path
        Made if it is not there, and removed again if it is empty at the end.
    wait : float or None
        Seconds to wait for another writer; None is `gptree.storage.locks.WAIT`, a minute.

    Raises
    ------
    TimeoutError
        If another writer still holds the lock after that time.
    OSError
        If the folder cannot be written to.

    Examples
    --------
    >>> with locked("model"):  # doctest: +SKIP
    ...     load_model("model").add_classes(X, y).save("model")
    """
    folder = Path(folder)
    key = os.getpid(), folder.resolve()
    if key in _mine.folders:
        yield
        return
    is_new = not folder.exists()
    descriptor = _acquire(folder, WAIT if wait is None else wait)
    _mine.folders.add(key)
    _descriptors.add(descriptor)
    try:
        yield
    finally:
        if key[0] == os.getpid():
            _mine.folders.discard(key)
            _descriptors.discard(descriptor)
            _release(descriptor, folder)
            if is_new:
                with suppress(OSError):  # it is not empty
                    folder.rmdir()


def _acquire(folder: Path, wait: float) -> int:
    """The descriptor of the lock, which is held."""
    deadline, pause = time.monotonic() + wait, 0.001
    while True:
        descriptor = _opened(folder)
        if descriptor is not None:
            # Another writer may have removed the file after it was opened here: such a lock holds nobody off.
            if _try_lock(descriptor, folder) and _is_at(descriptor, folder / LOCK):
                return descriptor
            os.close(descriptor)
        if time.monotonic() >= deadline:
            raise TimeoutError(
                f"{folder} is being changed by another process, and still was after {wait:g} seconds: try again when "
                "that is done. Nothing was changed."
            )
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _opened(folder: Path) -> int | None:
    """The lock file; None where the folder vanished meanwhile, made by another writer that needed it no more."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = error.strerror or error
        raise explained(error, f"{folder} cannot be written to ({reason}). Nothing was changed.") from error


def _try_lock(descriptor: int, folder: Path) -> bool:
    try:
        if fcntl is None:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # pyright: ignore
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            return False
        warnings.warn(
            f"the file system of {folder} has no locks: let no other process write there now.",
            RuntimeWarning,
            stacklevel=5,
        )
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _release(descriptor: int, folder: Path) -> None:
    with suppress(OSError):
        if fcntl is not None:
            if _is_at(descriptor, folder / LOCK):
                os.unlink(folder / LOCK)
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # at once, though a forked child may have the file open
    os.close(descriptor)
    if fcntl is None:
        with suppress(OSError):  # Windows removes no open file: somebody else waits with it
            os.unlink(folder / LOCK)


def _forget() -> None:
    """In a forked child: leave the locks to the parent, so that they end with it."""
    for descriptor in _descriptors:
        with suppress(OSError):
            os.close(descriptor)
    _descriptors.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
