"""What reaches the terminal, whatever a label holds; and writers that are not alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from animals import animals

from gptree import GPTreeClassifier, Growth, load_model
from gptree.cli.console import visible
from gptree.storage import locks

Run = Callable[..., Any]

#: Clear the screen, go back in the line, a new line that looks like a message, C1, right to left.
EVIL = ["\x1b[2Jant", "bee\rwasp", "cat\nerror: no", "\x9b31mdog\u202egod"]
SHOWN = ["\\x1b[2Jant", "bee\\rwasp", "cat\\nerror: no", "\\x9b31mdog\\u202egod"]


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of such labels, and its data."""
    folder = tmp_path_factory.mktemp("evil")
    X, y = animals()
    names = np.array(EVIL)[np.unique(y, return_inverse=True)[1]]
    np.savez(folder / "data.npz", X=X, y=names)
    GPTreeClassifier(growth=Growth(), random_state=0).fit(X, names).save(folder / "m")
    return folder


def harmless(*texts: str) -> None:
    for text in texts:
        assert not [c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u202e"]
        assert "\nerror: no" not in text


def test_visible() -> None:
    assert [visible(label) for label in EVIL] == SHOWN
    assert visible("naïve 犬 👩‍👧 [b]") == "naïve 犬 👩‍👧 [b]"
    assert visible("\ud800\x00\t") == "\\ud800\\x00\\t"
    assert visible(3) == "3"


@pytest.mark.parametrize(
    "command",
    [
        ("tree",),
        ("tree", "--format", "newick"),
        ("explain", "data", "--rows", "0,13,26,39"),
        ("predict", "data", "--proba"),
    ],
    ids=" ".join,
)
def test_labels_are_written_out(run: Run, evil: Path, command: tuple[str, ...]) -> None:
    name, *rest = (str(evil / "data.npz") if word == "data" else word for word in command)
    result = run(name, evil / "m", *rest)
    harmless(result.stdout, result.stderr)
    assert all(shown in result.stdout for shown in SHOWN)


def test_graphviz_and_history(run: Run, evil: Path) -> None:
    dot = run("tree", evil / "m", "--format", "dot").stdout
    assert "\\\\x1b[2Jant" in dot  # a backslash is two in this language
    history = run("history", evil / "m").stdout
    harmless(dot, history)
    assert "\\x1b[2Jant" in history.replace("\n", "")


def test_changes_and_complaints(run: Run, evil: Path, tmp_path: Path) -> None:
    model = shutil.copytree(evil / "m", tmp_path / "m")
    harmless(run("rename", model, EVIL[0], "\x1b[31mred").stderr)
    harmless(run("remove", model, "\x1b]0;title\x07", code=2).stderr)
    harmless(run("predict", model, tmp_path / "\x1b[2J.npz", code=2).stderr)
    assert "\x1b[31mred" in load_model(model).classes_  # intact in files


def test_json_and_files_hold_the_labels_themselves(run: Run, evil: Path, tmp_path: Path) -> None:
    for command in (("tree",), ("history",), ("explain", evil / "data.npz"), ("predict", evil / "data.npz")):
        name, *rest = command
        text = run(name, evil / "m", *rest, "--json").stdout
        harmless(text)
        assert EVIL[0] in json.dumps(json.loads(text), ensure_ascii=False).replace("\\u001b", "\x1b")
    assert json.loads(run("tree", evil / "m", "--json").stdout)["classes"] == sorted(EVIL)
    run("predict", evil / "m", evil / "data.npz", "--out", tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz") as arrays:
        assert set(arrays["prediction"]) == set(EVIL)
    run("predict", evil / "m", evil / "data.npz", "--out", tmp_path / "p.csv")
    content = (tmp_path / "p.csv").read_bytes().decode()
    assert all(label in content for label in EVIL)


# --------------------------------------------------------------------------------------------------- not alone, or full


def test_a_command_that_waits_too_long(run: Run, evil: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Path(shutil.copytree(evil / "m", tmp_path / "m"))
    hold = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", hold, str(model / locks.LOCK)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    monkeypatch.setattr(locks, "WAIT", 0.05)
    before = (model / "model.json").read_bytes()
    for arguments in (
        ("rename", model, EVIL[0], "ant"),
        ("remove", model, EVIL[0]),
        ("undo", model),
        ("add", model, evil / "data.npz"),
        ("fit", evil / "data.npz", "--out", model, "--force"),
    ):
        result = run(*arguments, code=2)
        assert "m is being changed by another process, and still was after 0.05 seconds: try again" in result.stderr
    run("history", model)  # readers do not wait
    run("rename", model, EVIL[0], "ant", "--out", tmp_path / "n")
    holder.kill()
    holder.wait()
    assert (model / "model.json").read_bytes() == before
    run("rename", model, EVIL[0], "ant")
    assert "ant" in load_model(model).classes_


def test_fit_goes_on_after_a_killed_save(run: Run, evil: Path, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / ".tmpAbC12z").write_bytes(b"half")
    run("fit", evil / "data.npz", "--trees", 1, "--out", tmp_path / "m")
    run("rename", tmp_path / "m", EVIL[0], "ant", "--out", tmp_path / "n")
    assert "holds a model" in run("fit", evil / "data.npz", "--out", tmp_path / "m", code=2).stderr
    assert len(list((tmp_path / "m").iterdir())) == 2


def test_a_fit_that_fails_leaves_no_folder(run: Run, evil: Path, tmp_path: Path) -> None:
    run("fit", evil / "data.npz", "--labels", "no", "--out", tmp_path / "m", code=2)
    assert list(tmp_path.iterdir()) == []
