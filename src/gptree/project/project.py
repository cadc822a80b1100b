"""A project: examples by id, their vectors, a model, and everything that happened to it."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gptree.embed import Encoder, Item, Store
from gptree.embed.store import content_key
from gptree.estimators import load_model
from gptree.incremental import Growth
from gptree.project import folder as files
from gptree.project.answers import Changes, changes
from gptree.project.examples import Split, to_lines
from gptree.project.folder import Event, Record, journal_digest, read_version
from gptree.project.forgetting import forgotten
from gptree.project.intake import Given, Imported, chosen_encoder, first_state, now, taken_in
from gptree.project.lessons import Lesson, as_lessons, edited, gone_back, taught
from gptree.project.reading import Reading
from gptree.project.rows import Listed, Progress, free_name, plain
from gptree.project.state import load_state
from gptree.storage import StorageError, locked, write_atomically
from gptree.storage.locks import LOCK


class Project(Reading):
    """See `gptree.project`. Made by `Project.create` and `Project.open`.

    Several threads may use one: changes go one after the other, and whoever reads sees the version before or after.
    Several processes may open one folder: each change takes the folder's lock, and what others did is read first.
    """

    # ------------------------------------------------------------------------------------------------ making, opening

    @classmethod
    def create(
        cls,
        folder: str | Path,
        data: Any = None,
        *,
        encoder: str | Encoder | None = None,
        labels: Any = None,
        features: str | None = None,
        ids: Any = None,
        test: Any = None,
        hold_out: float = 0.0,
        model: Any = None,
        name: str | None = None,
        author: str = "",
        weights: str | Path | None = None,
        download: bool = False,
        reject: float = 0.05,
        seed: int = 0,
        progress: Progress = False,
    ) -> Project:
        """A new project in a new or empty folder.

        Rows of `data` that have a label are taught: the model is fitted to them. The others are the pool.

        Parameters
        ----------
        folder : path
        data : path, Collection, array (n, d), list of texts or None
            A folder of pictures, a table of texts or of paths of pictures, a file of vectors, or what these hold.
        encoder : str or Encoder, optional
            Of pictures or texts; see `gptree.embed.encoder`.
        labels, ids : str or sequence, optional
            Names of the columns or arrays in a file; values for an array or a list.
        features : str, optional
            The column or array of texts, paths or vectors.
        test : path or Collection, optional
            Rows that are never taught; laid out as `data`.
        hold_out : float
            The share of every class that is kept for testing, chosen by content; 0 is none.
        model : path or estimator, optional
            A fitted tree or forest to begin with, in place of one that is fitted now. Labelled rows are then taught
            only where the model names their ids.
        name : str, optional
            That of the folder if not given.
        author : str
        weights, download
            See `gptree.embed.encoder`.
        reject : float
            The share of known rows that may be called "none of these".
        seed : int
            Of all random choices of the model.
        progress : bool or callable
            Show a bar, or call it with (done, total).

        Returns
        -------
        Project

        Raises
        ------
        ValueError
            If the folder holds something, or the data cannot be read. Nothing is left in the folder then.
        """
        folder = Path(folder).expanduser()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder} is not empty: make a project in a new folder.")
        if not 0.0 <= hold_out < 1.0 or not 0.0 < reject < 1.0:
            raise ValueError("hold_out is a share in [0, 1), and reject one in (0, 1).")
        estimator = load_model(model) if isinstance(model, str | Path) else model
        if estimator is not None and not isinstance(getattr(estimator, "growth", 0), Growth | None):
            raise ValueError("a project takes a fitted tree or forest: a network's vectors are not kept apart from it.")
        if estimator is not None:
            estimator = copy.copy(estimator)
            vars(estimator).pop("feature_names_in_", None)  # examples are vectors, whose columns have no names
        known = None if estimator is None else estimator.encoder_

        def encoder_for(kind: str) -> Encoder:
            return chosen_encoder(encoder, known, estimator is not None, kind, weights, download)

        with locked(folder):
            try:
                store = Store(folder / files.STORE)
                rows, tests = (
                    None if each.data is None else each.rows(encoder_for, store, progress)
                    for each in (Given(data, features, labels, ids), Given(test, features, _name(labels), _name(ids)))
                )
                width = None if estimator is None else estimator.n_features_in_
                kind = "vector" if known is None else str(known.get("kind"))
                described = None if known is None else dict(known)
                record = Record(name or folder.name, kind, described, width, reject, seed, 0, None)
                state, found = first_state(folder, record, rows, tests, estimator, hold_out, author)
                event = Event(1, 0, now(), author, "created", result=str(found))
                version = {"entries": len(state.journal), "digest": journal_digest(state.journal), "before": {}}
                lines = to_lines(state.examples.values())
                files.commit(folder, state.record, event, lines, state.model, version)
            except BaseException:
                for path in folder.iterdir():
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    elif path.name != LOCK:
                        path.unlink(missing_ok=True)
                raise
        return cls(folder, state)

    @classmethod
    def open(cls, folder: str | Path) -> Project:
        """The project in a folder. A change that was interrupted is finished or dropped.

        Parameters
        ----------
        folder : path

        Returns
        -------
        Project

        Raises
        ------
        StorageError
            If there is none, or it is damaged.
        """
        folder = Path(folder).expanduser()
        if not files.is_project(folder) and not (folder / files.VERSIONS).is_dir():
            raise StorageError(f"{folder} holds no project: there is no {files.PROJECT} in it.")
        with locked(folder):
            files.recover(folder)
            project = cls(folder, load_state(folder))
            project._adopt()
        return project

    # ------------------------------------------------------------------------------------------------------- lessons

    def preview(self, lessons: Iterable[Lesson | tuple[Any, Sequence[str]]]) -> Changes:
        """What a lesson would change; nothing is saved.

        Parameters
        ----------
        lessons : labels with ids of examples
            See `teach`.

        Returns
        -------
        Changes
        """
        state = self._state
        after = taught(state, as_lessons(lessons), "", "")
        now, quality = after.answers(None, self.told)
        return changes(self._answers(state)[0], now, quality)

    def teach(
        self,
        lessons: Iterable[Lesson | tuple[Any, Sequence[str]]],
        note: str = "",
        author: str = "",
        *,
        version: int | None = None,
    ) -> Changes:
        """Teach the model examples of new classes, and more of known ones, in one version.

        Parameters
        ----------
        lessons : labels with ids of examples
            Of the pool. What was taught already, and test rows, are refused.
        note, author : str
            For the journal.
        version : int, optional
            The version that this was decided at; a newer one is a `StaleVersion`.

        Returns
        -------
        Changes
        """
        given = as_lessons(lessons)
        with self._changing(version) as state:
            after = taught(state, given, note, author)
            labels, ids = [each.label for each in given], [name for each in given for name in each.ids]
            return self._commit(after, "taught", note, author, labels, ids)

    def rename(self, old: Any, new: Any, note: str = "", author: str = "", *, version: int | None = None) -> Changes:
        """Give a class another name; labels of examples follow."""
        said = {"note": note, "author": author}
        relabel = {plain(old): plain(new)}
        return self._edit("renamed", lambda model: model.rename_class(old, new, **said), relabel, said, version)

    def merge(
        self, labels: Sequence[Any], into: Any, note: str = "", author: str = "", *, version: int | None = None
    ) -> Changes:
        """Make one class of several; labels of examples follow. At most one of them may be of the first fit."""
        said = {"note": note, "author": author}
        relabel = {plain(label): plain(into) for label in labels}
        return self._edit("merged", lambda model: model.merge_classes(labels, into, **said), relabel, said, version)

    def remove(self, labels: Sequence[Any], note: str = "", author: str = "", *, version: int | None = None) -> Changes:
        """Make the model forget classes; their examples go back to the pool, with their labels."""
        said = {"note": note, "author": author}
        relabel = {plain(label): plain(label) for label in labels}
        return self._edit("removed", lambda model: model.remove_classes(labels, **said), relabel, said, version)

    def _edit(
        self,
        what: str,
        change: Callable[[Any], Any],
        relabel: Mapping[Any, Any],
        said: Mapping[str, str],
        version: int | None,
    ) -> Changes:
        with self._changing(version) as state:
            after = edited(state, change, relabel, back_to_pool=what == "removed")
            labels = list(dict.fromkeys([*relabel, *relabel.values()]))
            return self._commit(after, what, said["note"], said["author"], labels)

    def undo(self, note: str = "", author: str = "", *, version: int | None = None) -> Changes:
        """Take back the last change of the model, and what it said about examples. Imports stay."""
        with self._changing(version) as state:
            return self._go_back(len(state.record.line) - 1, note, author)

    def undo_to(self, point: int, note: str = "", author: str = "", *, version: int | None = None) -> Changes:
        """Take back all changes of the model since a version.

        Parameters
        ----------
        point : int
            A version of the present history: one that was itself taken back cannot be gone back to.
        note, author : str
        version : int, optional
            See `teach`.

        Returns
        -------
        Changes
        """
        with self._changing(version) as state:
            then = read_version(self.folder, point)
            if journal_digest(state.journal[: then["entries"]]) != then["digest"]:
                raise ValueError(f"version {point} was taken back since, or belongs to a model that is no longer here.")
            keep = sum(mark.entries <= then["entries"] for mark in state.record.line)
            return self._go_back(keep, note, author)

    def _go_back(self, keep: int, note: str, author: str) -> Changes:
        line = self._state.record.line
        after = gone_back(self._state, keep, lambda number: read_version(self.folder, number)["before"])
        numbers = ", ".join(str(mark.version) for mark in line[keep:])
        return self._commit(after, f"took back version {numbers}", note, author)

    def forget(
        self,
        ids: Sequence[str],
        rows: Any = None,
        *,
        remove_class: bool = False,
        note: str = "",
        author: str = "",
        version: int | None = None,
    ) -> Changes:
        """Forget examples for good: model and project are then as if they had never been there.

        They leave the model and its journal, the examples, the store, the inbox and every older version; no undo brings
        them back. Answers that were kept of older versions go, too. Files outside the project stay.

        Parameters
        ----------
        ids : sequence of str
        rows : tuple (X, y, ids) or (X, y, ids, sample_weight), optional
            Rows that the model was fitted to or taught and that the project does not hold. To forget an example of the
            first fit, all of them are needed: the model is fitted and taught again.
        remove_class : bool
            Whether a class may go with its last example.
        note, author : str
        version : int, optional
            See `teach`.

        Returns
        -------
        Changes

        Raises
        ------
        ValueError
            If an id is unknown, rows are missing, or a class would lose its last example. Nothing is changed then.
        """
        with self._changing(version) as state:
            after, gone = forgotten(state, ids, rows, remove_class, lambda number: read_version(self.folder, number))
            result = f"{len(gone['ids']):,} examples were forgotten"
            return self._commit(after, "forgot", note, author, result=result, forgotten=gone)

    # -------------------------------------------------------------------------------------------------------- imports

    def import_rows(
        self,
        data: Any,
        *,
        labels: Any = None,
        features: str | None = None,
        ids: Any = None,
        split: Split = "pool",
        author: str = "",
        note: str = "",
        version: int | None = None,
        progress: Progress = False,
    ) -> Imported:
        """Take in more examples; nothing is taught by that.

        Parameters
        ----------
        data : path, Collection, array (n, d) or list of texts
            As for `create`. What the project holds already is not taken in twice.
        labels, features, ids
            As for `create`. Labels of pool examples are remembered, and taught by `teach` alone.
        split : "pool" or "test"
            Test rows need a label.
        author, note : str
        version : int, optional
            See `teach`.
        progress : bool or callable

        Returns
        -------
        Imported
        """
        if split not in ("pool", "test"):
            raise ValueError(f"split is pool or test, not {split!r:.80}: examples are taught by teach.")
        record = self._state.record
        is_new = not self._state.examples and self._state.model is None

        def encoder_for(kind: str) -> Encoder:
            return chosen_encoder(None, record.encoder, not is_new, kind)

        given, store = Given(data, features, labels, ids), Store(self.folder / files.STORE)
        rows = given.rows(encoder_for, store, progress, None if record.encoder is None else record.kind)
        with self._changing(version) as state:
            after, found = taken_in(state, self.folder, rows, split, author)
            if after is not state:
                self._commit(after, "imported", note, author, result=str(found))
            return found

    def import_pictures(
        self,
        pictures: Iterable[tuple[str, bytes]],
        *,
        split: Split = "pool",
        author: str = "",
        note: str = "",
        version: int | None = None,
        progress: Progress = False,
    ) -> Imported:
        """Take in pictures that somebody hands over: they are kept in the project, named by their content.

        Parameters
        ----------
        pictures : pairs of a name and the content of a file
        split : "pool"
            Pictures without a label cannot test.
        author, note, version, progress
            See `import_rows`.

        Returns
        -------
        Imported
        """
        inbox = self.folder / files.INBOX
        inbox.mkdir(exist_ok=True)
        items: list[Item] = []
        taken: set[str] = set()
        for name, content in pictures:
            suffix = Path(name).suffix.lower()
            path = inbox / (content_key(content).hex() + (suffix if suffix.isascii() and suffix[1:].isalnum() else ""))
            if not path.exists():
                write_atomically(path, content)
            name = free_name(name, taken)
            taken.add(name)
            items.append(Item(name, path))
        if not items:
            return Imported((), (), ())
        try:
            found = self.import_rows(
                Listed(items, "image", inbox),
                **{"split": split, "author": author, "note": note, "version": version, "progress": progress},
            )
        finally:
            used = {each.source for each in self._state.examples.values()}
            for item in items:
                if f"{files.INBOX}/{Path(item.source).name}" not in used:
                    Path(item.source).unlink(missing_ok=True)
        return found


def _name(value: Any) -> str | None:
    """The name of a column; None where values were given."""
    return value if isinstance(value, str) else None
