"""Features from something that knows most of its rows by heart: what is learned from which rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gptree import GPForestClassifier, GPTreeClassifier, Growth, SparseVariational, load_model
from gptree.metrics import ece, nll
from small_sizes import small_random_features

CLASSES, D = 8, 12
KINDS: dict[str, Any] = {
    "forest": lambda: GPForestClassifier(n_estimators=2, random_state=0, device="cpu"),
    "forest that grows": lambda: GPForestClassifier(n_estimators=2, growth=Growth(), random_state=0, device="cpu"),
    "paper": lambda: GPTreeClassifier.paper(random_state=0, device="cpu"),
    "sparse": lambda: GPTreeClassifier(inference=SparseVariational(inducing=3), random_state=0, device="cpu"),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def few_random_features() -> Any:
    with small_random_features():
        yield


def memorised(seed: int, by_heart: int = 50, held_out: int = 12, test: int = 60) -> tuple[np.ndarray, ...]:
    """Features X (n, d), labels, and 0 for rows known by heart, 1 for held_out ones, 2 for test rows.

    Features of a row known by heart lie around the centre of its class; those of the others do so in 70 %, and
    around the centre of any class otherwise.
    """
    random = np.random.default_rng(seed)
    kind = np.tile(np.repeat([0, 1, 2], [by_heart, held_out, test]), CLASSES)
    y = np.repeat(np.arange(CLASSES), by_heart + held_out + test)
    around = np.where((kind > 0) & (random.random(len(y)) < 0.3), random.integers(CLASSES, size=len(y)), y)
    X = 1.5 * random.normal(size=(CLASSES, D))[around] + 0.5 * random.normal(size=(len(y), D))
    return X, np.array([f"class {c}" for c in y]), kind


@every_kind
def test_all_held_out_is_the_same_as_none_named(kind: str) -> None:
    X, y, rows = memorised(0)
    model, calibrated = KINDS[kind]().fit(X[rows == 1], y[rows == 1]), KINDS[kind]()
    calibrated.fit(X[rows == 1], y[rows == 1], held_out=np.ones(CLASSES * 12, dtype=bool))
    assert np.array_equal(model.predict_log_proba(X), calibrated.predict_log_proba(X))


@every_kind
def test_nodes_and_memory_hold_held_out_rows_alone(kind: str) -> None:
    X, y, rows = memorised(1)
    learned = rows < 2
    model = KINDS[kind]().fit(X[learned], y[learned], held_out=(rows == 1)[learned])
    assert set(rows[learned][model.state_.origins[:, 1]]) == {1}
    assert len(model.state_.y) == len(model.state_.origins) == len(model.memory_)


@pytest.mark.parametrize("kind", ["forest", "forest that grows"])
def test_a_calibrated_model_is_not_too_sure(kind: str) -> None:
    """Mean calibration error over three draws of 480 test rows, of which 74 % can be right.

    A model that is sure of all has 26 %. One that is fitted to the held-out rows alone has some error too: none can
    tell the wrong ones: who is calibrated must not be worse by more than two standard errors of such a mean, about 2 %.
    """
    errors, accuracies = [], []
    for seed in range(3):
        X, y, rows = memorised(seed, by_heart=30)
        learned = rows < 2
        held_out = (rows == 1)[learned]
        calibrated, plain, few = (KINDS[kind]() for _ in range(3))
        calibrated.fit(X[learned], y[learned], held_out=held_out)
        plain.fit(X[learned], y[learned])
        few.fit(X[rows == 1], y[rows == 1])
        test = X[rows == 2]
        codes = np.searchsorted(calibrated.classes_, y[rows == 2])
        p = [model.predict_proba(test) for model in (calibrated, plain, few)]
        errors.append([ece(each, codes) for each in p])
        accuracies.append([(each.argmax(1) == codes).mean() for each in p])
    held_out_error, plain_error, few_error = np.mean(errors, 0)
    assert held_out_error < few_error + 0.02
    assert held_out_error < 0.6 * plain_error
    held_out_accuracy, _, few_accuracy = np.mean(accuracies, 0)
    assert held_out_accuracy > few_accuracy - 0.01  # rows known by heart still show where the centres are


def test_classes_can_arrive_afterwards(tmp_path: Any) -> None:
    X, y, rows = memorised(2)
    base = np.isin(y, [f"class {c}" for c in range(6)]) & (rows < 2)
    model = KINDS["forest that grows"]().fit(X[base], y[base], held_out=(rows == 1)[base])
    before = model.predict_log_proba(X)
    later = np.concatenate([np.flatnonzero((y == f"class {c}") & (rows == 2))[:5] for c in (6, 7)])
    model.add_classes(X[later], y[later])
    assert len(model.classes_) == CLASSES
    model.save(tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").predict_log_proba(X), model.predict_log_proba(X))
    model.undo()
    assert np.array_equal(model.predict_log_proba(X), before)


def test_a_model_that_was_not_prepared_for_growth_grows_as_well() -> None:
    """Rows known by heart are gone when classes arrive. Mean NLL over three draws, against a model that never saw them.

    Settings chosen on the wide spread of held-out rows must not meet a covariance of all rows: it cost 0.3 nats.
    """
    losses = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        kind = np.tile(np.repeat([0, 1, 2], [80, 8, 15]), 10)
        y = np.repeat(np.arange(10), 103)
        noise = np.where(kind == 0, 0.15, 1.2)[:, None]
        X = random.normal(size=(10, 16))[y] + noise * random.normal(size=(len(y), 16))
        base, test = (y < 7) & (kind < 2), kind == 2
        later = np.concatenate([np.flatnonzero((y == c) & (kind == 1))[:5] for c in (7, 8, 9)])
        calibrated = GPTreeClassifier(random_state=0, device="cpu").fit(X[base], y[base], held_out=(kind == 1)[base])
        few = GPTreeClassifier(random_state=0, device="cpu").fit(X[base & (kind == 1)], y[base & (kind == 1)])
        models = [model.add_classes(X[later], y[later]) for model in (calibrated, few)]
        losses.append([nll(model.predict_proba(X[test]), y[test]) for model in models])
    told_loss, few_loss = np.mean(losses, 0)
    assert told_loss < few_loss + 0.1


def test_bad_values_say_what_to_do() -> None:
    X, y, rows = memorised(3)
    learned = rows < 2
    X, y, held_out = X[learned], y[learned], (rows == 1)[learned]
    model = KINDS["forest"]().fit(X, y, held_out.tolist())
    before = model.predict_log_proba(X)
    one_left = held_out & ~((y == "class 3") & (np.cumsum((y == "class 3") & held_out) > 1))
    for bad, message in (
        (held_out[:-1], f"{len(y)} booleans"),
        (held_out.astype(int), f"{len(y)} booleans"),
        (one_left, "class 'class 3' has too few held-out rows, 1 of.*hold out more rows"),
        (np.zeros_like(held_out), "too few held-out rows, 0 of"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, held_out=bad)
    assert np.array_equal(model.predict_log_proba(X), before)
