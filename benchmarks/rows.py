"""Trials, their result rows, and the loop that runs what is not there yet."""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, track

from benchmarks.machine import machine, measured, versions


@dataclass(frozen=True)
class Trial:
    """One thing to run. `settings` holds plain JSON values; the trial's key is a hash of all five fields."""

    experiment: str
    method: str
    data: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Through JSON and back: a bad value fails now, and a trial equals the one read from its row.
        plain = json.loads(json.dumps(dict(self.settings), allow_nan=False))
        object.__setattr__(self, "settings", MappingProxyType(plain))

    @property
    def key(self) -> str:
        text = json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def as_json(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "method": self.method,
            "data": self.data,
            "seed": self.seed,
            "settings": dict(self.settings),
        }

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self):  # a mapping proxy does not travel between processes
        return Trial, (self.experiment, self.method, self.data, self.seed, dict(self.settings))


@dataclass(frozen=True)
class Row:
    """A finished trial: its metrics, what it cost, and where it ran."""

    trial: Trial
    metrics: Mapping[str, Any]
    seconds: Mapping[str, float]  # wall, cpu
    peak_memory_bytes: int
    versions: Mapping[str, Any]
    machine: Mapping[str, Any]

    def to_line(self) -> str:
        rest = {
            "metrics": _plain(self.metrics),
            "seconds": dict(self.seconds),
            "peak_memory_bytes": self.peak_memory_bytes,
            "versions": dict(self.versions),
            "machine": dict(self.machine),
        }
        return json.dumps({"key": self.trial.key, "trial": self.trial.as_json(), **rest}, allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> Row:
        fields = json.loads(line)
        key, trial = fields.pop("key"), Trial(**fields.pop("trial"))
        if key != trial.key:
            raise ValueError(f"the key {key} is not that of its trial, {trial.key}")
        return cls(trial=trial, **fields)


class Rows:
    """The rows of a JSONL file. Damaged lines are skipped and reported; a trial's last row is its row."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.damaged: list[str] = []
        self._rows: dict[str, Row] = {}
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        for number, line in enumerate(lines, start=1):
            try:
                row = Row.from_line(line.decode())
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self.damaged.append(f"line {number}: {error!r}")
            else:
                self._rows[row.trial.key] = row
        if self.damaged:
            warnings.warn(f"{self.path.name}: skipped damaged rows: {'; '.join(self.damaged)}", stacklevel=2)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def done(self, trial: Trial) -> bool:
        """Whether the trial has a row. Rows of older code count too: delete them to run them again."""
        return trial.key in self._rows

    def append(self, row: Row) -> None:
        """Add a row in one write that is on the disk when this returns."""
        text = row.to_line()
        line = (text + "\n").encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b", buffering=0) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # the last run was cut off inside a line: leave that line to itself
                    line = b"\n" + line
            file.write(line)
            os.fsync(file.fileno())
        self._rows[row.trial.key] = Row.from_line(text)


def run_trials(
    trials: Iterable[Trial],
    function: Callable[[Trial], Mapping[str, Any]],
    rows: Rows,
    fresh_process: bool = False,
    n_jobs: int = 1,
) -> None:
    """Run `function(trial) -> metrics` for every trial without a row, and append the rows as they are finished.

    `fresh_process`: each trial in a new process, so that its peak memory is its own. `n_jobs`: so many trials at a
    time, through joblib. In both cases `function` must be picklable, and set what a process starts with, such as
    torch's number of threads.
    """
    trials = list(trials)
    if n_jobs != 1:
        _run_parallel([trial for trial in trials if not rows.done(trial)], function, rows, n_jobs)
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(trials))
        for trial in trials:
            name = f"{trial.experiment} · {trial.data} · {trial.method} · {trial.seed}"
            progress.update(task, description=name)
            if not rows.done(trial):
                rows.append(_in_fresh_process(function, trial) if fresh_process else _run(function, trial))
            progress.advance(task)


def measure_and_print(
    about: str | None,
    results: Path,
    trials: Iterable[Trial],
    function: Callable[..., Mapping[str, Any]],
    table: Callable[[list[Row]], str],
) -> None:
    """The command line of a benchmark on data: measure what has no row yet with `function(trial, folder)`, print."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the feature files")
    parser.add_argument("--results", type=Path, default=results)
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time")
    arguments = parser.parse_args()
    rows = Rows(arguments.results)
    run_trials(trials, functools.partial(function, folder=arguments.data), rows, n_jobs=arguments.jobs)
    print(table(list(rows)))


def _run_parallel(trials: list[Trial], function: Callable[[Trial], Mapping[str, Any]], rows: Rows, n_jobs: int) -> None:
    tasks = (delayed(_run)(function, trial) for trial in trials)
    finished: Any = Parallel(n_jobs=n_jobs, return_as="generator_unordered")(tasks)
    for row in track(finished, "trials", total=len(trials), console=Console(stderr=True)):
        rows.append(row)


def _run(function: Callable[[Trial], Mapping[str, Any]], trial: Trial) -> Row:
    result = measured(function, trial)
    return Row(
        trial=trial,
        metrics=dict(result.value),
        seconds={"wall": result.wall_seconds, "cpu": result.cpu_seconds},
        peak_memory_bytes=result.peak_memory_bytes,
        versions=versions(),
        machine=machine(),
    )


def _in_fresh_process(function: Callable[[Trial], Mapping[str, Any]], trial: Trial) -> Row:
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_run, function, trial).result()


def _plain(value: Any) -> Any:
    """As JSON has it: NumPy's numbers become Python's, NaN and infinity null."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
