"""Encoding what a store lacks: preparation in threads, batches that shrink when memory is short, stored as it goes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from gptree.embed.encoders.base import Encoder, checked_vectors
from gptree.embed.pictures import UnreadableError
from gptree.embed.store import Store, content_key

#: What is encoded is stored after so many rows, or so many seconds.
FLUSH_ROWS, FLUSH_SECONDS = 512, 10.0

Key = bytes


def encode_missing(
    encoder: Encoder,
    sources: Mapping[Key, Any],
    store: Store | None,
    batch_size: int,
    workers: int,
    advance: Callable[[int], None],
) -> tuple[dict[Key, np.ndarray], dict[Key, str]]:
    """Encode sources by the key of their content.

    Returns vectors by key, and why there is none of the others. Whatever ends it, what was encoded is stored.
    """
    order = sorted(sources, key=lambda key: -len(sources[key])) if encoder.kind == "text" else list(sources)
    vectors: dict[Key, np.ndarray] = {}
    reasons: dict[Key, str] = {}
    pending = _Pending(store, encoder)
    with ThreadPoolExecutor(workers) as pool, pending:
        prepared = _ahead(pool, order, lambda key: _prepared(encoder, key, sources[key]), 2 * batch_size + workers)
        for batch in _batches(prepared, batch_size):
            good = [(key, value) for key, value in batch if not isinstance(value, UnreadableError)]
            reasons |= {key: str(value) for key, value in batch if isinstance(value, UnreadableError)}
            if good:
                rows, batch_size = encoded(encoder, [value for _, value in good], batch_size)
                for (key, _), row in zip(good, rows, strict=True):
                    if np.isfinite(row).all():
                        vectors[key] = row
                        pending.add(key, row)
                    else:
                        reasons[key] = "the encoder gave numbers that are not finite"
            advance(len(batch))
    return vectors, reasons


def encoded(encoder: Encoder, batch: Sequence[Any], limit: int) -> tuple[np.ndarray, int]:
    """Vectors of a batch, and how many at a time the memory holds: half as many after each failure."""
    parts: list[np.ndarray] = []
    start = 0
    while start < len(batch):
        part = batch[start : start + limit]
        try:
            parts.append(checked_vectors(encoder, part))
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            if len(part) == 1:
                raise ValueError(f"the memory does not hold {encoder.name!r} and one item ({error}).") from error
            limit = len(part) // 2
            _free_memory()
            continue
        start += len(part)
    return np.concatenate(parts), limit


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or any(
        sign in str(error).lower() for sign in ("out of memory", "can't allocate memory", "not enough memory")
    )


def _free_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _prepared(encoder: Encoder, key: Key, source: Any) -> tuple[Key, Any]:
    """What is to be encoded, or the error that says why it cannot be; a file that is another one by now is none."""
    try:
        content = encoder.content(source)
        if isinstance(content, bytes | str) and content_key(content) != key:
            raise UnreadableError("it changed while it was read")
        return key, encoder.prepare(content)
    except UnreadableError as error:
        return key, error


def _ahead(
    pool: ThreadPoolExecutor, order: Sequence[Key], prepare: Callable[[Key], Any], most: int
) -> Iterator[tuple[Key, Any]]:
    """Results in order, at most so many of them computed ahead."""
    running: deque[Future[Any]] = deque()
    waiting = iter(order)
    try:
        while True:
            while len(running) < most and (key := next(waiting, None)) is not None:
                running.append(pool.submit(prepare, key))
            if not running:
                return
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()


def _batches(values: Iterator[Any], size: int) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for value in values:
        batch.append(value)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class _Pending:
    """Vectors that are encoded but not yet stored."""

    def __init__(self, store: Store | None, encoder: Encoder) -> None:
        self.store, self.description = store, encoder.describe()
        self.rows: dict[Key, np.ndarray] = {}
        self.last = time.monotonic()

    def add(self, key: Key, row: np.ndarray) -> None:
        self.rows[key] = row
        if len(self.rows) >= FLUSH_ROWS or time.monotonic() - self.last > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        rows, self.rows = self.rows, {}  # a disk that is full is not asked twice
        if self.store is not None and rows:
            self.store.add(self.description, list(rows), np.stack(list(rows.values())))
        self.last = time.monotonic()

    def __enter__(self) -> _Pending:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()
