"""Forgetting examples: they leave every file of a project, and the project is one that never held them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from project_cases import draws, ids

from gptree import GPTreeClassifier, Growth
from gptree.project import Project
from gptree.storage import write_atomically

COWS = ids("cow", "pool", 3)


def taught(project: Project) -> Project:
    """Cows, more ants, another name; and dogs that are taken back."""
    project.teach([("cow", COWS), ("ant", ["pool ant 0", "pool ant 1"])], author="Ada")
    project.rename("cow", "ox")
    project.teach([("dog", ["pool bee 0"])])
    project.undo()
    return project


def base(folder: Path, without: str = "") -> Project:
    """Ants and bees, made without one of their rows."""
    X, names = np.concatenate([draws("ant", 6, 0), draws("bee", 6, 1)]), ids("ant", "base", 6) + ids("bee", "base", 6)
    X, labels = X.astype(np.float32), np.repeat(["ant", "bee"], 6)
    stay = [row for row, name in enumerate(names) if name != without]
    model = GPTreeClassifier(growth=Growth(), random_state=0)
    model.fit(X[stay], labels[stay], ids=[names[row] for row in stay])
    project = Project.create(
        folder, X[stay], labels=labels[stay].tolist(), ids=[names[row] for row in stay], model=model
    )
    known = [
        (name, draws(label, 5, 10 + i)[j])
        for i, label in enumerate(("ant", "bee", "cow"))
        for j, name in enumerate(ids(label, "pool", 5))
        if name != without
    ]
    project.import_rows(np.array([x for _, x in known]), ids=[name for name, _ in known])
    return project


def bytes_of(project: Project) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(project.folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("name", ["base ant 2", "pool cow 1", "pool ant 1", "pool bee 0", "pool bee 4"])
def test_it_is_one_that_never_held_them(name: str, tmp_path: Path) -> None:
    """Of the first fit, taught, taught and taken back, and never looked at."""
    project = taught(base(tmp_path / "p"))
    key = bytes.fromhex(project.examples[name].key)
    told = project.forget([name], note="she asked for it", author="Eve", version=project.version)
    assert (told.after, project.events[-1].what, project.events[-1].who) == (7, "forgot", "Eve")
    assert name not in project.examples
    never = base(tmp_path / "never", without=name)
    lesson = [("cow", [c for c in COWS if c != name]), ("ant", [a for a in ids("ant", "pool", 2) if a != name])]
    never.teach(lesson, author="Ada")
    never.rename("cow", "ox")
    X = np.concatenate([draws(label, 3, 7) for label in ("ant", "bee", "cow", "dog")])
    for each in (project, Project.open(project.folder)):
        assert (each.model.predict_proba(X) == never.model.predict_proba(X)).all()
        assert list(each.examples) == list(never.examples)
        assert [(e.split, e.label) for e in each.examples.values()] == [
            (e.split, e.label) for e in never.examples.values()
        ]
        assert (each.vectors(list(each.examples)) == never.vectors(list(never.examples))).all()
        assert [a.shown for a in each.snapshot().answers] == [a.shown for a in never.snapshot().answers]
    everything = bytes_of(project)
    assert name.encode() not in everything
    assert key not in everything
    assert key.hex().encode() not in everything


def test_no_undo_brings_them_back_and_older_versions_stay_whole(tmp_path: Path) -> None:
    project = taught(base(tmp_path / "p"))
    project.forget(["pool cow 1", "pool ant 1"])
    assert project.standing == {1, 3, 4}
    assert project.diff(2, 4).rows == 10  # computed anew, without them
    project.undo_to(3)
    assert (project.snapshot().classes, project.snapshot().counts) == (("ant", "bee", "cow"), (7, 6, 2))
    project.undo_to(2)
    assert project.snapshot().classes == ("ant", "bee")
    assert not {"pool cow 1", "pool ant 1"} & project.examples.keys()
    assert [each.what for each in Project.open(project.folder).events][-3:] == [
        "forgot",
        "took back version 4",
        "took back version 3",
    ]


def test_a_lesson_that_is_wholly_forgotten_is_no_version_to_undo(tmp_path: Path) -> None:
    project = base(tmp_path / "p")
    project.teach([("cow", COWS)])
    project.teach([("ant", ["pool ant 0"])])
    before = project.version
    with pytest.raises(ValueError, match=r"it is the last example of 'cow': .*remove_class"):
        project.forget(COWS)
    assert (project.version, project.snapshot().classes) == (before, ("ant", "bee", "cow"))
    project.forget(COWS, remove_class=True)
    assert (project.snapshot().classes, project.standing) == (("ant", "bee"), {1, 4})
    project.undo()
    with pytest.raises(ValueError, match="nothing to undo"):
        project.undo()


def test_what_is_not_at_hand_is_refused(tmp_path: Path) -> None:
    X, y = np.concatenate([draws("ant", 4, 0), draws("bee", 4, 1)]), np.repeat(["ant", "bee"], 4)
    names = [f"r{i}" for i in range(8)]
    model = GPTreeClassifier(random_state=0).fit(X, y, ids=names)
    project = Project.create(tmp_path / "p", model=model)
    project.import_rows(draws("cow", 3, 2), ids=["c0", "c1", "c2"])
    project.teach([("cow", ["c0", "c1"])])
    for ids_, message in (
        (["no"], "there is no example 'no' in the project"),
        ([], "name an example"),
        (["r0"], "'r0' is an example of fit, or unknown: give all rows"),
    ):
        with pytest.raises(ValueError, match=message):
            project.forget(ids_)
    with pytest.raises(ValueError, match="'r7' that the model was fitted to is not at hand"):
        project.forget(["r0"], (X[:7], y[:7], names[:7]))
    assert (project.version, len(project.events)) == (3, 3)
    project.forget(["r0"], (X, y, names))
    never = GPTreeClassifier(random_state=0).fit(X[1:], y[1:], ids=names[1:])
    never.add_classes(project.vectors(["c0", "c1"]).astype(float), ["cow"] * 2)
    assert (project.model.predict_proba(X) == never.predict_proba(X)).all()


def test_contents_that_others_have_stay(tmp_path: Path) -> None:
    project = base(tmp_path / "p")
    project.import_rows([[1.0, 2.0, 3.0, 4.0]] * 2, ids=["one", "two"])
    project.forget(["one"])
    assert Project.open(project.folder).vectors(["two"]).tolist() == [[1.0, 2.0, 3.0, 4.0]]


def test_a_project_without_a_model(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "p", draws("ant", 3, 0))
    project.forget(["1"])
    assert list(Project.open(tmp_path / "p").examples) == ["0", "2"]


def test_a_kill_at_any_write_leaves_before_or_after(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last moment is between the new model and its old arrays: these must not stay behind."""
    shutil.copytree(made, tmp_path / "made")
    project = Project.open(tmp_path / "made")
    project.teach([("cow", COWS)])
    key = bytes.fromhex(project.examples["pool cow 1"].key)
    outcomes = []
    for kill_at in range(60):
        shutil.rmtree(tmp_path / "p", ignore_errors=True)
        shutil.copytree(tmp_path / "made", tmp_path / "p")
        project, calls = Project.open(tmp_path / "p"), 0

        class KillError(BaseException):
            pass

        def written(path: Path, content: object, kill_at: int = kill_at, error: type = KillError) -> None:
            nonlocal calls
            calls += 1
            if calls > kill_at:
                raise error
            write_atomically(path, content)  # pyright: ignore[reportArgumentType]

        with monkeypatch.context() as patched:
            for place in ("project.folder", "storage.folder", "embed.store", "embed.shards"):
                patched.setattr(f"gptree.{place}.write_atomically", written)
            patched.setattr("gptree.project.folder._drop", lambda folder: None)
            patched.setattr("gptree.storage.folder.clear_spare", lambda folder: None)
            try:
                project.forget(["pool cow 1"])
            except KillError:
                pass
            else:
                break
        again = Project.open(tmp_path / "p")
        gone = "pool cow 1" not in again.examples
        assert (again.version, again.snapshot().counts[2]) == ((5, 2) if gone else (4, 3))
        everything = bytes_of(again)
        assert (b"pool cow 1" in everything, key in everything) == (not gone, not gone), kill_at
        outcomes.append(gone)
    assert outcomes == sorted(outcomes)
    assert len(set(outcomes)) == 2
