"""Forgetting: the model equals one that was never shown the examples, and what cannot be forgotten is refused."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_ids_and_encoder import ENCODER, blobs

from gptree import GPForestClassifier, GPTreeClassifier, Growth, load_model
from gptree.incremental import Entry
from gptree.incremental.forgetting import without_examples
from small_sizes import small_random_features

ALL = (0, 1, 2, 3, 4)
QUERIES = blobs(*ALL)[0] + 0.3


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    with small_random_features():
        yield


def rows(skip: Collection[str], *classes: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Rows of some classes but for those to skip."""
    X, y, ids = blobs(*classes)
    stay = [i for i, name in enumerate(ids) if name not in skip]
    return X[stay], y[stay], [ids[i] for i in stay]


def taught(skip: set[str], growth: Growth | None = None) -> Any:
    """A model with a history, that was never shown what it should skip."""
    return copy.copy(_taught(frozenset(skip), growth))


@cache
def _taught(skip: frozenset[str], growth: Growth | None) -> Any:
    X, y, ids = rows(skip, 0, 1, 2)
    model = GPTreeClassifier(random_state=0, growth=growth).fit(X, y, ids=ids)
    model.encoder_ = ENCODER
    for classes in ((3,), (4,)):
        given = rows(skip, *classes)
        if len(given[0]):
            model.add_classes(*given)
    X, y, _ = blobs(1, count=7)
    stay = [i for i in range(5, 7) if f"x{i}" not in skip]
    return model.add_examples(X[stay], y[stay], [f"x{i}" for i in stay], note="more")


def check_same(model: Any, expected: Any) -> None:
    assert model.classes_.tolist() == expected.classes_.tolist()
    np.testing.assert_array_equal(model.predict_proba(QUERIES), expected.predict_proba(QUERIES))
    np.testing.assert_array_equal(model.novelty_score(QUERIES), expected.novelty_score(QUERIES))
    assert model.novelty_threshold() == expected.novelty_threshold()
    assert sorted(model.state_.ids) == sorted(expected.state_.ids)
    assert [(e.kind, e.labels, e.counts) for e in model.journal_] == [
        (e.kind, e.labels, e.counts) for e in expected.journal_
    ]


@pytest.mark.parametrize(("growth", "names"), [(None, {"3/1"}), (Growth(exemplars=3), {"4/0", "4/2", "x5"})])
def test_what_was_taught(tmp_path: Path, growth: Growth | None, names: set[str]) -> None:
    model = taught(set(), growth=growth)
    check_same(model.forget(sorted(names)), taught(names, growth=growth))
    assert model.encoder_ == ENCODER
    model.save(tmp_path)
    check_same(load_model(tmp_path), taught(names, growth=growth))
    assert not names & {name for entry in model.journal_ for name in entry.ids}  # whatever is undone


@pytest.mark.parametrize(("growth", "at_hand"), [(None, False), (Growth(exemplars=3), True)])
def test_what_was_fitted(growth: Growth | None, at_hand: bool) -> None:
    names = {"0/1", "2/3", "3/0"}
    model, everything = taught(set(), growth=growth), rows(set() if at_hand else names, *ALL)
    X, y, _ = blobs(1, count=7)
    given = np.concatenate([everything[0], X[5:]]), np.concatenate([everything[1], y[5:]]), [*everything[2], "x5", "x6"]
    with pytest.raises(ValueError, match="give all rows that the model was fitted to"):
        model.forget(sorted(names))
    before = model.state_
    for part, words in (
        (slice(0, -1), "'x6'.* is not at hand"),
        (slice(1, None), "'0/0'|14 are at hand"),
    ):
        with pytest.raises(ValueError, match=words):
            model.forget(sorted(names), tuple(each[part] for each in given))
    renamed = given[0], np.where(given[1] == 2, 8, given[1]), given[2]
    with pytest.raises(ValueError, match="with the labels of then"):
        model.forget(sorted(names), renamed)
    with pytest.raises(ValueError, match=r"16 are at hand or to be forgotten|no example 'no'"):
        model.forget([*names, "no"], given)
    assert model.state_ is before
    model.forget(sorted(names), given)
    check_same(model, taught(names, growth=growth))
    assert model.encoder_ == ENCODER


def test_the_last_example_of_a_class() -> None:
    names = {f"4/{i}" for i in range(5)}
    model = taught(set())
    with pytest.raises(ValueError, match="the last example of 4"):
        model.forget(sorted(names))
    check_same(model, taught(set()))
    check_same(model.forget(sorted(names), remove_class=True), taught(names))


@pytest.mark.parametrize(
    ("ids", "words"),
    [(["no"], "there is no example 'no'"), (["3/0", "3/0"], "comes twice")],
)
def test_bad_ids(ids: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        taught(set()).forget(ids)


def test_a_model_that_cannot_be_fitted_again() -> None:
    X, y, ids = blobs(0, 1)
    model = GPTreeClassifier(random_state=0).fit(X, y, np.arange(10) % 2 == 0, ids)
    with pytest.raises(ValueError, match="fitted with held_out"):
        model.forget([model.state_.ids[0]], (X, y, ids))


def test_rows_without_names() -> None:
    X, y, _ = blobs(0, 1)
    with pytest.raises(ValueError, match="have no ids"):
        GPForestClassifier(random_state=0).fit(X, y).forget(["0"])


# ---------------------------------------------------------------------------------------------------------- the journal


def entry(kind: Any, *labels: str, of: dict[str, str] | None = None) -> Entry:
    """An entry that brings examples, each a label by its id, or none."""
    if of is None:
        return Entry(kind, labels)
    import torch

    names = sorted(of, key=lambda name: of[name])
    known = tuple(sorted(set(of.values())))
    counts = tuple(list(of.values()).count(label) for label in known)
    features = torch.arange(float(len(names)))[:, None]
    return Entry(kind, known, counts, features=features, rows=tuple(range(len(names))), ids=tuple(names))


FIT = Entry("fit", ("a", "b"))
ADD = entry("add_classes", of={"1": "x", "2": "y", "3": "y"})


@pytest.mark.parametrize(
    ("journal", "expected", "empty"),
    [
        ([], [], {"x"}),
        ([entry("rename_class", "x", "z")], [], {"z"}),
        ([entry("remove_classes", "x")], [], set()),
        ([entry("remove_classes", "x", "y")], [("remove_classes", ("y",), ())], set()),
        (
            [entry("add_examples", of={"4": "x", "5": "y"})],
            [("add_classes", ("x",), ("4",)), ("add_examples", ("y",), ("5",))],
            set(),
        ),
        ([entry("merge_classes", "x", "y", "y")], [], set()),
        ([entry("merge_classes", "x", "y", "z")], [("rename_class", ("y", "z"), ())], set()),
        ([entry("merge_classes", "a", "x", "y", "z")], [("merge_classes", ("a", "y", "z"), ())], set()),
        (
            [entry("rename_class", "x", "z"), entry("add_examples", of={"4": "z"})],
            [("add_classes", ("z",), ("4",))],
            set(),
        ),
    ],
)
def test_what_becomes_of_a_class_without_examples(
    journal: list[Entry], expected: list[tuple[Any, ...]], empty: set[str]
) -> None:
    kept, left = without_examples([FIT, ADD, *journal], {"1"})
    assert [(e.kind, e.labels, e.ids) for e in kept[2:]] == expected
    assert (kept[0], kept[1].labels, kept[1].ids) == (FIT, ("y",), ("2", "3"))
    assert kept[1].features is not None
    assert kept[1].features.flatten().tolist() == [1.0, 2.0]
    assert left == empty
