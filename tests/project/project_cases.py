"""Rows of four kinds of animals."""

from __future__ import annotations

import numpy as np

CENTRES = {"ant": (4, 0, 0, 0), "bee": (0, 4, 0, 0), "cow": (0, 0, 4, 0), "dog": (0, 0, 0, 4)}


def draws(label: str, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(CENTRES[label], 0.6, (count, 4))


def ids(label: str, what: str, count: int) -> list[str]:
    return [f"{what} {label} {i}" for i in range(count)]
