"""What lies on the table: a project, one thread that changes it, and a view of it that many may read.

States: start (nothing is open), loading → ready ⇄ working, failed. A change is computed on a copy and saved by
`gptree.project`; then the new view is published by one assignment. Whoever reads sees the view before or after.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gptree.studio.events import Events

if TYPE_CHECKING:
    from gptree.project import Changes, Project, Snapshot
    from gptree.studio.views import View

Result = TypeVar("Result")
Tell = Callable[[str, int, int], None]

_BETWEEN = 0.1  # seconds between two signs of progress
_NOVELTY = "finding what is none of these"
_LOOK = 2.0  # seconds between two looks at whether another process has changed the project


@dataclass(frozen=True)
class Status:
    """What the studio is doing; published by one assignment."""

    state: str = "start"
    message: str = ""
    job: tuple[str, int, int] | None = None


class NotReadyError(Exception):
    """There is nothing to answer from yet."""


class Desk:
    """A project and its readers.

    Parameters
    ----------
    events : Events
    author : str
        Who teaches.
    read_only : bool
    """

    def __init__(self, events: Events, author: str = "", read_only: bool = False) -> None:
        self.events, self.author, self.read_only = events, author, read_only
        self.status = Status()
        self.project: Project | None = None
        self.view: View | None = None
        self.seconds: dict[int, float] = {}  # that each version took
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="studio-writer")
        self._painter = ThreadPoolExecutor(1, thread_name_prefix="studio-painter")
        self._told = 0.0
        self._stop = threading.Event()

    # ------------------------------------------------------------------------------------------------------- opening

    def open(self, opened: Callable[[Tell], Project]) -> None:
        """Load a project in the writer's thread; the state says how it goes."""
        self.status = Status("loading")
        self.events.publish("changed", version=0)
        self._writer.submit(self._open, opened)

    def _open(self, opened: Callable[[Tell], Project]) -> None:
        try:
            project = opened(self._tell)
            project.told = lambda done, of: self._tell("answering", done, of)
            self._tell("answering", 0, 0)
            self.project = project
            self.view = self._view(project, project.first_look())
            self.status = Status("working", job=(_NOVELTY, 0, 0))
            self.events.publish("changed", version=project.version)
            self._publish(project)
            self.status = Status("ready")
            self.events.publish("progress", what="", done=0, of=0)
        except Exception as error:  # said on the page, whatever it is
            self.status = Status("failed", _sentence(error))
            self.events.publish("failed", message=self.status.message)
            return
        self.events.publish("changed", version=project.version)
        self._painter.submit(self._paint)
        threading.Thread(target=self._watch, name="studio-watch", daemon=True).start()

    def close(self) -> None:
        """End the threads once they have finished what they are doing."""
        self._stop.set()
        self.events.close()
        self._painter.shutdown(wait=False, cancel_futures=True)
        self._writer.shutdown(wait=True, cancel_futures=True)

    # ------------------------------------------------------------------------------------------------------ readers

    def reading(self) -> View:
        """The present view."""
        view = self.view
        if view is None:
            raise NotReadyError(self.status.message or "The model is being loaded; try again in a moment.")
        return view

    # ------------------------------------------------------------------------------------------------------- writer

    async def change(self, what: str, work: Callable[[Project], Changes]) -> tuple[Changes, View, float]:
        """Change the project in the writer's thread: what changed, the view after it, and the seconds it took."""
        return await asyncio.wrap_future(self._writer.submit(self._change, what, work))

    def _change(self, what: str, work: Callable[[Project], Changes]) -> tuple[Changes, View, float]:
        project = self._project()
        self.status = Status("working", job=(what, 0, 0))
        self.events.publish("progress", what=what, done=0, of=0)
        began = time.perf_counter()
        try:
            changes = work(project)
        finally:
            if self.view is None or project.version != self.view.version:
                view = self._publish(project)
                self.seconds[view.version] = time.perf_counter() - began
                self.events.publish("changed", version=view.version)
            self.status = Status("ready")
            self.events.publish("progress", what="", done=0, of=0)
        return changes, self.reading(), time.perf_counter() - began

    async def ask(self, work: Callable[[Project], Result]) -> Result:
        """Something of the project that only the writer's thread may compute, such as a preview."""
        return await asyncio.wrap_future(self._writer.submit(lambda: work(self._project())))

    def _project(self) -> Project:
        if self.project is None:
            raise NotReadyError(self.status.message or "The model is being loaded; try again in a moment.")
        return self.project

    def _view(self, project: Project, snapshot: Snapshot) -> View:
        from gptree.studio.views import View

        return View(snapshot, project.examples, project.model, project.events, project.standing)

    def _publish(self, project: Project) -> View:
        before, view = self.view, self._view(project, project.snapshot())
        if before is not None and before.places is not None:
            view = replace(view, places=self._placed(project, view, before))
        self.view = view
        if view.places is None and before is not None:
            self._painter.submit(self._paint)
        return view

    # --------------------------------------------------------------------------------------------------------- map

    def _paint(self) -> None:
        """Draw the map; it is kept beside the project, and drawn once."""
        from gptree.studio.layout import load_or_draw

        view, project = self.view, self.project
        if view is None or project is None or view.places is not None:
            return
        try:
            if len(view.examples) > 1500:
                self._tell("drawing the map", 0, 0)
            ids = [each.id for each in view.examples]
            places = load_or_draw(project.folder, ids, project.vectors(ids), keep=not self.read_only)
        except Exception as error:
            self.events.publish("failed", message=f"The map could not be drawn: {_sentence(error)}")
            return
        now = self.view
        if now is not None and len(now.examples) >= len(places):
            self.view = replace(now, places=places if len(now.examples) == len(places) else None)
            if self.view.places is None:
                self._painter.submit(self._paint)
        self.events.publish("progress", what="", done=0, of=0)
        self.events.publish("changed", version=view.version)

    def _placed(self, project: Project, view: View, before: View) -> Any:
        """The map with places for what has come, without what was forgotten: nothing else moves."""
        from gptree.studio.layout import extended, save

        assert before.places is not None
        ids = [each.id for each in view.examples]
        stay = [row for row, each in enumerate(before.examples) if each.id in view.by_id]
        if [before.examples[row].id for row in stay] != ids[: len(stay)]:
            return None
        if len(stay) == len(before.examples) == len(ids):
            return before.places
        places = before.places[stay]
        if len(stay) < len(before.examples) and not self.read_only:
            save(project.folder, ids[: len(stay)], places)
        return extended(project.folder, ids, project.vectors(ids), places, keep=not self.read_only)

    # --------------------------------------------------------------------------------------------------- other writers

    def _watch(self) -> None:
        """Notice what another process does to the project, such as `gptree add`."""
        seen = self._stamp()
        while not self._stop.wait(_LOOK):
            stamp = self._stamp()
            if stamp != seen and self.status.state == "ready":
                seen = stamp
                self._writer.submit(self._refresh)

    def _refresh(self) -> None:
        project = self.project
        if project is None:
            return
        try:
            project.refresh()
        except Exception as error:
            self.events.publish("failed", message=_sentence(error))
            return
        if self.view is not None and project.version != self.view.version:
            self._publish(project)
            self.events.publish("changed", version=project.version)

    def _stamp(self) -> tuple[int, ...]:
        assert self.project is not None
        stamps = []
        for path in (self.project.folder / "project.json", self.project.folder / "model" / "model.json"):
            try:
                stamps.append(path.stat().st_mtime_ns)
            except OSError:
                stamps.append(0)
        return tuple(stamps)

    def _tell(self, what: str, done: int, of: int) -> None:
        """Progress, not more often than people see."""
        now = time.monotonic()
        if self.status.state == "loading":
            self.status = replace(self.status, job=(what, done, of))
        if now - self._told > _BETWEEN or done == of:
            self._told = now
            if self.status.state == "working":
                self.status = replace(self.status, job=(what, done, of))
            self.events.publish("progress", what=what, done=done, of=of)


def _sentence(error: Exception) -> str:
    if isinstance(error, ValueError | OSError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"


def label_of(text: Any, view: View) -> Any:
    """The label that a text of the page stands for: that of a class, or a new one of the kind that the classes have."""
    text = str(text).strip()
    if not text or len(text) > 200:
        raise ValueError("A class has a name of 1 to 200 characters.")
    for label in view.number:
        if str(label) == text:
            return label
    if view.number and all(isinstance(label, int) for label in view.number):
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"The classes of this model are whole numbers, so {text!r} cannot be one.") from None
    return text


def below(root: Path, path: str) -> Path:
    """A path below the root; a ValueError for any other, whatever it looks like."""
    wanted = (root / path).resolve()
    if not wanted.is_relative_to(root.resolve()):
        raise ValueError(
            f"Only what lies in {root} can be opened from the page; name another folder on the command line."
        )
    return wanted
