"""The command that runs experiments, what it writes, and the page of results."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import benchmarks.experiment
from benchmarks import results_page
from benchmarks.__main__ import app
from benchmarks.experiment import Experiment, Table
from benchmarks.experiments import EXPERIMENTS
from benchmarks.rendering import latex_text, quoted, to_latex, to_markdown
from benchmarks.rows import FailedTrials, Row, Rows, Trial, run_trials
from benchmarks.tables import Column, Summary, best_of_columns, best_of_line, bold_best

ROOT = Path(__file__).parents[2]

# ------------------------------------------------------------------------------------------- a made-up experiment


def trials_of(*methods: str):
    def trials(seeds: int) -> list[Trial]:
        return [Trial("made-up", method, "none", seed) for method in methods for seed in range(seeds)]

    return trials


def behave(trial: Trial, folder: Path) -> dict[str, object]:
    """As the method says. Every start leaves a line in the data folder."""
    with (folder / "started.txt").open("a") as file:
        file.write(f"{trial.method} {trial.seed}\n")
    if trial.method == "raises":
        raise ValueError(f"no luck with {trial.method}")
    if trial.method == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if trial.method == "interrupted" and trial.seed == 1:
        raise KeyboardInterrupt
    if trial.method == "slow":
        time.sleep(0.15)
    if trial.method == "not plain":
        return {"value": object()}
    return {"value": trial.seed / 2}


def one_table(rows: list[Row]) -> list[Table]:
    column = Column("value", "metrics.value", digits=2)
    methods = dict.fromkeys(row.trial.method for row in rows)
    lines = [[m, Summary.of([r for r in rows if r.trial.method == m], column).text(2)] for m in methods]
    return [Table("Values in %", ["method", "value"], lines, note="Made up.")]


def draw(rows: list[Row], path: Path) -> None:
    path.write_bytes(b"a picture of %d rows" % len(rows))


def made_up(*methods: str, seeds: int = 3, **fields) -> Experiment:
    return Experiment(
        name="made-up",
        title="Made-up values",
        paper="Table 9",
        seeds=seeds,
        trials=trials_of(*methods),
        run=behave,
        tables=one_table,
        findings=lambda rows: f"There are {len(rows)} rows.",
        **fields,
    )


def serve(folder: str, *arguments: str) -> None:
    """The command in a process of its own, with the made-up experiment alone; its rows are in the folder too."""
    benchmarks.experiment.RESULTS = Path(folder)
    EXPERIMENTS.clear()
    EXPERIMENTS["made-up"] = made_up("slow", seeds=24)
    app(["run", "made-up", "--data", folder, *arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where rows and page of this test are; what is written elsewhere is a mistake."""
    monkeypatch.setattr(benchmarks.experiment, "RESULTS", tmp_path)
    monkeypatch.setattr(results_page, "PAGE", tmp_path / "docs" / "results.md")
    monkeypatch.setattr(results_page, "PICTURES", tmp_path / "docs" / "pictures" / "results")
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

    def test_a_trial_that_kills_its_process_does_not_lose_the_others(self, folder, register):
        register(made_up("plain", "killed", "other", seeds=1))
        result = command("run", "made-up", "--data", folder, "--jobs", 2)
        assert result.exit_code == 1
        assert "the process was killed" in result.stderr
        assert {row.trial.method for row in Rows(folder / "made-up.jsonl")} == {"plain", "other"}
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
        assert command("run", "made-up").exit_code == 2
        for name in ("table", "figure"):
            assert command(name, "gibs").exit_code == 2


