"""The reliability campaign: trouble of every kind, in numbered units, on as many processes as there are.

    python tests/campaign/run.py                      all parts, going on where it was stopped
    python tests/campaign/run.py growth --unit 1234   one unit again, here, with its traceback
    python tests/campaign/run.py --page               docs/reliability.md from what was done

Every unit is done in a child that is forked from a process that has imported everything, in an empty folder of its own,
and is killed after a time. What was done is a row a unit in `build/campaign/rows.jsonl`; a unit that passed is not done
again, unless `--again` begins anew, one that failed is. The sums that the page shows are kept in
`tests/campaign/results.jsonl` with the numbers of their units, so that another machine goes on with others:
`--rows FILE` takes in the rows that it wrote.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
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

MODULES = ("mutations", "crashes", "pairs", "growth", "extremes", "threads", "embeddings", "lessons")
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


def waiting(chosen: list[Part]) -> list[tuple[Part, int]]:
    """Units still to do, of all parts in turn, so that a short campaign has tried everything."""
    units = []
    for row in summed():
        part = next((part for part in chosen if part.name == row["part"]), None)
        if part is not None:
            new = (unit for unit in itertools.count() if not _among(unit, row["done"]))
            units += [(unit / part.units, part, unit) for unit in itertools.islice(new, part.units - row["units"])]
    return [(part, unit) for _, part, unit in sorted(units, key=lambda entry: entry[0])]


def campaign(chosen: list[Part], jobs: int, seconds: float) -> list[dict[str, Any]]:
    """Do what is left until it is done or the time is over; the sums."""
    left = waiting(chosen)
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    failures, end, code = 0, time.monotonic() + seconds, commit()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ROWS.open("a") as file, Progress(*columns) as progress:
        file.write("\n" if file.tell() else "")  # after a line that was cut off
        task = progress.add_task("units", total=len(left))
        for outcome in _done(left, jobs, end):
            row = {**vars(outcome), "seconds": round(outcome.seconds, 3), "commit": code}
            file.write(json.dumps(row) + "\n")
            file.flush()
            if outcome.failure:
                failures += 1
                progress.console.print(reproduction(row), markup=False)
            progress.update(task, advance=1, description=f"{failures} failures, {outcome.part}")
    return summed()


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


def take_in(files: list[Path]) -> None:
    """Add rows that were written on other machines to those here."""
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    with ROWS.open("a") as file:
        for row in (row for path in files for row in read_rows(path)):
            file.write("\n" + json.dumps(row))


def reproduction(row: dict[str, Any]) -> str:
    return f"python tests/campaign/run.py {row['part']} --unit {row['unit']}  # {row['failure']}"


# ----------------------------------------------------------------------------------------------------------- the page


def summed() -> list[dict[str, Any]]:
    """A row a part: what was done in all, kept sums and rows together; of a unit that was done again the last row."""
    kept = {row["part"]: row for row in read_rows(SUMS)}
    rows = {(row["part"], row["unit"]): row for row in read_rows(ROWS)}
    sums = []
    for part in parts().values():
        known = kept.get(part.name, NOTHING)
        new = [row for (name, unit), row in rows.items() if name == part.name and not _among(unit, known["done"])]
        passed = [row for row in new if not row["failure"]]
        sums.append(
            {
                "part": part.name,
                "says": part.says,
                "units": known["units"] + len(passed),
                "of": part.units,
                "tries": known["tries"] + sum(row["tries"] for row in passed),
                "failures": len(new) - len(passed),
                "hours": round(known["hours"] + sum(row["seconds"] for row in passed) / 3600, 4),
                "commits": sorted({*known["commits"], *(row["commit"] for row in passed)}),
                "done": _ranges(known["done"], {row["unit"] for row in passed}),
            }
        )
    return sums


NOTHING: dict[str, Any] = {"units": 0, "tries": 0, "hours": 0.0, "commits": [], "done": []}


def _among(unit: int, ranges: list[list[int]]) -> bool:
    return any(first <= unit <= last for first, last in ranges)


def _ranges(ranges: list[list[int]], units: set[int]) -> list[list[int]]:
    """First and last numbers of what is done without a gap."""
    joined: list[list[int]] = []
    for first, last in sorted([*ranges, *([unit, unit] for unit in units)]):
        if joined and first == joined[-1][1] + 1:
            joined[-1][1] = last
        else:
            joined.append([first, last])
    return joined


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
    parser.add_argument("--rows", type=Path, nargs="+", default=[], help="rows that were written elsewhere, to take in")
    parser.add_argument("--page", action="store_true", help="write docs/reliability.md from what was done")
    given = parser.parse_args()
    chosen = [every[name] for name in given.parts] or list(every.values())
    if given.unit is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{chosen[0].check(given.unit, Path(folder))} tries, no failure")
        return 0
    if given.again:
        ROWS.unlink(missing_ok=True)
        SUMS.unlink(missing_ok=True)
    take_in(given.rows)
    sums = summed() if given.page else campaign(chosen, given.jobs, given.hours * 3600)
    write_page(sums)
    print(page(sums))
    return 1 if any(row["failures"] for row in sums) else 0


if __name__ == "__main__":
    sys.exit(main())
