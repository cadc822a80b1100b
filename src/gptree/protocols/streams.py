"""Streams of sessions: base classes first, then few-shot sessions of new classes.

Labels are the caller's from end to end, and are not renumbered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gptree.metrics import columns
from gptree.tree import label_hashes

_SHOTS, _HELD_OUT = 0, 1  # what a draw is for: part of its key


@dataclass(frozen=True, eq=False)
class Session:
    """The rows of one session.

    Parameters
    ----------
    X, y : ndarray (n, d) and (n,)
        Training rows and their labels.
    X_test, y_test : ndarray (m, d) and (m,)
        Test rows, of the classes of this session alone.
    labels : ndarray
        The classes that the session adds, sorted: those of `y`.
    ids_test : sequence of m str or None
        What the test rows are called.
    """

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    labels: np.ndarray
    ids_test: Sequence[str] | None = None

    def __post_init__(self) -> None:
        _check_rows(self.X, self.y, "training rows")
        _check_rows(self.X_test, self.y_test, "test rows")
        if not np.array_equal(self.labels, np.unique(self.y)):
            raise ValueError("The labels of a session must be the sorted labels of its training rows.")
        if self.ids_test is not None and len(self.ids_test) != len(self.y_test):
            raise ValueError(f"There are {len(self.y_test)} test rows, and {len(self.ids_test)} ids of them.")
        strangers = np.setdiff1d(self.y_test, self.labels)
        if len(strangers):
            raise ValueError(f"Test rows of {_listed(strangers)}, which the session with {_listed(self.labels)} lacks.")
        if not len(self.y_test):
            raise ValueError(f"The session with {_listed(self.labels)} has no test rows: accuracy would be undefined.")


@dataclass(frozen=True, eq=False)
class SessionStream:
    """Sessions in the order in which they arrive. No class arrives twice.

    Parameters
    ----------
    name : str
        Of the data, in the rows of a run.
    sessions : tuple of Session
        The first is the base.
    """

    name: str
    sessions: tuple[Session, ...]

    def __post_init__(self) -> None:
        if not self.sessions:
            raise ValueError("A stream needs at least one session, the base.")
        widths = {rows.shape[1] for session in self.sessions for rows in (session.X, session.X_test)}
        if len(widths) > 1:
            raise ValueError(f"All rows of a stream must have the same number of features, got {sorted(widths)}.")
        labels, counts = np.unique(np.concatenate([s.labels for s in self.sessions]), return_counts=True)
        if (counts > 1).any():
            raise ValueError(f"Classes that arrive in two sessions: {_listed(labels[counts > 1])}.")


# ------------------------------------------------------------------------------------------------------ from arrays


def stream_from_arrays(
    X: Any,
    y: Any,
    X_test: Any,
    y_test: Any,
    *,
    base: int | Sequence[Any] | np.ndarray,
    way: int,
    shot: int,
    seed: int = 0,
    order: Sequence[Any] | np.ndarray | None = None,
    base_shot: int | None = None,
    ids_test: Sequence[str] | None = None,
    name: str = "arrays",
) -> SessionStream:
    """Base classes, then sessions of `way` new classes with `shot` training rows each.

    Which rows a class gives depends on the seed and on the class alone, and fewer shots are the first of more. Where
    the classes do not fill the last session, it is smaller.

    Parameters
    ----------
    X, y : array (n, d) and (n,)
        Training rows and their labels.
    X_test, y_test : array (m, d) and (m,)
        Test rows of the same classes.
    base : int or sequence of labels
        How many classes of the order are the base, or which.
    way, shot : int
        New classes of a later session, and training rows of each.
    seed : int
    order : sequence of labels or None
        Every class once, in order of arrival; None is a permutation of the sorted labels, by the seed.
    base_shot : int or None
        Training rows of each base class; None is all of them.
    ids_test : sequence of m str or None
        What the test rows are called, for reports.
    name : str
        Of the data, in the rows of a run.

    Returns
    -------
    SessionStream

    Examples
    --------
    >>> X, y = np.eye(6).repeat(4, axis=0), np.repeat(list("abcdef"), 4)
    >>> len(stream_from_arrays(X, y, X, y, base=2, way=2, shot=3).sessions)
    3
    """
    X, y, X_test, y_test = (np.asarray(array) for array in (X, y, X_test, y_test))
    _check_rows(X, y, "X and y")
    _check_rows(X_test, y_test, "X_test and y_test")
    for option, value in (("way", way), ("shot", shot), ("base_shot", 1 if base_shot is None else base_shot)):
        _check_count(option, value)
    classes = np.unique(y)
    strangers = np.setdiff1d(y_test, classes)
    if len(strangers):
        raise ValueError(f"y_test holds classes that y lacks: {_listed(strangers)}; remove those rows.")
    base_classes, novel = _parted(classes, base, _arrival(classes, order, seed))
    groups = [(base_classes, base_shot)]
    groups += [(novel[start : start + way], shot) for start in range(0, len(novel), way)]
    tests = (X_test, y_test, ids_test)
    return SessionStream(name, tuple(_drawn(X, y, tests, np.sort(group), shots, seed) for group, shots in groups))


def _arrival(classes: np.ndarray, order: Any, seed: int) -> np.ndarray:
    """The classes in order of arrival."""
    if order is None:
        return np.random.default_rng(seed).permutation(classes)
    positions = columns(order, classes)
    if len(positions) != len(classes) or len(set(positions.tolist())) != len(classes):
        raise ValueError(f"order must name each of the {len(classes)} classes once; it has {len(positions)} entries.")
    return classes[positions]


def _parted(classes: np.ndarray, base: Any, arrival: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Base and novel classes, both in order of arrival."""
    if isinstance(base, int | np.integer):
        if isinstance(base, bool) or not 1 <= base < len(classes):
            raise ValueError(f"base must leave classes to arrive: 1 to {len(classes) - 1} of them, got {base}.")
        return arrival[:base], arrival[base:]
    chosen = np.isin(arrival, classes[columns(base, classes)])
    if not chosen.any() or chosen.all():
        raise ValueError(f"base names {chosen.sum()} of {len(classes)} classes; name some, and leave some to arrive.")
    return arrival[chosen], arrival[~chosen]


