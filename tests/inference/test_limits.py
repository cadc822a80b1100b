"""How large nodes choose their points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptree.inference import InducingPoints, SubsetOfData, as_large_nodes, class_quota

COUNTS = st.lists(st.integers(1, 60), min_size=1, max_size=12)


@given(COUNTS, st.integers(2, 300))
def test_quota_is_the_largest_that_fits(counts: list[int], points: int) -> None:
    quota = class_quota(counts, points)

    def total(q: int) -> int:
        return sum(min(n, q) for n in counts)

    assert total(quota) <= points
    assert 0 <= quota <= max(counts)
    assert quota == max(counts) or total(quota + 1) > points
    if quota == 0:
        assert len(counts) > points
    if sum(counts) <= points:
        assert total(quota) == sum(counts)


def test_quota_of_no_classes() -> None:
    assert class_quota([], 10) == 0


@pytest.mark.parametrize("sparse", [False, True])
def test_settings_as_values(sparse: bool) -> None:
    assert as_large_nodes(None, sparse) is None
    assert as_large_nodes("auto", sparse) == (InducingPoints() if sparse else SubsetOfData())
    assert as_large_nodes(7, sparse) == SubsetOfData(7)
    assert as_large_nodes(np.int64(7), sparse) == SubsetOfData(7)
    assert as_large_nodes(InducingPoints(5), sparse) == InducingPoints(5)
    for bad in (True, "7", 7.0):
        with pytest.raises(TypeError, match="node_limit must be"):
            as_large_nodes(bad, sparse)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("family", [SubsetOfData, InducingPoints])
def test_bad_settings_are_refused(family: type) -> None:
    with pytest.raises(ValueError, match="at least two"):
        family(1)
