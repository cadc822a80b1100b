"""Wrong labels, merged and unequal classes as the experiments draw them, cells that miss, and flat corrections."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.core.trials import Row, Trial
from benchmarks.data import Dataset
from benchmarks.experiments import few_and_unequal, noisy_labels, what_gps_add
from benchmarks.experiments.frozen.cells import OTHERS, cell_table, count_table, differences
from benchmarks.experiments.frozen.methods import FOREST, MEAN, POOL


def dataset(classes: int = 7, rows: int = 20) -> Dataset:
    """The feature of a row is its number."""
    y = np.repeat(np.arange(classes), rows)
    x = np.arange(len(y), dtype=np.float32)[:, None]
    return Dataset("made", x, y, x, y, tuple("abcdefg"[:classes]))


def test_wrong_labels_are_others_and_no_class_is_lost() -> None:
    data = dataset()
    task = noisy_labels.with_wrong_labels(data, 0.2, seed=3)
    changed = task.train_y != data.train_y
    assert changed.sum() == 28
    assert not changed[::20].any()  # the first rows
    assert len(np.unique(task.train_y[changed])) == 7
    np.testing.assert_array_equal(task.test_y, data.test_y)
    assert noisy_labels.with_wrong_labels(data, 0.0, seed=3) is data
    two = noisy_labels.with_wrong_labels(dataset(2, 2), 0.9, seed=0)
    assert (two.train_y != dataset(2, 2).train_y).tolist() == [False, True, False, True]


def test_merged_classes_are_pairs() -> None:
    data = dataset()
    task = noisy_labels.merged(data, seed=1)
    assert sorted(np.bincount(task.train_y).tolist()) == [20, 40, 40, 40]
    assert len(task.names) == 4
    for y in (task.train_y, task.test_y):
        assert all(len(np.unique(y[data.train_y == c])) == 1 for c in range(7))
    assert (noisy_labels.merged(data, seed=2).train_y != task.train_y).any()


def test_sizes_are_log_uniform_from_one_to_all() -> None:
    data = dataset(7, 20)
    sizes = np.stack([np.bincount(few_and_unequal.log_uniform(data, seed).train_y) for seed in range(200)])
    assert sizes.min() == 1
    assert sizes.max() == 20
    # P(size ≤ k) = log(k + 1) / log 21; 1,400 draws: wrong by 0.05 in fewer than one case of a thousand
    for k in (1, 4, 9):
        assert np.mean(sizes <= k) == pytest.approx(np.log(k + 1) / np.log(21), abs=0.05)


def rows_of(method: str, nlls: list[float], eces: list[float]) -> list[Row]:
    return [
        Row(Trial("noisy-labels", method, "made", seed), {"nll": n, "ece": e, "accuracy": 0.5}, {}, None, {}, {})
        for seed, (n, e) in enumerate(zip(nlls, eces, strict=True))
    ]


def test_cells_that_miss_are_marked() -> None:
    forest = rows_of(FOREST, [1.00, 1.10, 1.20], [0.02, 0.03, 0.04])
    near = rows_of(POOL, [1.01, 1.08, 1.20], [0.02, 0.03, 0.036])
    far = rows_of(MEAN, [0.90, 1.01, 1.10], [0.00, 0.01, 0.02])
    found = differences([*forest, *near, *far])
    assert not found[POOL].misses
    assert found[MEAN].misses_nll
    assert found[MEAN].misses_ece
    assert found[MEAN].badly
    table = cell_table("Cells", [*forest, *near, *far], {"data": "data"})
    assert table.lines == [["made", found[POOL].text, found[MEAN].text, "–", "3"]]
    assert "**" not in found[POOL].text
    assert found[MEAN].text == "**+0.097 ± 0.003** / **+2.0 ± 0.0** ‼"
    counts = {line[0]: line[1:] for line in count_table([*forest, *near, *far], {"data": "data"}).lines}
    assert counts[OTHERS[POOL]] == ["0", "0", "0", "0", "1"]
    assert counts[OTHERS[MEAN]] == ["1", "1", "1", "1", "1"]
    assert counts["any of them"] == ["1", "1", "1", "1", "1"]


def test_a_flat_correction_is_at_its_mode() -> None:
    """There the weights are the residuals: [y = c] − p_c, row by row."""
    random = np.random.default_rng(0)
    X = torch.as_tensor(random.normal(size=(30, 4)))
    X /= X.norm(dim=1, keepdim=True)
    offset, y = (
        torch.as_tensor(random.normal(size=(30, 3))).log_softmax(1),
        torch.as_tensor(random.integers(3, size=30)),
    )
    K = 5.0 * what_gps_add.kernel(X, X)
    A = what_gps_add.mode(K, offset, y)
    for i in range(30):
        p = (offset[i] + K[i] @ A).softmax(0)
        for c in range(3):
            assert float(A[i, c]) == pytest.approx(float(y[i] == c) - float(p[c]), abs=1e-2)


@pytest.mark.parametrize("method", [what_gps_add.SOFTMAX, what_gps_add.LOGISTIC])
def test_flat_corrections_have_scores(method: str) -> None:
    trial = Trial("what-gps-add", method, "digits", 0, {"classes": 5, "shots": 5})
    assert what_gps_add.run(trial, Path())["accuracy"] > 0.8
