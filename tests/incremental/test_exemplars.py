"""Which examples of a class are kept, and how many others each of them stands for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gptree.incremental import Graft, Growth, Herding, KMeansExemplars, KMeansPlusPlusExemplars, exemplars
from gptree.incremental.exemplars import Selection, root_rows, select_exemplars
from gptree.tree import label_hashes

SELECTIONS = [KMeansExemplars(), Herding(), KMeansPlusPlusExemplars()]
each_selection = pytest.mark.parametrize("selection", SELECTIONS, ids=lambda value: type(value).__name__)


def data(counts: list[int], seed: int = 0, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat(np.arange(len(counts)), counts))
    return random.normal(size=(len(y), d)) + y[:, None], y


def names(n: int) -> np.ndarray:
    return label_hashes([f"class {c}" for c in range(n)])


@each_selection
@settings(deadline=None, max_examples=15)
@given(counts=st.lists(st.integers(1, 12), min_size=1, max_size=4), m=st.integers(1, 6), seed=st.integers(0, 99))
@example(counts=[1, 3, 10, 7], m=5, seed=12)  # one example is the nearest to the centres of two clusters
def test_at_most_so_many_distinct_examples_of_every_class(
    selection: Selection, counts: list[int], m: int, seed: int
) -> None:
    X, y = data(counts, seed)
    rows, weights = select_exemplars(X, y, m, selection, names(len(counts)), seed)
    assert len(set(rows.tolist())) == len(rows) == len(weights)
    assert (np.diff(y[rows]) >= 0).all()  # class after class
    for c, n in enumerate(counts):
        taken = rows[y[rows] == c]
        assert len(taken) == min(m, n)  # no two examples are alike here
        # every example is counted at the exemplar nearest to it
        nearest = [
            min(taken, key=lambda row, i=i: float(np.linalg.norm(X[i] - X[row]))) for i in np.flatnonzero(y == c)
        ]
        assert weights[y[rows] == c].tolist() == [nearest.count(row) + 0.5 for row in taken]
        assert weights[y[rows] == c].sum() == n + 0.5 * len(taken)


@each_selection
def test_a_choice_depends_on_the_class_and_its_label_alone(selection: Selection) -> None:
    X, y = data([15, 12, 9])
    rows, weights = select_exemplars(X, y, 4, selection, names(3), 7)
    for c in range(3):
        members = np.flatnonzero(y == c)
        alone = select_exemplars(X[members], np.zeros(len(members), dtype=int), 4, selection, names(3)[c : c + 1], 7)
        assert members[alone.rows].tolist() == rows[y[rows] == c].tolist()
        assert alone.weights.tolist() == weights[y[rows] == c].tolist()
    swapped = select_exemplars(X, 2 - y, 4, selection, names(3)[::-1], 7)
    assert sorted(swapped.rows.tolist()) == sorted(rows.tolist())


@pytest.mark.parametrize("selection", [KMeansExemplars(), KMeansPlusPlusExemplars()], ids=["k-means", "spread"])
def test_one_exemplar_of_every_cluster(selection: Selection) -> None:
    random = np.random.default_rng(0)
    cluster = np.repeat(np.arange(4), 10)
    X = 20 * np.eye(4)[cluster] + 0.01 * random.normal(size=(40, 4))
    rows, weights = select_exemplars(X, np.zeros(40, dtype=int), 4, selection, names(1), 0)
    assert sorted(cluster[rows].tolist()) == [0, 1, 2, 3]
    assert weights.tolist() == [10.5] * 4


def test_k_means_samples_are_the_nearest_to_the_centres() -> None:
    """With one centre that is the mean."""
    X, y = data([20])
    rows, weights = select_exemplars(X, y, 1, KMeansExemplars(), names(1), 0)
    assert rows.tolist() == [int(np.linalg.norm(X - X.mean(0), axis=1).argmin())]
    assert weights.tolist() == [20.5]


def test_k_means_begins_four_times_from_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int, int]] = []
    means = exemplars.KMeans

    def watched(count: int, n_init: int, random_state: int) -> object:
        made.append((count, n_init, random_state))
        return means(count, n_init=n_init, random_state=random_state)

    monkeypatch.setattr(exemplars, "KMeans", watched)
    KMeansExemplars().choose(data([20])[0], 3, np.random.default_rng(5))
    assert made == [(3, 4, int(np.random.default_rng(5).integers(2**31)))]


@settings(deadline=None, max_examples=25)
@given(n=st.integers(3, 14), m=st.integers(1, 13), seed=st.integers(0, 999))  # of two, both are as near to the mean
def test_herding_against_a_loop(n: int, m: int, seed: int) -> None:
    X, _ = data([n], seed)
    m = min(m, n)
    taken: list[int] = []
    for _ in range(m):
        gaps = {
            i: float(np.linalg.norm(X.mean(0) - np.mean([X[j] for j in [*taken, i]], axis=0)))
            for i in range(n)
            if i not in taken
        }
        taken.append(min(gaps, key=gaps.__getitem__))
    assert Herding().choose(X, m, np.random.default_rng(0)).tolist() == taken


def test_the_spread_begins_at_the_mean_and_depends_on_the_seed() -> None:
    X, _ = data([40])
    first = KMeansPlusPlusExemplars().choose(X, 5, np.random.default_rng(0))
    assert first[0] == np.linalg.norm(X - X.mean(0), axis=1).argmin()
    assert first.tolist() != KMeansPlusPlusExemplars().choose(X, 5, np.random.default_rng(1)).tolist()


@each_selection
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_copies_of_one_example(selection: Selection, dtype: type) -> None:
    X = np.repeat(np.eye(2, 3, dtype=dtype), [9, 3], axis=0)
    rows, weights = select_exemplars(X, np.zeros(12, dtype=int), 4, selection, names(1), 0)
    assert 1 <= len(set(rows.tolist())) == len(rows) <= 4
    assert weights.sum() == 12 + 0.5 * len(rows)
    rows, _ = select_exemplars(X[:4], np.zeros(4, dtype=int), 4, selection, names(1), 0)
    assert rows.tolist() == [0, 1, 2, 3]  # nothing is to be chosen


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"exemplars": 0}, ValueError, "exemplars must be a whole number of at least 1"),
        ({"exemplars": 2.5}, ValueError, "exemplars"),
        ({"shots": True}, ValueError, "shots"),
        ({"shots": -1}, ValueError, "shots"),
        ({"strategy": 3}, TypeError, r"the strategy must be a value such as SharedRoot\(\)"),
        ({"strategy": "oak"}, ValueError, "Unknown strategy 'oak'; choose from graft"),
        ({"strategy": Graft}, TypeError, "strategy"),
        ({"selection": "herding"}, TypeError, r"selection must be KMeansExemplars\(\)"),
    ],
)
def test_bad_settings_are_named(settings: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Growth(**settings)


def test_settings_are_values() -> None:
    assert Growth(strategy=Graft()) == Growth(5, np.int64(5), Graft(), KMeansExemplars())
    assert hash(Growth()) == hash(Growth(selection=KMeansExemplars()))


def test_those_that_are_not_among_do_not_exist() -> None:
    random = np.random.default_rng(2)
    X, y, among = random.normal(size=(60, 3)), np.arange(60) % 3, random.random(60) < 0.4
    rows, weights = select_exemplars(X, y, 4, KMeansExemplars(), names(3), 7, among)
    alone = select_exemplars(X[among], y[among], 4, KMeansExemplars(), names(3), 7)
    assert np.array_equal(rows, np.flatnonzero(among)[alone.rows])
    assert np.array_equal(weights, alone.weights)


def test_a_root_sees_the_first_of_every_class_before_the_second_of_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more classes it sees some of the same rows, and no others of the classes that were there."""
    _, y = data([4, 1, 3, 5, 2])
    y, hashes = torch.as_tensor(y), names(5)
    assert root_rows(y, hashes).tolist() == list(range(15))
    monkeypatch.setattr(exemplars, "ROOT_ROWS", 8)
    seen = root_rows(y, hashes)
    in_turn = np.lexsort((hashes[y], [int((y[:i] == c).sum()) for i, c in enumerate(y.tolist())]))
    assert seen.tolist() == sorted(in_turn[:8].tolist())
    more = root_rows(torch.cat([y, torch.tensor([5, 5, 6])]), names(7))
    assert len(more) == 8
    assert set(more[more < 15].tolist()) < set(seen.tolist())
