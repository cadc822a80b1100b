"""A journal without some of its examples, as if they had never been given."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from gptree.incremental.journal import Entry


def without_examples(
    journal: Sequence[Entry], ids: Collection[str], empty: Collection[Any] = ()
) -> tuple[tuple[Entry, ...], set[Any]]:
    """The journal without examples of these ids, and the labels of classes that are left with no example.

    A class that loses all examples it came with is added by the first lesson that brings more of it. What was done to a
    class between, while it has none, is left out: renaming it, removing it, its part in a merge.

    Parameters
    ----------
    journal : sequence of Entry
        `fit` first, which stays as it is.
    ids : collection of str
    empty : collection
        Labels of `fit` that have no example any more.
    """
    kept, empty = [journal[0]], set(empty)
    for entry in journal[1:]:
        if entry.features is not None:
            kept += _lesson(entry, ids, empty)
        elif entry.kind == "remove_classes":
            rest = tuple(label for label in entry.labels if label not in empty)
            empty -= set(entry.labels)
            kept += [replace(entry, labels=rest)] if rest else []
        elif entry.kind == "rename_class":
            old, new = entry.labels
            if old in empty:
                empty = empty - {old} | {new}
            else:
                kept.append(entry)
        else:
            kept += _merge(entry, empty)
    return tuple(kept), empty


def _lesson(entry: Entry, ids: Collection[str], empty: set[Any]) -> list[Entry]:
    """What is left of an entry that brought examples; `empty` is brought up to date."""
    places = [place for place, name in enumerate(entry.ids) if name not in ids] if entry.ids else range(len(entry.y))
    left = {label: [place for place in places if entry.y[place] == label] for label in entry.labels}
    if entry.kind == "add_classes":
        empty |= {label for label in entry.labels if not left[label]}
    there = [label for label in entry.labels if left[label]]
    firsts = there if entry.kind == "add_classes" else [label for label in there if label in empty]
    others = [label for label in there if label not in firsts]
    empty -= set(firsts)
    parts = [("add_classes", firsts), ("add_examples", others)]
    return [_part(entry, kind, [p for label in labels for p in left[label]]) for kind, labels in parts if labels]


def _part(entry: Entry, kind: Any, places: Sequence[int]) -> Entry:
    """Some of the examples of an entry, label after label."""
    assert entry.features is not None
    y = [entry.y[place] for place in places]
    labels = tuple(dict.fromkeys(y))
    return replace(
        entry,
        kind=kind,
        labels=labels,
        counts=tuple(y.count(label) for label in labels),
        features=entry.features[list(places)],
        rows=tuple(entry.rows[place] for place in places),
        ids=tuple(entry.ids[place] for place in places) if entry.ids else (),
        weights=None if entry.weights is None else entry.weights[list(places)],
    )


def _merge(entry: Entry, empty: set[Any]) -> list[Entry]:
    """What is left of a merge; `empty` is brought up to date."""
    *labels, into = entry.labels
    rest = [label for label in labels if label not in empty]
    empty -= set(labels)
    if not rest:
        empty.add(into)
        return []
    if len(rest) > 1:
        return [replace(entry, labels=(*rest, into))]
    return [] if rest[0] == into else [replace(entry, kind="rename_class", labels=(rest[0], into))]
