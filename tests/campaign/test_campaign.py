"""A small share of the campaign, and the command that does all of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import run
import threads
from parts import Part, read_rows

PARTS = run.parts()


@pytest.mark.parametrize(("name", "unit"), [(part.name, unit) for part in PARTS.values() for unit in part.share])
def test_a_share_of_the_campaign(name: str, unit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "CHANGES", 4)
    assert PARTS[name].check(unit, tmp_path) > 0


def hang(unit: int, folder: Path) -> int:
    time.sleep(60)
    return 1


def die(unit: int, folder: Path) -> int:
    os._exit(9)


def fail(unit: int, folder: Path) -> int:
    raise ValueError(f"unit {unit} went wrong")


def work(unit: int, folder: Path) -> int:
    (folder / "mine").write_text("a folder of its own")
    return 3


@pytest.mark.parametrize(
    ("check", "tries", "said"),
    [(work, 3, ""), (fail, 0, "ValueError: unit 4 went wrong"), (die, 0, "exit code 9"), (hang, 0, "hangs")],
)
def test_what_becomes_of_a_unit(check: object, tries: int, said: str) -> None:
    outcome = run.do(Part("made up", "", 5, check, seconds=0.5), 4)  # type: ignore[arg-type]
    assert outcome.tries == tries
    assert said in outcome.failure
    assert bool(said) == bool(outcome.failure)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows, sums and page of a campaign of two parts, of which one fails."""
    both = {"one": Part("one", "Works", 3, work), "other": Part("other", "Fails", 2, fail)}
    monkeypatch.setattr(run, "parts", lambda: both)
    monkeypatch.setattr(run, "ROWS", tmp_path / "rows.jsonl")
    monkeypatch.setattr(run, "SUMS", tmp_path / "sums.jsonl")
    monkeypatch.setattr(run, "PAGE", tmp_path / "page.md")
    run.PAGE.write_text(f"before {run.BEGIN} {run.END} after")
    return tmp_path


def numbers(sums: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("part", "units", "tries", "failures", "done")) for row in sums]


@pytest.mark.usefixtures("elsewhere")
def test_a_campaign_goes_on_where_it_was_stopped() -> None:
    one, other = run.parts().values()
    assert numbers(run.campaign([one], jobs=2, seconds=60)) == [("one", 3, 9, 0, [[0, 2]]), ("other", 0, 0, 0, [])]
    with run.ROWS.open("a") as file:
        file.write('{"part": "other", "unit": 0, "tri')  # killed in the middle of a row
    sums = run.campaign([one, other], jobs=2, seconds=60)
    assert numbers(sums) == [("one", 3, 9, 0, [[0, 2]]), ("other", 0, 0, 2, [])]
    done = sorted((row["part"], row["unit"]) for row in read_rows(run.ROWS))
    assert done == [("one", 0), ("one", 1), ("one", 2), ("other", 0), ("other", 1)]
    failure = next(row for row in read_rows(run.ROWS) if row["failure"])
    assert run.reproduction(failure).startswith("python tests/campaign/run.py other --unit")
    assert run.waiting([one, other]) == [(other, 0), (other, 1)]  # what failed is done again
    assert run.waiting([one]) == []


def test_sums_are_gone_on_with_elsewhere(elsewhere: Path) -> None:
    """By units that nobody did; each unit counts once, its last row."""

    def row(part: str, unit: int, failure: str = "") -> str:
        outcome = {"part": part, "unit": unit, "tries": 4, "seconds": 3600.0, "failure": failure, "commit": "c0"}
        return json.dumps(outcome) + "\n"

    one, other = run.parts().values()
    run.ROWS.write_text(row("one", 1))
    run.write_page(run.summed())
    assert "| Works (1 of 3 units) | 4 | 0 | 1.00 |" in run.PAGE.read_text()
    assert numbers(run.summed()) == [("one", 1, 4, 0, [[1, 1]]), ("other", 0, 0, 0, [])]
    run.ROWS.unlink()
    assert run.waiting([one, other]) == [(one, 0), (other, 0), (other, 1), (one, 2)]
    (elsewhere / "more.jsonl").write_text(
        row("one", 1) + row("one", 2) + row("other", 0, "died") + row("other", 1, "died") + row("other", 1)
    )
    run.take_in([elsewhere / "more.jsonl"] * 2)
    assert numbers(run.summed()) == [("one", 2, 8, 0, [[1, 2]]), ("other", 1, 4, 1, [[1, 1]])]
    assert [entry["hours"] for entry in run.summed()] == [2.0, 1.0]
    assert run.summed()[0]["commits"] == ["c0"]
    assert run.waiting([one, other]) == [(one, 0), (other, 0)]


def test_the_page_shows_what_is_kept() -> None:
    sums = read_rows(run.SUMS)
    assert [row["part"] for row in sums] == list(PARTS)
    assert f"{run.BEGIN}\n{run.page(sums)}\n{run.END}" in run.PAGE.read_text()
