"""The feature maps against plain loops."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from gptree import SphereMap, UnitLength

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


@pytest.mark.parametrize("transformer", [SphereMap(), UnitLength()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_transformers_pass_scikit_learns_checks(transformer):
    check_estimator(transformer)
