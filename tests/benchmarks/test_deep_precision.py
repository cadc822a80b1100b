"""The experiment on single precision: a pair of trials with a few rows, and what the page says of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.core.trials import Row
from benchmarks.data import Dataset
from benchmarks.experiments.deep import precision
from gptree.deep import Training


def test_a_pair_of_trials_and_their_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 20)
    x, asked = (random.normal(size=(4, 6))[y] + random.normal(size=(80, 6)) / 2 for _ in range(2))
    made = Dataset("few", x.astype(np.float32), y, asked.astype(np.float32), y, tuple("abcd"))
    monkeypatch.setattr(precision, "load", lambda name, folder: made)
    monkeypatch.setattr(precision, "TRAINING", Training(epochs=2, cross_entropy_epochs=1, batch_size=8, validation=0.2))
    pair = [trial for trial in precision.trials(1) if trial.data == "banking77" and trial.settings["inducing"] == 10]
    assert [trial.method for trial in pair] == ["double", "single"]
    rows = [Row(trial, precision.run(trial, Path()), {}, None, {}, {}) for trial in pair]
    double, single = (row.metrics for row in rows)
    assert (double["jitter"], single["jitter"]) == pytest.approx((1e-6, 1e-4))
    assert double["points"] == single["points"] == 40
    assert double["skipped"] == single["skipped"] == 0
    assert single["test"]["nll"] == pytest.approx(double["test"]["nll"], abs=0.01)
    assert double["alone"] != single["alone"]
    *differences, scores = precision.tables(rows)
    assert [table.title.split(": ")[1] for table in differences] == list(precision.PARTS)
    assert all([line[0] for line in table.lines] == ["banking77, 10 points a class"] for table in differences)
    assert [line[2] for line in scores.lines] == ["double", "single"]
