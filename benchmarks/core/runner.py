"""The loop that runs trials without a row, one by one or several at a time; a line for each that ends."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from joblib import Parallel, delayed

from benchmarks.core.machine import machine, measured, versions
from benchmarks.core.store import Rows
from benchmarks.core.trials import Metrics, Row, Trial


@dataclass(frozen=True)
class Failure:
    """A trial that raised, and so has no row."""

    trial: Trial
    error: str  # in one line
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.trial.name}: failed: {self.error}"


class FailedTrials(RuntimeError):
    """Some trials raised; all others have their rows."""

    def __init__(self, failures: Iterable[Failure]):
        self.failures = list(failures)
        listed = "; ".join(f"{failure.trial.name}: {failure.error}" for failure in self.failures)
        super().__init__(f"{len(self.failures)} trials failed, all others have their rows: {listed}")

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
    defaults: int = 0,
) -> None:
    """Run `function(trial) -> metrics` for every trial without a row, and append the rows as they are finished.

    `fresh_process`: each trial in a new process, so that its peak memory is its own. `n_jobs`: so many trials at a
    time, through joblib. In both cases `function` must be picklable, and set what a process starts with, such as
    torch's number of threads. `defaults`: trials whose row is of older defaults than these are run too. A trial that
    raises does not stop the others: `FailedTrials` is raised after the last. Trials that get a row from another run
    before their turn comes are not run.
    """
    wanted = {trial.key: trial for trial in trials}
    left = [trial for trial in wanted.values() if not rows.done(trial, defaults)]
    failures = []

    def still_without_row(trial: Trial) -> bool:
        rows.read_on()
        return not rows.done(trial, defaults)

    if n_jobs == 1:
        outcomes = _one_by_one(filter(still_without_row, left), function, fresh_process)
    else:
        outcomes = _parallel(left, still_without_row, function, n_jobs)
    with closing(outcomes):
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                failures.append(outcome)
            else:
                rows.append(outcome)
            done = len(failures) + sum(rows.done(trial, defaults) for trial in wanted.values())
            print(f"{done}/{len(wanted)} {outcome}", file=sys.stderr, flush=True)
    if failures:
        raise FailedTrials(failures)


def _one_by_one(trials: Iterable[Trial], function: Metrics, fresh_process: bool) -> Generator[Row | Failure]:
    for trial in trials:
        yield _in_fresh_process(function, trial) if fresh_process else _attempt(function, trial)


def _parallel(
    trials: list[Trial],
    wanted: Callable[[Trial], bool],
    function: Metrics,
    n_jobs: int,
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
        yield from _one_by_one(rest, function, True)


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
