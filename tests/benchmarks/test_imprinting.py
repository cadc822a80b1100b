"""Imprinted class rows on given features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.core.rendering import to_markdown
from benchmarks.core.trials import Row
from benchmarks.experiments.fscil import imprinting
from gptree.protocols import Session, SessionStream
from gptree.rivals import LUCIR


def made_up() -> SessionStream:
    """Four base classes and two sessions of one, far from the origin."""
    random = np.random.default_rng(0)
    places = 3 + random.normal(size=(6, 8))

    def rows(classes: range, count: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.repeat(classes, count)
        return (places[y] + 0.2 * random.normal(size=(len(y), 8))).astype(np.float32), y

    sessions = []
    for classes in (range(4), range(4, 5), range(5, 6)):
        X, y = rows(classes, 40 if len(classes) > 1 else 5)
        sessions.append(Session(X, y, *rows(classes, 6), np.unique(y)))
    return SessionStream("made up", tuple(sessions))


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> SessionStream:
    stream = made_up()
    monkeypatch.setattr(imprinting, "make_stream", lambda *_: stream)
    return stream


def test_all_rows_are_centred_by_the_mean_of_the_base(stream: SessionStream) -> None:
    mean = stream.sessions[0].X.mean(0)
    for before, after in zip(stream.sessions, imprinting.centred(stream).sessions, strict=True):
        np.testing.assert_allclose(after.X, before.X - mean)
        np.testing.assert_allclose(after.X_test, before.X_test - mean)
        assert after.y is before.y


def test_cosines_are_their_loops(stream: SessionStream) -> None:
    first, *later = stream.sessions
    model: Any = imprinting.learned_rows(0).fit(first.X, first.y)
    before = model.state_.model.classifier.rows[0].detach().clone()
    for session in later:
        model.add_classes(session.X, session.y)
    rows = model.state_.model.classifier.weight.detach().numpy()
    np.testing.assert_array_equal(rows[:4], before)  # nothing is trained

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    def mean(X: np.ndarray) -> np.ndarray:
        return np.mean([x / np.linalg.norm(x) for x in X], axis=0)

    for row, session in zip(rows[4:], later, strict=True):
        assert cosine(row, mean(session.X)) == pytest.approx(1, abs=1e-6)
    found = imprinting.cosines(model, stream)
    pairs = list(zip(first.X_test, first.y_test, strict=True))
    assert found["own"] == pytest.approx(np.mean([cosine(x, rows[c]) for x, c in pairs]), abs=1e-5)
    assert found["mean"] == pytest.approx(np.mean([cosine(x, mean(first.X[first.y == c])) for x, c in pairs]), abs=1e-5)
    assert found["new"] == pytest.approx(np.mean([max(cosine(x, row) for row in rows[4:]) for x, _ in pairs]), abs=1e-5)


def test_every_line_is_run_and_shown(stream: SessionStream, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(imprinting.learned_rows(0), LUCIR)
    trials = [trial for trial in imprinting.trials(1) if trial.data == "cub200"]
    metrics = [imprinting.run(trial, Path()) for trial in trials]
    assert metrics[0]["common"] > 0.9 > 0.3 > metrics[-1]["common"]
    rows = [Row(trial, each, {"wall": 1.0}, 1, {}, {}) for trial, each in zip(trials, metrics, strict=True)]
    scores, cosines, gaps = imprinting.tables(rows)
    assert [line[0] for line in scores.lines] == list(imprinting.LINES)
    assert len(cosines.lines) == 2
    assert len(gaps.lines) == 3
    assert all(map(to_markdown, (scores, cosines, gaps)))
