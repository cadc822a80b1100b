"""PODNet: its classifier, its losses and its sessions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from network_cases import TRAINING, digits, fitted, network, rival_of, taught
from torch.nn.functional import normalize

from gptree.deep import Arrays, Batch, embed
from gptree.rivals import BaseOnly, PODNet, PODNetSettings
from gptree.rivals.networks.blocks import unit
from gptree.rivals.networks.lesson import Lesson, Step
from gptree.rivals.networks.memory import balanced_rows
from gptree.rivals.networks.model import BaseNetwork, Model
from gptree.rivals.networks.pod import (
    ProxyNCA,
    adaptive_factor,
    imprinted_proxies,
    nca_loss,
    pod_flat,
    pod_spatial,
    proxy_scores,
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------------------------------------------ classifier


def test_scores_are_their_loop():
    h, theta = normal(3, 5), normal(4, 2, 5, seed=1)
    expected = np.zeros((3, 4))
    for i in range(3):
        for c in range(4):
            s = [-float((h[i] / h[i].norm() - proxy / proxy.norm()).square().sum()) for proxy in theta[c]]
            share = [math.exp(each) / sum(math.exp(other) for other in s) for each in s]
            expected[i, c] = sum(a * b for a, b in zip(share, s, strict=True))
    np.testing.assert_allclose(proxy_scores(h, theta), expected, atol=1e-10)


def test_equal_proxies_are_a_cosine_classifier():
    h, w = normal(3, 5), normal(4, 5, seed=1)
    cosine = normalize(h, dim=1) @ normalize(w, dim=1).T
    for proxies in (w[:, None], w[:, None].repeat(1, 10, 1), w[:, None] * normal(4, 10, 1).abs()):
        torch.testing.assert_close(proxy_scores(h, proxies), 2 * cosine - 2)


def test_nca_is_its_loop_in_both_forms():
    y, t, scale, margin = normal(6, 4), [0, 1, 2, 3, 0, 1], 1.7, 0.6
    y[0, 0] += 6
    paper, code = [], []
    for row, true in zip(y.tolist(), t, strict=True):
        others = sum(math.exp(scale * row[c]) for c in range(4) if c != true)
        paper.append(max(0.0, -scale * (row[true] - margin) + math.log(others)))
        s = [scale * (value - max(row)) for value in row]
        code.append(-s[true] + math.log(1 + sum(math.exp(s[c]) for c in range(4) if c != true)))
    assert 0.0 in paper  # the hinge is reached
    assert float(nca_loss(scale * y, torch.tensor(t), scale * margin)) == pytest.approx(np.mean(paper))
    for ignored in (0.0, margin):
        assert float(nca_loss(scale * y, torch.tensor(t), scale * ignored, "code")) == pytest.approx(np.mean(code))


# ---------------------------------------------------------------------------------------------------- distillation


def slow_pod(a, b):
    """Of one stage, pixel by pixel."""
    total = 0.0
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        vectors = []
        for maps in (x, y):
            vector = [sum(v**2 for v in row) for channel in maps for row in channel]
            vector += [sum(row[w] ** 2 for row in channel) for channel in maps for w in range(len(channel[0]))]
            length = math.sqrt(sum(v**2 for v in vector))
            vectors.append([v / length for v in vector])
        total += math.dist(*vectors)
    return total / len(a)


def test_pod_is_its_loop():
    a, b = [normal(3, 4, 6, 5), normal(3, 2, 3, 3, seed=1)], [normal(3, 4, 6, 5, seed=2), normal(3, 2, 3, 3, seed=3)]
    expected = np.mean([slow_pod(x, y) for x, y in zip(a, b, strict=True)])
    assert float(pod_spatial(a, b)) == pytest.approx(expected)
    assert 0 < expected <= math.sqrt(2)


def test_pod_sees_neither_sign_nor_size_but_place():
    a = [normal(3, 4, 6, 6), normal(3, 8, 3, 3, seed=1)]
    for other in (a, [-x for x in a], [2.5 * x for x in a]):
        assert float(pod_spatial(a, other)) == pytest.approx(0, abs=1e-7)
    assert float(pod_spatial(a, [x.roll(1, 3) for x in a])) > 0.01
    # squares are not negative: the vectors are at most a right angle apart
    assert float(pod_spatial([torch.eye(2)[None, :, :, None]], [torch.eye(2).flip(1)[None, :, :, None]])) <= math.sqrt(
        2
    )


def test_pod_has_no_gradient_where_networks_agree():
    x = normal(2, 3, 4, 4).requires_grad_()
    pod_spatial([x.detach()], [x]).backward()
    assert x.grad is not None
    assert not x.grad.any()
    f = normal(4, 3)
    values = [float(pod_flat(f, other)) for other in (f, 3 * f, -f)]
    assert values == pytest.approx([0, 0, 2], abs=1e-12)
    slow = np.mean([1 - float(p @ q / (p.norm() * q.norm())) for p, q in zip(f, normal(4, 3, seed=1), strict=True)])
    assert float(pod_flat(f, normal(4, 3, seed=1))) == pytest.approx(slow)


def test_adaptive_factor_counts_the_new_classes():
    assert adaptive_factor(65, 5) == pytest.approx(3.6056, abs=1e-4)
    assert adaptive_factor(200, 10) == pytest.approx(4.4721, abs=1e-4)


# ------------------------------------------------------------------------------------------------------ imprinting


def test_proxies_of_few_shots_are_the_shots_and_noisy_copies():
    f = normal(3, 8)
    proxies = imprinted_proxies(f, 10, norm=2.0, noise=0.01, seed=0)
    torch.testing.assert_close(proxies.norm(dim=1), torch.full((10,), 2.0).double())
    unit = normalize(f, dim=1)
    torch.testing.assert_close(proxies[:3] / 2, unit)
    gaps = (proxies[3:] / 2 - unit.repeat(3, 1)[:7]).norm(dim=1)
    assert (gaps > 0).all()
    assert (gaps < 0.05).all()
    assert len(proxies.unique(dim=0)) == 10
    assert torch.equal(proxies, imprinted_proxies(f, 10, norm=2.0, noise=0.01, seed=0))


def test_one_proxy_is_the_direction_of_the_mean():
    f = normal(5, 8)
    expected = normalize(normalize(f, dim=1).mean(0), dim=0)
    torch.testing.assert_close(imprinted_proxies(f, 1, norm=1.0, noise=0.1, seed=0)[0], expected)


def test_proxies_of_many_rows_are_their_cluster_centres():
    modes = torch.eye(4, 8).double()
    f = modes.repeat_interleave(20, 0) + 0.01 * normal(80, 8)
    proxies = imprinted_proxies(f, 4, norm=1.0, noise=0.01, seed=0)
    assert sorted((proxies @ modes.T).argmax(1).tolist()) == [0, 1, 2, 3]
    assert float((proxies @ modes.T).amax(1).min()) > 0.99


def test_margin_does_not_pull_the_scale_below_zero():
    """Where all scores are alike the paper's loss falls with η, at the rate δ; the gradient of η leaves δ out."""
    scale = torch.ones(1, requires_grad=True)
    scores = torch.full((4, 3), -2.0)
    cost = ProxyNCA().cost(scale * scores, torch.tensor([0, 1, 2, 0]), scale)
    cost.backward()
    assert float(cost.detach()) == pytest.approx(0.6 + math.log(2))
    assert scale.grad is not None
    assert float(scale.grad) == pytest.approx(0, abs=1e-6)


