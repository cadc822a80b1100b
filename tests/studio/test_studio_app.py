"""The endpoints: what the page is told, and what it can change."""

from __future__ import annotations

import io
import json
import shutil
import struct
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studio_pages import HEADERS, Page

from command_runs import alone
from gptree import GPForestClassifier, load_model
from gptree.estimators import onnx_export
from gptree.project import Project
from gptree.studio.desk import label_of
from gptree.studio.events import Events
from gptree.studio.sources import found_below, opener, write_digits
from gptree.studio.views import url_key

Made = Callable[..., Page]


@pytest.fixture
def page(studio: Made) -> Page:
    return studio()


def lesson(page: Page, digit: int, n: int = 5) -> dict[str, Any]:
    return {"label": str(digit), "ids": page.pool(digit, n)}


def teach(page: Page, digit: int, n: int = 5, **more: Any) -> Any:
    return page.post("teach", {"version": page.state()["version"], "lessons": [lesson(page, digit, n)], **more})


# ----------------------------------------------------------------------------------------------------------- reading


def test_the_state(shared: Page) -> None:
    state = shared.state()
    assert (state["state"], state["version"], state["read_only"], state["undoable"]) == ("ready", 1, False, False)
    assert state["project"] == {
        "name": "project",
        "kind": "image",
        "folder": str(shared.root / "project"),
        "encoder": "pixels:8",
        "uploads": True,
    }
    assert [each["name"] for each in state["classes"]] == ["0", "1", "2"]
    assert [each["taught"] for each in state["classes"]] == [8, 8, 8]
    assert state["counts"] | {"none": 0} == {"examples": 98, "pool": 50, "taught": 24, "test": 24, "none": 0}
    answered = sum(each["answers"] for each in state["classes"])
    assert answered + state["counts"]["none"] == 74
    assert sorted(state["tree"]) == ["hi", "lo", "mid", "order"]
    assert [(each["what"], each["author"], each["standing"]) for each in state["journal"]] == [("created", "ann", True)]


def test_examples_are_what_the_model_says(shared: Page) -> None:
    project = Project.open(shared.root / "project")
    answers = project.snapshot().answers
    found = shared.get("examples?limit=200").json()
    assert found["total"] == len(found["examples"]) == 98
    for each in found["examples"]:
        assert each["key"] == url_key(each["id"])
        if each["split"] == "taught":
            assert each["answer"] == each["given"]
        else:
            answer = answers[each["id"]]
            assert (each["answer"], each["none"]) == (str(answer.best), answer.label is None)
            assert each["p"] == pytest.approx(answer.probability, abs=1e-4)


@pytest.mark.parametrize("order", ["strangest", "least-sure", "newest", "id"])
def test_pages_follow_each_other_by_cursor(shared: Page, order: str) -> None:
    whole = shared.get(f"examples?order={order}&limit=200").json()["examples"]
    seen: list[dict[str, Any]] = []
    after = ""
    while True:
        part = shared.get(f"examples?order={order}&limit=30{after}").json()
        seen += part["examples"]
        if part["next"] is None:
            break
        after = f"&after={part['next']}"
    assert [each["id"] for each in seen] == [each["id"] for each in whole]
    column = {"strangest": "novelty", "least-sure": "p"}.get(order)
    if column:
        values = [each[column] for each in whole]
        assert values == sorted(values, reverse=order == "strangest")


def test_filters(shared: Page) -> None:
    found = shared.get("examples", params={"class": "0\n1", "split": "pool", "limit": 200}).json()["examples"]
    assert found
    assert all(each["answer"] in "01" and each["split"] == "pool" and not each["none"] for each in found)
    none = shared.get("examples?none=1&limit=200").json()
    assert none["total"] == shared.state()["counts"]["none"] > 0
    assert shared.get("examples?text=UNLABELLED/3").json()["total"] == 10
    rows = shared.get("examples?rows=5,2,999,-1").json()["examples"]
    assert [each["row"] for each in rows] == [5, 2]


