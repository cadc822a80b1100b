"""Trials, their result rows, and the loop that runs what is not there yet."""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import os
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

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

    @property
    def name(self) -> str:
        """For people; trials that differ in their settings share it."""
        return f"{self.experiment} · {self.data} · {self.method} · {self.seed}"

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
    peak_memory_bytes: int | None
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
        for name in ("metrics", "seconds", "versions", "machine"):
            if not isinstance(fields[name], dict):
                raise ValueError(f"{name} is no mapping")
        if not all(_is_number(fields["seconds"].get(clock)) for clock in ("wall", "cpu")):
            raise ValueError("seconds has no numbers wall and cpu")
        if fields["peak_memory_bytes"] is not None and not _is_number(fields["peak_memory_bytes"]):
            raise ValueError("peak_memory_bytes is no number")
        return cls(trial=trial, **{**fields, "metrics": _with_numbers(fields["metrics"])})


Metrics = Callable[[Trial], Mapping[str, Any]]  # of a trial


class Rows:
    """The rows of a JSONL file. Damaged lines are skipped and reported; a trial's last row is its row."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.damaged: list[str] = []
        self._rows: dict[str, Row] = {}
        self._lines = self._bytes = 0  # that have been read
        if rest := self._read():
            self._report(self._take(self._lines + 1, rest))

    def read_on(self) -> None:
        """Take in lines that were added since, as by another run. One that is being written is for the next time."""
        self._read()

    def _read(self) -> bytes:
        """Take in whole lines from where the last reading ended. What follows them."""
        if not self.path.exists():
            return b""
        with self.path.open("rb") as file:
            file.seek(self._bytes)
            text = file.read()
        *lines, rest = text.split(b"\n")
        self._report(*(self._take(number, line) for number, line in enumerate(lines, start=self._lines + 1)))
        self._lines += len(lines)
        self._bytes += len(text) - len(rest)
        return rest

    def _take(self, number: int, line: bytes) -> str | None:
        """Add the row of a line; what is wrong with it if it has none."""
        try:
            row = Row.from_line(line.decode())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return f"line {number}: {error!r}"
        self._rows[row.trial.key] = row
        return None

    def _report(self, *damage: str | None) -> None:
        new = [told for told in damage if told is not None and told not in self.damaged]
        self.damaged += new
        if new:
            warnings.warn(f"{self.path.name}: skipped damaged rows: {'; '.join(new)}", stacklevel=4)

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


@dataclass(frozen=True)
class Failure:
    """A trial that raised, and so has no row."""

    trial: Trial
    error: str  # in one line
    traceback: str = ""


class FailedTrials(RuntimeError):
    """Some trials raised; all others have their rows."""

    def __init__(self, failures: Iterable[Failure]):
        self.failures = list(failures)
        told = "; ".join(f"{failure.trial.name}: {failure.error}" for failure in self.failures)
        super().__init__(f"{len(self.failures)} trials failed, all others have their rows: {told}")

    def by_error(self) -> dict[str, list[Failure]]:
        """Failures of one cause, such as a missing file, together."""
        groups: defaultdict[str, list[Failure]] = defaultdict(list)
        for failure in self.failures:
            groups[failure.error].append(failure)
        return dict(groups)


def run_trials(
    trials: Iterable[Trial],
    function: Metrics,
    rows: Rows,
    fresh_process: bool = False,
    n_jobs: int = 1,
) -> None:
    """Run `function(trial) -> metrics` for every trial without a row, and append the rows as they are finished.

    `fresh_process`: each trial in a new process, so that its peak memory is its own. `n_jobs`: so many trials at a
    time, through joblib. In both cases `function` must be picklable, and set what a process starts with, such as
    torch's number of threads. A trial that raises does not stop the others: `FailedTrials` is raised after the last.
    Trials that get a row from another run before their turn comes are not run.
    """
    wanted = {trial.key: trial for trial in trials}
    left = [trial for trial in wanted.values() if not rows.done(trial)]
    failures = []
    with _progress(len(wanted), len(wanted) - len(left)) as bar:

        def still_without_row(trial: Trial) -> bool:
            rows.read_on()
            if done := rows.done(trial):
                bar.skip(trial)
            return not done

        if n_jobs == 1:
            outcomes = _one_by_one(filter(still_without_row, left), function, fresh_process, bar.begin)
        else:
            outcomes = _parallel(left, still_without_row, function, n_jobs, bar.begin)
        with closing(outcomes):
            for outcome in outcomes:
                if isinstance(outcome, Failure):
                    failures.append(outcome)
                else:
                    rows.append(outcome)
                bar.end(outcome)
    if failures:
        raise FailedTrials(failures)


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


def _one_by_one(
    trials: Iterable[Trial], function: Metrics, fresh_process: bool, begin: Callable[[Trial], None]
) -> Generator[Row | Failure]:
    for trial in trials:
        begin(trial)
        yield _in_fresh_process(function, trial) if fresh_process else _attempt(function, trial)


def _parallel(
    trials: list[Trial],
    wanted: Callable[[Trial], bool],
    function: Metrics,
    n_jobs: int,
    begin: Callable[[Trial], None],
) -> Generator[Row | Failure]:
    finished: set[str] = set()
    tasks = (delayed(_attempt)(function, trial) for trial in trials if wanted(trial))
    # Single tasks, not batches: a short trial's row does not wait for its neighbours. Few are taken in advance, since
    # trials that are taken are run, whatever rows other runs write meanwhile.
    how: dict[str, Any] = {"batch_size": 1, "pre_dispatch": "n_jobs", "return_as": "generator_unordered"}
    outcomes: Any = Parallel(n_jobs, **how)(tasks)
    try:
        for outcome in outcomes:
            finished.add(outcome.trial.key)
            yield outcome
    except GeneratorExit:  # interrupted: the workers stop, and joblib need not warn of what they did not finish
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcomes.close()
        raise
    except BrokenProcessPool:
        # A process was killed, by whichever trial took the memory. Apart, each of the rest has its own chance.
        rest = (trial for trial in trials if trial.key not in finished and wanted(trial))
        yield from _one_by_one(rest, function, True, begin)


def _attempt(function: Metrics, trial: Trial) -> Row | Failure:
    try:
        row = _run(function, trial)
        row.to_line()  # metrics that are not plain fail here, as part of the trial
    except Exception as error:
        # As text: an exception need not be picklable.
        return Failure(trial, " ".join(f"{type(error).__name__}: {error}".split()), traceback.format_exc())
    return row


def _run(function: Metrics, trial: Trial) -> Row:
    result = measured(function, trial)
    return Row(
        trial=trial,
        metrics=dict(result.value),
        seconds={"wall": result.wall_seconds, "cpu": result.cpu_seconds},
        peak_memory_bytes=result.peak_memory_bytes,
        versions=versions(),
        machine=machine(),
    )


def _in_fresh_process(function: Metrics, trial: Trial) -> Row | Failure:
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(_attempt, function, trial).result()
        except BrokenProcessPool:
            return Failure(trial, "the process was killed; it may have run out of memory")


class _Bar:
    """A progress bar; where nobody watches one, as in a log, a line for each trial that ends."""

    def __init__(self, progress: Progress, total: int, done: int):
        self._progress = progress
        self._task = progress.add_task("", total=total, completed=done)

    def begin(self, trial: Trial) -> None:
        self._progress.update(self._task, description=escape(trial.name))

    def skip(self, trial: Trial) -> None:
        """Another run has measured it."""
        self._progress.update(self._task, advance=1, description=escape(trial.name))

    def end(self, outcome: Row | Failure) -> None:
        name = escape(outcome.trial.name)
        self._progress.update(self._task, advance=1, description=name)
        failed = isinstance(outcome, Failure)
        console = self._progress.console
        if failed or not console.is_terminal:
            task = self._progress.tasks[0]
            how = f"failed: {escape(outcome.error)}" if failed else f"{outcome.seconds['wall']:.1f} s"
            console.print(f"{task.completed:.0f}/{task.total:.0f} {name}: {how}", highlight=False, soft_wrap=True)


@contextmanager
def _progress(total: int, done: int) -> Iterator[_Bar]:
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    left = TextColumn("left"), TimeRemainingColumn()
    day = 24 * 3600.0  # the speed is that of all trials: some take hours
    shown = {"console": console, "disable": not console.is_terminal, "speed_estimate_period": day}
    with Progress(*columns, *left, **shown) as progress:
        yield _Bar(progress, total, done)


#: What JSON has no numbers for. Null is a value that is undefined, these are results.
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _with_numbers(value: Any) -> Any:
    """As it was before `_plain`."""
    if isinstance(value, dict):
        return {name: _with_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_numbers(part) for part in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    """As JSON has it: NumPy's numbers become Python's, NaN and infinity their names."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
