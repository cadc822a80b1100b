"""Strangers are turned away, and so are known rows, about as often as asked; too little evidence is said."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from gptree import GPTreeClassifier, Growth
from small_sizes import small_random_features

CLASSES, STRANGERS, WIDTH = 8, 4, 16


def rows(seed: int, shots: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows and labels, new rows of these classes, and rows of other classes."""
    random = np.random.default_rng(seed)
    means = random.normal(size=(CLASSES + STRANGERS, WIDTH))

    def of(first: int, last: int, count: int) -> np.ndarray:
        y = np.repeat(np.arange(first, last), count)
        return means[y] + random.normal(size=(len(y), WIDTH))

    total = CLASSES + STRANGERS
    return of(0, CLASSES, shots), np.repeat(np.arange(CLASSES), shots), of(0, CLASSES, 20), of(CLASSES, total, 20)


def test_few_shots_err_upwards() -> None:
    """20 draws of 8 classes × 3 rows. The mean share has a standard error of 0.015: 3σ from either end."""
    known, unknown = [], []
    for seed in range(20):
        X, y, friends, strangers = rows(seed, 3)
        model = GPTreeClassifier(random_state=0).fit(X, y)
        with pytest.warns(UserWarning, match="24 left-out examples are too few .* 0.05 .* 0.16, is taken"):
            known.append(np.mean(model.predict_open(friends, reject=0.05, unknown=-1) == -1))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            unknown.append(np.mean(model.predict_open(strangers, reject=0.16, unknown=-1) == -1))
    assert 0.05 < np.mean(known) < 0.15
    assert np.mean(unknown) > 2 * np.mean(known)


@pytest.mark.parametrize("growth", [None, Growth(shots=3)], ids=["all rows kept", "exemplars"])
def test_few_shots_err_upwards_after_growth(growth: Growth | None) -> None:
    """As above, three of the eight classes in a later session; 12 draws, 0.08 with a standard error of 0.02."""
    known, unknown = [], []
    for seed in range(12):
        X, y, friends, strangers = rows(seed, 3)
        base = y < 5
        with small_random_features():
            model = GPTreeClassifier(random_state=0, growth=growth).fit(X[base], y[base])
            model.add_classes(X[~base], y[~base])
        with pytest.warns(UserWarning, match="24 left-out examples are too few .* 0.05 .* 0.16, is taken"):
            known.append(np.mean(model.predict_open(friends, reject=0.05, unknown=-1) == -1))
        unknown.append(np.mean(model.predict_open(strangers, reject=0.16, unknown=-1) == -1))
    assert 0.03 < np.mean(known) < 0.15
    assert np.mean(unknown) > 2 * np.mean(known)


def test_what_is_kept_of_base_nodes_changes_nothing() -> None:
    """Thresholds of a model that was asked before every change, and of one that was not."""
    X, y, friends, strangers = rows(0, 6)
    asked, silent = (GPTreeClassifier(random_state=0).fit(X, y) for _ in range(2))

    def change(model: GPTreeClassifier, step: int) -> None:
        if step == 0:
            model.add_classes(strangers[:5], [20] * 5)
        elif step == 1:
            model.add_examples(friends[:3], [0] * 3)
        elif step == 2:
            model.add_classes(strangers[20:25], [21] * 5)
        else:
            model.remove_classes([1])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for step in range(4):
            for model in (asked, silent):
                change(model, step)
            asked.novelty_threshold(0.2)
        asked.add_classes(strangers[40:45], [22] * 5)
        silent.add_classes(strangers[40:45], [22] * 5)
        assert asked.novelty_threshold(0.2) == silent.novelty_threshold(0.2)
        assert np.array_equal(asked.predict_set(friends), silent.predict_set(friends))


def test_a_warning_points_at_the_caller() -> None:
    X, y, friends, _ = rows(0, 3)
    model = GPTreeClassifier(random_state=0).fit(X, y)
    for ask in (lambda: model.predict_open(friends), model.novelty_threshold):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            ask()
        assert [each.filename for each in seen] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.novelty_threshold(0.0) == 1.0  # nobody is to be turned away