def test_the_map_and_its_tag(shared: Page) -> None:
    shared.wait("ready")
    while not shared.state()["map"]:
        pass
    answer = shared.get("map")
    n, version = struct.unpack_from("<II", answer.content)
    assert (n, version, len(answer.content)) == (98, 1, 8 + 12 * 98)
    x, y = np.frombuffer(answer.content, "<f4", 2 * n, 8).reshape(2, n)
    assert min(x.min(), y.min()) >= 0
    assert max(x.max(), y.max()) <= 1
    flags = np.frombuffer(answer.content, "u1", n, 8 + 11 * n)
    assert (flags & 2).sum() / 2 == 24
    assert shared.get("map", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304


def test_the_map_does_not_jump(page: Page) -> None:
    while not page.state()["map"]:
        pass
    before = page.get("map").content
    assert teach(page, 3).status_code == 200
    after = page.get("map").content
    assert after[8 : 8 + 8 * 98] == before[8 : 8 + 8 * 98]
    assert after != before


def test_one_example_and_its_picture_and_reasons(shared: Page) -> None:
    key = url_key(shared.pool(0, 1)[0])
    assert shared.get(f"examples/{key}").json()["id"] == shared.pool(0, 1)[0]
    thumb = shared.get(f"examples/{key}/thumb")
    assert thumb.headers["content-type"] == "image/png"
    again = shared.get(f"examples/{key}/thumb", headers={"If-None-Match": thumb.headers["etag"]})
    assert again.status_code == 304
    why = shared.get(f"examples/{key}/explain").json()
    assert why["label"] == "0"
    assert len(why["best"]) == 3
    assert sum(each["p"] for each in why["best"]) == pytest.approx(1, abs=1e-3)
    product = np.prod([step["probability"] for step in why["path"]])
    assert 0 < product <= 1
    assert all(each["key"] for each in why["neighbours"])
    assert shared.get("examples/nothing").status_code == 404


@pytest.mark.parametrize("order", ["suggest", "strangest", "least-sure", "newest"])
def test_the_queue(shared: Page, order: str) -> None:
    cards = shared.get(f"queue?order={order}&n=7").json()["cards"]
    assert [each["id"] for each in cards] == list(Project.open(shared.root / "project").queue(order, 7))  # pyright: ignore
    assert all(each["split"] == "pool" for each in cards)


def test_quality_has_the_numbers_and_the_charts(shared: Page) -> None:
    quality = shared.get("quality").json()
    expected = Project.open(shared.root / "project").quality()
    assert (quality["source"], quality["rows"], quality["unknown"]) == ("test", 18, 6)
    assert quality["accuracy"] == pytest.approx(expected.accuracy)
    assert quality["charts"][0]["svg"].startswith("<svg")
    assert " style=" not in "".join(each["svg"] for each in quality["charts"])
    assert sum(each["rows"] for each in quality["classes"]) == 18


def test_labels_that_look_wrong_and_the_same_content_twice(page: Page) -> None:
    zeros = page.pool(0, 6)
    taught = page.post("teach", {"version": 1, "lessons": [{"label": "2", "ids": zeros[:1]}]})
    assert taught.status_code == 200
    suspects = page.get("quality").json()["suspects"]
    assert {(each["example"]["id"], each["given"], each["instead"]) for each in suspects} >= {
        (name, "2", "0") for name in zeros[:1]
    }
    path = page.root / "project"
    content = (Project.open(path).path_of(zeros[5]) or Path()).read_bytes()
    page.client.post("/api/upload", files=[("files", ("again.png", content))], headers=HEADERS)
    assert sorted(page.get("quality").json()["duplicates"][0]["ids"]) == sorted(["again.png", zeros[5]])


# ---------------------------------------------------------------------------------------------------------- changing


def test_preview_teach_and_undo(page: Page) -> None:
    body = {"version": 1, "lessons": [lesson(page, 3)]}
    preview = page.post("preview", body).json()
    assert page.state()["version"] == 1
    taught = page.post("teach", {**body, "note": "threes"}).json()
    assert taught["changed"] == preview["changed"] > 0
    assert taught["test"] == preview["test"]
    assert taught["test"]["rows"] == 24
    assert {each["now"] for each in taught["rows"]} & {"3"}
    state = page.state()
    assert state["version"] == 2
    assert [each["name"] for each in state["classes"]] == ["0", "1", "2", "3"]
    assert state["classes"][3]["session"] == 1
    assert state["classes"][3]["taught"] == 5
    assert state["journal"][-1]["note"] == "threes"
    model = load_model(page.root / "project" / "model")
    assert model.classes_.tolist() == ["0", "1", "2", "3"]
    back = page.post("undo", {"version": 2}).json()
    assert back["changed"] == taught["changed"]
    assert [each["name"] for each in page.state()["classes"]] == ["0", "1", "2"]
    assert not page.state()["undoable"]
    assert page.post("undo", {"version": 3}).status_code == 400


def test_the_numbers_of_a_change_are_those_of_the_project(page: Page, digits_project: Path, tmp_path: Path) -> None:
    """The same lesson without the studio."""
    shutil.copytree(digits_project, tmp_path / "twin")
    ids = page.pool(3, 5)
    twin = Project.open(tmp_path / "twin").teach([("3", ids)])
    found = teach(page, 3).json()
    assert (found["changed"], found["of"]) == (len(twin), twin.rows)
    assert [each["id"] for each in found["rows"]] == [each.id for each in twin.items]
    assert [(each["was"], each["now"]) for each in found["rows"]] == [(e.was.shown, e.now.shown) for e in twin.items]
    worse = {each["id"] for each in found["rows"] if each["verdict"] == "worse"}
    assert worse == set(twin.now_wrong) & {each.id for each in twin.items}


def test_a_stale_version_is_answered_with_what_changed(page: Page) -> None:
    assert teach(page, 3).status_code == 200
    late = {"version": 1, "lessons": [lesson(page, 4)]}
    for path in ("teach", "preview"):
        answer = page.post(path, late)
        assert answer.status_code == 409
        assert "version 2 now" in answer.json()["error"]
        assert answer.json()["state"]["version"] == 2
        assert answer.json()["changes"]["changed"] > 0
    for path, body in {
        "undo": {},
        "rename": {"label": "0", "to": "9"},
        "merge": {"labels": ["0", "3"], "into": "0"},
        "remove": {"labels": ["3"]},
    }.items():
        assert page.post(path, {"version": 1, **body}).status_code == 409
    assert page.state()["version"] == 2


def test_answers_of_the_queue_are_one_step(page: Page) -> None:
    answers = [{"id": name, "label": label} for label in ("3", "0") for name in page.pool(int(label), 3)]
    assert page.post("answers", {"version": 1, "answers": answers}).status_code == 200
    state = page.state()
    assert [each["taught"] for each in state["classes"]] == [11, 8, 8, 3]
    assert state["version"] == 2
    page.post("undo", {"version": 2})
    assert [each["taught"] for each in page.state()["classes"]] == [8, 8, 8]


def test_rename_merge_remove_and_back_to_a_point(page: Page) -> None:
    teach(page, 3)
    page.post("rename", {"version": 2, "label": "3", "to": "33"})
    assert page.post("merge", {"version": 3, "labels": ["0", "33"], "into": "0"}).status_code == 200
    assert page.post("remove", {"version": 4, "labels": ["1"]}).status_code == 200
    assert [each["name"] for each in page.state()["classes"]] == ["0", "2"]
    assert page.post("undo", {"version": 5, "to": 2}).status_code == 200
    state = page.state()
    assert [each["name"] for each in state["classes"]] == ["0", "1", "2", "3"]
    assert [each["standing"] for each in state["journal"]] == [True, True, False, False, False, False]
    assert page.get("changes/2").json()["changed"] > 0


def test_an_example_is_forgotten_for_good(page: Page) -> None:
    """What was taught, and what was handed over; the map stays, and nobody's version is overwritten."""
    taught = lesson(page, 3, 1)
    page.post("teach", {"version": 1, "lessons": [taught]})
    places = page.desk.view.places  # pyright: ignore[reportOptionalMemberAccess]
    example = page.get("examples?split=taught&class=3").json()["examples"][0]
    body = {"version": 2, "confirm": taught["ids"][0], "note": "she asked"}
    refused = page.forget(example["key"], body)
    assert (refused.status_code, "last example of '3'" in refused.json()["error"]) == (400, True)
    assert page.forget(example["key"], {**body, "version": 1}).status_code == 409
    answer = page.forget(example["key"], {**body, "remove_class": True}).json()
    assert (answer["version"], [each["name"] for each in page.state()["classes"]]) == (3, ["0", "1", "2"])
    assert page.get(f"examples/{example['key']}").status_code == 404
    entry = page.state()["journal"][-1]
    assert (entry["what"], entry["examples"], entry["note"], entry["author"]) == ("forgot", 0, "she asked", "ann")
    now = page.desk.view.places  # pyright: ignore[reportOptionalMemberAccess]
    if places is not None and now is not None:
        assert (now == np.delete(places, example["row"], axis=0)).all()
    assert page.post("undo", {"version": 3}).status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("teach", {"lessons": [{"label": "3", "ids": ["nobody"]}]}, "no example 'nobody'"),
        ("teach", {"lessons": []}, "lessons is a list"),
        ("teach", {"lessons": [3]}, "lessons is a list of"),
        ("teach", {"lessons": [{"label": "", "ids": ["a"]}]}, "name of 1 to 200"),
        ("teach", {"lessons": [{"label": "3", "ids": "a"}]}, "ids is a list"),
        ("teach", {"lessons": [{"label": "3", "ids": ["a"]}], "note": 5}, "note"),
        ("rename", {"label": "7", "to": "8"}, "unknown"),
        ("merge", {"labels": ["0", "1"], "into": "0"}, "base session"),
        ("remove", {"labels": ["0", "1", "2"]}, "has to stay"),
        ("undo", {"to": "x"}, "whole number"),
        ("export", {"what": "all"}, "what is model, onnx or answers"),
    ],
)
def test_bad_requests_get_a_sentence_and_change_nothing(
    shared: Page, path: str, body: dict[str, Any], words: str
) -> None:
    answer = shared.post(path, {"version": 1, **body})
    assert answer.status_code == 400
    assert words in answer.json()["error"]
    assert shared.state()["version"] == 1


