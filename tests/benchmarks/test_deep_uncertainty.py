"""The experiment on uncertainty: corruptions, last-layer posteriors, the SNGP-like network, answers, tables."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.core.pictures import Pictures
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.deep import answers, uncertainty
from benchmarks.experiments.deep import uncertainty_tables as shown
from benchmarks.experiments.deep.answers import OWN, Answer, mixture
from benchmarks.experiments.deep.corruptions import STRENGTHS, corrupted
from benchmarks.experiments.deep.last_layer import PRIOR_PRECISIONS, ByClass, Kronecker, LastLayer
from benchmarks.experiments.deep.sngp import BoundedSpectrum, RandomFeatures, bounded
from gptree.deep import convnet


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ------------------------------------------------------------------------------------------------------ corruptions


@pytest.mark.parametrize("kind", STRENGTHS)
def test_corruptions_grow_with_their_strength_and_are_the_same_every_time(kind: str) -> None:
    smooth = np.linspace(40, 200, 16)[None, :, None, None] + np.linspace(-30, 30, 16)[:, None]
    texture = np.random.default_rng(0).normal(0, 25, (6, 16, 16, 3))
    X = (smooth + texture).clip(0, 255).astype(np.uint8)
    before, worse = X.copy(), [corrupted(X, kind, strength) for strength in STRENGTHS[kind]]
    assert all(each.shape == X.shape and each.dtype == np.uint8 for each in worse)
    assert np.array_equal(X, before)
    assert np.array_equal(worse[2], corrupted(X, kind, STRENGTHS[kind][2]))
    distance = [np.mean((each.astype(float) - X) ** 2) for each in worse]
    assert distance[0] > 0
    assert distance == sorted(distance)
    assert len(set(distance)) == len(STRENGTHS[kind]) == 5


def test_corruptions_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(1).integers(60, 190, (5, 8, 8, 3)).astype(np.uint8)
    mean = X.astype(float).mean((1, 2), keepdims=True)
    assert np.abs(corrupted(X, "contrast", 0.5) - (mean + 0.5 * (X - mean))).max() <= 0.5 + 1e-3
    noise = corrupted(X, "noise", 0.1).astype(float) - X
    assert noise.std() / 255 == pytest.approx(0.1, rel=0.1)  # 960 draws: a relative error of 2.3 %, and cut at black
    flat = np.full((1, 9, 9, 3), 100, np.uint8)
    flat[0, 4, 4] = 200
    assert 100 < corrupted(flat, "blur", 1.0)[0, 4, 5, 0] < corrupted(flat, "blur", 1.0)[0, 4, 4, 0] < 200
    with pytest.raises(ValueError, match="no corruption 'fog'; there are noise, blur"):
        corrupted(X, "fog", 1.0)


# ------------------------------------------------------------------------------------------- last-layer posteriors


def explicit(layer: LastLayer, features: Tensor, kind: type[LastLayer]) -> Tensor:
    """The precision matrix of all weights, row by row of W, as plain sums."""
    phi, W = features.double(), layer.weight
    if layer.has_bias:
        phi = torch.cat([phi, torch.ones(len(phi), 1)], 1)
    C, d = W.shape
    inputs, outputs, H = torch.zeros(d, d).double(), torch.zeros(C, C).double(), torch.zeros(C * d, C * d).double()
    for row in phi:
        p = (W @ row).softmax(0)
        curvature = p.diag() - torch.outer(p, p)
        inputs += torch.outer(row, row)
        outputs += curvature / len(phi)
        H += torch.kron(curvature.diagonal().diag(), torch.outer(row, row))
    H = torch.kron(outputs, inputs) if kind is Kronecker else H
    return H + layer.precision * torch.eye(C * d).double()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [Kronecker, ByClass])
def test_variances_are_those_of_the_explicit_inverse(kind: type[LastLayer], bias: bool) -> None:
    features, new = randn(30, 4, seed=0), randn(7, 4, seed=1)
    layer = kind(randn(3, 4, seed=2), randn(3, seed=3) if bias else None).learn(features)
    layer.precision = 0.3
    covariance = torch.linalg.inv(explicit(layer, features, kind))
    d = layer.weight.shape[1]
    phi = torch.cat([new, torch.ones(7, 1)], 1) if bias else new
    expected = [[row @ covariance[k * d : (k + 1) * d, k * d : (k + 1) * d] @ row for k in range(3)] for row in phi]
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(layer.variances(new), expected, rtol=1e-10, atol=1e-12)
    mean = phi @ layer.weight.mT
    torch.testing.assert_close(layer.mean(new), mean)
    torch.testing.assert_close(layer.damped(new), mean / (1 + math.pi / 8 * expected).sqrt())


def test_one_row_is_the_whole_gauss_newton_matrix() -> None:
    """Where there is one row, a product of sums is a sum of products: against autograd's Hessian of the loss."""
    x, W = randn(1, 3, seed=0), randn(4, 3, seed=1)
    layer = Kronecker(W, None).learn(x)
    layer.precision = 0.7
    hessian = torch.autograd.functional.hessian(lambda w: nn.functional.cross_entropy(x @ w.mT, torch.tensor([2])), W)
    covariance = torch.linalg.inv(hessian.reshape(12, 12) + 0.7 * torch.eye(12).double())
    new = randn(5, 3, seed=2)
    blocks = torch.stack([covariance[3 * k : 3 * k + 3, 3 * k : 3 * k + 3] for k in range(4)])
    expected = torch.einsum("ti,kij,tj->tk", new, blocks, new)
    torch.testing.assert_close(layer.variances(new), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [Kronecker, ByClass])
