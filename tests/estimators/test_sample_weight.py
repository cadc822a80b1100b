"""A row of weight k is the row k times, one of weight 0 is none: equal rows of a class are one row everywhere."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
    KMeansPlusPlusExemplars,
    RebuildTree,
    SessionTree,
    SparseVariational,
    load_model,
)
from gptree.estimators.row_order import distinct
from gptree.experts import LDA, KernelRidge, Pool
from gptree.incremental import memory_left_out
from small_sizes import small_random_features

CLASSES, D, SHOTS = 5, 5, 7
RNG = np.random.default_rng(3)
Y = np.array([f"class {c}" for c in np.repeat(np.arange(CLASSES), SHOTS)])
CENTRES = RNG.normal(size=(CLASSES, D))
X = np.repeat(CENTRES, SHOTS, axis=0) + 0.7 * RNG.normal(size=(len(Y), D))
QUERIES = CENTRES.repeat(3, axis=0) + 0.8 * RNG.normal(size=(3 * CLASSES, D))
WEIGHTS = RNG.integers(0, 4, len(Y)).astype(float)
WEIGHTS[::SHOTS] = 2.0  # every class has an example
EQUAL = {"rtol": 0, "atol": 1e-8}

KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "fixed scale": {"kernel": "rbf"},
    "zero mean": {"prior_mean": None, "predict_at": "quadrature"},
    "few inducing points": {"node_limit": InducingPoints(8)},
    "subset of data": {"node_limit": 11},
    "gibbs": {"inference": Gibbs(chains=2, steps=2), "prior_mean": None, "kernel": "linear"},
    "sparse": {"inference": SparseVariational(inducing=3)},
    "mini-batches": {"inference": SparseVariational(inducing=2, batch_size=6, sweeps=4, tolerance=1e9)},
    "scikit-learn": {"prior_mean": LogisticRegression()},
    "own map": {"feature_map": PCA(3)},
    "single precision": {"dtype": "float32"},
    "prior": {"class_prior": "empirical", "prior_mean": "lda"},
    "growth": {"growth": Growth(exemplars=3)},
    "herding": {"growth": Growth(exemplars=3, selection=Herding()), "prior_mean": "lda"},
    "seeds": {"growth": Growth(exemplars=2, selection=KMeansPlusPlusExemplars()), "prior_mean": None},
}


def repeated(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    times = weights.astype(int)
    return np.repeat(X, times, axis=0), np.repeat(y, times)


@pytest.fixture(autouse=True)
def few_random_features() -> Iterator[None]:
    with small_random_features():
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_repeated_rows(kind: str) -> None:
    plain, other, again = (GPTreeClassifier(random_state=0, **KINDS[kind]) for _ in range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = plain.fit(X, Y, sample_weight=WEIGHTS).predict_proba(QUERIES)
        expected = other.fit(*repeated(X, Y, WEIGHTS)).predict_proba(QUERIES)
        unweighted = again.fit(X, Y).predict_proba(QUERIES)
    np.testing.assert_allclose(found, expected, **EQUAL)
    assert np.abs(found - unweighted).max() > 1e-3  # they do something
    assert plain.novelty_threshold() == pytest.approx(other.novelty_threshold(), abs=1e-8)
    assert plain.memory_.counts == other.memory_.counts


@settings(deadline=None, max_examples=8)
@given(
    st.lists(st.sampled_from([0.0, 0.25, 1.0, 2.0, 3.5]), min_size=len(Y), max_size=len(Y)),
    st.integers(0, 2**31 - 1),
)
def test_splitting_a_weight_over_equal_rows_changes_nothing(weights: list[float], seed: int) -> None:
    """Also fractions, and whatever the order of the rows."""
    w = np.array(weights)
    w[::SHOTS] += 0.5
    random = np.random.default_rng(seed)
    order = random.permutation(2 * len(Y))
    split = np.concatenate([w / 2, w / 2])[order]
    one = GPTreeClassifier(prior_mean="lda", random_state=0).fit(X, Y, sample_weight=w)
    two = GPTreeClassifier(prior_mean="lda", random_state=0)
    two.fit(np.concatenate([X, X])[order], np.concatenate([Y, Y])[order], sample_weight=split)
    np.testing.assert_allclose(one.predict_proba(QUERIES), two.predict_proba(QUERIES), **EQUAL)


def test_a_fraction_lies_between_what_it_is_between() -> None:
    """Of one row, from none over a half to three of it; and ones are no weights at all."""

    def probability(weight: float) -> float:
        w = np.ones(len(Y))
        w[0] = weight
        model = GPTreeClassifier(prior_mean=None, inference=CoordinateAscent(tolerance=1e-6), random_state=0)
        return float(model.fit(X, Y, sample_weight=w).predict_proba(X)[0, 0])

    found = [probability(weight) for weight in (0.0, 1e-6, 0.5, 1.0, 3.0)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    assert found[4] > found[1] + 0.05
    plain = GPTreeClassifier(random_state=0).fit(X, Y)
    ones = GPTreeClassifier(random_state=0).fit(X, Y, sample_weight=np.ones(len(Y)))
    assert np.array_equal(plain.predict_proba(QUERIES), ones.predict_proba(QUERIES))
    assert ones.state_.weights is None


@pytest.mark.parametrize("kind", ["default", "single precision", "growth"])
def test_weights_far_apart_give_probabilities(kind: str) -> None:
    weights = 10.0 ** np.random.default_rng(0).uniform(-6, 6, len(Y))
    probabilities = (
        GPTreeClassifier(random_state=0, **KINDS[kind]).fit(X, Y, sample_weight=weights).predict_proba(QUERIES)
    )
    np.testing.assert_allclose(probabilities.sum(1), 1.0, atol=1e-5)


def test_equal_rows_of_a_class_are_one_row() -> None:
    given = np.array([[1.0, 0.0], [-0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [2.0, 2.0]])
    codes = np.array([0, 0, 0, 1, 0, 1])
    found = distinct(given, codes, held_out=np.array([0, 0, 1, 0, 0, 0], dtype=bool))
    assert found.weights is not None
    assert found.held_out is not None
    table = zip(found.rows.tolist(), found.weights.tolist(), found.held_out.tolist(), strict=True)
    assert sorted(table) == [(0, 2.0, False), (1, 2.0, True), (3, 1.0, False), (5, 1.0, False)]
    found = distinct(given, codes, np.array([0.0, 0.5, 0.25, 0.0, 1.0, 1.0]))
    assert found.weights is not None
    assert sorted(zip(found.rows.tolist(), found.weights.tolist(), strict=True)) == [(2, 0.75), (4, 1.0), (5, 1.0)]
    assert distinct(given[[0, 1, 5]], codes[[0, 1, 5]]).weights is None


# ------------------------------------------------------------------------------------------------- classes that arrive

BASE = np.isin(Y, ["class 0", "class 1", "class 2"])
GROWING: dict[str, dict[str, Any]] = {
    "all rows kept": {},
    "exemplars": {"growth": Growth(exemplars=3)},
    "sessions": {"growth": Growth(exemplars=3, strategy=SessionTree()), "prior_mean": None},
    "rebuilt": {"growth": Growth(strategy=RebuildTree()), "prior_mean": Pool((LDA((0.3,)), KernelRidge((0.3,))))},
}


def lessons(*, by_weight: bool) -> list[tuple[str, np.ndarray, np.ndarray, np.ndarray | None]]:
    novel = ~BASE
    later = np.concatenate([X[novel][:2], QUERIES[:2], QUERIES[:1]])  # some that came before, some of base classes
    labels = np.concatenate([Y[novel][:2], ["class 0", "class 0", "class 0"]])
    given = [
        ("fit", X[BASE], Y[BASE], WEIGHTS[BASE]),
        ("add_classes", X[novel], Y[novel], WEIGHTS[novel]),
        ("add_examples", later, labels, np.array([1.0, 3.0, 2.0, 0.0, 1.0])),
    ]
    return [(name, x, y, w) if by_weight else (name, *repeated(x, y, w), None) for name, x, y, w in given]


def taught(kind: str, *, by_weight: bool) -> GPForestClassifier:
    model = GPForestClassifier(n_estimators=2, random_state=0, **GROWING[kind])
    for name, x, y, w in lessons(by_weight=by_weight):
        getattr(model, name)(x, y, sample_weight=w)
    return model


@pytest.mark.parametrize("kind", GROWING)
def test_lessons_with_weights_are_lessons_with_repeated_examples(kind: str, tmp_path: Any) -> None:
    one, other = taught(kind, by_weight=True), taught(kind, by_weight=False)
    np.testing.assert_allclose(one.predict_proba(QUERIES), other.predict_proba(QUERIES), **EQUAL)
    assert one.novelty_threshold() == pytest.approx(other.novelty_threshold(), abs=1e-8)
    one.save(tmp_path / "model")
    back = load_model(tmp_path / "model")
    assert np.array_equal(back.predict_proba(QUERIES), one.predict_proba(QUERIES))
    for model in (one, other, back):
        model.remove_classes(["class 4"]).undo().undo()  # back before the further examples
    np.testing.assert_allclose(one.predict_proba(QUERIES), other.predict_proba(QUERIES), **EQUAL)
    assert np.array_equal(back.predict_proba(QUERIES), one.predict_proba(QUERIES))
    for model in (one, other, back):
        model.merge_classes(["class 3", "class 4"], "both")
    np.testing.assert_allclose(one.predict_proba(QUERIES), other.predict_proba(QUERIES), **EQUAL)
    assert np.array_equal(back.predict_proba(QUERIES), one.predict_proba(QUERIES))


def test_equal_examples_that_came_in_two_calls_are_one() -> None:
    novel = ~BASE
    model = GPTreeClassifier(prior_mean="lda", random_state=0).fit(X[BASE], Y[BASE])
    model.add_classes(X[novel], Y[novel]).add_examples(X[novel], Y[novel])
    assert model.memory_.counts["class 3"] == SHOTS
    other = GPTreeClassifier(prior_mean="lda", random_state=0).fit(X[BASE], Y[BASE])
    other.add_classes(X[novel], Y[novel], sample_weight=np.full(novel.sum(), 2.0))
    np.testing.assert_allclose(model.predict_proba(QUERIES), other.predict_proba(QUERIES), **EQUAL)


def test_an_example_that_equals_a_row_of_fit_is_left_out_with_it() -> None:
    model = GPTreeClassifier(prior_mean="lda", random_state=0).fit(X, Y)
    before = model.state_.left_out
    assert before is not None
    row = int(np.flatnonzero(model.state_.origins[:, 1] == 3)[0])
    model.add_examples(np.stack([X[3], QUERIES[0]]), [Y[3], Y[0]])
    grown: Any = model.state_.grown
    later = [len(Y) + int(np.flatnonzero(model.state_.origins[len(Y) :, 1] == given)[0]) for given in (0, 1)]
    left_out: Any = memory_left_out(model.state_.base, grown, model.state_.on_sphere)
    same, other = (left_out[grown.rows == at][0] for at in later)
    np.testing.assert_allclose(same, before[row].log_softmax(0), rtol=0, atol=1e-12)
    assert not np.allclose(other, before[row], atol=1e-3)


# ----------------------------------------------------------------------------------------------------------- forgetting


@pytest.mark.parametrize("growth", [None, Growth(exemplars=3)], ids=["all rows kept", "exemplars"])
def test_forgetting_respects_weights(growth: Growth | None) -> None:
    """Of two equal rows one stays; rows that stay keep their weights."""
    x, y = np.concatenate([X, X[:1]]), np.concatenate([Y, Y[:1]])
    w = np.concatenate([WEIGHTS, [0.5]])
    ids = [f"row {i}" for i in range(len(y))]
    settings = {"prior_mean": "lda", "random_state": 0, "growth": growth}
    model = GPTreeClassifier(**settings).fit(x, y, ids=ids, sample_weight=w)
    with pytest.raises(ValueError, match=r"counted .* times when the model was fitted"):
        model.forget(["row 2"], (x, y, ids))
    model.forget(["row 0"], (x, y, ids, w))
    stay = np.arange(len(y)) != 0
    expected = GPTreeClassifier(**settings).fit(x[stay], y[stay], sample_weight=w[stay])
    assert np.array_equal(model.predict_proba(QUERIES), expected.predict_proba(QUERIES))
    with pytest.raises(ValueError, match="there is no example 'row 99'"):
        model.forget(["row 99"], (x, y, ids, w))


def test_forgetting_one_of_two_equal_lessons() -> None:
    novel = ~BASE
    x, y = np.concatenate([X[novel], X[novel][:1]]), np.concatenate([Y[novel], Y[novel][:1]])
    ids = [f"shot {i}" for i in range(len(y))]
    model = GPTreeClassifier(prior_mean="lda", random_state=0).fit(X[BASE], Y[BASE])
    model.add_classes(x, y, ids=ids, sample_weight=np.full(len(y), 1.5)).forget([ids[-1]])
    other = GPTreeClassifier(prior_mean="lda", random_state=0).fit(X[BASE], Y[BASE])
    other.add_classes(X[novel], Y[novel], sample_weight=np.full(novel.sum(), 1.5))
    assert np.array_equal(model.predict_proba(QUERIES), other.predict_proba(QUERIES))


# ------------------------------------------------------------------------------------------------------------ bad input


def changed(row: int, value: float) -> np.ndarray:
    weights = np.ones(len(Y))
    weights[row] = value
    return weights


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (changed(3, -1.0), r"holds -1.0 \(row 3\).*how many times a row counts"),
        (changed(2, np.nan), r"holds nan \(row 2\)"),
        (changed(2, np.inf), r"holds inf \(row 2\)"),
        (changed(2, 1e-9), r"holds 1e-09 \(row 2\).*lie between"),
        (changed(2, 1e9), r"holds 1e\+09 \(row 2\).*lie between"),
        (np.ones(3), r"sample_weight.shape == \(3,\), expected \(35,\)"),
        (["a"] * len(Y), "must hold 35 numbers"),
        (np.where(Y == "class 3", 0.0, 1.0), "all rows of class 'class 3' have weight zero"),
    ],
)
def test_bad_weights_are_refused_before_any_work(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GPTreeClassifier().fit(X, Y, sample_weight=weights)
    model = GPTreeClassifier(prior_mean=None, random_state=0).fit(QUERIES, np.repeat(np.arange(CLASSES), 3).astype(str))
    before = model.predict_proba(QUERIES)
    with pytest.raises(ValueError, match=message):
        model.add_classes(X, Y, sample_weight=weights)
    assert np.array_equal(model.predict_proba(QUERIES), before)
    assert len(model.journal_) == 1


def test_a_feature_map_that_takes_no_weights_needs_whole_ones() -> None:
    with pytest.raises(ValueError, match="PCA takes no sample_weight, and the weights are no whole numbers"):
        GPTreeClassifier(feature_map=PCA(3)).fit(X, Y, sample_weight=WEIGHTS + 0.5)
