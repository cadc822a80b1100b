"""An experiment: a document, its trials, how one is run, and the tables and pictures that are made of the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.core.document import Document, Filler
from benchmarks.core.store import Rows
from benchmarks.core.tables import Column, Table
from benchmarks.core.trials import Row, Trial

RESULTS = Path(__file__).parent.parent / "results"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment. Tables, pictures and the numbers in its document are made of its rows alone.

    In a module it is its functions `trials`, `run`, `tables` …, constants GROUP, SEEDS …, and docstring.

    group : the section of the index that it belongs to.
    document : see `benchmarks.core.document`; `columns` and `choices` are what its placeholders may name.
    trials : so many seeds give these.
    run(trial, folder) : the metrics of a trial, from a folder of data; picklable, sets torch's threads itself.
    glance : one small table for the index, and for README where it has a marker of this name.
    details : tables that have a page of their own.
    figure : draws rows into a file.
    paper, quoted : its place in the paper, and figures typed by hand from there or elsewhere.
    store : the file of its rows, which experiments with common trials share; empty is a file of its own.
    needs_gpu : whether a trial can only run on a GPU.
    """

    name: str
    group: str
    document: Document
    trials: Callable[[int], list[Trial]]
    run: Callable[..., Mapping[str, Any]]
    tables: Callable[[list[Row]], list[Table]]
    seeds: int = 1
    glance: Callable[[list[Row]], Table] | None = None
    details: Callable[[list[Row]], list[Table]] | None = None
    figure: Callable[[list[Row], Path], None] | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)
    choices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper: str = ""
    quoted: tuple[Table, ...] = ()
    store: str = ""
    needs_data: bool = True
    needs_gpu: Callable[[Trial], bool] = lambda trial: False
    fresh_process: bool = False

    @classmethod
    def of_module(cls, module: ModuleType, name: str) -> Experiment:
        """That of a module: functions by their names, other fields as constants in capitals."""
        given = {"name": name, "document": Document.parse(module.__doc__)}
        for each in fields(cls):
            spelled = each.name if "Callable" in str(each.type) else each.name.upper()
            if hasattr(module, spelled):
                given[each.name] = getattr(module, spelled)
        return cls(**given)

    @property
    def results(self) -> Path:
        return RESULTS / f"{self.store or self.name}.jsonl"

    @property
    def command(self) -> str:
        return f"python -m benchmarks run {self.name}" + (" --data DIR" if self.needs_data else "")

    def wanted(self) -> dict[str, Trial]:
        """The trials by their keys, each once."""
        return {trial.key: trial for trial in self.trials(self.seeds)}

    def rows(self) -> list[Row]:
        """Those of the experiment's trials, in the order of the trials."""
        by_key = {row.trial.key: row for row in Rows(self.results)}
        return [by_key[key] for key in self.wanted() if key in by_key]

    def filled(self, text: str, rows: list[Row]) -> str:
        """A text of the document with its numbers."""
        return Filler(rows, self.columns, self.choices).fill(text)
