"""A made-up experiment whose trials raise, are killed or take their time; workers import no more than they need."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from benchmarks.core.document import Document
from benchmarks.core.experiment import Experiment
from benchmarks.core.tables import Column, Summary, Table
from benchmarks.core.trials import Row, Trial


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
    while trial.method == "waits" and trial.seed >= 3 and not (folder / "go").exists():
        time.sleep(0.01)
    if trial.method == "not plain":
        return {"value": object()}
    return {"value": trial.seed / 2}


VALUE = Column("value", "metrics.value", digits=2)
DOCUMENT = Document(
    "Made-up values",
    "What are the values?",
    "About {mean value | plain}.",
    "- Plain has {count | method=plain} rows.",
    "The values are made up.",
)


def one_table(rows: list[Row]) -> list[Table]:
    methods = dict.fromkeys(row.trial.method for row in rows)
    lines = [[m, Summary.of([r for r in rows if r.trial.method == m], VALUE).text(2)] for m in methods]
    return [Table("Values in %", ["method", "value"], lines, note="Made up.")]


def draw(rows: list[Row], path: Path) -> None:
    path.write_bytes(b"a picture of %d rows" % len(rows))


def made_up(*methods: str, seeds: int = 3, **fields) -> Experiment:
    return Experiment(
        name="made-up",
        group="Made up",
        document=DOCUMENT,
        columns={"value": VALUE},
        seeds=seeds,
        trials=trials_of(*methods),
        run=behave,
        tables=one_table,
        **fields,
    )
