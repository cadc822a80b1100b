"""What does not change a model: the order of its rows, and the scale and rotation of signed features."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from joblib import parallel_config
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from gptree import (
    CoordinateAscent,
    Gibbs,
    GPForestClassifier,
    GPTreeClassifier,
    Growth,
    Herding,
    InducingPoints,
    KMeansExemplars,
    KMeansPlusPlusExemplars,
    LearnKernel,
    SessionTree,
    SparseVariational,
    load_model,
)
from gptree.estimators.row_order import by_value, direction, shuffled
from gptree.incremental import Selection
from small_sizes import small_random_features

CLASSES, D, SHOTS = 6, 6, 9
RNG = np.random.default_rng(0)
Y = np.array([f"class {c}" for c in np.repeat(np.arange(CLASSES), SHOTS)])
CENTRES = RNG.normal(size=(CLASSES, D))
X = np.repeat(CENTRES, SHOTS, axis=0) + 0.6 * RNG.normal(size=(len(Y), D))
QUERIES = CENTRES.repeat(4, axis=0) + 0.8 * RNG.normal(size=(4 * CLASSES, D))
FEATURES = {
    "real": (X, QUERIES),
    "binary": ((X > 0.3).astype(float), (QUERIES > 0.3).astype(float)),
    "whole numbers": (np.round(2 * X), np.round(2 * QUERIES)),
}
KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "zero mean": {"prior_mean": None, "predict_at": "quadrature"},
    "few inducing points": {"node_limit": InducingPoints(12)},
    "subset of data": {"node_limit": 15},
    "gibbs": {"inference": Gibbs(chains=2, steps=2), "prior_mean": None},
    "sparse": {"inference": SparseVariational(inducing=3)},
    "mini-batches": {"inference": SparseVariational(inducing=2, batch_size=10, sweeps=4, tolerance=1e9)},
    "learnt kernel": {"inference": CoordinateAscent(sweeps=3, tolerance=1e9, learn=LearnKernel(steps=2))},
    "scikit-learn": {"prior_mean": LogisticRegression()},
    "own map": {"feature_map": PCA(3)},
    "single precision": {"dtype": "float32"},
    "growth": {"growth": Growth(exemplars=4)},
    "herding": {"growth": Growth(exemplars=3, selection=Herding()), "prior_mean": "lda"},
    "k-means++": {"growth": Growth(exemplars=3, selection=KMeansPlusPlusExemplars()), "prior_mean": None},
}


@pytest.fixture(autouse=True)
def few_random_features() -> Iterator[None]:
    with small_random_features():
        yield


def make(kind: str, **parameters: Any) -> GPForestClassifier:
    return GPForestClassifier(**{"n_estimators": 2, "random_state": 0, "device": "cpu", **KINDS[kind], **parameters})


@cache
def expected(kind: str, features: str = "real") -> np.ndarray:
    given, queries = FEATURES[features]
    return make(kind).fit(given, Y).predict_proba(queries)


ORDER = np.random.default_rng(1).permutation(len(Y))


@pytest.mark.parametrize(
    ("kind", "features"),
    [*((kind, "real") for kind in KINDS), *product(("default", "growth"), ("binary", "whole numbers"))],
)
def test_the_order_of_rows_does_not_matter(kind: str, features: str) -> None:
    given, queries = FEATURES[features]
    found = make(kind).fit(given[ORDER], Y[ORDER]).predict_proba(queries)
    np.testing.assert_allclose(found, expected(kind, features), rtol=0, atol=1e-8)


def test_a_single_tree_and_an_array_by_columns() -> None:
    one, other = (GPTreeClassifier(random_state=0, device="cpu") for _ in range(2))
    found = one.fit(np.asfortranarray(X[ORDER]), Y[ORDER]).predict_proba(QUERIES)
    np.testing.assert_allclose(found, other.fit(X, Y).predict_proba(QUERIES), rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", ["default", "growth"])
def test_equal_rows_of_which_some_are_held_out(kind: str) -> None:
    given, held_out = np.round(X), np.tile(np.arange(SHOTS) % 2 == 0, CLASSES)
    given[1::2] = given[::2]
    one, other = make(kind).fit(given, Y, held_out=held_out), make(kind)
    other.fit(given[ORDER], Y[ORDER], held_out=held_out[ORDER])
    np.testing.assert_allclose(other.predict_proba(QUERIES), one.predict_proba(QUERIES), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("kind", "features"),
    [
        ("default", "real"),
        ("default", "binary"),
        ("zero mean", "whole numbers"),
        ("growth", "real"),
        ("growth", "whole numbers"),
    ],
)
def test_the_order_of_rows_within_a_call_does_not_matter_to_a_grown_model(kind: str, features: str, tmp_path) -> None:
    given, queries = FEATURES[features]
    base, rest = Y < "class 3", (Y >= "class 3") & (Y < "class 5")
    more = np.isin(Y, ["class 0", "class 3"]) & (np.arange(len(Y)) % 2 == 0)

    def grown(shuffled: bool) -> GPForestClassifier:
        random = np.random.default_rng(7)
        model = make(kind, **({"growth": Growth(strategy=SessionTree())} if kind == "growth" else {}))
        for step, rows in ((model.fit, base), (model.add_classes, rest), (model.add_examples, more)):
            at = np.flatnonzero(rows)
            at = random.permutation(at) if shuffled else at
            step(given[at], Y[at])
        return model

    model, other = grown(False), grown(True)
    np.testing.assert_allclose(other.predict_proba(queries), model.predict_proba(queries), rtol=0, atol=1e-8)
    # a saved one goes on as the one in memory does, though its rows are in an order of their own
    other.save(tmp_path / "model")
    last = Y == "class 5"
    again = load_model(tmp_path / "model", device="cpu").add_classes(given[last][::-1], Y[last])
    model.add_classes(given[last], Y[last])
    np.testing.assert_allclose(again.predict_proba(queries), model.predict_proba(queries), rtol=0, atol=1e-8)


def test_which_call_brought_an_example_does_not_matter() -> None:
    base, later = Y < "class 4", Y >= "class 4"
    extra = np.isin(Y, ["class 0", "class 1"])
    one = make("default").fit(X[base], Y[base]).add_classes(X[later], Y[later]).add_examples(X[extra], Y[extra])
    two = make("default").fit(X[base], Y[base]).add_classes(X[later], Y[later])
    for label in ("class 1", "class 0"):
        chosen = np.flatnonzero(np.isin(Y, [label]))
        two.add_examples(X[chosen], Y[chosen])
    np.testing.assert_allclose(two.predict_proba(QUERIES), one.predict_proba(QUERIES), rtol=0, atol=1e-8)


def test_explanations_name_rows_as_they_were_given() -> None:
    given, labels = X[ORDER], Y[ORDER]
    model = make("herding").fit(given, labels)
    for i, explained in enumerate(model.explain(given[:9], n_neighbours=1)):
        (near,) = explained.neighbours
        assert labels[near.row] == explained.label
        mapped = model.state_.features(given[[i, near.row]])
        assert near.similarity == pytest.approx(float(torch.cosine_similarity(mapped[0], mapped[1], dim=0)), abs=1e-12)


ROTATION = np.linalg.qr(np.random.default_rng(3).normal(size=(D, D)))[0]


@pytest.mark.parametrize("turn", [3.7 * np.eye(D), 1e150 * np.eye(D), 1e-3 * ROTATION])
@pytest.mark.parametrize("kind", ["default", "zero mean", "few inducing points", "subset of data", "gibbs", "sparse"])
def test_scale_and_rotation_of_signed_features_do_not_matter(kind: str, turn: np.ndarray) -> None:
    model = make(kind).fit(X[ORDER] @ turn, Y[ORDER])
    np.testing.assert_allclose(model.predict_proba(QUERIES @ turn), expected(kind), rtol=0, atol=2.5e-12)


@pytest.mark.parametrize("selection", [KMeansExemplars(), Herding()])
def test_scale_and_rotation_do_not_matter_to_exemplars(selection: Selection) -> None:
    """Clusters of two rows have both at the same distance from their centre."""
    one, other = (make("herding", growth=Growth(exemplars=5, selection=selection)) for _ in range(2))
    one.fit(X, Y)
    other.fit(X @ (3.7 * ROTATION), Y)
    assert np.array_equal(one.state_.origins, other.state_.origins)
    found = other.predict_proba(QUERIES @ (3.7 * ROTATION))
    np.testing.assert_allclose(found, one.predict_proba(QUERIES), rtol=0, atol=2.5e-12)


def test_workers_do_not_matter() -> None:
    with parallel_config("threading"):
        found = make("default", n_jobs=2).fit(X, Y).predict_proba(QUERIES)
    np.testing.assert_allclose(found, expected("default"), rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------------------ the order


def test_rows_by_value() -> None:
    random = np.random.default_rng(4)
    given, codes = random.integers(2, size=(200, 4)) * 1.0, random.integers(3, size=200)
    given[random.random(given.shape) < 0.3] *= -1.0  # and some zeros are −0
    weights = random.integers(0, 3, 200) / 3
    order = by_value(given, codes, weights)
    assert sorted(order) == np.flatnonzero(weights).tolist()
    assert np.all(np.diff(codes[order]) >= 0)
    again = random.permutation(200)
    other = again[by_value(given[again], codes[again], weights[again])]
    for values in (given, codes, weights):
        assert np.array_equal(values[order], values[other])


def test_rows_along_a_direction() -> None:
    features, codes = torch.as_tensor(X), np.repeat(np.arange(CLASSES), SHOTS)
    labels = sorted(set(Y.tolist()))
    along = direction(features, torch.as_tensor(codes), labels)
    turned = features @ torch.as_tensor(ROTATION)
    torch.testing.assert_close(direction(turned, torch.as_tensor(codes), labels), along @ torch.as_tensor(ROTATION))
    order = shuffled(features, codes, along, labels, seed=0)
    assert np.array_equal(codes[order], codes)
    assert sorted(order) == list(range(len(codes)))
    assert not np.array_equal(order, shuffled(features, codes, along, labels, seed=1))
    places = np.random.default_rng(5).permutation(len(codes))
    other = shuffled(features[places], codes[places], along, labels, seed=0)
    assert np.array_equal(places[other], order)


def test_the_two_rows_of_a_class_are_told_apart() -> None:
    """They are equally far from their mean; the order along the direction must not be left to rounding."""
    codes = np.repeat(np.arange(5), 2)
    features = torch.nn.functional.normalize(torch.as_tensor(RNG.normal(size=(10, D))), dim=1)
    projections = features @ direction(features, torch.as_tensor(codes), list("abcde"))
    assert float((projections[::2] - projections[1::2]).abs().min()) > 1e-6
