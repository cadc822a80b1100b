"""Features at the ends of what numbers can be: a model with possible probabilities, or a ValueError with a sentence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from growth import check_possible
from parts import Part

from gptree import (
    CoordinateAscent,
    Gibbs,
    GPForestClassifier,
    GPTreeClassifier,
    Growth,
    SparseVariational,
)

TRIES = 10
ALWAYS: dict[str, Any] = {"random_state": 0, "device": "cpu"}
MODELS: tuple[Callable[[], Any], ...] = (
    lambda: GPForestClassifier(n_estimators=2, growth=Growth(exemplars=2), **ALWAYS),
    lambda: GPTreeClassifier(**ALWAYS),
    lambda: GPTreeClassifier(prior_mean=None, kernel="linear", inference=CoordinateAscent(), **ALWAYS),
    lambda: GPTreeClassifier(prior_mean="lda", kernel="matern52", inference=SparseVariational(), **ALWAYS),
    lambda: GPTreeClassifier.paper("rbf", inference=Gibbs(chains=2), growth=Growth(exemplars=2), **ALWAYS),
    lambda: GPTreeClassifier(predict_at="quadrature", **ALWAYS),
)


def as_it_is(X: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return X


def scaled(X: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return X * 10.0 ** random.integers(-300, 300)


def columns_scaled(X: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return X * 10.0 ** random.integers(-150, 150, size=X.shape[1])


def far_away(X: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return X + 10.0 ** random.integers(0, 18)


def constant_columns(X: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return np.where(random.random(X.shape[1]) < 0.7, 1.0, X)


def all_equal(X: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return np.full_like(X, random.choice([0.0, 1.0, -1e30, 5e-324]))


def repeated(X: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return X[random.integers(0, min(2, len(X)), size=len(X))]


def whole_numbers(X: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return np.sign(np.round(X))


def one_outlier(X: np.ndarray, random: np.random.Generator) -> np.ndarray:
    X = X.copy()
    X[random.integers(len(X))] *= 10.0 ** random.integers(5, 200)
    return X


def mostly_zero(X: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return np.where(random.random(X.shape) < 0.95, 0.0, X)


def tiny_differences(X: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return 1.0 + X * 2.0**-50


def not_a_number(X: np.ndarray, random: np.random.Generator) -> np.ndarray:
    X = X.copy()
    X[random.integers(len(X)), 0] = random.choice([np.nan, np.inf, -np.inf])
    return X


CHANGES = (
    as_it_is,
    scaled,
    columns_scaled,
    far_away,
    constant_columns,
    all_equal,
    repeated,
    whole_numbers,
    one_outlier,
    mostly_zero,
    tiny_differences,
    not_a_number,
)


def draw(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """Features of known and of further rows, labels, and what was done to them."""
    classes, width = int(random.integers(1, 7)), int(random.choice([1, 2, 5, 40]))
    counts = random.choice([1, 2, 5, 9], size=classes)
    y = np.repeat(np.arange(classes), counts)
    X = random.normal(size=(classes, width))[y] + 0.5 * random.normal(size=(len(y), width))
    change, other = (CHANGES[i] for i in random.integers(len(CHANGES), size=2))
    X = change(X, random)
    if random.random() < 0.2:
        X = X.astype(np.float32)
    queries = X if random.random() < 0.5 else other(X, random)
    return X, y, queries, f"{change.__name__}, {other.__name__}, {X.shape}, {X.dtype}"


def one_try(random: np.random.Generator) -> None:
    X, y, queries, what = draw(random)
    kind = int(random.integers(len(MODELS)))
    model = MODELS[kind]()
    try:
        fit_and_ask(model, X, y, queries, random)
    except ValueError as error:
        if len(str(error)) < 20:
            raise AssertionError(f"an error without a sentence: {error!r}") from error
    except Exception as error:
        error.add_note(f"model {kind}, {what}")
        raise


def fit_and_ask(model: Any, X: np.ndarray, y: np.ndarray, queries: np.ndarray, random: np.random.Generator) -> None:
    model.fit(X, y)
    check_possible(model.predict_proba(X))
    check_possible(model.predict_proba(queries))
    scores = model.novelty_score(queries)
    assert not np.isnan(scores).any(), "a novelty score is not a number"
    model.predict_open(queries)
    if model.growth is not None:
        model.add_classes(queries[:2], np.full(len(queries[:2]), 100 + int(random.integers(9))))
        check_possible(model.predict_proba(queries))


def check_extremes(unit: int, folder: Path) -> int:
    random = np.random.default_rng([unit, 11])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for _ in range(TRIES):
            one_try(random)
    return TRIES


PARTS = (
    Part(
        "extremes",
        "Features at the ends of what numbers can be: huge, tiny, equal, repeated, a class of one row, NaN",
        500,
        check_extremes,
    ),
)
