"""Labels that are probably wrong: the estimated share, the beliefs, and pools that reckon with them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from gptree.experts import LDA, Examples, KernelDensity, KernelRidge, Pool, RandomFeatures, Ridge, pool, wrong_labels
from gptree.experts.pool import FittedPool, pool_weights, pooled, robust_weights
from gptree.experts.wrong_labels import (
    is_clear,
    label_beliefs,
    label_noise,
    likelihood,
    likelihood_weights,
    right_label,
    with_beliefs,
    wrong_share,
)


def scored_rows(wrong: float, n: int = 400, k: int = 8, seed: int = 0) -> tuple[Tensor, Tensor, np.ndarray]:
    """Log-probabilities of two experts (2, n, k), labels with a share of wrong ones, and which those are."""
    random = np.random.default_rng(seed)
    truth = random.integers(k, size=n)
    scores = 4.0 * np.eye(k)[truth] + random.normal(size=(2, n, k))
    y = truth.copy()
    changed = random.permutation(n)[: round(wrong * n)]
    y[changed] = (y[changed] + random.integers(1, k, len(changed))) % k
    # temperatures of their own, as experts have them that were fitted to such labels
    logs = torch.as_tensor(0.6 * scores).log_softmax(2)
    return logs, torch.as_tensor(y), changed


def test_the_share_is_the_one_of_highest_likelihood() -> None:
    logs, y, _ = scored_rows(0.25)
    own = pooled(torch.ones(2, dtype=torch.float64), list(logs)).gather(1, y[:, None])[:, 0].exp()
    grid = np.linspace(0, 0.6, 601)
    best = grid[np.argmax([float(sum(np.log((1 - e) * p + e / 8) for p in own.tolist())) for e in grid])]
    found = label_noise(own, 8)
    assert found == pytest.approx(best, abs=2e-3)
    assert 0.2 < found < 0.36  # 25 % are of another class, which random labels are in 7 cases of 8
    for p, belief in zip(own.tolist(), right_label(own, found, 8).tolist(), strict=True):
        assert belief == pytest.approx((1 - found) * p / ((1 - found) * p + found / 8), rel=1e-12)
        assert 0 <= belief <= 1


def test_right_labels_are_believed() -> None:
    logs, y, _ = scored_rows(0.0)
    own = logs.mean(0).exp().gather(1, y[:, None])[:, 0]
    assert label_noise(own, 8) == 0.0
    assert label_noise(own[:0], 8) == 0.0
    assert torch.equal(robust_weights(logs, y), pool_weights(logs, y))


def test_beliefs_are_of_rows_whose_class_is_known_without_them() -> None:
    logs, y, _ = scored_rows(0.25)
    own = logs.sum(0).log_softmax(1).exp().gather(1, y[:, None])[:, 0]
    usable, calibration, counts = torch.arange(400) % 5 > 0, torch.arange(400) % 2 > 0, 1.0 + torch.arange(400) % 3
    noise, beliefs = label_beliefs(own, 8, usable, False, calibration, counts)
    asked = [i for i in range(400) if i % 5 > 0 and i % 2 > 0]
    assert noise == label_noise(own[asked], 8, counts[asked]) > 0.1
    assert beliefs is not None
    for i, belief in enumerate(beliefs.tolist()):
        right = (1 - noise) * float(own[i])
        assert belief == pytest.approx(right / (right + noise / 8) if i % 5 > 0 else 1.0, rel=1e-12)
    assert label_beliefs(own, 8, usable, False, counts=counts)[0] == label_noise(own[usable], 8, counts[usable])
    assert label_beliefs(own, 8, usable, False)[0] == label_noise(own[usable], 8)
    assert label_beliefs(own, 8, torch.zeros(400, dtype=torch.bool), False) == (0.0, None)
    assert likelihood_weights(None, None) is None
    assert likelihood_weights(counts, None) is counts
    assert likelihood_weights(None, beliefs) is beliefs
    both = likelihood_weights(counts, beliefs)
    assert both is not None
    assert both.tolist() == [float(b * c) for b, c in zip(beliefs, counts, strict=True)]


def test_one_row_is_no_evidence() -> None:
    logs = torch.tensor([[[0.97, 0.03]], [[0.9, 0.1]]], dtype=torch.float64).log()
    wrong = torch.tensor([1])
    assert torch.equal(robust_weights(logs, wrong), pool_weights(logs, wrong))
    assert label_noise(logs[0, :, 1].exp(), 2) == 0.0


def test_a_gain_is_clear_beyond_a_standard_error() -> None:
    gain = torch.tensor([1.3, -0.7] * 4, dtype=torch.float64)  # mean 0.3; of eight the standard error is 0.378
    assert not is_clear(gain)
    assert is_clear(torch.cat([gain] * 2))
    assert not is_clear(-torch.cat([gain] * 2))
    assert not is_clear(gain[:1])
    assert not is_clear(torch.zeros_like(gain))
    assert is_clear(torch.ones(2))
    for times, clear in (
        (6.0, False),
        (6.5, True),
    ):  # standard errors of 0.302 and 0.289
        assert is_clear(gain[:2], torch.full((2,), times, dtype=torch.float64)) == clear


def test_with_few_rows_a_class_the_better_explanation_is_taken() -> None:
    gain = torch.tensor([1.3, -0.7] * 4, dtype=torch.float64)
    assert is_clear(gain, few=True)
    assert not is_clear(-gain, few=True)
    assert not is_clear(torch.zeros_like(gain), few=True)
    logs, y, _ = scored_rows(0.1, n=16, seed=4)
    own = pooled(torch.ones(2, dtype=torch.float64), list(logs)).gather(1, y[:, None])[:, 0].exp()
    assert label_noise(own, 8) == 0.0 < label_noise(own, 8, few=True)


def test_with_few_rows_a_class_experts_may_be_surer() -> None:
    logs, y, _ = scored_rows(0.0)
    torch.testing.assert_close(robust_weights(logs, y, few=True), pool.SURER * pool_weights(logs, y))
    nothing = robust_weights(logs[:, :0], y[:0], few=True)
    torch.testing.assert_close(nothing, torch.full_like(nothing, 0.5))  # there is no evidence to correct
    X = torch.nn.functional.normalize(torch.randn(30, 5, generator=torch.Generator().manual_seed(0)).double())
    for shots, few in ((2, True), (3, False)):
        examples = Examples.of(X[: 10 * shots], torch.arange(10).repeat_interleave(shots))
        one = replace(examples, few=not few)
        assert examples.few == few
        sure, unsure = (Pool((KernelDensity(),)).fit(some).expert for some in (examples, one))
        assert isinstance(sure, FittedPool)
        assert isinstance(unsure, FittedPool)
        assert bool(sure.weights > unsure.weights) == few


def test_a_pool_of_wrong_labels_is_fitted_until_its_weights_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrong_labels, "SETTING_STEPS", 60)
    logs, y, _ = scored_rows(0.25)
    noise = torch.randn(1, 400, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64).log_softmax(2)
    logs = torch.cat([logs, noise])  # whose weight is none from the beginning

    def own(weights: Tensor) -> Tensor:
        return pooled(weights, list(logs)).gather(1, y[:, None])[:, 0].exp()

    weights, share, fits = pool_weights(logs, y), 0.1, 1
    for _ in range(wrong_labels.SETTING_STEPS):
        beliefs = right_label(own(weights), share, 8)
        previous, share = weights, 1 - float(beliefs.mean())
        weights, fits = pool_weights(logs, y, counts=beliefs, start=weights), fits + 1
        if max(abs(a - b) for a, b in zip(weights.tolist(), previous.tolist(), strict=True)) < 1e-3:
            break
    counted: list[int] = []
    monkeypatch.setattr(pool, "pool_weights", lambda *a, **b: counted.append(1) or pool_weights(*a, **b))
    torch.testing.assert_close(robust_weights(logs, y), weights, rtol=0, atol=1e-10)
    assert len(counted) == fits < 1 + wrong_labels.SETTING_STEPS


@pytest.mark.parametrize("counts", [None, torch.linspace(0.5, 2.0, 400, dtype=torch.float64)])
def test_labels_that_are_all_right_are_not_sure_of_any_either(
    counts: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compared with has seen one row more, of any label."""
    logs, y, _ = scored_rows(0.25)
    total = 400 if counts is None else float(counts.sum())
    noises: list[float] = []
    monkeypatch.setattr(wrong_labels, "likelihood", lambda *them: noises.append(them[1]) or likelihood(*them))
    robust_weights(logs, y, counts)
    label_noise(pooled(torch.ones(2, dtype=torch.float64), list(logs)).gather(1, y[:, None])[:, 0].exp(), 8, counts)
    assert noises[1::2] == pytest.approx([1 / (total + 1)] * 2, rel=1e-12)


