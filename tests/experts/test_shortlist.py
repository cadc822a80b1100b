"""A pool whose densities score a shortlist: against the pool that scores everything, and against loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from expert_twins import blobs, density_scores

from gptree.experts import (
    ALONE,
    LDA,
    Examples,
    FittedKernelDensity,
    FittedPool,
    FittedShortlist,
    KernelDensity,
    LeftOutScores,
    Pool,
    density,
    lda,
    pool,
    scorers,
    shortlist,
)
from gptree.experts.scorers import GROUP, ClassPoints, best_classes, with_tail
from gptree.experts.shortlist import left_out_masses, tail_slope

COUNTS = {"equal": [4] * 12, "unequal": [1, 1, 2, 3, 9, 30, *[4] * 6]}
POOL = Pool((LDA(), KernelDensity()), eases=False)  # as a shortlist is


def examples_of(counts: str, weighted: bool = False) -> Examples:
    X, y = blobs(COUNTS[counts], 6, seed=3)
    weights = torch.arange(len(y)) % 3 + 0.5 if weighted else None
    return Examples.of(X, y, weights=None if weights is None else weights.double())


def fit(
    examples: Examples, monkeypatch: pytest.MonkeyPatch, size: int, experts: Pool = POOL
) -> tuple[FittedShortlist, torch.Tensor]:
    for module in (lda, density):
        monkeypatch.setattr(module, "MANY_CLASSES", 5)
    found = replace(experts, shortlist=size).fit(examples)
    assert isinstance(found.expert, FittedShortlist)
    return found.expert, found.left_out


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("counts", COUNTS)
def test_a_shortlist_of_all_classes_is_the_whole_pool(
    counts: str, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = examples_of(counts, weighted)
    whole = POOL.fit(examples)
    assert type(whole.expert) is FittedPool
    fitted, left_out = fit(examples, monkeypatch, size=12)
    torch.testing.assert_close(fitted.weights, whole.expert.weights, rtol=0, atol=1e-3)
    known = examples.usable  # of a class without its only example a shortlist knows another average
    torch.testing.assert_close(left_out.double().exp()[known], whole.left_out.exp()[known], rtol=0, atol=1e-4)
    X_new = blobs([2] * 12, 6, seed=8)[0]
    found, expected = fitted.log_probabilities(X_new), whole.expert.log_probabilities(X_new)
    torch.testing.assert_close(found.exp(), expected.exp(), rtol=0, atol=1e-4)


def test_a_shortlist_is_for_many_classes_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = examples_of("equal")
    whole = POOL.fit(examples)
    for module in (lda, density, pool, shortlist):
        monkeypatch.setattr(module, "MANY_CLASSES", 5)
    single = POOL.fit(examples)
    assert type(single.expert) is FittedPool
    assert single.expert.weights.dtype == examples.X.dtype
    torch.testing.assert_close(single.left_out.double().exp(), whole.left_out.exp(), rtol=0, atol=1e-4)
    monkeypatch.setattr(shortlist, "MANY_ROWS", len(examples) - 1)
    found = POOL.fit(examples).expert
    assert isinstance(found, FittedShortlist)
    assert found.size == shortlist.SHORTLIST
    assert type(Pool((KernelDensity(), LDA())).fit(examples).expert) is FittedPool


def test_shortlists_that_are_none() -> None:
    with pytest.raises(ValueError, match="shortlist must be at least 1"):
        Pool(shortlist=0)


def test_scores_on_a_shortlist_are_those_of_the_density(monkeypatch: pytest.MonkeyPatch) -> None:
    """And left-out scores are computed again from the fitted expert."""
    examples = examples_of("unequal")
    fitted, left_out = fit(examples, monkeypatch, size=4)
    again = LeftOutScores(fitted, examples.X, examples.y, 12).dense()
    torch.testing.assert_close(again.double(), left_out.double(), rtol=0, atol=1e-5)
    density = fitted.experts[1]
    assert isinstance(density, FittedKernelDensity)
    rows, classes = torch.arange(len(examples)), torch.arange(12).expand(len(examples), -1)
    found = fitted.densities_at(examples)(rows, classes)[0] / density.temperature
    expected = density_scores(examples, density.sharpness)
    several = examples.sizes > 1
    torch.testing.assert_close(found[:, several].double(), expected[:, several], rtol=0, atol=1e-4)


@pytest.mark.parametrize("size", [4, 12])
def test_densities_of_exemplars_on_a_shortlist(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the pool that scores everything where all classes are on it, and known again at the exemplars of the fit."""
    X, y = blobs(COUNTS["unequal"], 6, seed=3)
    examples = Examples.of(X, y, folds=torch.full_like(y, ALONE))
    rows = torch.cat([(y == c).nonzero()[:, 0][:3] for c in range(12)])
    weights = 0.5 + torch.arange(len(rows)) % 3
    exemplars = POOL.on_exemplars(rows, weights.double())
    whole = exemplars.fit(examples)
    pool, left_out = fit(examples, monkeypatch, size, exemplars)
    if size == 12:
        known = examples.usable
        torch.testing.assert_close(left_out.double().exp()[known], whole.left_out.exp()[known], rtol=0, atol=1e-4)
    kept = Examples.of(X[rows], y[rows], folds=torch.full_like(rows, ALONE))
    at = pool.at_exemplars(replace(kept, sizes=examples.sizes))
    assert at is not None
    again = at(torch.arange(len(rows))).log_softmax(1)
    torch.testing.assert_close(again.double(), left_out[rows].double(), rtol=0, atol=1e-4)
    assert pool.at_exemplars(replace(kept, X=kept.X.flip(0))) is None


