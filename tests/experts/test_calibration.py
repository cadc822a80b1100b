"""The temperature, the choice of a setting, and the weights of the pool."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from expert_twins import blobs, density_scores, golden_section
from hypothesis import given, settings
from hypothesis import strategies as st

from gptree.experts import LDA, Examples, KernelDensity, KernelRidge, Pool, PriorScores, calibration, pool, shot_folds
from gptree.experts.calibration import CalibrationRows, balanced, best_temperature, choose, some, temperature_centre
from gptree.experts.kernel_ridge import _few_classes
from gptree.experts.left_out import LeftOutScores
from gptree.experts.pool import PRIOR_ROWS, RIDGE, FittedPool, fit_weights, pool_weights, pooled, robust_weights
from gptree.experts.scorers import easing
from gptree.maths.frozen import Parts, Rows


def noisy_scores(n: int, k: int, seed: int, signal: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(k, (n,), generator=generator)
    scores = torch.randn(n, k, generator=generator, dtype=torch.float64)
    scores[torch.arange(n), y] += signal
    return scores, y


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.integers(2, 9), st.floats(-1, 6), st.floats(-3, 3), st.integers(0, 10**6))
def test_temperature_against_golden_section(n, k, signal, log_scale, seed):
    scores, y = noisy_scores(n, k, seed, signal)
    scores = scores * 10**log_scale
    centre = temperature_centre(scores, 2.0)
    tau, nll = best_temperature(scores, y, centre)
    expected_tau, expected = golden_section(scores, y, centre)
    assert nll == pytest.approx(expected, abs=1e-7)
    assert tau == pytest.approx(expected_tau, rel=1e-2)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "k", "signal", "steps"), [(40, 4, 1.5, 4), (60, 3, 0.3, 8), (30, 6, 3.0, 6)])
def test_newton_s_steps_to_a_temperature_are_few(n, k, signal, steps, weighted, monkeypatch):
    scores, y = noisy_scores(n, k, {4: 0, 3: 1, 6: 2}[k], signal)
    weights = torch.linspace(0.3, 2.5, n, dtype=torch.float64) if weighted else None
    centre = temperature_centre(scores, 2.0, weights)
    tau, _ = best_temperature(scores, y, centre, weights)
    monkeypatch.setattr(calibration, "MAX_STEPS", steps)
    assert best_temperature(scores, y, centre, weights)[0] == pytest.approx(tau, rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_some_rows_after_the_other_have_the_same_temperature(weighted, monkeypatch):
    scores, y = noisy_scores(50, 6, 3, 1.0)
    weights = torch.linspace(0.3, 2.5, 50, dtype=torch.float64) if weighted else None
    centre = temperature_centre(scores, 2.0, weights)
    at_once = best_temperature(scores, y, centre, weights)
    for numbers in (1, 6 * 7, 6 * 25):
        monkeypatch.setattr(calibration, "GAPS_AT_A_TIME", numbers)
        assert best_temperature(scores, y, centre, weights) == pytest.approx(at_once, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_rounding_does_not_choose_among_values_that_say_the_same(seed):
    """A factor on all scores is one on the temperature, the other way round."""
    x, y = noisy_scores(40, 5, seed, 1.0)

    class Scorer:
        grid, fallback, spread = (1.0, 3.0, 0.7), 1.0, 2.0

        def scores(self, grid, rows):
            return torch.stack([value * x[rows] for value in grid])

        def fitted(self, value, temperature):
            raise AssertionError

    examples = Examples.of(x, y, 5)
    value, tau, _ = choose(Scorer(), examples, CalibrationRows.of(examples))
    assert value == 1.0
    assert tau == pytest.approx(best_temperature(x, y, temperature_centre(x, 2.0))[0], rel=0.3)


def test_temperature_of_a_known_model():
    """Labels drawn from softmax(3·score): the estimate has a standard error of about 2 %; five of them are allowed."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4_000, 5, generator=generator, dtype=torch.float64)
    y = torch.multinomial((3 * scores).softmax(1), 1, generator=generator)[:, 0]
    assert best_temperature(scores, y, centre=1.0)[0] == pytest.approx(3, rel=0.1)


def test_scores_that_separate_everything_get_a_finite_temperature():
    scores, y = noisy_scores(50, 4, seed=0, signal=100.0)
    tau, _ = best_temperature(scores, y, temperature_centre(scores, 2.0))
    assert 0 < tau < 10