@pytest.mark.parametrize("content", [b"", b"nothing", b"[]", b'{"version": "1"}', b"[" * 100_000])
def test_what_is_no_request_is_refused(shared: Page, content: bytes) -> None:
    headers = {**HEADERS, "Content-Type": "application/json"}
    assert shared.client.post("/api/undo", content=content, headers=headers).status_code == 400
    assert shared.client.post("/api/undo", content=content, headers=HEADERS).status_code == 400


def test_test_rows_cannot_be_taught(shared: Page) -> None:
    name = shared.get("examples?split=test&limit=1").json()["examples"][0]["id"]
    answer = shared.post("teach", {"version": 1, "lessons": [{"label": "0", "ids": [name]}]})
    assert answer.status_code == 400
    assert "test row" in answer.json()["error"]


def test_exports(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    teach(page, 3)
    with zipfile.ZipFile(io.BytesIO(page.post("export", {"what": "model"}).content)) as archive:
        archive.extractall(page.root / "taken")
    assert load_model(page.root / "taken" / "model").classes_.tolist() == ["0", "1", "2", "3"]
    with zipfile.ZipFile(io.BytesIO(page.post("export", {"what": "answers"}).content)) as archive:
        lines = archive.read("answers.csv").decode().splitlines()
    assert len(lines) == 99
    monkeypatch.setattr(onnx_export, "export_onnx", lambda model, path: path.write_bytes(b"graph"))
    with zipfile.ZipFile(io.BytesIO(page.post("export", {"what": "onnx"}).content)) as archive:
        assert archive.namelist() == ["model.onnx"]


def test_what_another_process_does_is_noticed(page: Page) -> None:
    ids = page.pool(3, 5)
    Project.open(page.root / "project").teach([("3", ids)], author="bob")
    page.desk._refresh()
    state = page.state()
    assert state["version"] == 2
    assert state["journal"][-1]["author"] == "bob"


# ---------------------------------------------------------------------------------------------------------- opening


def test_labels_are_shown_before_it_is_known_what_is_none_of_these(
    studio: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    whole = GPForestClassifier.novelty_threshold

    def slow(model: Any, reject: float) -> float:
        assert go_on.wait(20)
        return whole(model, reject)

    monkeypatch.setattr(GPForestClassifier, "novelty_threshold", slow)
    page = studio(wait=False)
    state = page.wait("working")
    try:
        assert state["job"] is not None
        assert state["counts"]["none"] == 0
        first = page.get("examples?split=pool&limit=50").json()["examples"]
        assert {each["answer"] for each in first} == {"0", "1", "2"}
        assert page.post("teach", {"version": 1, "lessons": []}).status_code == 400  # is answered, at any time
    finally:
        go_on.set()
    state = page.wait("ready")
    assert state["job"] is None
    assert state["counts"]["none"] > 0
    assert [each["answer"] for each in page.get("examples?split=pool&limit=50").json()["examples"]] == [
        each["answer"] for each in first
    ]


def test_a_large_pool_is_answered_in_parts_with_progress(
    page: Page, monkeypatch: pytest.MonkeyPatch, digits_project: Path
) -> None:
    whole = page.desk.project.snapshot().answers  # pyright: ignore[reportOptionalMemberAccess]
    monkeypatch.setattr("gptree.project.answers._CHUNK", 20)
    project, told = Project.open(digits_project), []
    project.told = lambda done, of: told.append((done, of))
    answers = project.snapshot().answers
    assert told == [(20, 74), (40, 74), (60, 74), (74, 74)]
    for name in ("best", "second", "none"):
        assert (getattr(answers, name) == getattr(whole, name)).all()
    assert answers.novelty == pytest.approx(whole.novelty, abs=1e-9)


def test_states_while_loading_and_when_it_fails(studio: Made, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "project.json").write_text("{}")
    page = studio(bad, wait=False)
    assert page.wait("failed")["message"].endswith("was not written by gptree.")
    assert page.get("examples").status_code == 503
    assert page.post("teach", {"version": 1, "lessons": [{"label": "3", "ids": ["a"]}]}).status_code == 503
    with pytest.raises(ValueError, match="no such file or folder"):
        opener(tmp_path / "nothing")


def test_vectors_texts_and_a_model_are_opened(studio: Made, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 6)) + np.repeat(np.eye(6)[:2] * 6, 20, axis=0)
    np.savez(tmp_path / "rows.npz", X=x, y=np.repeat(["cat", "dog"], 20))
    page = studio(tmp_path / "rows.npz", hold_out=0.25)
    state = page.wait("ready", "failed")
    assert state["state"] == "ready", state["message"]
    assert state["project"]["kind"] == "vector"
    assert not state["project"]["uploads"]
    assert state["counts"]["test"] == 10
    key = page.get("examples?limit=1").json()["examples"][0]["key"]
    assert page.get(f"examples/{key}/thumb").headers["content-type"] == "image/png"
    answer = page.client.post("/api/upload", files=[("files", ("a.png", b"x"))], headers=HEADERS)
    assert "takes no pictures" in answer.json()["error"]
    model = tmp_path / "rows.npz.project" / "model"
    shutil.copytree(model, tmp_path / "model")
    other = studio(tmp_path / "model")
    assert [each["name"] for each in other.state()["classes"]] == ["cat", "dog"]
    assert other.state()["counts"]["examples"] == 0


def test_the_start_screen_finds_what_can_be_opened(studio: Made, tmp_path: Path, digits_project: Path) -> None:
    shutil.copytree(digits_project, tmp_path / "shop.project")
    shutil.copytree(digits_project / "model", tmp_path / "old")
    (tmp_path / "shop" / "mug").mkdir(parents=True)
    (tmp_path / "table.csv").write_text("text,label\n")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / ".hidden").mkdir()
    found = [(each["kind"], each["name"]) for each in found_below(tmp_path)]
    assert found == [("project", "shop.project"), ("model", "old"), ("table", "table.csv")]
    page = studio(None)
    assert page.state()["state"] == "start"
    assert page.get("examples").status_code == 503
    assert page.post("open", {"path": "shop.project"}).json()["state"] == "loading"
    assert page.wait("ready")["version"] == 1
    assert page.post("open", {"path": "old"}).status_code == 400


