"""Splits, orders and learning rates as functions of seed and time; measures against those of the protocols."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gptree import metrics
from gptree.deep import Arrays, Cosine, Milestones, Training, embed, measure, mlp
from gptree.deep.data.base import epoch_plan
from gptree.deep.loop.task import split_rows

counts_of_classes = st.lists(st.integers(2, 30), min_size=2, max_size=6)


@given(counts_of_classes, st.one_of(st.just(1), st.floats(0.01, 0.5)), st.integers(0, 2**32))
def test_splits_take_their_share_of_every_class(counts: list[int], validation: float | int, seed: int) -> None:
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    rows, kept = split_rows(y, range(len(counts)), validation, seed)
    assert np.array_equal(np.sort(np.concatenate([rows, kept])), np.arange(len(y)))
    for c, count in enumerate(counts):
        wanted = 1 if validation == 1 else max(1 if count < 4 else 2, round(validation * count))
        assert np.sum(y[kept] == c) == wanted
    again = split_rows(y, range(len(counts)), validation, seed)
    assert np.array_equal(again[1], kept)


def test_splits_differ_by_seed_and_may_be_none() -> None:
    y = np.repeat(np.arange(3), 40)
    first, second = (split_rows(y, "abc", 0.25, seed)[1] for seed in (0, 1))
    assert not np.array_equal(first, second)
    rows, kept = split_rows(y, "abc", None, 0)
    assert (len(rows), len(kept)) == (120, 0)


def test_plans_of_epochs() -> None:
    rows = np.arange(5, 108)
    plans = [epoch_plan(rows, 10, seed=2, epoch=epoch) for epoch in range(3)]
    seeds = {batch.seed for plan in plans for batch in plan}
    assert len(seeds) == 30
    for plan in plans:
        seen = np.concatenate([batch.rows for batch in plan])
        assert [len(batch.rows) for batch in plan] == [10] * 10
        assert len(np.unique(seen)) == 100
        assert np.isin(seen, rows).all()
    left_out = [set(rows) - set(np.concatenate([batch.rows for batch in plan])) for plan in plans]
    assert left_out[0] != left_out[1]
    again = epoch_plan(rows, 10, seed=2, epoch=1)
    assert all(np.array_equal(a.rows, b.rows) and a.seed == b.seed for a, b in zip(again, plans[1], strict=True))


def test_learning_rates() -> None:
    rate = Training(epochs=100, cross_entropy_epochs=40, learning_rate=0.2, schedule=Cosine(warmup=10)).rate
    assert [rate(0), rate(5), rate(10)] == pytest.approx([0, 0.1, 0.2])
    assert [rate(55), rate(100)] == pytest.approx([0.1, 0], abs=1e-15)
    rate = Training(learning_rate=0.1, schedule=Milestones((100, 150), 0.1)).rate
    assert [rate(99.99), rate(100), rate(149.9), rate(150)] == pytest.approx([0.1, 0.01, 0.01, 0.001])


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 0},
        {"cross_entropy_epochs": 201},
        {"objective": "cross entropy"},
        {"schedule": "cosine"},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"momentum": 1.0},
        {"momentum": 0.0},
        {"weight_decay": -1.0},
        {"objective_weight": -1.0},
        {"head_weight": -0.1},
        {"head_weight": float("inf")},
        {"validation": 1.0},
        {"validation": 0},
        {"best": "loss"},
        {"mixed_precision": "fp8"},
        {"checkpoint_steps": 0},
    ],
    ids=str,
)
def test_bad_settings(settings: dict) -> None:
    with pytest.raises(ValueError):
        Training(**settings)


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(2, 7))
def test_measures_are_those_of_the_protocols(seed: int, rows: int, classes: int) -> None:
    random = np.random.default_rng(seed)
    scores = torch.as_tensor(random.normal(size=(rows, classes)) * random.choice([0.1, 1, 60]))
    y, log_p = random.integers(classes, size=rows), scores.log_softmax(-1)
    p = log_p.exp().numpy()
    expected = {"accuracy": metrics.accuracy(p, y), "nll": metrics.nll(p, y), "ece": metrics.ece(p, y)}
    assert measure(log_p, torch.as_tensor(y)) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_embeddings_are_of_clean_inputs_in_eval_mode() -> None:
    X = np.random.default_rng(0).normal(size=(1100, 5)).astype(np.float32)
    network = mlp(5, hidden=(7,), embedding=3).train()
    rows = np.random.default_rng(1).permutation(1100)
    found = embed(network, Arrays(X), rows, torch.device("cpu"))
    assert network.training
    assert not found.requires_grad
    expected = network.eval()(torch.as_tensor(X[rows]))
    torch.testing.assert_close(found, expected.detach())