def test_the_tail_follows_the_first_expert() -> None:
    guide = torch.tensor([[5.0, 1.0, 3.0, 0.0, 4.0]], dtype=torch.float64)
    order, found = torch.tensor([[0, 4, 2, 1]]), torch.tensor([[9.0, 1.0, -torch.inf, 2.0]], dtype=torch.float64)
    total = with_tail(guide.clone(), order, [found], [0.5, 2.0], [0.0, 0.25])
    level = 2.0 - 0.25 * 1.0  # of the worse half, the third and the fourth, only the fourth is known
    density = [9.0, 2.0, 0.25 * 3.0 + level, 0.25 * 0.0 + level, 1.0]
    expected = [0.5 * g + 2.0 * h for g, h in zip(guide[0].tolist(), density, strict=True)]
    torch.testing.assert_close(total[0], torch.tensor(expected, dtype=torch.float64))


def test_the_slope_of_the_tail() -> None:
    guide = torch.randn(3, 500, generator=torch.Generator().manual_seed(0))
    other = 0.7 * guide + torch.tensor([[1.0], [2.0], [3.0]])
    other.scatter_(1, guide.topk(100).indices, 50.0)  # what the shortlist says does not count
    assert tail_slope(guide, other, 100) == pytest.approx(0.7, abs=1e-5)
    assert tail_slope(guide, -other, 100) == 0.0
    assert tail_slope(guide[:, :50], other[:, :50], 100) == 0.0  # no tail


def test_left_out_masses_of_some_classes() -> None:
    examples = examples_of("unequal", weighted=True)
    rows, classes = torch.arange(len(examples)), torch.arange(12).expand(len(examples), -1)
    left = examples.left_out_counts(rows)
    torch.testing.assert_close(left_out_masses(examples, rows, classes), torch.where(left > 1e-9, left, 1))


def test_many_degrees_of_freedom_spare_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """δᵀAr is rᵀAr for all classes but the own, whose score is exact."""
    examples = examples_of("equal")
    exact = LDA((0.3,)).fit(examples)
    for module in (lda, density):
        monkeypatch.setattr(module, "MANY_CLASSES", 5)
    scorer = lda._Scorer(LDA((0.3,)), examples)
    assert scorer.means.dtype == torch.float32
    rows = torch.arange(len(examples))
    slow = scorer.scores((0.3,), rows)[0]
    torch.testing.assert_close(
        (exact.expert.temperature * slow).log_softmax(1).double(),  # pyright: ignore[reportAttributeAccessIssue]
        exact.left_out,
        rtol=0,
        atol=1e-3,
    )
    monkeypatch.setattr(lda, "STEADY_FREEDOM", 0.0)
    steady = lda._Scorer(LDA((0.3,)), examples)
    found = steady.scores((0.3,), rows)[0]
    own, x = examples.y[:, None], steady.moments.coordinates(examples.X)
    torch.testing.assert_close(found.gather(1, own), slow.gather(1, own), rtol=0, atol=1e-3)
    for i in rows.tolist():
        fold = int(examples.folds[i])
        kept = [(examples.folds != fold) & (examples.y == c) for c in range(12)]
        for c in {0, 7} - {int(examples.y[i])}:
            delta = x[i] - x[kept[c]].mean(0)
            distance = float((delta.square() * steady.A[0]).sum() + steady.downdate[i, 0] * steady.rAr[i, 0] ** 2)
            n = int(kept[c].sum())
            penalty = steady.count_penalties[0] * np.log1p(1 / n)
            assert float(found[i, c]) == pytest.approx(-0.5 * (n / (n + 1) * distance + penalty), abs=2e-3)


@pytest.mark.parametrize("n_classes", [3, 40, 13 * GROUP, 13 * GROUP + 5, 40 * GROUP])
def test_the_best_classes_of_groups_are_the_best_of_all(n_classes: int) -> None:
    scores = torch.randn(7, n_classes, generator=torch.Generator().manual_seed(n_classes))
    assert torch.equal(best_classes(scores, 6), scores.argsort(1, descending=True)[:, :6])


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("in_order", [True, False])
def test_rows_that_share_products_get_the_scores_of_single_ones(
    counts: str, in_order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And both are those of loops, with rows of any number on the shortlist, points hidden and weighted."""
    X, y = blobs(COUNTS[counts], 6, seed=3)
    if not in_order:
        X, y = X.flip(0), y.flip(0)
    weights = 0.5 + torch.arange(len(y)).double() % 3
    masses = torch.zeros(12, dtype=X.dtype).index_add_(0, y, weights)
    points, random = ClassPoints(X, y, weights, masses), torch.Generator().manual_seed(0)
    classes = torch.stack([torch.randperm(12, generator=random)[:4] for _ in X])

    def found() -> torch.Tensor:
        return points.scores(X, classes, 9.0, 0.7, hidden=lambda rows, members: rows[:, None] == members)

    shared = found()
    assert points._shared_products(X, classes.flatten()) is not None
    monkeypatch.setattr(scorers, "SHARED", 0)
    assert points._shared_products(X, classes.flatten()) is None
    torch.testing.assert_close(shared, found(), rtol=0, atol=1e-12)
    for i, asked in enumerate(classes.tolist()):
        for place, c in enumerate(asked):
            members = [j for j in range(len(y)) if y[j] == c and j != i]
            total = sum(float(weights[j]) * np.exp(9.0 * (float(X[i] @ X[j]) - 1)) for j in members)
            expected = 0.7 * np.log(total / float(masses[c])) if members else -np.inf
            assert float(shared[i, place]) == pytest.approx(expected, abs=1e-10)
