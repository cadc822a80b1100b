"""Result pages: an index, a page for each experiment, and the tables of README; `python -m benchmarks page`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks import data
from benchmarks.core.experiment import Experiment
from benchmarks.core.gaps import GAP, RULE
from benchmarks.core.rendering import to_markdown
from benchmarks.core.tables import Table
from benchmarks.core.trials import Row

ROOT = Path(__file__).parents[2]
PAGES, PICTURES = Path("docs/results"), Path("docs/pictures/results")
COMMIT_DIGITS = 12
#: A first table of at most so many lines stands for an experiment that has no small table and no picture.
SMALL_TABLE = 20
MADE = "<!-- Made by `python -m benchmarks page`: change the experiments or their rows, not this file. -->"
INTRODUCTION = f"""\
# Results

{MADE}

Every number is computed from rows that were measured: one line of JSON a trial in `benchmarks/results`, with the trial
(method, data, seed, settings), its metrics, seconds and memory, the versions, the commit and the kind of machine, and
the version of the library's defaults. Figures of the GP-Tree paper (Achituve et al., ICML 2021) stand beside them and
are marked as quoted. Unless a table says otherwise, numbers are the mean over seeds ± its standard error. {RULE}
"""
HOW_TO = """\
## Measure it again

```sh
python -m benchmarks list                         # the experiments, and how many of their trials have a row
python -m benchmarks run EXPERIMENT --data DIR    # measure what has no row yet; interrupt it whenever you like
python -m benchmarks table EXPERIMENT --latex     # its tables, as LaTeX or, without --latex, Markdown
python -m benchmarks figure EXPERIMENT            # its picture
python -m benchmarks page                         # these pages, their pictures and the tables of README
```

Run it from the root of a clone, on an otherwise idle machine. Trials that have a row are not run: delete rows to
measure them again, or ask for those of older defaults with `--outdated`. A row that was cut off is skipped and
reported. Seconds are processor time of one thread unless a page says otherwise.

## Data

