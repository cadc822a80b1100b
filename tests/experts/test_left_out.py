"""Each left-out closed form against a brute-force version of its definition."""

from __future__ import annotations

import pytest
import torch
from expert_twins import blobs, density_scores, kept, kernel_ridge_scores, lda_scores, ridge_scores

from gptree.experts import (
    ALONE,
    LDA,
    Examples,
    ExemplarScores,
    FittedKernelDensity,
    FittedKernelRidge,
    FittedLDA,
    FittedRidge,
    KernelDensity,
    KernelRidge,
    LeftOutScores,
    Pool,
    RandomFeatures,
    Ridge,
    in_chunks,
)

UNEQUAL, EQUAL = [4, 2, 7, 3, 5], [4, 4, 4]
EXACT = {"rtol": 0, "atol": 1e-9}


def examples_of(counts: list[int], d: int, folds: str = "shots") -> Examples:
    X, y = blobs(counts, d, seed=len(counts) + d)
    if folds == "shots":
        return Examples.of(X, y)
    if folds == "alone":
        return Examples.of(X, y, folds=torch.full_like(y, ALONE))
    return Examples.of(X, y, folds=Examples.of(X, y).folds % 2)  # several examples of a class in one fold


def check(expert, examples: Examples, scores: torch.Tensor) -> None:
    fit = expert.fit(examples)
    torch.testing.assert_close(fit.left_out, (fit.expert.temperature * scores).log_softmax(1), **EXACT)


@pytest.mark.parametrize("folds", ["shots", "alone", "pairs"])
@pytest.mark.parametrize(("counts", "d"), [(UNEQUAL, 6), (UNEQUAL, 40), (EQUAL, 6), (EQUAL, 12)])
class TestClosedForms:
    @pytest.mark.parametrize("shrinkage", [0.02, 0.5, 1.0])
    @pytest.mark.parametrize("count_weight", [1.0, 0.15])
    def test_lda(self, counts, d, folds, shrinkage, count_weight):
        examples = examples_of(counts, d, folds)
        check(LDA((shrinkage,), count_weight), examples, lda_scores(examples, shrinkage, count_weight))

    @pytest.mark.parametrize("penalty", [0.01, 3.0])
    def test_kernel_ridge(self, counts, d, folds, penalty):
        examples = examples_of(counts, d, folds)
        check(KernelRidge((penalty,)), examples, kernel_ridge_scores(examples, penalty))

    @pytest.mark.parametrize("penalty", [0.1, 10.0])
    def test_ridge(self, counts, d, folds, penalty):
        examples = examples_of(counts, d, folds)
        check(Ridge((penalty,)), examples, ridge_scores(examples, penalty))

    @pytest.mark.parametrize("sharpness", [5.0, 60.0])
    def test_kernel_density(self, counts, d, folds, sharpness):
        examples = examples_of(counts, d, folds)
        check(KernelDensity((sharpness,)), examples, density_scores(examples, sharpness))


@pytest.mark.parametrize("first", [True, False])
def test_folds_beside_examples_that_are_left_out_alone(first):
    X, y = blobs(UNEQUAL, 6)
    folds = Examples.of(X, y).folds % 2
    folds[torch.arange(len(y)) < 6 if first else torch.arange(len(y)) >= 6] = ALONE
    examples = Examples.of(X, y, folds=folds)
    check(LDA((0.5,), 0.15), examples, lda_scores(examples, 0.5, 0.15))
    check(KernelRidge((0.3,)), examples, kernel_ridge_scores(examples, 0.3))
    check(Ridge((3.0,)), examples, ridge_scores(examples, 3.0))
    check(KernelDensity((20.0,)), examples, density_scores(examples, 20.0))


def test_kernel_ridge_of_a_part_treats_the_others_as_new_points():
    X, y = blobs([8, 8, 8, 6], 5)
    examples = Examples.of(X, y)
    fit = KernelRidge((0.3,), at_most=14).fit(examples)
    inside = examples.in_shot_order()[:14].sort().values
    part = Examples.of(X[inside], y[inside], folds=examples.folds[inside])
    scores = torch.empty(len(y), 4, dtype=X.dtype)
    scores[inside] = kernel_ridge_scores(part, 0.3)
    outside = [i for i in range(len(y)) if i not in inside.tolist()]
    scores[outside] = torch.exp(X[outside] @ fit.expert.points.T - 1) @ fit.expert.weights
    torch.testing.assert_close(fit.left_out, (fit.expert.temperature * scores).log_softmax(1), **EXACT)


