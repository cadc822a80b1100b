"""Which tests execute which lines, and what becomes of chosen tests when the code is another.

Every test file is run once in a child with a tracer: seconds and executed lines of its tests are kept in
`build/mutants/lines` until the file, or a source file that it executes, changes. All children are forked from a process
that has imported what the package needs, but not the package.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import importlib.abc
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from hypothesis import settings

#: Processor seconds that a test may take with a mutant: so many times what it took, and so many more.
TIMES, MORE = 10.0, 20.0
#: And so many times as long by the clock, since a process that waits for ever takes none.
CLOCK = 5.0
#: Seconds by the clock after which a test without a mutant counts as failed.
RECORDED = 240
#: The share of tests, and of files, that may fail without a mutant, as some do beside other versions of other packages.
MOST_BROKEN = 0.05
FINE = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
#: What killed a mutant if no test did.
DEAD = "a hang or the end of the process"


@dataclass(frozen=True)
class Project:
    """Where things are; the package is `source`."""

    root: Path
    source: Path
    packages: tuple[str, ...]
    """Whose lines are traced."""
    folders: tuple[str, ...]
    """Of tests, below `tests`."""

    @property
    def records(self) -> Path:
        return self.root / "build" / "mutants" / "lines"

    def module(self, file: str) -> str:
        parts = Path(file).with_suffix("").parts
        return ".".join((self.source.name, *(parts[:-1] if parts[-1] == "__init__" else parts)))

    def test_files(self) -> list[str]:
        paths = [path for folder in self.folders for path in sorted((self.root / "tests" / folder).glob("test_*.py"))]
        return [str(path.relative_to(self.root)) for path in paths]


@dataclass(frozen=True)
class Case:
    """A test that passes."""

    name: str
    seconds: float
    lines: dict[str, set[int]] = field(repr=False)
    """By source file."""

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


# ----------------------------------------------------------------------------------------------------------- children


def in_child(work: Callable[[], Any]) -> Any:
    """What work returns in a forked process; None if the process dies."""
    context = multiprocessing.get_context("fork")
    mouth, ear = context.Pipe(duplex=False)

    def child() -> None:
        os.setsid()  # what it starts dies with it
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
        ear.send(work())

    process = context.Process(target=child)
    process.start()
    ear.close()
    try:
        return mouth.recv()
    except EOFError:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        mouth.close()


def prepare(project: Project) -> None:
    """Import here what the package imports, without the package."""
    sys.path[:0] = [str(project.root / "src"), str(project.root)]

    def modules() -> list[str]:
        for path in sorted(project.source.rglob("*.py")):
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(project.module(str(path.relative_to(project.source))))
        return [name for name in sys.modules if name.partition(".")[0] != project.source.name]

    for name in in_child(modules) or ():
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    gc.freeze()


class Replaced(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from other code."""

    def __init__(self, project: Project, file: str, code: CodeType) -> None:
        self.name, self.path, self.code = project.module(file), project.source / file, code

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        folders = [str(self.path.parent)] if self.path.stem == "__init__" else None
        return importlib.util.spec_from_file_location(
            fullname, self.path, loader=self, submodule_search_locations=folders
        )

    def exec_module(self, module: Any) -> None:
        exec(self.code, vars(module))


def _pytest(project: Project, file: str, plugin: object, *options: str) -> int:
    settings.register_profile("mutants", derandomize=True, database=None, deadline=None)
    settings.load_profile("mutants")
    os.chdir(project.root)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    without = [f"-pno:{name}" for name in ("cacheprovider", "unraisableexception", "faulthandler")]
    return int(pytest.main([*options, *without, "-q", f"--rootdir={project.root}", file], plugins=[plugin]))


# ---------------------------------------------------------------------------------------------------- which lines


def _give_up(*_: Any) -> None:
    raise TimeoutError(f"no end after {RECORDED} s")


