"""Smaller sizes for tests of growing models: the library's are for embeddings of hundreds of dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from gptree.incremental import base as base_session
from gptree.incremental import episodes


@contextmanager
def small_random_features(lda: int = 50, ridge: int = 60, shares: tuple[float, ...] = (0.2, 0.5)) -> Iterator[None]:
    """So many random features instead of 1,000 and 2,000, and episodes with these shares of novel classes."""
    with pytest.MonkeyPatch.context() as patch:
        small = replace(episodes.RANDOM_LDA, count=lda)
        patch.setattr(episodes, "NOVEL_SHARES", shares)
        patch.setattr(episodes, "RANDOM_LDA", small)
        patch.setattr(base_session, "RANDOM_LDA", small)
        patch.setattr(base_session, "BASE_RIDGE", replace(base_session.BASE_RIDGE, count=ridge))
        yield
