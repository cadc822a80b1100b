"""One row of an exported model: every way answers, and what is measured of it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.experiments import exported
from benchmarks.experiments.exported import LOGISTIC, METHODS, _way, tables, timed, trials

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 3)).astype(np.float32) + 3 * np.repeat(np.eye(3), 4, 0), np.repeat([0, 1, 2], 4)
ROWS = X[::4].astype(np.float32)


@pytest.mark.parametrize("method", [LOGISTIC, "tree, predict_proba", "tree, freeze"])
def test_every_way_answers(method: str) -> None:
    """But for the files, which `tests/estimators/test_onnx.py` writes and asks."""
    answer, facts = _way(method, X.astype(float), Y, 0)
    assert np.asarray(answer(ROWS)).argmax(1).tolist() == [0, 1, 2]
    assert facts == {}
    assert [trial.method for trial in trials(1)] == METHODS


def test_times() -> None:
    calls = []
    found = timed(calls.append, ROWS[:1], calls=3)
    assert len(calls) == 13
    assert found["wall"] > 0
    assert exported.CALLS == 200
    assert tables([])[0].title == "Times"
