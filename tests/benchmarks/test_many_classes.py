"""The experiment `many-classes` with few of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.core.trials import Row
from benchmarks.experiments import many_classes


def test_many_classes_at_twelve_and_twenty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"DIMENSIONS": 16, "QUERIES": 60}.items():
        monkeypatch.setattr(many_classes, name, value)
    X, y, X_new, y_new = many_classes.make_data(12, seed=0)
    assert X.shape == (60, 16)
    assert np.bincount(y).tolist() == [5] * 12
    assert len(X_new) == len(y_new) == 60
    means = np.stack([X[y == c].mean(0) for c in range(12)])
    nearest = np.square(X_new[:, None] - means).sum(2).argmin(1)
    assert np.mean(nearest == y_new) > 0.2  # rows and labels belong together
    few = [trial for trial in many_classes.trials(1) if trial.settings["classes"] == 100]
    assert [trial.method for trial in few] == list(many_classes.METHODS)
    rows = []
    for trial in (replace(trial, settings={"classes": C}) for C in (12, 20) for trial in few):
        row = Row(trial, many_classes.run(trial, Path()), {}, 10**9, {}, {})
        assert 0.2 < row.metrics["accuracy"] <= row.metrics["top5"]
        assert row.metrics["nll"] < np.log(20) or trial.method == "logistic regression"
        assert ("file_bytes" in row.metrics) == row.trial.method.startswith("gptree")
        if "beam" in row.metrics:  # a beam of 16 of so few nodes leaves out hardly anything
            assert abs(row.metrics["beam_accuracy"] - row.metrics["accuracy"]) < 0.05
        rows.append(row)
    *sizes, exponents = many_classes.tables(rows)
    assert [table.title for table in sizes] == ["12 classes", "20 classes"]
    assert [line[0] for line in sizes[0].lines] == list(many_classes.METHODS)
    assert [line[:2] for line in exponents.lines] == [[method, "12 → 20"] for method in many_classes.METHODS]
    assert [bool(line[4]) for line in exponents.lines] == [True, True, False, False, False, False]


def test_the_largest_sizes_are_for_methods_that_can_do_them() -> None:
    largest = [trial.method for trial in many_classes.trials(1) if trial.settings["classes"] == 100_000]
    assert largest == ["gptree, tree", "gptree, forest", "experts alone", *many_classes.ON_GPU]
    assert [trial.method for trial in many_classes.trials(1) if many_classes.needs_gpu(trial)] == 3 * [
        *many_classes.ON_GPU
    ]
