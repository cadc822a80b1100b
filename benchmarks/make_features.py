"""Deterministic stand-in for image features from a deep network.

    python -m benchmarks.make_features CLASSES OUT.npz [--kind flat] [--seed 0]

flat: a random unit vector a class, plus white noise.
structured: nearer to a network's features. A common offset, one of 20 super-classes, an own offset of the
class that lies mostly in the noise subspace, so that classes overlap, and noise of rank 64 with a power-law
spectrum in one basis common to all classes, plus a little white noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np

Kind = Literal["flat", "structured"]

TAG = {"flat": 1, "structured": 2}  # keeps the random streams of the kinds apart
NOISE = {"flat": 5.0, "structured": 1.8}
COMMON = 10**6  # the stream of what all classes share; classes have the streams 0, 1, …
SUPERS, RANK = 20, 64


class Features(NamedTuple):
    """Unit rows (float32) sorted by class, and their labels (int64)."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def make(
    classes: int,
    kind: Kind = "flat",
    d: int = 2048,
    n_train: int = 30,
    n_test: int = 15,
    noise: float | None = None,
    seed: int = 0,
) -> Features:
    """Features of so many classes. Class k does not depend on their number: its stream is (seed, kind, k)."""
    x = np.stack(list(class_by_class(classes, n_train + n_test, kind, d, noise, seed)))
    y = np.arange(classes, dtype=np.int64)
    return Features(
        x[:, :n_train].reshape(-1, d),
        np.repeat(y, n_train),
        x[:, n_train:].reshape(-1, d),
        np.repeat(y, n_test),
    )


def class_by_class(
    classes: int, count: int, kind: Kind = "flat", d: int = 2048, noise: float | None = None, seed: int = 0
) -> Iterator[np.ndarray]:
    """`count` unit rows (float32) of one class after the other, for data that should not be in memory twice."""
    tag, noise = TAG[kind], NOISE[kind] if noise is None else noise
    common = np.random.default_rng([seed, tag, COMMON])
    points = _flat(d, noise) if kind == "flat" else _structured(d, noise, common)
    for k in range(classes):
        yield _unit(points(np.random.default_rng([seed, tag, k]), count)).astype(np.float32)


Points = Callable[[np.random.Generator, int], np.ndarray]


def _flat(d: int, noise: float) -> Points:
    def points(rng: np.random.Generator, n: int) -> np.ndarray:
        centre = _unit(rng.standard_normal(d))
        return centre + noise * rng.standard_normal((n, d)) / np.sqrt(d)

    return points


def _structured(d: int, noise: float, common: np.random.Generator) -> Points:
    if d < RANK:
        raise ValueError(f"Structured features need d ≥ {RANK}, got {d}.")
    offset = _unit(common.standard_normal(d))
    supers = 0.7 * _unit(common.standard_normal((SUPERS, d)))
    basis = np.linalg.qr(common.standard_normal((d, RANK)))[0].T
    spectrum = np.arange(1, RANK + 1) ** -0.5
    spectrum = spectrum / np.linalg.norm(spectrum)

    def points(rng: np.random.Generator, n: int) -> np.ndarray:
        own = 0.45 * _unit(spectrum * rng.standard_normal(RANK)) @ basis + 0.15 * _unit(rng.standard_normal(d))
        centre = offset + supers[rng.integers(SUPERS)] + own
        low_rank = noise * (rng.standard_normal((n, RANK)) * spectrum) @ basis
        return centre + low_rank + 0.5 * noise * rng.standard_normal((n, d)) / np.sqrt(d)

    return points


def _unit(v: np.ndarray) -> np.ndarray:
    return v / np.linalg.norm(v, axis=-1, keepdims=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write deterministic stand-in features to an .npz file.")
    parser.add_argument("classes", type=int)
    parser.add_argument("out")
    parser.add_argument("--kind", default="flat", choices=list(TAG))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", type=float)
    asked = parser.parse_args()
    features = make(asked.classes, asked.kind, seed=asked.seed, noise=asked.noise)
    np.savez(asked.out, **features._asdict())


if __name__ == "__main__":
    main()
