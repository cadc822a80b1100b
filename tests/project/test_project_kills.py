"""A kill at any moment of a change: the project opens as before it or as after it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from project_cases import ids

from gptree.project import Project

CHANGES: dict[str, Callable[[Project], object]] = {
    "teach": lambda project: project.teach([("cow", ids("cow", "pool", 2))], author="Ada"),
    "import": lambda project: project.import_rows([[1.0, 2.0, 3.0, 4.0]], ids=["new"]),
}


class KillError(BaseException):
    """Stands for the end of the process: nothing catches it but the context managers on the way."""


def state(project: Project) -> tuple[object, ...]:
    examples = tuple((each.id, each.split, each.label) for each in project.examples.values())
    return project.version, tuple(project.model.classes_), examples


@pytest.mark.parametrize("what", CHANGES)
def test_every_write_may_be_the_last(what: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened() -> Project:
        shutil.rmtree(tmp_path / "p", ignore_errors=True)
        shutil.copytree(made, tmp_path / "p")
        return Project.open(tmp_path / "p")

    project = opened()
    before = state(project)
    CHANGES[what](project)
    after = state(project)
    assert before != after
    outcomes = []
    for kill_at in range(1, 40):
        project = opened()
        calls = 0

        def replace(source: object, target: object, kill_at: int = kill_at, original: Callable = os.replace) -> None:
            nonlocal calls
            calls += 1
            if calls == kill_at:
                raise KillError
            original(source, target)

        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", replace)
            # what a killed process cannot do any more
            patched.setattr("gptree.project.folder._drop", lambda folder: None)
            try:
                CHANGES[what](project)
                break
            except KillError:
                pass
        again = Project.open(tmp_path / "p")
        found = state(again)
        assert found in (before, after), kill_at
        outcomes.append(found == after)
        assert [event.version for event in again.events] == list(range(1, again.version + 1))
        if found == before and kill_at == 3:
            CHANGES[what](again)  # goes through
            assert state(again) == after
    assert sorted(outcomes) == outcomes  # before, before, …, after
    assert outcomes[0] is False
    assert outcomes[-1] is True


def test_a_torn_event_is_left_out(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "p")
    with (tmp_path / "p" / "events.jsonl").open("a") as file:
        file.write('{"version": 4, "bef')
    project = Project.open(tmp_path / "p")
    CHANGES["teach"](project)
    assert [event.version for event in project.events] == [1, 2, 3, 4]


def test_a_full_disk_changes_nothing(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(made, tmp_path / "p")
    project = Project.open(tmp_path / "p")
    before = state(project)
    with monkeypatch.context() as patched:

        def full(path: Path, content: object) -> None:
            raise OSError(errno.ENOSPC, f"{path} was not written (No space left on device)")

        patched.setattr("gptree.storage.folder.write_atomically", full)  # of the model
        with pytest.raises(OSError, match="No space left"):
            CHANGES["teach"](project)
    assert state(project) == state(Project.open(tmp_path / "p")) == before
    CHANGES["teach"](project)
    assert project.version == 4
