"""A project without some of its examples, as if they had never been there. Nothing here is saved."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from gptree.incremental import Entry
from gptree.incremental.forgetting import without_examples
from gptree.project.folder import INBOX, Mark, journal_digest
from gptree.project.state import State


def forgotten(
    state: State, ids: Sequence[str], rows: Any, remove_class: bool, version_at: Callable[[int], Mapping[str, Any]]
) -> tuple[State, dict[str, Any]]:
    """The state without examples, and what has to go from the files with them.

    Parameters
    ----------
    ids : sequence of str
    rows : tuple (X, y, ids) or (X, y, ids, sample_weight), or None
        Rows of the first fit and of lessons that the project does not hold.
    remove_class : bool
        Whether a class may go with its last example.
    version_at : callable
        What the file of a version holds, by number.
    """
    names, journal = set(ids), state.journal
    taught = {name for entry in journal for name in entry.ids}
    unknown = sorted(names - state.examples.keys() - taught)
    if not names or unknown:
        raise ValueError(f"there is no example {unknown[0]!r} in the project." if unknown else "name an example.")
    fitted = {name for name, each in state.examples.items() if each.fitted is not None}
    model = state.model
    if names & (taught | fitted):
        model = copy.copy(model)
        model.forget(sorted(names & (taught | fitted)), _rows(state, taught, rows), remove_class=remove_class)
    shorter = _shorter(journal, names, model)
    stay = [name not in names for name in state.examples]
    examples = {name: each for name, each in state.examples.items() if name not in names}
    record = replace(
        state.record,
        version=state.record.version + 1,
        model=None if model is None else journal_digest(model.journal_),
        line=_line(state.record.line, shorter),
    )
    gone = [state.examples[name] for name in names & state.examples.keys()]
    keys, sources = ({getattr(each, part) for each in examples.values()} for part in ("key", "source"))
    versions = {}
    for number in range(1, state.record.version + 1):
        then = version_at(number)
        if then["digest"] == journal_digest(journal[: then["entries"]]):
            versions[number] = shorter[then["entries"]]
    after = State(record, MappingProxyType(examples), state.X[stay], model)
    return after, {
        "ids": sorted(names),
        "keys": sorted({each.key for each in gone} - keys),
        "files": sorted({e.source for e in gone if e.source.startswith(f"{INBOX}/")} - sources),
        "versions": {str(number): list(entries) for number, entries in versions.items()},
    }


def _rows(state: State, taught: Collection[str], more: Any) -> Any:
    """Rows of the first fit, with the labels of then, and of lessons: those of the project, and others that are given.

    None where the first fit is not among them.
    """
    known = [e for e in state.examples.values() if e.fitted is not None or e.id in taught]
    if more is None and not any(each.fitted is not None for each in known):
        return None
    first = state.journal[0].labels[0]  # labels of lessons are not looked at
    X, y, names, *weights = more or (np.zeros((0, state.X.shape[1]), state.X.dtype), np.array([first])[:0], [])
    mine = {each.id for each in known}
    others = [row for row, name in enumerate(names) if name not in mine]
    y = [*np.asarray(y)[others].tolist(), *(first if each.fitted is None else each.fitted for each in known)]
    found = (
        np.concatenate([np.asarray(X)[others], state.vectors([each.id for each in known])]),
        np.array(y),
        [*(names[row] for row in others), *(each.id for each in known)],
    )
    return (*found, np.concatenate([np.asarray(weights[0])[others], np.ones(len(known))])) if weights else found


def _shorter(journal: Sequence[Entry], names: Collection[str], model: Any) -> list[tuple[int, str]]:
    """How many entries are left of the first 0, 1, 2, … entries of a journal, and the hash of those."""
    if model is None:
        return [(0, journal_digest(()))]
    now = model.journal_
    empty = set(journal[0].labels) - set(now[0].labels)
    counts = [0, *(len(without_examples(journal[:k], names, empty)[0]) for k in range(1, len(journal) + 1))]
    digests = {count: journal_digest(now[:count]) for count in set(counts)}
    return [(count, digests[count]) for count in counts]


def _line(line: Sequence[Mark], shorter: Sequence[tuple[int, str]]) -> tuple[Mark, ...]:
    """Versions that can still be undone: one whose lesson is wholly forgotten is none any more."""
    kept: list[Mark] = []
    for mark in line:
        entries, digest = shorter[mark.entries]
        if not kept or entries > kept[-1].entries:
            kept.append(Mark(mark.version, entries, digest))
    return tuple(kept)
