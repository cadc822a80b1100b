"""One thread for the linear algebra of NumPy and SciPy: the sizes are small, and tests may run side by side."""

from __future__ import annotations

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    with threadpool_limits(1):
        yield
