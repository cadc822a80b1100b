"""Which rows are trained on, which are measured, and in which order: all of it a function of the seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gptree.deep.data.sources import Batch

#: Keys that set the uses of one seed apart.
_SPLIT, _ORDER, _STEP, FIRST_LAYER = range(4)


def split_rows(
    y: np.ndarray, labels: Sequence[Any], validation: float | int | None, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows for training and rows for validation, both in ascending order.

    `validation` is a share of every class, rounded and at least one row, or a number of rows of every class.
    """
    counts = np.bincount(y, minlength=len(labels))
    if validation is None:
        wanted = np.zeros_like(counts)
    elif isinstance(validation, float):
        wanted = np.maximum(1, np.rint(validation * counts).astype(np.int64))
    else:
        wanted = np.full_like(counts, validation)
    short = np.flatnonzero(counts <= wanted)
    if len(short):
        names = ", ".join(f"{labels[c]!r} ({counts[c]} rows)" for c in short[:5]) + (", …" if len(short) > 5 else "")
        asked = "" if validation is None else f" beside those for validation={validation}"
        raise ValueError(
            f"{len(short)} classes have no row to train on{asked}: {names}. Give more rows, fewer of them to "
            "validation, or leave the classes out of the labels."
        )
    order = np.random.default_rng([seed, _SPLIT]).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]  # class after class, random within
    place = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    held_out = place < np.repeat(wanted, counts)
    return np.sort(order[~held_out]), np.sort(order[held_out])


def epoch_plan(rows: np.ndarray, batch_size: int, seed: int, epoch: int) -> list[Batch]:
    """Full batches of the rows in random order; fewer rows than a batch are left over and left out."""
    order = np.random.default_rng([seed, _ORDER, epoch]).permutation(rows)
    steps = len(rows) // batch_size
    return [
        Batch(some, key(seed, _STEP, epoch, step))
        for step, some in enumerate(order[: steps * batch_size].reshape(steps, -1))
    ]


def clean_plan(rows: np.ndarray, at_once: int) -> list[Batch]:
    """All rows in their order, unchanged."""
    return [Batch(rows[first : first + at_once]) for first in range(0, len(rows), at_once)]


def key(seed: int, *purpose: int) -> int:
    """A seed for one purpose."""
    words = np.random.SeedSequence([seed, *purpose]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))  # fits every generator's signed 64 bits