def _drawn(
    X: np.ndarray,
    y: np.ndarray,
    tests: tuple[np.ndarray, np.ndarray, Sequence[str] | None],
    labels: np.ndarray,
    shots: int | None,
    seed: int,
) -> Session:
    """The session that adds these classes, with `shots` training rows each, or all; test rows have ids or None."""
    X_test, y_test, ids = tests
    tested = np.flatnonzero(np.isin(y_test, labels))
    if shots is None:
        rows = np.flatnonzero(np.isin(y, labels))
    else:
        rows = np.concatenate([_shuffled(y, label, seed, _SHOTS, at_least=shots)[:shots] for label in labels.tolist()])
    names = None if ids is None else np.asarray(ids)[tested].tolist()
    return Session(X[rows], y[rows], X_test[tested], y_test[tested], labels, names)


def hold_out(y: Any, share: float, seed: int = 0) -> np.ndarray:
    """Rows to hold out for testing: a share of each class, at least one row, never all.

    Which rows of a class they are depends on the seed and on the class alone.

    Parameters
    ----------
    y : array (n,)
        Labels.
    share : float
    seed : int

    Returns
    -------
    ndarray (n,) of bool

    Examples
    --------
    >>> int(hold_out(["a", "a", "b", "b"], share=0.5).sum())
    2
    """
    y = np.asarray(y)
    if not 0 < share < 1:
        raise ValueError(f"share must lie between 0 and 1, got {share}.")
    held_out = np.zeros(len(y), dtype=bool)
    for label in np.unique(y).tolist():
        rows = _shuffled(y, label, seed, _HELD_OUT, at_least=2)
        held_out[rows[: min(max(round(share * len(rows)), 1), len(rows) - 1)]] = True
    return held_out


def _shuffled(y: np.ndarray, label: Any, seed: int, purpose: int, at_least: int) -> np.ndarray:
    """The rows of a class in an order that depends on the seed, the label and the purpose, and on no other class."""
    rows = np.flatnonzero(y == label)
    if len(rows) < at_least:
        raise ValueError(f"Class {label!r} has {len(rows)} rows, and {at_least} are needed.")
    (key,) = label_hashes([label])
    return np.random.default_rng([seed, int(key), purpose]).permutation(rows)


# -------------------------------------------------------------------------------------------------- from list files


