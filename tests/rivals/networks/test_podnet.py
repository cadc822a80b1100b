"""PODNet: its classifier, its losses and its sessions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from gptree.rivals.networks.pod import (
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
