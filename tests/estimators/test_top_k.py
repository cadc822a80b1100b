"""The most probable classes of rows, and what is left for the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gptree import GPTreeClassifier
from gptree.estimators.top_k import top_k

RNG = np.random.default_rng(0)
Y = np.repeat(["cat", "cow", "dog", "eel", "fox"], 4)
X = np.repeat(RNG.normal(size=(5, 4)), 4, 0) + 0.5 * RNG.normal(size=(20, 4))


@pytest.fixture(scope="module")
def model() -> GPTreeClassifier:
    return GPTreeClassifier(random_state=0).fit(X, Y)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_they_are_those_of_a_sorted_row(model: GPTreeClassifier, k: int) -> None:
    p, found = model.predict_proba(X), model.predict_top_k(X, k)
    for row, classes, probabilities, outside in zip(p, *found, strict=True):
        ranked = sorted(zip(row, model.classes_, strict=True), key=lambda pair: -pair[0])
        assert classes.tolist() == [label for _, label in ranked[:k]]
        np.testing.assert_allclose(probabilities, [value for value, _ in ranked[:k]])
        np.testing.assert_allclose(outside, sum(value for value, _ in ranked[k:]), atol=1e-15)
    assert np.array_equal(found.classes[:, 0], model.predict(X))


def test_of_equal_ones_the_first() -> None:
    found = top_k(np.array(list("abcd")), np.array([[0.0, 0.5, 0.5, 0.0]]), 3)
    assert found.classes.tolist() == [["b", "c", "a"]]
    assert found.outside.tolist() == [0.0]


@pytest.mark.parametrize("k", [0, 6, -1, 2.0, True, "2", None])
def test_how_many_there_are(model: GPTreeClassifier, k: Any) -> None:
    with pytest.raises(ValueError, match="k must be a whole number from 1 to the 5 classes"):
        model.predict_top_k(X, k)
