"""Models saved by earlier versions load, and predict what they predicted. See `tests/saved_models/make.py`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saved_models.make import load, processor

FOLDERS = sorted(file.parent for file in Path(__file__).parents[1].glob("saved_models/v*/*/expected.npz"))

#: Largest differences of probabilities: of a model as it was saved, and of one that has changed since.
AS_SAVED, CHANGED = 1e-12, 1e-8
#: The same for models with arrays in single precision: predictions may sum them in another order than then, and
#: changes may be those of another processor.
AS_SAVED_SINGLE, CHANGED_SINGLE = 1e-5, 1e-3

#: Versions that took the rows of a call in the order given. Today's order is another, so that the next change of such a
#: model, also `undo`, gives other numbers than then, unless it leads back to the base session.
ROWS_AS_GIVEN = {"v2"}

#: Versions whose novelty was one minus confidence times familiarity.
OTHER_NOVELTY = {"v2", "v3", "v4", "v5", "v6"}


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """None about arrays without feature names, and none about base classes that were removed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def check_same(log_proba: np.ndarray, expected: np.ndarray, atol: float) -> None:
    np.testing.assert_allclose(np.exp(log_proba), np.exp(expected), rtol=0, atol=atol)


def check_novelty(model: Any, X: np.ndarray, expected: np.ndarray, atol: float, another: bool) -> None:
    """The score as it was, also `another` one of that time where base sessions have dropped examples.

    Otherwise it is today's, and what that one was made of is as it was.
    """
    score = model.novelty_score(X)
    inner = getattr(model, "classifier_", model)
    base = inner.state_.base
    if not another or len(model.classes_) == 1 or (base is not None and base.novelty is not None):
        np.testing.assert_allclose(score, expected, rtol=0, atol=atol)
        return
    assert ((score >= 0) & (score <= 1)).all()
    if inner is model:
        query = model._query(X)
        familiarity = query.state.model.familiarity(query.features, query.log_p.argmax(1)).numpy()
        np.testing.assert_allclose(1.0 - np.exp(query.log_p.max(1)) * familiarity, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_a_saved_model_predicts_what_it_predicted(folder: Path) -> None:
    expected = dict(np.load(folder / "expected.npz"))
    elsewhere = (folder.parent / "processor.txt").read_text(encoding="utf-8").strip() != processor()
    single = bool(expected["single"])
    as_saved = AS_SAVED_SINGLE if single else AS_SAVED
    changed = CHANGED_SINGLE if single and elsewhere else max(CHANGED, as_saved)
    X, model = expected["X"], load(folder)
    assert model.classes_.tolist() == expected["classes"].tolist()
    assert model.classes_.dtype.str == expected["classes_dtype"]
    check_same(model.predict_log_proba(X), expected["log_proba"], as_saved)
    if "feature_names" in expected:
        assert model.feature_names_in_.tolist() == expected["feature_names"].tolist()
    if "novelty" in expected:
        check_novelty(model, X, expected["novelty"], as_saved, another=folder.parent.name in OTHER_NOVELTY)
        assert 0.0 < model.novelty_threshold() <= 1.0  # few examples: the share that they support was another then
        nearest = [[near.entry, near.row] for near in model.explain(X[:1])[0].neighbours]
        assert nearest == expected["neighbours"].tolist()
    same_order = folder.parent.name not in ROWS_AS_GIVEN
    if "log_proba_after_undo" in expected and (same_order or len(model.journal_) == 2):
        check_same(load(folder).undo().predict_log_proba(X), expected["log_proba_after_undo"], changed)
    if "log_proba_after_add" in expected:
        after = model.add_classes(expected["X_add"], expected["y_add"]).predict_log_proba(X)
        if same_order:
            check_same(after, expected["log_proba_after_add"], changed)
        again = load(folder).add_classes(expected["X_add"][::-1], expected["y_add"][::-1])
        check_same(after, again.predict_log_proba(X), CHANGED)
        assert after.shape == expected["log_proba_after_add"].shape
