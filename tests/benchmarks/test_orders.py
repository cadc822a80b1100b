"""Drawn orders of classes and shots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from session_cases import BASE, CLASSES, WAY, made_up_pictures

from benchmarks.core.trials import Trial
from benchmarks.experiments.fscil import orders
from benchmarks.experiments.fscil.lines import FROZEN
from benchmarks.experiments.fscil.networks import HELD_OUT, write

TRAINED = "mini-pictures"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Frozen features and the embeddings of a network that has not seen three of the eight rows of a base class."""
    monkeypatch.setattr(orders, "PROTOCOLS", dict.fromkeys((FROZEN, TRAINED), orders.Protocol(BASE, WAY, 3)))
    x, pictures = made_up_pictures()
    file = tmp_path / "cub_efficientnet_lite2.npz"
    np.savez(file, x=x, y=pictures.y, train=pictures.split == 0, path=pictures.path)
    pictures.split[(np.arange(len(pictures.y)) % 12 < 3) & (pictures.y < BASE)] = HELD_OUT
    write(x, pictures, tmp_path / "networks", f"{TRAINED}-cross-entropy-0")
    return tmp_path


def classes_of(data: str, folder: Path, seed: int) -> list[tuple[int, ...]]:
    stream, _ = orders.make_stream(data, folder, seed)
    return [tuple(int(c) for c in np.unique(session.y)) for session in stream.sessions]


def test_a_seed_draws_base_classes_order_and_shots(folder: Path) -> None:
    first, again, other = (classes_of(FROZEN, folder, seed) for seed in (0, 0, 1))
    assert first == again != other
    assert set(first[0]) != set(other[0])
    assert sorted(c for session in first for c in session) == list(range(CLASSES))
    stream, held_out = orders.make_stream(FROZEN, folder, 0)
    assert [len(session.y) for session in stream.sessions] == [8 * BASE, 3 * WAY, 3 * WAY]
    assert [len(session.y_test) for session in stream.sessions] == [4 * BASE, 4 * WAY, 4 * WAY]
    assert not held_out.any()


def test_a_network_keeps_the_base_classes_that_it_was_trained_on(folder: Path) -> None:
    draws = [classes_of(TRAINED, folder, seed) for seed in range(6)]
    assert {draw[0] for draw in draws} == {tuple(range(BASE))}
    assert len({tuple(draw[1:]) for draw in draws}) > 1
    stream, held_out = orders.make_stream(TRAINED, folder, 0)
    assert held_out.sum() == 3 * BASE
    assert len(held_out) == len(stream.sessions[0].y)


def test_test_rows_are_never_learned(folder: Path) -> None:
    for data in (FROZEN, TRAINED):
        stream, _ = orders.make_stream(data, folder, 3)
        learned = {row.tobytes() for session in stream.sessions for row in session.X}
        assert not learned & {row.tobytes() for session in stream.sessions for row in session.X_test}


def test_a_trial(folder: Path) -> None:
    metrics = orders.run(Trial("fscil-orders", "rival: teen", FROZEN, 2, {"exemplars": 5}), folder)
    assert [session["classes"] for session in metrics["sessions"]] == [5, 7, 9]
    assert metrics["sessions"][0]["accuracy"] > 0.6


def test_trials_are_ten_draws_of_each_method() -> None:
    trials = [trial for trial in orders.trials(orders.SEEDS) if trial.data == FROZEN]
    assert {trial.experiment for trial in trials} == {"fscil-orders"}
    assert {trial.seed for trial in trials} == set(range(10))
    assert {"forest, shared root", "paper, shared root", "rival: teen"} <= {trial.method for trial in trials}