def test_the_prior_precision_is_the_best_on_held_out_rows(kind: type[LastLayer]) -> None:
    features, held_out, y = randn(40, 5, seed=0), randn(60, 5, seed=4), torch.arange(60) % 3
    layer = kind(3 * randn(3, 5, seed=2), None).learn(features).choose(held_out, y)
    chosen, losses = layer.precision, []
    for layer.precision in PRIOR_PRECISIONS:
        losses.append(float(nn.functional.nll_loss(layer.damped(held_out).log_softmax(-1), y)))
    assert chosen == PRIOR_PRECISIONS[int(np.argmin(losses))]
    assert len(set(losses)) > 1


# ------------------------------------------------------------------------------------------------ SNGP-like network


def test_spectra_are_bounded_and_small_ones_left_alone() -> None:
    network = bounded(convnet(3, 8, 2, seed=0), bound=0.5)
    network.train()
    for _ in range(30):
        network(torch.zeros(1, 3, 8, 8).expand(4, 3, 8, 8))
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            largest = torch.linalg.matrix_norm(module.weight.flatten(1), 2)
            torch.testing.assert_close(largest, torch.tensor(0.5), rtol=1e-3, atol=0.0)
    weight = 0.01 * torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(BoundedSpectrum(weight, 0.5, 0)(weight), weight)


def test_spectra_stay_as_they_are_in_eval_mode_and_gradients_flow() -> None:
    network = bounded(convnet(1, 4, 1, seed=0), bound=0.1)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.eval()
    x = torch.rand(2, 1, 6, 6)
    assert torch.equal(network(x), network(x))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    network(x).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_random_features_have_the_inner_products_of_an_rbf_kernel() -> None:
    """With 40,000 features the standard error of an inner product is below 0.005: six of them bound all 36."""
    features = RandomFeatures(8, 40_000, 0.7, seed=0)
    x = randn(6, 8, seed=3).float()
    phi = features(x) * math.sqrt(2 / 40_000)
    unit = nn.functional.layer_norm(x, (8,)) / math.sqrt(8)
    expected = (-0.5 * torch.cdist(unit, unit).square() / 0.7**2).exp()
    torch.testing.assert_close(phi @ phi.mT, expected, rtol=0.0, atol=0.03)


# -------------------------------------------------------------------------------------------------- answers, trials


