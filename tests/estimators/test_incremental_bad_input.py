"""Odd requests to a model that grows get a defined answer or an error that says what to do."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.naive_bayes import GaussianNB

from gptree import (
    CoordinateAscent,
    GPForestClassifier,
    GPTreeClassifier,
    Graft,
    Growth,
    LearnKernel,
    RebuildTree,
    SessionTree,
    SharedRoot,
)
from gptree.incremental import base as base_session

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(8, 6))
Y = np.repeat(np.arange(8), 10)
X = CENTRES[Y] + 0.25 * RNG.normal(size=(80, 6))
OLD, NEW = Y < 5, (Y >= 5) & (np.arange(80) % 10 < 4)
ROWS = np.arange(80).reshape(8, 10)  # of each class
ANIMALS = np.array(["ant", "bee", "cat", "dog", "emu", "fox", "gnu", "hen"])


def plain(**parameters) -> GPTreeClassifier:
    """Zero prior means: fast."""
    return GPTreeClassifier(**{"random_state": 0, "device": "cpu", "prior_mean": None, **parameters})


@pytest.fixture(scope="module", params=[Growth(), None], ids=["growth", "none"])
def grown(request):
    return plain(growth=request.param).fit(X[OLD], Y[OLD]).add_classes(X[NEW & (Y < 7)], Y[NEW & (Y < 7)])


@pytest.fixture
def model(grown):
    return copy.deepcopy(grown)


SEVEN = X[Y == 7]


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda m: m.add_classes(X[:4], [0, 0, 7, 7]), "the label 0 is already known.*add_examples"),
        (lambda m: m.add_classes(X[:4], [5, 6, 7, 7]), "the labels 5, 6 are already known"),
        (lambda m: m.add_examples(X[:4], [0, 7, 7, 8]), "the labels 7, 8 are unknown.*add_classes"),
        (lambda m: m.add_classes(SEVEN[:, :5], [7] * 10), "5 features"),
        (lambda m: m.add_examples(SEVEN[:, :5], [0] * 10), "5 features"),
        (lambda m: m.add_classes(np.where(SEVEN > 1, np.nan, SEVEN), [7] * 10), "NaN"),
        (lambda m: m.add_classes(np.where(SEVEN > 1, np.inf, SEVEN), [7] * 10), "infinity"),
        (lambda m: m.add_classes(SEVEN[:0], []), "0 sample"),
        (lambda m: m.add_examples(SEVEN[:0], []), "0 sample"),
        (lambda m: m.add_classes(SEVEN, [7] * 9), "inconsistent numbers of samples"),
        (lambda m: m.add_classes(SEVEN[0], [7]), "2D array"),
        (
            lambda m: m.add_classes(SEVEN, np.full(10, "seven")),
            "the classes of this model are whole numbers, and 'seven' is none",
        ),
        (lambda m: m.add_classes(SEVEN, np.full(10, 7.0)), "whole numbers, and 7.0 is none of those"),
        (lambda m: m.add_classes(SEVEN, np.full(10, True)), "and True is none of those"),
        (lambda m: m.add_classes(SEVEN, [7] * 9 + [np.nan]), "NaN"),
        (lambda m: m.add_classes(SEVEN, [7] * 9 + [None]), "None"),
        (lambda m: m.add_classes(SEVEN, ["a"] * 9 + [None]), r"row 9 has no label \(None\)"),
        (lambda m: m.remove_classes([]), "at least one class"),
        (lambda m: m.remove_classes([7]), "the label 7 is unknown: only known classes can be removed"),
        (lambda m: m.remove_classes(["a"]), "and 'a' is none of those"),
        (lambda m: m.remove_classes([None]), "a label is None: every class and every example needs one"),
        (lambda m: m.remove_classes(5), "must be a list of labels, not the single value 5"),
        (lambda m: m.remove_classes("ab"), "must be a list of labels, not the single value 'ab'"),
        (lambda m: m.remove_classes([[5, 6]]), "is none of those"),
        (lambda m: m.remove_classes(range(5)), "at least one class of the base session has to stay"),
        (lambda m: m.remove_classes(range(7)), "at least one class of the base session has to stay"),
        (lambda m: m.remove_classes([5]).remove_classes([5]), "the label 5 is unknown"),
        (lambda m: m.remove_classes([5]).add_examples(SEVEN, [5] * 10), "the label 5 is unknown"),
        (lambda m: m.rename_class(7, 8), "the label 7 is unknown"),
        (lambda m: m.rename_class(0, 5), "the label 5 is taken; merge_classes"),
        (lambda m: m.rename_class(5, 5), "the label 5 is taken"),
        (lambda m: m.rename_class(5, "five"), "and 'five' is none of those"),
        (lambda m: m.rename_class(5, [6]), "is none of those"),
        (lambda m: m.merge_classes([0, 1], 0), "the labels 0, 1 are of the base session.*at most one"),
        (lambda m: m.merge_classes([0, 1, 5], 5), "at most one base class"),
        (lambda m: m.merge_classes([5], 5), "two different classes"),
        (lambda m: m.merge_classes([5, 5], 5), "two different classes"),
        (lambda m: m.merge_classes([], 5), "two different classes"),
        (lambda m: m.merge_classes([5, 7], 5), "the label 7 is unknown"),
        (lambda m: m.merge_classes([5, 6], 0), "0 is another class"),
        (lambda m: m.merge_classes([5, 6], "x"), "and 'x' is none of those"),
        (lambda m: m.merge_classes(5, 6), "must be a list of labels"),
        (lambda m: m.undo().undo(), "nothing to undo: the journal holds the base session only"),
    ],
)
def test_clear_errors(model, attempt, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attempt(model)


@pytest.mark.parametrize(
    "attempt",
    [
        lambda m: m.add_classes(X[:4], [0, 0, 7, 7]),
        lambda m: m.add_examples(X[:4], [0, 7, 7, 8]),
        lambda m: m.add_classes(SEVEN * np.nan, [7] * 10),
        lambda m: m.add_classes(SEVEN, ["seven"] * 10),
        lambda m: m.remove_classes([5, 7]),
        lambda m: m.remove_classes(range(5)),
        lambda m: m.rename_class(5, 6),
        lambda m: m.merge_classes([0, 1], 0),
    ],
)
def test_errors_leave_the_model_as_it_was(model, attempt) -> None:
    before, probabilities = dict(vars(model)), model.predict_proba(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing happened, so nothing is warned of
        with pytest.raises(ValueError):
            attempt(model)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    assert np.array_equal(model.predict_proba(X), probabilities)


def test_undo_past_the_start_changes_nothing(model) -> None:
    model.undo()
    before, probabilities = dict(vars(model)), model.predict_proba(X)
    for _ in range(2):
        with pytest.raises(ValueError, match="nothing to undo"):
            model.undo()
    assert all(vars(model)[name] is value for name, value in before.items())
    assert np.array_equal(model.predict_proba(X), probabilities)
    with pytest.raises(ValueError, match="nothing to undo"):
        plain().fit(X[OLD], Y[OLD]).undo()


def test_merging_across_base_and_novel_is_defined(model) -> None:
    for labels, into, left in (
        ([5, 1], 1, [0, 1, 2, 3, 4, 6]),
        ([5, 1], 5, [0, 5, 2, 3, 4, 6]),
        ([1, 6, 5], 9, [0, 9, 2, 3, 4]),
    ):
        merged = copy.deepcopy(model).merge_classes(labels, into)
        assert merged.classes_.tolist() == left
        # what was said of one is said of the whole
        column = left.index(into)
        for c in labels:
            assert merged.predict_proba(X[ROWS[c]])[:, column].mean() > 0.4
        assert merged.memory_.counts[into] == sum(model.memory_.counts[c] for c in labels)


@pytest.mark.parametrize("strategy", [SharedRoot(), SessionTree(), RebuildTree(), Graft()], ids=str)
@pytest.mark.parametrize("experts", [True, False], ids=["experts", "zero mean"])
def test_one_example_a_class(strategy, experts: bool) -> None:
    model = plain(prior_mean="experts" if experts else None).fit(X[OLD], Y[OLD])
    model.set_params(growth=Growth(strategy=strategy))
    first = ROWS[5:, 0]
    model.add_classes(X[first], Y[first])
    assert np.isfinite(model.predict_log_proba(X)).all()
    if experts:
        assert model.score(X, Y) > 0.8
    again = ROWS[[0, 6], 1]
    model.add_examples(X[again], Y[again])
    assert np.isfinite(model.predict_log_proba(X)).all()


@pytest.mark.parametrize("counts", [(1, 1, 1, 1, 1), (1, 6, 2, 1, 9), (5,), (1,)], ids=str)
@pytest.mark.parametrize("growth", [Growth(exemplars=2), None], ids=["growth", "none"])
@pytest.mark.parametrize("experts", [True, False], ids=["experts", "zero mean"])
def test_a_small_base(counts: tuple[int, ...], growth: Growth | None, experts: bool, monkeypatch) -> None:
    monkeypatch.setattr(base_session, "BASE_RIDGE", replace(base_session.BASE_RIDGE, count=50))
    monkeypatch.setattr(base_session, "RANDOM_LDA", replace(base_session.RANDOM_LDA, count=50))
    chosen = np.concatenate([ROWS[c, :n] for c, n in enumerate(counts)])
    model = plain(prior_mean="experts" if experts else None, growth=growth).fit(X[chosen], Y[chosen])
    base_only = model.predict_proba(X)
    model.add_classes(X[NEW], Y[NEW])
    assert np.isfinite(model.predict_log_proba(X)).all()
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0)
    model.add_examples(X[NEW], Y[NEW])
    model.add_examples(X[:1], Y[:1])
    assert np.isfinite(model.predict_log_proba(X)).all()
    assert np.array_equal(model.undo().undo().undo().predict_proba(X), base_only)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"class_prior": "empirical"}, "class_prior=None"),
        ({"prior_mean": GaussianNB()}, 'prior_mean="experts"'),
        ({"prior_mean": lambda rows: np.zeros((len(rows), 5))}, 'prior_mean="experts"'),
        (
            {"inference": CoordinateAscent(learn=LearnKernel(steps=1, per_node=True))},
            r"kernel of its own at every node.*LearnKernel\(per_node=False\)",
        ),
    ],
    ids=["class prior", "classifier", "function", "learnt kernels"],
)
def test_settings_that_cannot_grow(parameters, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plain(**parameters, growth=Growth()).fit(X[OLD], Y[OLD])
    model = plain(**parameters).fit(X[OLD], Y[OLD])
    before = dict(vars(model))
    for attempt in (
        lambda: model.add_classes(X[NEW], Y[NEW]),
        lambda: model.add_examples(X[:3], Y[:3]),
        lambda: model.remove_classes([0]),
        lambda: model.rename_class(0, 9),
    ):
        with pytest.raises(ValueError, match=message):
            attempt()
    assert all(vars(model)[name] is value for name, value in before.items())
    assert [entry.kind for entry in model.journal_] == ["fit"]


def test_growth_must_be_one() -> None:
    for growth in (5, "shared root", SharedRoot()):
        with pytest.raises(TypeError, match="growth must be None or Growth"):
            plain(growth=growth).fit(X[OLD], Y[OLD])


def test_unfitted_use_is_an_error() -> None:
    for model in (GPTreeClassifier(), GPForestClassifier(growth=Growth())):
        for attempt in (
            lambda m: m.add_classes(X, Y),
            lambda m: m.add_examples(X, Y),
            lambda m: m.remove_classes([1]),
            lambda m: m.rename_class(1, 2),
            lambda m: m.merge_classes([1, 2], 2),
            lambda m: m.undo(),
            lambda m: m.sessions_,
            lambda m: m.memory_,
        ):
            with pytest.raises(NotFittedError):
                attempt(model)


def test_labels_of_another_kind_than_strings() -> None:
    model = plain().fit(X[OLD], ANIMALS[Y[OLD]])
    with pytest.raises(ValueError, match="the classes of this model are strings, and 7 is none of those"):
        model.add_classes(SEVEN, [7] * 10)
    with pytest.raises(ValueError, match="strings, and 5 is none of those"):
        model.rename_class("ant", 5)
    model.add_classes(SEVEN, np.array(["hen"] * 10, dtype=object))
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog", "emu", "hen"]
    assert model.score(X[OLD | (Y == 7)], ANIMALS[Y][OLD | (Y == 7)]) > 0.9


def test_feature_names_are_checked() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    model = plain().fit(frame[OLD], Y[OLD])
    with pytest.raises(ValueError, match="feature names"):
        model.add_classes(frame[NEW].rename(columns={"a": "z"}), Y[NEW])
    model.add_classes(frame[NEW], pandas.Series(Y[NEW]))
    assert model.classes_.tolist() == list(range(8))


def test_copies_of_what_is_known() -> None:
    """The same rows as another class: nothing to tell them by, and nothing breaks."""
    for experts in (None, "experts"):
        model = plain(prior_mean=experts).fit(X[OLD], Y[OLD])
        model.add_classes(X[Y == 0], np.full(10, 7)).add_examples(X[Y == 0], np.full(10, 7))
        found = model.predict_proba(X[Y == 0])
        assert np.isfinite(found).all()
        assert found[:, [0, 5]].sum(1).mean() > 0.5
        constant = copy.deepcopy(model).add_classes(np.zeros((3, 6)), [8, 8, 9])
        assert np.isfinite(constant.predict_log_proba(X)).all()


def test_many_more_shots_than_expected() -> None:
    model = plain(prior_mean="experts").fit(X[OLD], Y[OLD])
    random = np.random.default_rng(1)
    many = CENTRES[5] + 0.25 * random.normal(size=(300, 6))
    model.add_classes(np.vstack([many, X[NEW & (Y > 5)]]), np.concatenate([np.full(300, 5), Y[NEW & (Y > 5)]]))
    assert model.score(X, Y) > 0.9
    assert model.memory_.counts[5] == 300
