"""Experts that take in later examples and classes: statistics against sums over all rows, left-out scores and the
combination of base and novel classes against plain loops."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from expert_twins import believed_temperature, blobs, kernel_ridge_scores
from torch import Tensor

from gptree.experts import (
    ALONE,
    Examples,
    ExemplarDensity,
    FittedBaseNovelExpert,
    FittedExpert,
    FittedKernelDensity,
    FittedLDA,
    FittedRandomFeatures,
    FittedSingle,
    KernelRidge,
    NovelClassExperts,
    Pool,
    RandomFeatures,
    Ridge,
    calibration,
    distances_to_classes,
    exemplar_density,
    novel,
    novel_scores,
)
from gptree.experts.wrong_labels import with_beliefs
from gptree.storage import restore

EXACT = {"rtol": 0, "atol": 1e-9}
COUNTS = [6, 3, 8, 5]
N_BASE = len(COUNTS)


def base_examples(d: int = 5, counts: list[int] = COUNTS) -> Examples:
    return Examples.of(*blobs(counts, d, seed=d))


def later_examples(counts: list[int], d: int = 5, extra: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
    """Novel classes, numbered after the base classes, and further examples of the base classes `extra`."""
    X, y = blobs([*counts, len(extra)] if extra else counts, d, seed=100 + d)
    y = torch.where(y == len(counts), -1, N_BASE + y)
    y[y == -1] = torch.tensor(extra, dtype=y.dtype)
    return X, y


# ----------------------------------------------------------------------------------------------------------------- LDA


def left_out_lda(base: Examples, later: tuple[Tensor, Tensor], n_classes: int, lda: FittedLDA) -> Tensor:
    """Scores of the base examples and then the later ones, each without itself: loops, and an inverse for each."""
    X, y = torch.cat([base.X, later[0]]), torch.cat([base.y, later[1]]).tolist()
    n, d = len(base), base.X.shape[1]

    def scatter(rows: list[int]) -> Tensor:
        total = torch.zeros(d, d, dtype=X.dtype)
        for c in range(base.n_classes):
            members = X[[i for i in rows if y[i] == c]]
            for x in members:
                total += torch.outer(x - members.mean(0), x - members.mean(0))
        return total

    nu = n - base.n_classes
    trace = scatter(list(range(n))).trace() / nu
    scores = torch.zeros(len(X), n_classes, dtype=X.dtype)
    for i in range(len(X)):
        within = scatter([j for j in range(n) if j != i]) / nu  # ν and the trace are kept
        A = torch.linalg.inv(
            (1 - lda.shrinkage) * within + lda.shrinkage * trace / d * torch.eye(d, dtype=X.dtype),
        )
        for c in range(n_classes):
            rows = [j for j in range(len(X)) if y[j] == c and j != i]
            if not rows:
                scores[i, c] = math.nan
                continue
            gap = X[i] - X[rows].mean(0)
            k = len(rows)
            scores[i, c] = -0.5 * k / (k + 1) * gap @ A @ gap - 0.5 * lda.count_penalty * math.log(1 + 1 / k)
    return scores


@pytest.mark.parametrize("shrinkage", [0.05, 0.6, 1.0])
@pytest.mark.parametrize("d", [5, 40], ids=["d < n", "d > n"])
def test_lda_leaves_single_points_out(d: int, shrinkage: float) -> None:
    base, later = base_examples(d), later_examples([3, 1, 4], d)
    lda = replace(FittedLDA.of(base), shrinkage=shrinkage, count_penalty=1.7).grown(*later, N_BASE + 3)
    X, y = torch.cat([base.X, later[0]]), torch.cat([base.y, later[1]])
    found = lda.left_out(lda.whitened(X), y, torch.arange(len(X)) < len(base))
    expected = left_out_lda(base, later, N_BASE + 3, lda)
    assert bool(torch.isfinite(found).all())
    defined = ~expected.isnan()
    assert int((~defined).sum()) == 1  # the one-shot class at its own example
    torch.testing.assert_close(found[defined], expected[defined], **EXACT)


def test_without_a_covariance_left_out_is_a_refit() -> None:
    """With λ = 1 only means and counts are left, and those are without the point, exactly."""
    base = base_examples()
    lda = replace(FittedLDA.of(base), shrinkage=1.0, count_penalty=0.8)
    found = lda.left_out(lda.whitened(base.X), base.y, torch.ones(len(base), dtype=torch.bool))
    for i in range(len(base)):
        rows = [j for j in range(len(base)) if j != i]
        refit = replace(FittedLDA.of(Examples.of(base.X[rows], base.y[rows])), shrinkage=1.0, isotropic=lda.isotropic)
        distances = refit.distances(base.X[i : i + 1])[0]
        n = refit.counts
        torch.testing.assert_close(found[i], -0.5 * (n / (n + 1) * distances + 0.8 * torch.log(1 + 1 / n)), **EXACT)


@pytest.mark.parametrize("shrinkage", [0.05, 0.6, 1.0])
@pytest.mark.parametrize("d", [5, 40], ids=["d < n", "d > n"])
def test_distances_to_classes_are_those_of_an_explicit_inverse(d: int, shrinkage: float) -> None:
    base, (X, y) = base_examples(d), later_examples([3, 1, 4], d)
    random = torch.Generator().manual_seed(1)
    counted, later = (torch.rand(n, generator=random, dtype=X.dtype) + 0.5 for n in (len(base), len(X)))
    base, points = Examples.of(base.X, base.y, weights=counted), torch.randn(7, d, generator=random, dtype=X.dtype)
    everything, labels, weights = torch.cat([base.X, X]), torch.cat([base.y, y]), torch.cat([counted, later])
    means = [(weights[labels == c, None] * everything[labels == c]).sum(0) for c in range(N_BASE + 3)]
    counts = torch.stack([weights[labels == c].sum() for c in range(N_BASE + 3)])
    means = torch.stack(means) / counts[:, None]
    S = sum(w * torch.outer(x - means[c], x - means[c]) for x, c, w in zip(base.X, base.y, counted, strict=True))
    S = S / FittedLDA.of(base).freedom
    A = torch.linalg.inv((1 - shrinkage) * S + shrinkage * S.trace() / d * torch.eye(d, dtype=X.dtype))
    expected = [[(x - mean) @ A @ (x - mean) for mean in means] for x in points]
    found, distances = distances_to_classes(base, X, y, N_BASE + 3, later, points)
    torch.testing.assert_close(found, counts, **EXACT)
    torch.testing.assert_close(distances(shrinkage), torch.tensor(expected, dtype=X.dtype), **EXACT)


@pytest.mark.parametrize("d", [5, 40])
def test_grown_lda_holds_the_means_and_counts_of_all_rows(d: int) -> None:
    base, (X, y) = base_examples(d), later_examples([3, 1, 4], d, extra=(1, 1, 2))
    before = FittedLDA.of(base)
    after = before.grown(X, y, N_BASE + 3)
    everything, labels = torch.cat([base.X, X]), torch.cat([base.y, y])
    for c in range(N_BASE + 3):
        rows = labels == c
        torch.testing.assert_close(after.means[c] + after.centre, everything[rows].mean(0), **EXACT)
        assert float(after.counts[c]) == int(rows.sum())
    for name in ("basis", "variances", "isotropic", "freedom", "centre"):  # the covariance is that of the base
        assert getattr(after, name) is getattr(before, name)
    for c in (0, 3):  # no example of theirs arrived
        assert torch.equal(after.means[c], before.means[c])


def test_growing_twice_is_growing_once() -> None:
    base, (X, y) = base_examples(), later_examples([3, 1, 4], extra=(0, 2))
    lda = FittedLDA.of(base)
    cut = int((y < N_BASE + 2).sum())
    order = torch.argsort(y, stable=True)
    X, y = X[order], y[order]
    once, twice = lda.grown(X, y, N_BASE + 3), lda.grown(X[:cut], y[:cut], N_BASE + 2).grown(X[cut:], y[cut:], 7)
    torch.testing.assert_close(twice.means, once.means, **EXACT)
    assert torch.equal(twice.counts, once.counts)


def test_only_some_classes() -> None:
    base = base_examples()
    classes = torch.tensor([3, 0])
    rows = torch.arange(N_BASE).repeat_interleave(2)
    density = exemplar_density(base.X[:8], rows, torch.arange(1.0, 9.0, dtype=torch.float64), N_BASE, 9.0, 0.7)
    lda = replace(FittedLDA.of(base), shrinkage=0.3, count_penalty=0.4, temperature=0.9)
    pool = Pool((RandomFeatures(Ridge(), 20),)).fit(base).expert
    for expert in (density, lda, pool):
        expected = expert.log_probabilities(base.X)[:, classes].log_softmax(1)
        torch.testing.assert_close(expert.only(classes).log_probabilities(base.X), expected, **EXACT)
        twice = expert.only(torch.tensor([2, 3, 0])).only(torch.tensor([1, 2]))
        torch.testing.assert_close(twice.log_probabilities(base.X), expected, **EXACT)


def test_an_expert_that_learns_nothing_from_single_examples_stays_as_it_is() -> None:
    base = base_examples()
    expert = Ridge().fit(base).expert
    assert expert.grown(base.X[:2], base.y[:2], N_BASE) is expert


# ------------------------------------------------------------------------------------------------------------- density


def density_score(
    x: Tensor, points: Tensor, labels: list[int], weights: list[float], c: int, beta: float, skip: int = -1
) -> float:
    """log of the weighted mean of exp(β(g − 1)) over the points of a class, without one of them."""
    rows = [j for j in range(len(labels)) if labels[j] == c and j != skip]
    total = sum(weights[j] * math.exp(beta * (float(x @ points[j]) - 1)) for j in rows)
    return math.log(total / sum(weights[j] for j in rows)) if rows else math.nan


@pytest.mark.parametrize("beta", [5.0, 60.0])
def test_weighted_density(beta: float) -> None:
    base = base_examples()
    rows = torch.tensor([0, 3, 4, 7, 9, 11, 15, 20])
    labels, weights = base.y[rows].tolist(), [2.5, 1.5, 7.5, 0.5, 3.5, 1.5, 2.5, 4.5]
    density = exemplar_density(base.X[rows], base.y[rows], torch.tensor(weights), N_BASE, beta, 0.6)
    new, _ = blobs([4], 5, seed=1)
    expected = [[density_score(x, base.X[rows], labels, weights, c, beta) for c in range(N_BASE)] for x in new]
    torch.testing.assert_close(density.scores(new)[0], torch.tensor(expected, dtype=torch.float64), **EXACT)
    tempered = (0.6 * torch.tensor(expected, dtype=torch.float64)).log_softmax(1)
    torch.testing.assert_close(density.log_probabilities(new), tempered, **EXACT)


def test_a_point_is_left_out_of_its_own_density() -> None:
    X, y = blobs([4, 1, 3], 5)
    weights = torch.linspace(0.5, 3, len(y), dtype=torch.float64)
    density = exemplar_density(X, y, weights, 3)
    new, _ = blobs([2], 5, seed=1)
    asked, own = torch.cat([X, new]), torch.cat([torch.arange(len(y)), torch.full((2,), -1)])
    found = density.scores(asked, (5.0, 30.0), own)
    for k, beta in enumerate((5.0, 30.0)):
        for i in range(len(asked)):
            for c in range(3):
                expected = density_score(asked[i], X, y.tolist(), weights.tolist(), c, beta, int(own[i]))
                if not math.isnan(expected):
                    assert float(found[k, i, c]) == pytest.approx(expected, abs=1e-9)
    assert bool(torch.isfinite(found).all())


def test_an_exemplar_never_scores_itself() -> None:
    base = Examples.of(*blobs(COUNTS, 5), folds=torch.full((sum(COUNTS),), ALONE))
    rows = torch.cat([(base.y == c).nonzero()[:2, 0] for c in range(N_BASE)])
    weights = torch.tensor([2.5, 1.5, 3.5, 0.5, 1.5, 6.5, 2.5, 1.5])
    fit = ExemplarDensity(rows, weights, sharpnesses=(10.0,)).fit(base)
    for i in range(len(base)):
        skip = rows.tolist().index(i) if i in rows else -1
        args = (base.X[rows], base.y[rows].tolist(), weights.tolist())
        scores = [density_score(base.X[i], *args, c, 10.0, skip) for c in range(N_BASE)]
        expected = (fit.expert.temperature * torch.tensor(scores, dtype=torch.float64)).log_softmax(0)
        torch.testing.assert_close(fit.left_out[i], expected, **EXACT)


def test_a_grown_density_holds_all_points() -> None:
    X, y = blobs([4, 2], 5)
    later, labels = blobs([1, 2, 3], 5, seed=2)
    weights = torch.linspace(0.5, 3, len(y), dtype=torch.float64)
    grown = exemplar_density(X, y, weights, 2, 8.0).grown(later, labels, 3)
    whole = exemplar_density(
        torch.cat([X, later]), torch.cat([y, labels]), torch.cat([weights, weights.new_ones(6)]), 3, 8.0
    )
    assert torch.equal(grown.masses, whole.masses)
    assert torch.equal(grown.log_probabilities(X), whole.log_probabilities(X))


# --------------------------------------------------------------------------------------------------------------- ridge


@pytest.mark.parametrize("counts", [COUNTS, [4, 1, 3, 1]], ids=["several shots", "one shot"])
def test_kernel_ridge_at_a_setting_is_the_fit_with_it(counts: list[int]) -> None:
    examples = base_examples(counts=counts)
    fit = KernelRidge((0.3,)).fit(examples)
    at = KernelRidge().fit_at(examples, 0.3, fit.expert.temperature)
    torch.testing.assert_close(at.left_out, fit.left_out, **EXACT)
    assert torch.equal(at.usable, fit.usable)
    assert torch.equal(at.expert.weights, fit.expert.weights)
    torch.testing.assert_close(at.expert.log_probabilities(examples.X), fit.expert.log_probabilities(examples.X))


# -------------------------------------------------------------------------------------------------------- novel classes

EXEMPLARS = 2  # of each base class


def novel_experts(d: int = 5, counts: list[int] = COUNTS) -> tuple[NovelClassExperts, Examples, Tensor]:
    """Settings that no fit would give, so that every one of them matters; also the exemplars' rows."""
    base = base_examples(d, counts)
    rows = torch.cat([(base.y == c).nonzero()[:EXEMPLARS, 0] for c in range(base.n_classes)])
    weights = torch.linspace(0.5, 3.0, len(rows), dtype=torch.float64)
    projection = RandomFeatures(Ridge(), 15).projection(base.X)
    random = FittedRandomFeatures(FittedSingle(), projection, unit_length=True)
    inner = FittedLDA.of(replace(base, X=random.features(base.X)))
    learnt = NovelClassExperts(
        lda=replace(FittedLDA.of(base), shrinkage=0.3, count_penalty=0.5, temperature=0.8),
        random_lda=replace(random, expert=replace(inner, shrinkage=0.6, count_penalty=0.9, temperature=0.3)),
        density=exemplar_density(base.X[rows], base.y[rows], weights, base.n_classes, 12.0, 0.7),
        ridge_penalty=0.2,
        ridge_temperature=3.0,
        root_weights=torch.tensor([0.4, 0.1, 0.3, 0.5], dtype=torch.float64),
        bias=-0.35,
        novel_weights=torch.tensor([0.2, 0.6, 0.1, 0.4], dtype=torch.float64),
        trusts_labels=False,
    )
    return learnt, base, rows


