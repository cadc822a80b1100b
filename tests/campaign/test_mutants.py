"""Mutants of a made-up package, tried with a made-up test."""

from __future__ import annotations

from pathlib import Path

import mutants
import pytest

CODE = '''
"""A module with 1 docstring."""
def f(x: int = 3) -> int:
    require(x > 0, "x is positive")
    if any(x) and x < 4:
        return -x * 2.0
    raise ValueError(f"{x + 1} is too many")
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "maths").mkdir()
    (tmp_path / "maths" / "f.py").write_text(CODE)
    monkeypatch.setattr(mutants, "SOURCE", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("package")
def test_every_place_is_changed_once_and_talk_is_left_alone() -> None:
    changes = [mutant.summary().partition(" → ")[2] for mutant in mutants.draw(seed=0, count=100)]
    assert sorted(changes) == sorted(
        [
            "def f(x: int=4) -> int:",
            "if any(x) or x < 4:",
            "if all(x) and x < 4:",
            "if any(x) and x <= 4:",
            "if any(x) and x < 5:",
            "return -x / 2.0",
            "return x * 2.0",
            "return -x * 4.0",
        ]
    )


@pytest.mark.usefixtures("package")
def test_more_mutants_of_a_seed_begin_with_the_same() -> None:
    assert mutants.draw(0, 8)[:3] == mutants.draw(0, 3)
    assert mutants.draw(0, 8) != mutants.draw(1, 8)


@pytest.mark.usefixtures("package")
def test_a_mutant_is_killed_by_a_test_that_sees_the_change() -> None:
    def sees_comparisons(folder: Path, tests: str) -> bool:
        return "x < 4" not in (folder / "gptree" / "maths" / "f.py").read_text()

    outcomes = {m.summary().partition(" → ")[2]: mutants.attempt(m, sees_comparisons) for m in mutants.draw(0, 8)}
    assert outcomes["if any(x) and x <= 4:"] == "killed"
    assert outcomes["return -x / 2.0"] == "survived"


def test_tests_that_fail_without_a_mutant_are_no_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "fails", lambda folder, tests: tests == "tree")
    with pytest.raises(SystemExit, match="tests of tree fail without any mutant"):
        mutants.check_baseline({"maths"}, jobs=2)
