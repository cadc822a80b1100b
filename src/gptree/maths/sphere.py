"""Rows of unit length."""

from __future__ import annotations

import numpy as np


def unit_length(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their Euclidean length; zero rows stay zero.

    Parameters
    ----------
    rows : array (n, d)
        Of any scale: rows of size 1e-300 and 1e300 are scaled as exactly as others.

    Returns
    -------
    array (n, d)
    """
    # divided by their largest entries first, so that the squares are ordinary numbers
    tiny = np.finfo(rows.dtype).tiny
    scaled = rows / np.abs(rows).max(axis=1, keepdims=True, initial=tiny)
    return scaled / np.linalg.norm(scaled, axis=1, keepdims=True).clip(min=tiny)
