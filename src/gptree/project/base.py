"""Versions of a project: one writer, many readers, answers that are computed once."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gptree.estimators import load_model
from gptree.project import folder as files
from gptree.project.answers import Answers, Changes, changes
from gptree.project.examples import to_lines
from gptree.project.folder import Event, journal_digest, read_version, with_mark
from gptree.project.intake import now
from gptree.project.quality import Quality
from gptree.project.state import State, load_state
from gptree.storage import locked

_REMEMBERED = 8  # versions whose answers are held in memory


class StaleVersion(ValueError):
    """A change was asked for at a version that is no longer the newest; nothing was done.

    Attributes
    ----------
    version : int
        The newest version.
    changes : Changes or None
        What changed since; None where the answers of then are not known any more.
    """

    def __init__(self, asked: int, version: int, since: Changes | None) -> None:
        more = "" if since is None else f" ({since})"
        super().__init__(
            f"the project is at version {version} now, not {asked}{more}: look at what changed, and ask again. Nothing "
            "was done."
        )
        self.version, self.changes = version, since


class Versions:
    """The state of a project, published by one assignment, and how it changes."""

    def __init__(self, folder: Path, state: State) -> None:
        self.folder = folder
        self._state = state
        self._writer = threading.RLock()
        self._known: dict[int, tuple[Answers, Quality | None]] = {}
        self.told: Callable[[int, int], None] | None = None
        """Is called with (done, total) while answers are computed."""

    @property
    def version(self) -> int:
        """Grows by one with every change."""
        return self._state.record.version

    def refresh(self) -> int:
        """Read what another process has changed.

        Returns
        -------
        int
            The version.
        """
        with self._changing(None):
            return self.version

    # ---------------------------------------------------------------------------------------------------- one change

    @contextmanager
    def _changing(self, version: int | None) -> Iterator[State]:
        """The newest state, to be changed by this thread alone."""
        with self._writer, locked(self.folder):
            files.recover(self.folder)
            if files.read_record(self.folder).version != self.version:
                self._known.clear()
                self._state = load_state(self.folder)
            self._adopt()
            if version is not None and version != self.version:
                since = None
                with suppress(ValueError, OSError):
                    since = changes(self._answers_at(version)[0], *self._answers(self._state))
                raise StaleVersion(version, self.version, since)
            yield self._state

    def _adopt(self) -> None:
        """Take in a change of the model that was made outside the project, such as by gptree add."""
        state, digest = self._state, files.stored_digest(self.folder)
        if digest is None or digest == state.record.model:
            return
        model, number = load_model(self.folder / files.MODEL), self.version + 1
        journal = model.journal_
        kept = tuple(mark for mark in state.record.line if journal_digest(journal[: mark.entries]) == mark.digest)
        record = replace(state.record, version=number, model=digest, line=kept)
        if not kept or kept[-1].entries < len(journal):
            record = with_mark(record, number, journal)
        self._commit(replace(state, record=record, model=model), "changed outside the project", saved=True)

    def _commit(
        self,
        after: State,
        what: str,
        note: str = "",
        author: str = "",
        labels: Sequence[Any] = (),
        ids: Sequence[str] = (),
        *,
        result: str = "",
        saved: bool = False,
        forgotten: Mapping[str, Any] | None = None,
    ) -> Changes:
        """Save a state and publish it; what changed. `saved`: the model is in its place already."""
        before, number = self._state, after.record.version
        answers, quality = after.answers(number, self.told)
        found = changes(self._answers(before)[0], answers, quality)
        was = {name: [e.split, e.label] for name, e in before.examples.items() if after.examples.get(name, e) != e}
        version = {"entries": len(after.journal), "digest": journal_digest(after.journal), "before": was}
        accuracy = None if quality is None or not quality.rows else quality.accuracy
        event = Event(
            *(number, before.record.version, now(), author, what, note, tuple(labels), tuple(ids)),
            result=result or str(found),
            accuracy=accuracy,
        )
        same = not was and len(after.examples) == len(before.examples)
        lines = None if same else to_lines(after.examples.values())
        model = None if saved or after.model is before.model else after.model
        files.commit(self.folder, after.record, event, lines, model, version, forgotten)
        if forgotten is not None:
            self._known.clear()  # answers of a model that had seen them
        self._known[number] = answers, quality
        self._state = after
        self._keep(answers)
        return found

    # ------------------------------------------------------------------------------------------------------- answers

    def _answers(self, state: State) -> tuple[Answers, Quality | None]:
        """Answers of a state, computed once a version."""
        number = state.record.version
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = state.answers(number, self.told)
            self._keep(found[0])
        return found

    def _answers_at(self, version: int) -> tuple[Answers, Quality | None]:
        """Answers of any version: kept, or computed by going back."""
        if version in self._known:
            return self._known[version]
        path = self._answers_file(version)
        if path.is_file():
            return Answers.load(path, version), None
        state, then = self._state, read_version(self.folder, version)
        if journal_digest(state.journal[: then["entries"]]) != then["digest"] or not then["entries"]:
            raise ValueError(f"version {version} was taken back, and its answers were not kept.")
        model = copy.copy(state.model)
        while len(model.journal_) > then["entries"]:
            model.undo()
        return replace(state, model=model).answers(version)

    def _keep(self, answers: Answers) -> None:
        """Write answers down for later comparisons, which can do without."""
        known = list(self._known)  # others may add to it meanwhile
        for old in sorted(known)[:-_REMEMBERED]:
            self._known.pop(old, None)
        with suppress(OSError):
            answers.save(self._answers_file(answers.version or 0))

    def _answers_file(self, version: int) -> Path:
        return files.version_file(self.folder, version).with_suffix(".npz")
