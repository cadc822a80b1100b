"""Memory that experts need, pieces in which they score, and where another precision or way begins."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from expert_twins import blobs
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from gptree.experts import (
    LDA,
    Examples,
    FittedLDA,
    KernelDensity,
    KernelRidge,
    Pool,
    PriorScores,
    RandomFeatures,
    Ridge,
    SklearnExpert,
    base,
    calibration,
    density,
    examples,
    kernel_ridge,
    lda_moments,
    products,
)
from gptree.experts.adapters import fit_weighted
from gptree.experts.examples import CHUNK_ROWS, row_chunks
from gptree.maths.frozen import Parts, Rows

X, Y = blobs([5, 4, 6, 3], 7)
EXAMPLES = Examples.of(X, Y)
NEW, _ = blobs([3, 3, 3, 2], 7, seed=4)

# ------------------------------------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    ("rows", "classes", "scored"), [(10_000, 100, 5_242), (2_000, 100, 2_000), (9_000, 1_000, 1_000)]
)
def test_bytes_of_a_choice_are_those_of_its_arrays(rows: int, classes: int, scored: int) -> None:
    """Scores of the grid and three copies at the rows of a choice, and four pieces of left-out ones."""
    piece = min(rows, 2**21 // classes + CHUNK_ROWS)
    numbers = (6 + 3) * scored * classes + 4 * piece * classes
    assert calibration.tempering_bytes(6, rows, classes, 8) == 8 * numbers
    assert calibration.tempering_bytes(6, rows, classes, 4) == 4 * numbers


@pytest.mark.parametrize("rows", [300, 1_500, 1_501, 8_000, 30_000])
def test_bytes_of_experts(rows: int) -> None:
    d, C = 512, 40

    def choice(grid: int) -> int:
        return calibration.tempering_bytes(grid, rows, C, 8)

    few = min(rows, d)
    lda = 8 * (4 * rows * d + 3 * d * few) + choice(9)
    linear = 8 * (4 * rows * d + 3 * few * few) + choice(7)
    points = min(rows, 8_000)
    small = points <= 1_500
    kernel = (8 if small else 4) * ((3 if small else 2) * points**2 + points * (d + 3 * C)) + choice(6 if small else 1)
    dense = 8 * (rows * d + 5 * min(rows * rows, 2**21 + rows)) + choice(7)
    assert LDA().fit_bytes(rows, d, C, 8) == lda
    assert Ridge().fit_bytes(rows, d, C, 8) == linear
    assert KernelRidge().fit_bytes(rows, d, C, 8) == kernel
    assert KernelDensity().fit_bytes(rows, d, C, 8) == dense
    chosen_on = min(rows, 2**19 // C)
    assert Pool().fit_bytes(rows, d, C, 8) == 8 * 3 * (6 * chosen_on * C + rows * d) + max(lda, kernel, dense)
    plain = Pool(eases=False).fit_bytes(rows, d, C, 8)
    assert plain == 8 * 3 * (3 * chosen_on * C + rows * d) + max(lda, kernel, dense)
    inner = LDA().fit_bytes(rows, 70, C, 8)
    assert RandomFeatures(LDA(), 70).fit_bytes(rows, d, C, 8) == 8 * 2 * rows * 70 + inner
    assert PriorScores(lambda raw: raw).fit_bytes(rows, d, C, 8) == 0


# ------------------------------------------------------------------------------------------------------------ choices


def test_rows_of_a_choice() -> None:
    rows = torch.arange(3_000)
    assert torch.equal(calibration.some(rows[:1_000], 2**15), rows[:1_000])
    chosen = calibration.some(rows, 2**15)
    drawn = torch.randperm(3_000, generator=torch.Generator().manual_seed(0))[:1_000]
    assert torch.equal(chosen, drawn.sort().values)
    assert len(calibration.some(rows, 2**19 // 2_000)) == 2**19 // (2**19 // 2_000)
    assert torch.equal(calibration.some(rows, 174), rows)  # 3,013 of them would be looked at
    assert [calibration.calibration_size(2**k) for k in (14, 16, 19, 26)] == [1_000, 512, 64, 1]


def test_left_out_arrays_are_stored_in_single_precision_beyond_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_DOUBLE_SIZE", 72)
    assert LDA().fit(EXAMPLES).left_out.dtype == torch.float64  # 18 · 4
    monkeypatch.setattr(base, "MAX_DOUBLE_SIZE", 71)
    assert LDA().fit(EXAMPLES).left_out.dtype == torch.float32


def test_examples_are_scored_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated = Examples.of(X, Y, calibration=torch.arange(18) < 9)
    fit = Pool((LDA(), KernelDensity())).fit(calibrated)
    whole = fit.left_out
    seen: list[int] = []
    monkeypatch.setattr(base, "row_chunks", lambda rows, C: [seen.append(len(p)) or p for p in row_chunks(rows, C)])
    monkeypatch.setattr(examples, "CHUNK_SIZE", 31)
    monkeypatch.setattr(examples, "CHUNK_ROWS", 1)
    torch.testing.assert_close(replace(fit).left_out, whole, rtol=0, atol=1e-12)
    assert seen == [7, 7, 4]
    monkeypatch.setattr(examples, "CHUNK_ROWS", 9)
    assert [len(rows) for rows in calibrated.chunks()] == [9, 9]
    folds = torch.cat([calibrated.folds[rows] for rows in calibrated.chunks()])
    assert torch.equal(folds, folds.sort().values)


def test_the_values_of_a_large_grid_are_tried_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [expert.fit(EXAMPLES) for expert in (LDA(), KernelRidge(), KernelDensity())]
    monkeypatch.setattr(calibration, "MAX_GRID_SIZE", 0)
    for one, expert in zip(whole, (LDA(), KernelRidge(), KernelDensity()), strict=True):
        torch.testing.assert_close(expert.fit(EXAMPLES).left_out, one.left_out, rtol=0, atol=1e-12)
    assert calibration.tempering_bytes(9, 18, 4, 8) == 8 * 4 * (5 * 18 + 4 * 18)
    for room, at_once in ((9 * 18 * 4, 9), (9 * 18 * 4 - 1, 2)):
        monkeypatch.setattr(calibration, "MAX_GRID_SIZE", room)
        assert calibration.tempering_bytes(9, 18, 4, 8) == 8 * 4 * ((at_once + 3) * 18 + 4 * 18)
    monkeypatch.undo()  # and 9 · 335 · 100,000 scores are too many at once
    piece = 2**21 // 100_000 + CHUNK_ROWS
    assert calibration.tempering_bytes(9, 2_000, 100_000, 8) == 8 * 100_000 * (5 * 335 + 4 * piece)


@pytest.mark.parametrize(("room", "asked"), [(3 * 18 * 4, [3]), (3 * 18 * 4 - 1, [1, 1, 1])])
def test_values_are_scored_together_where_there_is_room(
    room: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    class Scorer:
        grid, fallback, spread = (1.0, 2.0, 3.0), 3.0, 1.0
        fitted: Any = None

        def scores(self, grid: tuple[float, ...], rows: torch.Tensor) -> torch.Tensor:
            seen.append(len(grid))
            return torch.zeros(len(grid), len(rows), 4)

    monkeypatch.setattr(calibration, "MAX_GRID_SIZE", room)
    assert [value for value, _ in calibration._each_value(Scorer(), torch.arange(18), 4)] == [1.0, 2.0, 3.0]
    assert seen == asked


def test_a_pool_does_without_an_expert_that_does_not_pay() -> None:
    ridge = KernelRidge(most_classes=3)
    fit = Pool((LDA(), ridge, KernelDensity())).fit(EXAMPLES)
    without = Pool((LDA(), KernelDensity()))
    assert torch.equal(fit.left_out, without.fit(EXAMPLES).left_out)
    settled = Pool((LDA(), ridge, KernelDensity())).settled(fit.expert)
    assert [type(each) for each in settled.experts] == [LDA, KernelDensity]
    assert len(Pool((ridge,)).fit(EXAMPLES).expert.experts) == 1  # somebody has to be asked
    assert len(Pool((LDA(), KernelRidge(most_classes=4))).fit(EXAMPLES).expert.experts) == 2
    assert not Pool((ridge,)).pays(4)
    assert Pool((LDA(), ridge)).pays(4)
    assert KernelRidge().pays(500)
    assert not KernelRidge().pays(501)


def test_temperature_centre() -> None:
    """The spread over the mean deviation of a row, unless that is rounding beside the largest score."""
    scores = torch.tensor([[1.0, 3.0], [0.0, 8.0]], dtype=torch.float64)
    assert calibration.temperature_centre(scores, 2.0) == pytest.approx(2.0 / 2.5, rel=1e-14)
    level = 1000.0 + torch.tensor([[0.0, 0.0019], [0.0, 0.0019]], dtype=torch.float64)
    assert calibration.temperature_centre(level, 2.0) == 1.0  # 0.00095 beside 1e-6 · 1000
    level[0, 1] += 0.001
    assert calibration.temperature_centre(level, 2.0) == pytest.approx(2.0 / 0.0012, rel=1e-6)
    assert calibration.temperature_centre(torch.full((1, 2), 0.0, dtype=torch.float64), 2.0) == 1.0
    tiny = torch.tensor([[0.0, 1.9e-12]], dtype=torch.float64)
    assert calibration.temperature_centre(tiny, 2.0) == 1.0
    assert calibration.temperature_centre(2 * tiny, 2.0) == pytest.approx(2.0 / 1.9e-12)


# ---------------------------------------------------------------------------------------------------------- products


def test_inner_products_in_single_precision_beyond_a_number_of_points() -> None:
    assert products.working_dtype(1_500, torch.float64) == torch.float64
    assert products.working_dtype(1_501, torch.float64) == torch.float32


def test_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "CHUNK_SIZE", 10)
    device = torch.device("cpu")
    assert [len(part) for part in products.chunks(100, 5, device)] == [products.LEAST_ROWS, products.LEAST_ROWS, 4]
    monkeypatch.setattr(products, "LEAST_ROWS", 1)
    assert [len(part) for part in products.chunks(5, 5, device)] == [2, 2, 1]
    assert [len(part) for part in products.chunks(3, 11, device)] == [1, 1, 1]


def test_products_are_shared_unless_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "CHUNK_SIZE", 2)
    cache: dict[Any, Any] = {}
    shared = products.shared_products(cache, NEW[:4], X[:4])
    assert shared is not None
    torch.testing.assert_close(shared, X[:4] @ NEW[:4].T)
    assert len(cache) == 1
    assert products.shared_products(cache, NEW[:4], X[:5]) is None
    assert products.shared_products(None, NEW[:4], X[:4]) is None
    assert products.shared_products(cache, NEW[:4].float(), X[:4]) is None


@pytest.mark.parametrize(("length", "fine"), [(1.0009, True), (1.0011, False)])
def test_features_of_unit_length_up_to_a_thousandth(length: float, fine: bool) -> None:
    rows = X.clone()
    rows[3] *= length
    if fine:
        products.check_unit_length(rows)
    else:
        with pytest.raises(ValueError, match="unit length"):
            products.check_unit_length(rows)


def test_densities_and_ridges_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = [expert.fit(EXAMPLES) for expert in (KernelDensity(), KernelRidge())]
    monkeypatch.setattr(products, "CHUNK_SIZE", 40)  # two rows at a time
    monkeypatch.setattr(products, "LEAST_ROWS", 1)
    monkeypatch.setattr(density, "TERMS", 10)  # and five points
    for expert, whole in zip((KernelDensity(), KernelRidge()), fits, strict=True):
        pieces = expert.fit(EXAMPLES)
        torch.testing.assert_close(pieces.left_out, whole.left_out, rtol=0, atol=1e-10)
        expected = whole.expert.log_probabilities(NEW)
        torch.testing.assert_close(pieces.expert.log_probabilities(NEW), expected, rtol=0, atol=1e-10)


# -------------------------------------------------------------------------------------------------------------- ridge


def scorer(penalties: tuple[float, ...], n: int, dtype: torch.dtype = torch.float64) -> Any:
    x = torch.nn.functional.normalize(torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=dtype), dim=1)
    return kernel_ridge._KernelScorer(penalties, Examples.of(x, torch.arange(n) % 3), n)


def test_precision_of_kernel_ridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single beyond a number of points, or where the features are, if that resolves the penalty: 1e-6 a point."""
    monkeypatch.setattr(kernel_ridge, "DOUBLE_UP_TO", 10)
    assert scorer((0.1,), 10).points.dtype == torch.float64
    assert scorer((0.1,), 11).points.dtype == torch.float32
    assert scorer((0.1,), 10, torch.float32).points.dtype == torch.float32
    assert scorer((1.0, 1.2e-5), 12).points.dtype == torch.float32
    assert scorer((1.0, 1.1e-5), 12).points.dtype == torch.float64


