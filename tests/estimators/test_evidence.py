"""The output scale that left-out evidence chooses, and what the diagnostics say of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gptree import GPForestClassifier, GPTreeClassifier, Growth, load_model
from gptree.estimators.evidence import (
    DEFAULT_SCALE,
    ENOUGH_ROWS,
    FEWEST_SHOTS,
    LEAST_ROWS,
    SCALES,
    choose,
    default_scale,
    left_out_losses,
    own_probabilities,
)
from gptree.estimators.prior import Rows, fit_prior
from gptree.experts import LDA, Fit, FittedSingle
from gptree.experts.wrong_labels import label_noise
from gptree.inference import NodePredictor
from gptree.maths import make_kernel
from gptree.tree import ClassTree


def gaussian_classes(classes: int, shots: int, d: int, spread: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes of one covariance: LDA knows all there is to know, and a GP can only do harm."""
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), shots)
    return random.normal(size=(classes, d))[y] + spread * random.normal(size=(len(y), d)), y


def two_sided_classes(classes: int, shots: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes of two narrow modes each: experts of one mode a class err where a GP corrects."""
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), shots)
    modes = random.normal(size=(2 * classes, d))
    return modes[2 * y + np.arange(len(y)) % 2] + 0.45 * random.normal(size=(len(y), d)), y


# ------------------------------------------------------------------------------------------------------- the rule


def scale_of(model) -> float:
    return float(model.kernel_.outputscale.detach())


def losses_of(means: list[float], noise: float, n: int = 50) -> np.ndarray:
    """(n, scales) with these means, whose differences have a standard deviation of about `noise`."""
    random = np.random.default_rng(0)
    values = noise * random.normal(size=(n, len(SCALES))) + random.normal(size=(n, 1))
    return values - values.mean(0) + np.array(means)


def test_clear_evidence_chooses_the_lowest() -> None:
    found = choose(losses_of([0.5, 0.1, 0.4, 0.5, 0.5, 0.6], noise=0.1), default=5.0)
    assert found.scale == 0.5
    assert found.default == 5.0
    assert found.rows == 50
    np.testing.assert_allclose(found.nll, [0.5, 0.1, 0.4, 0.5, 0.5, 0.6])


def test_within_a_standard_error_the_scale_nearest_to_the_default_is_taken() -> None:
    losses = losses_of([0.10, 0.13, 0.14, 0.155, 0.3, 0.4], noise=0.25)
    found = choose(losses, default=5.0)
    best = losses[:, 0]
    for k in range(len(SCALES)):  # as written, one by one
        difference = losses[:, k] - best
        assert found.error[k] == pytest.approx(np.sqrt(np.var(difference, ddof=1) / 50))
    assert found.scale == 2.5
    assert choose(losses, default=1.25).scale == 1.25
    assert choose(losses_of([0.1] * 6, noise=0.1), default=5.0).scale == 5.0


def test_rows_count_as_often_as_they_weigh_and_are_one_row_each() -> None:
    losses = losses_of([0.10, 0.13, 0.14, 0.155, 0.3, 0.4], noise=0.25)
    counts = np.random.default_rng(1).integers(1, 4, len(losses))
    found = choose(losses, counts.astype(float), default=5.0)
    np.testing.assert_allclose(found.nll, np.repeat(losses, counts, axis=0).mean(0))
    gaps = losses - losses[:, [int(found.nll.argmin())]]
    for k in range(len(SCALES)):  # of a weighted mean of 50 independent rows
        mean = np.average(gaps[:, k], weights=counts)
        squares = sum((counts[i] / counts.sum()) ** 2 * (gaps[i, k] - mean) ** 2 for i in range(50))
        assert found.error[k] == pytest.approx(np.sqrt(50 / 49 * squares))


def test_without_rows_the_default_stays() -> None:
    found = choose(np.zeros((0, len(SCALES))), default=1.25)
    assert (found.scale, found.rows) == (1.25, 0)
    assert np.isnan(found.nll).all()


def test_few_rows_a_class_lower_the_default() -> None:
    assert [default_scale(10 * n, 10) for n in (2, 3, 4, 30)] == [1.25, 2.5, DEFAULT_SCALE, DEFAULT_SCALE]


def test_processes_may_say_little_where_experts_do() -> None:
    assert [default_scale(20, 10, each) for each in (5.0, 1.3, 1.29, 0.1)] == [1.25, 1.25, 0.05, 0.05]


@pytest.mark.parametrize(("shots", "few"), [(2, True), (3, False)])
def test_the_spread_of_left_out_scores_is_measured_where_rows_are_few(shots: int, few: bool) -> None:
    scores = torch.as_tensor(np.random.default_rng(0).normal(size=(4 * shots, 4)))
    expert: Any = SimpleNamespace(fit=lambda examples: Fit(FittedSingle(), scores, examples.usable))
    x, y = torch.ones(4 * shots, 1, dtype=torch.float64), np.repeat(np.arange(4), shots)
    weights = torch.linspace(1, 3, len(y), dtype=torch.float64)
    rows = Rows(x, x, x.numpy(), y, None, weights)
    deviations = [np.sqrt(np.mean((row - row.mean()) ** 2)) for row in scores.numpy()]
    expected = float(np.average(deviations, weights=weights.numpy()))
    assert fit_prior(expert, rows, 4).spread == (pytest.approx(expected, rel=1e-12) if few else np.inf)
    assert np.isinf(fit_prior(expert, rows, 4, few=not few).spread) == few


def test_two_rows_of_classes_in_two_parts_leave_the_experts_alone() -> None:
    """Rows that are alone in their part of a class would teach the processes what the experts know."""
    random = np.random.default_rng(0)
    parts, y = random.normal(size=(80, 12)), np.repeat(np.arange(40), 2)
    together, apart = (
        scale_of(GPTreeClassifier(random_state=0).fit(parts[part] + 0.3 * random.normal(size=(80, 12)), y))
        for part in (y, np.arange(80))
    )
    assert together == pytest.approx(1.25)
    assert apart == pytest.approx(0.05)


# ---------------------------------------------------------------------------------------------------- the evidence


@pytest.fixture(scope="module")
def tree() -> tuple[GPTreeClassifier, np.ndarray, np.ndarray]:
    X, y = gaussian_classes(6, 6, 5, 0.6, seed=1)
    return GPTreeClassifier(kernel=make_kernel("rbf", DEFAULT_SCALE), random_state=0).fit(X[::2], y[::2]), X, y


def test_a_factor_on_the_correction_stands_for_a_scale(tree) -> None:
    """Slow: the weights of all posteriors times the factor, in the ordinary prediction."""
    model, X, y = tree
    state = model.state_
    x, raw, classes = state.features(X[1::2]), X[1::2], torch.as_tensor(y[1::2])
    scores = state.class_scores(x, raw)
    found = own_probabilities(state.model, x, scores, classes, fewer=0.8)
    predictor = state.model.predictor
    for scale, row in zip(SCALES, found, strict=True):
        a = 0.8 * (scale / DEFAULT_SCALE) ** 0.5
        scaled = [replace(p, weights=a * p.weights) for p in predictor.posteriors]
        changed = replace(state.model, predictor=NodePredictor(predictor.grams, scaled, 2**30))
        p = changed.log_probabilities(x, lambda part: scores[part]).exp()
        expected = torch.stack([p[i, c] for i, c in enumerate(classes)])
        torch.testing.assert_close(row, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("masked", "enough"), [(False, ENOUGH_ROWS), (True, ENOUGH_ROWS), (False, 40)])
def test_rows_are_asked_of_a_model_that_has_not_seen_them(tree, monkeypatch, masked: bool, enough: int) -> None:
    monkeypatch.setattr("gptree.estimators.evidence.ENOUGH_ROWS", enough)
    model, _, _ = tree
    random = np.random.default_rng(0)
    codes = np.repeat(np.arange(6), [1, 2, 5, 7, 9, 200])
    n = len(codes)
    held_out = random.uniform(size=n) < 0.7 if masked else None
    raw = np.arange(n, dtype=float)[:, None] @ np.ones((1, 5))
    rows = Rows(torch.as_tensor(raw), torch.as_tensor(raw), raw, codes, held_out)
    seen, asked = [], []

    def fit(kept: Rows):
        seen.append(set(kept.raw[:, 0].tolist()))

        def scores(out: Rows) -> torch.Tensor:
            asked.append(out)
            return torch.zeros(len(out.codes), 6, dtype=torch.float64).log_softmax(1)

        return model.state_.model, scores

    losses, counts = left_out_losses(rows, 6, fit, 0.0)
    by_class = np.bincount(np.concatenate([out.codes for out in asked]), counts, minlength=6)
    assert by_class[by_class > 0] == pytest.approx(by_class.max())
    assert len(asked) == 1
    assert LEAST_ROWS <= len(losses) == len(asked[0].codes) <= enough + 6
    counts = np.bincount(codes if held_out is None else codes[held_out], minlength=6)
    everyone = set(raw[:, 0].tolist())
    for known, out in zip(seen, asked, strict=True):
        mine = set(out.raw[:, 0].tolist())
        assert known == everyone - mine
        assert held_out is None or out.held_out.all()
        assert (counts[out.codes] >= FEWEST_SHOTS).all()
        left = np.bincount(codes, minlength=6) - np.bincount(out.codes, minlength=6)
        assert (left >= np.minimum(2, np.bincount(codes, minlength=6))).all()
        assert len(mine) == len(losses)  # none twice


def test_a_few_classes_with_more_rows_than_two_are_not_asked() -> None:
    """Where two shots are usual and labels wrong, those that have three have one of another class."""
    codes = np.repeat(np.arange(5), [2, 2, 2, 3, 3])
    raw = np.zeros((len(codes), 1))
    rows = Rows(torch.as_tensor(raw), torch.as_tensor(raw), raw, codes, None)

    def fit(kept: Rows):
        raise AssertionError("asked")

    losses, counts = left_out_losses(rows, 5, fit, 0.0)
    assert (len(losses), len(counts)) == (0, 0)


# ------------------------------------------------------------------------------------------------ classes of any size


@pytest.mark.parametrize("masked", [False, True])
def test_prior_means_at_training_rows_express_class_frequencies(masked: bool) -> None:
    """Slow: the left-out scores and the logarithms of the class sizes, summed over the classes left and right."""
    random = np.random.default_rng(0)
    codes = np.repeat(np.arange(4), [2, 3, 6, 9])
    x = torch.as_tensor(random.normal(size=(len(codes), 5)) + codes[:, None])
    held_out = np.arange(len(codes)) % 2 == 0 if masked else None
    counted = torch.as_tensor(random.uniform(0.5, 2.0, len(codes)))
    rows = Rows(x, x, x.numpy(), codes, held_out, counted)
    tree = ClassTree.from_nested([[0, 2], [1, 3]], labels=range(4))
    prior = fit_prior(LDA(), rows, 4, [tree])
    assert prior.odds is not None
    sizes = np.bincount(codes[held_out], counted[held_out]) if masked else np.bincount(codes, counted)
    for i, code in enumerate(codes):
        p = prior.left_out[torch.tensor([i])][0].exp() * torch.as_tensor(sizes)
        for depth, (left, right) in enumerate((([0, 2], [1, 3]), ([0], [2]) if code in (0, 2) else ([1], [3]))):
            found = prior.odds.at(0, torch.tensor([depth]), torch.tensor([i]))
            assert float(found) == pytest.approx(float(p[left].sum().log() - p[right].sum().log()), abs=1e-9)


def test_nodes_learn_the_same_whatever_classes_are_expected(tmp_path) -> None:
    X, y = gaussian_classes(6, 12, 6, 1.0, seed=3)
    kept = np.arange(len(y)) % 12 < 2 * (y + 1)
    plain, expecting = (
        GPTreeClassifier(kernel="rbf", class_prior=prior, random_state=0).fit(X[kept], y[kept])
        for prior in (None, "empirical")
    )
    for one, other in zip(plain.model_.predictor.posteriors, expecting.model_.predictor.posteriors, strict=True):
        assert torch.equal(one.weights, other.weights)
    share = np.bincount(y[kept]) / kept.sum()
    assert expecting.predict_proba(X)[:, -1].mean() > plain.predict_proba(X)[:, -1].mean()
    assert plain.predict_proba(X)[:, -1].mean() < (share[-1] + 1 / 6) / 2
    plain.save(tmp_path / "model")
    assert np.exp(load_model(tmp_path / "model").state_.log_frequencies) == pytest.approx(share)


# --------------------------------------------------------------------------------------------------- what it chooses


@pytest.fixture(scope="module")
def overlapping() -> GPForestClassifier:
    X, y = gaussian_classes(40, 10, 8, 0.9, seed=0)
    return GPForestClassifier(random_state=0).fit(X, y)


def test_where_the_experts_are_right_the_gps_say_little(overlapping) -> None:
    assert scale_of(overlapping) <= 1.25
    found = overlapping.diagnostics_
    assert found["scales"].tolist() == list(SCALES)
    assert found["scale_nll"].argmin() <= 2
    assert found["scale_rows"] == 40 * 3
    assert found["scale_error"][found["scale_nll"].argmin()] == 0.0


def test_where_the_experts_err_the_gps_correct_them() -> None:
    """So it is with each of twelve seeds."""
    X, y = two_sided_classes(20, 8, 6, seed=0)
    model = GPTreeClassifier(prior_mean="lda", random_state=0).fit(X, y)
    assert scale_of(model) >= DEFAULT_SCALE


def test_the_choice_is_kept_in_files_and_by_classes_that_arrive(overlapping, tmp_path) -> None:
    overlapping.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert scale_of(again) == scale_of(overlapping)
    assert "scales" not in again.diagnostics_
    np.testing.assert_array_equal(again.diagnostics_["doubtful"], overlapping.diagnostics_["doubtful"])


def test_nothing_is_chosen_where_the_user_or_nothing_can_choose() -> None:
    X, y = gaussian_classes(5, 4, 6, 0.4, seed=2)

    def scale(**settings) -> float:
        return scale_of(GPTreeClassifier(random_state=0, **settings).fit(X, y))

    assert scale(kernel=make_kernel("rbf", 3.0)) == pytest.approx(3.0)
    assert scale(prior_mean=None) == pytest.approx(10.0)
    assert scale(growth=Growth()) == pytest.approx(10.0)
    one_shot = GPTreeClassifier(random_state=0).fit(X[::4], y[::4])
    assert scale_of(one_shot) == pytest.approx(10.0)
    assert "scales" not in one_shot.diagnostics_
    assert one_shot.diagnostics_["doubtful"].tolist() == []


def test_wrong_labels_are_named_and_keep_the_gps_quiet() -> None:
    """30 % of the labels are wrong: what the GPs would learn from the errors of the experts is wrong too."""
    X, y = gaussian_classes(8, 30, 10, 0.35, seed=3)
    random = np.random.default_rng(0)
    wrong = random.permutation(len(y))[: round(0.3 * len(y))]
    given = y.copy()
    given[wrong] = (y[wrong] + random.integers(1, 8, len(wrong))) % 8
    order = random.permutation(len(y))
    model = GPForestClassifier(random_state=0).fit(X[order], given[order])
    assert scale_of(model) <= 0.5
    doubtful = set(order[model.diagnostics_["doubtful"]].tolist())
    assert len(doubtful & set(wrong.tolist())) > 0.7 * len(wrong)
    assert len(doubtful - set(wrong.tolist())) < 0.1 * len(wrong)


@pytest.mark.parametrize("masked", [False, True])
def test_rows_count_at_the_nodes_by_the_belief_in_their_labels(masked: bool) -> None:
    random = np.random.default_rng(4)
    k, n = 6, 240
    truth = random.integers(k, size=n)
    y = truth.copy()
    wrong = random.permutation(n)[:60]
    y[wrong] = (y[wrong] + random.integers(1, k, 60)) % k
    left_out = torch.as_tensor(6.0 * np.eye(k)[truth] + random.normal(size=(n, k))).log_softmax(1)
    expert: Any = SimpleNamespace(fit=lambda examples: Fit(FittedSingle(), left_out, examples.usable))
    held_out = np.arange(n) % 3 > 0
    x = torch.ones(n, 1, dtype=torch.float64)
    prior = fit_prior(expert, Rows(x, x, x.numpy(), y, held_out if masked else None), k)
    asked = held_out if masked else np.ones(n, dtype=bool)
    own = left_out.exp().numpy()[np.arange(n), y]
    assert prior.weights is not None
    assert prior.noise == label_noise(torch.as_tensor(own[asked]), k) > 0.15
    for p, belief in zip(own, prior.weights.tolist(), strict=True):
        right = (1 - prior.noise) * p
        assert belief == pytest.approx(right / (right + prior.noise / k), rel=1e-12)
    assert float(prior.weights[wrong].mean()) < 0.3
