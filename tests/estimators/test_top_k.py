"""The most probable classes of rows, and what is left for the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gptree import GPForestClassifier, GPTreeClassifier
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


class TestOutsideWithABeam:
    """`outside` bounds what `predict_proba` gives all other classes together."""

    @pytest.mark.parametrize("n_classes", [60, 300])
    @pytest.mark.parametrize("kind", [GPTreeClassifier, GPForestClassifier])
    def test_it_is_a_bound(self, kind: Any, n_classes: int) -> None:
        random = np.random.default_rng(n_classes)
        y = np.repeat(np.arange(n_classes), 2)
        X = random.normal(size=(n_classes, 12))[y] + 0.8 * random.normal(size=(len(y), 12))
        X_new = random.normal(size=(40, 12))
        model = kind(random_state=0).fit(X, y)
        p = model.predict_proba(X_new)
        sure = 0.0
        for beam in (1, 2, 4, 16):
            for k in (1, 5, 10):
                found = model.predict_top_k(X_new, k, beam=beam)
                others = p.copy()
                np.put_along_axis(others, found.classes, 0.0, 1)
                exact = others.sum(1)
                assert (found.outside >= exact - 1e-9).all()
                assert (found.outside <= 1).all()
                if beam == 1:  # what is not among the k by the beam's own probabilities is no bound
                    sure = max(sure, np.mean(1 - found.probabilities.sum(1) < exact - 1e-3))
        assert sure > 0.1
        assert np.mean(found.outside - exact) < 0.05  # a beam of 16, k = 10

    @pytest.mark.parametrize("kind", [GPTreeClassifier, GPForestClassifier])
    def test_of_a_beam_of_all_nodes_it_is_exact(self, kind: Any) -> None:
        random = np.random.default_rng(1)
        y = np.repeat(np.arange(60), 2)
        X = random.normal(size=(60, 12))[y] + 0.8 * random.normal(size=(len(y), 12))
        model = kind(random_state=0).fit(X, y)
        for k in (1, 5, 60):
            wide, whole = model.predict_top_k(X, k, beam=60), model.predict_top_k(X, k)
            np.testing.assert_allclose(wide.outside, whole.outside, rtol=1e-6, atol=1e-12)
        narrow = model.predict_top_k(X, 60, beam=1)
        assert not narrow.outside.any()  # there are no others
