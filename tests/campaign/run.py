"""The reliability campaign: trouble of every kind, in numbered units, on as many processes as there are.

    python tests/campaign/run.py                      all parts, going on where it was stopped
    python tests/campaign/run.py growth --unit 1234   one unit again, here, with its traceback
    python tests/campaign/run.py --page               docs/reliability.md from what was done

Every unit is done in a child that is forked from a process that has imported everything, in an empty folder of its own,
and is killed after a time. What was done is a row a unit in `build/campaign/rows.jsonl`; a unit with a row is not done
again, unless `--again` begins anew. The sums that the page shows are kept in `tests/campaign/results.jsonl`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from parts import Part, read_rows
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gptree.provenance import commit

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

MODULES = ("mutations", "crashes", "pairs", "growth", "extremes", "threads", "embeddings")
ROWS = ROOT / "build" / "campaign" / "rows.jsonl"
SUMS = HERE / "results.jsonl"
PAGE = ROOT / "docs" / "reliability.md"


def parts() -> dict[str, Part]:
    """All parts by name."""
    found = [part for module in MODULES for part in importlib.import_module(module).PARTS]
    return {part.name: part for part in found}


# ----------------------------------------------------------------------------------------------------------- one unit


@dataclass(frozen=True)
class Outcome:
    part: str
    unit: int
    tries: int
    seconds: float
    failure: str = ""
    """One line that says what happened; empty if nothing did."""


def do(part: Part, unit: int) -> Outcome:
    """One unit in a child of its own: whatever it breaks is gone with it."""
    context = multiprocessing.get_context("fork")
    begin, (mouth, ear) = time.perf_counter(), context.Pipe(duplex=False)
    folder = Path(tempfile.mkdtemp(prefix=f"campaign-{part.name}-"))
    child = context.Process(target=_child, args=(part, unit, folder, ear))
    child.start()
    ear.close()
    tries, failure = 0, ""
    try:
        if mouth.poll(part.seconds):
            tries, failure = mouth.recv()
        else:
            failure = f"hangs: no answer after {part.seconds:.0f} s"
    except EOFError:
        child.join()
        failure = f"the process died with exit code {child.exitcode}"
    finally:
        _kill(child)
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(part.name, unit, tries, time.perf_counter() - begin, failure)


def _child(part: Part, unit: int, folder: Path, ear: Any) -> None:
    os.setsid()  # what it starts dies with it
    try:
        ear.send((part.check(unit, folder), ""))
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        notes = " ".join(getattr(error, "__notes__", ()))
        ear.send((0, f"{type(error).__name__}: {error} {notes} ({Path(place.filename).name}:{place.lineno})"))


def _kill(child: Any) -> None:
    if child.is_alive():
        child.join(1)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.join()


# -------------------------------------------------------------------------------------------------------- many of them


def waiting(chosen: list[Part], rows: list[dict[str, Any]]) -> list[tuple[Part, int]]:
    """Units not yet done, of all parts in turn, so that a short campaign has tried everything."""
    done = {(row["part"], row["unit"]) for row in rows}
    units = [(unit / part.units, part, unit) for part in chosen for unit in range(part.units)]
    order = sorted(units, key=lambda entry: entry[0])
    return [(part, unit) for _, part, unit in order if (part.name, unit) not in done]


def campaign(chosen: list[Part], jobs: int, seconds: float) -> int:
    """Do what is left until it is done or the time is over; the number of failures among all rows."""
    rows = read_rows(ROWS)
    left = waiting(chosen, rows)
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    failures = [row for row in rows if row["failure"]]
    end, code = time.monotonic() + seconds, commit()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ROWS.open("a") as file, Progress(*columns) as progress:
        file.write("\n" if rows else "")  # after a line that was cut off
        task = progress.add_task("units", total=len(left))
        for outcome in _done(left, jobs, end):
            row = {**vars(outcome), "seconds": round(outcome.seconds, 3), "commit": code}
            file.write(json.dumps(row) + "\n")
            file.flush()
            if outcome.failure:
                failures.append(row)
                progress.console.print(reproduction(row), markup=False)
            progress.update(task, advance=1, description=f"{len(failures)} failures, {outcome.part}")
    return len(failures)


def _done(left: list[tuple[Part, int]], jobs: int, end: float) -> Iterator[Outcome]:
    queue, running = iter(left), set[Future[Outcome]]()
    with ThreadPoolExecutor(jobs) as pool:
        while True:
            while len(running) < jobs and time.monotonic() < end and (entry := next(queue, None)) is not None:
                running.add(pool.submit(do, *entry))
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in finished)


def reproduction(row: dict[str, Any]) -> str:
    return f"python tests/campaign/run.py {row['part']} --unit {row['unit']}  # {row['failure']}"


# ----------------------------------------------------------------------------------------------------------- the page


def summed() -> list[dict[str, Any]]:
    """A row a part: what was done in all."""
    rows = read_rows(ROWS)
    sums = []
    for part in parts().values():
        mine = [row for row in rows if row["part"] == part.name]
        sums.append(
            {
                "part": part.name,
                "says": part.says,
                "units": len(mine),
                "of": part.units,
                "tries": sum(row["tries"] for row in mine),
                "failures": sum(bool(row["failure"]) for row in mine),
                "hours": round(sum(row["seconds"] for row in mine) / 3600, 2),
                "commits": sorted({row["commit"] for row in mine}),
            }
        )
    return sums


def page(sums: list[dict[str, Any]]) -> str:
    """The table of the page."""
    lines = ["| what is tried | tries | failures | processor hours |", "| --- | ---: | ---: | ---: |"]
    for row in sums:
        done = "" if row["units"] >= row["of"] else f" ({row['units']:,} of {row['of']:,} units)"
        lines.append(f"| {row['says']}{done} | {row['tries']:,} | {row['failures']:,} | {row['hours']:.2f} |")
    return "\n".join(lines)


BEGIN, END = "<!-- campaign: made by `make campaign` -->", "<!-- end of campaign -->"


def write_page(sums: list[dict[str, Any]]) -> None:
    """Put the table between its marks."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n{page(sums)}\n{END}{after}")
    SUMS.write_text("".join(json.dumps(row) + "\n" for row in sums))


def main() -> int:
    torch.set_num_threads(1)
    every = parts()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *every], help="all of them if none is named")
    parser.add_argument("--unit", type=int, help="do this unit of one part here and now")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--hours", type=float, default=6.0, help="stop beginning units after so long")
    parser.add_argument("--again", action="store_true", help="forget what was done")
    parser.add_argument("--page", action="store_true", help="write docs/reliability.md from what was done")
    given = parser.parse_args()
    chosen = [every[name] for name in given.parts] or list(every.values())
    if given.unit is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{chosen[0].check(given.unit, Path(folder))} tries, no failure")
        return 0
    if given.page:
        write_page(summed())
        return 0
    if given.again:
        ROWS.unlink(missing_ok=True)
    failures = campaign(chosen, given.jobs, given.hours * 3600)
    sums = summed()
    write_page(sums)
    print(page(sums))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
