"""Mutants of a made-up package, tried with its made-up tests."""

from __future__ import annotations

from pathlib import Path

import covering
import mutants
import pytest
from covering import Case, Project

CODE = '''
"""A module with 1 docstring."""
LIMIT = 4
def f(x: int = 3) -> int:
    require(x > 0, "x is positive")
    if any([x]) and x < LIMIT:
        return -x * 2.0
    raise ValueError(f"{x + 1} is too many")
def unused(x):
    step = max(1, x // 3)
    for a, b in zip(x, x, strict=True):
        while a:
            a += x[-1]
'''
TESTS = """
import pytest
from invented.maths.f import f

@pytest.fixture(scope="module")
def value():
    return f()

def test_default(value):
    assert value == -6

def test_again(value):
    assert f(1) == -2

def test_too_many():
    pytest.raises(Exception, f, 4)

def test_broken():
    assert f() == 6
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A package of one file, and tests of which one always fails."""
    for folder, name, text in (("src/invented/maths", "f.py", CODE), ("tests/maths", "test_f.py", TESTS)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_text(text.replace("require(", "print("))
    invented = Project(tmp_path, tmp_path / "src" / "invented", ("maths",), ("maths",))
    for name, value in (("ROOT", invented.root), ("SOURCE", invented.source), ("PROJECT", invented)):
        monkeypatch.setattr(mutants, name, value)
    monkeypatch.syspath_prepend(tmp_path / "src")
    monkeypatch.setattr(covering, "MOST_BROKEN", 0.5)
    monkeypatch.setattr(mutants, "DRAWN", ())
    return invented


def after(mutant: mutants.Mutant) -> str:
    return mutant.summary().partition(" → ")[2]


def test_every_place_is_changed_once_and_talk_is_left_alone(project: Project) -> None:
    (project.source / "maths" / "f.py").write_text(CODE)
    assert sorted(map(after, mutants.draw(seed=0, count=100))) == sorted(
        [
            "LIMIT = 5",
            "def f(x: int=4) -> int:",
            "if any([x]) or x < LIMIT:",
            "if all([x]) and x < LIMIT:",
            "if any([x]) and x <= LIMIT:",
            "return -x / 2.0",
            "return x * 2.0",
            "return -x * 4.0",
            "a -= x[-1]",
            "a += x[-2]",
        ]
    )


@pytest.mark.usefixtures("project")
def test_more_mutants_of_a_seed_begin_with_the_same() -> None:
    assert mutants.draw(0, 8)[:3] == mutants.draw(0, 3)
    assert mutants.draw(0, 8) != mutants.draw(1, 8)


def test_lines_of_tests_are_recorded_until_a_file_changes(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    every = {case.name.partition("::")[2]: case.lines for case in covering.cases(project)}
    assert every == {
        "test_default": {"maths/f.py": {5, 6, 7}},  # what the shared fixture executes belongs to all tests
        "test_again": {"maths/f.py": {5, 6, 7}},
        "test_too_many": {"maths/f.py": {5, 6, 7, 8}},
    }
    assert "3 tests" in capfd.readouterr().out
    covering.cases(project)
    assert (
        capfd.readouterr().out == "left out, since they fail without any mutant: tests/maths/test_f.py::test_broken\n"
    )
    (project.source / "maths" / "f.py").write_text(CODE.replace("require(", "len, ("))
    covering.cases(project)
    assert "3 tests" in capfd.readouterr().out


def test_few_tests_and_files_may_fail_without_a_mutant(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("dies", "import os; os._exit(3)"), ("imports", "import nothing_of_this_name")):
        (project.root / "tests" / "maths" / f"test_{name}.py").write_text(text)
    monkeypatch.setattr(covering, "MOST_BROKEN", 1.0)
    assert len(covering.cases(project, jobs=2)) == 3
    assert "test_f.py::test_broken, tests/maths/test_imports.py" in capfd.readouterr().out
    monkeypatch.setattr(covering, "MOST_BROKEN", 0.9)
    with pytest.raises(SystemExit, match="3 of 3 fail without any mutant: mend them first"):
        covering.cases(project)


def test_a_mutant_is_killed_by_a_test_that_executes_it(project: Project) -> None:
    every = covering.cases(project)
    by = {after(mutant): mutants.killer(mutant, every).rpartition("::")[2] for mutant in mutants.draw(0, 100)}
    assert by["if any([x]) and x <= LIMIT:"] == by["LIMIT = 5"] == "test_too_many"
    assert {by["def f(x: int=4) -> int:"], by["return -x / 2.0"], by["return x * 2.0"]} <= {
        "test_again",
        "test_default",
    }
    assert by["if all([x]) and x < LIMIT:"] == by["a -= x[-1]"] == by["a += x[-2]"] == ""


def test_a_hang_and_an_end_of_the_process_kill(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("tests/maths/test_f.py::test_default", 0.0, {})
    for body, seconds in (("import os; os._exit(0)", 20.0), ("while True: pass", 1.0)):
        monkeypatch.setattr(covering, "MORE", seconds)
        code = compile(f"def f(x=1):\n    {body}", "f.py", "exec")
        assert covering.first_failure(project, [case], ("maths/f.py", code)) == covering.DEAD
    monkeypatch.setattr(covering, "MORE", 20.0)
    code = compile("def g(): return 1", "f.py", "exec")
    assert covering.first_failure(project, [case], ("maths/f.py", code)) == case.file  # which cannot import f
    assert not covering.first_failure(project, [case], None)


def test_a_test_that_fails_without_a_mutant_is_no_measure(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails in the trial of the killers, not when lines were recorded."""
    every = covering.cases(project)
    flaky = project.root / "tests" / "maths" / "test_f.py"
    text = flaky.read_text()
    flaky.write_text(text.replace("assert value == -6", "assert value == 6"))
    monkeypatch.setattr(covering, "cases", lambda *_: every)
    rows = mutants.campaign(0, 100, jobs=1)
    assert len(rows) == len(mutants.draw(0, 100))
    assert "test_default" not in {row["by"].rpartition("::")[2] for row in rows}
    by = {row["mutant"].partition(" → ")[2]: row["outcome"] for row in rows}
    assert (by["return x * 2.0"], by["a += x[-2]"]) == ("killed", "survived")
    assert rows == mutants.campaign(0, 100, jobs=1)  # nothing is tried again


def test_own_tests_and_quick_ones_come_first(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def case(name: str, seconds: float, line: int = 7) -> Case:
        return Case(f"tests/{name}", seconds, {"maths/f.py": {line}})

    every = [
        case("model/test_b.py::b", 0.1),
        case("maths/test_g.py::c", 9.0),
        case("maths/test_f.py::slow", 5.0),
        case("maths/test_f.py::quick", 4.0),
        case("maths/test_f.py::elsewhere", 1.0, line=10),
    ]
    mutant = next(mutant for mutant in mutants.draw(0, 100) if after(mutant) == "return x * 2.0")
    names = [test.name.partition("::")[2] for test in mutants.chosen(mutant, every)]
    assert names == ["quick", "slow", "c", "b"]
    monkeypatch.setattr(mutants, "ENOUGH", 10.0)
    assert len(mutants.chosen(mutant, every)) == 2
    monkeypatch.setattr(mutants, "ENOUGH", 100.0)
    table = Case("tests/test_table.py::table", 3.0, {})
    constant = next(mutant for mutant in mutants.draw(0, 100) if after(mutant) == "LIMIT = 5")
    names = [test.name.partition("::")[2] for test in mutants.chosen(constant, [*every, table])]
    assert names == [
        "table",
        "b",
        "c",
        "elsewhere",
        "quick",
        "slow",
    ]  # an import executes it, so that any test may see it


def test_the_page_shows_what_is_kept_beside_it() -> None:
    sums = mutants.read_rows(mutants.SUMS)
    assert f"{mutants.BEGIN}\n{mutants.page(sums)}\n{mutants.END}" in mutants.PAGE.read_text()
    known = mutants.equivalents()
    assert all(len(reason) > 10 for reason in known.values())


def test_sums_name_the_survivors() -> None:
    outcomes = ["killed", "killed", "killed", "survived", "equivalent"]
    rows = [{"seed": 7, "mutant": f"m{n}", "outcome": outcome, "seconds": 36.0} for n, outcome in enumerate(outcomes)]
    sums = mutants.summed(rows)
    assert (sums["score"], sums["survivors"], sums["hours"]) == (0.75, ["m3"], 0.05)
    assert "| 7 | 5 | 3 | 1 | 1 | 75.0% |" in mutants.page([sums])
    assert "- ``m3``" in mutants.page([sums])
    other = {**sums, "seed": 8, "survivors": ["m9"]}
    assert "| 7 | 5 | 3 | 1 | 1 | 75.0% |\n| 8 | 5" in mutants.page([sums, other])
    assert "- ``m9``" in mutants.page([sums, other])
    assert "m3" not in mutants.page([sums, other])
