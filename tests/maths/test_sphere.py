"""Rows of unit length."""

from __future__ import annotations

import numpy as np

from gptree.maths.sphere import unit_length


def test_unit_length():
    X = np.array([[3e-310, 4e-310], [3e300, -4e300], [0.0, 0.0]])
    np.testing.assert_allclose(unit_length(X), [[0.6, 0.8], [0.6, -0.8], [0, 0]], rtol=1e-12)