def test_experts_of_no_weight_are_not_asked() -> None:
    assert FittedPool((), torch.tensor([0.0, 0.5, 0.0, 2.0])).heard == [1, 3]
    assert FittedPool((), torch.tensor([0.0, 0.5, 0.0]), eased=torch.tensor([1.0, 0.0, 0.0])).heard == [0, 1]
    assert FittedPool((), torch.zeros(3)).heard == [0]  # somebody has to be


def test_a_search_may_begin_anywhere() -> None:
    logs, y, _ = scored_rows(0.2, n=40)
    start = torch.tensor([3.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(pool_weights(logs, y, start=start), pool_weights(logs, y), rtol=0, atol=1e-6)


def test_a_row_that_counts_twice_is_two_rows() -> None:
    logs, y, _ = scored_rows(0.25)
    counts = torch.as_tensor(np.random.default_rng(1).integers(0, 3, len(y))).double()
    rows = torch.repeat_interleave(torch.arange(len(y)), counts.long())
    own = pooled(torch.ones(2, dtype=torch.float64), list(logs)).gather(1, y[:, None])[:, 0].exp()
    assert label_noise(own, 8, counts) == pytest.approx(label_noise(own[rows], 8), abs=1e-10)
    expected = robust_weights(logs[:, rows], y[rows])
    torch.testing.assert_close(robust_weights(logs, y, counts), expected, rtol=0, atol=1e-8)
    for some in (gain := torch.linspace(-1, 3, 12).double(), gain - 0.3, gain - 0.6):
        assert is_clear(some, counts[:12]) == is_clear(some[rows[rows < 12]])


def test_a_pool_that_reckons_with_wrong_labels_is_sure_of_right_ones() -> None:
    logs, y, changed = scored_rows(0.25)
    new, truth, _ = scored_rows(0.0, seed=1)
    plain, robust = pool_weights(logs, y), robust_weights(logs, y)

    def nll(weights: Tensor) -> float:
        return float(-pooled(weights, list(new)).gather(1, truth[:, None]).mean())

    assert nll(robust) < 0.6 * nll(plain)
    own = pooled(robust, list(logs)).gather(1, y[:, None])[:, 0].exp()
    doubted = (right_label(own, label_noise(own, 8), 8) < 0.5).nonzero()[:, 0].tolist()
    assert len(set(doubted) & set(changed.tolist())) > 0.9 * len(changed)
    assert len(set(doubted) - set(changed.tolist())) < 0.1 * len(changed)
    assert float(likelihood(own, 0.25, 8).mean()) > float(likelihood(own, 0.01, 8).mean())


@pytest.mark.parametrize(
    "expert",
    [LDA(), KernelRidge(), KernelDensity(), RandomFeatures(Ridge(), 30), Pool()],
    ids=lambda expert: type(expert).__name__,
)
def test_a_settled_expert_has_nothing_left_to_choose(expert) -> None:
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 5)
    X = random.normal(size=(4, 6))[y] + 0.7 * random.normal(size=(20, 6))
    examples = Examples.of(torch.as_tensor(X / np.linalg.norm(X, axis=1, keepdims=True)), torch.as_tensor(y))
    first = expert.fit(examples)
    again = expert.settled(first.expert).fit(examples)
    torch.testing.assert_close(again.left_out, first.left_out, rtol=0, atol=1e-9)
    torch.testing.assert_close(
        again.expert.log_probabilities(examples.X), first.expert.log_probabilities(examples.X), rtol=0, atol=1e-9
    )


# ------------------------------------------------------------------------------------------------------- strangers


def rows_with_strangers(seed: int = 0, n: int = 400, k: int = 8) -> tuple[Tensor, Tensor, np.ndarray]:
    """As `scored_rows`; a tenth of the labels are of another class, and a fifth of rows that no class explains."""
    logs, y, _ = scored_rows(0.1, n, k, seed)
    random = np.random.default_rng([seed, 1])
    stranger = random.random(n) < 0.2
    scores = logs.numpy().copy()
    scores[:, stranger] = 0.6 * random.normal(size=(2, int(stranger.sum()), k))
    return torch.as_tensor(scores).log_softmax(2), y, stranger


def how_unsure(logs: Tensor) -> Tensor:
    return -pooled(torch.ones(2, dtype=torch.float64), list(logs)).amax(1)


def own_labels(logs: Tensor, y: Tensor) -> Tensor:
    return pooled(torch.ones(2, dtype=torch.float64), list(logs)).gather(1, y[:, None])[:, 0].exp()


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_doubts_are_a_logistic_regression_on_how_unsure_predictions_are(weighted: bool) -> None:
    """The gradient of the loss is zero, or points where the slope may not go."""
    random = np.random.default_rng(0)
    unsure, counts = torch.as_tensor(random.exponential(size=60)), torch.as_tensor(0.5 + random.random(60))
    for sign in (1.0, -1.0):
        doubts = (sign * (unsure - 1.5) + 0.5 * torch.as_tensor(random.normal(size=60))).sigmoid()
        share = wrong_share(doubts, counts if weighted else None, unsure)
        assert isinstance(share, Tensor)
        line = np.polyfit(unsure.numpy(), share.logit().numpy(), 1)
        gaps = [
            (c if weighted else 1.0) * (e - t)
            for c, e, t in zip(counts.tolist(), share.tolist(), doubts.tolist(), strict=True)
        ]
        slope = sum(gap * v for gap, v in zip(gaps, unsure.tolist(), strict=True)) + line[0] / 25
        assert sum(gaps) == pytest.approx(0, abs=1e-6)
        if sign > 0:
            assert line[0] > 0.5
            assert slope == pytest.approx(0, abs=1e-6)
        else:
            assert line[0] == pytest.approx(0, abs=1e-9)
            assert slope > 1
    assert wrong_share(doubts, None) == pytest.approx(float(doubts.mean()))


def test_where_no_label_is_believed_all_are_wrong() -> None:
    own, unsure = torch.zeros(20), torch.linspace(0.1, 2, 20)
    assert wrong_share(1 - own, None) == 1.0
    assert torch.equal(wrong_share(1 - own, None, unsure), torch.ones(20))
    for asked in (None, unsure):
        share, beliefs = label_beliefs(own, 8, own >= 0, unsure=asked)
        assert share == 1.0
        assert beliefs is not None
        assert beliefs.tolist() == [0.0] * 20
    for asked in (None, lambda _: unsure):
        settings, counts = with_beliefs(lambda *_: torch.ones(2), lambda _: own, 8, 1 + unsure, unsure=asked)
        assert torch.equal(settings, torch.ones(2))
        assert torch.equal(counts, 1 + unsure)


def test_the_share_of_strangers_is_the_one_of_highest_likelihood() -> None:
    logs, y, _ = rows_with_strangers()
    own, unsure = own_labels(logs, y), how_unsure(logs)

    def loss(line: np.ndarray) -> float:
        total = line[1] ** 2 / 50
        for p, v in zip(own.tolist(), unsure.tolist(), strict=True):
            share = 1 / (1 + math.exp(-line[0] - line[1] * v))
            total -= math.log((1 - share) * p + share / 8)
        return total

    best = minimize(loss, [-1.0, 1.0], bounds=[(None, None), (0, None)]).x
    found = label_noise(own, 8, unsure=unsure)
    assert isinstance(found, Tensor)
    expected = [1 / (1 + math.exp(-best[0] - best[1] * v)) for v in unsure.tolist()]
    np.testing.assert_allclose(found, expected, atol=1e-2)  # the search ends where steps are small
    assert best[1] > 0.5
    share, beliefs = label_beliefs(own, 8, own > 0.001, unsure=unsure)
    assert beliefs is not None
    of_some = label_noise(own[own > 0.001], 8, unsure=unsure[own > 0.001])
    assert isinstance(of_some, Tensor)
    assert share == pytest.approx(float(of_some.mean()))
    torch.testing.assert_close(beliefs[own > 0.001], right_label(own[own > 0.001], of_some, 8))
    assert bool((beliefs[own <= 0.001] == 1).all())


def test_right_labels_are_believed_where_classes_are_to_come() -> None:
    logs, y, _ = scored_rows(0.0)
    own = logs.mean(0).exp().gather(1, y[:, None])[:, 0]
    assert label_noise(own, 8, unsure=-logs.mean(0).amax(1)) == 0.0
    assert torch.equal(robust_weights(logs, y, more_to_come=True), pool_weights(logs, y))


def test_strangers_are_doubted_more_and_experts_are_surer() -> None:
    """With 40 seeds the belief in strangers falls by 0.40 to 0.84, the NLL of new rows by 0.006 to 0.045."""
    logs, y, stranger = rows_with_strangers()
    plain, believing = (robust_weights(logs, y, more_to_come=more) for more in (False, True))
    own, unsure = (pooled(believing, list(logs)).gather(1, y[:, None])[:, 0].exp(), how_unsure(logs))
    alike, doubted = (label_beliefs(own, 8, own >= 0, unsure=asked)[1] for asked in (None, unsure))
    assert alike is not None
    assert doubted is not None
    assert float(doubted[stranger].mean()) < float(alike[stranger].mean()) - 0.3
    assert float(doubted[~stranger].mean()) > float(alike[~stranger].mean()) - 0.01
    new, truth, _ = scored_rows(0.0, seed=1)
    before, after = (-float(pooled(w, list(new)).gather(1, truth[:, None]).mean()) for w in (plain, believing))
    assert after < before
