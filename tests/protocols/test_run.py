"""Metrics of session streams on examples worked by hand, and the runner with models whose answers are known."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptree.metrics import ece, nll
from gptree.protocols import (
    Session,
    SessionStream,
    average_forgetting,
    harmonic_mean,
    performance_drop,
    run_stream,
    session_scores,
    stream_from_arrays,
)
from gptree.tree import ClassTree

KEYS = {
    *("data", "method", "settings", "seed", "session", "classes", "accuracy", "base_accuracy", "novel_accuracy"),
    *("session_accuracy", "harmonic_mean", "forgetting", "nll", "ece", "open_auroc", "seconds_add", "seconds_predict"),
    *("bytes", "versions", "machine"),
}

# ---------------------------------------------------------------------------------------------------------- metrics


def test_harmonic_mean() -> None:
    assert harmonic_mean(0.6, 0.3) == pytest.approx(2 * 0.18 / 0.9)  # 0.4
    assert harmonic_mean(0.7, 0.7) == pytest.approx(0.7)
    assert harmonic_mean(0.9, 0.0) == 0
    assert harmonic_mean(0.0, 0.0) == 0


def test_performance_drop() -> None:
    assert performance_drop([0.9, 0.95, 0.7]) == pytest.approx(0.2)
    assert performance_drop([0.5]) == 0


def test_forgetting_by_hand() -> None:
    history = [[0.9], [0.8, 0.6], [0.7, 0.65, 0.5], [0.75, 0.5, 0.4, 0.9]]
    assert average_forgetting(history[:1]) is None
    # k = 1: task 0 fell from .9 to .8
    assert average_forgetting(history[:2]) == pytest.approx(0.1)
    # k = 2: task 0, max(.9, .8) − .7 = .2; task 1 got better, .6 − .65 = −.05
    assert average_forgetting(history[:3]) == pytest.approx((0.2 - 0.05) / 2)
    # k = 3: task 0, max(.9, .8, .7) − .75 = .15; task 1, max(.6, .65) − .5 = .15; task 2, .5 − .4 = .1
    assert average_forgetting(history) == pytest.approx((0.15 + 0.15 + 0.1) / 3)


@given(st.integers(2, 7), st.integers(0, 10**6))
def test_forgetting_equals_a_loop(sessions: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    history = [rng.random(k + 1).tolist() for k in range(sessions)]
    k, total = sessions - 1, 0.0
    for j in range(k):
        best = -1.0
        for l in range(j, k):
            best = max(best, history[l][j])
        total += best - history[k][j]
    assert average_forgetting(history) == pytest.approx(total / k)


def test_session_scores_by_hand() -> None:
    # Columns a, b are base, c came in session 1, d in session 2. Right: rows 0, 1, 3, 4; wrong: row 2 (b for a),
    # row 5 (c for d).
    p = np.array(
        [
            [0.70, 0.10, 0.10, 0.10],
            [0.10, 0.70, 0.10, 0.10],
            [0.50, 0.30, 0.10, 0.10],
            [0.10, 0.10, 0.70, 0.10],
            [0.05, 0.05, 0.85, 0.05],
            [0.10, 0.10, 0.50, 0.30],
        ]
    )
    y, session_of = np.array([0, 1, 1, 2, 2, 3]), np.array([0, 0, 0, 1, 1, 2])
    scores = session_scores(p, y, session_of)
    assert scores["accuracy"] == pytest.approx(4 / 6)
    assert scores["base_accuracy"] == pytest.approx(2 / 3)
    assert scores["novel_accuracy"] == pytest.approx(2 / 3)  # two of c's, none of d's
    assert scores["session_accuracy"] == pytest.approx([2 / 3, 1, 0])
    assert scores["harmonic_mean"] == pytest.approx(2 / 3)
    assert scores["nll"] == pytest.approx(-np.log(0.7 * 0.7 * 0.3 * 0.7 * 0.85 * 0.3) / 6)
    # Bins of width 1/15: .7 three times, all right, gap .9; .5 twice, both wrong, gap 1.0; .85 once, right, gap .15
    assert scores["ece"] == pytest.approx((0.9 + 1.0 + 0.15) / 6)


def test_session_scores_of_the_base_alone() -> None:
    scores = session_scores(np.array([[0.9, 0.1], [0.8, 0.2]]), np.array([0, 1]), np.array([0, 0]))
    assert (scores["accuracy"], scores["base_accuracy"], scores["session_accuracy"]) == (0.5, 0.5, [0.5])
    assert scores["novel_accuracy"] is None
    assert scores["harmonic_mean"] is None


# --------------------------------------------------------------------------------------------- a scripted model


class Scripted:
    """Answers by heart: `script[k]` has, for every test row, the predicted class and its probability after session k.

    Feature 0 of a row is its number. What is left of the probability is spread evenly over the other classes.
    """

    script = (
        ("a .9", "a .75", "b .9", "a .65", "a .55", "b .45", "a .35", "b .25"),
        ("a .7", "c .5", "b .7", "b .7", "c .7", "c .7", "c .45", "a .9"),
        ("a .7", "c .5", "d .5", "b .7", "c .7", "d .5", "d .7", "d .7"),
    )
    order = (("a", "b"), ("c",), ("d",))

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        self.session, self.classes_ = 0, np.array(["a", "b"])

    def add_classes(self, X: np.ndarray, y: np.ndarray) -> None:
        self.session += 1
        self.classes_ = np.array([label for labels in self.order[: self.session + 1] for label in labels])

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        rows = []
        for number in X[:, 0].astype(int):
            label, sure = self.script[self.session][number].split()
            rest = (1 - float(sure)) / (len(self.classes_) - 1)
            rows.append(np.where(self.classes_ == label, float(sure), rest))
        return np.array(rows)


def scripted_stream() -> SessionStream:
    """Test rows 0, 1 are of a, 2, 3 of b (base), 4, 5 of c (session 1), 6, 7 of d (session 2)."""
    tests = [[0, 1, 2, 3], [4, 5], [6, 7]]
    labels = [["a", "a", "b", "b"], ["c", "c"], ["d", "d"]]
    sessions = []
    for rows, y in zip(tests, labels, strict=True):
        X = np.array(rows, dtype=float)[:, None]
        sessions.append(Session(X, np.array(y), X, np.array(y), np.unique(y)))
    return SessionStream("letters", tuple(sessions))


@pytest.fixture(scope="module")
def scripted() -> list[dict[str, Any]]:
    return run_stream(Scripted(), scripted_stream(), seed=3, method="by heart", settings={"way": 1}).rows


def test_accuracies_over_sessions(scripted: list[dict[str, Any]]) -> None:
    # Session 0: a a b a for a a b b. Session 1: a c b b c c. Session 2: a c d b c d d d.
    assert [row["accuracy"] for row in scripted] == pytest.approx([3 / 4, 5 / 6, 5 / 8])
    assert [row["base_accuracy"] for row in scripted] == pytest.approx([3 / 4, 3 / 4, 2 / 4])
    assert scripted[0]["novel_accuracy"] is None
    assert [row["novel_accuracy"] for row in scripted[1:]] == pytest.approx([1, 3 / 4])
    assert [row["session_accuracy"] for row in scripted] == [[0.75], [0.75, 1], [0.5, 0.5, 1]]
    assert scripted[0]["harmonic_mean"] is None
    # 2 · .75 · 1 / 1.75 and 2 · .5 · .75 / 1.25
    assert [row["harmonic_mean"] for row in scripted[1:]] == pytest.approx([1.5 / 1.75, 0.75 / 1.25])


def test_forgetting_over_sessions(scripted: list[dict[str, Any]]) -> None:
    assert scripted[0]["forgetting"] is None
    assert scripted[1]["forgetting"] == pytest.approx(0)  # .75 − .75
    assert scripted[2]["forgetting"] == pytest.approx(((0.75 - 0.5) + (1 - 0.5)) / 2)


def test_calibration_over_sessions(scripted: list[dict[str, Any]]) -> None:
    # Session 0, of two classes: the true classes have .9, .75, .9 and 1 − .65.
    assert scripted[0]["nll"] == pytest.approx(-np.log(0.9 * 0.75 * 0.9 * 0.35) / 4)
    # Bins: .9 twice, both right, gap .2; .75 right, gap .25; .65 wrong, gap .65
    assert scripted[0]["ece"] == pytest.approx((0.2 + 0.25 + 0.65) / 4)
    # Session 1, of three: five times .7, and .25 where c got .5.
    assert scripted[1]["nll"] == pytest.approx(-(5 * np.log(0.7) + np.log(0.25)) / 6)
    assert scripted[1]["ece"] == pytest.approx((5 * 0.3 + 0.5) / 6)
    # Session 2, of four: five times .7; .5 / 3 three times, where another class got .5.
    assert scripted[2]["nll"] == pytest.approx(-(5 * np.log(0.7) + 3 * np.log(0.5 / 3)) / 8)
    assert scripted[2]["ece"] == pytest.approx((5 * 0.3 + 3 * 0.5) / 8)


def test_open_set_auroc_by_confidence(scripted: list[dict[str, Any]]) -> None:
    # Session 0: confidence inside .9 .75 .9 .65, outside .55, 1 − .45, 1 − .35, 1 − .25 (of two classes the other has
    # more): .55 .55 .65 .75. Of 16 pairs, outside is less sure: .55 and .55, 4 each; .65, 3 and a tie with .65;
    # .75, 2 and a tie with .75. 8 + 3.5 + 2.5 = 14.
    assert scripted[0]["open_auroc"] == pytest.approx(14 / 16)
    # Session 1: inside .7 five times and .5, outside .45 and .9: .45 is below all 6, .9 below none.
    assert scripted[1]["open_auroc"] == pytest.approx(6 / 12)
    assert scripted[2]["open_auroc"] is None  # nothing is unknown any more


def test_open_set_auroc_by_novelty_score() -> None:
    class Wary(Scripted):
        def novelty_score(self, X: np.ndarray) -> np.ndarray:
            return np.array([0.0, 0.1, 0.6, 0.2, 0.5, 0.7, 0.9, 0.3])[X[:, 0].astype(int)]

    rows = run_stream(Wary(), scripted_stream(), seed=0, method="wary").rows
    # Session 0: inside 0 .1 .6 .2, outside .5 .7 .9 .3: .5 exceeds three, .7 and .9 all four, .3 three.
    assert rows[0]["open_auroc"] == pytest.approx((3 + 4 + 4 + 3) / 16)
    # Session 1: inside 0 .1 .6 .2 .5 .7, outside .9 .3: six and three.
    assert rows[1]["open_auroc"] == pytest.approx(9 / 12)


def test_rows_have_the_keys_of_the_contract(scripted: list[dict[str, Any]]) -> None:
    for number, row in enumerate(scripted):
        assert set(row) - {"commit"} == KEYS
        assert (row["data"], row["method"], row["seed"], row["session"]) == ("letters", "by heart", 3, number)
        assert row["settings"] == {"way": 1}
        assert row["classes"] == number + 2
        assert row["bytes"] is None
        assert row["seconds_add"] >= 0
        assert row["seconds_predict"] >= 0
        assert {"python", "gptree", "torch"} <= set(row["versions"])
    assert json.loads(json.dumps(scripted, allow_nan=False)) == scripted


def test_details_of_the_last_session() -> None:
    details = run_stream(Scripted(), scripted_stream(), seed=3, method="by heart").details
    assert (details["method"], details["seed"], details["n_base"]) == ("by heart", 3, 2)
    assert details["labels"] == ["a", "b", "c", "d"]
    assert details["session_of"] == [0, 0, 1, 2]
    assert details["confusion"] == [["a", "c", 1], ["b", "d", 1], ["c", "d", 1]]
    assert details["tree"] is None
    assert details["mistakes"] == []  # the rows have no ids
    # Confidence .5 is in bin 7 (7/15 to 8/15), three wrong; .7 in bin 10 (10/15 to 11/15), five right.
    expected = [[None, None, 0]] * 15
    assert len(details["reliability"]) == 15
    expected[7], expected[10] = [0.5, 0.0, 3], [0.7, 1.0, 5]
    for found, wanted in zip(details["reliability"], expected, strict=True):
        assert found == (wanted if wanted[0] is None else pytest.approx(wanted))
    assert json.loads(json.dumps(details, allow_nan=False)) == details


def test_mistakes_are_named() -> None:
    stream = scripted_stream()
    named = [replace(s, ids_test=[f"{k}-{i}" for i in range(len(s.y_test))]) for k, s in enumerate(stream.sessions)]
    found = run_stream(Scripted(), replace(stream, sessions=tuple(named)), seed=3, method="by heart").details[
        "mistakes"
    ]
    assert sorted(row[1:3] for row in found) == [["a", "c"], ["b", "d"], ["c", "d"]]
    assert all(row[3] == pytest.approx(0.5) for row in found)
    for name, label, *_ in found:
        session, row = map(int, name.split("-"))
        assert stream.sessions[session].y_test[row] == label
    with pytest.raises(ValueError, match="test rows, and 1 ids of them"):
        replace(stream.sessions[0], ids_test=["a"])


def test_what_a_model_may_offer() -> None:
    class Rich(Scripted):
        tree_ = ClassTree.from_preorder([-1, 0, -1, 1, -1, 2, 3])
        memory_ = SimpleNamespace(nbytes=np.int64(77))

    result = run_stream(Rich(), scripted_stream(), seed=0, method="rich")
    assert [row["bytes"] for row in result.rows] == [77, 77, 77]
    assert result.details["tree"] == Rich.tree_.to_json()
    json.dumps([result.rows, result.details], allow_nan=False)

    class Thrifty(Rich):
        memory_bytes_ = 12  # what a model says of all that it keeps goes before the size of its memory

    assert run_stream(Thrifty(), scripted_stream(), seed=0, method="thrifty").rows[0]["bytes"] == 12


def test_a_model_that_loses_or_keeps_too_many_classes_is_noticed() -> None:
    class Forgetful(Scripted):
        def add_classes(self, X: np.ndarray, y: np.ndarray) -> None:
            super().add_classes(X, y)
            self.classes_ = self.classes_[1:]

    with pytest.raises(ValueError, match="After session 1 the model must know the 3 classes it was taught"):
        run_stream(Forgetful(), scripted_stream(), seed=0, method="forgetful")


# ------------------------------------------------------------------------------------------------ an honest model


class ClassMeans:
    """Softmax over minus the squared distance to the class means, which is all that it keeps."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        self.classes_, self.means = np.array([], dtype=y.dtype), np.empty((0, X.shape[1]))
        self.add_classes(X, y)

    def add_classes(self, X: np.ndarray, y: np.ndarray) -> None:
        new = np.unique(y)
        self.classes_ = np.concatenate([self.classes_, new])
        self.means = np.concatenate([self.means, [X[y == label].mean(0) for label in new]])

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        scores = -((X[:, None] - self.means) ** 2).sum(2)
        p = np.exp(scores - scores.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True)


