"""What an experiment of the results page is: its trials, how one is run, and what is shown of the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from benchmarks.rows import Row, Rows, Trial

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Table:
    """Cells of text under a head; the first column names the line. Markdown emphasis in cells is kept in LaTeX."""

    title: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Experiment:
    """An experiment. Tables and figure are made of its rows alone.

    trials : so many seeds give these.
    run : the metrics of a trial, from a folder of data; picklable, sets torch's threads itself.
    figure : draws rows into a file.
    quoted : figures as published in the paper, typed by hand from it and marked as quoted wherever they are shown.
    differs : how this set-up differs from the paper's.
    findings : what agrees with the paper and what does not, in words computed from the rows.
    called, data_called : what a trial, without its seed and data, and a data set are called on the page.
    """

    name: str
    title: str
    paper: str
    seeds: int
    trials: Callable[[int], list[Trial]]
    run: Callable[[Trial, Path], Mapping[str, Any]]
    tables: Callable[[list[Row]], list[Table]]
    findings: Callable[[list[Row]], str]
    figure: Callable[[list[Row], Path], None] | None = None
    quoted: tuple[Table, ...] = ()
    differs: str = ""
    called: Callable[[Trial], str] = attrgetter("method")
    data_called: Callable[[str], str] = str

    @property
    def results(self) -> Path:
        return RESULTS / f"{self.name}.jsonl"

    def wanted(self) -> dict[str, Trial]:
        """The trials by their keys, each once."""
        return {trial.key: trial for trial in self.trials(self.seeds)}

    def rows(self) -> list[Row]:
        """Those of the experiment's trials, in the order of the trials."""
        found = {row.trial.key: row for row in Rows(self.results)}
        return [found[key] for key in self.wanted() if key in found]
