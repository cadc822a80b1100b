"""TOPIC: its neural gas, its losses and its sessions."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import torch
from network_cases import digits, fitted, taught
from torch.nn.functional import cross_entropy, normalize

from gptree.deep import embed
from gptree.rivals import BaseOnly, TOPICSettings
from gptree.rivals.networks.blocks import unit
from gptree.rivals.networks.neural_gas import Gas, NeuralGas, cells
from gptree.rivals.networks.settings import Data
from gptree.rivals.networks.topic import anchor_loss, centre_loss, margin_loss, precisions


def blobs(classes: int, each: int, dimension: int = 6, spread: float = 0.05, seed: int = 0):
    random = np.random.default_rng(seed)
    x = np.repeat(np.eye(classes, dimension), each, 0) + spread * random.normal(size=(classes * each, dimension))
    return torch.from_numpy(x), np.repeat(np.arange(classes), each)


# ---------------------------------------------------------------------------------------------------- neural gas


def slow_step(m, ages, f, rate, decay, lifetime):
    """One step of the gas by loops; `ages` is a dictionary of edges (i, j), i < j."""
    order = sorted(range(len(m)), key=lambda j: (sum((a - b) ** 2 for a, b in zip(m[j], f, strict=True)), j))
    moved = list(m)
    for rank, j in enumerate(order):
        moved[j] = [a + rate * np.exp(-rank / decay) * (b - a) for a, b in zip(m[j], f, strict=True)]
    nearest, second = order[:2]
    ages = {edge: age + (nearest in edge) for edge, age in ages.items()}
    ages[min(nearest, second), max(nearest, second)] = 0
    return moved, {edge: age for edge, age in ages.items() if age <= lifetime}


def test_gas_is_its_loop():
    x, _ = blobs(4, 15, spread=0.4)
    settings = NeuralGas(rate=0.3, decay=1.5, lifetime=3)
    gas = Gas(x[:7].clone(), torch.full((7, 7), torch.inf))
    m, ages = x[:7].tolist(), {}
    removed = 0
    for f in x:
        settings.step(gas, f)
        known = set(ages)
        m, ages = slow_step(m, ages, f.tolist(), 0.3, 1.5, 3)
        removed += len(known - set(ages))
        np.testing.assert_allclose(gas.centroids, m, atol=1e-10)
        assert {(i, j): int(gas.ages[i, j]) for i, j in gas.ages.isfinite().triu().nonzero().tolist()} == ages
        assert torch.equal(gas.ages, gas.ages.T)
    assert removed > 5  # edges did reach the end of their life


def test_gas_at_its_limits():
    x = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gas = Gas(x[:7].clone(), torch.full((7, 7), torch.inf))
    NeuralGas(rate=0.1, decay=1e-3).step(gas, x[7])
    winner = int((x[:7] - x[7]).square().sum(1).argmin())
    expected = x[:7].clone()
    expected[winner] += 0.1 * (x[7] - x[winner])
    torch.testing.assert_close(gas.centroids, expected)  # decay → 0 moves the winner alone
    NeuralGas(rate=1.0, decay=1e-3).step(gas, x[7])
    assert torch.equal(gas.centroids[winner], x[7])  # a rate of 1 brings it to the row


def test_every_class_has_nodes_and_nodes_their_pictures():
    x, y = blobs(6, 40)
    gas = NeuralGas(draws=240).fit(x, 24, seed=0)
    found = cells(x, y, gas.centroids)
    # a class without a node in none of 100 seeds, in 3 of 100 with 12 nodes
    assert set(found.labels) >= set(range(6))
    again = NeuralGas(draws=240).fit(x, 24, seed=0)
    assert torch.equal(gas.centroids, again.centroids)
    assert torch.equal(gas.ages, again.ages)
    assert gas.ages[gas.ages.isfinite()].max() <= 200


def test_cells_are_their_loop():
    x, y = blobs(4, 12, spread=0.5)
    m = torch.cat([x[::7], torch.full((1, 6), 9.0)])  # the last node is far from every row
    found = cells(x, y, m)
    home = [min(range(len(m)), key=lambda j: float((row - m[j]).norm())) for row in x]
    for j in range(len(m)):
        rows = [i for i in range(len(x)) if home[i] == j]
        if not rows:
            assert (found.labels[j], found.pictures[j]) == (-1, -1)
            continue
        label = max(range(4), key=lambda c: sum(y[i] == c for i in rows))
        rows = [i for i in rows if y[i] == label]
        assert found.labels[j] == label
        assert found.pictures[j] == min(rows, key=lambda i: float((x[i] - m[j]).norm()))
        np.testing.assert_allclose(found.variances[j], np.var(x[rows].numpy(), axis=0), atol=1e-10)
    assert found.labels[-1] == -1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lifetime": 0}, "lifetime must be at least 1"),
        ({"rate": 0.0}, "rate is a part"),
        ({"decay": 0.0}, "decay must be positive"),
    ],
)
def test_wrong_gas_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        NeuralGas(**settings)
    with pytest.raises(ValueError, match="at least two nodes"):
        NeuralGas().fit(torch.zeros(3, 2), 1, seed=0)


def test_new_nodes_are_neighbours_of_the_nodes_beside_them():
    x, _ = blobs(4, 15)
    gas = NeuralGas().fit(x, 12, seed=0)
    before = [part.clone() for part in gas]
    new = torch.stack([x[0] + 0.02, torch.full((6,), 3.0).double()])
    grown = NeuralGas().grown(gas, x[:1] + 0.02, new)
    assert torch.equal(grown.centroids, torch.cat([gas.centroids, new]))
    near = grown.ages[12:].isfinite()
    assert near.shape == (2, 14)
    nearest = int((gas.centroids - new[0]).square().sum(1).argmin())
    assert near[0].nonzero().flatten().tolist() == [nearest]
    assert not near[1].any()  # no row came near it
    assert all(torch.equal(a, b) for a, b in zip(before, gas, strict=True))


# -------------------------------------------------------------------------------------------------------- losses


def test_anchor_loss():
    random = torch.Generator().manual_seed(0)
    t = normalize(torch.randn(5, 4, dtype=torch.float64, generator=random), dim=1)
    f = t.clone().requires_grad_()
    loss = anchor_loss(f, t)
    loss.backward()
    assert float(loss.detach()) == 0  # nothing moved: no loss, no gradient
    assert f.grad is not None
    assert not f.grad.any()
    shift = torch.tensor([0.1, -0.2, 0.0, 0.3], dtype=torch.float64)
    assert float(anchor_loss(t + shift, t)) == pytest.approx(0.14 / 4)
    variances = torch.rand(5, 4, dtype=torch.float64, generator=random) + 0.1
    mahalanobis = sum(float((t[j] + shift - t[j]) @ torch.linalg.inv(variances[j].diag()) @ shift) for j in range(5))
    assert float(anchor_loss(t + shift, t, 1 / variances)) == pytest.approx(mahalanobis / 20)
    assert precisions(torch.tensor([[1.0, 2.0], [0.0, 1.0]])).tolist() == [[1.0, 0.5], [pytest.approx(10), 1.0]]


def test_min_and_max_terms_are_their_loops():
    random = torch.Generator().manual_seed(1)
    f, new, old = (0.2 * torch.randn(n, 4, dtype=torch.float64, generator=random) for n in (6, 3, 4))
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    expected = np.mean([0.5 * float((f[i] - new[y[i]]) @ (f[i] - new[y[i]])) for i in range(6)])
    assert float(centre_loss(f, new, y)) == pytest.approx(expected)
    total = 0.0
    for i in range(3):
        for other in [*new[i + 1 :], *old]:
            total += max(0.0, 0.5 - float((new[i] - other).norm()))
    assert total > 0
    assert float(margin_loss(new, old, 0.5)) == pytest.approx(total)
    assert float(margin_loss(new, old, 1e-9)) == 0
    near = torch.rand(3, 7, generator=random) < 0.5
    total = 0.0
    for i in range(3):
        for j, other in enumerate([*old, *new]):
            if near[i, j] and (j < 4 or j - 4 > i):
                total += max(0.0, 0.5 - float((new[i] - other).norm()))
    assert total > 0
    assert float(margin_loss(new, old, 0.5, near)) == pytest.approx(total)
    equal = torch.zeros(2, 4, requires_grad=True)
    margin_loss(equal, old[:0].float(), 0.5).backward()
    assert equal.grad is not None
    assert equal.grad.isfinite().all()


# ------------------------------------------------------------------------------------------------------ sessions


def features_of(rival, X) -> torch.Tensor:
    return unit(embed(rival.state_.model, rival.state_.inputs.source(X), np.arange(len(X)), torch.device("cpu")))


@pytest.mark.parametrize("case", ["topic tao", "topic tuned"])
def test_rate_zero_is_the_old_classifier_and_the_start_of_new_rows(case):
    start, rival, X = fitted(case), taught(case, session__learning_rate=0.0), digits().X
    old, new = start.state_.model.classifier.weight, rival.state_.model.classifier.weight
    assert torch.equal(new[:6], old)
    torch.testing.assert_close(
        torch.from_numpy(rival.predict_log_proba(X)), (features_of(start, X) @ new.T).double().log_softmax(1)
    )
    if case == "topic tao":  # 4 × 12 draws of N(0, 0.001²): the root mean square is off by 40 % in 1 of 10,000 seeds
        assert float(new[6:].square().mean().sqrt()) == pytest.approx(1e-3, rel=0.4)
    else:
        shots = features_of(start, digits().sessions[0][0])
        mean = torch.stack([shots[digits().sessions[0][1] == c].mean(0) for c in (6, 7)])
        torch.testing.assert_close(new[6:8], normalize(mean, dim=1) * old.norm(dim=1).mean())


def test_memory_is_the_pictures_nearest_to_the_nodes_and_novel_ones_are_not_kept():
    rival: Any = fitted("topic tao")
    X, y = digits().base
    x = features_of(rival, X)
    gas = rival.settings.gas.fit(x, 21, seed=0)
    found = cells(x, y, gas.centroids)
    kept = {(int(label), X[row].tobytes()) for label, row in zip(found.labels, found.pictures, strict=True) if row >= 0}
    memory = rival.state_.memory
    assert {(int(c), p.numpy().tobytes()) for c, p in zip(memory.y, memory.pictures[:, 0], strict=True)} == kept
    rival.add_classes(*digits().sessions[0])
    assert torch.equal(rival.state_.memory.pictures, memory.pictures)
    assert set(rival.state_.memory.y) <= set(range(6))


@pytest.mark.parametrize(("form", "most"), [("code", 20.0), ("paper", 2.0)])
def test_anchors_are_held(form, most):
    moves = []
    for weight in (0.0, most):
        rival = fitted("topic tuned", form=form, anchor_weight=weight, session__steps=20, session__learning_rate=0.02)
        anchors = rival.state_.memory.pictures[:, 0].numpy()
        target = features_of(rival, anchors) if form == "code" else rival.state_.extra["centroids"]
        rival.add_classes(*digits().sessions[0])
        moves.append(float((features_of(rival, anchors) - target).square().mean()))
    assert moves[1] < 0.7 * moves[0]


def test_first_loss_has_all_terms():
    """Nothing has moved: no anchor loss, and cross-entropy of the new rows alone."""
    changes = {"min_weight": 0.7, "max_weight": 0.2, "margin": 1.5}
    rival = fitted("topic tuned", **changes).set_params(augment=())
    (X, y), (new, labels) = digits().base, digits().sessions[0]
    f, base = features_of(rival, new), features_of(rival, X)
    means = torch.stack([f[labels == c].mean(0) for c in (6, 7)])
    old = torch.stack([base[y == c].mean(0) for c in range(6)])
    rows = torch.cat([rival.state_.model.classifier.weight, normalize(means, dim=1)])
    rows[6:] *= rows[:6].norm(dim=1).mean()
    loss = cross_entropy(f @ rows.T, torch.from_numpy(labels))
    loss += 0.7 * 0.5 * (f - means[labels - 6]).square().sum(1).mean()
    pairs = [(means[0], means[1]), *[(a, b) for a in means for b in old]]
    far = sum(max(0.0, 1.5 - float((a - b).norm())) for a, b in pairs)
    rival.add_classes(new, labels)
    assert far > 0
    assert rival.log_[-1]["first_loss"] == pytest.approx(float(loss) + 0.2 * far, rel=1e-4)


def test_new_classes_become_nodes_in_the_paper_form():
    rival = taught("topic tuned", form="paper")
    state = rival.state_
    nodes = len(state.memory.y)
    assert [len(state.extra[name]) for name in ("centroids", "variances", "ages")] == [nodes] * 3
    assert state.memory.y[-4:].tolist() == [6, 7, 8, 9]  # a picture each
    X, y = digits().sessions[1]
    shots = features_of(rival, X)
    for node, c in ((-2, 8), (-1, 9)):
        mine = shots[y == c]
        torch.testing.assert_close(state.extra["centroids"][node], mine.mean(0))
        torch.testing.assert_close(state.extra["variances"][node], mine.var(0, correction=0))
        nearest = X[y == c][int((mine - mine.mean(0)).square().sum(1).argmin())]
        assert np.array_equal(state.memory.pictures[node, 0].numpy(), nearest)
    assert state.extra["ages"][-4:].isfinite().any()  # a node gets edges where a shot is nearest to it


def test_presets_and_wrong_settings():
    expected = {"mini-imagenet": (0.1, 100, 1e-5), "cifar100": (0.1, 70, 1e-4), "cub": (0.01, 120, 1e-6)}
    for data in get_args(Data):
        settings = TOPICSettings.tao(data)
        assert (settings.session.learning_rate, settings.session.steps, settings.max_weight) == expected[data]
        assert settings.memory == BaseOnly(400)
    grid = TOPICSettings.tuned().candidates()
    assert len(grid) == 10
    assert grid[0].session.learning_rate == 0
    with pytest.raises(ValueError, match="anchor_weight must not be negative"):
        TOPICSettings(anchor_weight=-1.0)
    with pytest.raises(ValueError, match="form is"):
        TOPICSettings(form="both")  # pyright: ignore[reportArgumentType]
