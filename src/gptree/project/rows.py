"""From data to examples and vectors: folders, tables, files of vectors, arrays, texts, and pictures handed over."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gptree.embed import Collection, Embedding, Encoder, Failure, Item, Store, embed
from gptree.embed.collection import Label, check_ids
from gptree.embed.opening import opened
from gptree.embed.vectors import Names, read_vectors

Progress = bool | Callable[[int, int], None]


class Listed(Collection):
    """Items that somebody lists.

    Parameters
    ----------
    items : sequence of Item
    kind : "image" or "text"
    path : Path
        Where they come from, for messages.
    """

    def __init__(self, items: Sequence[Item], kind: Any, path: Path) -> None:
        self.items, self.kind, self.path, self.failed = tuple(items), kind, path, ()
        check_ids(path, [item.id for item in items])


@dataclass(frozen=True, eq=False)
class Rows:
    """Vectors with their names, contents and labels.

    Attributes
    ----------
    ids, keys : list of str
    X : ndarray (n, d), float32
    labels : list of label or None
    sources : list of str
    texts : list of str or None
    encoder : dict or None
        Its description.
    failed : tuple of Failure
    """

    ids: list[str]
    keys: list[str]
    X: np.ndarray
    labels: list[Label | None]
    sources: list[str]
    texts: list[str | None]
    encoder: dict[str, Any] | None
    failed: tuple[Failure, ...] = ()

    @property
    def kind(self) -> str:
        return "vector" if self.encoder is None else str(self.encoder.get("kind"))


def gathered(
    data: Any, names: Names, encoder: Callable[[str], Encoder], kind: str | None, store: Store, progress: Progress
) -> Rows:
    """Rows of a path, a collection, an array, or texts; vectors of what is encoded are kept in the store.

    Parameters
    ----------
    data : path, Collection, array (n, d) or list of texts
    names : Names
    encoder : callable
        Gives the encoder for a kind, "image" or "text".
    kind : str or None
        What the project holds, if that is known.
    """
    if isinstance(data, str | Path):
        path = Path(data).expanduser()
        found = opened(path, names, lambda: kind)
        if not isinstance(found, Collection):
            return _vectors(read_vectors(path, names, need_labels=False, table=found), store)
        data = found
    elif isinstance(data, list | tuple) and data and all(isinstance(each, str) for each in data):
        data = Listed([Item(str(i), text) for i, text in enumerate(data)], "text", Path("the texts"))
    if not isinstance(data, Collection):
        return array_rows(data, None, None, store)
    if not data.items and not data.failed:
        raise ValueError(f"{data.path} holds nothing.")
    how = encoder(data.kind)
    return _embedded(data, embed(data, how, store=store, progress=progress))


def array_rows(X: Any, labels: Sequence[Any] | None, ids: Sequence[str] | None, store: Store) -> Rows:
    """Rows of an array of vectors, which are kept in the store."""
    X = np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "biuf" or 0 in X.shape:
        raise ValueError(f"vectors are a table of numbers (rows, columns), not an array of {X.dtype} {X.shape}.")
    if not np.isfinite(X).all():
        raise ValueError("vectors hold NaN or infinity: fill them in, or leave such rows out.")
    names = list(map(str, range(len(X)))) if ids is None else [str(each) for each in ids]
    given: list[Any] = [None] * len(X) if labels is None else [plain(label) for label in labels]
    if not len(X) == len(names) == len(given):
        raise ValueError(f"there are {len(X)} vectors, {len(names)} ids and {len(given)} labels.")
    check_ids(Path("the rows"), names)
    X = np.ascontiguousarray(X, dtype=np.float32)
    keys = [hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest() for row in X]
    store.add(vector_description(X.shape[1]), list(map(bytes.fromhex, keys)), X)
    return Rows(names, keys, X, given, [""] * len(X), [None] * len(X), None)


def _vectors(data: Any, store: Store) -> Rows:
    """Rows of a file of vectors; those that `gptree embed` wrote know their encoder."""
    labels = None if data.y is None else data.y.tolist()
    rows = array_rows(data.X, labels, data.ids, store)
    if data.encoder is not None:
        store.add(data.encoder, [bytes.fromhex(key) for key in rows.keys], rows.X)
    source = [str(data.path.resolve())] * len(rows.ids)
    encoder = None if data.encoder is None else dict(data.encoder)
    return Rows(rows.ids, rows.keys, rows.X, rows.labels, source, rows.texts, encoder)


def _embedded(collection: Collection, found: Embedding) -> Rows:
    items = {item.id: item for item in collection.items}
    sources, texts = [], []
    for name in found.ids:
        source = items[name].source
        is_text = isinstance(source, str)
        sources.append(str(collection.path) if is_text else str(Path(source).resolve()))
        texts.append(source if is_text else None)
    labels = [items[name].label for name in found.ids]
    return Rows(
        list(found.ids), list(found.keys), found.X, labels, sources, texts, dict(found.encoder), tuple(found.failed)
    )


def vector_description(dimension: int) -> dict[str, Any]:
    """What stands for the encoder of bare vectors in a store."""
    return {"family": "vectors", "name": "vectors", "kind": "vector", "dimension": dimension}


def plain(label: Any) -> Any:
    """A label as a Python value."""
    return label.item() if isinstance(label, np.generic) else label


def held_out(keys: Sequence[str], labels: Sequence[Any], share: float) -> np.ndarray:
    """Which rows are to test, (n,): of every class a share, chosen by content, so that no content is on both sides."""
    chosen = np.zeros(len(keys), dtype=bool)
    by_label: dict[Any, dict[str, list[int]]] = {}
    for row, (key, label) in enumerate(zip(keys, labels, strict=True)):
        if label is not None:
            by_label.setdefault(label, {}).setdefault(key, []).append(row)
    taken: set[str] = set()
    for contents in by_label.values():
        order = sorted(contents)
        count = min(round(share * len(order)), len(order) - 1)
        taken |= set(order[:count])
    for contents in by_label.values():
        if taken >= contents.keys():
            taken -= {max(contents)}  # a content with two labels: each class keeps one to learn from
    for contents in by_label.values():
        for key, rows in contents.items():
            chosen[rows] = key in taken
    return chosen


def free_name(name: str, taken: Mapping[str, Any] | set[str]) -> str:
    """The name, with a number behind it where it is taken."""
    number, free = 2, name
    while free in taken:
        free, number = f"{name} ({number})", number + 1
    return free
