"""Signs of a stranger and their sum, beside loops; regressions with rows left out, beside refits."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from gptree import GPTreeClassifier, Growth, load_model
from gptree.estimators.known_rows import known_rows
from gptree.incremental import base
from gptree.metrics import auroc
from gptree.model import Distances, LeftOut, NoveltyScore, choose_weight, distance_rows, known_signs, signs
from gptree.model import strangers as module
from gptree.model.strangers import FAR, NOISE, USUAL, VARIANCE_WEIGHTS, WEIGHTS
from small_sizes import small_random_features

CLASSES, WIDTH = 5, 7


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def points(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of unit length and classes of two to five of them, mixed."""
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat(np.arange(CLASSES), [2, 3, 3, 4, 5]))
    return unit(random.normal(size=(CLASSES, WIDTH))[y] + 0.7 * random.normal(size=(len(y), WIDTH))), y


def slow_variance(X: np.ndarray, x: np.ndarray) -> float:
    """That of one row x, by the equations of Gaussian process regression."""
    K = np.array([[math.exp(a @ b - 1) for b in X] for a in X]) + NOISE * np.eye(len(X))
    k = np.array([math.exp(a @ x - 1) for a in X])
    return 1.0 - float(k @ np.linalg.inv(K) @ k)


def test_variances_with_rows_left_out_equal_those_without_them() -> None:
    X, y = points()
    new = unit(np.random.default_rng(1).normal(size=(4, WIDTH)))
    distances = Distances(torch.as_tensor(X), torch.as_tensor(y))
    at, alone, without = (
        found[:, 1] for found in (distances.at(torch.as_tensor(new)), distances.left_out(), distances.without_class())
    )
    np.testing.assert_allclose(at, [slow_variance(X, x) for x in new], rtol=0, atol=1e-10)
    for i, x in enumerate(X):
        others, strange = np.arange(len(y)) != i, y != y[i]
        assert alone[i] == pytest.approx(slow_variance(X[others], x), abs=1e-10)
        assert without[i] == pytest.approx(slow_variance(X[strange], x), abs=1e-10)
    assert distances.at(torch.zeros(0, WIDTH)).shape == (0, 2)


def test_rows_that_distances_are_from(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.array([2, -1, 0, 2, 1, 2, 1, -1])
    assert distance_rows(y, 3).tolist() == [0, 2, 3, 4, 5, 6]
    monkeypatch.setattr(module, "MOST_POINTS", 5)
    assert distance_rows(y, 3).tolist() == [0, 2, 3, 4, 6]  # two of each class, where there are
    monkeypatch.setattr(module, "MOST_POINTS", 3)
    assert distance_rows(y, 3).tolist() == [0, 2, 4]
    monkeypatch.setattr(module, "MOST_POINTS", 2)
    assert distance_rows(y, 3).tolist() == []
    assert distance_rows(np.zeros(3, dtype=int), 1).tolist() == []


def slow_novelty(known: np.ndarray, y: np.ndarray, row: np.ndarray, variance_weight: float) -> float:
    """The sum of one row, classes counting equally; all of them have two rows or more."""
    weight = [1 / (y == c).sum() / len(set(y)) for c in y]
    centre = [sum(w * r[j] for w, r in zip(weight, known, strict=True)) for j in range(4)]
    square = [sum(w * (r[j] - centre[j]) ** 2 for w, r in zip(weight, known, strict=True)) for j in range(4)]
    count = 1 / sum(w * w for w in weight)
    spread = [math.sqrt((count * s + 2 * u**2) / (count + 2)) for s, u in zip(square, (30, 3, 0.2, 0.08), strict=True)]
    variances = sorted(((r[3] - centre[3]) / spread[3], w) for r, w in zip(known, weight, strict=True))
    upto = np.cumsum([w for _, w in variances])
    far = next(z for (z, _), total in zip(variances, upto, strict=True) if total >= 0.95 - 1e-9)
    z = [(row[j] - centre[j]) / spread[j] for j in range(4)]
    total = z[0] + 0.3 * z[1] + 0.15 * z[2] + variance_weight * z[3] + FAR * max(z[3] - far, 0) ** 2
    return (1 + total / (1 + abs(total))) / 2


def test_the_score_equals_a_loop() -> None:
    assert (WEIGHTS, FAR) == ((1.0, 0.3, 0.15), 10.0)
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(4), [2, 3, 5, 40])
    known, new = random.normal(size=(50, 4)), 2 * random.normal(size=(20, 4))
    found = NoveltyScore.of(known, y, 0.3)(new)
    np.testing.assert_allclose(found, [slow_novelty(known, y, row, 0.3) for row in new], rtol=0, atol=1e-12)
    only = np.append(known, [[9.0, 9, 9, 9]], axis=0)  # the only row of a class says nothing
    np.testing.assert_array_equal(NoveltyScore.of(only, np.append(y, 7), 0.3)(new), found)
    flat = known.copy()
    flat[:, 2] = 5.0  # a sign that all known rows share
    assert np.isfinite(NoveltyScore.of(flat, y, 0.3)(new)).all()