def test_a_density_knows_the_labels_of_its_points_and_a_pool_what_all_of_its_experts_know():
    X, y = blobs([5, 1, 6, 3], 7)
    density, both = (e.fit(Examples.of(X, y)).expert for e in (KernelDensity(), Pool((LDA(), KernelDensity()))))
    for expert in (density, both):
        assert expert.knows_left_out(X, y)
        assert not expert.knows_left_out(X, y.flip(0))


EXPERTS = [LDA(), KernelRidge(), Ridge((0.1, 1.0, 10.0)), KernelDensity()]


def test_scores_that_are_not_kept_are_those_that_are(monkeypatch):
    """Of some rows, of one, and of none."""
    examples = examples_of(UNEQUAL, 6)
    fitted = LDA().fit(examples).expert
    kept, computed = (LeftOutScores(fitted, examples.X, examples.y, examples.n_classes) for _ in range(2))
    expected = kept.dense()
    monkeypatch.setattr("gptree.experts.left_out.MOST_KEPT", 0)
    for rows in (torch.tensor([3, 1]), 2, torch.zeros(0, dtype=torch.long)):
        torch.testing.assert_close(computed[rows], expected[rows])
    assert computed._kept is None


@pytest.mark.parametrize("expert", EXPERTS, ids=lambda expert: type(expert).__name__)
class TestEveryExpert:
    def test_computing_in_chunks_changes_nothing(self, expert, monkeypatch):
        examples = Examples.of(*blobs([5, 1, 6, 3, 2, 1], 7))
        whole = expert.fit(examples)
        monkeypatch.setattr("gptree.experts.examples.CHUNK_SIZE", 20)
        monkeypatch.setattr("gptree.experts.examples.CHUNK_ROWS", 1)
        monkeypatch.setattr("gptree.experts.products.CHUNK_SIZE", 40)
        monkeypatch.setattr("gptree.experts.products.LEAST_ROWS", 1)
        chunked = expert.fit(examples)
        torch.testing.assert_close(chunked.left_out, whole.left_out, **EXACT)
        X, _ = blobs([5, 5], 7, seed=3)
        torch.testing.assert_close(chunked.expert.log_probabilities(X), whole.expert.log_probabilities(X), **EXACT)

    def test_a_small_calibration_set_still_scores_every_example(self, expert, monkeypatch):
        examples = Examples.of(*blobs([5, 4, 6, 3], 7))
        monkeypatch.setattr("gptree.experts.calibration.MAX_CALIBRATION_SIZE", 0)
        monkeypatch.setattr("gptree.experts.calibration.MIN_CALIBRATION_ROWS", 6)
        fit = expert.fit(examples)
        scores = {
            FittedLDA: lambda: lda_scores(examples, fit.expert.shrinkage, 0.15),
            FittedKernelRidge: lambda: kernel_ridge_scores(examples, fit.expert.penalty),
            FittedRidge: lambda: ridge_scores(examples, fit.expert.penalty),
            FittedKernelDensity: lambda: density_scores(examples, fit.expert.sharpness),
        }[type(fit.expert)]()
        torch.testing.assert_close(fit.left_out, (fit.expert.temperature * scores).log_softmax(1), **EXACT)

    def test_the_fitted_expert_finds_them_again(self, expert, monkeypatch):
        X, y = blobs([5, 1, 6, 3, 2, 1], 7)
        weights = torch.rand(len(y), generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
        monkeypatch.setattr("gptree.experts.calibration.MAX_CALIBRATION_SIZE", 0)
        monkeypatch.setattr("gptree.experts.calibration.MIN_CALIBRATION_ROWS", 9)
        for each in (expert, Pool((expert, LDA((0.5,)))), RandomFeatures(expert, 20)):
            fit = each.fit(Examples.of(X, y, weights=weights))
            assert fit.expert.knows_left_out(X, y)
            again = LeftOutScores(fit.expert, X, y, 6, weights)
            assert len(again) == len(X)
            torch.testing.assert_close(again.dense(), fit.left_out, **EXACT)
            torch.testing.assert_close(again[y == 2], fit.left_out[y == 2], **EXACT)
            torch.testing.assert_close(again[-1], fit.left_out[-1], **EXACT)
            for scores in (again, fit.left_out):
                rows, parts = zip(*in_chunks(scores), strict=True)
                torch.testing.assert_close(torch.cat(parts), fit.left_out[torch.cat(rows)], **EXACT)
            assert not fit.expert.knows_left_out(X.float(), y) or isinstance(expert, KernelRidge | KernelDensity)
        if isinstance(expert, KernelRidge | KernelDensity):
            assert not expert.fit(Examples.of(X, y)).expert.knows_left_out(X.flip(0), y)

    def test_the_order_of_examples_does_not_matter(self, expert):
        X, y = blobs([5, 1, 4, 6], 7)
        examples = Examples.of(X, y)
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1))
        moved = expert.fit(Examples.of(X[order], y[order], folds=examples.folds[order]))
        torch.testing.assert_close(moved.left_out, expert.fit(examples).left_out[order], **EXACT)

    def test_the_order_of_classes_does_not_matter(self, expert):
        X, y = blobs([5, 1, 4, 6], 7)
        new = torch.tensor([2, 0, 3, 1])
        fit, renamed = expert.fit(Examples.of(X, y)), expert.fit(Examples.of(X, new[y]))
        torch.testing.assert_close(renamed.left_out[:, new], fit.left_out, **EXACT)

    def test_an_example_does_not_influence_the_scores_of_others_in_its_fold(self, expert):
        """Except through the covariance of LDA, which loses x_i only."""
        X, y = blobs([4, 4, 4], 6)
        examples = Examples.of(X, y)
        i = 0
        mates = [j for j in range(len(y)) if j not in kept(examples, i)]
        moved = X.clone()
        moved[i] = -X[i]
        expert = type(expert)((1.0,)) if not isinstance(expert, LDA) else LDA((1.0,), 0.0)
        before, after = expert.fit(examples), expert.fit(Examples.of(moved, y))
        others = [j for j in mates if j != i]

        def shape(fit):  # what is left of the scores if temperature and, for LDA, the trace are divided out
            rows = fit.left_out[others] - fit.left_out[others].mean(1, keepdim=True)
            return rows / rows.norm()

        torch.testing.assert_close(shape(after), shape(before), **EXACT)

    def test_inputs_are_not_changed(self, expert):
        X, y = blobs([5, 1, 4], 7)
        X0, y0 = X.clone(), y.clone()
        fit = expert.fit(Examples.of(X, y))
        fit.expert.log_probabilities(X)
        assert torch.equal(X, X0)
        assert torch.equal(y, y0)

    def test_single_precision_is_close_to_double(self, expert):
        X, y = blobs([6, 5, 1, 7], 9)
        double, single = expert.fit(Examples.of(X, y)), expert.fit(Examples.of(X.float(), y))
        assert single.left_out.dtype == torch.float32
        torch.testing.assert_close(single.left_out.double(), double.left_out, rtol=0, atol=2e-3)
        new = single.expert.log_probabilities(X.float())
        torch.testing.assert_close(new.double(), double.expert.log_probabilities(X), rtol=0, atol=2e-3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("expert", [LDA(), Ridge(), KernelDensity(), RandomFeatures(Ridge(), 20), KernelRidge()])
def test_exemplars_of_a_base_session_know_what_is_left_out(expert, weighted):
    """From what the fitted expert keeps, exemplars of all classes, one with a single example and one with many."""
    X, y = blobs([5, 1, 6, 3, 9, 1], 7)
    weights = torch.rand(len(y), generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    weights = weights if weighted else torch.ones_like(weights)
    rows = torch.cat([(y == c).nonzero()[:count, 0] for c, count in enumerate([2, 1, 2, 1, 3, 1])])
    masses = torch.linspace(1.0, 4.0, len(rows), dtype=torch.float64)
    examples = Examples.of(X, y, folds=torch.full_like(y, ALONE), weights=weights)
    for each in (expert, Pool((expert, LDA((0.5,))))):
        fit = each.on_exemplars(rows, masses).fit(examples)
        scores = ExemplarScores(fit.expert, X[rows], y[rows], 6, weights[rows], sizes=examples.sizes)
        assert scores.known == (expert != KernelRidge())  # regression on exemplars cannot tell without its kernel
        if scores.known:
            torch.testing.assert_close(scores.dense(), fit.left_out[rows], **EXACT)
            torch.testing.assert_close(scores[[2, -1]], fit.left_out[rows[[2, -1]]], **EXACT)
            fewer = ExemplarScores(fit.expert, X[rows[1:]], y[rows[1:]], 6, sizes=examples.sizes)
            assert fewer.known == isinstance(expert, LDA)
