"""The tables of strangers, sets and groups, from rows and arrays made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.core.trials import Row, Trial
from benchmarks.experiments import answers, strangers
from gptree.metrics import auroc


def row(seed: int, values: dict[str, float]) -> Row:
    metrics = {"held-out classes": {method: values.get(method, 0.5) for method in strangers.METHODS}}
    trial = Trial("strangers", "all scores", "cub200", seed, {"classes": 60, "shots": 5, "other": None})
    return Row(trial, metrics, {"wall": 1.0, "cpu": 1.0}, None, {}, {})


def test_scores_behind_the_best_are_marked() -> None:
    """The second is 0.02 ± 0.01 behind (by two errors, not more), the third 0.02 ± 0.001."""
    best, second, third = strangers.METHODS[:3]
    rows = [
        row(seed, {best: 0.9, second: 0.88 + noise, third: 0.88 + noise / 10})
        for seed, noise in enumerate((-0.01, 0.01))
    ]
    counted, cells = strangers.tables(rows)
    assert cells.lines[0][:5] == ["cub200, held-out classes", "5", "**0.900**", "0.880", "0.880 †"]
    assert [line[1] for line in counted.lines] == ["1 of 1", "1 of 1", *["0 of 1"] * 6]


def test_every_score_tells_strangers_that_lie_apart() -> None:
    random = np.random.default_rng(0)
    means = 3 * np.eye(12)[:5]
    y = np.repeat(np.arange(4), 6)
    x = means[y] + 0.3 * random.normal(size=(24, 12))
    queries = {
        "known": means[y] + 0.3 * random.normal(size=(24, 12)),
        "held-out classes": means[4] + 0.3 * random.normal(size=(20, 12)),
    }
    scores = strangers._forest_scores(x, y, queries, 0) | strangers._other_scores(x, y, queries)
    assert set(scores) == set(strangers.METHODS)
    for method, values in scores.items():
        assert auroc(values["known"], values["held-out classes"]) > 0.9, method


def test_sets_and_groups_are_counted() -> None:
    sets, y = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=bool), np.array([0, 1, 1, 2])
    assert answers._sets(sets, y) == pytest.approx({"covered": 0.75, "size": 7 / 4, "worst": 0.5})
    assert answers._groups(sets, y) == pytest.approx({"right": 0.75, "size": 7 / 4, "single": 0.25})