`--data DIR` is a folder that you fill. Files are NumPy `.npz` archives without pickles; labels count from 0; features
are read as float32, float16 on disk is enough. A few-shot task is drawn the same way everywhere
(`benchmarks.data.draw`): permute the classes with `numpy.random.default_rng(seed)` and keep the first ones; then, class
by class in that order, permute the class's rows and keep the first ones. The test set is every test row of those
classes.
"""


def pages(experiments: Iterable[Experiment]) -> dict[Path, str]:
    """The pages by their paths below the root; the same rows give the same pages."""
    measured = [(experiment, experiment.rows()) for experiment in experiments]
    index, texts = [INTRODUCTION], {}
    for group in dict.fromkeys(experiment.group for experiment, _ in measured):
        index.append(f"## {group}\n")
        index += [_entry(experiment, rows) for experiment, rows in measured if experiment.group == group]
    texts[PAGES / "index.md"] = "\n".join([*index, HOW_TO, *data.about(), ""])
    for experiment, rows in measured:
        texts[PAGES / f"{experiment.name}.md"] = _page(experiment, rows)
        if rows and experiment.details:
            tables = map(to_markdown, experiment.details(rows))
            title = f"# {experiment.document.title}: all of it\n\n{MADE}\n\n[Back]({experiment.name}.md)\n"
            texts[PAGES / f"{experiment.name}-all.md"] = "\n".join([title, *tables])
    return texts


def with_tables(text: str, experiments: Iterable[Experiment]) -> str:
    """A text with the small tables of experiments between their markers, <!-- table:NAME --> and <!-- /table -->."""
    by_name = {experiment.name: experiment for experiment in experiments}

    def fill(marker: re.Match[str]) -> str:
        experiment = by_name.get(marker[2])
        if experiment is None or experiment.glance is None:
            raise ValueError(f"there is no experiment {marker[2]!r} with a small table; its marker is in the text.")
        return f"{marker[1]}{to_markdown(replace(experiment.glance(experiment.rows()), title=''))}{marker[3]}"

    return re.sub(r"(<!-- table:([\w-]+) -->\n).*?(<!-- /table -->)", fill, text, flags=re.DOTALL)


def write(experiments: Mapping[str, Experiment], root: Path = ROOT) -> list[Path]:
    """Write pages, pictures and the tables of README below the root. The files written."""
    texts = pages(experiments.values())
    readme = root / "README.md"
    if readme.exists():
        texts[Path("README.md")] = with_tables(readme.read_text(encoding="utf-8"), experiments.values())
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    drawn = [experiment for experiment in experiments.values() if experiment.figure and experiment.rows()]
    for experiment in drawn:
        draw(experiment, root / PICTURES / f"{experiment.name}.png")
    return [root / path for path in (*texts, *(PICTURES / f"{experiment.name}.png" for experiment in drawn))]


def draw(experiment: Experiment, path: Path) -> None:
    assert experiment.figure is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    experiment.figure(experiment.rows(), path)


def _entry(experiment: Experiment, rows: list[Row]) -> str:
    """What the index shows of an experiment."""
    measured = f"Measured: {len(rows)} of {len(experiment.wanted())} trials."
    document = experiment.document
    parts = [f"### [{document.title}]({experiment.name}.md)", f"*{document.question}*"]
    if rows:
        parts += [
            experiment.filled(document.answer, rows),
            *(_at_a_glance(experiment, rows) or _small(experiment, rows))[:1],
        ]
    return "\n\n".join([*parts, measured, ""])


def _at_a_glance(experiment: Experiment, rows: list[Row]) -> list[str]:
    """The small table and the picture, as far as there are any."""
    parts = [to_markdown(experiment.glance(rows)).rstrip()] if experiment.glance else []
    if experiment.figure:
        parts.append(f"![{experiment.document.title}](../pictures/results/{experiment.name}.png)")
    return parts


def _small(experiment: Experiment, rows: list[Row]) -> list[str]:
    return [to_markdown(table).rstrip() for table in experiment.tables(rows)[:1] if len(table.lines) <= SMALL_TABLE]


def _page(experiment: Experiment, rows: list[Row]) -> str:
    document = experiment.document
    parts = [f"# {document.title}", MADE, f"*{document.question}*"]
    if rows:
        parts += [experiment.filled(document.answer, rows), *_at_a_glance(experiment, rows)]
        parts += ["## Findings", experiment.filled(document.findings, rows)] if document.findings else []
        tables = experiment.tables(rows)
        parts += ["## Tables", *([RULE] if any(table.columns[0] == GAP for table in tables) else [])]
        parts += [to_markdown(table).rstrip() for table in tables]
        if experiment.details:
            parts.append(f"Every method on every task: [all of it]({experiment.name}-all.md).")
    if experiment.quoted:
        parts += ["## Quoted", *(to_markdown(quoted(table)).rstrip() for table in experiment.quoted)]
    parts.append("## How it is measured")
    parts += [document.setup] if document.setup else []
    parts += [f"In the paper: {experiment.paper}."] if experiment.paper else []
    parts += [f"```sh\n{experiment.command}\n```", _coverage(experiment, rows), *([_origin(rows)] if rows else [])]
    return "\n\n".join(parts) + "\n"


def quoted(table: Table) -> Table:
    return replace(table, title=f"{table.title} (quoted from {table.source})")


def _coverage(experiment: Experiment, rows: list[Row]) -> str:
    """How many trials have a row, with which seeds, and which have none."""
    trials, done = experiment.wanted(), {row.trial.key for row in rows}
    seeds = ", ".join(map(str, sorted({row.trial.seed for row in rows})))
    text = f"{len(rows)} of {len(trials)} trials have a row in `benchmarks/results/{experiment.results.name}`"
    missing = Counter(f"{trial.method} on {trial.data}" for key, trial in trials.items() if key not in done)
    if missing:
        text += "; without: " + ", ".join(f"{name} ({count})" for name, count in missing.items())
    return f"{text}. Seeds: {seeds}." if rows else f"{text}."


def _origin(rows: list[Row]) -> str:
    """Machines, versions, commits and defaults that the rows come from, and what they cost."""
    minutes = sum(row.seconds["wall"] or 0 for row in rows) / 60
    time = f"{minutes:.0f} minutes" if minutes < 100 else f"{minutes / 60:.0f} hours"
    return (
        f"Measured on {_counted(_machine(row) for row in rows)}, with {_counted(_software(row) for row in rows)}, at "
        f"{_counted(_commit(row) for row in rows)}, with {_counted(f'defaults {row.defaults}' for row in rows)}; the "
        f"trials took {time} in all."
    )


def _counted(texts: Iterable[str]) -> str:
    """Texts that occur, the most frequent first; how often if there are several."""
    counts = sorted(Counter(texts).items(), key=lambda item: (-item[1], item[0]))
    if len(counts) == 1:
        return counts[0][0]
    return " and ".join(f"{text} ({count} row{'s' if count > 1 else ''})" for text, count in counts)


def _machine(row: Row) -> str:
    machine = row.machine
    if not machine:
        return "an unknown machine"
    gpu = f", {machine['gpu']}" if machine.get("gpu") else ""
    memory = f"{machine['memory_bytes'] / 2**30:.0f} GiB"
    return f"{machine['cpu']}, {machine['cores']} cores{gpu}, {memory}, threads of torch: {machine['threads']}"


def _software(row: Row) -> str:
    versions = [f"{name} {row.versions[name]}" for name in ("python", "torch", "gpytorch") if name in row.versions]
    return ", ".join(versions) or "unknown versions"


def _commit(row: Row) -> str:
    """Shortened; "changed" where the code was not the commit's."""
    commit = row.versions.get("commit")
    if commit is None:
        return "an unknown commit"
    return f"commit `{commit.rstrip('+')[:COMMIT_DIGITS]}`" + (", changed" if commit.endswith("+") else "")