def base_expert(base: Examples) -> FittedExpert:
    return Pool((RandomFeatures(Ridge(), 10),)).fit(base).expert


def log_softmax(values: np.ndarray) -> np.ndarray:
    values = values - values.max(-1, keepdims=True)
    return values - np.log(np.exp(values).sum(-1, keepdims=True))


def combination(
    base: np.ndarray, logs: np.ndarray, root: np.ndarray, bias: float, novel: np.ndarray, sharpness: float
) -> np.ndarray:
    """The formula of the module: M from base log-probabilities (T, B) and the four experts' (4, T, C)."""
    B = base.shape[1]
    M = np.empty(logs.shape[1:])
    for t in range(len(M)):
        total = sum(root[k] * logs[k, t] for k in range(4))
        r = np.log(np.exp(total[B:]).sum()) - np.log(np.exp(total[:B]).sum()) + bias
        among = log_softmax(sharpness * sum(novel[k] * logs[k, t, B:] for k in range(4)))
        M[t, :B] = -np.log1p(np.exp(r)) + base[t]
        M[t, B:] = -np.log1p(np.exp(-r)) + among
    return M


def filled(scores: Tensor, labels: list[int]) -> Tensor:
    """The class of an only example gets the mean score of the others there."""
    scores = scores.clone()
    for i, c in enumerate(labels):
        if labels.count(c) == 1:
            others = [k for k in range(scores.shape[1]) if k != c]
            scores[i, c] = scores[i, others].mean()
    return scores