def test_scores_of_a_mixture() -> None:
    p = torch.tensor([[[0.9, 0.1], [0.5, 0.5]], [[0.1, 0.9], [0.5, 0.5]]], dtype=torch.float64)
    answer = mixture(list(p.log()))
    torch.testing.assert_close(answer.log_p.exp(), torch.full((2, 2), 0.5, dtype=torch.float64))
    certain = 0.9 * math.log(0.9) + 0.1 * math.log(0.1)
    expected = torch.tensor([math.log(2) + certain, 0.0], dtype=torch.float64)
    torch.testing.assert_close(answer.scores["mutual information"], expected)
    sure = Answer(torch.tensor([[1.0, 0.0]]).log(), {})
    assert sure.all_scores()["entropy"] == 0.0
    assert sure.all_scores()["max probability"] == 0.0


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """Those of all methods, small networks on made-up pictures."""
    folder = tmp_path_factory.mktemp("data")

    def few(_: Path, name: str) -> Pictures:
        random = np.random.default_rng(len(name))
        y, split = np.tile(np.repeat(np.arange(3), 8), 2), np.repeat([0, 1], 24)
        colours = random.normal(128, 50, (3, 1, 1, 3))[y]
        X = (colours + random.normal(0, 20, (48, 8, 8, 3))).clip(0, 255).astype(np.uint8)
        return Pictures(X, y, tuple("abc"), split, np.array([f"{i}.png" for i in range(48)]))

    settings = {"epochs": 3, "batch": 8, "embedding": 6, "learning_rate": 0.05, "warmup": 0, "validation": 0.25}
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uncertainty, "load", few)
        patch.setattr(uncertainty, "resnet18", lambda width, _, seed: convnet(3, 8, 1, width, seed=seed))
        patch.setattr(uncertainty, "FEATURES", 8)
        for trial in uncertainty.trials(1):
            if trial.data == "cifar10":
                small = Trial(trial.experiment, trial.method, trial.data, trial.seed, settings)
                metrics = uncertainty.run(small, folder)
                found.append(Row(small, metrics, {"wall": 1.0, "cpu": 1.0}, None, {}, {}))
    networks = {path.name.split("-")[1] for path in (folder / "runs").iterdir()}
    assert networks == {"softmax", "gp", "sngp"}  # the ensemble has none of its own
    assert len(list((folder / "runs").iterdir())) == 5
    return [Row.from_line(row.to_line()) for row in found]


def test_every_answer_is_measured(rows: list[Row]) -> None:
    found = shown.by_answer(rows)
    assert {row.trial.method for row in found} == set(OWN)
    for row in found:
        m = row.metrics
        assert {kind: len(each) for kind, each in m["corrupted"].items()} == dict.fromkeys(STRENGTHS, 5)
        assert m["worse"]["nll"] == pytest.approx(np.mean([x["nll"] for each in m["corrupted"].values() for x in each]))
        assert list(m["auroc"]) == ["cifar100", "omniglot32", "cub32"]
        for rates in m["auroc"].values():
            assert {"max probability", "entropy", OWN[row.trial.method]} <= set(rates)
            assert all(0 <= rate <= 1 for rate in rates.values())
        assert np.isfinite([m["clean"]["nll"], m["clean"]["ece"]]).all()
    calibrated, plain = ([r for r in found if r.trial.method == m] for m in (answers.TEMPERATURE, answers.SOFTMAX))
    for one, other in zip(calibrated, plain, strict=True):
        assert one.metrics["clean"]["accuracy"] == other.metrics["clean"]["accuracy"]
        assert one.metrics["clean"]["nll"] != other.metrics["clean"]["nll"]


def test_seeds_of_the_ensembles() -> None:
    wanted = uncertainty.trials(2)
    for trial in wanted:
        assert all(network in wanted for network in uncertainty.networks(trial))
    second = [t for t in wanted if t.method == answers.ENSEMBLE and t.seed == 1 and t.data == "cifar100"]
    assert [network.seed for network in uncertainty.networks(second[0])] == [3, 4, 5]


def test_what_trains_each_method() -> None:
    for trial in uncertainty.trials(1):
        training = uncertainty.make_training(trial)
        assert training.trains_head == (trial.method == answers.TREE)
        assert (training.objective_weight, training.head_weight) == (1.0, 0.1)  # of the package
        assert training.calibrate
        assert training.validation == 0.02


def test_tables_and_figure(rows: list[Row], tmp_path: Path) -> None:
    tables = shown.tables(rows)
    assert [len(table.lines) for table in tables] == [len(OWN), len(OWN)]
    table: Any = tables[1]
    novelty = [r.metrics["auroc"]["cub32"]["novelty"] for r in shown.by_answer(rows) if r.trial.method == answers.TREE]
    place = list(table.columns).index("CUB, own")
    assert table.lines[0][place].strip("*") == f"{novelty[0]:.3f}"
    assert len(shown.details(rows)) == 1 + len(STRENGTHS)
    assert shown.glance(rows).lines
    column = shown.COLUMNS[f"CUB AUROC of {answers.TREE}"]
    assert {column.of(row) for row in rows} - {None} == set(novelty)
    shown.figure(rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