# -------------------------------------------------------------------------------------------------------- sessions


def features_of(model, rival, X) -> torch.Tensor:
    return unit(embed(model, rival.state_.inputs.source(X), np.arange(len(X)), torch.device("cpu")))


def test_rate_zero_with_one_proxy_is_the_imprinted_cosine_classifier():
    data, objective = digits(), ProxyNCA(proxies=1)
    trained = fitted("podnet tuned").state_
    layer = objective.layer(12, 6, 0, torch.float32)
    base = BaseNetwork(trained.model.network, layer, np.arange(6), trained.inputs, [])
    rival = rival_of("podnet tuned", proxies=1, session__learning_rate=0.0).fit(*data.base, base=base)
    for X, y in data.sessions:
        rival.add_classes(X, y)
    rows = [layer.weight.detach()[:, 0]]
    for X, y in data.sessions:
        x = features_of(trained.model, rival, X)
        rows.append(torch.stack([x[y == c].mean(0) for c in np.unique(y)]))
    cosines = features_of(trained.model, rival, data.X) @ normalize(torch.cat(rows), dim=1).T
    p = (2 * cosines - 2).softmax(1)
    np.testing.assert_allclose(rival.predict_proba(data.X), p, atol=1e-5)


def test_old_proxies_stay_until_fine_tuning_which_leaves_the_network():
    start: Any = fitted("podnet tuned").state_.model
    main: Any = taught("podnet tuned", 1, fine_tuning__learning_rate=0.0).state_.model
    tuned = taught("podnet tuned", 1).state_.model
    assert torch.equal(main.classifier.rows[0], start.classifier.rows[0])
    assert not torch.equal(main.classifier.rows[1], tuned.classifier.rows[1])
    assert not torch.equal(tuned.classifier.rows[0], start.classifier.rows[0])
    assert not torch.equal(main.network.embedding.weight, start.network.embedding.weight)
    for name, tensor in main.network.state_dict().items():
        assert torch.equal(tensor, tuned.network.state_dict()[name])


def lesson_of(rival, student: Model) -> Lesson:
    state, (X, y) = rival.state_, digits().sessions[0]
    pictures = torch.cat([state.memory.pictures, torch.from_numpy(X)[:, None]])
    codes = np.concatenate([state.memory.y, y])
    arrays = Arrays(pictures, mean=state.inputs.mean, std=state.inputs.std)
    return Lesson(student, state.model, arrays, codes, len(state.memory.y), 6, 1, 0, torch.device("cpu"), [])


