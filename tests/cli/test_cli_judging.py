"""`gptree score`, `check`, `preview` and `diff` on vectors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from animals import animals, csv_text

from gptree import load_model
from gptree.cli.looking import _marks
from gptree.project import Project

Run = Callable[..., Any]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Known animals, one with a wrong name, and some of a class that the model does not know."""
    X, y = animals()
    y = y.astype("U9")
    y[0] = "bee"
    eels = np.random.default_rng(1).normal((0, 0, 0, 0, 5), 0.4, (4, 5))
    path = tmp_path / "mixed.csv"
    path.write_text(csv_text(np.concatenate([X, eels]), np.concatenate([y, ["eel"] * 4])), encoding="utf-8")
    return path


def test_score(run: Run, model: Path, files: dict[str, Path], mixed: Path, tmp_path: Path) -> None:
    expected = json.loads(run("predict", model, files["csv"], "--score", "--json").stdout)["score"]
    found = json.loads(run("score", model, files["csv"], "--json").stdout)
    assert found["score"] == expected
    assert (found["rows"], found["unknown"], found["confusions"], found["worst"]) == (48, 0, [], [])
    assert sum(part["rows"] for part in found["reliability"]) == 48
    assert [(each["label"], each["rows"]) for each in found["classes"]] == [
        (n, 12) for n in ("ant", "bee", "cat", "dog")
    ]

    page = tmp_path / "score.html"
    result = run("score", model, mixed, "--page", page)
    assert "97.9 %" in result.stdout  # 47 of 48
    assert f"written to {page}" in result.stderr
    text = page.read_text(encoding="utf-8")
    for part in (
        "48",
        "4 more are of classes that the model does not know",
        "Reliability",
        "bee taken for ant 1 times",
    ):
        assert part in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org", "")
    again = json.loads(run("score", model, mixed, "--json").stdout)
    assert (again["unknown"], again["worst"][0]["id"], again["worst"][0]["answer"]) == (4, "0", "ant")
    assert again["score"]["open_auroc"] == 1.0


def test_score_says_what_is_wrong(run: Run, model: Path, tmp_path: Path, files: dict[str, Path]) -> None:
    X, _ = animals()
    (tmp_path / "eels.csv").write_text(csv_text(X[:2], np.array(["eel", "eel"])), encoding="utf-8")
    assert "has no row of a class that the model knows" in run("score", model, tmp_path / "eels.csv", code=2).stderr
    assert "a page is an .html file" in run("score", model, files["csv"], "--page", tmp_path / "a.txt", code=2).stderr
    missing = tmp_path / "no" / "a.html"
    assert "there is no folder" in run("score", model, files["csv"], "--page", missing, code=2).stderr


def test_check(run: Run, mixed: Path, tmp_path: Path, model: Path) -> None:
    lines = mixed.read_text().splitlines()
    mixed.write_text("\n".join([*lines, lines[5]]) + "\n")
    page = tmp_path / "check.html"
    found = json.loads(run("check", mixed, "--json", "--page", page).stdout)
    assert [each["id"] for each in found["suspects"]] == ["0"]
    assert [each["ids"] for each in found["duplicates"]] == [["4", "52"]]
    assert "Labels that are probably wrong" in page.read_text(encoding="utf-8")
    assert "1 label is probably wrong" in run("check", mixed).stdout
    assert "is a model, which keeps vectors alone" in run("check", model, code=2).stderr


