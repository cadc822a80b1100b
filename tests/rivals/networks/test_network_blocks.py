"""Herding, exemplar means, imprinting, distillation and classifiers against slow twins and identities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from gptree.rivals import BaseOnly, PerClass, SharedBudget
from gptree.rivals.networks.blocks import (
    class_means,
    cross_entropy,
    distillation,
    exemplar_means,
    herded,
    imprinted,
    mean_over,
    nearest_mean_scores,
)
from gptree.rivals.networks.classifiers import LearnedCosine, SessionClassifier, unit_rows


def rows(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def herded_slowly(features: Tensor, count: int) -> list[int]:
    taken: list[int] = []
    for k in range(1, count + 1):
        gaps = {
            i: float((features.mean(0) - (sum(features[j] for j in taken) + features[i]) / k).norm())
            for i in range(len(features))
            if i not in taken
        }
        taken.append(min(gaps, key=lambda i: gaps[i]))
    return taken


@pytest.mark.parametrize("seed", range(50))
def test_herding_is_the_brute_force_argmin_and_fewer_rows_are_the_first_of_more(seed: int) -> None:
    features = 3 * rows(12, 4, seed) + 0.7  # of any length: unit ones are compared
    found = herded(features, 6)
    assert found.tolist() == herded_slowly(normalize(features, dim=1), 6)
    assert len(set(found.tolist())) == 6
    np.testing.assert_array_equal(herded(features, 3), found[:3])
    assert sorted(herded(features, 99).tolist()) == list(range(12))


def test_means_of_all_rows_as_exemplars_are_nearest_class_means_with_mirror_averaging() -> None:
    features, mirrored, y = rows(20, 5), rows(20, 5, 1), torch.arange(20) % 3
    means = exemplar_means(features, mirrored, y, 3)
    for c in range(3):
        halves = [normalize(f[y == c], dim=1).mean(0) for f in (features, mirrored)]
        torch.testing.assert_close(means[c], normalize((halves[0] + halves[1]) / 2, dim=0))
    torch.testing.assert_close(exemplar_means(features, features, y, 3), exemplar_means(features, None, y, 3))
    queries = rows(7, 5, 2)
    slow = -torch.cdist(normalize(queries, dim=1), means).square()
    torch.testing.assert_close(nearest_mean_scores(queries, means), slow)


def test_class_means_of_absent_classes_are_zero() -> None:
    found = class_means(rows(4, 3), torch.tensor([0, 0, 2, 2]), 3)
    torch.testing.assert_close(found[0], rows(4, 3)[:2].mean(0))
    assert not found[1].any()


def test_imprinted_rows_have_the_direction_of_the_class_and_the_length_of_old_rows() -> None:
    features, y, old = rows(10, 4), torch.arange(10) % 2, 5 * rows(6, 4, 1)
    found = imprinted(features, y, 2, old)
    for c in range(2):
        mean = normalize(features[y == c], dim=1).mean(0)
        torch.testing.assert_close(normalize(found[c], dim=0), normalize(mean, dim=0))
    torch.testing.assert_close(found.norm(dim=1), old.norm(dim=1).mean().expand(2))


# ------------------------------------------------------------------------------------------------------- distillation


def test_distillation_is_the_double_loop() -> None:
    new, old = rows(4, 5), rows(4, 5, 1)
    slow = 0.0
    for i in range(4):
        p, q = (z[i] / 2 - torch.logsumexp(z[i] / 2, 0) for z in (old, new))
        slow -= sum(math.exp(p[c]) * float(q[c]) for c in range(5)) / 4
    assert float(distillation(new, old, 2.0)) == pytest.approx(slow, abs=1e-12)
    some = torch.tensor([True, False, True, False])
    torch.testing.assert_close(distillation(new, old, 2.0, some), distillation(new[some], old[some], 2.0))


def test_distillation_of_equal_logits_is_their_entropy_and_has_no_gradient() -> None:
    old = rows(4, 5)
    new = old.clone().requires_grad_()
    loss = distillation(new, old, 2.0)
    loss.backward()
    assert new.grad is not None
    assert float(new.grad.abs().max()) < 1e-12
    p = (old / 2).softmax(1)
    torch.testing.assert_close(loss.detach(), -(p * p.log()).sum(1).mean())


def test_a_power_of_probabilities_is_a_temperature() -> None:
    z = rows(6, 9)
    powers = z.softmax(1).sqrt()
    torch.testing.assert_close(powers / powers.sum(1, keepdim=True), (z / 2).softmax(1))


def test_a_high_temperature_matches_centred_logits() -> None:
    """T² C times the gradient tends to (z − mean z) − (z_old − mean z_old), over the rows."""
    old, T = rows(3, 5, 1), 1e4
    new = rows(3, 5).requires_grad_()
    distillation(new, old, T).backward()
    assert new.grad is not None
    centred = [z - z.mean(1, keepdim=True) for z in (new.detach(), old)]
    torch.testing.assert_close(3 * 5 * T**2 * new.grad, centred[0] - centred[1], rtol=1e-3, atol=1e-3)


def test_means_over_some_rows() -> None:
    values, some = rows(5, 1)[:, 0], torch.tensor([True, False, True, True, False])
    torch.testing.assert_close(mean_over(values, some), values[some].mean())
    assert float(mean_over(values, torch.zeros(5, dtype=torch.bool))) == 0
    logits, y = rows(5, 3), torch.arange(5) % 3
    expected = torch.nn.functional.cross_entropy(logits[some], y[some])
    torch.testing.assert_close(cross_entropy(logits, y, some), expected)


# -------------------------------------------------------------------------------------------------------- classifiers


def test_classifiers_are_those_of_their_objectives_and_grow_at_the_end() -> None:
    features = rows(4, 6)
    layer = LearnedCosine().layer(6, 3, 0, torch.float64)
    layer.scale.data.fill_(3.0)
    for classifier in (SessionClassifier([layer.weight], layer.scale), SessionClassifier([unit_rows(layer)])):
        torch.testing.assert_close(classifier(features), layer.scores(features))
        before = classifier(features)
        classifier.grow(rows(2, 6, 1))
        assert classifier.sizes == [3, 2]
        torch.testing.assert_close(classifier(features)[:, :3], before)


def test_scores_are_cosines_times_the_scale_or_products_with_unit_features() -> None:
    features, weights = rows(4, 6), [rows(3, 6, 1), rows(2, 6, 2)]
    linear, cosine = SessionClassifier(weights), SessionClassifier(weights, torch.tensor([7.0], dtype=torch.float64))
    linear.requires_grad_(False), cosine.requires_grad_(False)
    for i in range(4):
        for c, w in enumerate(torch.cat(weights)):
            product = float(features[i] @ w / features[i].norm())
            assert float(linear(features)[i, c]) == pytest.approx(product)
            assert float(cosine(features)[i, c]) == pytest.approx(7 * product / float(w.norm()))


def test_half_precision_is_left_before_anything_is_divided() -> None:
    features = rows(4, 6).bfloat16()
    assert SessionClassifier([rows(3, 6).float()])(features).dtype == torch.float32
    assert distillation(features, features, 2.0).dtype == torch.float32


# ------------------------------------------------------------------------------------------------------------ budgets


def test_budgets() -> None:
    assert PerClass(5, 3).quotas(2, 4).tolist() == [5, 5, 3, 3]
    assert SharedBudget(20).quotas(2, 3).tolist() == [6, 6, 6]
    assert BaseOnly(400).quotas(60, 65).sum() == 400
    assert BaseOnly(5).quotas(3, 4).tolist() == [2, 2, 1, 0]
    with pytest.raises(ValueError, match="at least 1"):
        BaseOnly(0)
