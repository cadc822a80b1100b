"""A small share of the campaign, and the command that does all of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

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


def test_a_campaign_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "ROWS", tmp_path / "rows.jsonl")
    one, other = Part("one", "", 3, work), Part("other", "", 2, fail)
    assert run.campaign([one], jobs=2, seconds=60) == 0
    with run.ROWS.open("a") as file:
        file.write('{"part": "other", "unit": 0, "tri')  # killed in the middle of a row
    assert run.campaign([one, other], jobs=2, seconds=60) == 2
    done = sorted((row["part"], row["unit"]) for row in read_rows(run.ROWS))
    assert done == [("one", 0), ("one", 1), ("one", 2), ("other", 0), ("other", 1)]
    failure = next(row for row in read_rows(run.ROWS) if row["failure"])
    assert run.reproduction(failure).startswith("python tests/campaign/run.py other --unit")