def test_the_centre_does_not_depend_on_the_unit_of_the_scores():
    scores, _ = noisy_scores(20, 6, seed=1, signal=2.0)
    assert temperature_centre(1e4 * scores - 7.0, 2.0) == pytest.approx(1e-4 * temperature_centre(scores, 2.0))
    assert temperature_centre(torch.full((5, 4), 0.1), 2.0) == 1.0


@pytest.mark.parametrize(
    ("rows", "classes", "kept"),
    [(5000, 100, 5000), (6000, 100, 5242), (3000, 200, 2621), (3000, 10_000, 1000), (1000, 10_000, 1000)],
)
def test_the_cap_on_calibration_rows(rows, classes, kept):
    """2¹⁹ scores at most, unless that leaves fewer than 1,000 rows; the same choice every time, from all over."""
    given = 7 * torch.arange(rows)
    chosen = some(given, classes)
    assert len(chosen) == kept
    assert torch.equal(chosen, some(given, classes))
    assert torch.equal(chosen, chosen.unique())
    assert bool(torch.isin(chosen, given).all())
    if kept < rows:  # the mean of a third or more at random: a standard error of 1 % of the range, ten are allowed
        assert abs(float(chosen.double().mean() / given.double().mean()) - 1) < 0.2


def test_the_setting_with_the_lowest_left_out_loss_is_taken():
    examples = Examples.of(*blobs([6] * 6, 5, noise=1.0))
    fit = KernelDensity().fit(examples)

    def loss(sharpness):
        scores = density_scores(examples, sharpness)
        return golden_section(scores, examples.y, temperature_centre(scores, 2.0))

    losses = {sharpness: loss(sharpness) for sharpness in KernelDensity().sharpnesses}
    best = min(losses, key=lambda sharpness: losses[sharpness][1])
    assert fit.expert.sharpness == best
    assert fit.expert.temperature == pytest.approx(losses[best][0], rel=1e-3)


def test_of_settings_that_lose_as_much_the_first_is_taken():
    class Alike:
        grid, fallback, spread = (3.0, 1.0, 2.0), 9.0, 2.0

        def scores(self, grid, rows):
            return noisy_scores(12, 3, 0, 1.0)[0].expand(len(grid), -1, -1)

        fitted = None

    examples = Examples.of(*blobs([4, 4, 4], 5))
    assert choose(Alike(), examples, CalibrationRows.of(examples)).value == 3.0


def test_settings_are_chosen_on_the_judges_alone():
    """The left-out loss is that of all examples by definition; half of them judge."""
    X, y = blobs([6] * 6, 5, noise=1.0)
    calibration = shot_folds(y) % 2 == 0
    examples = Examples.of(X, y, calibration=calibration)
    fit = KernelDensity().fit(examples)

    def loss(sharpness):
        scores = density_scores(examples, sharpness)[calibration]
        return golden_section(scores, y[calibration], temperature_centre(scores, 2.0))

    losses = {sharpness: loss(sharpness) for sharpness in KernelDensity().sharpnesses}
    best = min(losses, key=lambda sharpness: losses[sharpness][1])
    assert fit.expert.sharpness == best
    assert fit.expert.temperature == pytest.approx(losses[best][0], rel=1e-3)
    assert fit.left_out.shape == (len(y), 6)  # of all examples


@pytest.mark.parametrize("kind", ["lda", "ridge", "scores", "pool"])
def test_labels_that_do_not_judge_teach_no_temperature(kind):
    """Of examples that are known by heart, and judges with one wrong label in three: the latter decide how sure."""
    X, y = blobs([24] * 5, 5, noise=0.05)
    centres = torch.stack([X[y == c].mean(0) for c in range(5)])
    scores = PriorScores(lambda features: features @ centres.T)
    expert = {"lda": LDA(), "ridge": KernelRidge(choose_on=20), "scores": scores, "pool": Pool()}[kind]
    calibration = torch.arange(len(y)) % 2 == 0
    wrong = torch.where(calibration & (torch.arange(len(y)) % 3 == 0), (y + 1) % 5, y)
    calibrated, plain = (expert.fit(Examples.of(X, wrong, calibration=each)) for each in (calibration, None))
    sure = [float(fit.expert.log_probabilities(X).max(1).values.exp().mean()) for fit in (calibrated, plain)]
    assert sure[0] < sure[1] - 0.05
    assert sure[0] == pytest.approx(float((wrong == y)[calibration].double().mean()), abs=0.1)


