"""SDC: triplet losses, regularisers, compensation of drift and its sessions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

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