def test_signs() -> None:
    best, familiarity = torch.tensor([0.9, 0.2, 1.0]).log(), torch.tensor([0.4, 0.0, 1.0])
    found = signs(best, familiarity, torch.tensor([[-0.5, 0.3], [-0.1, 0.7], [-1.0, 0.0]], dtype=torch.float64))
    expected = [
        [-0.5, math.log(0.1 / 0.9), math.log(0.6), 0.3],
        [-0.1, math.log(0.8 / 0.2), 0.0, 0.7],
        [-1.0, math.log(1e-6), math.log(1e-6), 0.0],
    ]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def slow_choice(known: np.ndarray, strangers: np.ndarray, y: np.ndarray) -> float:
    """Every class in turn; the smallest weight within a standard error of the best."""
    told = []
    for w in VARIANCE_WEIGHTS:
        weights, classes = np.array([1.0, 0.3, 0.0, w]), np.unique(y)
        equal = np.array([1 / (y == c).sum() / len(classes) for c in y])
        count = 1 / (equal @ equal)
        spread = np.sqrt((count * (equal @ (known - equal @ known) ** 2) + 2 * np.square(USUAL)) / (count + 2))
        told.append([auroc(known / spread @ weights, strangers[y == c] / spread @ weights) for c in classes])
    told = np.array(told)
    best = told[told.mean(1).argmax()]
    for w, each in zip(VARIANCE_WEIGHTS, told, strict=True):
        gap = best - each
        if gap.mean() <= gap.std(ddof=1) / np.sqrt(len(gap)) + 1e-12:
            return w
    raise AssertionError


def test_classes_choose_how_much_the_variance_counts() -> None:
    """Of strangers that differ in their variance alone the largest weight tells most, of others the smallest."""
    random = np.random.default_rng(3)
    y = np.repeat(np.arange(12), 5)
    known = random.normal(size=(60, 4))
    chosen = set()
    for shift in ([0, 0, 0, 2.0], [2.0, 0, 0, 0], [1.0, 0, 0, 0.3], [0.3, 0, 0, 0.5]):
        strangers = known + np.array(shift) + 0.3 * random.normal(size=(60, 4))
        strangers[:, 2] = 50.0  # not known of strangers, and not used
        found = choose_weight(known, strangers, y)
        assert found == slow_choice(known, strangers, y)
        chosen.add(found)
    assert chosen >= {VARIANCE_WEIGHTS[0], VARIANCE_WEIGHTS[-1]}
    few = np.repeat([0, 1], 30)
    strangers = known + np.array([0, 0, 0, 2.0])
    for classes in (few, np.arange(60)):  # too few classes, too few rows
        assert choose_weight(known, strangers, classes) == VARIANCE_WEIGHTS[0]


def test_rows_that_distances_are_not_from_are_new_to_them() -> None:
    X, y = points()
    sphere, rows = torch.as_tensor(X), np.array([0, 3, 4, 5, 6, 9, 11])
    zero = torch.zeros(len(y), dtype=torch.float64)
    left_out = LeftOut(zero - 1, zero - 1, zero - 2, zero, None)
    found = known_signs(left_out, sphere, y, rows)
    expected = Distances(sphere[rows], torch.as_tensor(y[rows]))
    others = np.setdiff1d(np.arange(len(y)), rows)
    torch.testing.assert_close(found.known[others][:, [0, 3]], expected.at(sphere[others]))
    torch.testing.assert_close(found.known[rows][:, [0, 3]], expected.left_out())
    nothing = known_signs(left_out, sphere, y, rows[:0])
    assert nothing.distances is None
    assert (nothing.known[:, [0, 3]] == 0).all()
    assert nothing.variance_weight == VARIANCE_WEIGHTS[0]


