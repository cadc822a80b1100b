"""The feature maps against plain loops."""

import tracemalloc

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from gptree import SphereMap, UnitLength
from gptree.estimators import feature_map
from gptree.estimators.feature_map import all_finite, row_chunks

RNG = np.random.default_rng(1)


def slow_sphere(train, rows):
    non_negative = all(value >= 0 for row in train for value in row)

    def first(row):
        row = np.array([np.sqrt(max(value, 0.0)) for value in row]) if non_negative else row
        return row / np.sqrt(sum(value**2 for value in row))

    mean = sum(first(row) for row in train) / len(train)
    out = [first(row) - mean for row in rows]
    return np.array([row / np.sqrt(sum(value**2 for value in row)) for row in out])


@pytest.mark.parametrize("train", [RNG.normal(size=(20, 5)), RNG.random((20, 5))], ids=["signed", "non-negative"])
def test_sphere_map_twin(train):
    new = RNG.normal(size=(7, 5))
    np.testing.assert_allclose(SphereMap().fit(train).transform(new), slow_sphere(train, new), atol=1e-12)


def test_unit_length_keeps_zero_rows_and_survives_extremes():
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [3e-310, 4e-310], [3e300, 4e300]])
    np.testing.assert_allclose(UnitLength().fit(rows).transform(rows), [[0.6, 0.8], [0, 0], [0.6, 0.8], [0.6, 0.8]])


def test_float32_stays_float32():
    rows = RNG.random((5, 3), dtype=np.float32)
    assert SphereMap().fit(rows).transform(rows).dtype == np.float32


# --------------------------------------------------------------------------------------------------- large matrices


@pytest.mark.parametrize("numbers", [1, 15, 10**6])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shift", [0.0, 0.5], ids=["non-negative", "signed"])
def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch, numbers: int, order, shift: float) -> None:
    train = np.asarray(RNG.random((20, 5)) - shift, order=order)
    monkeypatch.setattr(feature_map, "CHUNK_NUMBERS", numbers)
    assert sum(1 for _ in row_chunks(train)) == {1: 20, 15: 7, 10**6: 1}[numbers]
    np.testing.assert_allclose(SphereMap().fit(train).transform(train), slow_sphere(train, train), atol=1e-12)
    assert all_finite(train)
    train[-1, 2] = np.nan
    assert not all_finite(train)


@pytest.mark.parametrize("transformer", [SphereMap(), UnitLength()])
def test_memory_is_that_of_the_result(transformer) -> None:
    rows = RNG.random((120_000, 64), dtype=np.float32)
    tracemalloc.start()
    try:
        transformer.fit(rows)
        assert tracemalloc.get_traced_memory()[1] < rows.nbytes
        tracemalloc.reset_peak()
        out = transformer.transform(rows)
        assert tracemalloc.get_traced_memory()[1] < 2 * out.nbytes
    finally:
        tracemalloc.stop()


def test_pieces_keep_the_digits_of_a_float32_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_map, "CHUNK_NUMBERS", 2**14)
    rows = RNG.random((2**17, 16), dtype=np.float32)
    sphere = SphereMap().fit(rows)
    mapped = sphere._first(rows)
    exact = mapped.mean(0, dtype=np.float64)
    np.testing.assert_allclose(sphere.mean_, exact, rtol=1e-6)
    assert np.abs(mapped.mean(0) / exact - 1).max() > 3e-6  # what one sum over all rows gives


@pytest.mark.parametrize("transformer", [SphereMap(), UnitLength()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_transformers_pass_scikit_learns_checks(transformer):
    check_estimator(transformer)
