"""SDC: triplet losses, regularisers, compensation of drift and its sessions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from network_cases import base_network, digits, fitted, settings_of, taught
from torch import nn
from torch.nn.functional import normalize

from gptree.deep import Batch, embed
from gptree.rivals import PerClass, SDCSettings
from gptree.rivals.networks.blocks import class_means, unit
from gptree.rivals.networks.sdc import compensated, embedding_penalty, importance_penalty, importances
from gptree.rivals.networks.triplet import balanced_batches, batch_hard, no_hard_mining


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------------------------------------------- compensation


def test_compensation_is_its_triple_loop():
    mu, old, new = normal(4, 3), normal(6, 3, seed=1), normal(6, 3, seed=2)
    expected = mu.clone()
    for c in range(4):
        weights = [np.exp(-sum(float(old[i, k] - mu[c, k]) ** 2 for k in range(3)) / (2 * 0.7**2)) for i in range(6)]
        for k in range(3):
            expected[c, k] += sum(weights[i] * float(new[i, k] - old[i, k]) for i in range(6)) / sum(weights)
    torch.testing.assert_close(compensated(mu, old, new, 0.7), expected, atol=1e-10, rtol=0)


def test_compensation_at_its_limits():
    mu, old, new, shift = normal(4, 3), normal(6, 3, seed=1), normal(6, 3, seed=2), normal(3, seed=3)
    assert torch.equal(compensated(mu, old, old, 0.3), mu)  # no drift
    for sigma in (1e-3, 0.3, 1e6):  # a translation is undone exactly
        torch.testing.assert_close(compensated(mu, old, old + shift, sigma), mu + shift)
    torch.testing.assert_close(compensated(mu, old, new, 1e6), mu + (new - old).mean(0))
    torch.testing.assert_close(compensated(old[:2], old, new, 1e-3), new[:2])  # at a row: its own drift
    assert compensated(10 * mu, old, new, 1e-3).isfinite().all()  # where every exp(−d²/2σ²) is 0


# ------------------------------------------------------------------------------------------------------- triplets


def slow_batch_hard(z, y, margin):
    losses = []
    for i in range(len(z)):
        positive = [float((z[i] - z[j]).norm()) for j in range(len(z)) if j != i and y[j] == y[i]]
        negative = [float((z[i] - z[j]).norm()) for j in range(len(z)) if y[j] != y[i]]
        if positive and negative:
            losses.append(max(0.0, max(positive) - min(negative) + margin))
    return np.mean(losses) if losses else 0.0


def slow_no_hard_mining(z, y, margin):
    losses = []
    for i in range(len(z)):
        positive = [float((z[i] - z[j]).norm()) for j in range(len(z)) if j != i and y[j] == y[i]]
        negative = [float((z[i] - z[j]).norm()) for j in range(len(z)) if y[j] != y[i]]
        losses += [max(0.0, p - n + margin) for p, n in zip(positive, negative, strict=False)]
    return np.mean(losses) if losses else 0.0


@pytest.mark.parametrize(("loss", "slow"), [(batch_hard, slow_batch_hard), (no_hard_mining, slow_no_hard_mining)])
@pytest.mark.parametrize("labels", [[0, 1, 2] * 4, [0] * 7 + [1] * 3 + [2], [0, 1, 2], [1, 1, 1], [3]])
@pytest.mark.parametrize("margin", [0.0, 0.4])
def test_triplet_losses_are_their_loops(loss, slow, labels, margin):
    z = normalize(normal(len(labels), 4), dim=1).requires_grad_()
    value = loss(z, torch.tensor(labels), margin)
    assert float(value.detach()) == pytest.approx(slow(z.detach(), labels, margin), abs=1e-10)
    value.backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("loss", [batch_hard, no_hard_mining])
def test_equal_rows_have_a_finite_gradient(loss):
    z = torch.ones(4, 3, requires_grad=True)
    loss(z, torch.tensor([0, 0, 1, 1]), 0.1).backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_batches_are_balanced():
    y = np.repeat([5, 2, 9, 4], [20, 20, 20, 3])
    batches = balanced_batches(y, 3, 4, 2, np.random.default_rng(0))
    assert len(batches) == 2 * 6
    for rows in batches:
        _, counts = np.unique(y[rows], return_counts=True)
        assert counts.tolist() == [4, 4, 4]
    (few,) = balanced_batches(y[:40][::8], 9, 3, 1, np.random.default_rng(0))
    assert len(few) == 6  # two classes there, three rows of each
    with pytest.raises(ValueError, match="two instances"):
        balanced_batches(y, 3, 1, 1, np.random.default_rng(0))


# ---------------------------------------------------------------------------------------------------- regularisers


def test_penalties_are_their_sums_and_zero_at_the_start():
    old, new = normal(3, 2), normal(3, 2, seed=1)
    assert float(embedding_penalty(old, old)) == 0
    expected = 0.5 * sum(float(new[i, k] - old[i, k]) ** 2 for i in range(3) for k in range(2))
    assert float(embedding_penalty(new, old)) == pytest.approx(expected)
    omega = [normal(3, 2, seed=2).square(), torch.ones(1, dtype=torch.float64)]
    before, after = [old, torch.zeros(1).double()], [new, torch.ones(1).double()]
    assert float(importance_penalty(before, before, omega)) == 0
    expected = 0.5 * (sum(float(omega[0][i, k] * (new - old)[i, k] ** 2) for i in range(3) for k in range(2)) + 1)
    assert float(importance_penalty(after, before, omega)) == pytest.approx(expected)


def test_importances_are_squared_sensitivities():
    network = nn.Linear(3, 2).double()
    unused = torch.zeros(1, requires_grad=True)
    batches = [normal(4, 3), normal(2, 3, seed=1)]
    found = importances(network, batches, [network.weight, network.bias, unused])
    expected = torch.zeros_like(network.weight)
    step = 1e-6
    for x in batches:
        for i in range(2):
            for j in range(3):
                lengths = []
                for sign in (step, -step):
                    moved = network.weight.detach().clone()
                    moved[i, j] += sign
                    lengths.append(float((x @ moved.T + network.bias).norm(dim=1).sum().detach()))
                expected[i, j] += ((lengths[0] - lengths[1]) / (2 * step)) ** 2 / 2
    torch.testing.assert_close(found[0], expected, rtol=1e-6, atol=1e-8)
    assert not found[2].any()


# -------------------------------------------------------------------------------------------------------- sessions


def features_of(rival, X) -> torch.Tensor:
    return unit(embed(rival.state_.model, rival.state_.inputs.source(X), np.arange(len(X)), torch.device("cpu")))


def test_rate_zero_is_the_nearest_class_mean_bit_for_bit():
    rival, data = taught("sdc tuned", session__learning_rate=0.0), digits()
    means = []
    for X, y in (data.base, *data.sessions):
        x, codes = features_of(rival, X), torch.from_numpy(np.unique(y, return_inverse=True)[1])
        means.append(class_means(x, codes, int(codes.max()) + 1))
    prototypes = torch.cat(means)
    assert torch.equal(rival.state_.model.classifier.weight, prototypes)
    nearest = torch.cdist(features_of(rival, data.X).double(), prototypes.double()).argmin(1)
    np.testing.assert_array_equal(rival.predict(data.X), nearest.numpy())


def test_prototypes_follow_the_drift_of_the_shots():
    rival, (X, y) = fitted("sdc tuned", session__learning_rate=1e-3, sigma=0.2), digits().sessions[0]
    before, prototypes = features_of(rival, X), rival.state_.model.classifier.weight.clone()
    rival.add_classes(X, y)
    after = features_of(rival, X)
    assert float((after - before).abs().max()) > 1e-3
    torch.testing.assert_close(rival.state_.model.classifier.weight[:6], compensated(prototypes, before, after, 0.2))
    torch.testing.assert_close(rival.state_.model.classifier.weight[6], after[y == 6].mean(0))
    assert len(rival.state_.memory.y) == 0
    assert not rival.state_.extra


def test_base_session_learns_the_metric_and_leaves_statistics():
    kept, learned = fitted("sdc tuned", base_epochs=0), fitted("sdc tuned", base_epochs=3, base_cross_entropy=0.0)
    before, after = (rival.state_.model.network.state_dict() for rival in (kept, learned))
    base = base_network(settings_of("sdc tuned").objective).network.state_dict()
    assert all(torch.equal(before[name], base[name]) for name in base)
    assert not torch.equal(after["embedding.weight"], base["embedding.weight"])
    assert all(torch.equal(after[name], base[name]) for name in base if "running" in name)
    X, y = digits().base
    losses = [float(batch_hard(features_of(rival, X), torch.from_numpy(y))) for rival in (kept, learned)]
    assert losses[1] < losses[0]


@pytest.mark.parametrize("regulariser", ["lwf", "mas"])
def test_regularisers_hold_the_network(regulariser):
    moves = []
    for weight in (0.0, 1e6):
        changes = {"regulariser": regulariser, "weight": weight, "margin": 0.5, "session__weight_decay": 0.0}
        rival = fitted("sdc tuned", session__learning_rate=1e-3, session__steps=15, **changes)
        before = features_of(rival, digits().X)
        rival.add_classes(*digits().sessions[0])
        moves.append(float((features_of(rival, digits().X) - before).square().mean()))
        assert rival.log_[-1]["first_loss"] > 0
    assert moves[1] < 0.5 * moves[0]


@pytest.mark.parametrize(
    ("triplet", "slow"), [("batch-hard", slow_batch_hard), ("no-hard-mining", slow_no_hard_mining)]
)
@pytest.mark.parametrize("regulariser", ["lwf", "mas"])
def test_first_loss_is_the_triplets(triplet, slow, regulariser):
    """Nothing has moved, and the regularisers are zero."""
    rival = fitted("sdc tuned", triplet=triplet, regulariser=regulariser, weight=1e3, margin=0.3)
    X, y = digits().sessions[0]
    rival.set_params(augment=())
    expected = slow(features_of(rival, X), y, 0.3)
    rival.add_classes(X, y)
    assert rival.log_[-1]["first_loss"] == pytest.approx(expected, rel=1e-4)


def test_importances_are_those_of_the_last_session():
    rival = taught("sdc tuned", regulariser="mas", session__learning_rate=0.0)
    model, X = rival.state_.model, digits().sessions[1][0]
    weights = model.trained_parameters("last-block")
    (x,) = rival.state_.inputs.source(X).batches([Batch(np.arange(len(X)))], torch.device("cpu"))
    for weight in weights:
        weight.requires_grad_(True)
    expected = importances(model.network, [x], weights)
    for weight in weights:
        weight.requires_grad_(False)
    for found, omega in zip(rival.state_.extra.values(), expected, strict=True):
        torch.testing.assert_close(found, omega)


@pytest.mark.parametrize("shots", [1, 5])
def test_a_class_alone_has_no_triplet_and_joins_as_its_mean(shots):
    X, y = digits().sessions[0]
    rows = np.flatnonzero(y == 6)[:shots]
    rival = fitted("sdc tao", session__weight_decay=0.0).add_classes(X[rows], y[rows])
    assert rival.log_[-1]["first_loss"] == 0
    torch.testing.assert_close(rival.state_.model.classifier.weight[6], features_of(rival, X[rows]).mean(0))


def test_presets_and_wrong_settings():
    assert {data: SDCSettings.tao(data).sigma for data in ("mini-imagenet", "cifar100", "cub")} == {
        "mini-imagenet": 0.2,
        "cifar100": 0.2,
        "cub": 0.3,
    }
    published = SDCSettings.tao("cub")
    assert published.session.learning_rate == published.base_learning_rate == 1e-6
    grid = SDCSettings.tuned().candidates()
    assert len(grid) == 28
    assert grid[0].session.learning_rate == 0
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"sigma": 0.0}, "sigma must be positive"),
        ({"memory": PerClass(5, 5)}, "prototypes and no pictures"),
        ({"rule": "nearest-mean"}, "by their prototypes"),
        ({"regulariser": "ewc"}, 'regulariser is "lwf" or "mas"'),
        ({"triplet": "soft"}, "triplet must be one of"),
        ({"base_instances": 1}, "base_instances must be at least 2"),
    ]
    for settings, message in wrong:
        with pytest.raises(ValueError, match=message):
            SDCSettings(**settings)
