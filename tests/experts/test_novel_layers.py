"""Sums over novel classes at nodes of log τ, and the τ chosen from them, against all scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from expert_twins import believed_temperature

from gptree.experts.calibration import best_temperature
from gptree.experts.novel_layers import REACH, best_between, chosen_between, interpolated, sums_at, temperatures
from gptree.experts.wrong_labels import with_beliefs

CENTRE = 0.3


def scores(classes: int, spread: float) -> torch.Tensor:
    z = torch.randn(40, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return spread * z - 100


@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0, 300.0])
@pytest.mark.parametrize("t", [-REACH, -0.31, 0.0, 0.123, REACH])
def test_sums_between_the_nodes(spread: float, t: float) -> None:
    z, tau = scores(30, spread), math.exp(CENTRE + t)
    expected = [math.log(sum(math.exp(tau * (float(v) + 100)) for v in row)) - 100 * tau for row in z / max(1, spread)]
    z = z / max(1, spread)
    found = interpolated(sums_at(z, temperatures(CENTRE)), CENTRE, tau)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("spread", [3.0, 30.0, 300.0])
def test_wide_scores_between_the_nodes(spread: float) -> None:
    z, tau = scores(30, spread), math.exp(CENTRE + 0.2)
    found = interpolated(sums_at(z, temperatures(CENTRE)), CENTRE, tau)
    np.testing.assert_allclose(found.numpy(), (tau * z).logsumexp(1).numpy(), rtol=0, atol=3e-6)


def test_the_temperature_is_that_of_all_scores() -> None:
    z = scores(12, 1.0)
    labels = (2 * z + torch.randn(z.shape, generator=torch.Generator().manual_seed(1)).mul(2)).argmax(1)
    weights = torch.linspace(0.5, 2, len(z), dtype=torch.float64)
    expected, _ = best_temperature(z, labels, 1.0, weights)
    own = float(weights @ z.gather(1, labels[:, None])[:, 0] / weights.sum())
    for centre in math.log(expected) + np.array([-0.4, 0.0, 0.4]):
        sums = weights @ sums_at(z, temperatures(centre)) / weights.sum()
        found = best_between(sums.tolist(), own, float(weights.sum()), centre)
        assert found == pytest.approx(expected, rel=1e-6)
    for centre in math.log(expected) + np.array([-0.6, 0.6]):
        sums = weights @ sums_at(z, temperatures(centre)) / weights.sum()
        assert best_between(sums.tolist(), own, float(weights.sum()), centre) is None


def test_where_no_label_is_believed_the_temperature_is_that_of_trusted_labels() -> None:
    z, counts = scores(6, 1.0) + 100, torch.ones(40, dtype=torch.float64)
    sums, is_novel = sums_at(z, temperatures(CENTRE)), torch.zeros(40, dtype=torch.float64)
    labels = torch.multinomial((1.5 * z).softmax(1), 1, generator=torch.Generator().manual_seed(0))

    def choose(best: Any, own: Any, counts: torch.Tensor) -> torch.Tensor:
        return with_beliefs(best, own, 9, counts)[0]

    found = chosen_between(choose, sums, z.gather(1, labels)[:, 0], is_novel, CENTRE, counts)
    assert found == pytest.approx(best_temperature(z, labels[:, 0], 1.0)[0], rel=1e-4)


def test_with_wrong_labels_the_temperature_is_that_of_rows_counted_by_belief() -> None:
    random = torch.Generator().manual_seed(0)
    z = 2 * torch.randn(300, 6, generator=random, dtype=torch.float64)
    labels = torch.multinomial((3 * z).softmax(1), 1, generator=random)[:, 0]
    labels[::25] = (labels[::25] + 1) % 6
    logs, counts = z.log_softmax(1), torch.ones(300, dtype=torch.float64)
    is_novel = torch.linspace(0.5, 1.0, 300, dtype=torch.float64)
    trusting = best_temperature(logs, labels, 1.0)[0]
    believing = believed_temperature(logs, labels, is_novel.tolist(), 9)
    assert believing > 1.5 * trusting
    assert believing != pytest.approx(believed_temperature(logs, labels, [1.0] * 300, 9), rel=1e-3)
    own = logs.gather(1, labels[:, None])[:, 0]

    def choose(best: Any, own: Any, counts: torch.Tensor) -> torch.Tensor:
        return with_beliefs(best, own, 9, counts)[0]

    for centre, expected in (
        ((math.log(believing) + math.log(trusting)) / 2, pytest.approx(believing, rel=1e-4)),
        (math.log(believing) + 0.05, None),  # without the other one
        (math.log(trusting) - 0.05, None),
    ):
        sums = sums_at(logs, temperatures(centre))
        assert chosen_between(choose, sums, own, is_novel, centre, counts) == expected
