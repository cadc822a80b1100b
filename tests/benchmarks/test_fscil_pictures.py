"""Methods that learn from pictures, on tiny pictures and networks: trials, rehearsal, and what is chosen there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import nn

from benchmarks.core.pictures import Lossy, pack
from benchmarks.core.runner import run_trials
from benchmarks.core.store import Rows
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.fscil import lines, methods, pipeline, rehearsal, rivals, sets
from benchmarks.experiments.fscil.sets import Set, _training
from gptree import DeepGPTreeClassifier
from gptree.deep import RandomFlip, convnet
from gptree.metrics import nll

DATA = "mini-pictures"
BASE, WAY, SESSIONS, PIXELS = 6, 2, 2, 12


@dataclass(frozen=True)
class Tiny(Set):
    """With a network of two layers."""

    def backbone(self, folder: Path, seed: int, rectified: bool = True, embedding: int | None = None) -> nn.Module:
        return convnet(width=8, depth=2, embedding=None if rectified else 8, seed=seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Packed pictures of ten classes, each with a colour of its own, and lists of sessions."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    (folder / "fscil" / "mini_imagenet").mkdir(parents=True)
    for c in range(BASE + WAY * SESSIONS):
        own, place = random.integers(40, 216, size=3), folder / "tree" / "train" / f"c{c}"
        place.mkdir(parents=True)
        for i in range(16):
            pixels = (own + random.integers(-40, 40, size=(PIXELS, PIXELS, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{c}-{i}.png")
    for number in range(SESSIONS + 1):
        first = BASE + (number - 1) * WAY if number else 0
        classes = range(first, first + WAY) if number else range(BASE)
        for kind, items in (("session", range(12 if number == 0 else 5)), ("test", range(12, 16))):
            text = "\n".join(f"images/c{c}/{c}-{i}.png" for c in classes for i in items)
            (folder / "fscil" / "mini_imagenet" / f"{kind}_{number + 1}.txt").write_text(text)
    pack("mini_imagenet", folder / "tree", folder / "pictures", Lossy(90), folder / "fscil" / "mini_imagenet")
    return folder


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path) -> None:
    training = _training(0.1, 16, 2, epochs=6).with_params(schedule__warmup=0.0)
    small = Tiny("mini_imagenet", "mini-imagenet", BASE, (4, 1, 0.34), training, (RandomFlip(),), views=2)
    monkeypatch.setitem(sets.SETS, DATA, small)
    monkeypatch.setattr(rivals, "REHEARSED", tmp_path / "fscil-rehearsal.jsonl")
    sets.pictures_of.cache_clear()
    rivals._MEMORIES.clear()
    rivals.ByNumber._fitted.clear()


def rehearsed(rival: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """Rows of two candidates, of a few steps each, and of the published settings."""
    real = rivals.candidates(DATA, rival)
    few = {name: real[name].with_params(session__steps=3) for name in (*list(real)[:2], rivals.TAO)}
    monkeypatch.setattr(rivals, "candidates", lambda data, name: few)
    rows = Rows(rivals.REHEARSED)
    trials = [Trial("fscil-rehearsal", rival, DATA, 0, {"candidate": name}) for name in few]
    run_trials(trials, lambda trial: rivals.rehearse(trial, folder), rows)
    return list(rows)


@pytest.mark.parametrize("rival", lines.NETWORK_RIVALS)
def test_every_rival_is_rehearsed_and_runs_in_every_form(rival, folder, monkeypatch):
    rows = rehearsed(rival, folder, monkeypatch)
    assert len(rows) == 3
    for row in rows:
        assert [session["classes"] for session in row.metrics["sessions"]] == [4, 5, 6]
        assert row.metrics["mean"] == np.mean([session["accuracy"] for session in row.metrics["sessions"][1:]])
    for form in (rivals.TAO, rivals.TUNED, rivals.FROZEN):
        metrics = methods.run(Trial("fscil-sessions", f"network: {rival}, {form}", DATA, 0), folder)
        assert [session["classes"] for session in metrics["sessions"]] == [6, 8, 10]
        assert metrics["sessions"][0]["accuracy"] > 0.3
    tables = rehearsal.tables(rows)
    assert [line[0].strip("*") for line in tables[0].lines] == [lines.NETWORK_RIVALS[rival]] * 3


def test_what_is_chosen_is_best_on_rehearsed_sessions_and_has_its_temperature(monkeypatch):
    own = rivals.candidates(DATA, "icarl")
    names = [name for name in own if name != rivals.TAO]
    rows = [made(name, 0.1 * k, 2.0 + k) for k, name in enumerate(names)] + [made(rivals.TAO, 0.99, 7.0)]
    tuned = rivals.chosen(rows, DATA, "icarl", rivals.TUNED)
    assert tuned == own[names[-1]].with_params(temperature=2.0 + len(names) - 1)
    frozen = rivals.chosen(rows, DATA, "icarl", rivals.FROZEN)
    assert frozen.session.learning_rate == 0
    assert frozen.temperature == 2.0
    assert rivals.chosen(rows, DATA, "icarl", rivals.TAO).temperature == 7.0
    with pytest.raises(FileNotFoundError, match="1 settings of icarl on mini-pictures have not been rehearsed"):
        rivals.chosen(rows[1:], DATA, "icarl", rivals.TUNED)


def made(candidate: str, mean: float, temperature: float) -> Row:
    trial = Trial("fscil-rehearsal", "icarl", DATA, 0, {"candidate": candidate})
    return Row(trial, {"mean": mean, "temperature": temperature}, {"wall": 1.0, "cpu": 1.0}, 1, {}, {})


def test_best_temperature_by_brute_force():
    random = np.random.default_rng(0)
    y = random.integers(0, 4, size=200)
    z = 3.0 * random.normal(size=(200, 4)) + 2.0 * np.eye(4)[y]
    costs = []
    for temperature in rivals.TEMPERATURES:
        p = np.exp(z / temperature - (z / temperature).max(1, keepdims=True))
        costs.append(nll(p / p.sum(1, keepdims=True), y))
    assert rivals.best_temperature(z, y) == pytest.approx(rivals.TEMPERATURES[int(np.argmin(costs))])


def test_rehearsed_sessions_know_nothing_of_later_ones(folder):
    public, inside = (sets.sessions_of(DATA, folder, rehearsal=flag) for flag in (False, True))
    rows = {int(row) for session in inside.sessions for part in (session.X, session.X_test) for row in part[:, 0]}
    assert rows <= set(public.sessions[0].X[:, 0].tolist())
    assert [len(session.labels) for session in inside.sessions] == [4, 1, 1]
    assert [len(session.y) for session in inside.sessions[1:]] == [5, 5]


def test_classifiers_on_the_embedding_of_the_same_network(folder, monkeypatch):
    rehearsed("icarl", folder, monkeypatch)
    methods.run(Trial("fscil-sessions", f"network: icarl, {rivals.FROZEN}", DATA, 1), folder)
    for line in (lines.PAPERS_TREE, lines.CALIBRATED):
        metrics = methods.run(line.trial(DATA, 1), folder)
        assert len(metrics["sessions"]) == SESSIONS + 1
    _, held_out = methods.make_stream(DATA, folder, 1)
    assert held_out is not None
    assert held_out.sum() == 2 * BASE


@pytest.mark.parametrize("version", pipeline.VERSIONS)
def test_every_version_of_the_pipeline(version, folder, monkeypatch):
    real = DeepGPTreeClassifier.paper

    def short(*arguments, **named):
        model = real(*arguments, **named)
        return model.set_params(
            training__epochs=3, training__cross_entropy_epochs=2, training__batch_size=16, training__validation=2,
            variational__inducing=2,
        )  # fmt: skip

    monkeypatch.setattr(DeepGPTreeClassifier, "paper", short)
    metrics = methods.run(Trial("fscil-sessions", f"pipeline: {version}", DATA, 0), folder)
    assert [session["classes"] for session in metrics["sessions"]] == [6, 8, 10]
    assert all(session["bytes"] > 0 for session in metrics["sessions"])
