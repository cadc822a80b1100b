"""The studio's times.

How long does a person wait?

At 100 classes and 1,000 examples that wait, five examples of a new class are taught, saved and answered in
{mean teach cpu} s of processor time; that was {mean teach} s by the clock, at a load of {mean load} on two cores. The
page is served after {mean page cpu} s of processor time, and the model answers after {mean ready cpu} s, both counted
from the command.

Findings
--------
- Taking back costs {mean undo cpu} s of processor time: like a lesson, it answers all examples anew.

Set-up
------
Made-up features (`structured`), 384 of them, 100 classes of 8 rows and a new one; `gptree studio PROJECT` as a process
of its own, with one thread, asked over HTTP as its page asks it: until `/` is answered, until the state is "ready", a
lesson of five examples, and taking it back. Seconds by the clock depend on what else the machine does; its load, the
mean number of processes that want to run, is a column. Processor seconds of the server depend on it little.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil
import torch

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data.structured import class_by_class
from gptree.project import Project

GROUP, NEEDS_DATA, SEEDS = "Speed and size", False, 1

CLASSES, SHOTS, WAITING, DIMENSIONS, LESSON = 100, 8, 1000, 384, 5
STEPS = {"page": "page served", "ready": "model answers", "teach": "lesson of five", "undo": "taken back"}
COLUMNS = {
    **{name: Column(f"{words} (s)", f"metrics.{name}.seconds", digits=2) for name, words in STEPS.items()},
    **{f"{name} cpu": Column(f"{words} (CPU s)", f"metrics.{name}.cpu", digits=2) for name, words in STEPS.items()},
    "load": Column("load", "metrics.load", digits=1),
}


def trials(seeds: int) -> list[Trial]:
    settings = {"classes": CLASSES, "waiting": WAITING}
    return [Trial("studio", "gptree studio", "structured", seed, settings) for seed in range(seeds)]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "project"
        five = _make(project, trial.seed)
        load = os.getloadavg()[0]
        return {**_visit(project, five), "load": load}


def _make(project: Path, seed: int) -> list[str]:
    """A project; ids of five examples of a class that it does not know."""
    each = WAITING // CLASSES
    taught, waiting, y = [], [], []
    for c, points in enumerate(class_by_class(CLASSES + 1, SHOTS + each, DIMENSIONS, seed=seed)):
        waiting.append(points[SHOTS:])
        if c < CLASSES:
            taught.append(points[:SHOTS])
            y += [f"class {c:03}"] * SHOTS
    X = np.concatenate([*taught, *waiting])
    labels = [*y, *[None] * (len(X) - len(y))]
    Project.create(project, X, labels=labels, ids=[str(row) for row in range(len(X))], seed=seed)
    return [str(row) for row in range(len(X) - each, len(X))][:LESSON]


def _visit(project: Path, five: list[str]) -> dict[str, dict[str, float]]:
    """Seconds by the clock and of the processor, for each step of a visit."""
    found: dict[str, dict[str, float]] = {}
    command = [sys.executable, "-c", "from gptree.cli.main import app; app()", "studio", str(project), "--no-browser"]
    began = time.perf_counter()
    one = {**os.environ, "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=one)
    try:
        process = psutil.Process(server.pid)
        assert server.stdout is not None
        address = urlsplit(server.stdout.readline().strip())
        connection = http.client.HTTPConnection(address.netloc)
        connection.request("GET", f"/?{address.query}")
        cookie = _answer(connection)[1].partition(";")[0]
        own = {
            "Cookie": cookie,
            "X-Gptree": "1",
            "Origin": f"http://{address.netloc}",
            "Content-Type": "application/json",
        }

        def asked(path: str, body: Any = None) -> Any:
            connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), own)
            return _answer(connection)[0]

        def note(step: str, since: float, used: float) -> None:
            found[step] = {"seconds": time.perf_counter() - since, "cpu": _used(process) - used}

        asked("/")
        note("page", began, 0.0)
        while json.loads(asked("/api/state"))["state"] != "ready":
            time.sleep(0.02)
        note("ready", began, 0.0)
        while not json.loads(asked("/api/state"))["map"]:  # drawn meanwhile: not to be counted in the lesson
            time.sleep(0.1)
        lessons = [{"label": "new", "ids": five}]
        for step, body in (("teach", {"version": 1, "lessons": lessons}), ("undo", {"version": 2})):
            since, used = time.perf_counter(), _used(process)
            assert "changed" in json.loads(asked(f"/api/{step}", body))
            note(step, since, used)
    finally:
        server.terminate()
        server.wait()
    return found


def _answer(connection: http.client.HTTPConnection) -> tuple[bytes, str]:
    response = connection.getresponse()
    return response.read(), response.getheader("set-cookie") or ""


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def tables(rows: list[Row]) -> list[Table]:
    return [listing("Times", rows, ["method"], list(COLUMNS.values()))]