def test_digits_to_try(studio: Made, tmp_path: Path) -> None:
    write_digits(tmp_path / "d")
    counts = {path.name: len(list(path.iterdir())) for path in (tmp_path / "d" / "train").iterdir()}
    assert counts == {"0": 20, "1": 20, "2": 20, "3": 20, "4": 20, "unlabelled": 400}
    assert len(list((tmp_path / "d" / "test").rglob("*.png"))) == 200
    (tmp_path / "digits").mkdir()
    page = studio(None)
    page.post("digits", {})
    assert "in the way" in page.wait("failed")["message"]


def test_labels_of_the_page_are_those_of_the_classes() -> None:
    class Numbers:
        number = dict.fromkeys([0, 1])

    class Names:
        number = dict.fromkeys(["a", "1"])

    assert label_of(" 1 ", Numbers()) == 1  # pyright: ignore[reportArgumentType]
    assert label_of("7", Numbers()) == 7  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="whole numbers"):
        label_of("seven", Numbers())  # pyright: ignore[reportArgumentType]
    assert label_of("7", Names()) == "7"  # pyright: ignore[reportArgumentType]


# ------------------------------------------------------------------------------------------------------------ events


def test_events_are_told_caught_up_on_and_kept_alive() -> None:
    async def story() -> list[str]:
        events = Events()
        events.publish("before", n=0)
        seen: list[str] = []
        stream = events.stream(heartbeat=0.05)
        seen.append(await anext(stream))
        events.publish("progress", what="x", done=1, of=2)
        seen.append(await anext(stream))
        seen.append(await anext(stream))  # nothing happened: a sign of life
        last = seen[1].split("\n")[0].removeprefix("id: ")
        events.publish("changed", version=2)
        events.publish("changed", version=3)
        seen.append(await anext(events.stream(last)))
        seen.append(await anext(events.stream("of-another-life")))
        events.close()
        assert [text async for text in stream if text is None] == []  # it ends
        return seen

    hello, progress, alive, missed, reset = alone(story())
    assert "before" not in hello
    assert "event: progress" in progress
    assert json.loads(progress.split("data: ")[1]) == {"what": "x", "done": 1, "of": 2}
    assert alive.startswith(":")
    assert missed.count("event: changed") == 2
    assert "event: reset" in reset
