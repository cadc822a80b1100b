"""The experiment on deep kernels: every method trains, and tables and picture follow the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from benchmarks.core.pictures import Pictures
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.deep import kernels, methods
from benchmarks.experiments.deep.kernels import curve, sharpened
from benchmarks.experiments.deep.methods import (
    ALONE,
    GPDNN_PUBLISHED,
    METHODS,
    OURS,
    OURS_CALIBRATED,
    OURS_CUT,
    SMOOTHED,
    SOFTMAX,
    SOFTMAX_CALIBRATED,
    SOFTMAX_CUT,
    SV_DKL_PUBLISHED,
    TREE_PUBLISHED,
    TWICE_CUT,
)
from benchmarks.experiments.deep.second_layer import SecondLayer
from gptree import DeepGPTreeClassifier
from gptree.deep import Cosine, CrossEntropy, Cutout, Milestones, VariationalTree, WeightedEnsemble, convnet, measure
from gptree.rivals import GPDNN, SVDKL


@pytest.fixture
def few_pictures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    y, split = np.tile(np.repeat(np.arange(4), 6), 2), np.repeat([0, 1], 24)
    X = np.clip(random.normal(128, 50, (4, 1, 1, 3))[y] + random.normal(0, 20, (48, 8, 8, 3)), 0, 255).astype(np.uint8)
    found = Pictures(X, y, tuple("abcd"), split, np.array([f"{i}.png" for i in range(48)]))
    monkeypatch.setattr(kernels, "load", lambda folder, name: found)
    monkeypatch.setattr(kernels, "LOGS", tmp_path / "logs")


@pytest.fixture
def small_network(few_pictures: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of a ResNet-18."""
    monkeypatch.setattr(kernels, "resnet18", lambda embedding, stem, seed: convnet(3, 8, 2, embedding, seed=seed))


@pytest.mark.parametrize(
    "method", [SOFTMAX, SOFTMAX_CALIBRATED, ALONE, OURS_CUT, TWICE_CUT, TREE_PUBLISHED, "SV-DKL", "GPDNN"]
)
def test_a_method_of_every_kind_trains(method: str, small_network: None, tmp_path: Path) -> None:
    settings = {**methods.settings_of(method, "cifar10", 5), "batch": 16, "embedding": 6}
    settings |= {"inducing": 2} if "inducing" in settings else {}
    settings |= {"grid_size": 8, "features": 3} if method == "SV-DKL" else {}
    trial = Trial("deep-kernels", method, "cifar10", 0, settings)
    found = kernels.run(trial, tmp_path)
    ways = {"refit", "at the mean"} if method.startswith(OURS) else set()
    ways |= {"alone"} if ways and "validation" in settings else set()
    ways |= {"uncalibrated"} if "validation" in settings else set()
    assert found.keys() - {"curve"} == {"test", "sharpened", "train_seconds"} | ways  # all of it is shown
    for name in ("test", "sharpened", *ways):
        assert 0 <= found[name]["accuracy"] <= 1
        assert np.isfinite([found[name]["nll"], found[name]["ece"]]).all()
    if "validation" in settings:
        assert "curve" not in found
        assert found["test"] != found["sharpened"]  # on the held-out pictures, and on halves of the test set
        calibrated = found["test"] != pytest.approx(found["uncalibrated"], abs=1e-6)  # heads are in single precision
        assert calibrated == (method != TREE_PUBLISHED)
    else:
        assert found["curve"]["epoch"] == [5]
        assert found["test"] == {name: found["curve"][name][0] for name in methods.MEASURED}
    (log,) = (tmp_path / "logs").iterdir()
    stages = [line.split('"stage": "')[1].split('"')[0] for line in log.read_text().splitlines()]
    assert stages == ["pre-training"] * (5 if method.startswith("softmax") else 2) + ["joint"] * (
        0 if method.startswith("softmax") else 3
    )


