"""One-shot classes, degenerate features, very unequal classes, many dimensions and many classes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from expert_twins import blobs

from gptree.experts import LDA, Examples, FittedLDA, KernelDensity, KernelRidge, Pool, RandomFeatures, Ridge

EXPERTS = [
    LDA(),
    KernelRidge(),
    KernelDensity(),
    Ridge((0.1, 1.0, 10.0)),
    RandomFeatures(LDA(), 30),
    RandomFeatures(Ridge(), 40, unit_length=False),
    Pool(),
]
every_expert = pytest.mark.parametrize(
    "expert", EXPERTS, ids=lambda e: type(e).__name__ + getattr(getattr(e, "expert", None), "__class__", type).__name__
)


def assert_log_probabilities(logs: torch.Tensor) -> None:
    assert bool(torch.isfinite(logs).all())
    torch.testing.assert_close(logs.exp().sum(1), torch.ones(len(logs), dtype=logs.dtype))


def accuracy(logs: torch.Tensor, y: torch.Tensor) -> float:
    return float((logs.argmax(1) == y).double().mean())


@every_expert
class TestOneShot:
    def test_the_left_out_class_gets_the_mean_score_of_the_others(self, expert):
        X, y = blobs([4, 1, 5, 1, 3], 6)
        fit = expert.fit(Examples.of(X, y))
        assert_log_probabilities(fit.left_out)
        assert torch.equal(fit.usable, torch.bincount(y)[y] > 1)
        for i in (~fit.usable).nonzero()[:, 0].tolist():
            others = [c for c in range(5) if c != int(y[i])]
            torch.testing.assert_close(fit.left_out[i, y[i]], fit.left_out[i, others].mean())

    def test_one_shot_everywhere(self, expert):
        X, y = blobs([1] * 12, 6)
        fit = expert.fit(Examples.of(X, y))
        assert_log_probabilities(fit.left_out)
        assert not fit.usable.any()
        own = fit.expert.log_probabilities(X)
        assert_log_probabilities(own)
        assert accuracy(own, y) > 0.8

    def test_one_class_of_two_among_one_shot_classes(self, expert):
        X, y = blobs([1, 2, 1, 1, 1, 1], 6)
        fit = expert.fit(Examples.of(X, y))
        assert_log_probabilities(fit.left_out)
        own = fit.expert.log_probabilities(X)
        assert_log_probabilities(own)
        assert accuracy(own, y) > 0.8


def test_one_shot_classes_take_no_part_in_a_choice():
    """A kernel density scores a class by its own examples, so its choices must be those without one-shot classes."""
    X, y = blobs([5, 6, 1, 4, 1], 6, noise=1.2)
    usable = torch.bincount(y)[y] > 1
    some = Examples.of(X[usable], y[usable].unique(return_inverse=True)[1])
    with_them, without = KernelDensity().fit(Examples.of(X, y)).expert, KernelDensity().fit(some).expert
    assert with_them.sharpness == without.sharpness
    assert with_them.temperature == pytest.approx(without.temperature, rel=1e-2)  # the centre's prior differs


def test_one_shot_classes_are_found_as_often_as_by_class_means():
    """Twenty one-shot classes beside twenty of five: unseen points of the one-shot classes, five draws."""
    pool, class_mean = 0.0, 0.0
    for seed in range(5):
        X, y = blobs([26] * 20 + [30] * 20, 32, seed=seed, noise=1.3)
        order = Examples.of(X, y).in_shot_order()
        shot = torch.empty_like(y)
        for c in range(40):
            rows = order[y[order] == c]
            shot[rows] = torch.arange(len(rows))
        train = shot < torch.where(y < 20, 1, 5)
        test = (shot >= 5) & (y < 20)
        examples = Examples.of(X[train], y[train])
        means = torch.nn.functional.normalize(examples.class_sums(examples.X), dim=1)
        pool += accuracy(Pool().fit(examples).expert.log_probabilities(X[test]), y[test]) / 5
        class_mean += accuracy(X[test] @ means.T, y[test]) / 5
    assert class_mean > 0.3
    assert pool >= class_mean


@every_expert
class TestDegenerate:
    def test_identical_features_give_uniform_probabilities(self, expert):
        X = torch.nn.functional.normalize(torch.linspace(0.1, 1, 7, dtype=torch.float64), dim=0).repeat(12, 1)
        y = torch.arange(12) % 4
        fit = expert.fit(Examples.of(X, y))
        uniform = torch.full((12, 4), -math.log(4), dtype=X.dtype)
        torch.testing.assert_close(fit.left_out, uniform)
        torch.testing.assert_close(fit.expert.log_probabilities(X), uniform)

    def test_identical_features_and_unequal_classes(self, expert):
        X = torch.full((10, 4), 0.5, dtype=torch.float64)
        fit = expert.fit(Examples.of(X, torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 2])))
        assert_log_probabilities(fit.left_out)
        new = fit.expert.log_probabilities(X[:2])
        torch.testing.assert_close(new, torch.full((2, 3), -math.log(3), dtype=X.dtype), rtol=0, atol=0.1)

    def test_zero_features(self, expert):
        fit = expert.fit(Examples.of(torch.zeros(6, 3, dtype=torch.float64), torch.tensor([0, 0, 1, 1, 2, 2])))
        torch.testing.assert_close(fit.left_out.exp(), torch.full((6, 3), 1 / 3, dtype=torch.float64))

    def test_constant_columns(self, expert):
        X, y = blobs([4, 5, 3], 6)
        X = torch.cat([X / math.sqrt(2), torch.full((12, 1), math.sqrt(0.5), dtype=X.dtype)], 1)
        fit = expert.fit(Examples.of(X, y))
        assert_log_probabilities(fit.left_out)
        assert accuracy(fit.expert.log_probabilities(X), y) > 0.9

    def test_duplicates_across_classes(self, expert):
        X, y = blobs([4, 4], 6)
        fit = expert.fit(Examples.of(X.repeat(2, 1), torch.cat([y, 1 - y])))
        assert_log_probabilities(fit.left_out)
        logs = fit.expert.log_probabilities(X)
        torch.testing.assert_close(logs, torch.full_like(logs, -math.log(2)), rtol=0, atol=1e-6)

    def test_duplicates_within_classes(self, expert):
        X, _ = blobs([1, 1, 1, 1], 6)
        y = torch.arange(4).repeat(3)
        fit = expert.fit(Examples.of(X.repeat(3, 1), y))
        assert_log_probabilities(fit.left_out)
        assert accuracy(fit.left_out, y) == 1.0

    def test_very_unequal_classes(self, expert):
        X, y = blobs([200, 2, 1, 30], 6, noise=0.5)
        fit = expert.fit(Examples.of(X, y))
        assert_log_probabilities(fit.left_out)
        new = fit.expert.log_probabilities(X)
        for c in range(4):
            assert accuracy(new[y == c], y[y == c]) > 0.6

    @pytest.mark.parametrize(("counts", "d"), [([1], 3), ([4], 3), ([1, 1], 1), ([2, 1], 2), ([2, 2], 1)])
    def test_the_smallest_problems(self, expert, counts, d):
        X, y = blobs(counts, d)
        fit = expert.fit(Examples.of(X, y))
        assert_log_probabilities(fit.left_out)
        assert_log_probabilities(fit.expert.log_probabilities(X))

    def test_no_new_points(self, expert):
        X, y = blobs([3, 3], 4)
        assert expert.fit(Examples.of(X, y)).expert.log_probabilities(X[:0]).shape == (0, 2)

    def test_new_points_of_the_wrong_width(self, expert):
        X, y = blobs([3, 3], 4)
        with pytest.raises(ValueError, match=r"shape \(n, 4\)"):
            expert.fit(Examples.of(X, y)).expert.log_probabilities(X[:, :3])


def test_lda_at_new_points_against_the_dense_formula():
    """Fewer and more dimensions than points; new points lie outside the span of the examples."""
    for d in (5, 40):
        X, y = blobs([4, 2, 6], d)
        new, _ = blobs([5, 5], d, seed=9)
        fit = LDA((0.3,), count_weight=1.0).fit(Examples.of(X, y)).expert
        means = torch.stack([X[y == c].mean(0) for c in range(3)])
        r = X - means[y]
        S = r.T @ r / (len(y) - 3)
        A = torch.linalg.inv(0.7 * S + 0.3 * S.trace() / d * torch.eye(d, dtype=X.dtype))
        gaps = new[:, None] - means
        q = torch.einsum("tci,ij,tcj->tc", gaps, A, gaps)
        n = torch.tensor([4.0, 2.0, 6.0], dtype=X.dtype)
        scores = -0.5 * n / (n + 1) * q - 0.5 * fit.count_penalty * torch.log(1 + 1 / n)
        expected = (fit.temperature * scores).log_softmax(1)
        torch.testing.assert_close(fit.log_probabilities(new), expected, rtol=0, atol=1e-9)


def test_far_classes_do_not_underflow():
    X = torch.eye(3, dtype=torch.float32).repeat_interleave(3, 0)
    X[::3] *= -1
    fit = KernelDensity((500.0,)).fit(Examples.of(X, torch.arange(9) // 3))
    assert_log_probabilities(fit.left_out)
    assert_log_probabilities(fit.expert.log_probabilities(-X))


def test_long_features_are_refused():
    X, y = blobs([3, 3], 4)
    for expert in (KernelRidge(), KernelDensity()):
        with pytest.raises(ValueError, match="unit length"):
            expert.fit(Examples.of(3 * X, y))


def test_many_points_are_computed_in_single_precision():
    X, y = blobs([160] * 10, 8, noise=1.0)
    new, _ = blobs([20], 8, seed=2)
    Y = torch.nn.functional.one_hot(y, 10).double()
    fit = KernelRidge((0.3,)).fit(Examples.of(X, y))
    assert fit.left_out.dtype == torch.float64
    assert fit.expert.points.dtype == torch.float32
    K = torch.exp(X @ X.T - 1) + 0.3 * torch.eye(len(X))
    scores = torch.exp(new @ X.T - 1) @ torch.linalg.solve(K, Y)
    expected = (fit.expert.temperature * scores).log_softmax(1)
    torch.testing.assert_close(fit.expert.log_probabilities(new), expected, rtol=0, atol=1e-3)
    fit = KernelDensity((10.0,)).fit(Examples.of(X, y))
    assert fit.expert.points.dtype == torch.float32
    scores = torch.log(torch.exp(10 * (new @ X.T - 1)) @ Y / 160)
    expected = (fit.expert.temperature * scores).log_softmax(1)
    torch.testing.assert_close(fit.expert.log_probabilities(new), expected, rtol=0, atol=1e-3)


def test_more_classes_than_kernel_ridge_looks_at():
    X, y = blobs([2] * 60, 16, noise=0.3)
    fit = Pool((LDA(), KernelRidge(at_most=40), KernelDensity())).fit(Examples.of(X, y))
    assert_log_probabilities(fit.left_out)
    assert accuracy(fit.left_out, y) > 0.9


def test_large_left_out_arrays_are_single(monkeypatch):
    monkeypatch.setattr("gptree.experts.base.MAX_DOUBLE_SIZE", 30)
    X, y = blobs([4, 4, 4], 5)
    single = Pool().fit(Examples.of(X, y)).left_out
    monkeypatch.undo()
    double = Pool().fit(Examples.of(X, y)).left_out
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_expert
def test_on_a_cuda_device(expert):
    X, y = blobs([5, 1, 6, 4, 1], 7)
    here, there = expert.fit(Examples.of(X, y)), expert.fit(Examples.of(X.cuda(), y.cuda()))
    assert there.left_out.is_cuda
    torch.testing.assert_close(there.left_out.cpu(), here.left_out, rtol=0, atol=1e-6)
    logs = there.expert.log_probabilities(X.cuda())
    torch.testing.assert_close(logs.cpu(), here.expert.log_probabilities(X), rtol=0, atol=1e-6)


def test_few_exemplars_in_many_dimensions_are_left_out_in_double_precision() -> None:
    """Without one of two examples almost nothing is left of the variance along their difference: 1 − a rᵀAr ≈ 2e-5."""
    X = torch.randn(8, 200, generator=torch.Generator().manual_seed(0))
    y = torch.arange(4).repeat_interleave(2)
    examples = Examples.of(X, y, 4)
    lda = replace(FittedLDA.of(examples), shrinkage=1e-3, count_penalty=0.3, temperature=0.5)
    twin = replace(lda, **{each: getattr(lda, each).double() for each in ("centre", "basis", "variances", "means")})
    x, means = twin.whitened(X), twin._whitened(twin.means)
    expected = torch.empty(8, 4, dtype=torch.float64)
    for i in range(8):
        others, r = means.clone(), x[i] - means[y[i]]
        others[y[i]] = 2 * means[y[i]] - x[i]  # the other one
        precision = torch.linalg.inv(torch.eye(len(r)) - (1 - 1e-3) / twin.freedom * 2 * torch.outer(r, r))
        counts = torch.full((4,), 2.0, dtype=torch.float64)
        counts[y[i]] = 1.0
        distances = torch.stack([(x[i] - mean) @ precision @ (x[i] - mean) for mean in others])
        expected[i] = -0.25 * (counts / (counts + 1) * distances + 0.3 * torch.log1p(1 / counts))
    found = lda.at_exemplars(examples)(torch.arange(8))
    assert bool(torch.isfinite(found).all())
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6)