class TestKilled:
    """A run in a process of its own, stopped in the middle, and run again: each trial has one row."""

    def start(self, folder: Path, *arguments: str) -> subprocess.Popen[str]:
        code = f"import test_experiments_harness as t; t.serve({str(folder)!r}, *{list(arguments)!r})"
        paths = os.pathsep.join([str(Path(__file__).parent), str(ROOT), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": paths, "GPTREE_COMMIT": "0"},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that its workers get the signal too, as from a terminal
            # where the tests run in the background of a script, which has them deaf to Ctrl-C
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        path, end = folder / "made-up.jsonl", time.monotonic() + 120
        while not path.exists() or path.read_bytes().count(b"\n") < 5:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < end, "no rows in two minutes"
            time.sleep(0.01)
        return process

    @pytest.mark.parametrize("jobs", ["1", "2"])
    def test_sigkill(self, folder, register, jobs):
        process = self.start(folder, "--jobs", jobs)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        path = folder / "made-up.jsonl"
        before, begun = path.read_bytes(), started(folder)
        kept = len(Rows(path))
        assert 5 <= kept < 24

        register(made_up("slow", seeds=24))
        with path.open("ab") as file:  # as if it had been killed inside a write
            file.write(before.splitlines()[0][:100])
        result = command("run", "made-up", "--data", folder)
        assert result.exit_code == 0, result.output
        assert f"{kept} of 24 trials have a row; {24 - kept} to run" in result.stderr
        assert path.read_bytes().startswith(before)
        assert keys_in(path) == {trial.key: 1 for trial in trials_of("slow")(24)}
        again = started(folder) - begun
        assert sum(again.values()) == 24 - kept  # no row was measured a second time

    def test_ctrl_c(self, folder, register):
        process = self.start(folder, "--jobs", "2")
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130, said
        path = folder / "made-up.jsonl"
        kept = len(Rows(path))
        assert f"interrupted: {kept} of 24 trials have a row" in said
        assert f"python -m benchmarks run made-up --data {folder} --jobs 2" in said
        register(made_up("slow", seeds=24))
        assert command("run", "made-up", "--data", folder).exit_code == 0
        assert keys_in(path) == {trial.key: 1 for trial in trials_of("slow")(24)}


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
        assert re.search(r"made-up .* Table 9 .* Made-up values .* 0 / 4", command("list").stdout)
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


class TestPage:
    def test_it_says_what_was_run_and_what_was_not(self, folder, register):
        theirs = Table("Theirs", ["method", "value"], [["GP-Tree", "1.00"]])
        measured = made_up("plain", "other", figure=draw, quoted=(theirs,), differs="The values are made up.")
        absent = Experiment("later", "Some day", "Table 10", 1, lambda seeds: [], behave, one_table, str)
        register(absent, measured)
        command("run", "made-up", "--data", folder, "--methods", "plain")
        result = command("page")
        assert result.exit_code == 0, result.output
        text = (folder / "docs" / "results.md").read_text()
        assert result.stdout.split() == [str(results_page.PAGE), str(results_page.PICTURES / "made-up.png")]
        expected = [
            "# Results",
            "| [`made-up`](#made-up-values) | Table 9 | Made-up values | 3 of 6 |",
            "## Made-up values",
            "In the paper: Table 9. Rows: [made-up.jsonl](../benchmarks/results/made-up.jsonl).",
            "python -m benchmarks run made-up --data DIR",
            "Seeds: 0–2. 3 of 6 trials have a row; without: other (3).",
            "at commit `0123456789ab`, changed",
            "| plain | 0.50 ± 0.29 |",
            "![Made-up values](pictures/results/made-up.png)",
            "### Quoted from the paper",
            "**Theirs (quoted from the paper)**",
            "### What differs\n\nThe values are made up.",
            "### What was found\n\nThere are 3 rows.",
            "## Not run",
            "- `later`: Some day (Table 10)",
        ]
        places = [text.index(part) for part in expected]
        assert places == sorted(places)
        assert "later" not in text[: text.index("## Not run")]
        command("page")
        assert (folder / "docs" / "results.md").read_text() == text

    def test_trials_without_a_row_have_the_names_of_the_page(self, folder, register):
        def trials(seeds: int) -> list[Trial]:
            return [
                Trial("made-up", method, data, seed, {"size": 2})
                for data in ("none", "other")
                for method in ("plain", "internal")
                for seed in range(seeds)
            ]

        experiment = replace(
            made_up(),
            trials=trials,
            called=lambda trial: f"{trial.method.upper()} of size {trial.settings['size']}",
            data_called={"none": "None", "other": "The other"}.__getitem__,
        )
        register(experiment)
        for trial in trials(3)[:3]:
            Rows(experiment.results).append(Row(trial, {"value": 1.0}, {"wall": 1.0, "cpu": 1.0}, None, {}, {}))
        said = results_page._coverage(experiment, experiment.rows())
        assert said.endswith("3 of 12 trials have a row; without: all of The other (6), INTERNAL of size 2 (3).")

    def test_order_of_the_rows_does_not_matter(self, folder, register):
        register(made_up("plain", "other"))
        command("run", "made-up", "--data", folder)
        first = results_page.page(EXPERIMENTS)
        path = folder / "made-up.jsonl"
        path.write_text("\n".join(reversed(path.read_text().splitlines())) + "\n")
        assert results_page.page(EXPERIMENTS) == first

    def test_rows_from_several_machines_are_counted(self, folder, register):
        register(made_up("plain"))
        command("run", "made-up", "--data", folder)
        path = folder / "made-up.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[1]["machine"]["gpu"] = "NVIDIA H200"
        lines[2]["versions"]["commit"] = None
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        text = results_page.page(EXPERIMENTS)
        assert re.search(r"\(2 rows\) and [^.]*NVIDIA H200, \d+ GiB, threads of torch: \d+ \(1 row\)", text)
        assert "commit `0123456789ab`, changed (2 rows) and an unknown commit (1 row)" in text

    def test_the_page_is_what_the_rows_give(self):
        page = ROOT / "docs" / "results.md"
        assert page.exists(), "write it: python -m benchmarks page"
        written, now = page.read_text(encoding="utf-8").splitlines(), results_page.page(EXPERIMENTS).splitlines()
        changed = list(difflib.unified_diff(written, now, lineterm="", n=0))
        assert not changed, "the rows or the experiments have changed since: python -m benchmarks page"


# ----------------------------------------------------------------------------------------------------- rendering


def assert_sound(latex: str) -> None:
    """As far as it can be told without LaTeX: braces, maths and environments close, and columns are as many."""
    bare = re.sub(r"\\[\\{}$%&_#]", "", latex)  # what is escaped; line breaks too
    depth = 0
    for c in bare:
        depth += (c == "{") - (c == "}")
        assert depth >= 0, latex
    assert depth == 0, latex
    assert bare.count("$") % 2 == 0, latex
    outside = re.sub(r"\$[^$]*\$", "", bare)
    assert not re.search(r"[_^%#~]", outside), latex
    assert all(c.isascii() or c.isalpha() for c in outside), latex
    opened = []
    for what, environment in re.findall(r"\\(begin|end){(\w+)}", latex):
        if what == "begin":
            opened.append(environment)
        else:
            assert opened.pop() == environment, latex
    assert not opened, latex
    for columns, body in re.findall(r"\\begin{tabular}{(\w+)}\n(.*?)\\end{tabular}", latex, re.DOTALL):
        lines = [line for line in body.splitlines() if not line.startswith(("\\toprule", "\\midrule", "\\bottomrule"))]
        for line in lines:
            assert line.endswith(r" \\"), line
            assert not line.startswith(("[", "*")), line
            assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1, line


TABLE = Table(
    title="Accuracy (%) of R&D_1 #2: CUB²",
    head=["method", "4 classes", "words"],
    lines=[
        ["**GP-Tree**, `a_b`", "**85.0 ± 5.0**", "4 → 60"],
        ["[x] 10⁻³", "–", "a|b {c} ~ ^ \\ $5 < 6 *so*"],
    ],
    note="λ ≈ ½, x₁₂, “é” – see [there](https://example.org/a_b).",
)


class TestRendering:
    def test_markdown(self):
        assert to_markdown(TABLE).splitlines() == [
            "**Accuracy (%) of R&D_1 #2: CUB²**",
            "",
            "| method | 4 classes | words |",
            "| --- | ---: | --- |",
            "| **GP-Tree**, `a_b` | **85.0 ± 5.0** | 4 → 60 |",
            "| [x] 10⁻³ | – | a\\|b {c} ~ ^ \\ $5 < 6 *so* |",
            "",
            "λ ≈ ½, x₁₂, “é” – see [there](https://example.org/a_b).",
        ]

    def test_latex(self):
        latex = to_latex(TABLE, label="tab:x")
        assert latex.splitlines() == [
            r"\begin{table}",
            r"\centering",
            r"\caption{Accuracy (\%) of R\&D\_1 \#2: CUB$^{2}$}",
            r"\label{tab:x}",
            r"\begin{tabular}{lrl}",
            r"\toprule",
            r"method & 4 classes & words \\",
            r"\midrule",
            r"\textbf{GP-Tree}, \texttt{a\_b} & \textbf{85.0 $\pm$ 5.0} & 4 $\rightarrow$ 60 \\",
            r"{[}x] 10$^{-3}$ & -- & a\textbar{}b \{c\} \textasciitilde{} \textasciicircum{} \textbackslash{} "
            r"\$5 \textless{} 6 \emph{so} \\",
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\smallskip\footnotesize $\lambda$ $\approx$ $\frac{1}{2}$, x$_{12}$, ``é'' -- see there.",
            r"\end{table}",
        ]
        assert_sound(latex)

    def test_emphasis_inside_and_alone(self):
        assert latex_text("**a *b* ± c**") == r"\textbf{a \emph{b} $\pm$ c}"
        assert latex_text("2 * 3 ** 4") == "2 {*} 3 {*}{*} 4"
        assert latex_text("α²β") == r"$\alpha^{2}\beta$"

    def test_what_has_no_latex_is_named(self):
        with pytest.raises(ValueError, match="SNOWMAN"):
            latex_text("☃")

    def test_lines_must_fit_the_head(self):
        for render in (to_markdown, to_latex):
            with pytest.raises(ValueError, match="2 cells under a head of 1"):
                render(Table("t", ["a"], [["b", "c"]]))

    def test_no_lines(self):
        assert_sound(to_latex(Table("t", ["a", "b"], [])))

    def test_quoted_once(self):
        once = quoted(Table("t", ["a"], []))
        assert once.title == "t (quoted from the paper)"
        assert quoted(once) == once

    def test_the_best_is_bold(self):
        assert bold_best(["a", "b", "c"], [1, None, 2]) == ["a", "b", "**c**"]
        assert bold_best(["a", "b", "c"], [1, float("nan"), 2], better=min) == ["**a**", "b", "c"]
        assert bold_best(["a"], [None]) == ["a"]
        assert bold_best(["a", "b", "c"], [1, -float("inf"), 2], better=min) == ["**a**", "b", "c"]
        nan = float("nan")
        line = [Summary(88.14, 0.5, 3), Summary(88.06, nan, 1), Summary(87, nan, 1), Summary(nan, nan, 0)]
        assert best_of_line(line, 1) == ["**88.1 ± 0.5**", "**88.1**", "87.0", "–"]
        lines = [[Summary(1, nan, 1), Summary(2, nan, 1)], [Summary(3, nan, 1), Summary(4, nan, 1)]]
        assert best_of_columns(lines, [0, 1], [max, min]) == [["1", "**2.0**"], ["**3**", "4.0"]]


# ------------------------------------------------------------------------------------------------ the experiments


@pytest.mark.parametrize("name", EXPERIMENTS)
class TestEveryExperiment:
    """What the command and the page rely on."""

    def test_trials(self, name):
        experiment = EXPERIMENTS[name]
        trials = experiment.trials(experiment.seeds)
        assert {trial.experiment for trial in trials} == {experiment.results.stem}
        assert len({trial.key for trial in trials}) == len(trials)
        more = {trial.key for trial in experiment.trials(experiment.seeds + 1)}
        assert {trial.key for trial in trials} <= more  # rows stay good when seeds are added
        pickle.loads(pickle.dumps(experiment.run))

    def test_what_is_shown_can_be_rendered(self, name):
        experiment = EXPERIMENTS[name]
        rows = experiment.rows()
        for table in [*(experiment.tables(rows) if rows else []), *map(quoted, experiment.quoted)]:
            assert to_markdown(table)
            assert_sound(to_latex(table))
        assert not rows or experiment.findings(rows).strip()


def test_names_and_titles_are_unique():
    assert all(name == experiment.name for name, experiment in EXPERIMENTS.items())
    assert len({experiment.title for experiment in EXPERIMENTS.values()}) == len(EXPERIMENTS)
