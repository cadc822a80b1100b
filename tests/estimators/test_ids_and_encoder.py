"""Rows keep their names, lessons their note and author, and a model its encoder: through changes and files."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptree import GPTreeClassifier, Growth, load_model
from gptree.storage import StorageError
from small_sizes import small_random_features

ENCODER = {"family": "own", "name": "tiny/1", "kind": "image", "dimension": 4, "preprocessing": None, "weights": None}


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    with small_random_features():
        yield


def blobs(*classes: int, count: int = 5) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Rows of some classes, and a name for each that tells its class."""
    centres = 8.0 * np.random.default_rng(99).standard_normal((9, 4))
    y = np.repeat(classes, count)
    noise = np.concatenate([np.random.default_rng(c).standard_normal((count, 4)) for c in classes])
    return centres[y] + noise, y, [f"{c}/{i}" for c in classes for i in range(count)]


def fitted(**parameters: Any) -> GPTreeClassifier:
    X, y, ids = blobs(0, 1, 2)
    order = np.random.default_rng(1).permutation(len(y))  # names follow their rows, whatever order they come in
    return GPTreeClassifier(random_state=0, **parameters).fit(X[order], y[order], ids=[ids[i] for i in order])


@cache
def _changed() -> Any:
    return fitted().add_classes(*blobs(3)[:2])


@pytest.mark.parametrize("growth", [None, Growth(exemplars=2)])
def test_names_stay_with_their_rows(tmp_path: Path, growth: Growth | None) -> None:
    model = fitted(growth=growth)

    def check() -> None:
        """Every name is that of a row of its class, and the nearest example of a row is that row, where it is kept."""
        for name, number in zip(model.state_.ids, model.state_.y, strict=True):
            if number >= 0:
                assert name.partition("/")[0] == str(model.classes_[number])
        for c in model.classes_:
            X, _, ids = blobs(int(c))
            for explanation, name in zip(model.explain(X), ids, strict=True):
                near = explanation.neighbours[0]
                assert near.id == name or (near.similarity < 1 - 1e-9 and name not in model.state_.ids)

    check()
    assert len(model.state_.ids) == (15 if growth is None else 6)
    X, y, ids = blobs(3, 4)
    model.add_classes(X[::-1], y[::-1], ids[::-1], note="two more", author="Ada")
    check()
    model.add_examples(*blobs(1, count=7)[:2], ids=[f"1/x{i}" for i in range(7)])
    assert [name for name in model.state_.ids if name.startswith("1/x")] != []
    model.rename_class(3, 7, note="its right name", author="Bob").remove_classes([4])
    assert [entry.note for entry in model.journal_] == ["", "two more", "", "its right name", ""]
    assert [entry.author for entry in model.journal_] == ["", "Ada", "", "Bob", ""]
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert again.state_.ids == model.state_.ids
    assert [(e.note, e.author, e.ids) for e in again.journal_] == [(e.note, e.author, e.ids) for e in model.journal_]
    for _ in range(3):
        model.undo()
    check()


def test_rows_without_names_are_numbers() -> None:
    X, y, _ = blobs(0, 1)
    model = GPTreeClassifier(random_state=0).fit(X, y)
    X, y, _ = blobs(3)
    model.add_classes(X, y)
    near = model.explain(X[:1])[0]
    assert near.neighbours[0].id == "0"
    assert "row 0 of journal entry 1" in str(near)
    assert sorted(model.state_.ids) == sorted([*map(str, range(10)), *map(str, range(5))])


def test_names_do_not_change_what_is_learnt() -> None:
    X, y, ids = blobs(0, 1, 2)
    plain, named = (GPTreeClassifier(random_state=0).fit(X, y, ids=each) for each in (None, ids))
    assert plain.predict_proba(X).tobytes() == named.predict_proba(X).tobytes()


@pytest.mark.parametrize(("ids", "words"), [(["a"], "15 rows, but 1 ids"), (["a"] * 15, "'a' comes twice")])
def test_bad_names(ids: list[str], words: str) -> None:
    X, y, _ = blobs(0, 1, 2)
    with pytest.raises(ValueError, match=words):
        GPTreeClassifier().fit(X, y, ids=ids)
    model = fitted()
    X, y, _ = blobs(3, 4, 5)
    with pytest.raises(ValueError, match=words):
        model.add_classes(X, y, ids)
    with pytest.raises(TypeError, match="author is a text, not 3"):
        model.rename_class(0, 8, author=3)  # type: ignore[arg-type]
    assert len(model.journal_) == 1


def test_the_encoder_is_kept(tmp_path: Path) -> None:
    model = fitted()
    assert model.encoder_ is None
    model.encoder_ = ENCODER
    model.add_classes(*blobs(3)[:2]).save(tmp_path)
    again = load_model(tmp_path)
    assert again.encoder_ == ENCODER
    again.undo()
    assert again.encoder_ == ENCODER
    X, y, _ = blobs(0, 1)
    assert again.fit(X, y).encoder_ is None  # of other features, for all that is known


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({**ENCODER, "dimension": 5}, "gives 5 numbers a row, but the model has 4 features"),
        ({}, "gives None numbers"),
        ({**ENCODER, "weights": np.zeros(2)}, "describes no encoder"),
        ({**ENCODER, "weights": float("nan")}, "describes no encoder"),
        ("minilm", "describes no encoder"),
    ],
)
def test_bad_encoders(description: Any, words: str) -> None:
    model = fitted()
    with pytest.raises(ValueError, match=words):
        model.encoder_ = description
    assert model.encoder_ is None


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda d: d.update(encoder={"dimension": 3}), "gives 3 numbers"),
        (lambda d: d.update(encoder=[4]), "describes no encoder"),
        (lambda d: d.pop("encoder"), "lacks parts"),
        (lambda d: d["journal"][0].update(ids=["a", "b"]), "an id each"),
        (lambda d: d["journal"][1].update(ids=["a"]), "an id for each example"),
        (lambda d: d["journal"][1].update(ids=[1] * 5), "ids of a stored Entry"),
        (lambda d: d["journal"][1].update(author=None), "author of a stored Entry"),
        (lambda d: d["journal"][1].pop("author"), "no entry of a journal"),
    ],
)
def test_files_that_are_not_so(tmp_path: Path, edit: Any, words: str) -> None:
    copy.copy(_changed()).save(tmp_path)
    document = json.loads((tmp_path / "model.json").read_text())
    document.pop("checksum")
    edit(document)
    document["checksum"] = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(StorageError, match=words):
        load_model(tmp_path)
