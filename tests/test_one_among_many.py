"""One bad number among good ones is enough for an error, and a sum that overflows is none."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from gptree.experts import Examples, PriorScores, best_temperature, check_features
from gptree.inference.grams import finite
from gptree.maths.linalg import cholesky, covariance_root
from gptree.maths.polya_gamma import sample_pg
from gptree.model.prior_means import training_log_odds
from gptree.tree import ClassTree, build_tree

BAD = [math.nan, math.inf, -math.inf]
HUGE = torch.full((2, 2), 1e308, dtype=torch.float64)


@pytest.mark.parametrize("bad", BAD)
def test_one_number_that_is_not_finite(bad: float) -> None:
    some = torch.ones(3, 2, dtype=torch.float64)
    some[1, 1] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        check_features(some)
    with pytest.raises(ValueError, match="not finite"):
        finite(some)
    with pytest.raises(ValueError, match="c must be finite"):
        sample_pg(some, generator=torch.Generator())
    with pytest.raises(ValueError, match="b must be finite"):
        sample_pg(torch.ones(3, 2), some, generator=torch.Generator())
    with pytest.raises(ValueError, match="hold NaN or infinity"):
        build_tree("ward", some.numpy(), ["a", "b", "c"], 0)
    examples = Examples.of(torch.ones(4, 3, dtype=torch.float64), torch.tensor([0, 0, 1, 1]))
    scores = torch.zeros(4, 2, dtype=torch.float64)
    scores[1, 1] = bad
    with pytest.raises(ValueError, match="prior scores must be finite"):
        PriorScores(lambda x: scores).fit(examples)
    tree = ClassTree.from_nested(["a", "b"], ["a", "b"])
    with pytest.raises(ValueError, match="prior mean that is not finite"):
        training_log_odds(tree, scores, [0], [np.arange(4)])


def test_a_sum_may_overflow() -> None:
    check_features(HUGE)
    assert finite(HUGE) is HUGE


def test_one_negative_shape() -> None:
    with pytest.raises(ValueError, match="b must be finite and at least 0"):
        sample_pg(torch.ones(3), torch.tensor([0.0, 1.0, -1e-9]), generator=torch.Generator())


@pytest.mark.parametrize("shape", [(3, 2), (4, 3), (4,), (4, 1)])
def test_scores_of_another_shape(shape: tuple[int, ...]) -> None:
    examples = Examples.of(torch.ones(4, 3, dtype=torch.float64), torch.tensor([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="prior scores must be finite and of shape"):
        PriorScores(lambda x: torch.zeros(shape)).fit(examples)


@pytest.mark.parametrize(
    "X", [torch.ones(3), torch.ones(2, 3).long(), torch.ones(0, 3), torch.ones(3, 0), np.ones((2, 2))]
)
def test_features_of_another_kind(X: Tensor) -> None:
    with pytest.raises(ValueError, match="must be a float32 or float64 tensor of shape"):
        check_features(X)


def test_features_of_another_width() -> None:
    check_features(torch.ones(2, 3), 3)
    check_features(torch.ones(0, 3), 3)
    for d in (2, 4):
        with pytest.raises(ValueError, match=rf"of shape \(n, {d}\)"):
            check_features(torch.ones(2, 3), d)


def test_one_matrix_that_cannot_be_factorised() -> None:
    matrices = torch.eye(2, dtype=torch.float64).repeat(3, 1, 1)
    matrices[1] *= -1
    with pytest.raises(ValueError, match="could not be factorised: the kernel matrix"):
        cholesky(matrices)
    with pytest.raises(ValueError, match="even with jitter"):
        covariance_root(matrices)


def grid_temperature(scores: Tensor, labels: Tensor, centre: float) -> float:
    """Of a grid of temperatures within e^±4 of the centre, then of a finer one, that of least mean NLL and prior."""
    t = torch.linspace(-4, 4, 1_001, dtype=torch.float64)
    gap = scores - scores.gather(1, labels[:, None])
    for _ in range(2):
        tau = centre * t.exp()
        cost = (tau[:, None, None] * gap).logsumexp(2).mean(1) + t.square() / (2 * len(labels))
        best = float(t[cost.argmin()])
        t = torch.linspace(best - 0.01, best + 0.01, 1_001, dtype=torch.float64).clamp(-4, 4)
    return centre * math.exp(best)


@pytest.mark.parametrize("seed", range(12))
def test_temperatures_far_from_where_the_search_begins(seed: int) -> None:
    """Newton steps leave the bracket there, and halves of it take their place."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (25,), generator=random)
    signal = torch.nn.functional.one_hot(labels, 3).double() * (seed % 4)
    scores = signal + torch.randn(25, 3, generator=random, dtype=torch.float64)
    for scale, centre in ((1e-2, 30.0), (30.0, 2.0), (1.0, 5.0), (300.0, 0.5)):
        found, nll = best_temperature(scale * scores, labels, centre)
        assert found == pytest.approx(grid_temperature(scale * scores, labels, centre), rel=1e-3)
        t = math.log(found / centre)
        cost = torch.nn.functional.cross_entropy(found * scale * scores, labels)
        assert nll == pytest.approx(float(cost) + t * t / 50, rel=1e-9)
