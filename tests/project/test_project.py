"""Projects of bare vectors: lessons, previews, versions, going back, quality, queues."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from project_cases import draws, ids

from gptree import GPTreeClassifier, load_model
from gptree.project import NONE_OF_THESE, Example, Lesson, Project, StaleVersion
from gptree.storage import StorageError

COWS = [("cow", ids("cow", "pool", 3))]


def shown(project: Project) -> dict[str, str]:
    return {answer.id: answer.shown for answer in project.snapshot().answers}


def content(folder: Path) -> dict[str, bytes]:
    """Every file but events, answers and locks."""
    skipped = ("events.jsonl", ".gptree-lock")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in skipped and path.suffix != ".npz"
    }


def test_the_first_versions(project: Project) -> None:
    snapshot = project.snapshot()
    assert (project.version, project.kind, project.encoder) == (3, "vector", None)
    assert (snapshot.version, snapshot.classes, snapshot.counts, snapshot.sessions) == (
        3,
        ("ant", "bee"),
        (6, 6),
        (0, 0),
    )
    assert snapshot.tree is not None
    assert snapshot.tree.n_classes == 2
    assert [entry.kind for entry in snapshot.journal] == ["fit"]
    splits = [example.split for example in project.examples.values()]
    assert (splits.count("taught"), splits.count("pool"), splits.count("test")) == (12, 15, 12)
    first = project.examples["base ant 0"]
    assert isinstance(first, Example)
    assert (first.label, first.fitted, first.who, len(first.key)) == ("ant", "ant", "Ada", 32)
    assert project.vectors(["base ant 0"])[0] == pytest.approx(draws("ant", 6, 0)[0], rel=1e-6)
    assert [event.what for event in project.events] == ["created", "imported", "imported"]
    assert [(event.before, event.version) for event in project.events] == [(0, 1), (1, 2), (2, 3)]
    assert "animals" in repr(project)


def test_answers_are_those_of_the_model(project: Project) -> None:
    answers, model = project.snapshot().answers, project.model
    assert answers.ids == tuple(n for n, each in project.examples.items() if each.split != "taught")
    X = project.vectors(answers.ids)
    assert answers.probability == pytest.approx(model.predict_proba(X).max(1))
    assert answers.novelty == pytest.approx(model.novelty_score(X))
    expected = model.predict_open(X, reject=0.05, unknown=NONE_OF_THESE)
    assert [answer.shown for answer in answers] == expected.tolist()
    one = answers["test cow 1"]
    assert (one.truth, one.best == one.runner_up) == ("cow", False)
    assert answers["pool ant 1"].truth is None


def test_quality_on_test_rows_leaves_unknown_classes_out(project: Project) -> None:
    quality = project.quality()
    assert (quality.source, quality.rows, quality.unknown) == ("test", 8, 4)
    rows = ids("ant", "test", 4) + ids("bee", "test", 4)
    p = project.model.predict_proba(project.vectors(rows))
    assert quality.nll == pytest.approx(-np.log([*p[:4, 0], *p[4:, 1]]).mean())
    assert quality.accuracy == np.mean(p.argmax(1) == np.repeat([0, 1], 4))
    assert "4 more are of classes that the model does not know" in str(quality)
    assert [(each.label, each.rows) for each in quality.classes] == [("ant", 4), ("bee", 4)]


def test_preview_changes_nothing_and_says_what_teaching_does(project: Project) -> None:
    before, answers = content(project.folder), shown(project)
    preview = project.preview(COWS)
    assert content(project.folder) == before
    assert shown(project) == answers
    assert (project.version, preview.after, preview.before) == (3, None, 3)
    found = project.teach(COWS, "first cows", "Bob", version=3)
    assert [change.id for change in found.items] == [change.id for change in preview.items]
    assert (found.now_right, found.now_wrong, found.rows) == (preview.now_right, preview.now_wrong, 24)
    assert str(preview).replace("would change", "changed") == str(found)
    now = shown(project)
    assert {change.id for change in found.items} == {n for n in now if now[n] != answers[n]}
    assert {change.id: (change.was.shown, change.now.shown) for change in found.items} == {
        n: (answers[n], now[n]) for n in now if now[n] != answers[n]
    }
    truth = {n: n.split()[1] for n in now if n.startswith("test")}
    right = {n for n, label in truth.items() if now[n] == label}
    before_right = {n for n, label in truth.items() if answers[n] == label}
    assert set(found.now_right) == right - before_right
    assert set(found.now_wrong) == before_right - right
    entry = project.model.journal_[-1]
    assert (entry.kind, entry.note, entry.author, set(entry.ids)) == (
        *("add_classes", "first cows", "Bob"),
        set(COWS[0][1]),
    )
    assert project.examples["pool cow 0"].split == "taught"
    assert project.events[-1].result == str(found)


def test_new_and_known_classes_in_one_version(project: Project) -> None:
    lessons = [Lesson("cow", ids("cow", "pool", 2)), Lesson("ant", ids("ant", "pool", 1))]
    project.teach(lessons)
    assert [entry.kind for entry in project.model.journal_] == ["fit", "add_classes", "add_examples"]
    assert project.version == 4
    assert project.snapshot().counts == (7, 6, 2)
    project.undo()
    assert project.snapshot().counts == (6, 6)
    assert [entry.kind for entry in project.model.journal_] == ["fit"]


def test_undo_is_exact_and_opens_as_such(project: Project) -> None:
    X = project.vectors(ids("cow", "pool", 5))
    before, examples = project.model.predict_proba(X), dict(project.examples)
    project.teach(COWS)
    project.rename("cow", "ox")
    assert project.examples["test cow 0"].label == "ox"
    assert project.snapshot().classes == ("ant", "bee", "ox")
    assert len(project.diff(4)) == 0  # a class under another name gives the same answers
    project.undo_to(3, "no", "Eve")
    assert dict(project.examples) == examples
    again = Project.open(project.folder)
    assert (again.version, again.snapshot().classes) == (6, ("ant", "bee"))
    assert dict(again.examples) == examples
    assert (again.model.predict_proba(X) == before).all()
    assert project.events[-1].what == "took back version 4, 5"
    with pytest.raises(ValueError, match="nothing to undo: the model is as it was first fitted"):
        again.undo()
    with pytest.raises(ValueError, match="version 4 was taken back since"):
        again.undo_to(4)
    with pytest.raises(ValueError, match="there is no version 9"):
        again.diff(9)


def test_a_label_that_came_under_a_new_name_follows_it_back(project: Project) -> None:
    project.teach(COWS)
    project.rename("cow", "ox")
    project.import_rows(draws("cow", 1, 77), ids=["late"], labels=["ox"], split="test")
    project.undo()
    assert project.examples["late"].label == "cow"
    assert project.quality().unknown == 0


def test_merge_and_remove(project: Project) -> None:
    project.teach([("cow", ids("cow", "pool", 2)), ("calf", ["pool cow 2", "pool cow 3"])])
    project.merge(["cow", "calf"], "cattle")
    assert project.snapshot().classes == ("ant", "bee", "cattle")
    assert project.examples["pool cow 3"].label == project.examples["test cow 0"].label == "cattle"
    project.remove(["cattle"])
    assert project.snapshot().classes == ("ant", "bee")
    assert (project.examples["pool cow 3"].split, project.examples["pool cow 3"].label) == ("pool", "cattle")
    project.undo_to(4)
    assert project.snapshot().classes == ("ant", "bee", "calf", "cow")
    assert (project.examples["pool cow 3"].split, project.examples["pool cow 3"].label) == ("taught", "calf")
    assert project.examples["test cow 0"].label == "cow"


def test_versions_are_compared(project: Project, tmp_path: Path) -> None:
    first = project.teach(COWS)
    project.undo()
    assert [change.id for change in project.diff(3, 4).items] == [change.id for change in first.items]
    assert len(project.diff(3, 5)) == 0
    forward, back = project.diff(3, 4), project.diff(4, 3)
    assert (forward.now_right, forward.now_wrong) == (back.now_wrong, back.now_right)
    for path in project.folder.glob("versions/*.npz"):
        path.unlink()
    again = Project.open(project.folder)
    assert len(again.diff(3)) == 0  # computed by going back
    with pytest.raises(ValueError, match="version 4 was taken back, and its answers were not kept"):
        again.diff(4)


def test_a_stale_version_is_told_what_changed(project: Project) -> None:
    other = Project.open(project.folder)
    found = other.teach(COWS, version=3)
    for change in (
        lambda: project.teach([("dog", ["pool ant 0"])], version=3),
        lambda: project.rename("ant", "emmet", version=3),
        lambda: project.undo(version=3),
        lambda: project.import_rows(draws("dog", 1, 5), ids=["x"], version=3),
    ):
        with pytest.raises(StaleVersion, match="the project is at version 4 now, not 3") as stale:
            change()
        assert stale.value.version == 4
        assert stale.value.changes is not None
        assert [each.id for each in stale.value.changes.items] == [each.id for each in found.items]
    assert project.version == 4
    project.teach([("dog", ["pool ant 0"])], version=4)
    assert other.refresh() == 5
    assert other.snapshot().classes == ("ant", "bee", "cow", "dog")


def test_queues(project: Project) -> None:
    pool = [name for name, each in project.examples.items() if each.split == "pool"]
    answers = project.snapshot().answers
    assert project.queue("newest", 2) == (pool[-1], pool[-2])
    assert project.queue("strangest", 99) == tuple(sorted(pool, key=lambda n: -answers[n].novelty))
    assert project.queue("least-sure", 3) == tuple(sorted(pool, key=lambda n: answers[n].probability)[:3])
    chosen = project.model.suggest(project.vectors(pool), 4)
    assert project.queue("suggest", 4) == tuple(pool[row] for row in chosen)
    with pytest.raises(ValueError, match="order is suggest"):
        project.queue("best")  # pyright: ignore[reportArgumentType]


def test_quality_without_test_rows_is_left_out_and_says_so(tmp_path: Path) -> None:
    X = np.concatenate([draws("ant", 4, 0), draws("bee", 4, 1)])
    project = Project.create(tmp_path / "p", X, labels=["ant"] * 4 + ["bee"] * 4)
    quality = project.quality()
    assert (quality.source, quality.rows) == ("left out", 8)
    assert "no test rows: estimated on 8 examples that the model keeps, each left out" in quality.note
    assert project.snapshot().quality is None


def test_held_out_rows_test(tmp_path: Path) -> None:
    X = np.concatenate([draws("ant", 10, 0), draws("bee", 5, 1), draws("ant", 10, 0)[:3]])
    labels = ["ant"] * 10 + ["bee"] * 5 + ["ant"] * 3
    project = Project.create(tmp_path / "p", X, labels=labels, hold_out=0.2)
    tested = [each for each in project.examples.values() if each.split == "test"]
    keys = {each.key for each in tested}
    assert {each.split for each in project.examples.values() if each.key in keys} == {"test"}  # no content on two sides
    assert len({each.key for each in tested if each.label == "ant"}) == 2
    assert len([each for each in tested if each.label == "bee"]) == 1


def test_the_first_lesson_of_an_empty_project_is_a_fit(tmp_path: Path) -> None:
    X = np.concatenate([draws("ant", 4, 0), draws("bee", 4, 1)])
    project = Project.create(tmp_path / "p", X)
    assert (project.snapshot().classes, project.quality().source) == ((), "nothing")
    assert project.queue("suggest", 2) == ("0", "1")
    found = project.teach([("ant", ["0", "1"]), ("bee", ["4", "5"])], author="Ada")
    assert found.rows == 4
    assert project.snapshot().classes == ("ant", "bee")
    assert project.examples["0"].fitted == "ant"
    with pytest.raises(ValueError, match="nothing to undo"):
        project.undo()
    assert Project.open(project.folder).snapshot().classes == ("ant", "bee")


def test_a_project_around_a_model(tmp_path: Path) -> None:
    X, y = np.concatenate([draws("ant", 4, 0), draws("bee", 4, 1)]), ["ant"] * 4 + ["bee"] * 4
    model = GPTreeClassifier(random_state=0).fit(X, y, ids=[f"r{i}" for i in range(8)])
    model.add_classes(draws("cow", 3, 2), ["cow"] * 3, [f"c{i}" for i in range(3)])
    model.save(tmp_path / "model")
    more = np.concatenate([X, draws("cow", 3, 2), draws("dog", 2, 3)])
    names = [*(f"r{i}" for i in range(8)), *(f"c{i}" for i in range(3)), "n0", "n1"]
    project = Project.create(
        tmp_path / "p", more, labels=[*y, *["cow"] * 3, *["dog"] * 2], ids=names, model=tmp_path / "model"
    )
    assert project.snapshot().counts == (4, 4, 3)
    assert (project.examples["c0"].fitted, project.examples["r0"].fitted) == (None, "ant")
    assert (project.examples["n0"].split, project.examples["n0"].label) == ("pool", "dog")
    empty = Project.create(tmp_path / "q", model=tmp_path / "model")
    assert (len(empty.examples), empty.snapshot().classes) == (0, ("ant", "bee", "cow"))
    assert len(empty.import_rows(more, ids=names).ids) == 13
    with pytest.raises(ValueError, match="the rows have 3 numbers, but those of the project have 4"):
        empty.import_rows(more[:, :3], ids=names)


def test_a_change_outside_the_project_is_a_version(project: Project) -> None:
    model = load_model(project.folder / "model")
    model.add_classes(draws("dog", 3, 9), ["dog"] * 3).save(project.folder / "model")
    assert project.refresh() == 4
    assert project.events[-1].what == "changed outside the project"
    assert project.snapshot().classes == ("ant", "bee", "dog")
    project.undo()
    assert project.snapshot().classes == ("ant", "bee")


def test_what_is_known_is_not_taken_in_twice(project: Project) -> None:
    again = project.import_rows(draws("ant", 5, 10), ids=ids("ant", "pool", 5))
    assert (again.ids, len(again.known), project.version) == ((), 5, 3)
    other = project.import_rows(draws("dog", 1, 3), ids=["pool ant 0"])
    assert other.ids == ("pool ant 0 (2)",)
    labelled = project.import_rows(draws("ant", 5, 10)[:1], ids=["pool ant 0"], labels=["emmet"])
    assert labelled.known == ("pool ant 0",)
    assert (project.examples["pool ant 0"].label, project.examples["pool ant 0"].split) == ("emmet", "pool")
    tests = project.import_rows(draws("ant", 6, 0)[:1], ids=["a"], labels=["ant"], split="test")
    assert tests.failed[0].reason == "the same content was taught"
    assert (
        project.import_rows(draws("ant", 1, 8), ids=["b"], split="test").failed[0].reason.startswith("it has no label")
    )


@pytest.mark.parametrize(
    ("lessons", "message"),
    [
        ([], "a lesson names at least one example"),
        ([("cow", [])], "a lesson names at least one example"),
        ([("cow", ["nobody"])], "there is no example 'nobody'"),
        ([("cow", ["pool cow 0", "pool cow 0"])], "comes twice"),
        ([("cow", ["base ant 0"])], "'base ant 0' was taught as 'ant': undo that first"),
        ([("cow", ["test cow 0"])], "never to be taught"),
        ([(None, ["pool cow 0"])], "a lesson needs a label"),
        ([(" ", ["pool cow 0"])], "a lesson needs a label"),
        ([(7, ["pool cow 0"])], "and 7 is none of those"),
    ],
)
def test_bad_lessons_change_nothing(project: Project, lessons: list, message: str) -> None:
    before = content(project.folder)
    for attempt in (project.preview, project.teach):
        with pytest.raises(ValueError, match=message):
            attempt(lessons)
    assert content(project.folder) == before


def test_bad_folders(tmp_path: Path, project: Project) -> None:
    with pytest.raises(StorageError, match="holds no project"):
        Project.open(tmp_path / "nothing")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("x")
    with pytest.raises(ValueError, match="is not empty: make a project in a new folder"):
        Project.create(tmp_path / "full", np.eye(3))
    for bad, message in (
        (np.array([[np.nan]]), "NaN"),
        (np.zeros(3), "a table of numbers"),
        ([], "a table of numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            Project.create(tmp_path / "new", bad)
        assert not (tmp_path / "new").exists()
    record = project.folder / "project.json"
    for change, message in (
        (lambda d: d.update(format="other"), "not written by gptree"),
        (lambda d: d.update(format_version=9), "format version 9"),
        (lambda d: d["project"].update(version=-1), "out of its range"),
        (lambda d: d["project"].pop("line"), "is damaged"),
    ):
        document = json.loads(record.read_text())
        good = record.read_text()
        change(document)
        record.write_text(json.dumps(document))
        with pytest.raises(StorageError, match=message):
            Project.open(project.folder)
        record.write_text(good)
    lines = (project.folder / "examples.jsonl").read_text()
    (project.folder / "examples.jsonl").write_text(lines + '{"id": 3}\n')
    with pytest.raises(StorageError, match="line 40 is no example"):
        Project.open(project.folder)
    (project.folder / "examples.jsonl").write_text(lines)
    for path in (project.folder / "embeddings").rglob("*.safetensors"):
        path.unlink()
    with pytest.raises(StorageError, match="lacks the vectors of 39 examples"):
        Project.open(project.folder)


def test_readers_see_whole_versions(project: Project) -> None:
    project.snapshot()
    seen, done = [], threading.Event()

    def look() -> None:
        while not done.is_set():
            snapshot = project.snapshot()
            seen.append((snapshot.version, snapshot.classes, snapshot.answers.classes, snapshot.answers.version))

    reader = threading.Thread(target=look)
    reader.start()
    project.teach(COWS)
    project.rename("cow", "ox")
    project.undo_to(3)
    done.set()
    reader.join()
    known = {3: ("ant", "bee"), 4: ("ant", "bee", "cow"), 5: ("ant", "bee", "ox"), 6: ("ant", "bee")}
    assert seen
    for version, classes, answered, number in seen:
        assert classes == answered == known[version]
        assert number == version
