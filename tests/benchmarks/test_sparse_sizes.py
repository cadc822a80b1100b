"""Benchmarks of `SparseVariational` at small sizes: the million rows, and the cap on inducing points."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.core.trials import Row, Trial
from benchmarks.data import Dataset
from benchmarks.experiments import million_rows, sparse_cap


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_million_rows_at_a_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CLASSES": 5, "DIMENSIONS": 64, "QUERIES": 50}.items():
        monkeypatch.setattr(million_rows, name, value)
    X, y, X_new, y_new = million_rows.make_data(1000, seed=0)
    assert X.shape == (1000, 64)
    assert X.dtype == np.float32
    assert np.bincount(y).tolist() == [200] * 5
    assert np.bincount(y_new).tolist() == [10] * 5
    assert not (np.diff(y) >= 0).all()  # in random order
    means = np.stack([X[y == c].mean(0) for c in range(5)])
    assert np.mean((X_new @ means.T).argmax(1) == y_new) > 0.5  # rows and labels belong together
    (usual,) = million_rows.trials(1)
    trial = replace(usual, settings={"rows": 1000, "batch_size": 100, "threads": 1})
    row = Row(trial, million_rows.run(trial, Path()), {}, 2 * 10**9, {}, {})
    assert row.metrics["accuracy"] > 0.8
    ((line,),) = (table.lines for table in million_rows.tables([row]))
    assert line[:3] == ["1000", "100", "1"]
    assert line[5] == "2.00"


def test_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.repeat(np.arange(8), 30)
    x = (np.random.default_rng(0).normal(size=(8, 6))[y] + 0.3 * np.random.default_rng(1).normal(size=(240, 6))).astype(
        "f"
    )
    data = Dataset("clinc150", x[::2], y[::2], x[1::2], y[1::2], tuple("abcdefgh"))
    monkeypatch.setattr(sparse_cap, "load", lambda name, folder: data)
    rows = []
    for cap in (None, 16, 15, 6):
        trial = Trial("sparse-cap", "gptree, SparseVariational", "clinc150", 0, {"inducing": 3, "cap": cap})
        rows.append(Row(trial, sparse_cap.run(trial, Path()), {}, 0, {}, {}))
    assert [row.metrics["at_the_root"] for row in rows] == [
        24,
        16,
        8,
        6,
    ]  # one point each of eight classes, not fifteen
    assert all(row.metrics["accuracy"] > 0.8 for row in rows)
    (table,) = sparse_cap.tables(rows)
    assert [line[2:4] for line in table.lines] == [["all", "24"], ["16", "16"], ["15", "8"], ["6", "6"]]


def test_every_trial_changes_something() -> None:
    wanted = sparse_cap.trials(3)
    assert len(set(wanted)) == len(wanted)
    roots = {
        (
            t.data,
            t.seed,
            t.settings["inducing"],
            t.settings["cap"] or t.settings["inducing"] * sparse_cap.CLASSES[t.data],
        )
        for t in wanted
    }
    assert len(roots) == len(wanted)
    assert max(size for *_, size in roots) == sparse_cap.LARGEST_ROOT
