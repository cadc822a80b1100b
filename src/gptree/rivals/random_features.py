"""Random ReLU features."""

from __future__ import annotations

import numpy as np


def random_projection(x: np.ndarray, features: int, seed: int) -> np.ndarray:
    """W (d, features) of independent N(0, 1) for rows like those of x (n, d)."""
    return np.random.default_rng(seed).standard_normal((x.shape[1], features)).astype(x.dtype)


def relu_features(x: np.ndarray, projection: np.ndarray) -> np.ndarray:
    """relu(Wᵀx) of each row, (n, features)."""
    return np.maximum(x @ projection, 0)
