"""The label-budget protocol: what is labelled when, its area, table and picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks.core.trials import Row, Trial
from benchmarks.data import Dataset, load
from benchmarks.experiments import labelling
from benchmarks.experiments.labelling import (
    METHODS,
    area,
    curves,
    entropy,
    figure,
    information,
    make_task,
    run,
    tables,
    trials,
)
from gptree import GPTreeClassifier


def dataset(classes: int = 6, rows: int = 7) -> Dataset:
    y = np.repeat(np.arange(classes), rows)
    x = np.random.default_rng(0).normal(size=(len(y), 3)).astype(np.float32)
    return Dataset("made", x, y, x[::2], y[::2], tuple("abcdef"[:classes]))


@pytest.mark.parametrize(("classes", "known"), [(None, 3), (5, 3), (4, 2)])
def test_the_start_is_two_labels_of_half_of_the_classes(classes: int | None, known: int) -> None:
    task = make_task(dataset(), classes, np.random.default_rng(1))
    assert len(task.y) == 7 * (classes or 6)
    found, counts = np.unique(task.y[task.start], return_counts=True)
    assert len(found) == known
    assert (counts == 2).all()
    assert set(task.test_y) == set(task.y)  # all classes are asked about


def test_the_pool_has_an_upper_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelling, "POOL", 30)
    assert len(make_task(dataset(), None, np.random.default_rng(1)).y) == 30


def test_area_by_hand() -> None:
    assert area([0.0, 0.5, 0.6]) == pytest.approx((0.25 + 0.55) / 2)


class Model:
    """Says what it was told to say."""

    p = np.array([[0.4, 0.35, 0.25], [0.5, 0.49, 0.01], [0.9, 0.05, 0.05], [1.0, 0.0, 0.0]])

    def predict_log_proba(self, X: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(self.p)

    def novelty_score(self, X: np.ndarray) -> np.ndarray:
        return np.array([0.1, 0.2, 0.9, 0.3])

    def suggest(self, X: np.ndarray, n: int) -> np.ndarray:
        return np.arange(n)


def test_what_each_method_chooses() -> None:
    model: Any = Model()
    rows, random = np.eye(4), np.random.default_rng(0)
    assert METHODS["margin"](model, rows, 2, random).tolist() == [1, 0]
    assert METHODS["entropy"](model, rows, 2, random).tolist() == [0, 1]
    assert METHODS["novelty"](model, rows, 2, random).tolist() == [2, 3]
    assert METHODS["suggest"](model, rows, 2, random).tolist() == [0, 1]
    assert len(set(METHODS["random"](model, rows, 3, random).tolist())) == 3
    slow = [-sum(q * np.log(q) for q in row if q > 0) for row in model.p]
    np.testing.assert_allclose(entropy(model.predict_log_proba(rows)), slow)


def test_information_is_that_of_samples_of_the_latent_functions() -> None:
    """Slow: class probabilities of every sample, decision by decision."""
    made = dataset()
    model = GPTreeClassifier(random_state=0).fit(made.train_x, made.train_y)
    rows, tree = made.train_x[::10] + 0.1, model.tree_
    latent = model.posterior(rows).sample(4_000, random_state=1)
    p = np.ones((4_000, len(rows), 6))
    for v in range(tree.n_nodes):
        left = 1 / (1 + np.exp(-latent[:, v, :, None]))
        p[:, :, tree.order[tree.lo[v] : tree.mid[v]]] *= left
        p[:, :, tree.order[tree.mid[v] : tree.hi[v]]] *= 1 - left
    mixed = p.mean(0)
    expected = -(mixed * np.log(mixed)).sum(1) + (p * np.log(p)).sum(2).mean(0)
    np.testing.assert_allclose(information(model, rows), expected, rtol=0, atol=0.01)
    assert expected.min() > 0.03


@pytest.mark.parametrize("method", ["suggest", "random", "BALD"])
def test_a_run_labels_batch_by_batch(method: str) -> None:
    metrics = run(Trial("labelling", method, "digits", 0, {"classes": 6, "batch": 4, "rounds": 2}), Path())
    assert metrics["labels"] == [6, 10, 14]
    assert metrics["classes"][0] == 3
    assert sorted(metrics["classes"]) == list(metrics["classes"])
    assert metrics["area"] == pytest.approx(area(metrics["accuracy"]))
    assert metrics["accuracy"][0] <= 0.55  # half of the classes are unknown


def test_runs_start_from_the_same_labels() -> None:
    tasks = [make_task(load("digits", "unused"), None, np.random.default_rng(3)) for _ in range(2)]
    assert tasks[0].start.tolist() == tasks[1].start.tolist()


def rows() -> list[Row]:
    made = []
    for trial in trials(5):
        good = 0.1 * (trial.method == "suggest") + 0.01 * trial.seed
        accuracy = [0.2, 0.4 + good, 0.5 + good]
        metrics = {"area": area(accuracy), "labels": [10, 20, 30], "accuracy": accuracy, "classes": [5, 7, 9]}
        made.append(Row(trial, metrics, {"wall": 1.0, "cpu": 1.0}, 1, {}, {}))
    return made


def test_table() -> None:
    (table,) = tables(rows())
    assert len(table.lines) == len(labelling.TASKS) * len(METHODS)
    # area of seed 0: (0.2 + 2 · 0.5 + 0.6) / 4 = 45 %, and 0.75 % more with every seed
    assert table.lines[0] == ["banking77", "all", "suggest", "46.5 ± 0.5", "62.0 ± 0.7", "9.0 ± 0.0", "5"]


def test_figure(tmp_path: Path) -> None:
    figure(rows(), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    ax = Figure().subplots()
    curves([row for row in rows() if row.trial.data == "digits"], ax)
    line = ax.get_lines()[0]
    assert line.get_label() == "suggest"
    np.testing.assert_allclose(line.get_xdata(), [10, 20, 30])
    np.testing.assert_allclose(line.get_ydata(), [20, 52, 62])