def test_a_part_of_the_judges_is_balanced_wherever_they_stand():
    """Judges after the others, which classes have in very different numbers."""
    y = torch.cat([torch.arange(6).repeat_interleave(torch.tensor([5, 60, 5, 60, 5, 60])), torch.arange(6).repeat(10)])
    calibration = torch.arange(len(y)) >= 195
    X = torch.nn.functional.normalize(torch.randn(len(y), 4, generator=torch.Generator().manual_seed(0)).double())
    part = _few_classes(Examples.of(X, y, calibration=calibration), 30)
    assert part.counts.tolist() == [5] * 6
    assert all(bool((X[calibration] == x).all(1).any()) for x in part.X)


def test_kernel_ridge_chooses_its_penalty_on_a_part():
    X, y = blobs([12] * 6, 8, noise=1.5)
    whole, part = KernelRidge(), KernelRidge(choose_on=40)
    fit = part.fit(Examples.of(X, y))
    assert fit.expert.penalty in whole.penalties
    same = KernelRidge((fit.expert.penalty,)).fit(Examples.of(X, y))
    torch.testing.assert_close(fit.left_out, same.left_out)


class TestPoolWeights:
    @settings(deadline=None, max_examples=25)
    @given(st.integers(2, 5), st.integers(1, 40), st.integers(2, 6), st.integers(0, 10**6))
    def test_conditions_of_a_minimum(self, K, r, k, seed):
        """The gradient vanishes where a weight is positive and does not point inwards where it is zero."""
        parts = [noisy_scores(r, k, seed, signal) for signal in torch.linspace(-1, 2, K).tolist()]
        logs, y = torch.stack([scores.log_softmax(1) for scores, _ in parts]), parts[0][1]
        w = pool_weights(logs, y)
        assert bool((w >= 0).all())
        v = w.clone().requires_grad_(True)
        smooth = 1 / (2 * r)
        target = (1 - smooth) * torch.nn.functional.one_hot(y, k) + smooth / k
        pooled = torch.einsum("k,krc->rc", v, logs).log_softmax(1)
        loss = -(target * pooled).sum(1).mean() + PRIOR_ROWS / r * (v - 1 / K).square().sum()
        (gradient,) = torch.autograd.grad(loss, v)
        assert bool((gradient[w > 0].abs() < 1e-5).all())  # of one row, all weights may be zero
        assert bool((gradient[w == 0] > -1e-5).all())

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize(("K", "steps"), [(2, 5), (4, 6)])
    def test_newton_s_steps_are_few(self, K, steps, weighted, monkeypatch):
        parts = [noisy_scores(60, 5, 6 + K // 2, signal) for signal in torch.linspace(-1, 2, K).tolist()]
        logs, y = torch.stack([scores.log_softmax(1) for scores, _ in parts]), parts[0][1]
        counts = torch.linspace(0.3, 2.5, 60, dtype=torch.float64) if weighted else None
        weights = pool_weights(logs, y, counts=counts)
        monkeypatch.setattr(pool, "MAX_STEPS", steps)
        torch.testing.assert_close(pool_weights(logs, y, counts=counts), weights, rtol=0, atol=1e-7)
        monkeypatch.setattr(pool, "LOGS_AT_A_TIME", 7 * 5 * K)  # seven rows after the other
        torch.testing.assert_close(pool_weights(logs, y, counts=counts), weights, rtol=0, atol=1e-7)
        plain = robust_weights(logs, y, counts)
        monkeypatch.undo()
        torch.testing.assert_close(plain, robust_weights(logs, y, counts), rtol=0, atol=1e-7)

    @pytest.mark.parametrize("K", [2, 4])
    def test_any_loss_can_be_minimised(self, K):
        """Of the same loss the same weights, to the tolerance of L-BFGS; further parameters are free in sign."""
        parts = [noisy_scores(300, 5, 7, signal) for signal in torch.linspace(-1, 2, K).tolist()]
        logs, y = torch.stack([scores.log_softmax(1) for scores, _ in parts]), parts[0][1]
        target = (1 - 1 / 600) * torch.nn.functional.one_hot(y, 5) + 1 / 3000

        def loss(values):
            pooled = torch.einsum("k,krc->rc", values[:K], logs).log_softmax(1)
            return -(target * pooled).sum(1).mean() + (values[K] + 2.5).square()

        values = fit_weights(loss, K, 1, logs, empty=False)
        expected = pool_weights(logs, y, prior=300 * RIDGE)
        torch.testing.assert_close(values[:K], expected, rtol=0, atol=2e-3)
        assert float(values[K]) == pytest.approx(-2.5, abs=1e-3)
        assert fit_weights(loss, K, 1, logs, empty=True).tolist() == [1 / K] * K + [0.0]

    def test_nothing_to_learn_from(self):
        assert pool_weights(torch.zeros(4, 0, 3), torch.zeros(0, dtype=torch.long)).tolist() == [0.25] * 4

    def test_an_expert_that_knows_nothing_is_left_out(self):
        good, y = noisy_scores(500, 5, seed=0, signal=3.0)
        bad, _ = noisy_scores(500, 5, seed=1, signal=0.0)
        w = pool_weights(torch.stack([good.log_softmax(1), bad.log_softmax(1)]), y)
        assert w[0] > 0.5
        assert w[1] < 0.1


class TestPool:
    def test_is_the_weighted_product(self):
        examples = Examples.of(*blobs([5, 1, 4, 6], 6))
        pool = Pool(eases=False)
        fit = pool.fit(examples)
        X, _ = blobs([3, 3], 6, seed=5)
        logs = [expert.log_probabilities(X) for expert in fit.expert.experts]
        expected = sum(w * log for w, log in zip(fit.expert.weights, logs, strict=True)).log_softmax(1)
        torch.testing.assert_close(fit.expert.log_probabilities(X), expected)
        parts = [expert.fit(examples).left_out for expert in pool.experts]
        expected = sum(w * part for w, part in zip(fit.expert.weights, parts, strict=True)).log_softmax(1)
        torch.testing.assert_close(fit.left_out, expected)

    def test_eases_what_its_experts_say(self):
        """Σ (w + v · 4 / (1 + lead)) log p, class by class and row by row: of new points, left-out ones and frozen."""
        examples = Examples.of(*blobs([5, 2, 4, 6, 3, 3, 4, 2], 6))
        w, v = [0.4, 0.0, 0.7], [0.3, 0.2, 0.0]
        fits = [expert.fit(examples) for expert in Pool().experts]
        each = tuple(fit.expert for fit in fits)
        eased = FittedPool(each, torch.tensor(w).double(), eased=torch.tensor(v).double())
        X, _ = blobs([2, 2], 6, seed=5)

        def slow(logs):
            total = torch.zeros_like(logs[0])
            for log, a, b in zip(logs, w, v, strict=True):
                for row, scores in enumerate(log.tolist()):
                    best, *others = sorted(scores, reverse=True)
                    lead = best - sum(others[:5]) / 5
                    total[row] += (a + b * 4 / (1 + lead)) * log[row]
            return total.log_softmax(1)

        expected = slow([expert.log_probabilities(X) for expert in each])
        torch.testing.assert_close(eased.log_probabilities(X), expected)
        left_out = LeftOutScores(eased, examples.X, examples.y, 8).dense()
        torch.testing.assert_close(left_out, slow([fit.left_out for fit in fits]))
        parts = Parts()
        frozen = eased.frozen(parts)
        parts.shared()
        torch.testing.assert_close(frozen(Rows(X)).log_softmax(1), expected)

    def test_one_class_has_nothing_to_lead(self):
        torch.testing.assert_close(easing(torch.tensor([[-3.0]])), torch.ones(1, 1))
        torch.testing.assert_close(easing(torch.tensor([[1.0, 4.0]])), torch.ones(1, 1))  # three nats

    @pytest.mark.parametrize("wrong", [0.0, 0.2])
    def test_is_eased_where_it_is_too_sure_of_some_rows_and_not_sure_enough_of_others(self, wrong):
        """And hardly where it is right; wrong labels are seen all the same."""
        random, n, k = np.random.default_rng(0), 1200, 10
        scores = torch.as_tensor(2.5 * random.normal(size=(n, k)))
        truth = (scores + torch.as_tensor(random.gumbel(size=(n, k)))).argmax(1)
        y = torch.where(torch.as_tensor(random.random(n) < wrong), torch.as_tensor(random.integers(k, size=n)), truth)
        uneven = scores * scores.std(1, keepdim=True).div(2.5) ** 2
        for said, gained in ((uneven, True), (scores, False)):
            logs = said.log_softmax(1)[None]
            both = torch.cat([logs, logs * easing(logs)])
            plain, weights = robust_weights(logs, y), robust_weights(both, y, eased=True)
            eased = pooled(weights, list(both)).gather(1, truth[:, None]).mean()
            gain = float(eased - pooled(plain, list(logs)).gather(1, truth[:, None]).mean())
            assert gain > 0.01 if gained else abs(gain) < 0.002
            believed = pool._weights(logs, y, None, few=False, more_to_come=False)[1]
            counts = torch.ones(n, dtype=torch.float64) if believed is None else believed
            assert (counts.mean() < 0.9) == (wrong > 0)
            smooth = 1 / (2 * float(counts.sum()))
            w = weights.clone().requires_grad_()
            log_p = torch.einsum("k,krc->rc", w, both).log_softmax(1)
            nll = -((1 - smooth) * log_p.gather(1, y[:, None])[:, 0] + smooth * log_p.mean(1))
            prior = PRIOR_ROWS / counts.sum() * (w - torch.tensor([1.0, 0.0]).double()).square().sum()
            ((nll * counts).sum() / counts.sum() + prior).backward()
            assert w.grad is not None  # and is that of a minimum, by the same beliefs
            assert bool((w.grad.abs() < 1e-5)[weights > 0].all() and (w.grad[weights == 0] > -1e-5).all())
        assert robust_weights(both[:, :0], y[:0], eased=True).tolist() == [1.0, 0.0]

    def test_is_no_worse_than_its_best_expert_on_its_calibration_rows(self):
        examples = Examples.of(*blobs([8] * 6, 6, noise=1.2))

        def loss(fit):
            return float(torch.nn.functional.nll_loss(fit.left_out, examples.y))

        # 10/48·|w − 1/K|² is at most 10/48 · 2/3 at a weight of one
        assert loss(Pool().fit(examples)) < min(loss(expert.fit(examples)) for expert in Pool().experts) + 0.14

    def test_needs_an_expert(self):
        with pytest.raises(ValueError, match="at least one expert"):
            Pool(())


def test_calibration_rows_have_no_room_for_one_shot_classes():
    examples = Examples.of(*blobs([3, 1, 2, 1, 4], 5))
    calibration = CalibrationRows.of(examples)
    assert calibration.classes.tolist() == [0, 2, 4]
    assert torch.equal(calibration.classes[calibration.labels], examples.y[calibration.rows])
    assert sorted(calibration.rows.tolist()) == examples.usable.nonzero()[:, 0].tolist()
    by_class = torch.zeros(3, dtype=torch.float64).index_add_(0, calibration.labels, calibration.balanced)
    torch.testing.assert_close(by_class, by_class[:1].expand(3))


def test_classes_count_equally_and_for_what_they_are_worth():
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2])
    weights = torch.tensor([1.0, 1.0, 1.0, 3.0, 1.0, 2.0, 1.0], dtype=torch.float64)
    found = balanced(weights, labels)
    totals = [float(found[labels == c].sum()) for c in range(3)]
    assert totals == pytest.approx([totals[0]] * 3)
    copies = torch.repeat_interleave(found / weights, weights.long())  # one by one
    assert float(found.sum()) == pytest.approx(float(copies.sum()) ** 2 / float(copies.square().sum()))
    same = torch.ones(6, dtype=torch.float64)
    torch.testing.assert_close(balanced(same, torch.tensor([4, 4, 7, 7, 9, 9])), same)
    assert len(balanced(same[:0], labels[:0])) == 0


