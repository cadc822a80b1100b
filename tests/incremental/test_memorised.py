"""Whether new classes show that the rows of the base were known by heart."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from gptree import GPTreeClassifier, Growth, load_model
from gptree.experts import FittedBaseNovelExpert
from gptree.incremental.memorised import class_spreads, wider


def rows(rng: np.random.Generator, labels: list[str], width: float, count: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Classes around random centres, so wide."""
    X = np.repeat(rng.normal(size=(len(labels), 40)), count, 0)
    return X + width * rng.normal(size=X.shape), np.repeat(labels, count)


def test_spreads_are_variances_around_class_means() -> None:
    rng = np.random.default_rng(0)
    X, y = torch.as_tensor(rng.normal(size=(12, 3))), torch.tensor([0] * 5 + [1] + [3] * 6)
    expected = [X[y == c].var(0).sum().item() if int((y == c).sum()) > 1 else 0.0 for c in range(4)]
    assert class_spreads(X, y, 4).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("base", "novel"), [([1.0], [9.0]), ([1.0, 1.1], [0.0]), ([1.0, 1.1], [1.3, 1.5])])
def test_no_evidence(base: list[float], novel: list[float]) -> None:
    assert wider(torch.tensor(base), torch.tensor(novel)) is None


def test_the_ratio_is_of_geometric_means() -> None:
    assert wider(torch.tensor([1.0, 1.0, 0.0, 4.0]), torch.tensor([8.0, 4.0])) is None  # within three errors
    found = wider(torch.tensor([1.0, 1.0, 0.0, 1.21]), torch.tensor([4.0, 9.0, 0.0]))
    assert found == pytest.approx(6 / 1.21 ** (1 / 3))
    assert wider(torch.tensor([1.0, 1.0]), torch.tensor([2.0])) == pytest.approx(2.0)  # two are enough


def test_features_of_classes_alike_are_no_evidence() -> None:
    """One in 700 lies three standard errors above the others by chance, and it must be 1.6 times as wide too."""
    rng, alarms = np.random.default_rng(1), 0
    for _ in range(300):
        spreads = torch.as_tensor(np.exp(rng.normal(0, 0.18, size=65)))
        alarms += wider(spreads[:60], spreads[60:]) is not None
    assert alarms == 0


@pytest.mark.parametrize("growth", [None, Growth(exemplars=3)])
def test_adding_wide_classes_to_narrow_ones_warns(growth: Growth | None, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X, y = rows(rng, list("abcdefghij"), 0.1)
    far, near = rows(rng, ["x", "y"], 0.5), rows(rng, ["x", "y"], 0.1)
    model = GPTreeClassifier(growth=growth, prior_mean=None, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match=r"spread \d+\.\d times as wide.*held_out=…"):
        model.add_classes(*far)
    model.undo()
    model.save(tmp_path / "m")
    model = load_model(tmp_path / "m")
    with pytest.warns(UserWarning, match="times as wide"):
        model.add_classes(*far)
    model.undo()
    told = GPTreeClassifier(growth=growth, prior_mean=None, random_state=0)
    told.fit(X, y, held_out=np.arange(len(X)) % 3 > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.add_classes(*near)
        told.add_classes(*far)


def test_one_answer_serves_the_warning_and_the_model() -> None:
    """All classes that were added are asked: two wide ones are evidence, also when a narrow one comes after them."""
    rng = np.random.default_rng(4)
    X, y = rows(rng, list("abcdefghij"), 0.1)
    model = GPTreeClassifier(growth=Growth(exemplars=3), prior_mean=None, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="times as wide"):
        model.add_classes(*rows(rng, ["v", "w", "x", "y"], 4.0))
    with pytest.warns(UserWarning, match="times as wide") as caught:
        model.add_classes(*rows(rng, ["z"], 0.1))
    times = model.state_.grown.times_wider
    assert f"spread {times:.1f} times" in str(caught[0].message)
    sphere, novel = model.state_.on_sphere(model.state_.X), torch.as_tensor(model.state_.y)
    spreads = class_spreads(sphere[novel > 9], novel[novel > 9] - 10, 5)
    assert times == pytest.approx(wider(model.state_.base.spreads, spreads))
    model.remove_classes(["v", "w", "x", "y"])
    assert model.state_.grown.times_wider is None


def test_what_wide_classes_teach_makes_all_decisions_less_sure(tmp_path: Path) -> None:
    """r and the base classes are tempered as novel classes are, if the base was known by heart and not held out."""
    rng = np.random.default_rng(3)
    X, y = rows(rng, list("abcdefghij"), 0.1)
    far, near = rows(rng, ["w", "x", "y", "z"], 4.0), rows(rng, ["w", "x", "y", "z"], 0.1)
    model = GPTreeClassifier(growth=Growth(exemplars=3), random_state=0).fit(X, y)
    assert grown_expert(model, near).sharpness == 1
    with pytest.warns(UserWarning, match="times as wide"):
        expert = grown_expert(model, far)
    learnt = model._state().base.novel_experts
    assert 0 < expert.sharpness < 0.9
    torch.testing.assert_close(expert.novel_weights, expert.sharpness * learnt.novel_weights)
    asked = torch.nn.functional.normalize(torch.as_tensor(rng.normal(size=(5, 40))), dim=1)
    base, logs = expert.base.log_probabilities(asked), [each.log_probabilities(asked) for each in expert.experts]
    for row, found in enumerate(expert.log_probabilities(asked)):
        total = sum(w * log[row] for w, log in zip(expert.root_weights, logs, strict=True))
        odds = expert.sharpness * (total[10:].logsumexp(0) - total[:10].logsumexp(0) + expert.bias)
        novel = sum(v * log[row, 10:] for v, log in zip(expert.novel_weights, logs, strict=True)).softmax(0)
        p = torch.cat([(expert.sharpness * base[row]).softmax(0) / (1 + odds.exp()), novel / (1 + (-odds).exp())])
        torch.testing.assert_close(found.exp(), p)
    model.save(tmp_path / "m")
    np.testing.assert_allclose(load_model(tmp_path / "m").predict_proba(X), model.predict_proba(X), atol=1e-12)
    told = GPTreeClassifier(growth=Growth(exemplars=3), random_state=0).fit(X, y, held_out=np.ones(len(y), bool))
    assert grown_expert(told, far).sharpness == 1


def grown_expert(model: GPTreeClassifier, examples: tuple[np.ndarray, np.ndarray]) -> FittedBaseNovelExpert:
    """Of the model with these classes added."""
    if len(model.classes_) > 10:
        model.undo()
    expert = model.add_classes(*examples)._state().grown.expert
    assert isinstance(expert, FittedBaseNovelExpert)
    return expert