@pytest.mark.parametrize("method", [SOFTMAX, SOFTMAX_CALIBRATED])
def test_scores_are_those_of_the_log_where_it_has_them(
    method: str, small_network: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In mixed precision the two differ."""
    real, made_up = kernels.train, {"accuracy": 0.123, "nll": 4.0, "ece": 0.5}

    def train(*arguments: Any, **given: Any) -> Any:
        result = real(*arguments, **given)
        result.log[-1] |= made_up
        return result

    monkeypatch.setattr(kernels, "train", train)
    settings = {**methods.settings_of(method, "cifar10", 2), "batch": 16, "embedding": 6}
    found = kernels.run(Trial("deep-kernels", method, "cifar10", 0, settings), tmp_path)
    assert (found["test"] == made_up) == (method == SOFTMAX)


class Asked(Exception):
    pass


@pytest.mark.parametrize("method", METHODS)
def test_what_tells_the_methods_apart(method: str, few_pictures: None, tmp_path: Path, monkeypatch: Any) -> None:
    def ask(network: Any, source: Any, *_: object, **given: Any) -> None:
        raise Asked(network.recipe, source, given)

    monkeypatch.setattr(kernels, "train", ask)
    trial = Trial("deep-kernels", method, "cifar100", 3, methods.settings_of(method, "cifar100", 10))
    with pytest.raises(Asked) as asked:
        kernels.run(trial, tmp_path)
    recipe, source, given = asked.value.args
    assert (recipe["name"], recipe["stem"], recipe["seed"]) == ("resnet18", "cifar", 3)
    assert recipe["embedding"] == trial.settings["embedding"]
    training, head = given["training"], given["head"]
    assert given["seed"] == 3
    published = method in methods.PUBLISHED
    assert (training.epochs, training.batch_size, training.learning_rate) == (10, 256, 0.01 if published else 0.2)
    assert training.schedule == (Milestones((5, 7)) if published else Cosine(warmup=5))
    assert (training.best, training.nesterov) == (("accuracy", False) if published else ("last", True))
    assert training.cross_entropy_epochs == (10 if method.startswith(SOFTMAX) else 4)
    assert training.objective == CrossEntropy(label_smoothing=0.1 if method in (SMOOTHED, OURS) else 0.0)
    beside = (OURS_CUT, TWICE_CUT)
    assert training.objective_weight == ({OURS: 3.0, OURS_CALIBRATED: 1.0} | dict.fromkeys(beside, 1.0)).get(
        method, 0.0
    )
    assert training.head_weight == (0.1 if method in beside else 1.0)
    cut = (*beside, SOFTMAX_CUT)
    shares = {OURS_CALIBRATED: 0.1, SOFTMAX_CALIBRATED: 0.1} | dict.fromkeys(methods.PUBLISHED, 0.1)
    held_out_share = (shares | dict.fromkeys(cut, 0.02)).get(method)
    assert (training.validation, training.calibrate) == (held_out_share, held_out_share is not None and not published)
    assert (given["validation"] is None) == (held_out_share is not None)
    assert [a for a in source.augment if isinstance(a, Cutout)] == [Cutout(8)] * (method in cut)
    heads = {
        ALONE: VariationalTree(inducing=40, cap=1024, learn_kernel="shared"),
        **dict.fromkeys(
            (OURS, OURS_CALIBRATED, OURS_CUT),
            VariationalTree(inducing=40, cap=1024, learn_kernel="no", dtype="float32"),
        ),
        "SV-DKL": SVDKL(grid_size=64, features=64),
        "GPDNN": GPDNN(inducing=40, epsilon=1e-3, covariance="diagonal"),
        TWICE_CUT: SecondLayer(),
        TREE_PUBLISHED: DeepGPTreeClassifier.paper("cifar").variational,
    }
    heads |= {SV_DKL_PUBLISHED: heads["SV-DKL"], GPDNN_PUBLISHED: heads["GPDNN"]}
    assert head == heads.get(method, VariationalTree())


def test_sharpening_never_measures_where_it_chose() -> None:
    """By hand on each half; the ensemble is as before."""
    ensemble = WeightedEnsemble(CrossEntropy().layer(3, 4, 0, torch.float64))
    x, y = torch.randn(50, 3, generator=torch.Generator().manual_seed(1)).double() * 4, torch.arange(50) % 4
    expected = torch.empty(50, 4, dtype=torch.float64)
    for start in (0, 1):
        ensemble.choose(x[1 - start :: 2], y[1 - start :: 2])
        expected[start::2] = ensemble.log_probabilities(x[start::2])
    ensemble.weights.fill_(0.7)
    assert sharpened(ensemble, x, y) == measure(expected, y)
    assert float(ensemble.weights) == 0.7


def row(
    method: str, accuracy: float, nll: float, ece: float, epochs: int = methods.LONG, seed: int = 0, **more: Any
) -> Row:
    scores: dict[str, Any] = {"accuracy": accuracy, "nll": nll, "ece": ece}
    log = [{"epoch": 1}, {"epoch": 10, **scores}]
    metrics = {"test": scores, "curve": curve(log), "train_seconds": 60.0, **more}
    trial = Trial("deep-kernels", method, "cifar10", seed, methods.settings_of(method, "cifar10", epochs))
    return Row(trial, metrics, {"wall": 1.0, "cpu": 1.0}, 1, {}, {})


def test_tables_follow_the_rows() -> None:
    rows = [row(SOFTMAX, 0.9, 0.5, 0.10), row(OURS, 0.92, 0.6, 0.04)]
    table, gaps = kernels.tables(rows)
    assert [line[:4] for line in table.lines] == [
        [SOFTMAX, "90.00", "0.500", "10.00"],
        [OURS, "92.00", "0.600", "4.00"],
    ]
    assert [line[0] for line in gaps.lines] == ["CIFAR-10, 200 epochs: GP-Tree less softmax"]
    assert [cell.split(",")[0] for cell in gaps.lines[0][1:]] == ["+2.00", "+0.100", "−6.00"]
    (short,) = kernels.tables([row(OURS, 0.9, 0.5, 0.1, methods.SHORT)])
    assert "shorter than the paper's" in short.title


def test_seeds_are_paired_and_less_is_better_but_for_accuracy() -> None:
    ours = [row(OURS, 0.9 + seed / 100, 0.4, 0.1 + seed / 100, seed=seed) for seed in range(3)]
    softmax = [row(SOFTMAX, 0.89 + seed / 100, 0.5, 0.1, seed=seed) for seed in (0, 1)]
    _, gaps = kernels.tables([*ours, *softmax])
    assert gaps.lines[0][1:] == ["+1.00 ± 0.00, ahead", "−0.100 ± 0.000, ahead", "+0.50 ± 0.50, no difference seen"]


def test_the_small_table_shows_seeds_and_dashes() -> None:
    table = kernels.glance([row(SOFTMAX_CUT, 0.9, 0.5, 0.1, seed=seed) for seed in (0, 1)])
    assert list(table.columns)[1:] == ["CIFAR-100, seeds 0 / 0 / 0 / 0 / 0", "CIFAR-10, seeds 2 / 0 / 0 / 0 / 0"]
    assert [line[2] for line in table.lines] == ["**90.0** / **0.500** / **10.0**", *["–"] * 4]


def test_the_picture_has_curves_and_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(SOFTMAX, 0.9, 0.5, 0.10), row(OURS, 0.92, 0.6, 0.04)]
    cut = [row(OURS_CUT, 0.9, 0.4, 0.01), row(SOFTMAX_CUT, 0.9, 0.4, 0.02)]
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    kernels.figure([*rows, *cut, row("GPDNN", 0.9, 0.5, 0.1, methods.SHORT)], tmp_path / "picture.png")
    assert [len(ax.lines) for ax in drawn[0].axes] == [5, 5, 5]  # four methods, and where the tree joins
    assert [line.get_ydata()[-1] for line in drawn[0].axes[2].lines[:4]] == pytest.approx([10, 4, 1, 2])
    assert [line.get_xdata()[-1] for line in drawn[0].axes[0].lines[:4]] == [10, 10, 200, 200]  # curves, and marks
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == [SOFTMAX, OURS, SOFTMAX_CUT, OURS_CUT]
    with pytest.raises(ValueError, match="run the experiment first"):
        kernels.figure([row(OURS, 0.9, 0.5, 0.1, methods.SHORT)], tmp_path / "none.png")


def test_other_ways_to_predict_have_a_table() -> None:
    ways: Any = {
        "at the mean": {"accuracy": 0.8, "nll": 0.7, "ece": 0.2},
        "refit": {"accuracy": 0.7, "nll": 0.8, "ece": 0.3},
    }
    *_, table = kernels.tables([row(SOFTMAX, 0.9, 0.5, 0.1), row(OURS, 0.92, 0.6, 0.04, **ways)])
    assert table.title == "Other ways to predict"
    assert table.lines == [
        ["CIFAR-10, 200 epochs", OURS, "as in the tables above", "92.00", "0.600", "4.00"],
        ["CIFAR-10, 200 epochs", OURS, "the tree at the mean of its latents", "80.00", "0.700", "20.00"],
        ["CIFAR-10, 200 epochs", OURS, "the tree, its posteriors refitted", "70.00", "0.800", "30.00"],
    ]
