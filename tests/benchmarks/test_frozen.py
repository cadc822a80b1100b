"""Classifiers on frozen features: every method can be made, and the draws of one-shot and of unequal classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.core.trials import Trial
from benchmarks.data import Dataset
from benchmarks.experiments.frozen import classifiers, methods, unequal
from benchmarks.experiments.frozen.methods import EXPERTS, MEAN, POOL, VARIANTS
from benchmarks.experiments.frozen.one_shot import with_one_shot_classes
from gptree import GPForestClassifier, SphereMap


def dataset(classes: int = 6, rows: int = 50) -> Dataset:
    """The feature of a row is its number."""
    y = np.repeat(np.arange(classes), rows)
    x = np.arange(len(y), dtype=np.float32)[:, None]
    return Dataset("made", x, y, x, y, tuple("abcdef"[:classes]))


@pytest.mark.parametrize("name", [*(name for name in classifiers.METHODS if name != methods.OLD), *VARIANTS])
def test_every_method_can_be_made(name: str) -> None:
    assert {"fit", "predict_proba"} <= set(dir(methods.make_method(name, 100, seed=1)))


@pytest.mark.parametrize("name", [methods.OLD, methods.OLD_CHOSEN, methods.OLD_FEW, methods.OLD_POOL])
def test_methods_of_older_defaults_have_rows_and_no_more(name: str) -> None:
    with pytest.raises(ValueError, match="measured by an earlier version"):
        methods.make_method(name, 100, seed=1)


def test_experts_alone_are_those_of_the_forest() -> None:
    """To the last digits: what the forest adds must not be mixed up with other folds."""
    rng = np.random.default_rng(0)
    means, y = rng.normal(size=(12, 16)), np.repeat(np.arange(12), 2)
    X, new = means[y] + 0.7 * rng.normal(size=(24, 16)), rng.normal(size=(50, 16))
    alone, state = methods.make_method(POOL, 24, seed=3).fit(X, y), GPForestClassifier(random_state=3).fit(X, y).state_
    features = state.on_sphere(torch.as_tensor(SphereMap().fit(X).transform(new)))
    np.testing.assert_allclose(alone.predict_proba(new), state.experts.log_probabilities(features).exp(), atol=1e-12)


@pytest.mark.parametrize("name", [MEAN, POOL])
def test_a_trial_has_its_scores(name: str) -> None:
    trial = Trial("frozen-classifiers", name, "digits", 0, {"classes": None, "shots": 5})
    scores = methods.run(trial, folder=Path())
    assert scores["points"] == 50
    assert scores["accuracy"] > 0.7
    assert scores["seconds"] == pytest.approx(scores["fit_seconds"] + scores["predict_seconds"])


def test_the_papers_tree_has_no_trial_beyond_its_points() -> None:
    trials = classifiers.trials(1)
    assert {trial.method for trial in trials} == set(classifiers.METHODS) >= set(EXPERTS)
    large = [t for t in trials if t.data == "cub200" and (t.settings["classes"], t.settings["shots"]) == (None, 30)]
    assert classifiers.PAPERS_TREE not in {trial.method for trial in large}
    seeds = {trial.seed for trial in classifiers.trials(5) if dict(trial.settings) == {"classes": None, "shots": 20}}
    assert seeds == {0, 1, 2, 3, 4}  # digits; other data have three
    assert max(t.seed for t in classifiers.trials(5) if t.data == "cub200" and t.settings["classes"] is None) == 4


def test_one_shot_classes_keep_one_example() -> None:
    task, single = with_one_shot_classes(dataset(), 2, seed=0)
    counts = np.bincount(task.train_y)
    assert sorted(counts) == [1, 1, 50, 50, 50, 50]
    assert sorted(np.flatnonzero(counts == 1)) == sorted(single)
    np.testing.assert_array_equal(task.train_y, task.train_x[:, 0] // 50)  # labels stay with their rows
    none, single = with_one_shot_classes(dataset(), 0, seed=0)
    assert len(single) == 0
    assert len(none.train_y) == 300


def test_unequal_classes_have_test_rows_in_proportion() -> None:
    data = dataset()
    task, test = unequal.unequal(data, seed=0)
    counts = np.bincount(task.train_y)
    assert counts.min() >= 2
    assert counts.max() <= 40
    assert len(set(counts)) > 1
    np.testing.assert_array_equal(np.bincount(data.test_y[test]), np.maximum(1, (0.7 * counts).astype(int)))
    assert len(task.test_y) == 300  # all test rows are asked about, and these counted apart
