"""Sizes that sessions hand on: shares of the memory budget, and how many labels an error names."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gptree import GPForestClassifier, Growth, load_model
from gptree.incremental.journal import _named
from small_sizes import small_random_features

BUDGET = 2**25


@pytest.fixture(autouse=True)
def few_random_features() -> Iterator[None]:
    with small_random_features(lda=10, ridge=12), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_every_model_of_a_session_has_the_same_shares_of_the_budget(tmp_path: Path) -> None:
    """A quarter for the Gram matrix, and an eighth for matrices at work, of 8 bytes a number."""
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 7)
    X = random.normal(size=(5, 4))[y] + 0.5 * random.normal(size=(35, 4))
    model = GPForestClassifier(n_estimators=1, growth=Growth(exemplars=3), memory_budget=BUDGET, device="cpu")

    def check(model: GPForestClassifier) -> None:
        predictor = model.model_.predictor
        assert model.model_.memory_budget == BUDGET
        assert predictor.grams._cache_bytes == BUDGET // 4
        assert predictor._work == BUDGET // 64

    check(model.fit(X[y < 4], y[y < 4]))
    check(model.add_examples(X[:2], y[:2]))
    check(model.add_classes(X[y == 4], y[y == 4]))
    check(model.remove_classes([0]))
    check(model.remove_classes([4]))
    model.save(tmp_path / "model")
    check(load_model(tmp_path / "model"))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "the label 'a' is"),
        (2, "the labels 'a', 'b' are"),
        (5, "the labels 'a', 'b', 'c', 'd', 'e' are"),
        (6, "the labels 'a', 'b', 'c', 'd', 'e', … are"),
    ],
)
def test_five_labels_are_named(count: int, text: str) -> None:
    assert _named("abcdefgh"[:count]) == text
