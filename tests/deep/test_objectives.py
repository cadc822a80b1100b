"""Objectives against plain loops over pictures."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from gptree.deep import CosineMargin, CrossEntropy, Objective, Training

CLASSES = 3
OBJECTIVES = [
    CrossEntropy(),
    CrossEntropy(label_smoothing=0.2, mixup=0.5),
    CrossEntropy(rotations=True),
    CosineMargin(scale=7.0, margin=0.3, rotations=True, mixup=0.5),
]


def pictures(rows: int = 6, size: int = 4) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 2, size, size, generator=random, dtype=torch.float64)
    return x, torch.randint(CLASSES, (rows,), generator=random)


def share_of(objective: Objective, seed: int) -> float:
    """λ, read off the pictures of 1 and 0."""
    x = torch.tensor([1.0, 0.0], dtype=torch.float64).reshape(2, 1, 1, 1)
    return float(objective.pictures(x, seed)[0, 0, 0, 0])


def slow_loss(objective: Objective, weight: Tensor, bias: Tensor | None, e: Tensor, y: Tensor, seed: int) -> float:
    """One picture, one target and one class after another."""
    turns, lam, total = (4 if objective.rotations else 1), share_of(objective, seed), 0.0
    for row, embedding in enumerate(e.tolist()):
        picture, turn = divmod(row, turns)
        partner = picture + 1 if picture % 2 == 0 else picture - 1
        for share, source in ((lam, picture), (1 - lam, partner)) if objective.mixup else ((1.0, picture),):
            target = int(y[source]) + turn * CLASSES
            scores = []
            for c, w in enumerate(weight.tolist()):
                dot = sum(a * b for a, b in zip(embedding, w, strict=True))
                if isinstance(objective, CosineMargin):
                    cosine = dot / math.hypot(*embedding) / math.hypot(*w)
                    scores.append(objective.scale * (cosine - objective.margin * (c == target)))
                else:
                    assert bias is not None
                    scores.append(dot + float(bias[c]))
            log_sum = math.log(sum(math.exp(s) for s in scores))
            smooth = getattr(objective, "label_smoothing", 0.0)
            wanted = [(1 - smooth) * (c == target) + smooth / len(scores) for c in range(len(scores))]
            total += share * sum(p * (log_sum - s) for p, s in zip(wanted, scores, strict=True))
    return total / len(e)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_loss_equals_a_loop(objective: Objective) -> None:
    x, y = pictures()
    shown = objective.pictures(x, seed=5)
    layer = objective.layer(2, CLASSES, seed=1, dtype=torch.float64)
    if layer.bias is not None:
        torch.nn.init.normal_(layer.bias, generator=torch.Generator().manual_seed(2))
    e = shown.mean((2, 3)) + shown[:, :, 0, 0]
    bias = None if layer.bias is None else layer.bias.detach()
    expected = slow_loss(objective, layer.weight.detach(), bias, e, y, seed=5)
    assert float(layer.loss(e, y, seed=5).detach()) == pytest.approx(expected, rel=1e-12)


def test_rotations_of_a_picture_stand_side_by_side() -> None:
    x, _ = pictures()
    shown = CrossEntropy(rotations=True).pictures(x, seed=0)
    for row, picture in enumerate(x.numpy()):
        for turn in range(4):
            assert np.array_equal(shown[4 * row + turn].numpy(), np.rot90(picture, turn, axes=(1, 2)))


def test_neighbours_are_mixed() -> None:
    x, _ = pictures()
    objective = CrossEntropy(mixup=0.5)
    lam, shown = share_of(objective, 5), objective.pictures(x, seed=5)
    assert 0 < lam < 1
    torch.testing.assert_close(shown[2], lam * x[2] + (1 - lam) * x[3])
    torch.testing.assert_close(shown[3], lam * x[3] + (1 - lam) * x[2])
    assert share_of(objective, 5) == lam
    assert share_of(objective, 6) != lam


def test_parts_of_a_batch_are_changed_as_the_whole() -> None:
    x, _ = pictures(8)
    for objective in OBJECTIVES:
        parts = torch.cat([objective.pictures(part, seed=9) for part in x.split(4)])
        assert torch.equal(parts, objective.pictures(x, seed=9))


def test_mixing_shares_follow_the_beta_distribution() -> None:
    """Mean ½ and variance 1 / (4 (2 α + 1)); 4000 draws: the bounds are 4.5 standard errors, one failure in 10⁵."""
    found = np.array([share_of(CrossEntropy(mixup=0.5), seed) for seed in range(4000)])
    assert abs(found.mean() - 0.5) < 4.5 * math.sqrt(0.125 / 4000)
    assert abs(found.var() - 0.125) < 4.5 * math.sqrt(np.var((found - 0.5) ** 2) / 4000)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_probabilities_are_of_upright_classes(objective: Objective) -> None:
    layer = objective.layer(5, CLASSES, seed=1, dtype=torch.float64)
    e = torch.randn(7, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    log_p = layer.log_probabilities(e)
    assert log_p.shape == (7, CLASSES)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(7, dtype=torch.float64))
    logits = objective.logits(layer, e)[:, :CLASSES]
    torch.testing.assert_close(log_p - log_p[:, :1], (logits - logits[:, :1]).detach())


def test_the_layer_depends_on_its_seed_alone() -> None:
    before = torch.get_rng_state()
    one, same, other = (CrossEntropy().layer(4, 3, seed, torch.float32) for seed in (1, 1, 2))
    assert torch.equal(one.weight, same.weight)
    assert not torch.equal(one.weight, other.weight)
    assert torch.equal(before, torch.get_rng_state())


def test_bad_settings_and_inputs() -> None:
    for bad in (
        lambda: CrossEntropy(mixup=-1),
        lambda: CrossEntropy(label_smoothing=1.0),
        lambda: CosineMargin(scale=0),
        lambda: CosineMargin(margin=-0.1),
    ):
        with pytest.raises(ValueError):
            bad()
    with pytest.raises(ValueError, match="square"):
        CrossEntropy(rotations=True).check_inputs((3, 8, 9), 4)
    with pytest.raises(ValueError, match="square"):
        CrossEntropy(rotations=True).check_inputs((64,), 4)
    with pytest.raises(ValueError, match="pairs"):
        CrossEntropy(mixup=0.2).check_inputs((3, 8, 8), 5)


def test_objectives_are_found_by_name() -> None:
    assert {"cosine-margin", "cross-entropy"} <= set(Objective.names())
    assert Training(objective="cosine-margin").objective == CosineMargin()  # pyright: ignore[reportArgumentType]
    assert Training().with_params(objective__label_smoothing=0.1).objective == CrossEntropy(label_smoothing=0.1)