def stream_from_lists(
    folder: str | Path,
    X: Any,
    y: Any,
    *,
    paths: Sequence[str] | np.ndarray | None = None,
    X_test: Any = None,
    y_test: Any = None,
    paths_test: Sequence[str] | np.ndarray | None = None,
    ids_test: Sequence[str] | None = None,
    name: str | None = None,
) -> SessionStream:
    """The stream that the files session_1.txt, test_1.txt, session_2.txt, … of a folder describe.

    Session 1 is the base, and test_N.txt holds the test items of the classes that session N adds; one item a line.

    Parameters
    ----------
    folder : path
    X, y : array (n, d) and (n,)
    paths : sequence of n paths or None
        With them, items are files, and the row of a file is the one whose path is the end of the item, or the other way
        round: "images/cat/1.jpg" finds "cat/1.jpg". Without, items are row numbers from 0, of X or of X_test.
    X_test, y_test, paths_test
        Where the test items are; None is among the rows of X.
    ids_test : sequence of str or None
        What the rows are called among which the test items are, for reports.
    name : str or None
        Of the data, in the rows of a run; None is the name of the folder.

    Returns
    -------
    SessionStream
    """
    folder = Path(folder)
    X, y = np.asarray(X), np.asarray(y)
    _check_rows(X, y, "X and y")
    find = _row_finder(paths, len(X), "paths")
    one_pool = X_test is None
    if one_pool:
        if paths is None:
            raise ValueError("Row numbers of test items count the rows of a test set: give X_test and y_test.")
        X_test, y_test, find_test = X, y, find
    else:
        X_test, y_test = np.asarray(X_test), np.asarray(y_test)
        _check_rows(X_test, y_test, "X_test and y_test")
        find_test = _row_finder(paths_test, len(X_test), "paths_test")
    sessions, trained, tested = [], [], []
    for session_file, test_file in _list_files(folder):
        rows, test_rows = _rows_of(session_file, find), _rows_of(test_file, find_test)
        names = None if ids_test is None else np.asarray(ids_test)[test_rows].tolist()
        sessions.append(Session(X[rows], y[rows], X_test[test_rows], y_test[test_rows], np.unique(y[rows]), names))
        trained, tested = [*trained, *rows.tolist()], [*tested, *test_rows.tolist()]
    both = set(trained) & set(tested)
    if one_pool and both:
        raise ValueError(f"{folder}: {len(both)} rows, the first {min(both)}, are listed for training and for testing.")
    return SessionStream(folder.name if name is None else name, tuple(sessions))


def _list_files(folder: Path) -> list[tuple[Path, Path]]:
    """session_N.txt and test_N.txt, N = 1, 2, …"""
    matches = [re.fullmatch(r"session_(\d+)\.txt", path.name) for path in folder.glob("session_*.txt")]
    numbers = sorted(int(match[1]) for match in matches if match)
    if not numbers:
        raise ValueError(f"{folder} holds no lists: it needs session_1.txt, test_1.txt, session_2.txt, ….")
    wanted = [folder / f"{kind}_{n}.txt" for n in range(1, numbers[-1] + 1) for kind in ("session", "test")]
    missing = [path.name for path in wanted if not path.is_file()]
    if missing:
        raise ValueError(f"{folder} lacks {', '.join(missing)}.")
    return list(zip(wanted[::2], wanted[1::2], strict=True))


def _rows_of(file: Path, find: Callable[[str], int]) -> np.ndarray:
    """The rows of the items of a list."""
    items = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    try:
        rows = [find(item) for item in items if item]
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    if len(set(rows)) != len(rows):
        raise ValueError(f"{file}: {len(rows) - len(set(rows))} items are listed twice.")
    return np.array(rows, dtype=int)


def _row_finder(paths: Any, n_rows: int, argument: str) -> Callable[[str], int]:
    """The function from an item of a list to a row."""
    if paths is None:
        return lambda item: _numbered_row(item, n_rows, argument)
    if len(paths) != n_rows:
        raise ValueError(f"{argument} has {len(paths)} entries for {n_rows} rows; give one a row.")
    by_name: dict[str, list[tuple[list[str], int]]] = {}
    for row, path in enumerate(paths):
        parts = _parts(path)
        by_name.setdefault(parts[-1], []).append((parts, row))

    def row_of(item: str) -> int:
        parts = _parts(item)
        matches = [row for path, row in by_name.get(parts[-1], []) if _same_end(path, parts)]
        if len(matches) != 1:
            reason = f"rows {matches[0]} and {matches[1]} both match" if matches else "no row has such a path"
            raise ValueError(f"'{item}': {reason} (the first path is '{paths[0]}').")
        return matches[0]

    return row_of


def _parts(path: Any) -> list[str]:
    return [part for part in str(path).replace("\\", "/").split("/") if part not in ("", ".")] or [""]


def _same_end(one: list[str], other: list[str]) -> bool:
    shared = min(len(one), len(other))
    return one[-shared:] == other[-shared:]


def _numbered_row(item: str, n_rows: int, argument: str) -> int:
    if not re.fullmatch(r"[0-9]+", item):
        raise ValueError(f"'{item}' is not a row number: the lists name files, so give {argument}.")
    if int(item) >= n_rows:
        raise ValueError(f"there is no row {item}; the rows are 0 to {n_rows - 1}.")
    return int(item)


# ----------------------------------------------------------------------------------------------------------- checks


def _check_rows(X: np.ndarray, y: np.ndarray, what: str) -> None:
    if X.ndim != 2 or y.shape != (len(X),):
        raise ValueError(f"{what} must be features (n, d) and labels (n,), got shapes {X.shape} and {y.shape}.")


def _check_count(option: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{option} must be a positive whole number, got {value!r}.")


def _listed(labels: np.ndarray, most: int = 5) -> str:
    first = ", ".join(repr(label) for label in labels.tolist()[:most])
    return first if len(labels) <= most else f"{first} and {len(labels) - most} more"
