"""Made-up features, a deterministic stand-in for image features from a deep network; nothing is read.

A common offset, one of 20 super-classes, an offset of the class that lies mostly in the noise subspace, so that classes
overlap, and noise of rank 64 with a power-law spectrum in one basis common to all classes, plus a little white noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

STREAM, COMMON = 2, 10**6  # streams of random numbers: classes have (seed, 2, 0), …; what they share (seed, 2, 10⁶)
SUPERS, RANK = 20, 64


class Features(NamedTuple):
    """Unit rows (float32) sorted by class, and their labels (int64)."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def make(classes: int, d: int = 2048, n_train: int = 30, n_test: int = 15, seed: int = 0) -> Features:
    """Features of so many classes. Class k does not depend on their number."""
    x = np.stack(list(class_by_class(classes, n_train + n_test, d, seed=seed)))
    y = np.arange(classes, dtype=np.int64)
    return Features(
        x[:, :n_train].reshape(-1, d),
        np.repeat(y, n_train),
        x[:, n_train:].reshape(-1, d),
        np.repeat(y, n_test),
    )


def class_by_class(classes: int, count: int, d: int = 2048, noise: float = 1.8, seed: int = 0) -> Iterator[np.ndarray]:
    """`count` unit rows (float32) of one class after the other, for data that should not be in memory twice."""
    if d < RANK:
        raise ValueError(f"Structured features need d ≥ {RANK}, got {d}.")
    common = np.random.default_rng([seed, STREAM, COMMON])
    offset = _unit(common.standard_normal(d))
    supers = 0.7 * _unit(common.standard_normal((SUPERS, d)))
    basis = np.linalg.qr(common.standard_normal((d, RANK)))[0].T
    spectrum = np.arange(1, RANK + 1) ** -0.5
    spectrum = spectrum / np.linalg.norm(spectrum)
    for k in range(classes):
        rng = np.random.default_rng([seed, STREAM, k])
        offset_of_class = 0.45 * _unit(spectrum * rng.standard_normal(RANK)) @ basis + 0.15 * _unit(
            rng.standard_normal(d)
        )
        centre = offset + supers[rng.integers(SUPERS)] + offset_of_class
        low_rank = noise * (rng.standard_normal((count, RANK)) * spectrum) @ basis
        yield _unit(centre + low_rank + 0.5 * noise * rng.standard_normal((count, d)) / np.sqrt(d)).astype(np.float32)


def _unit(v: np.ndarray) -> np.ndarray:
    return v / np.linalg.norm(v, axis=-1, keepdims=True)