# ------------------------------------------------------------------------------------------------------- estimators


def rows(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows and labels of ten classes, new rows of them, and rows of other classes."""
    random = np.random.default_rng(seed)
    means = random.normal(size=(16, 24))
    y, new, other = np.repeat(np.arange(10), 5), np.repeat(np.arange(10), 15), np.repeat(np.arange(10, 16), 25)
    X, friends, others = (means[c] + 1.2 * random.normal(size=(len(c), 24)) for c in (y, new, other))
    return X, friends, others, y


@pytest.mark.parametrize("growth", [None, Growth(exemplars=3)])
def test_strangers_are_told_better_than_by_probabilities(growth: Growth | None, tmp_path: Path) -> None:
    """Three draws of 300 rows each: the mean gain in AUROC is 0.03 and more, with a standard error of 0.01 (3σ)."""
    gains, model = [], GPTreeClassifier(random_state=0, growth=growth)
    with small_random_features(lda=20, ridge=25):
        for seed in range(3):
            X, friends, others, y = rows(seed)
            model.fit(X, y)
            score = [model.novelty_score(part) for part in (friends, others)]
            sure = [-model.predict_proba(part).max(1) for part in (friends, others)]
            gains.append(auroc(*score) - auroc(*sure))
    assert np.mean(gains) > 0
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_allclose(loaded.novelty_score(others), score[1], rtol=0, atol=1e-12)
    assert loaded.novelty_threshold(0.2) == pytest.approx(model.novelty_threshold(0.2), abs=1e-12)


def test_a_base_session_looks_at_its_examples_while_it_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 3)
    X = np.eye(4, 10)[y] + 0.2 * random.normal(size=(12, 10))
    calls: list[int] = []
    looks = base.left_out_predictions
    monkeypatch.setattr(base, "left_out_predictions", lambda *a, **k: calls.append(1) or looks(*a, **k))
    model = GPTreeClassifier(growth=Growth(), random_state=0).fit(X, y)
    assert len(calls) == 1
    model.predict_open(X)
    assert len(calls) == 1
    model.predict_at = "quadrature"  # which looks otherwise
    model.predict_open(X)
    assert len(calls) == 2


def test_undone_growth_leaves_the_score_as_it_was() -> None:
    X, friends, others, y = rows(0)
    model = GPTreeClassifier(random_state=0).fit(X, y)
    before, threshold = model.novelty_score(friends), model.novelty_threshold(0.2)
    model.add_classes(others[:5], [99] * 5)
    known = known_rows(model.state_, "mean")
    assert known.novelty.shape == known.y.shape == (55,)
    assert np.isfinite(known.novelty).all()
    of_class = slice(0, 25)
    assert np.median(model.novelty_score(others[of_class])) < np.median(model.novelty_score(others[25:]))
    model.undo()
    np.testing.assert_allclose(model.novelty_score(friends), before, rtol=0, atol=1e-10)
    assert model.novelty_threshold(0.2) == pytest.approx(threshold, abs=1e-10)


def test_more_classes_than_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probability and variance at the last decision are left."""
    X, friends, others, y = rows(0)
    monkeypatch.setattr(module, "MOST_POINTS", 9)
    model = GPTreeClassifier(random_state=0).fit(X, y)
    score, query = model.novelty_score(friends), model._query(friends)
    known = known_rows(model.state_, "mean")
    assert known.distances is None
    familiarity = query.state.model.familiarity(query.features, query.log_p.argmax(1))
    part = signs(torch.as_tensor(query.log_p.max(1)), familiarity, torch.zeros(len(friends), 2).double())
    assert known.score is not None
    np.testing.assert_allclose(score, known.score(part.numpy()))
    assert auroc(score, model.novelty_score(others)) > 0.6
