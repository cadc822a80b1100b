"""`embed`: a collection and an encoder → vectors, labels, ids, and what was left out."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from gptree.embed.collection import Collection, Failure, Item
from gptree.embed.encoders.base import Description, Encoder
from gptree.embed.encoding import encode_missing
from gptree.embed.pictures import UnreadableError
from gptree.embed.seen import SeenFiles
from gptree.embed.store import Store, content_key
from gptree.settings import require, require_whole
from gptree.storage import write_atomically


@dataclass(frozen=True, eq=False)
class Embedding:
    """What came of a collection; rows are in the order of its items.

    Attributes
    ----------
    X : ndarray (n, d)
        float32.
    y : ndarray (n,) or None
        Labels; of objects, with None, where only some rows have one, and None where no row has.
    ids : tuple of str
    failed : tuple of Failure
        What was left out: id and reason.
    encoder : dict
        The description of the encoder.
    keys : tuple of str
        Hexadecimal keys of the contents: equal for duplicates.
    encoded : int
        How many contents were encoded, and not found in the store.
    """

    X: np.ndarray
    y: np.ndarray | None
    ids: tuple[str, ...]
    failed: tuple[Failure, ...]
    encoder: Description
    keys: tuple[str, ...]
    encoded: int

    def __len__(self) -> int:
        return len(self.X)

    def labelled(self) -> Embedding:
        """The rows that have a label, all of which are of one kind: numbers, or text.

        Returns
        -------
        Embedding
        """
        return self._rows(True)

    def unlabelled(self) -> Embedding:
        """The rows that have no label.

        Returns
        -------
        Embedding
        """
        return self._rows(False)

    def _rows(self, labelled: bool) -> Embedding:
        known = np.array([self.y is not None and self.y[i] is not None for i in range(len(self))], dtype=bool)
        rows = np.flatnonzero(known == labelled)
        y = _labels([self.y[i] for i in rows]) if labelled and self.y is not None else None
        ids, keys = (tuple(values[i] for i in rows) for values in (self.ids, self.keys))
        return Embedding(self.X[rows], y, ids, self.failed, self.encoder, keys, self.encoded)

    def save(self, path: str | Path) -> None:
        """Write an .npz file: X, ids, y where there are labels, and `encoder`, the description as JSON.

        Parameters
        ----------
        path : path

        Raises
        ------
        ValueError
            If only some rows have a label: save `labelled()` and `unlabelled()`, each into a file of its own.
        """
        if self.y is not None and self.y.dtype.hasobject:
            raise ValueError("some rows have no label: save labelled() and unlabelled(), each into its own file.")
        arrays: dict[str, Any] = {"X": self.X, "ids": np.array(self.ids, dtype=str)}
        if self.y is not None:
            arrays["y"] = self.y
        file = io.BytesIO()
        np.savez(file, **arrays, encoder=np.array(json.dumps(self.encoder, sort_keys=True)))
        write_atomically(Path(path), file.getvalue())


def embed(
    collection: Collection,
    encoder: Encoder,
    *,
    store: Store | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> Embedding:
    """Encode a collection. A file or a text that cannot be encoded is left out and listed, and stops nothing.

    Parameters
    ----------
    collection : ImageFolder or Table
    encoder : Encoder
    store : Store, optional
        Where vectors are looked up by content, and kept. A run that was killed goes on from there.
    batch_size : int, optional
        None is what suits encoder and device. When memory is short it is halved.
    workers : int, optional
        Threads that read and decode; None is one a core, at most 8.
    progress : bool or callable
        Show a bar with the time left; or call it with (done, total) after every batch.

    Returns
    -------
    Embedding

    Raises
    ------
    ValueError
        If the encoder takes something else than the collection holds, or all items failed.

    Examples
    --------
    >>> emb = embed(ImageFolder("products"), encoder("efficientnet-lite0"), store=Store())    # doctest: +SKIP
    >>> model = GPForestClassifier().fit(emb.X, emb.y)                                        # doctest: +SKIP
    """
    require(
        collection.kind == encoder.kind,
        f"{collection.path} holds items of kind {collection.kind!r}, and the encoder {encoder.name!r} takes "
        f"{encoder.kind!r}: choose another encoder.",
    )
    for name, value in (("batch_size", batch_size), ("workers", workers)):
        if value is not None:
            require_whole(name, value, 1)
    workers = workers or min(8, os.cpu_count() or 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # there is a limit of our own
        keys, reasons = _content_keys(collection, encoder, store, workers)
        distinct = list(dict.fromkeys(key for key in keys if key is not None))
        vectors = {} if store is None else store.find(encoder.describe(), distinct)
        missing = {k: item.source for k, item in zip(keys, collection.items, strict=True) if k and k not in vectors}
        with _bar(progress, len(missing)) as advance:
            size = batch_size or encoder.batch_size()
            new, unencoded = encode_missing(encoder, missing, store, size, workers, advance)
    return _joined(collection, encoder, keys, reasons, vectors | new, unencoded, len(new))


def _content_keys(
    collection: Collection, encoder: Encoder, store: Store | None, workers: int
) -> tuple[list[bytes | None], dict[str, str]]:
    """A key for each item; None, and the reason by id, where there is no content."""
    seen = SeenFiles(store and store.folder, collection.path) if collection.kind == "image" else None
    reasons: dict[str, str] = {}

    def key_of(item: Item) -> bytes | None:
        try:
            if seen is None or not isinstance(item.source, Path):
                return content_key(encoder.content(item.source))  # pyright: ignore[reportArgumentType]
            key, stamp = seen.key(item.source)
            if key is None:
                key = content_key(encoder.content(item.source))  # pyright: ignore[reportArgumentType]
                seen.note(item.source, stamp, key)
            return key
        except UnreadableError as error:
            reasons[item.id] = str(error)
            return None

    with ThreadPoolExecutor(workers) as pool:
        keys = list(pool.map(key_of, collection.items))
    if seen is not None:
        seen.save()
    return keys, reasons


def _joined(
    collection: Collection,
    encoder: Encoder,
    keys: list[bytes | None],
    reasons: dict[str, str],
    vectors: dict[bytes, np.ndarray],
    unencoded: dict[bytes, str],
    encoded: int,
) -> Embedding:
    rows, failed = [], list(collection.failed)
    for item, key in zip(collection.items, keys, strict=True):
        if key is not None and key in vectors:
            rows.append((item, key))
        else:
            failed.append(Failure(item.id, reasons[item.id] if key is None else unencoded[key]))
    if not rows:
        raise ValueError(f"nothing in {collection.path} could be encoded; first {failed[0].id}: {failed[0].reason}.")
    labels = [item.label for item, _ in rows]
    return Embedding(
        X=np.stack([vectors[key] for _, key in rows]),
        y=None if all(label is None for label in labels) else _labels(labels),
        ids=tuple(item.id for item, _ in rows),
        failed=tuple(sorted(failed)),
        encoder=encoder.describe(),
        keys=tuple(key.hex() for _, key in rows),
        encoded=encoded,
    )


def _labels(labels: list[Any]) -> np.ndarray:
    return np.array(labels, dtype=object if None in labels else None)


@contextmanager
def _bar(progress: bool | Callable[[int, int], None], total: int) -> Iterator[Callable[[int], None]]:
    if not progress or not total:
        yield lambda _: None
        return
    if callable(progress):
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            progress(done, total)

        yield advance
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("encoding", total=total)
        yield lambda count: bar.advance(task, count)
