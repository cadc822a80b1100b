"""Networks for sessions: training, the view that held-out pictures choose, and the files of embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from session_cases import made_up_pictures

from benchmarks.core.pictures import Pictures
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.fscil import lines, networks
from benchmarks.experiments.fscil.lines import FROZEN
from benchmarks.experiments.fscil.networks import (
    HELD_OUT,
    NETWORKS,
    TEST,
    Network,
    make_backbone,
    nearest_mean_accuracy,
    read,
    write,
)
from benchmarks.experiments.fscil.sets import SETS
from gptree.deep import CrossEntropy, convnet


def test_embeddings_come_back(tmp_path, monkeypatch):
    x, pictures = made_up_pictures()
    monkeypatch.setattr(networks, "BYTES_A_FILE", 2 * x.shape[1] * 9)
    write(x, pictures, tmp_path, "cub")
    assert len(list(tmp_path.iterdir())) > 10
    found = read("cub", tmp_path)
    np.testing.assert_allclose(found.x, x, atol=2e-3)
    np.testing.assert_array_equal(found.y, pictures.y)
    np.testing.assert_array_equal(found.path, pictures.path)


def test_networks_are_there():
    for data in lines.DATA:
        assert data == FROZEN or data in (*SETS, *lines.DEEP) or isinstance(NETWORKS[data], Network)
    for data, stem in (("cifar-plain", "cifar"), ("mini-margin", "small")):
        backbone: Any = make_backbone(NETWORKS[data], Path())
        assert backbone.recipe["stem"] == stem


def test_nearest_means_against_a_loop():
    x, pictures = made_up_pictures()
    y, learned, asked = pictures.y, pictures.split == 0, (pictures.split == TEST) & (pictures.y > 2)
    learned &= y > 1  # numbers of the classes do not begin at 0
    right = 0
    for row in np.flatnonzero(asked):
        cosines = {}
        for c in set(y[learned]):
            mean = np.mean([v / np.linalg.norm(v) for v in x[learned & (y == c)]], axis=0)
            cosines[c] = x[row] @ mean / np.linalg.norm(mean)
        right += max(cosines, key=cosines.__getitem__) == y[row]
    assert nearest_mean_accuracy(x, y, learned, asked) == right / asked.sum()


def test_a_network_is_trained_and_embeds_as_held_out_pictures_choose(tmp_path, monkeypatch):
    """Three base classes of flat colour, two of eight pictures held out; two more classes are only embedded."""
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 12)
    split = (np.arange(60) % 12 >= 8).astype(np.int8)
    X = (random.integers(40, 200, (5, 1, 1, 3))[y] + random.integers(-20, 20, (60, 12, 12, 3))).astype(np.uint8)
    pictures = Pictures(X, y, tuple("abcde"), split, np.array([f"c/{i}" for i in range(60)]))
    how = networks.pretrained(
        2, CrossEntropy(rotations=True), 0.05, validation=2, calibrate=False, mixed_precision="no", batch_size=9
    )
    monkeypatch.setitem(NETWORKS, "small", Network("small", 3, how, (), enlarged=(16,)))
    monkeypatch.setattr(networks, "load", lambda *_, **__: pictures)
    monkeypatch.setattr(networks, "resnet18", lambda stem: convnet(3, 8, 2))
    trial = Trial("fscil-networks", "small", "small", 0)
    report = networks.run(trial, tmp_path)
    sizes = ("as they are", "16 pixels")
    best = max(sizes, key=lambda size: report["held_out"][size])
    assert set(report["held_out"]) == {*sizes, f"{best}, four rotations"}
    found = read("small", tmp_path / "networks")
    assert [np.sum(found.split[y == c] == HELD_OUT) for c in range(5)] == [2, 2, 2, 0, 0]
    kept = nearest_mean_accuracy(found.x, y, (found.split == 0) & (y < 3), found.split == HELD_OUT)
    assert kept == max(report["held_out"].values())
    accuracies, views = networks.tables([Row(trial, report, {}, None, {}, {})])
    assert [line[:2] for line in accuracies.lines] == [["small", "small"]]
    assert [line[1] for line in views.lines] == list(report["held_out"])
