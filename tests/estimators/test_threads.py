"""Predicting while a model changes, and two changes at once."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from gptree import GPForestClassifier
from gptree.estimators import forest, incremental
from gptree.model import Prediction

RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(6), 8)
X = RNG.normal(size=(6, 5))[Y] + 0.3 * RNG.normal(size=(len(Y), 5))
OLD, NEW = Y < 4, Y >= 4
READS: dict[str, Callable[[Any], Any]] = {
    "predict": lambda model: model.predict(X).tolist(),
    "predict_proba": lambda model: model.predict_proba(X).tolist(),
    "explain": lambda model: [str(each) for each in model.explain(X[::5])],
    "decision_path": lambda model: model.decision_path(X).toarray().tolist(),
    "novelty_score": lambda model: model.novelty_score(X).tolist(),
    "predict_open": lambda model: model.predict_open(X, reject=0.3, unknown=-1).tolist(),
    "suggest": lambda model: model.suggest(X, 4).tolist(),
}


@cache
def base() -> GPForestClassifier:
    model = GPForestClassifier(n_estimators=2, prior_mean="lda", random_state=0, device="cpu")
    return model.fit(X[OLD], Y[OLD])


def fitted() -> GPForestClassifier:
    return copy.deepcopy(base())


@pytest.fixture(scope="module")
def grown() -> GPForestClassifier:
    return fitted().add_classes(X[NEW], Y[NEW])


@pytest.mark.parametrize("read", READS)
def test_a_reader_keeps_the_state_it_began_with(read: str, grown, monkeypatch) -> None:
    """The change comes in the middle of the call, when the nodes have been asked."""
    model, expected = copy.deepcopy(grown), READS[read](grown)
    ask, changes = Prediction.forward, [model.undo]

    def change_meanwhile(*args: Any, **kwargs: Any) -> Any:
        answer = ask(*args, **kwargs)
        if changes:
            changes.pop()()
        return answer

    monkeypatch.setattr(Prediction, "forward", change_meanwhile)
    assert READS[read](model) == expected
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert READS[read](model) != expected


@pytest.mark.parametrize(
    "second",
    [
        lambda model: model.add_classes(X[NEW], Y[NEW]),
        lambda model: model.add_examples(X[:3], Y[:3]),
        lambda model: model.remove_classes([0]),
        lambda model: model.rename_class(0, 10),
        lambda model: model.merge_classes([0, 1], 0),
        lambda model: model.undo(),
        lambda model: model.fit(X, Y),
    ],
)
def test_a_second_change_is_refused_and_changes_nothing(second, grown, monkeypatch) -> None:
    model, expected = fitted(), grown.predict_proba(X)
    before = model.predict_proba(X)
    begun, go_on = threading.Event(), threading.Event()
    grow = incremental.grow

    def slowly(*args: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return grow(*args)

    monkeypatch.setattr(incremental, "grow", slowly)
    first = threading.Thread(target=model.add_classes, args=(X[NEW], Y[NEW]))
    first.start()
    try:
        assert begun.wait(60)
        with pytest.raises(RuntimeError, match="another thread changes this GPForestClassifier: nothing was done"):
            second(model)
        assert np.array_equal(model.predict_proba(X), before)
        assert len(model.journal_) == 1
    finally:
        go_on.set()
        first.join()
    assert np.array_equal(model.predict_proba(X), expected)
    assert model.rename_class(0, 10).classes_.tolist() == [10, 1, 2, 3, 4, 5]  # and the way is free again


def test_the_way_is_free_after_a_failed_change(monkeypatch) -> None:
    model = fitted()
    with pytest.raises(ValueError, match="nothing to undo"):
        model.undo()
    with monkeypatch.context() as patch:
        patch.setattr(forest, "fit_forest", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.fit(X, Y)
    assert model.add_classes(X[NEW], Y[NEW]).score(X, Y) > 0.9


def test_many_readers_while_a_model_grows_and_shrinks(grown) -> None:
    """Every answer is that of the model before or after a change, to the last bit."""
    model = fitted()
    answers = {each.predict_proba(X).tobytes() for each in (model, grown)}
    wrong: list[Any] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                if model.predict_proba(X).tobytes() not in answers:
                    wrong.append("probabilities")
                model.predict(X)
                model.explain(X[:2])
            except Exception as error:
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(4):
        model.add_classes(X[NEW], Y[NEW])
        model.undo()
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
