"""The lock of a folder: one writer at a time, freed by the kernel, no obstacle when it is left behind."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptree.storage import locked, locks
from gptree.storage.locks import LOCK


def child(work: Callable[[], Any]) -> int:
    """The number of a forked process that does the work; it ends with 1 if that fails."""
    number = os.fork()
    if number:
        return number
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def code_of(number: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def holder(folder: Path, seconds: float) -> int:
    """A process that holds the lock from now on."""
    ready = folder.with_name("ready")

    def hold() -> None:
        with locked(folder):
            ready.touch()
            time.sleep(seconds)

    number = child(hold)
    while not ready.exists():
        time.sleep(0.001)
    ready.unlink()
    return number


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m").mkdir()
    return tmp_path / "m"


def test_one_at_a_time(folder: Path) -> None:
    """Eight processes count to 25 each in one file: read, add one, write. Without a lock some of it is lost."""
    counter = folder / "n"
    counter.write_text("0")

    def count() -> None:
        for _ in range(25):
            with locked(folder):
                found = int(counter.read_text())
                os.sched_yield()
                counter.write_text(str(found + 1))

    assert [code_of(number) for number in [child(count) for _ in range(8)]] == [0] * 8
    assert counter.read_text() == "200"
    assert [path.name for path in folder.iterdir()] == ["n"]


def test_a_folder_that_comes_and_goes(tmp_path: Path) -> None:
    """Made for the lock and removed after it, by several at once."""
    place = tmp_path / "new" / "m"

    def visit() -> None:
        for _ in range(25):
            with locked(place):
                (place / "mine").write_text("x")
                (place / "mine").unlink()

    assert [code_of(number) for number in [child(visit) for _ in range(4)]] == [0] * 4
    assert not place.exists() or list(place.iterdir()) == []
    with locked(tmp_path / "mine"):
        assert (tmp_path / "mine").is_dir()
    assert not (tmp_path / "mine").exists()


def test_the_second_waits(folder: Path) -> None:
    first, begin = holder(folder, 0.3), time.monotonic()
    with locked(folder):
        assert time.monotonic() - begin > 0.2
    assert code_of(first) == 0


def test_a_wait_that_is_too_long(folder: Path) -> None:
    first = holder(folder, 30)
    said = r"m is being changed by another process, and still was after 0\.05 seconds"
    with pytest.raises(TimeoutError, match=said), locked(folder, wait=0.05):
        pytest.fail("two have the lock")
    os.kill(first, signal.SIGKILL)
    code_of(first)
    assert (folder / LOCK).exists()  # which is no obstacle:
    with locked(folder, wait=0):
        pass
    assert list(folder.iterdir()) == []


def test_a_killed_holder_holds_nothing_though_a_child_of_it_lives(folder: Path) -> None:
    ready = folder.with_name("ready")

    def hold() -> None:
        with locked(folder):
            if os.fork() == 0:
                time.sleep(5)
                os._exit(0)
            ready.touch()
            time.sleep(30)

    number = child(hold)
    while not ready.exists():
        time.sleep(0.001)
    os.kill(number, signal.SIGKILL)
    code_of(number)
    with locked(folder, wait=1):
        pass


def test_again_in_the_same_thread_but_not_in_another(folder: Path) -> None:
    outcomes = []

    def try_it() -> None:
        try:
            with locked(folder, wait=0.02):
                outcomes.append("held")
        except TimeoutError:
            outcomes.append("refused")

    def try_it_in_a_child() -> None:
        try_it()
        assert outcomes.pop() == "refused"

    with locked(folder):
        with locked(folder / ".." / "m"):
            pass
        assert (folder / LOCK).exists()
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
        assert code_of(child(try_it_in_a_child)) == 0
    try_it()
    assert outcomes == ["refused", "held"]


def test_a_program_that_is_started_does_not_inherit_the_lock(folder: Path) -> None:
    with locked(folder):
        program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(5)"], close_fds=False)
    with locked(folder, wait=0):
        pass
    program.kill()
    program.wait()


def test_folders_that_cannot_be_written(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    said = r"file cannot be written to \(File exists\)"
    with pytest.raises(FileExistsError, match=said), locked(tmp_path / "file"):
        pass

    def read_only(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", read_only)
    with (
        pytest.raises(OSError, match=r"cannot be written to \(Read-only file system\). Nothing was changed\.") as found,
        locked(folder),
    ):
        pass
    assert found.value.errno == errno.EROFS


def test_a_file_system_without_locks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(locks.fcntl, "flock", no_locks)
    with pytest.warns(RuntimeWarning, match="has no locks: let no other process write there now"), locked(folder):
        pass


class Windows:
    """What Windows has: `msvcrt`, and no removal of a file that somebody has open."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        self.open: set[int] = set()
        self._os_open, self._os_close, self._os_unlink = os.open, os.close, os.unlink

    def locking(self, descriptor: int, mode: int, length: int) -> None:
        """Taken by one open file at a time and freed when that is closed, as `flock` is."""
        assert (mode, length, os.lseek(descriptor, 0, os.SEEK_CUR)) == (self.LK_NBLCK, 1, 0)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PermissionError(errno.EACCES, "Permission denied") from error

    def os_open(self, path: Path, flags: int, mode: int) -> int:
        descriptor = self._os_open(path, flags, mode)
        self.open.add(descriptor)
        return descriptor

    def os_close(self, descriptor: int) -> None:
        self._os_close(descriptor)
        self.open.discard(descriptor)

    def os_unlink(self, path: Path) -> None:
        if any(os.path.samestat(os.fstat(descriptor), os.stat(path)) for descriptor in self.open):
            raise PermissionError(errno.EACCES, "used by another process")
        self._os_unlink(path)


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module as Windows imports it."""
    system = Windows()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", system)
    monkeypatch.delattr(os, "register_at_fork")
    for name in ("open", "close", "unlink"):
        monkeypatch.setattr(os, name, getattr(system, f"os_{name}"))
    spec = importlib.util.spec_from_file_location("locks_on_windows", locks.__file__)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_at_a_time_on_windows(folder: Path, on_windows: Any) -> None:
    with on_windows.locked(folder), on_windows.locked(folder):  # again in the same thread
        assert (folder / LOCK).exists()
        with pytest.raises(TimeoutError, match="is being changed by another process"):
            on_windows._acquire(folder, wait=0.01)
    assert not (folder / LOCK).exists()
    assert not on_windows.msvcrt.open
    with on_windows.locked(folder / "new"):
        pass
    assert not (folder / "new").exists()


def test_a_file_that_another_waits_with_stays_on_windows(folder: Path, on_windows: Any) -> None:
    with on_windows.locked(folder):
        waits = os.open(folder / LOCK, os.O_RDWR, 0o666)
        assert not on_windows._try_lock(waits, folder)
    assert on_windows._try_lock(waits, folder)  # freed, and the file is where it was
    assert on_windows._is_at(waits, folder / LOCK)
    with pytest.raises(TimeoutError), on_windows.locked(folder, wait=0):
        pass
    on_windows._release(waits, folder)
    with on_windows.locked(folder, wait=0):
        pass
    assert not (folder / LOCK).exists()


def test_a_file_system_without_locks_on_windows(folder: Path, on_windows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(on_windows.msvcrt, "locking", no_locks)
    with pytest.warns(RuntimeWarning, match="has no locks"), on_windows.locked(folder):
        pass
    assert not (folder / LOCK).exists()