def test_large_classes_do_not_decide_how_sure_an_expert_may_be():
    """The temperature is that of rows repeated until all classes have as many."""
    X, y = blobs([2, 3, 12, 24], 6, noise=1.5)
    fit = LDA((0.5,), 0.0).fit(Examples.of(X, y))
    scores = fit.left_out / fit.expert.temperature
    copies = torch.repeat_interleave(24 // torch.bincount(y)[y])
    worth = float(balanced(torch.ones_like(scores[:, 0]), y).sum())
    tau, _ = best_temperature(
        scores[copies], y[copies], temperature_centre(scores, 2.0), scores.new_full((96,), worth / 96)
    )
    assert fit.expert.temperature == pytest.approx(tau, rel=1e-6)
    uneven, _ = best_temperature(scores, y, temperature_centre(scores, 2.0))
    assert fit.expert.temperature < 0.95 * uneven


@pytest.mark.parametrize(
    "make",
    [
        lambda: LDA(()),
        lambda: LDA((0.0,)),
        lambda: LDA((1.1,)),
        lambda: LDA(count_weight=-1),
        lambda: KernelRidge((0.0,)),
        lambda: KernelRidge(choose_on=3),
        lambda: KernelDensity(()),
        lambda: KernelDensity((-1.0,)),
    ],
)
def test_settings_check_themselves(make):
    with pytest.raises(ValueError, match=r"must (lie|not|be)"):
        make()