class Tracer:
    """Plugin: seconds and executed lines of every test. What shared fixtures execute belongs to all tests of a file."""

    def __init__(self, project: Project) -> None:
        files = [path for name in project.packages for path in (project.source / name).rglob("*.py")]
        self.names = {str(path): str(path.relative_to(project.source)) for path in files}
        self.seconds, self.failed, self.skipped = dict[str, float](), set[str](), set[str]()
        self.lines = defaultdict[str, set[tuple[str, int]]](set)
        self.shared = set[tuple[str, int]]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            (self.skipped if report.skipped else self.failed).add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        if fixturedef.scope == "function":
            return (yield)
        with self.traced(self.shared):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        begin = time.process_time()
        signal.signal(signal.SIGALRM, _give_up)
        signal.alarm(RECORDED)
        with self.traced(self.lines[item.nodeid]):
            outcome = yield
        signal.alarm(0)
        self.seconds[item.nodeid] = time.process_time() - begin
        return outcome

    @contextlib.contextmanager
    def traced(self, lines: set[tuple[str, int]]) -> Any:
        def line(frame: Any, event: str, value: Any) -> Any:
            lines.add((frame.f_code.co_filename, frame.f_lineno))
            return line

        def call(frame: Any, event: str, value: Any) -> Any:
            return line if frame.f_code.co_filename in self.names else None

        before = sys.gettrace()
        sys.settrace(call)
        threading.settrace(call)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(before)  # pyright: ignore[reportArgumentType]

    def record(self) -> dict[str, Any]:
        """Tests that passed, as JSON."""
        tests = {}
        for name in sorted(set(self.seconds) - self.failed - self.skipped):
            lines = defaultdict[str, list[int]](list)
            for path, number in sorted(self.lines[name] | self.shared):
                lines[self.names[path]].append(number)
            tests[name] = {"seconds": round(self.seconds[name], 3), "lines": lines}
        return tests


def cases(project: Project, jobs: int = 1) -> list[Case]:
    """All tests that pass, from what is kept and what is run anew. Those that fail are named and left out."""
    with ThreadPoolExecutor(jobs) as pool:
        records = list(pool.map(lambda file: _kept(project, file), project.test_files()))
    tests = {name: test for record in records for name, test in record["tests"].items()}
    failed = [name for record in records for name in record["failed"]]
    if failed:
        print(f"left out, since they fail without any mutant: {', '.join(failed)}", flush=True)
    for broken, every in ((failed, tests), ([name for name in failed if "::" not in name], records)):
        if len(broken) > MOST_BROKEN * len(every):
            raise SystemExit(f"{len(broken)} of {len(every)} fail without any mutant: mend them first.")
    return [
        Case(name, test["seconds"], {path: set(lines) for path, lines in test["lines"].items()})
        for name, test in tests.items()
    ]


def _kept(project: Project, file: str) -> dict[str, Any]:
    """The record of a test file; one whose tests end the process has failed as a whole."""
    kept = project.records / f"{file.replace('/', '.')}.json"
    record = json.loads(kept.read_text()) if kept.exists() else {"hashes": {}}
    if "failed" in record and record["hashes"] == _hashes(project, record["hashes"]):
        return record
    record = in_child(lambda: _recorded(project, file))
    if record is None:
        return {"tests": {}, "failed": [file]}
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(record))
    print(f"{file}: {len(record['tests'])} tests", flush=True)
    return record


def _recorded(project: Project, file: str) -> dict[str, Any]:
    tracer = Tracer(project)
    code = _pytest(project, file, tracer)
    tests, failed = tracer.record(), sorted(tracer.failed)
    if code not in FINE and not failed:
        failed = [file]  # which cannot be imported
    used = {f"{project.source.relative_to(project.root)}/{path}" for test in tests.values() for path in test["lines"]}
    return {"hashes": _hashes(project, {file, *used}), "tests": tests, "failed": failed}


def _hashes(project: Project, files: Any) -> dict[str, str]:
    paths = {file: project.root / file for file in files}
    return {file: hashlib.sha256(p.read_bytes()).hexdigest() if p.exists() else "" for file, p in paths.items()}


# --------------------------------------------------------------------------------------------- chosen tests of a mutant


def _limit(seconds: float) -> None:
    """End this process if it goes on for so long."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, CLOCK * seconds)


class Chosen:
    """Plugin: only these tests, in this order, each within its time."""

    def __init__(self, tests: Sequence[Case]) -> None:
        self.seconds = {test.name: test.seconds for test in tests}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        rank = {name: number for number, name in enumerate(self.seconds)}
        items[:] = sorted((item for item in items if item.nodeid in rank), key=lambda item: rank[item.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        _limit(TIMES * self.seconds[nodeid] + MORE)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def first_failure(project: Project, tests: Sequence[Case], replaced: tuple[str, CodeType] | None) -> str:
    """The first test that fails, its file if that cannot be imported, `DEAD`, or nothing."""

    def work() -> str:
        if replaced is not None:
            sys.meta_path.insert(0, Replaced(project, *replaced))
        for file in dict.fromkeys(test.file for test in tests):
            plugin = Chosen([test for test in tests if test.file == file])
            _limit(MORE)  # for the imports
            if _pytest(project, file, plugin, "-x") not in FINE:
                return plugin.failed or file
        return ""

    outcome = in_child(work)
    return DEAD if outcome is None else outcome
