"""Inner products of many features of unit length, in chunks, and in single precision once there are many."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gptree.experts.base import ScoreCache, cached
from gptree.experts.examples import CHUNK_SIZE, check_features

DOUBLE_UP_TO = 1_500
"""Beyond this many points, inner products and kernels are computed in single precision: twice as fast, and an
error of 1e-7 in g moves no score by more than 1e-4."""


LEAST_ROWS = 48
"""So many rows meet all points at once: with fewer a processor reads the points more than it computes."""


def working_dtype(points: int, dtype: torch.dtype) -> torch.dtype:
    return dtype if points <= DOUBLE_UP_TO else torch.float32


def check_unit_length(X: Tensor) -> None:
    """Raise a ValueError if features are longer than one; shorter ones, such as zero, are harmless."""
    longest = float(torch.linalg.vector_norm(X, dim=1).max())  # no copy of them
    if longest > 1 + 1e-3:
        raise ValueError(f"features must be of unit length; one has length {longest:.4g}. Normalise them first.")


def chunks(rows: int, points: int, device: torch.device) -> Iterator[Tensor]:
    """Row numbers in parts, so that a (part, points) array stays small."""
    yield from torch.arange(rows, device=device).split(max(CHUNK_SIZE // points, LEAST_ROWS))


def shared_products(cache: ScoreCache | None, X: Tensor, points: Tensor) -> Tensor | None:
    """Inner products (n, T) of points (n, d) with X (T, d), kept in the cache; None if they are too many to keep."""
    if cache is None or X.dtype != points.dtype or len(X) * len(points) > 8 * CHUNK_SIZE:
        return None

    def product() -> Tensor:
        check_features(X, points.shape[1])
        return points @ X.T

    return cached(cache, ("products", id(X), points.data_ptr()), product)
