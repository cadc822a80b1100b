"""A studio that is killed at random moments of a lesson over HTTP: its project is as before the lesson or as after."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from crashes import base, examples
from faults import ended, start
from parts import Part

from gptree.cli.studio import studio
from gptree.project import Project

KILLS = 3
LESSON = [{"label": "9", "ids": ["new 0", "new 1", "new 2"]}]


class Visitor:
    """`gptree studio` in a process of its own, as its page asks it."""

    def __init__(self, project: Path) -> None:
        reader, writer = os.pipe()

        def command() -> None:
            os.dup2(writer, 1)
            sys.stdout = os.fdopen(1, "w", buffering=1)
            studio(project, no_browser=True)

        self.process = start(command)
        os.close(writer)
        with os.fdopen(reader) as file:
            address = file.readline().strip()
        self.host, _, query = address.removeprefix("http://").partition("/?")
        connection = http.client.HTTPConnection(self.host, timeout=60)
        connection.request("GET", f"/?{query}")
        self.cookie = connection.getresponse().headers["set-cookie"].partition(";")[0]
        while self.ask("state")["state"] != "ready":
            time.sleep(0.01)

    def ask(self, path: str, body: Any = None) -> Any:
        """The answer; None if the studio dies meanwhile."""
        headers = {"Cookie": self.cookie, "X-Gptree": "1", "Origin": f"http://{self.host}"}
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            content = None if body is None else json.dumps(body)
            headers |= {} if body is None else {"Content-Type": "application/json"}
            connection.request("GET" if body is None else "POST", f"/api/{path}", content, headers)
            return json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException):
            return None

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        assert ended(self.process) == -signal.SIGKILL


def state(folder: Path) -> tuple[int, list[str], str]:
    project = Project.open(folder)
    assert [event.version for event in project.events] == list(range(1, project.version + 1))
    (split,) = {project.examples[name].split for name in LESSON[0]["ids"]}
    return project.version, [str(label) for label in project.snapshot().classes], split


def check_kills(unit: int, folder: Path) -> int:
    """A lesson that goes through, and the same lesson killed; how many kills fell into it."""
    X, _ = examples(0, 1, 2, 9)
    Project.create(folder / "made", model=base()).import_rows(X[-5:], ids=[f"new {i}" for i in range(5)])
    random, before, after = (
        np.random.default_rng(unit),
        (2, ["0", "1", "2"], "pool"),
        (3, ["0", "1", "2", "9"], "taught"),
    )
    seconds, killed = 0.0, 0
    for kill in range(KILLS + 1):
        place = folder / str(kill)
        shutil.copytree(folder / "made", place)
        visitor, told = Visitor(place), []
        lesson = threading.Thread(
            target=lambda v=visitor, t=told: t.append(v.ask("teach", {"version": 2, "lessons": LESSON}))
        )
        began = time.perf_counter()
        lesson.start()
        if kill:
            time.sleep(random.uniform(0, seconds))
        else:
            lesson.join()
            seconds = time.perf_counter() - began
        visitor.kill()
        lesson.join()
        found = state(place)
        assert found == after if told[0] is not None else found in (before, after), f"check_kills({unit}): {found}"
        killed += told[0] is None
        if found == before:
            Project.open(place).teach([(9, LESSON[0]["ids"])])  # goes through
            assert state(place) == after
    return max(killed, 1)


PARTS = (
    Part(
        "lessons",
        "kill -9 of a studio at random moments of a lesson over HTTP; its project opens as before or after",
        20,
        check_kills,
    ),
)
