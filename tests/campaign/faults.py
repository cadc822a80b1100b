"""Faults of the operating system, in a forked child: the k-th call of a kind kills the process, or raises an OSError.

Calls are counted where they touch a file below a folder. Opening, renaming, removing and making folders are seen by an
audit hook, so that no way around it exists in Python; writing by files that count. A write is cut in half before the
fault strikes.
"""

from __future__ import annotations

import builtins
import io
import mmap
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Kinds of calls, and the audit events of those that have some.
EVENTS = {
    "open": ("open",),
    "write": (),
    "fsync": (),
    "rename": ("os.rename",),
    "unlink": ("os.remove", "os.rmdir"),
    "mkdir": ("os.mkdir",),
}
KINDS = tuple(EVENTS)
DONE, REFUSED, WRONG = 0, 3, 4  # exit codes of a child: it did its work, an OSError with a sentence, anything else
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Fault:
    """The k-th call of a kind below a folder, counted from 1, fails with an error number, or kills (None).

    With `always`, every call from there on fails: a full disk stays full.
    """

    kind: str
    k: int
    errno: int | None = None
    always: bool = False

    def __str__(self) -> str:
        what = "kill -9" if self.errno is None else f"{os.strerror(self.errno)}{' from then on' * self.always}"
        return f"{what} at {self.kind} {self.k}"

    def install(self, root: Path, struck: mmap.mmap) -> None:
        """From now on, and for ever: only a child that is about to end may do this."""
        below, count = os.path.realpath(root), 0

        def strike() -> bool:
            nonlocal count
            count += 1
            strikes = count == self.k or (self.always and count > self.k)
            struck[0] |= strikes
            return strikes

        def concerns(path: Any) -> bool:
            if not isinstance(path, str | bytes | os.PathLike):
                return False
            return os.path.realpath(os.fsdecode(path)).startswith(below)

        def fail() -> None:
            if self.errno is None:
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                raise OSError(self.errno, os.strerror(self.errno))

        def audit(event: str, arguments: tuple[Any, ...]) -> None:
            if event not in EVENTS[self.kind] or not concerns(arguments[0]):
                return
            if event == "open" and self.errno is not None and not arguments[2] & _WRITING:
                return  # a full disk can be read
            if strike():
                fail()

        if EVENTS[self.kind]:
            sys.addaudithook(audit)
        elif self.kind == "fsync":
            real = os.fsync
            os.fsync = lambda descriptor: (fail() if strike() else None, real(descriptor))[1]
        else:
            _count_writes(concerns, strike, fail)


def _count_writes(concerns: Callable[[Any], bool], strike: Callable[[], bool], fail: Callable[[], None]) -> None:
    """Have every file that is opened for writing below the folder write half and fail when it is struck."""

    class Counted(io.FileIO):
        def write(self, data: Any, /) -> int | None:
            if not strike():
                return super().write(data)
            half = memoryview(data).cast("B")
            super().write(half[: len(half) // 2])
            fail()
            return None

    plain = io.open

    def opened(file: Any, mode: str = "r", *arguments: Any, **how: Any) -> Any:
        if "r" in mode or not concerns(file):
            return plain(file, mode, *arguments, **how)
        binary = io.BufferedWriter(Counted(file, mode.replace("b", "").replace("t", "")))
        if "b" in mode:
            return binary
        return io.TextIOWrapper(binary, encoding=how.get("encoding"), newline=how.get("newline"))

    io.open = builtins.open = opened


def under(fault: Fault, root: Path, work: Callable[[], Any]) -> tuple[int, bool]:
    """Do the work in a child under a fault: its exit code, and whether the fault struck."""
    struck = mmap.mmap(-1, 1)  # shared with the child
    code = in_child(lambda: (fault.install(root, struck), work()))
    return code, bool(struck[0])


def in_child(work: Callable[[], Any]) -> int:
    """The exit code of a forked child that does the work; a negative one is the signal that ended it."""
    return ended(start(work))


def start(work: Callable[[], Any]) -> int:
    """The process number of a forked child that does the work."""
    child = os.fork()
    if child:
        return child
    code = WRONG
    try:
        work()
        code = DONE
    except OSError as error:
        code = REFUSED if _is_sentence(error) else WRONG
        if code == WRONG:
            traceback.print_exc()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(child: int) -> int:
    """The exit code of a child, when it has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _is_sentence(error: OSError) -> bool:
    return str(error.strerror or error).endswith(".")
