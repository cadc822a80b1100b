"""The command that runs experiments, what it writes, and the result pages."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import json
import os
import pickle
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from joblib.externals.loky import get_reusable_executor
from made_up import draw, made_up, one_table, trials_of
from table_cases import assert_sound
from typer.testing import CliRunner, Result

import benchmarks.core.experiment
from benchmarks.__main__ import app
from benchmarks.core import page as pages
from benchmarks.core import runner
from benchmarks.core.document import Document
from benchmarks.core.experiment import Experiment
from benchmarks.core.rendering import to_latex, to_markdown
from benchmarks.core.runner import FailedTrials, run_trials
from benchmarks.core.store import Rows
from benchmarks.core.tables import Table
from benchmarks.core.trials import DEFAULTS, Row, Trial
from benchmarks.experiments import EXPERIMENTS

ROOT = Path(__file__).parents[2]


def serve(said: Path, *arguments: object) -> None:
    """The command in a forked process, as if from a terminal: its workers get its signals too."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which scripts take away
    with said.open("w") as file:
        os.dup2(file.fileno(), 2)
        sys.stderr = file
        app([str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where rows and pages of this test are; what is written elsewhere is a mistake."""
    monkeypatch.setattr(benchmarks.core.experiment, "RESULTS", tmp_path)
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setenv("GPTREE_COMMIT", "0123456789abcdef+")
    (tmp_path / "docs").mkdir()
    return tmp_path


@pytest.fixture
def register(folder: Path) -> Iterator[Callable[..., None]]:
    """Put experiments in the place of all others; afterwards those are back, in their order."""
    before = dict(EXPERIMENTS)

    def put(*experiments: Experiment) -> None:
        EXPERIMENTS.clear()
        EXPERIMENTS.update({experiment.name: experiment for experiment in experiments})

    yield put
    EXPERIMENTS.clear()
    EXPERIMENTS.update(before)


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


#: Files that experiments share are read once.
rows_in = functools.cache(Rows)


def keys_in(path: Path) -> Counter[str]:
    """How many lines each trial has; lines that are no JSON are left out."""
    counts: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError):
            counts[json.loads(line)["key"]] += 1
    return counts


def started(folder: Path) -> Counter[str]:
    return Counter((folder / "started.txt").read_text().splitlines())


# ------------------------------------------------------------------------------------------------------- running


class TestRun:
    def test_every_trial_gets_its_row_and_is_not_run_twice(self, folder, register):
        register(made_up("plain"))
        result = command("run", "made-up", "--data", folder)
        assert result.exit_code == 0, result.output
        assert "0 of 3 trials have a row; 3 to run" in result.stderr
        before = (folder / "made-up.jsonl").read_bytes()
        again = command("run", "made-up", "--data", folder)
        assert "3 of 3 trials have a row; 0 to run" in again.stderr
        assert (folder / "made-up.jsonl").read_bytes() == before
        assert set(started(folder).values()) == {1}
        assert [row.versions["commit"] for row in Rows(folder / "made-up.jsonl")] == ["0123456789abcdef+"] * 3

    def test_seeds_and_methods(self, folder, register):
        register(made_up("plain", "plain, but slower", "other"))
        command("run", "made-up", "--data", folder, "--seeds", 1, "--methods", "plain")
        assert started(folder) == {"plain 0": 1, "plain, but slower 0": 1}
        command("run", "made-up", "--data", folder, "--methods", "oth", "--methods", "plain,")
        assert sum(started(folder).values()) == 7
        assert command("run", "made-up", "--data", folder, "--seeds", 4).exit_code == 0
        assert sum(started(folder).values()) == 12
        result = command("run", "made-up", "--data", folder, "--methods", "none such")
        assert result.exit_code == 2
        assert "begins with 'none such'; there are plain, plain, but slower, other" in result.stderr

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_a_trial_that_raises_does_not_lose_the_others(self, folder, register, jobs):
        register(made_up("raises", "plain", "not plain", seeds=2))
        result = command("run", "made-up", "--data", folder, "--jobs", jobs)
        assert result.exit_code == 1
        assert [row.trial.method for row in Rows(folder / "made-up.jsonl")] == ["plain"] * 2
        assert result.stderr.count("Traceback") == 2  # of each cause one
        assert len(re.findall(r"^failed: made-up · none · raises · [01]$", result.stderr, re.MULTILINE)) == 2
        assert "ValueError: no luck with raises" in result.stderr
        assert "4 of 6 trials failed" in result.stderr
        command("run", "made-up", "--data", folder)
        assert started(folder)["raises 0"] == 2  # tried again
        assert started(folder)["plain 0"] == 1

    def test_a_trial_that_kills_its_process_does_not_lose_the_others(self, folder, register, monkeypatch):
        monkeypatch.setattr(runner, "get_context", lambda _: get_context("fork"))  # which need not import anything
        register(made_up("killed", "other", seeds=1))
        result = command("run", "made-up", "--data", folder, "--jobs", 2)
        assert result.exit_code == 1
        assert "the process was killed" in result.stderr
        assert {row.trial.method for row in Rows(folder / "made-up.jsonl")} == {"other"}
        assert set(keys_in(folder / "made-up.jsonl").values()) == {1}

    def test_interrupted_it_says_how_to_go_on(self, folder, register):
        register(made_up("interrupted"))
        result = command("run", "made-up", "--data", folder, "--seeds", 3, "--methods", "int")
        assert result.exit_code == 130
        assert "1 of 3 trials have a row" in result.stderr
        assert f"python -m benchmarks run made-up --data {folder} --seeds 3 --methods int" in result.stderr
        assert len(Rows(folder / "made-up.jsonl")) == 1

    def test_damaged_rows_are_reported_and_run_again(self, folder, register):
        register(made_up("plain"))
        command("run", "made-up", "--data", folder)
        path = folder / "made-up.jsonl"
        lines = path.read_text().splitlines()
        path.write_text("\n".join([lines[0], lines[1][:40], lines[2].replace('"seed": 2', '"seed": 1')]) + "\n")
        result = command("run", "made-up", "--data", folder)
        assert result.exit_code == 0
        assert "warning: made-up.jsonl: skipped damaged rows: line 2" in result.stderr
        assert "line 3" in result.stderr
        assert "1 of 3 trials have a row; 2 to run" in result.stderr
        with pytest.warns(UserWarning, match="damaged"):
            assert [row.metrics["value"] for row in made_up("plain").rows()] == [0, 0.5, 1]
        for name in ("table", "list"):
            extra = ["made-up"] if name == "table" else []
            assert "skipped damaged rows" in command(name, *extra).stderr

    def test_what_does_not_exist(self, folder, register):
        register(made_up("plain"))
        result = command("run", "gibs", "--data", folder)
        assert result.exit_code == 2
        assert "no experiment 'gibs'; there are made-up" in result.stderr
        (folder / "features").mkdir()
        result = command("run", "made-up", "--data", folder / "feature" / "cub")
        assert result.exit_code == 2
        assert f"the folders in {folder} are: docs, features" in result.stderr
        (folder / "file").touch()
        assert "is a file" in command("run", "made-up", "--data", folder / "file").stderr
        assert "this experiment needs data" in command("run", "made-up").stderr
        for name in ("table", "figure"):
            assert command(name, "gibs").exit_code == 2


class TestKilled:
    """A run in a process of its own, stopped in the middle, and run again: each trial has one row."""

    @pytest.fixture
    def start(self, folder, register) -> Callable[..., BaseProcess]:
        """Start the command; three of six trials end, the others wait."""
        register(made_up("waits", seeds=6))
        get_reusable_executor().shutdown()  # a fork would take it for its own

        def started(*arguments: str) -> BaseProcess:
            arguments = ("run", "made-up", "--data", str(folder), *arguments)
            process = get_context("fork").Process(target=serve, args=(folder / "said.txt", *arguments))
            process.start()
            path, end = folder / "made-up.jsonl", time.monotonic() + 120
            while not path.exists() or path.read_bytes().count(b"\n") < 3:
                assert process.is_alive(), (folder / "said.txt").read_text()
                assert time.monotonic() < end, "no rows in two minutes"
                time.sleep(0.01)
            return process

        return started

    def check_the_rest_is_run(self, folder: Path) -> None:
        path = folder / "made-up.jsonl"
        before, begun = path.read_bytes(), started(folder)
        assert len(Rows(path)) == 3
        (folder / "go").touch()
        with path.open("ab") as file:  # as if it had been killed inside a write
            file.write(before.splitlines()[0][:100])
        result = command("run", "made-up", "--data", folder)
        assert result.exit_code == 0, result.output
        assert "3 of 6 trials have a row; 3 to run" in result.stderr
        assert path.read_bytes().startswith(before)
        assert keys_in(path) == {trial.key: 1 for trial in trials_of("waits")(6)}
        assert sum((started(folder) - begun).values()) == 3  # no row was measured a second time

    def test_sigkill(self, folder, start):
        process = start("--jobs", "2")
        os.killpg(process.pid, signal.SIGKILL)
        process.join(60)
        self.check_the_rest_is_run(folder)

    def test_ctrl_c(self, folder, start):
        process = start("--methods", "waits")
        os.killpg(process.pid, signal.SIGINT)
        process.join(60)
        said = (folder / "said.txt").read_text()
        assert process.exitcode == 130, said
        assert "interrupted: 3 of 6 trials have a row" in said
        assert f"python -m benchmarks run made-up --data {folder} --methods waits" in said
        self.check_the_rest_is_run(folder)


def test_failures_are_raised_after_the_last_trial(tmp_path):
    def function(trial: Trial) -> dict[str, float]:
        return {"value": 1 / (trial.seed - 1)}

    rows = Rows(tmp_path / "rows.jsonl")
    with pytest.raises(FailedTrials, match=r"1 trials failed.*made-up · none · m · 1: ZeroDivisionError") as caught:
        run_trials([*trials_of("m")(3), *trials_of("m")(3)], function, rows)
    assert [failure.trial.seed for failure in caught.value.failures] == [1]
    assert "1 / (trial.seed - 1)" in caught.value.failures[0].traceback
    assert len(rows) == 2
    assert set(keys_in(rows.path).values()) == {1}


# ------------------------------------------------------------------------------------------------------- showing


class TestShow:
    def test_list(self, folder, register, monkeypatch):
        monkeypatch.setenv("COLUMNS", "120")
        register(made_up("plain", "other", seeds=2))
        assert re.search(r"made-up .* What are the values\? .* 0 / 4", command("list").stdout)
        command("run", "made-up", "--data", folder, "--methods", "plain")
        assert "2 / 4" in command("list").stdout

    def test_table(self, folder, register):
        register(made_up("plain", quoted=(Table("Theirs", ["method", "value"], [["GP-Tree", "1.00"]]),)))
        empty = command("table", "made-up")
        assert empty.exit_code == 2
        assert "has no rows yet; measure them: python -m benchmarks run made-up --data DIR" in empty.stderr
        command("run", "made-up", "--data", folder, "--seeds", 4)
        text = command("table", "made-up").stdout
        assert "| plain | 0.50 ± 0.29 |" in text  # the experiment's three seeds: 0, ½, 1; 1/√12 = 0.29
        assert "**Theirs (quoted from the paper)**" in text
        assert "| plain | 0.75 ± 0.32 |" in command("table", "made-up", "--seeds", 4).stdout
        latex = command("table", "made-up", "--latex").stdout
        assert latex.count(r"\begin{table}") == 2
        assert r"plain & 0.50 $\pm$ 0.29 \\" in latex
        assert_sound(latex)

    def test_figure(self, folder, register):
        register(made_up("plain", figure=draw))
        assert command("figure", "made-up", "--out", folder / "new" / "x.png").exit_code == 2
        assert not (folder / "new").exists()
        command("run", "made-up", "--data", folder)
        assert command("figure", "made-up", "--out", folder / "new" / "x.png").exit_code == 0
        assert (folder / "new" / "x.png").read_bytes() == b"a picture of 3 rows"
        result = command("figure", "made-up")
        assert Path(result.stdout.strip()) == folder / "docs" / "pictures" / "results" / "made-up.png"
        assert Path(result.stdout.strip()).exists()
        register(made_up("plain"))
        assert "made-up has no figure" in command("figure", "made-up").stderr


class TestPages:
    def test_an_index_and_a_page_for_each_experiment(self, folder, register):
        theirs = Table("Theirs", ["method", "value"], [["GP-Tree", "1.00"]])
        measured = made_up("plain", "other", figure=draw, quoted=(theirs,), details=one_table, paper="Table 9")
        absent = replace(
            made_up(), name="later", group="Other", document=Document("Some day", "When?", "Soon.", "", "")
        )
        register(absent, measured)
        command("run", "made-up", "--data", folder, "--methods", "plain")
        result = command("page")
        assert result.exit_code == 0, result.output
        names = ("index.md", "later.md", "made-up.md", "made-up-all.md")
        files = [folder / "docs" / "results" / name for name in names]
        picture = folder / "docs" / "pictures" / "results" / "made-up.png"
        assert result.stdout.split() == [str(file) for file in (*files, picture)]
        index, later, page, details = (file.read_text() for file in files)
        assert_in_order(
            index,
            "# Results",
            "## Other",
            "### [Some day](later.md)",
            "*When?*",
            "Measured: 0 of 0 trials.",
            "## Made up",
            "### [Made-up values](made-up.md)",
            "*What are the values?*",
            "About 0.50.",
            "![Made-up values](../pictures/results/made-up.png)",
            "Measured: 3 of 6 trials.",
            "## Data",
            "- `digits`: scikit-learn's digits",
        )
        assert "Soon" not in index + later  # there is no answer without rows
        assert_in_order(
            page,
            "# Made-up values",
            "*What are the values?*",
            "About 0.50.",
            "![Made-up values](../pictures/results/made-up.png)",
            "## Findings\n\n- Plain has 3 rows.",
            "## Tables",
            "| plain | 0.50 ± 0.29 |",
            "[all of it](made-up-all.md)",
            "## Quoted",
            "**Theirs (quoted from the paper)**",
            "## How it is measured\n\nThe values are made up.",
            "In the paper: Table 9.",
            "python -m benchmarks run made-up --data DIR",
            "3 of 6 trials have a row in `benchmarks/results/made-up.jsonl`; without: other on none (3).",
            "Seeds: 0, 1, 2.",
            f"at commit `0123456789ab`, changed, with defaults {DEFAULTS}",
        )
        assert "| plain | 0.50 ± 0.29 |" in details
        command("page")
        assert [file.read_text() for file in files] == [index, later, page, details]

    def test_a_small_table_stands_for_an_experiment_without_a_picture(self, folder, register):
        register(made_up("plain"))
        command("run", "made-up", "--data", folder)
        index = pages.pages(EXPERIMENTS.values())[pages.PAGES / "index.md"]
        assert "| plain | 0.50 ± 0.29 |" in index
        many = Table("Many", ["line"], [[str(line)] for line in range(pages.SMALL_TABLE + 1)])
        register(replace(made_up("plain"), tables=lambda rows: [many]))
        assert "Many" not in pages.pages(EXPERIMENTS.values())[pages.PAGES / "index.md"]

    def test_tables_of_readme(self, folder, register):
        register(made_up("plain", glance=lambda rows: one_table(rows)[0]))
        command("run", "made-up", "--data", folder)
        text = "before\n<!-- table:made-up -->\nold\n<!-- /table -->\nafter\n"
        (folder / "README.md").write_text(text)
        command("page")
        filled = (folder / "README.md").read_text()
        assert_in_order(filled, "before\n<!-- table:made-up -->\n| method |", "0.50 ± 0.29 |", "<!-- /table -->\nafter")
        assert "old" not in filled
        with pytest.raises(ValueError, match="no experiment 'other' with a small table"):
            pages.with_tables(text.replace("made-up", "other"), EXPERIMENTS.values())

    def test_order_of_the_rows_does_not_matter(self, folder, register):
        register(made_up("plain", "other"))
        command("run", "made-up", "--data", folder)
        first = pages.pages(EXPERIMENTS.values())
        path = folder / "made-up.jsonl"
        path.write_text("\n".join(reversed(path.read_text().splitlines())) + "\n")
        assert pages.pages(EXPERIMENTS.values()) == first

    def test_rows_from_several_machines_and_defaults_are_counted(self, folder, register):
        register(made_up("plain"))
        command("run", "made-up", "--data", folder)
        path = folder / "made-up.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[0]["defaults"] = DEFAULTS + 1
        lines[1]["machine"]["gpu"] = "NVIDIA H200"
        lines[2]["versions"]["commit"] = None
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        text = pages.pages(EXPERIMENTS.values())[pages.PAGES / "made-up.md"]
        assert re.search(r"\(2 rows\) and [^.]*NVIDIA H200, \d+ GiB, threads of torch: \d+ \(1 row\)", text)
        assert "commit `0123456789ab`, changed (2 rows) and an unknown commit (1 row)" in text
        assert f"defaults {DEFAULTS} (2 rows) and defaults {DEFAULTS + 1} (1 row)" in text

    def test_the_pages_are_what_the_rows_give(self, monkeypatch):
        """And so are the tables of README. A sentence that the rows do not bear out raises here."""
        monkeypatch.setattr(benchmarks.core.experiment, "Rows", rows_in)
        now = pages.pages(EXPERIMENTS.values())
        written = {path.relative_to(ROOT) for path in (ROOT / pages.PAGES).glob("*.md")}
        assert written == now.keys(), "write them: python -m benchmarks page"
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        now[Path("README.md")] = pages.with_tables(readme, EXPERIMENTS.values())
        for path, text in now.items():
            before = (ROOT / path).read_text(encoding="utf-8").splitlines()
            changed = list(difflib.unified_diff(before, text.splitlines(), lineterm="", n=0))
            assert not changed, f"{path}: the rows or the experiments have changed since: python -m benchmarks page"


def assert_in_order(text: str, *parts: str) -> None:
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


# ------------------------------------------------------------------------------------------------ the experiments


@functools.cache
def rows_of(name: str) -> list[Row]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmarks.core.experiment, "Rows", rows_in)
        return EXPERIMENTS[name].rows()


@pytest.mark.parametrize("name", EXPERIMENTS)
class TestEveryExperiment:
    """What the command and the pages rely on."""

    def test_trials(self, name):
        experiment = EXPERIMENTS[name]
        trials = experiment.trials(experiment.seeds)
        assert {trial.experiment for trial in trials} == {experiment.results.stem}
        assert len({trial.key for trial in trials}) == len(trials)
        more = {trial.key for trial in experiment.trials(experiment.seeds + 1)}
        assert {trial.key for trial in trials} <= more  # rows stay good when seeds are added
        pickle.loads(pickle.dumps(experiment.run))

    def test_tables_can_be_rendered(self, name):
        experiment = EXPERIMENTS[name]
        rows = rows_of(name)
        tables = experiment.tables(rows) if rows else []
        for table in [*tables, *map(pages.quoted, experiment.quoted)]:
            assert to_markdown(table)
            assert_sound(to_latex(table))

    def test_a_method_without_rows_is_left_out(self, name):
        """As a new rival has none."""
        experiment, rows = EXPERIMENTS[name], rows_of(name)
        last = rows[-1].trial.method if rows else None
        if fewer := [row for row in rows if row.trial.method != last]:
            for table in (*experiment.tables(fewer), *([experiment.glance(fewer)] if experiment.glance else [])):
                assert to_markdown(table)


def test_places_in_the_paper_are_texts():
    """A constant PAPER of a module, whatever it is, is printed as the place."""
    assert all(isinstance(experiment.paper, str) for experiment in EXPERIMENTS.values())


def test_titles_are_unique():
    assert all(name == experiment.name for name, experiment in EXPERIMENTS.items())
    assert len({experiment.document.title for experiment in EXPERIMENTS.values()}) == len(EXPERIMENTS)


def test_every_row_is_of_a_trial():
    """Rows that no experiment asks for would never be seen."""
    wanted = {key for experiment in EXPERIMENTS.values() for key in experiment.wanted()}
    for path in benchmarks.core.experiment.RESULTS.glob("*.jsonl"):
        assert {row.trial.key for row in rows_in(path)} <= wanted, path.name


def test_an_experiment_is_one_file(tmp_path, monkeypatch):
    (tmp_path / "made_here.py").write_text(
        '''"""Made here.

Is one file enough?

Yes: {mean value} is the value.
"""
from benchmarks.core.tables import Column

GROUP, SEEDS, NEEDS_DATA, COLUMNS = "Other", 2, False, {"value": Column("value", "metrics.value")}

def trials(seeds):
    return []

def run(trial, folder):
    return {"value": 1.0}

def tables(rows):
    return []
'''
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    experiment = Experiment.of_module(importlib.import_module("made_here"), "made-here")
    assert (experiment.group, experiment.seeds, experiment.needs_data) == ("Other", 2, False)
    assert experiment.document.question == "Is one file enough?"
    row = Row(Trial("made-here", "m", "none", 0), {"value": 1.0}, {}, None, {}, {})
    assert experiment.filled(experiment.document.answer, [row]) == "Yes: 1.000 is the value."
