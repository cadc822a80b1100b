"""A small share of what the campaign does with writers that die, fail, or are not alone."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from crashes import check_fault
from faults import DONE, REFUSED, WRONG, Fault, in_child, under
from pairs import check_changes, check_pair, check_runs


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("first save", Fault("write", 1)),
        ("first save", Fault("rename", 2)),
        ("save", Fault("rename", 2)),
        ("save", Fault("unlink", 1)),
        ("add", Fault("write", 2)),
        ("add", Fault("fsync", 1)),
        ("save", Fault("write", 1, errno.ENOSPC, always=True)),
        ("save", Fault("open", 2, errno.EROFS)),
        ("add", Fault("write", 2, errno.EFBIG)),
    ],
    ids=str,
)
def test_a_fault_while_a_model_is_written(name: str, fault: Fault, tmp_path: Path) -> None:
    assert check_fault(name, fault, tmp_path)


@pytest.mark.parametrize("fault", [Fault("write", 1), Fault("rename", 2), Fault("write", 2, errno.ENOSPC)], ids=str)
@pytest.mark.parametrize("name", ["checkpoint", "run"])
def test_a_fault_in_a_training_or_a_run(name: str, fault: Fault, tmp_path: Path) -> None:
    assert check_fault(name, fault, tmp_path)


def test_a_fault_that_is_never_reached(tmp_path: Path) -> None:
    assert not check_fault("first save", Fault("rename", 3), tmp_path)


@pytest.mark.parametrize("check", [check_pair, check_changes, check_runs])
def test_two_writers_and_readers(check: object, tmp_path: Path) -> None:
    assert check(0, tmp_path) == 1  # type: ignore[operator]


# ------------------------------------------------------------------------------------------------- the tools themselves


def test_faults_strike_where_they_should(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()

    def write() -> None:
        for folder in (outside, inside):
            for name in ("a", "b"):
                (folder / name).write_text("12345678")

    code, struck = under(Fault("write", 2), inside, write)
    assert (code, struck) == (-9, True)
    assert {path.name: path.read_text() for path in inside.iterdir()} == {"a": "12345678", "b": "1234"}
    assert len(list(outside.iterdir())) == 2
    assert under(Fault("write", 3), inside, write) == (DONE, False)
    assert under(Fault("open", 1, errno.ENOSPC), inside, write) == (WRONG, True)  # not a sentence
    assert under(Fault("mkdir", 1, errno.EROFS), inside, lambda: (inside / "c").mkdir(exist_ok=True)) == (WRONG, True)
    assert not (inside / "c").exists()


def test_a_child_tells_how_it_ended() -> None:
    def refuse() -> None:
        raise OSError(errno.EROFS, "The disk cannot be written to.")

    assert [in_child(work) for work in (lambda: None, refuse, lambda: 1 / 0)] == [DONE, REFUSED, WRONG]
    assert in_child(lambda: os._exit(7)) == 7
