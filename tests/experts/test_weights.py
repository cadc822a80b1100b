"""An example of weight k is k equal examples that are left out together: every expert, temperature and pool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from expert_twins import blobs, density_scores, kernel_ridge_scores, lda_scores, ridge_scores
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from gptree.experts import (
    ALONE,
    LDA,
    Examples,
    FittedLDA,
    KernelDensity,
    KernelRidge,
    Pool,
    PriorScores,
    Ridge,
    SklearnExpert,
    best_temperature,
    temperature_centre,
)
from gptree.experts.calibration import balanced
from gptree.experts.pool import pool_weights

EXACT = {"rtol": 0, "atol": 1e-9}


def weighted(d: int = 6, seed: int = 0, folds: str = "shots") -> Examples:
    X, y = blobs([4, 2, 6, 3], d, seed=seed)
    weights = torch.randint(1, 4, (len(y),), generator=torch.Generator().manual_seed(seed)).double()
    alone = torch.full_like(y, ALONE) if folds == "alone" else None
    return Examples.of(X, y, folds=alone, weights=weights)


def repeated(examples: Examples) -> tuple[Examples, torch.Tensor]:
    """The same with every row as often as it counts, copies in one fold; and where the first copy of each row is."""
    times = examples.weights.long()
    own = int(examples.folds.max()) + 1 + torch.arange(len(examples))
    folds = torch.where(examples.folds == ALONE, own, examples.folds).repeat_interleave(times)
    X, y = (values.repeat_interleave(times, dim=0) for values in (examples.X, examples.y))
    return Examples.of(X, y, folds=folds), times.cumsum(0) - times


@pytest.mark.parametrize("folds", ["shots", "alone"])
@pytest.mark.parametrize(
    ("expert", "twin"),
    [
        (LDA((0.2,), 0.5), lambda examples: lda_scores(examples, 0.2, 0.5)),
        (KernelRidge((0.3,)), lambda examples: kernel_ridge_scores(examples, 0.3)),
        (Ridge((1.0,)), lambda examples: ridge_scores(examples, 1.0)),
        (KernelDensity((15.0,)), lambda examples: density_scores(examples, 15.0)),
    ],
    ids=["lda", "kernel ridge", "ridge", "density"],
)
def test_left_out_scores_and_temperature_are_those_of_repeated_rows(expert, twin, folds):
    examples = weighted(folds=folds)
    copies, first = repeated(examples)
    scores = twin(copies)
    spread = 1.3 if isinstance(expert, Ridge | KernelRidge) else 2.0
    tau, _ = best_temperature(
        scores, copies.y, temperature_centre(scores, spread), balanced(torch.ones_like(scores[:, 0]), copies.y)
    )
    fit = expert.fit(examples)
    fitted: Any = fit.expert
    assert fitted.temperature == pytest.approx(tau, rel=1e-9)
    torch.testing.assert_close(fit.left_out, (tau * scores[first]).log_softmax(1), **EXACT)


@pytest.mark.parametrize(
    "expert",
    [KernelRidge(), Ridge((0.1, 1.0)), KernelDensity(), PriorScores(lambda X: X)],
    ids=["kernel ridge", "ridge", "density", "scores"],
)
def test_new_points_are_scored_as_after_repeated_rows(expert):
    examples, (new, _) = weighted(d=4), blobs([5, 5], 4, seed=3)
    copies, first = repeated(examples)
    one, other = expert.fit(examples), expert.fit(copies)
    torch.testing.assert_close(one.expert.log_probabilities(new), other.expert.log_probabilities(new), **EXACT)
    torch.testing.assert_close(one.left_out, other.left_out[first], **EXACT)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([3, 6, 30]))
def test_moments_of_repeated_rows(seed, d):
    examples = weighted(d=d, seed=seed)
    copies, _ = repeated(examples)
    one, other = FittedLDA.of(examples), FittedLDA.of(copies)
    assert one.freedom == other.freedom
    new = blobs([4, 4], d, seed=seed + 1)[0]
    for found, expected in ((one.distances(new), other.distances(new)), (one.counts, other.counts)):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)


def test_growing_takes_weights():
    examples, (X, y) = weighted(), blobs([2, 3], 6, seed=9)
    y, times = y + 3, torch.tensor([1, 3, 2, 1, 2])
    many = X.repeat_interleave(times, dim=0), y.repeat_interleave(times)
    for expert in (LDA((0.2,)), KernelDensity((15.0,)), Pool((LDA((0.2,)), KernelDensity()))):
        fitted = expert.fit(examples).expert
        once, often = fitted.grown(X, y, 5, times.double()), fitted.grown(*many, 5)
        torch.testing.assert_close(once.log_probabilities(X), often.log_probabilities(X), **EXACT)


def test_pool_and_temperatures_count_rows_by_their_weights():
    generator = torch.Generator().manual_seed(1)
    logs = torch.randn(3, 20, 4, generator=generator, dtype=torch.float64).log_softmax(2)
    labels, times = torch.randint(4, (20,), generator=generator), torch.randint(1, 5, (20,), generator=generator)
    one = pool_weights(logs, labels, counts=times.double())
    many = pool_weights(logs.repeat_interleave(times, dim=1), labels.repeat_interleave(times))
    torch.testing.assert_close(one, many, **EXACT)


def test_weights_only_matter_as_ratios_to_what_they_should():
    """Weights below one: the covariance keeps its size, and no class gets ahead by weighing little."""
    X, y = blobs([30, 30, 30], 5, seed=2)
    small, plain = Examples.of(X, y, weights=torch.full((90,), 0.01).double()), Examples.of(X, y)
    one, other = FittedLDA.of(small), FittedLDA.of(plain)
    torch.testing.assert_close(one.distances(X), other.distances(X), rtol=1e-6, atol=1e-6)
    light = Examples.of(X, y, weights=torch.where(y == 0, 1e-3, 1.0).double())
    wins = LDA().fit(light).expert.log_probabilities(X).argmax(1)
    assert float((wins == 0).double().mean()) < 0.45


def test_a_classifier_with_weights_is_given_them():
    examples = weighted(d=4)
    copies, _ = repeated(examples)
    fitted: list[Any] = [SklearnExpert(LogisticRegression()).fit(each).expert for each in (examples, copies)]
    found, expected = (each.scores(copies.X) for each in fitted)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-2)  # a solver with a tolerance


def test_a_classifier_without_weights_sees_repeated_rows():
    examples = weighted(d=4)
    expert = SklearnExpert(KNeighborsClassifier(3))
    fitted: Any = expert.fit(examples).expert
    copies, _ = repeated(examples)
    neighbours = KNeighborsClassifier(3).fit(copies.X.numpy(), copies.y.numpy())
    found = fitted.estimator.predict_proba(examples.X.numpy())
    assert (found == neighbours.predict_proba(examples.X.numpy())).all()
    with pytest.raises(ValueError, match="takes no sample_weight, and the weights are no whole numbers"):
        expert.fit(replace(examples, weights=examples.weights + 0.5))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(3), "15 numbers, one per row"),
        (torch.zeros(15), "positive and finite"),
        (torch.full((15,), torch.nan), "positive and finite"),
    ],
)
def test_bad_weights(weights, message):
    examples = weighted()
    with pytest.raises(ValueError, match=message):
        Examples.of(examples.X, examples.y, weights=weights)
