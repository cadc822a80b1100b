"""Experiments by name: `python -m benchmarks list | run | table | figure | page`."""

from __future__ import annotations

import functools
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import rich.table
import torch
import typer
from rich.console import Console
from rich.text import Text

from benchmarks.core import page as result_pages
from benchmarks.core.experiment import Experiment
from benchmarks.core.rendering import to_latex, to_markdown
from benchmarks.core.runner import FailedTrials, run_trials
from benchmarks.core.store import Rows
from benchmarks.core.trials import DEFAULTS, Row, Trial
from benchmarks.experiments import EXPERIMENTS
from gptree import provenance
from gptree.cli.console import clear_errors, say

INTERRUPTED = 130  # as a shell has it for Ctrl-C

app = typer.Typer(
    help="Experiments: measure them, and show what was measured.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="An experiment; `list` names them.", show_default=False)]
Seeds = Annotated[int | None, typer.Option(help="So many seeds, if not the experiment's own number.", min=1)]


@app.command("list")
@clear_errors
def list_experiments() -> None:
    """The experiments: their questions, and how many of their trials have a row."""
    table = rich.table.Table()
    for title in ("name", "question", "rows / trials"):
        table.add_column(title, no_wrap=title == "name", justify="right" if "/" in title else "left")
    for experiment in EXPERIMENTS.values():
        count = f"{len(experiment.rows())} / {len(experiment.wanted())}"
        table.add_row(*map(Text, (experiment.name, experiment.document.question, count)))
    Console().print(table)


@app.command()
@clear_errors
def run(
    name: Name,
    data: Annotated[Path | None, typer.Option(help="Folder with the data files.", metavar="DIR")] = None,
    seeds: Seeds = None,
    jobs: Annotated[int, typer.Option(help="Trials at a time; -1 for one on each core.")] = 1,
    methods: Annotated[
        list[str] | None,
        typer.Option(help="Only methods whose names begin so; repeat it for several.", metavar="PREFIX"),
    ] = None,
    outdated: Annotated[
        bool, typer.Option("--outdated", help="Measure trials again whose rows are of older defaults.")
    ] = False,
) -> None:
    """Measure the trials of an experiment that have no row yet.

    A row is on the disk as soon as its trial has ended: interrupt the run whenever you like and start it again. A trial
    that fails does not stop the others; it is reported at the end, the exit status is 1, and it is tried again next
    time. Trials that need a GPU are left out where there is none.
    """
    experiment = _experiment(name, seeds)
    if experiment.needs_data:
        _check_folder(data)
    trials = _chosen(experiment, methods or [])
    rows = Rows(experiment.results)
    defaults = DEFAULTS if outdated else 0
    # Rows tell the code that was loaded now, whatever becomes of the checkout while the run goes on.
    if commit := provenance.commit():
        os.environ["GPTREE_COMMIT"] = commit
    done = sum(rows.done(trial, defaults) for trial in trials)
    say(f"{name}: {done} of {len(trials)} trials have a row; {len(trials) - done} to run")
    measure = functools.partial(experiment.run, folder=data or Path())
    try:
        run_trials(trials, measure, rows, experiment.fresh_process, 1 if experiment.fresh_process else jobs, defaults)
    except KeyboardInterrupt:
        rows = Rows(experiment.results)  # read again: it may have come inside a write
        done = sum(rows.done(trial, defaults) for trial in trials)
        say(f"interrupted: {done} of {len(trials)} trials have a row in {experiment.results}; to go on:")
        say(f"  {_command(name, data, seeds, jobs, methods or [], outdated)}")
        raise typer.Exit(INTERRUPTED) from None
    except FailedTrials as error:
        _say_failures(error, len(trials))
        raise typer.Exit(1) from None
    say(f"{name}: all {len(trials)} trials have a row in {experiment.results}")


@app.command()
@clear_errors
def table(
    name: Name,
    latex: Annotated[bool, typer.Option("--latex", help="As LaTeX, for the package booktabs.")] = False,
    seeds: Seeds = None,
) -> None:
    """The tables of an experiment from its rows, and the figures quoted from the paper."""
    experiment = _experiment(name, seeds)
    tables = [*experiment.tables(_rows(experiment)), *map(result_pages.quoted, experiment.quoted)]
    texts = [to_latex(t, f"tab:{name}-{i}") for i, t in enumerate(tables, 1)] if latex else map(to_markdown, tables)
    typer.echo("\n".join(texts), nl=False)


@app.command()
@clear_errors
def figure(
    name: Name,
    out: Annotated[Path | None, typer.Option(help="The file, if not that of the result pages.", metavar="FILE")] = None,
    seeds: Seeds = None,
) -> None:
    """The picture of an experiment from its rows."""
    experiment = _experiment(name, seeds)
    if experiment.figure is None:
        drawn = [other.name for other in EXPERIMENTS.values() if other.figure is not None]
        raise ValueError(f"{name} has no figure; there are figures of {', '.join(drawn)}.")
    _rows(experiment)
    out = out or result_pages.ROOT / result_pages.PICTURES / f"{name}.png"
    result_pages.draw(experiment, out)
    typer.echo(str(out))


@app.command()
@clear_errors
def page() -> None:
    """Write the result pages, their pictures and the tables of README from the rows of all experiments."""
    for path in result_pages.write(EXPERIMENTS, result_pages.ROOT):
        typer.echo(str(path))


def _experiment(name: str, seeds: int | None) -> Experiment:
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment '{name}'; there are {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name] if seeds is None else replace(EXPERIMENTS[name], seeds=seeds)


def _check_folder(folder: Path | None) -> None:
    if folder is None:
        raise ValueError("this experiment needs data: name their folder with --data DIR.")
    if folder.is_dir():
        return
    if folder.exists():
        raise ValueError(f"--data {folder} is a file; name the folder that it is in.")
    there = next(parent for parent in folder.absolute().parents if parent.is_dir())
    folders = sorted(path.name for path in there.iterdir() if path.is_dir() and not path.name.startswith("."))
    raise ValueError(f"there is no folder {folder}; the folders in {there} are: {', '.join(folders) or 'none'}.")


def _chosen(experiment: Experiment, prefixes: list[str]) -> list[Trial]:
    """The experiment's trials, each once; with prefixes, those of the methods that begin with one of them."""
    trials = list(experiment.wanted().values())
    methods = dict.fromkeys(trial.method for trial in trials)
    for prefix in prefixes:
        if not any(method.startswith(prefix) for method in methods):
            raise ValueError(f"no method of {experiment.name} begins with '{prefix}'; there are {', '.join(methods)}.")
    chosen = [trial for trial in trials if not prefixes or trial.method.startswith(tuple(prefixes))]
    able = [trial for trial in chosen if torch.cuda.is_available() or not experiment.needs_gpu(trial)]
    if len(able) < len(chosen):
        say(f"{experiment.name}: {len(chosen) - len(able)} trials need a GPU, and are left out")
    return able


def _rows(experiment: Experiment) -> list[Row]:
    rows = experiment.rows()
    if not rows:
        raise ValueError(f"{experiment.name} has no rows yet; measure them: {experiment.command}")
    return rows


def _command(name: str, data: Path | None, seeds: int | None, jobs: int, methods: list[str], outdated: bool) -> str:
    """The command that was given."""
    parts = ["python", "-m", "benchmarks", "run", name]
    parts += [] if data is None else ["--data", str(data)]
    parts += [] if seeds is None else ["--seeds", str(seeds)]
    parts += [] if jobs == 1 else ["--jobs", str(jobs)]
    parts += [part for method in methods for part in ("--methods", method)]
    return shlex.join(parts + ["--outdated"] * outdated)


def _say_failures(error: FailedTrials, total: int) -> None:
    """Each cause once, with the trials it struck and where it was raised first."""
    for cause, failures in error.by_error().items():
        say("")
        if failures[0].traceback:
            say(failures[0].traceback.rstrip())
        for failure in failures:
            say(f"failed: {failure.trial.name} {dict(failure.trial.settings) or ''}".rstrip())
        say(f"  {cause}")
    say(f"\n{len(error.failures)} of {total} trials failed; all others have their rows. Start again to retry them.")


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
