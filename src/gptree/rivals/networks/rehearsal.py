"""`rehearse`: settings of sessions chosen within the base classes, some of which play the novel ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from gptree.deep import Arrays, Batch, FromDataset, Source, whole
from gptree.metrics import columns
from gptree.rivals.left_out import fit_temperature
from gptree.rivals.networks.base import NetworkRival
from gptree.rivals.networks.model import BaseNetwork
from gptree.rivals.networks.settings import NetworkRivalSettings
from gptree.settings import require, require_whole


@dataclass(frozen=True, eq=False)
class RehearsedSessions:
    """Rows of a base session that rehearse a stream. One network, trained on `base`, serves all draws.

    Attributes
    ----------
    base : int array
        Rows of the classes that play the base.
    draws : tuple of tuples of int arrays
        For each draw the rows of its sessions, a few of each class that plays a novel one.
    queries : int array
        Rows of all classes that nothing is learned from.
    """

    base: np.ndarray
    draws: tuple[tuple[np.ndarray, ...], ...]
    queries: np.ndarray


@dataclass(frozen=True, eq=False)
class Rehearsed:
    """What a rehearsal found.

    Attributes
    ----------
    settings : NetworkRivalSettings
        The best candidate, its temperature that of least NLL on the queries of the last rehearsed sessions.
    candidates : list of NetworkRivalSettings
    scores : ndarray
        Of each candidate: accuracy on the queries of all classes seen so far, mean over sessions and draws.
    """

    settings: Any
    candidates: list[Any]
    scores: np.ndarray


def rehearsed_sessions(
    y: Any, *, sessions: int = 4, way: int = 5, shots: int = 5, queries: int = 20, draws: int = 3, seed: int = 0
) -> RehearsedSessions:
    """Choose rows of a base session for `rehearse`.

    Parameters
    ----------
    y : array (n,)
        Labels of the base session.
    sessions, way, shots : int
        Rehearsed sessions of a draw, classes of a session and rows of a class. `sessions` × `way` classes, drawn once,
        play novel ones; their order and their rows are drawn anew for each draw.
    queries : int
        Rows of every class to measure on.
    draws : int
    seed : int

    Examples
    --------
    >>> from gptree.rivals import rehearsed_sessions
    >>> rows = rehearsed_sessions(np.repeat(np.arange(10), 30), sessions=2, way=2)
    >>> len(rows.base), len(rows.draws), len(rows.draws[0]), len(rows.queries)
    (60, 3, 2, 200)
    """
    for name, value in {"sessions": sessions, "way": way, "shots": shots, "queries": queries, "draws": draws}.items():
        require_whole(name, value, 1)
    labels, codes = np.unique(np.asarray(y), return_inverse=True)
    novel = sessions * way
    require(
        len(labels) - novel >= 2,
        f"{sessions} sessions of {way} classes leave {len(labels) - novel} of {len(labels)} for the base: two at least "
        "are needed.",
    )
    fewest = int(np.bincount(codes).min())
    require(fewest >= queries + shots, f"a class has {fewest} rows: {queries} queries and {shots} shots are too many.")
    random = np.random.default_rng(seed)
    order = random.permutation(len(labels))
    rows = [random.permutation(np.flatnonzero(codes == c)) for c in range(len(labels))]
    rest = [each[queries:] for each in rows]
    base = np.sort(np.concatenate([rest[c] for c in order[novel:]]))

    def drawn() -> tuple[np.ndarray, ...]:
        arriving = random.permutation(order[:novel]).reshape(sessions, way)
        return tuple(np.concatenate([random.permutation(rest[c])[:shots] for c in few]) for few in arriving)

    return RehearsedSessions(
        base, tuple(drawn() for _ in range(draws)), np.sort(np.concatenate([each[:queries] for each in rows]))
    )


def rehearse(
    rival: NetworkRival[Any],
    X: Any,
    y: Any,
    rows: RehearsedSessions,
    *,
    base: BaseNetwork | None = None,
    candidates: Sequence[NetworkRivalSettings] | None = None,
) -> Rehearsed:
    """Choose the settings of a rival on sessions rehearsed within its base session; it is left as it is.

    Of candidates that are equally good the first is taken, and the first of `settings.candidates()` trains nothing:
    what is chosen is never worse on the rehearsal than the frozen network.

    Parameters
    ----------
    rival : NetworkRival
        With the settings to vary.
    X, y
        The base session, as for `fit`.
    rows : RehearsedSessions
    base : BaseNetwork or None
        A network trained on the rows `rows.base`; None trains one.
    candidates : sequence of settings or None
        None is `settings.candidates()`.

    Returns
    -------
    Rehearsed
    """
    labels = np.asarray(y)
    settings = rival.settings_type.tuned() if rival.settings is None else rival.settings
    chosen = list(settings.candidates() if candidates is None else candidates)
    require(len(chosen) > 0, "there is no candidate to choose from.")
    require(
        all(candidate.memory == settings.memory for candidate in chosen),
        "candidates share the state after the base session, and so its memory: rehearse each memory for itself.",
    )
    start = copy.copy(rival).set_params(folder=None, settings=settings)
    start.fit(rows_of(X, rows.base), labels[rows.base], base=base)
    queries = rows_of(X, rows.queries), labels[rows.queries]
    results = [
        [list(_rehearsed(start, candidate, X, labels, draw, queries)) for draw in rows.draws] for candidate in chosen
    ]
    scores = np.array([np.mean([step[0] for draw in draws for step in draw]) for draws in results])
    best = int(scores.argmax())
    last = [draw[-1] for draw in results[best]]
    sharper, _ = fit_temperature(np.concatenate([step[1] for step in last]), np.concatenate([step[2] for step in last]))
    temperature = chosen[best].temperature / sharper
    return Rehearsed(chosen[best].with_params(temperature=temperature), chosen, scores)


def _rehearsed(
    start: NetworkRival[Any],
    settings: NetworkRivalSettings,
    X: Any,
    y: np.ndarray,
    draw: Sequence[np.ndarray],
    queries: tuple[Any, np.ndarray],
) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """After every session of a draw: accuracy, log-probabilities and columns of the queries of classes seen."""
    rival = copy.copy(start).set_params(settings=settings)
    for session in draw:
        rival.add_classes(rows_of(X, session), y[session])
        seen = np.flatnonzero(np.isin(queries[1], rival.classes_))
        log_p = rival.predict_log_proba(rows_of(queries[0], seen))
        codes = columns(queries[1][seen], rival.classes_.tolist())
        yield float((log_p.argmax(1) == codes).mean()), log_p, codes


def rows_of(X: Any, rows: np.ndarray) -> Any:
    """Some rows of inputs, of the kind that they are."""
    if isinstance(X, Arrays):
        return Arrays(X.rows(rows), X.augment, mean=X.mean, std=X.std)
    if isinstance(X, Dataset):
        return _Chosen(FromDataset(X), rows)
    if hasattr(X, "batches"):
        return _Chosen(X, rows)
    return X[torch.from_numpy(rows)] if isinstance(X, Tensor) else np.asarray(X)[rows]


class _Chosen:
    """A source of some rows of another."""

    def __init__(self, source: Source, rows: np.ndarray) -> None:
        self._source, self._rows = source, rows
        self.shape, self.augment = source.shape, getattr(source, "augment", ())

    @property
    def labels(self) -> np.ndarray | None:
        labels = self._source.labels
        return None if labels is None else labels[self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def batches(
        self, plan: Sequence[Batch], device: torch.device, part: Callable[[int], slice] = whole
    ) -> Iterator[Tensor]:
        yield from self._source.batches([Batch(self._rows[b.rows], b.seed) for b in plan], device, part)
