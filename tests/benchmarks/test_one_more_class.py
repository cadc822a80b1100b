"""One more class: what is measured, the pairs of SetFit, and its two steps with a stand-in for the network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.core.trials import Row, Trial
from benchmarks.data import Dataset
from benchmarks.experiments.one_more_class import (
    PAIRS,
    TASKS,
    SetFit,
    _warm_up,
    measured,
    pairs,
    read_texts,
    run,
    tables,
    trials,
)


class Fixed:
    """Knows all old classes, and forgets class 0 when the last one comes."""

    def __init__(self, test_y: np.ndarray) -> None:
        self.test_y, self.added = test_y, False
        self.seen: list[np.ndarray] = []

    def fit(self, rows: np.ndarray) -> None:
        self.seen.append(rows)

    def add(self, rows: np.ndarray) -> None:
        self.seen.append(rows)
        self.added = True

    def probabilities(self, rows: np.ndarray) -> np.ndarray:
        answer = self.test_y[rows]
        answer = np.where((answer == 0) & self.added, 2, answer)
        return np.eye(2 + self.added)[answer]


def test_what_is_measured() -> None:
    y, test_y = np.array([0, 0, 1, 1, 2, 2, -1]), np.array([0, 1, 1, 1, 2, -1])
    learner = Fixed(test_y)
    found = measured(learner, np.arange(6), y, test_y)
    assert [rows.tolist() for rows in learner.seen] == [[0, 1, 2, 3], [4, 5]]
    assert (found["accuracy_before"], found["accuracy"], found["accuracy_new"]) == (1.0, 0.8, 1.0)
    assert found["forgotten"] == 0.25  # one of four rows of the others


def test_pairs() -> None:
    texts, y = ["a", "b", "c", "d"], np.array([0, 0, 1, 2])
    label = dict(zip(texts, y.tolist(), strict=True))
    found = pairs(texts, y, 0)
    assert len(found) == 2 * PAIRS + 4 * PAIRS  # c and d have none of their own class
    assert all((label[u] == label[v]) == (value == 1.0) and u != v for u, v, value in found)
    assert pairs(texts, y, 0) == found != pairs(texts, y, 1)
    assert [_warm_up(step, 20) for step in (0, 1, 2, 20)] == [0.5, 1.0, 1.0, 0.0]


def test_setfit_is_trained_anew_for_another_class() -> None:
    texts = {"train": ["aa", "ab", "bb", "ba", "cc", "cc"], "test": ["a", "b", "c"]}
    told = []

    def tuned(examples: list[tuple[str, str, float]], seed: int) -> Callable[[list[str]], np.ndarray]:
        told.append({text for pair in examples for text in pair[:2]})
        return lambda these: np.array([[4.0 * text.startswith(letter) for letter in "abc"] for text in these])

    learner = SetFit(texts, np.array([0, 0, 1, 1, 2, 2]), 0, tuned)
    found = measured(learner, np.arange(6), learner.y, np.array([0, 1, 2]))
    assert told == [{"aa", "ab", "bb", "ba"}, {"aa", "ab", "bb", "ba", "cc"}]
    assert (found["accuracy"], found["forgotten"]) == (1.0, 0.0)


def test_texts_are_checked_against_the_vectors(tmp_path: Path) -> None:
    x = np.zeros((2, 3), dtype=np.float32)
    data = Dataset("clinc150", x, np.array([0, 1]), x, np.array([1, 1]), ("hi", "bye"))
    parts = {"train": [["hello", "hi"], ["ciao", "bye"]], "test": [["adieu", "bye"], ["bye", "bye"]]}
    (tmp_path / "clinc150.json").write_text(json.dumps(parts))
    assert read_texts(data, tmp_path)["test"] == ["adieu", "bye"]
    parts["test"].reverse()
    parts["test"][0][1] = "hi"
    (tmp_path / "clinc150.json").write_text(json.dumps(parts))
    with pytest.raises(ValueError, match="are not in the order of its vectors"):
        read_texts(data, tmp_path)
    (tmp_path / "banking77_train.csv").write_text('text,category\n"a, b",hi\nc,bye\n')
    (tmp_path / "banking77_test.csv").write_text("text,category\nd,bye\ne,bye\n")
    other = Dataset("banking77", x, data.train_y, x, data.test_y, data.names)
    assert read_texts(other, tmp_path)["train"] == ["a, b", "c"]


@pytest.mark.parametrize("method", ["gptree", "knn"])
def test_a_run_on_digits(method: str) -> None:
    found = run(Trial("one-more-class", method, "digits", 0, {"classes": 3, "shots": 4}), Path())
    assert found["accuracy"] > 0.8
    assert found["seconds_add"] > 0


def test_table() -> None:
    numbers = {"accuracy": 0.9, "accuracy_new": 0.8, "nll": 0.5, "ece": 0.1, "seconds_add": 2.0, "forgotten": 0.0}
    rows = [Row(trial, numbers, {"wall": 1.0, "cpu": 1.0}, 1, {}, {}) for trial in trials(1)]
    (table,) = tables(rows)
    assert len(table.lines) == 3 * len(TASKS) - 2  # SetFit with ten shots takes too long
    assert table.lines[0][:4] == ["banking77", "20", "5", "gptree"]