def test_the_runner_equals_a_plain_loop() -> None:
    """Labels that are no column numbers, classes in mixed order: everything from probabilities of a second model."""
    rng = np.random.default_rng(0)
    labels = np.array([50, 7, 90, 13, 21, 4, 66])
    y = np.tile(labels, 20)
    X = 2.0 * rng.standard_normal((100, 3))[y] + rng.standard_normal((len(y), 3))
    stream = stream_from_arrays(X[:70], y[:70], X[70:], y[70:], base=3, way=2, shot=3, seed=1)
    seen: list[int] = []
    result = run_stream(
        ClassMeans(), stream, seed=1, method="means", on_session=lambda row: seen.append(row["session"])
    )
    assert seen == [0, 1, 2]
    twin = ClassMeans()
    for k, session in enumerate(stream.sessions):
        (twin.add_classes if k else twin.fit)(session.X, session.y)
        right, truth, p = [], [], []
        for j in range(k + 1):
            for x, label in zip(stream.sessions[j].X_test, stream.sessions[j].y_test, strict=True):
                p.append(twin.predict_proba(x[None])[0])
                truth.append(twin.classes_.tolist().index(label))
                right.append((j, float(np.argmax(p[-1]) == truth[-1])))
        row = result.rows[k]
        assert row["accuracy"] == pytest.approx(np.mean([hit for _, hit in right]))
        assert row["base_accuracy"] == pytest.approx(np.mean([hit for j, hit in right if j == 0]))
        if k:
            assert row["novel_accuracy"] == pytest.approx(np.mean([hit for j, hit in right if j > 0]))
        each = [np.mean([hit for j, hit in right if j == task]) for task in range(k + 1)]
        assert row["session_accuracy"] == pytest.approx(each)
        assert row["nll"] == pytest.approx(nll(np.array(p), np.array(truth)))
        assert row["ece"] == pytest.approx(ece(np.array(p), np.array(truth), 15))
    assert 0.3 < result.rows[-1]["accuracy"] < 1.0  # neither chance (1/7) nor trivial
    wrong = sum(count for _, _, count in result.details["confusion"])
    assert wrong == sum(hit == 0 for _, hit in right)
