"""The page of results, docs/results.md, made of the experiments and their rows: `python -m benchmarks page`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.experiment import Experiment
from benchmarks.rendering import quoted, to_markdown
from benchmarks.rows import Row

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results.md"
PICTURES = PAGE.parent / "pictures" / "results"
COMMIT_DIGITS = 12

INTRODUCTION = """\
# Results

<!-- Made by `python -m benchmarks page`: change the experiments or their rows, not this file. -->

The experiments of the GP-Tree paper (Achituve et al., ICML 2021), run again on data and networks of ours, with the
rivals that it names. How much of each has been measured is said below; nothing else is shown. Everything here is
computed from rows that were measured, the words under "what was found" included; figures of the paper stand beside them
and are marked as quoted. Other measurements, and what the data files are, are in [benchmarks.md](benchmarks.md).

A row is one line of JSON in a file of `benchmarks/results`, which each experiment names: the trial (method, data, seed,
settings), what was measured, the seconds and the memory it took (where that could be told), the versions, the commit
and the kind of machine. To measure a number again, delete its rows and run the experiment from the root of a clone;
trials that have a row are not run.

```sh
python -m benchmarks list                         # the experiments, and how many of their trials have a row
python -m benchmarks run EXPERIMENT --data DIR    # measure what has no row yet; interrupt it whenever you like
python -m benchmarks table EXPERIMENT --latex     # a table from the rows, as LaTeX or, without --latex, Markdown
python -m benchmarks figure EXPERIMENT            # the picture from the rows
python -m benchmarks page                         # this page and its pictures
```

Unless a table says otherwise, numbers are the mean over seeds ± its standard error.
"""


def page(experiments: Mapping[str, Experiment]) -> str:
    """The whole page; the same rows give the same page."""
    found = {name: experiment.rows() for name, experiment in experiments.items()}
    shown = [experiment for name, experiment in experiments.items() if found[name]]
    parts = [INTRODUCTION]
    if shown:
        parts += [_overview(shown, found), *(_section(experiment, found[experiment.name]) for experiment in shown)]
    absent = [experiment for name, experiment in experiments.items() if not found[name]]
    if absent:
        lines = (f"- `{experiment.name}`: {experiment.title} ({experiment.paper})" for experiment in absent)
        parts.append("\n".join(("## Not run", "", "These have no rows yet:", "", *lines, "")))
    return "\n".join(parts)


def write(experiments: Mapping[str, Experiment]) -> list[Path]:
    """Write the page, and the pictures of the experiments that have one and rows for it. The files written."""
    written = []
    for experiment in experiments.values():
        rows = experiment.rows()
        if experiment.figure is not None and rows:
            PICTURES.mkdir(parents=True, exist_ok=True)
            written.append(PICTURES / f"{experiment.name}.png")
            experiment.figure(rows, written[-1])
    PAGE.write_text(page(experiments), encoding="utf-8")
    return [PAGE, *written]


def run_command(experiment: Experiment) -> str:
    return f"python -m benchmarks run {experiment.name} --data DIR"


def _overview(experiments: Iterable[Experiment], found: Mapping[str, list[Row]]) -> str:
    lines = ["| experiment | in the paper | content | rows |", "| --- | --- | --- | --- |"]
    for experiment in experiments:
        name = f"[`{experiment.name}`](#{_anchor(experiment.title)})"
        done = f"{len(found[experiment.name])} of {len(experiment.wanted())}"
        lines.append(f"| {name} | {experiment.paper} | {experiment.title} | {done} |")
    return "\n".join((*lines, ""))


def _section(experiment: Experiment, rows: list[Row]) -> str:
    parts = [
        f"## {experiment.title}",
        f"In the paper: {experiment.paper}. Rows: [{experiment.results.name}]({_rows_link(experiment)}).",
        f"```sh\n{run_command(experiment)}\n```",
        _coverage(experiment, rows),
        _origin(rows),
        *(to_markdown(table).rstrip() for table in experiment.tables(rows)),
    ]
    if experiment.figure is not None:
        parts.append(f"![{experiment.title}]({PICTURES.relative_to(PAGE.parent).as_posix()}/{experiment.name}.png)")
    if experiment.quoted:
        parts.append("### Quoted from the paper")
        parts += [to_markdown(quoted(table)).rstrip() for table in experiment.quoted]
    if experiment.differs:
        parts += ["### What differs", experiment.differs.strip()]
    parts += ["### What was found", experiment.findings(rows).strip()]
    return "\n\n".join(parts) + "\n"


def _coverage(experiment: Experiment, rows: list[Row]) -> str:
    """How many trials have a row, with which seeds, and which have none: whole data sets, then what else."""
    trials = experiment.wanted()
    seeds = sorted({row.trial.seed for row in rows})
    text = f"Seeds: {_ranges(seeds)}. {len(rows)} of {len(trials)} trials have a row"
    done, begun = {row.trial.key for row in rows}, {row.trial.data for row in rows}
    left = [trial for key, trial in trials.items() if key not in done]
    missing = Counter(f"all of {experiment.data_called(trial.data)}" for trial in left if trial.data not in begun)
    missing.update(experiment.called(trial) for trial in left if trial.data in begun)
    if missing:
        text += "; without: " + ", ".join(f"{name} ({count})" for name, count in missing.items())
    return text + "."


def _origin(rows: list[Row]) -> str:
    """Machines, versions and commits that the rows come from, and what they cost."""
    minutes = sum(row.seconds["wall"] for row in rows) / 60
    time = f"{minutes:.0f} minutes" if minutes < 100 else f"{minutes / 60:.0f} hours"
    return (
        f"Measured on {_counted(_machine(row) for row in rows)}, with {_counted(_software(row) for row in rows)}, at "
        f"{_counted(_commit(row) for row in rows)}; the trials took {time} in all."
    )


def _counted(texts: Iterable[str]) -> str:
    """Texts that occur, the most frequent first; how often if there are several."""
    counts = sorted(Counter(texts).items(), key=lambda item: (-item[1], item[0]))
    if len(counts) == 1:
        return counts[0][0]
    return " and ".join(f"{text} ({count} row{'s' if count > 1 else ''})" for text, count in counts)


def _machine(row: Row) -> str:
    machine = row.machine
    parts = [f"{machine['cpu']}, {machine['cores']} cores"]
    if machine.get("gpu"):
        parts.append(machine["gpu"])
    return f"{', '.join(parts)}, {machine['memory_bytes'] / 2**30:.0f} GiB, threads of torch: {machine['threads']}"


def _software(row: Row) -> str:
    return ", ".join(f"{name} {row.versions.get(name)}" for name in ("python", "torch", "gpytorch"))


def _commit(row: Row) -> str:
    """Shortened; "changed" where the code was not the commit's."""
    commit = row.versions.get("commit")
    if commit is None:
        return "an unknown commit"
    return f"commit `{commit.rstrip('+')[:COMMIT_DIGITS]}`" + (", changed" if commit.endswith("+") else "")


def _ranges(numbers: list[int]) -> str:
    """0–4, 7"""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _rows_link(experiment: Experiment) -> str:
    return f"../benchmarks/results/{experiment.results.name}"


def _anchor(heading: str) -> str:
    """The name under which GitHub finds a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