def test_preview_and_diff(run: Run, model: Path, mixed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    X, _ = animals()
    eels = np.random.default_rng(2).normal((0, 0, 0, 0, 5), 0.4, (3, 5))
    lesson = tmp_path / "lesson.csv"
    lesson.write_text(csv_text(np.concatenate([eels, X[:1]]), np.array(["eel"] * 3 + ["ant"])), encoding="utf-8")
    before = {path: path.read_bytes() for path in copy.iterdir()}
    previewed = json.loads(run("preview", copy, lesson, "--on", mixed, "--json").stdout)
    assert {path: path.read_bytes() for path in copy.iterdir()} == before
    assert {"48", "49", "50", "51"} <= {each["id"] for each in previewed["changes"]}
    assert set(previewed["now_right"]) >= {"48", "49", "50", "51"}
    assert previewed["summary"].startswith(f"{previewed['changed']} of 52 answers would change; on the 52 test rows")

    lines = lesson.read_text().splitlines()
    for name, part in (("new", lines[1:4]), ("more", lines[4:])):
        (tmp_path / f"{name}.csv").write_text("\n".join([lines[0], *part]) + "\n")
    run("add", copy, tmp_path / "new.csv")
    run("add", copy, tmp_path / "more.csv", "--examples")
    found = json.loads(run("diff", copy, mixed, "--back", 2, "--json").stdout)
    assert [each["id"] for each in found["changes"]] == [each["id"] for each in previewed["changes"]]
    page = tmp_path / "diff.html"
    other = run("diff", copy, mixed, "--against", model, "--page", page)
    assert previewed["summary"].replace("would change", "changed") in other.stdout
    assert "What changed" in page.read_text(encoding="utf-8")
    assert "0 of 52" in run("diff", model, mixed, "--against", model).stdout
    for arguments, message in (
        ((model, mixed), "the model has changed 0 times since it was fitted, not 1"),
        ((copy, mixed, "--back", 1, "--against", model), "not both"),
        ((copy,), "name the DATA"),
        ((copy, mixed, "--versions", 1, 2), "--versions belongs to a project"),
    ):
        assert message in run("diff", *arguments, code=2).stderr


def test_projects_are_checked_and_compared(run: Run, model: Path, tmp_path: Path) -> None:
    X, y = animals()
    project = Project.create(tmp_path / "p", X, ids=[f"a{i}" for i in range(48)], model=model, labels=y)
    project.import_rows(np.random.default_rng(2).normal((0, 0, 0, 0, 5), 0.4, (4, 5)), ids=["e0", "e1", "e2", "e3"])
    project.teach([("eel", ["e0", "e1"])])
    assert "of 2 answers changed" in run("diff", tmp_path / "p").stdout
    assert json.loads(run("diff", tmp_path / "p", "--versions", 1, 2, "--json").stdout)["changed"] == 0
    assert "is a project, with rows and versions" in run("diff", tmp_path / "p", tmp_path / "x.csv", code=2).stderr
    assert "rows, 50 with a label" in run("check", tmp_path / "p").stdout
    assert "belongs to a project" in run("forget", tmp_path / "p" / "model", "e0", code=2).stderr
    assert "rows of this model have no ids" in run("forget", tmp_path / "p", "a7", code=2).stderr
    assert "last example of 'eel'" in run("forget", tmp_path / "p", "e0", "e1", code=2).stderr
    told = run("forget", tmp_path / "p", "e0", "e1", "--remove-class").stderr
    assert "forgotten: 2 examples; 4 classes now; 2 vectors left the store" in told
    assert "no example 'e1' in the project" in run("forget", tmp_path / "p", "e1", code=2).stderr


def test_alone_it_prints_its_help(run: Run) -> None:
    assert "Usage: " in run().stdout  # exit code 0


def test_a_picture_of_the_tree_marks_novel_classes(run: Run, model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    eels = np.random.default_rng(2).normal((0, 0, 0, 0, 5), 0.4, (3, 5))
    (tmp_path / "new.csv").write_text(csv_text(eels, np.array(["eel"] * 3)), encoding="utf-8")
    run("add", copy, tmp_path / "new.csv")
    marks = _marks(load_model(copy))
    assert marks["highlight"] == [4]
    assert marks["node_values"].shape == (4,)
    assert ((marks["node_values"] > 0.5) & (marks["node_values"] <= 1)).all()
    run("tree", copy, "--picture", tmp_path / "tree.png")
    assert (tmp_path / "tree.png").stat().st_size > 1000
