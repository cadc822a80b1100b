"""Which rows to label next: the greedy choice against one that evaluates the objective anew for every row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptree.estimators import active
from gptree.estimators.active import suggest, uncertainty


def make_pool(seed: int, rows: int = 40, known: int = 5, classes: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    log_p = np.log(random.dirichlet(np.full(classes, 0.5), rows))
    return log_p, random.normal(size=(rows, 6)), random.normal(size=(known, 6))


def objective(chosen: list[int], unsure: np.ndarray, features: np.ndarray, labelled: np.ndarray) -> float:
    """Σ_j u_j max_i k(x_i, x_j), row by row."""
    labels = [*labelled, *(features[i] for i in chosen)]
    total = 0.0
    for u, x in zip(unsure, features, strict=True):
        cosines = [float(x @ l) / float(np.linalg.norm(x) * np.linalg.norm(l)) for l in labels]
        total += u * max(np.exp(g - 1) for g in cosines)
    return total


@pytest.mark.parametrize("seed", range(5))
def test_every_choice_adds_most_to_the_objective(seed: int) -> None:
    log_p, features, labelled = make_pool(seed)
    unsure = uncertainty(log_p)
    chosen: list[int] = []
    for _ in range(8):
        free = [i for i in range(len(features)) if i not in chosen]
        chosen.append(max(free, key=lambda i: objective([*chosen, i], unsure, features, labelled)))
    assert suggest(log_p, features, labelled, 8).tolist() == chosen


def test_uncertainty_by_hand() -> None:
    p = np.array([[0.5, 0.5, 0.0], [0.7, 0.1, 0.2], [0.0, 1.0, 0.0]])
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(uncertainty(np.log(p)), [1.0, 0.5, 0.0])
    np.testing.assert_array_equal(uncertainty(np.zeros((3, 1))), np.ones(3))  # of one class nobody can be sure


def clusters(sizes: list[int], spread: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """Points about orthogonal directions, and the direction of each."""
    of = np.repeat(np.arange(len(sizes)), sizes)
    return np.eye(len(sizes))[of] + spread * np.random.default_rng(0).normal(size=(len(of), len(sizes))), of


def test_each_group_is_seen_once_before_any_twice_the_largest_first() -> None:
    features, of = clusters([4, 9, 2, 6])
    unsure = np.log(np.full((len(of), 2), 0.5))
    assert of[suggest(unsure, features, np.zeros((0, 4)), 4)].tolist() == [1, 3, 0, 2]


def test_what_is_labelled_waits() -> None:
    features, of = clusters([4, 9, 2, 6])
    unsure = np.log(np.full((len(of), 2), 0.5))
    assert sorted(of[suggest(unsure, features, np.eye(4)[[1]], 3)].tolist()) == [0, 2, 3]


def test_what_is_sure_waits() -> None:
    features, of = clusters([4, 9, 2, 6])
    p = np.where((of == 1)[:, None], [0.999, 0.001], [0.5, 0.5])
    assert sorted(of[suggest(np.log(p), features, np.zeros((0, 4)), 3)].tolist()) == [0, 2, 3]


def test_copies_of_a_row_are_taken_last() -> None:
    features = np.eye(6)[[0, 0, 0, 1, 2, 2, 3]]
    chosen = suggest(np.log(np.full((7, 2), 0.5)), features, np.eye(6)[[4]], 7)
    assert sorted(map(tuple, features[chosen[:4]])) == sorted(map(tuple, np.eye(6)[:4]))
    assert sorted(chosen.tolist()) == list(range(7))


@given(
    rows=st.integers(1, 40),
    known=st.integers(0, 5),
    classes=st.integers(1, 4),
    share=st.floats(0, 1),
    part=st.sampled_from([3, 8, 4096]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=80, deadline=None)
def test_so_many_different_rows(rows: int, known: int, classes: int, share: float, part: int, seed: int) -> None:
    """Also of pools that are taken in parts."""
    log_p, features, labelled = make_pool(seed, rows, known, classes)
    n = round(share * rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active, "ROWS_A_PART", part)
        chosen = suggest(log_p, features, labelled, n)
        again = suggest(log_p, features, labelled, n)
    assert chosen.dtype.kind == "i"
    assert len(chosen) == len(set(chosen.tolist())) == n
    assert set(chosen.tolist()) <= set(range(rows))
    assert chosen.tolist() == again.tolist()


def test_order_and_scale_of_the_rows_do_not_matter() -> None:
    log_p, features, labelled = make_pool(3)
    chosen = suggest(log_p, features, labelled, 10)
    order = np.random.default_rng(1).permutation(len(features))
    lengths = np.random.default_rng(2).uniform(0.1, 10, size=(len(features), 1))
    moved = suggest(log_p[order], (lengths * features)[order], 7 * labelled, 10)
    assert order[moved].tolist() == chosen.tolist()


def test_parts_know_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four groups dealt out over three parts: four labels still go to four groups."""
    features, of = clusters([9, 9, 9, 9])
    monkeypatch.setattr(active, "ROWS_A_PART", 12)
    assert sorted(of[suggest(np.log(np.full((36, 2), 0.5)), features, np.zeros((0, 4)), 4)].tolist()) == [0, 1, 2, 3]


def test_more_rows_than_there_are() -> None:
    log_p, features, labelled = make_pool(0)
    for n in (41, -1):
        with pytest.raises(ValueError, match="40 to choose from"):
            suggest(log_p, features, labelled, n)