def test_fine_tuning_has_equally_many_rows_of_every_class():
    rival = fitted("podnet tao")
    lesson = lesson_of(rival, rival.state_.model)
    counts = np.bincount(lesson.y[balanced_rows(lesson)])
    assert counts.tolist() == [5] * 8  # of the 20 kept of base classes the first five


@pytest.mark.parametrize("form", ["paper", "code"])
def test_first_loss_is_that_of_the_classifier(form):
    """Nothing has moved, and there is nothing to distil; memory and new rows count alike."""
    rival: Any = fitted("podnet tuned")
    still = {"session__learning_rate": 1e-9, "fine_tuning__learning_rate": 0.0}
    rival.set_params(settings=rival.settings.with_params(nca=form, **still), augment=())
    pictures = np.concatenate([rival.state_.memory.pictures[:, 0].numpy(), digits().sessions[0][0]])
    y = np.concatenate([rival.state_.memory.y, digits().sessions[0][1]])
    model = rival.add_classes(*digits().sessions[0]).state_.model
    logits = model.classifier(features_of(model, rival, pictures))
    expected = nca_loss(logits, torch.from_numpy(y), 0.6 * float(model.classifier.scale), form)
    assert rival.log_[0]["first_loss"] == pytest.approx(float(expected), rel=1e-4)


def test_frozen_stages_count_with_distance_zero():
    """The loss of the last block alone is that of all stages, and without distillation where nothing has moved."""
    rival: Any = fitted("podnet tuned")
    student: Any = taught("podnet tuned", 1).state_.model
    lesson = lesson_of(rival, student)
    (x,) = lesson.arrays.batches([Batch(np.arange(len(lesson.y)))], lesson.device)

    def loss(model: Model, trainable) -> float:
        old, new = (m.outputs(m.trunk(x, trainable), trainable, True) for m in (rival.state_.model, model))
        return float(rival._loss(Step(lesson.codes, lesson.codes, lesson.codes > 5, new, old), lesson))

    assert loss(student, "last-block") == pytest.approx(loss(student, "all"), rel=1e-5)
    features = student.network(x)
    old, new = rival.state_.model.network.stages(x), student.network.stages(x)
    spatial = np.mean([slow_pod(a, b) for a, b in zip(old.maps, new.maps, strict=True)])
    pod = 3 * spatial + float(pod_flat(old.features, new.features))
    nca = float(rival.settings.objective.cost(student.classifier(features), lesson.codes, student.classifier.scale))
    assert pod > 1e-3
    assert loss(student, "all") == pytest.approx(nca + math.sqrt(8 / 2) * pod, rel=1e-4)


def test_more_proxies_than_shots_and_gradients_that_are_cut():
    rival: Any = fitted("podnet tuned").add_classes(*(part[:7] for part in digits().sessions[0]))
    assert [tuple(rows.shape) for rows in rival.state_.model.classifier.rows] == [(6, 2, 12), (2, 2, 12)]
    assert rival.settings.session.clip == rival.settings.fine_tuning.clip == 5.0
    assert float(rival.state_.model.classifier.scale) > 0


def test_base_network_is_stored_with_its_objective(tmp_path):
    rival = rival_of("podnet tuned", proxies=3)
    base = rival.set_params(training=TRAINING.with_params(epochs=1, cross_entropy_epochs=1)).train_base(*digits().base)
    base.save(tmp_path / "base")
    again = BaseNetwork.load(tmp_path / "base", network())
    assert again.objective == ProxyNCA(proxies=3)
    assert torch.equal(again.layer.weight.cpu(), base.layer.weight.cpu())


def test_presets_and_wrong_settings():
    assert [PODNetSettings.tao(data).weights for data in ("mini-imagenet", "cifar100", "cub")] == [
        (8.0, 10.0),
        (3.0, 1.0),
        (8.0, 10.0),
    ]
    assert PODNetSettings.tao("cub").memory.quotas(2, 3).tolist() == [20, 20, 20]
    assert PODNetSettings.tao("cub").session.learning_rate == 1e-3  # at 0.01 a ResNet-18 is lost in two steps
    grid = PODNetSettings.tuned().candidates()
    assert len(grid) == 10
    assert grid[0].session.learning_rate == 0
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"weights": (1.0, -1.0)}, "two numbers"),
        ({"proxies": 0}, "proxies must be at least 1"),
        ({"nca": "other"}, "form is"),
        ({"freeze_old": False}, "leave freeze_old"),
        ({"new_rows": "random"}, "imprints its proxies"),
        ({"memory": BaseOnly(400)}, "fine-tuning needs pictures of every class"),
    ]
    for settings, message in wrong:
        with pytest.raises(ValueError, match=message):
            PODNetSettings(**settings)
    with pytest.raises(ValueError, match="features of both signs"):
        PODNet(network(embedding=None), PODNetSettings.tuned()).fit(*digits().base)