def test_the_kernel_is_kept_for_several_penalties_only() -> None:
    assert scorer((0.1,), 6).K is None
    assert scorer((0.1, 0.2), 6).K is not None


def test_solutions_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    some = scorer((0.1, 0.2), 6)
    first = some.solution(0.1)
    assert some.solution(0.1) is first
    assert some.solution(0.2) is not first


def test_a_penalty_is_chosen_on_a_part_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    choose = kernel_ridge.choose
    monkeypatch.setattr(kernel_ridge, "choose", lambda s, part, rows: chosen.append(len(part)) or choose(s, part, rows))
    KernelRidge(choose_on=18).fit(EXAMPLES)
    KernelRidge((0.1,), choose_on=10).fit(EXAMPLES)
    assert not chosen
    KernelRidge((0.1, 1.0), choose_on=17).fit(EXAMPLES)
    assert chosen == [5 + 6]  # of two classes, which can have five each


@pytest.mark.parametrize(("classes", "size", "kept"), [(4, 10, 2), (4, 20, 4), (7, 15, 3), (9, 10, 2), (5, 11, 2)])
def test_a_part_to_choose_on_has_five_examples_a_class(classes: int, size: int, kept: int) -> None:
    """As many classes as can have five each, every so-manieth one, and at least two."""
    y = torch.arange(classes).repeat(6)
    x = torch.eye(classes, dtype=torch.float64)[y]
    part = kernel_ridge._few_classes(Examples.of(x, y), size)
    step = -(-classes // max(size // 5, 2))
    assert part.n_classes == kept
    assert len(part) == min(size, 6 * kept)
    assert {int(row.argmax()) for row in part.X} == set(range(0, classes, step))


def test_exemplars_of_unequal_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A point of weight two is two points."""
    twice = density.exemplar_density(X, Y, 1.0 + (torch.arange(18) < 5).double(), 4, 7.0, 1.5)
    copied = density.exemplar_density(torch.cat([X, X[:5]]), torch.cat([Y, Y[:5]]), torch.ones(23), 4, 7.0, 1.5)
    torch.testing.assert_close(twice.log_probabilities(NEW), copied.log_probabilities(NEW), rtol=0, atol=1e-12)
    assert torch.equal(twice.masses, copied.masses)


@pytest.mark.parametrize(("counts", "learns"), [([4, 5], True), ([4, 5, 1], True), ([4, 1, 1], False), ([1, 1], False)])
def test_a_classifier_is_left_out_where_two_classes_have_several_examples(counts: list[int], learns: bool) -> None:
    x, y = blobs(counts, 5)
    scores = SklearnExpert(GaussianNB())._left_out(Examples.of(x, y))
    assert bool(scores.any()) == learns


class Watched(GaussianNB):
    """Remembers the weights of its last fit."""

    given: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Watched:
        type(self).given = sample_weight
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("weight", [1.0, 2.0, 0.5])
def test_a_classifier_is_told_of_weights_where_there_are_any(weight: float) -> None:
    SklearnExpert(Watched()).fit(Examples.of(X, Y, weights=torch.full((len(Y),), weight, dtype=torch.float64)))
    assert (Watched.given is None) == (weight == 1.0)


def test_a_classifier_is_told_of_weights_of_which_some_are_one() -> None:
    weights = torch.ones(len(Y), dtype=torch.float64).index_fill_(0, torch.tensor([3]), 2.0)
    SklearnExpert(Watched()).fit(Examples.of(X, Y, weights=weights))
    assert Watched.given is not None


@pytest.mark.parametrize(("weight", "smoothing"), [(1.0, 1 / 36), (3.0, 1 / 108), (0.01, 1 / 2)])
def test_probabilities_of_a_classifier_are_smoothed_by_half_an_example(weight: float, smoothing: float) -> None:
    weights = torch.full((len(Y),), weight, dtype=torch.float64)
    fitted: Any = SklearnExpert(GaussianNB()).fit(Examples.of(X, Y, weights=weights)).expert
    assert fitted.smoothing == pytest.approx(smoothing, rel=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_prior_scores_are_finite_throughout(bad: float) -> None:
    scores = torch.zeros(len(Y), 4, dtype=torch.float64)
    scores[2, 1] = bad
    with pytest.raises(ValueError, match="prior scores must be finite"):
        PriorScores(lambda raw: scores).fit(EXAMPLES)


def test_rows_are_repeated_only_where_all_weights_are_whole() -> None:
    with pytest.raises(ValueError, match="takes no sample_weight"):
        fit_weighted(KNeighborsClassifier(1), np.eye(3), np.arange(3), np.array([1.0, 1.5, 2.0]))
    model = KNeighborsClassifier(1)
    fit_weighted(model, np.eye(3), np.arange(3), np.array([1.0, 3.0, 2.0]))
    assert model.n_samples_fit_ == 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("counts", [[4, 4, 4], [5, 2, 7, 1]], ids=["alike", "unequal"])
@pytest.mark.parametrize("d", [5, 30], ids=["d < n", "d > n"])
def test_what_a_discriminant_becomes_for_predictions(d: int, counts: list[int], dtype: torch.dtype) -> None:
    x, y = blobs(counts, d, dtype=dtype)
    fitted = replace(FittedLDA.of(Examples.of(x, y)), shrinkage=0.2, count_penalty=0.7, temperature=0.4)
    scores = fitted.frozen(Parts())(Rows(3 * x[:6])).log_softmax(1)
    exact = 2e-4 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(scores, fitted.log_probabilities(3 * x[:6]), rtol=0, atol=exact)


@pytest.mark.parametrize(("weight", "freedom"), [(2e-6, 1), (4e-6, 4e-6)])
def test_a_freedom_beyond_rounding_counts(weight: float, freedom: float) -> None:
    """A millionth of all that counts, three whole examples here."""
    weights = torch.tensor([1.0, 1.0, 1.0, weight, weight], dtype=torch.float64)
    found = lda_moments.degrees_of_freedom(Examples.of(X[:5], torch.tensor([0, 1, 2, 3, 3]), weights=weights))
    assert found == pytest.approx(freedom, rel=1e-6)


@pytest.mark.parametrize("weight", [1e-4, 1.0, 1e4])
def test_degrees_of_freedom_of_light_and_heavy_examples(weight: float) -> None:
    """Σ_c (n_c − min(1, Σ w²/n_c)), and one where each class has a single example or less."""
    pairs = Examples.of(X[:4], torch.tensor([0, 0, 1, 1]), weights=torch.full((4,), weight, dtype=torch.float64))
    assert lda_moments.degrees_of_freedom(pairs) == pytest.approx(4 * weight - 2 * min(1.0, weight), rel=1e-12)
    single = Examples.of(X[:3], torch.arange(3), weights=torch.full((3,), min(weight, 1.0), dtype=torch.float64))
    assert lda_moments.degrees_of_freedom(single) == 1


def test_spread_within_classes_or_half_of_the_whole() -> None:
    """At rounding beside the whole spread there is none within; at rounding beside the centre there is none at all."""
    eps = torch.finfo(torch.float64).eps

    def trace(within: float, scale: float = 1.0) -> float:
        return lda_moments.within_trace(torch.tensor([within], dtype=torch.float64), 4.0, 4, scale)

    assert trace(4 * eps) == 2.0
    assert trace(8 * eps) == 8 * eps
    assert trace(1.0, scale=4 / (100 * eps) ** 2) == 4.0
    assert trace(1.0, scale=3.99 / (100 * eps) ** 2) == 1.0
