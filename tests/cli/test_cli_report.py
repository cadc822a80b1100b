"""`gptree report`: from a run folder to a page."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("quick_pictures")


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A base session and one more, of one method and seed."""
    folder = tmp_path / "run"
    folder.mkdir()
    base = {
        **{"data": "animals", "method": "forest", "settings": {}, "seed": 0, "session": 0, "classes": 4},
        **{"accuracy": 0.9, "base_accuracy": 0.9, "novel_accuracy": None, "session_accuracy": [0.9]},
        **{"harmonic_mean": None, "forgetting": None, "nll": 0.3, "ece": 0.02, "open_auroc": 0.8},
        **{"seconds_add": 0.1, "seconds_predict": 0.1, "bytes": 100, "versions": {}, "machine": {}},
    }
    later = {
        **{**base, "session": 1, "classes": 6, "accuracy": 0.8, "novel_accuracy": 0.6, "session_accuracy": [0.9, 0.6]},
        **{"harmonic_mean": 0.72, "forgetting": 0.0, "open_auroc": None},
    }
    (folder / "rows.jsonl").write_text(f"{json.dumps(base)}\n{json.dumps(later)}\n", encoding="utf-8")
    return folder


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was asked to show."""
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    return addresses


def test_help_has_an_example(run: Run) -> None:
    assert "report" in run("--help").stdout
    assert "Example: gptree report run " in run("report", "--help").stdout


def test_report_is_written_and_not_shown(run: Run, run_folder: Path, shown: list[str]) -> None:
    result = run("report", run_folder)
    assert (result.stdout, result.stderr) == ("", f"report written to {run_folder / 'report.html'}\n")
    assert "72.0" in (run_folder / "report.html").read_text(encoding="utf-8")
    assert shown == []


def test_report_elsewhere_and_shown(
    run: Run, run_folder: Path, shown: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    run("report", run_folder, "--out", page, "--open")
    assert page.is_file()
    assert not (run_folder / "report.html").exists()
    assert shown == [page.as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    assert "no web browser was found" in run("report", run_folder, "--open").stderr


def test_bad_folders_end_in_one_line(run: Run, run_folder: Path, tmp_path: Path) -> None:
    for folder, complaint in ((tmp_path / "nowhere", "not a folder"), (tmp_path, "has no rows.jsonl")):
        result = run("report", folder, code=2)
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: ")
        assert complaint in line
    (run_folder / "rows.jsonl").write_text("", encoding="utf-8")
    assert "no usable row" in run("report", run_folder, code=2).stderr


def test_impossible_numbers_are_left_out_with_a_sentence(run: Run, run_folder: Path, tmp_path: Path) -> None:
    path = run_folder / "rows.jsonl"
    base, later = path.read_text(encoding="utf-8").splitlines()
    path.write_text(f"{base}\n{later.replace('0.8,', '-1,', 1)}\n", encoding="utf-8")
    said = run("report", run_folder).stderr
    assert "warning: rows.jsonl, line 2, was left out: 'accuracy' is -1." in said
    path.write_text(base.replace("0.9,", "NaN,", 1), encoding="utf-8")
    assert "no usable row (1 damaged lines; the first: rows.jsonl, line 1," in run("report", run_folder, code=2).stderr
    line = run("report", run_folder, "--out", tmp_path / "new" / "page.html", code=2).stderr
    assert "there is no folder" in line
    assert not (tmp_path / "new").exists()