def grow(learnt: NovelClassExperts, *about) -> tuple[FittedBaseNovelExpert, Tensor]:
    """Experts of all classes, and all left-out log-probabilities; those of base classes are the last argument."""
    *about, left_out = about
    grown, scores = learnt.grown(*about, left_out.__getitem__)
    return grown, scores.dense()


def left_out_logs(
    learnt: NovelClassExperts, base: Examples, rows: Tensor, later: tuple[Tensor, Tensor], C: int
) -> list[Tensor]:
    """Left-out log-probabilities (n, C) of the four experts at the exemplars and the later examples, by loops."""
    points, labels = torch.cat([base.X[rows], later[0]]), torch.cat([base.y[rows], later[1]]).tolist()
    asked = rows.tolist() + [len(base) + j for j in range(len(later[0]))]
    random = learnt.random_lda
    inner = replace(base, X=random.features(base.X))
    lda = left_out_lda(base, later, C, learnt.lda)[asked]
    random_lda = left_out_lda(inner, (random.features(later[0]), later[1]), C, random.expert)[asked]
    weights = learnt.density.weights.tolist() + [1.0] * len(later[0])
    density = torch.tensor(
        [
            [density_score(points[i], points, labels, weights, c, learnt.density.sharpness, i) for c in range(C)]
            for i in range(len(points))
        ],
        dtype=torch.float64,
    )
    ridge = kernel_ridge_scores(Examples.of(points, torch.tensor(labels), C), learnt.ridge_penalty)
    temperatures = (0.8, 0.3, 0.7, 3.0)
    return [
        (tau * filled(scores, labels)).log_softmax(1)
        for tau, scores in zip(temperatures, (lda, random_lda, density, ridge), strict=True)
    ]


@pytest.mark.parametrize("shots", [[3, 2, 4], [3, 1, 4], [4]], ids=["several", "one shot", "one class"])
@pytest.mark.parametrize("d", [5, 40], ids=["d < n", "d > n"])
def test_novel_classes_follow_the_formula(d: int, shots: list[int]) -> None:
    learnt, base, rows = novel_experts(d)
    later, C = later_examples(shots, d), N_BASE + len(shots)
    everyone = torch.arange(N_BASE)
    n = len(rows) + len(later[0])
    generator = torch.Generator().manual_seed(0)
    base_left_out = torch.randn(n, N_BASE, generator=generator, dtype=torch.float64).log_softmax(1)
    expert = base_expert(base)
    grown, left_out = grow(learnt, expert, everyone, *later, base_left_out)
    assert grown.ridge.points is grown.density.points  # and so are their products with new rows

    logs = left_out_logs(learnt, base, rows, later, C)
    sharpness = 1.0
    calibration_rows = [c for c in range(len(shots)) if shots[c] > 1]
    if len(calibration_rows) > 1:
        at = [len(rows) + j for j, c in enumerate(later[1].tolist()) if c - N_BASE in calibration_rows]
        columns = [N_BASE + c for c in calibration_rows]
        scores = sum(v * log[at][:, columns] for v, log in zip(learnt.novel_weights.tolist(), logs, strict=True))
        labels = torch.tensor([columns.index(int(later[1][i - len(rows)])) for i in at])
        total = sum(w * log[at] for w, log in zip(learnt.root_weights.tolist(), logs, strict=True))
        is_novel = (total[:, N_BASE:].logsumexp(1) - total[:, :N_BASE].logsumexp(1) - 0.35).sigmoid().tolist()
        few = sum(shots) < 3 * len(shots)
        sharpness = believed_temperature(scores.log_softmax(1), labels, is_novel, C, few)
    settings = (learnt.root_weights.numpy(), -0.35, learnt.novel_weights.numpy(), sharpness)
    expected = combination(base_left_out.numpy(), np.stack([log.numpy() for log in logs]), *settings)
    np.testing.assert_allclose(left_out.numpy(), expected, atol=2e-4)  # of τ, which is sought up to 1e-4

    new, _ = blobs([6], d, seed=9)
    experts = (grown.lda, grown.random_lda, grown.density, grown.ridge)
    found = np.stack([each.log_probabilities(new).numpy() for each in experts])
    tau = float(grown.novel_weights[1] / learnt.novel_weights[1])
    assert tau == pytest.approx(sharpness, rel=3e-4)
    expected = combination(expert.log_probabilities(new).numpy(), found, *settings[:3], tau)
    np.testing.assert_allclose(grown.log_probabilities(new).numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("shots", [[3, 2, 4], [1, 1, 1]], ids=["several", "one shot"])
@pytest.mark.parametrize("everyone", [True, False], ids=["all rows", "some rows"])
def test_scores_that_are_not_kept_are_computed_when_asked_for(
    shots: list[int], everyone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt, base, rows = novel_experts()
    later, n_later = later_examples(shots), sum(shots)
    n = len(rows) + n_later
    left_out = torch.randn(n, N_BASE, generator=torch.Generator().manual_seed(0)).double().log_softmax(1)
    about = (base_expert(base), torch.arange(N_BASE), *later, left_out.__getitem__)
    asked = torch.arange(n)[0 if everyone else 3 :]
    kept, scores = learnt.grown(*about)
    monkeypatch.setattr(novel, "MAX_TABLE", 0)
    computed, others = learnt.grown(*about, rows=asked)
    torch.testing.assert_close(computed.novel_weights, kept.novel_weights, **EXACT)
    torch.testing.assert_close(others.dense(), scores.dense(), **EXACT)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(others.at(order), scores.dense()[order], **EXACT)
    M = scores.dense()
    for first in range(len(shots)):
        found = others.against(order, first)
        before = M[order][:, : N_BASE + first].logsumexp(1, keepdim=True)
        torch.testing.assert_close(found, torch.cat([before, M[order][:, N_BASE + first :]], 1), **EXACT)


@pytest.mark.parametrize(("shots", "few"), [([3, 1, 5], False), ([3, 2, 3], True)])
def test_classes_have_few_rows_or_not_however_many_a_choice_is_made_on(
    shots: list[int], few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt, base, rows = novel_experts()
    later, chosen_on, found = later_examples(shots), 5, []
    n = len(rows) + len(later[0])
    monkeypatch.setattr(calibration, "MAX_CALIBRATION_SIZE", chosen_on * sum(c > 1 for c in shots))
    monkeypatch.setattr(calibration, "MIN_CALIBRATION_ROWS", 1)
    monkeypatch.setattr(novel_scores, "with_beliefs", lambda *given: found.append(given[3:]) or with_beliefs(*given))
    left_out = torch.zeros(n, N_BASE, dtype=torch.float64).log_softmax(1)
    about = (base_expert(base), torch.arange(N_BASE), *later, left_out.__getitem__)
    for asked in (None, torch.arange(n)[torch.arange(n) != len(rows)]):  # a root sees all rows, or some
        learnt.grown(*about, rows=asked)
    assert [(len(counts), said) for counts, said in found] == [(chosen_on, few)] * 2


@pytest.mark.parametrize("kept", [[0, 1, 2, 3], [0, 2]], ids=["all base classes", "some"])
def test_a_wrong_label_may_be_any_class_that_is_there(kept: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Base classes that were not cut out, and novel ones, also those of one row."""
    learnt, base, _ = novel_experts()
    X, y = later_examples([3, 1, 4])
    found: list[int] = []
    monkeypatch.setattr(novel_scores, "with_beliefs", lambda *given: found.append(given[2]) or with_beliefs(*given))
    left_out = torch.zeros(EXEMPLARS * len(kept) + len(X), len(kept), dtype=torch.float64).log_softmax(1)
    classes = torch.tensor(kept)
    grow(learnt, base_expert(base).only(classes), classes, X, y - N_BASE + len(kept), left_out)
    assert found == [len(kept) + 3]


@pytest.mark.parametrize("shots", [[2, 2], [5, 5]], ids=["few", "several"])
def test_where_no_label_is_believed_the_sharpness_is_that_of_trusted_labels(shots: list[int]) -> None:
    """No row looks like one of a novel class: the probabilities of their labels are 0."""
    learnt, base, rows = novel_experts()
    learnt = replace(learnt, bias=-1e4)
    left_out = torch.zeros(len(rows) + sum(shots), N_BASE, dtype=torch.float64).log_softmax(1)
    about = base_expert(base), torch.arange(N_BASE), *later_examples(shots), left_out
    doubting, trusting = (grow(replace(learnt, trusts_labels=trusts), *about)[0] for trusts in (False, True))
    assert torch.equal(doubting.novel_weights, trusting.novel_weights)


def test_novel_classes_never_change_what_is_said_among_base_classes() -> None:
    learnt, base, rows = novel_experts()
    expert = base_expert(base)
    later = later_examples([3, 2])
    left_out = torch.zeros(len(rows) + 5, N_BASE, dtype=torch.float64)
    grown, _ = grow(learnt, expert, torch.arange(N_BASE), *later, left_out)
    found = grown.log_probabilities(base.X)
    torch.testing.assert_close(found[:, :N_BASE].log_softmax(1), expert.log_probabilities(base.X), **EXACT)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(len(base), dtype=torch.float64), **EXACT)


def test_novel_classes_beside_some_of_the_base_classes() -> None:
    """Removed classes are gone from all four experts, as if the base statistics had never held their means."""
    learnt, base, rows = novel_experts()
    kept = torch.tensor([0, 2, 3])
    later_X, later_y = later_examples([3, 2], extra=(1, 2))
    later_y = torch.where(later_y >= N_BASE, later_y - 1, later_y)
    n_exemplars = EXEMPLARS * len(kept)
    left_out = torch.randn(n_exemplars + len(later_X), 3, generator=torch.Generator().manual_seed(0)).double()
    expert = base_expert(base).only(kept)
    grown, found = grow(learnt, expert, kept, later_X, later_y, left_out.log_softmax(1))
    assert found.shape == (n_exemplars + len(later_X), 5)
    assert bool(torch.isfinite(found).all())
    assert grown.lda.counts.tolist() == [6, 9, 6, 3, 2]  # 8 + 1 of class 2, 5 + 1 of class 3
    stay = torch.isin(base.y[rows], kept)
    assert torch.equal(grown.density.points, torch.cat([base.X[rows][stay], later_X]))
    assert torch.equal(grown.density.labels[:n_exemplars], torch.tensor([0, 0, 1, 1, 2, 2]))
    torch.testing.assert_close(found.exp().sum(1), torch.ones(len(found), dtype=torch.float64), **EXACT)


@pytest.mark.parametrize("shots", [[3, 2], [1, 2], [1, 1]], ids=["several", "one of one", "one shot"])
def test_what_base_classes_score_is_known_while_nothing_of_theirs_changes(
    shots: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers as from scoring all classes at all points, without scoring base classes again."""
    learnt, base, rows = novel_experts()
    three = {name: getattr(learnt, name)[:3] for name in ("root_weights", "novel_weights")}
    learnt = replace(learnt, ridge_penalty=None, ridge_temperature=None, **three)
    weights = torch.linspace(0.5, 2.0, len(rows), dtype=torch.float64)
    ready = learnt.with_base_mass(weights)
    assert ready.base_mass is not None
    later_X, later_y = later_examples(shots)
    weights = torch.cat([weights, torch.ones(len(later_X), dtype=torch.float64)])
    left_out = torch.randn(len(weights), N_BASE, generator=torch.Generator().manual_seed(0)).double().log_softmax(1)
    given = (base_expert(base), torch.arange(N_BASE), later_X, later_y, left_out.__getitem__, weights)
    arrivals = ready.at_arrivals(later_X, shots)
    monkeypatch.setattr(novel.FittedKernelDensity, "scores", counted := Counted(novel.FittedKernelDensity.scores))
    _, found = ready.grown(*given, arrivals=arrivals)
    assert max(counted.classes) == len(shots)
    _, scored = ready.grown(*given)
    assert max(counted.classes) == N_BASE + len(shots)
    torch.testing.assert_close(found.dense(), scored.dense(), **EXACT)
    some = learnt.with_base_mass(weights[: len(rows)], torch.tensor([1, 4]))  # and computed elsewhere
    assert some.base_mass is not None
    torch.testing.assert_close(some.base_mass, ready.base_mass[[1, 4]], **EXACT)
    torch.testing.assert_close(some.grown(*given, arrivals=arrivals)[1].dense(), found.dense(), **EXACT)


class Counted:
    """A method of a kernel density that remembers how many classes were scored."""

    def __init__(self, method) -> None:
        self.method, self.classes = method, list[int]()

    def __get__(self, density, owner):
        def scores(*given, **named):
            self.classes.append(len(density.masses))
            return self.method(density, *given, **named)

        return scores


def test_arrivals_are_scored_once_and_for_themselves() -> None:
    """Bit for bit the same whatever else has arrived, and whether it was there before or not."""
    learnt, _, _ = novel_experts()
    X, _ = blobs([3, 2, 4], 5, seed=3)
    one, two, three = X.split([3, 2, 4])
    everything = learnt.at_arrivals(X, [3, 2, 4])
    assert torch.equal(learnt.at_arrivals(torch.cat([three, one]), [4, 3]), everything[[5, 6, 7, 8, 0, 1, 2]])
    assert torch.equal(replace(learnt).at_arrivals(two, [2]), everything[3:5])
    scores = learnt.lda.distances(X)
    scores = -0.5 * (learnt.lda.counts / (learnt.lda.counts + 1) * scores)
    scores = scores - 0.5 * learnt.lda.count_penalty * torch.log1p(1 / learnt.lda.counts)
    torch.testing.assert_close(everything[:, 1], scores.sum(1), **EXACT)


@pytest.mark.parametrize("counts", [COUNTS, [1, 1, 1, 1], [3]], ids=["several", "one shot", "one class"])
@pytest.mark.parametrize("shots", [[1], [1, 1, 1], [2, 1], [30, 1]])
@pytest.mark.parametrize("d", [3, 50])
def test_hard_novel_classes_stay_finite(counts: list[int], shots: list[int], d: int) -> None:
    learnt, base, rows = novel_experts(d, counts)
    X, y = blobs(shots, d, seed=3)
    n_base = len(counts)
    expert = FittedSingle() if n_base == 1 else base_expert(base)
    left_out = torch.zeros(len(rows) + len(X), n_base, dtype=torch.float64).log_softmax(1)
    grown, found = grow(learnt, expert, torch.arange(n_base), X, n_base + y, left_out)
    for logs in (found, grown.log_probabilities(X)):
        assert bool(torch.isfinite(logs).all())
        torch.testing.assert_close(logs.exp().sum(1), torch.ones(len(logs), dtype=torch.float64), **EXACT)


def test_novel_classes_in_single_precision() -> None:
    learnt, base, rows = novel_experts()
    later = later_examples([3, 2])
    left_out = torch.zeros(len(rows) + 5, N_BASE, dtype=torch.float64).log_softmax(1)
    expert = base_expert(base)
    double = grow(learnt, expert, torch.arange(N_BASE), *later, left_out)[1]
    tensors, settings = learnt.state()
    single = restore({k: v.float() if v.is_floating_point() else v for k, v in tensors.items()}, settings)
    found = grow(single, expert, torch.arange(N_BASE), later[0].float(), later[1], left_out.float())[1]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), double, rtol=0, atol=2e-3)


# --------------------------------------------------------------------------------------------------------------- states


def stored(record):
    tensors, settings = record.state()
    assert all(isinstance(value, Tensor) for value in tensors.values())
    return restore(tensors, json.loads(json.dumps(settings)))


def test_novel_classes_and_what_they_give_come_back_from_tensors_and_json() -> None:
    learnt, base, rows = novel_experts()
    later = later_examples([3, 2])
    left_out = torch.zeros(len(rows) + 5, N_BASE, dtype=torch.float64).log_softmax(1)
    new, _ = blobs([6], 5, seed=9)
    arguments = (base_expert(base), torch.arange(N_BASE), *later, left_out)
    grown, found = grow(learnt, *arguments)
    again, found_again = grow(stored(learnt), *arguments)
    assert torch.equal(found_again, found)
    assert torch.equal(again.log_probabilities(new), grown.log_probabilities(new))
    back = stored(grown)
    assert isinstance(back, FittedBaseNovelExpert)
    assert isinstance(back.density, FittedKernelDensity)
    assert torch.equal(back.log_probabilities(new), grown.log_probabilities(new))


def test_parts_and_single_classes_come_back() -> None:
    _, base, _ = novel_experts()
    part = base_expert(base).only(torch.tensor([2, 0]))
    assert torch.equal(stored(part).log_probabilities(base.X), part.log_probabilities(base.X))
    assert stored(FittedSingle()).log_probabilities(base.X).tolist() == [[0.0]] * len(base)
