"""Rehearsals on base classes: what an episode holds, and what is learnt from several."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gptree.experts import (
    LDA,
    Examples,
    FittedExpert,
    FittedLDA,
    FittedSingle,
    KernelDensity,
    NovelClassExperts,
    Pool,
    exemplar_density,
    temperature_centre,
)
from gptree.incremental import Growth, Herding, episodes
from gptree.incremental.episodes import Episode, learn_novel_experts, make_episode
from gptree.incremental.exemplars import select_exemplars
from gptree.tree import label_hashes


@pytest.fixture(autouse=True)
def few_random_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes, "RANDOM_LDA", replace(episodes.RANDOM_LDA, count=40))


def blobs(counts: list[int], d: int = 6, seed: int = 0, noise: float = 0.5) -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat(np.arange(len(counts)), counts))
    X = random.normal(size=(len(counts), d))[y] + noise * random.normal(size=(len(y), d))
    return torch.as_tensor(X / np.linalg.norm(X, axis=1, keepdims=True)), torch.as_tensor(y)


def names(n: int) -> np.ndarray:
    return label_hashes([f"class {c}" for c in range(n)])


def learn(
    X: Tensor, y: Tensor, growth: Growth | None = None, seed: int = 0, base: FittedExpert | None = None
) -> NovelClassExperts:
    growth = Growth() if growth is None else growth
    hashes = names(int(y.max()) + 1)
    exemplars = select_exemplars(X.numpy(), y.numpy(), growth.exemplars, growth.selection, hashes, seed)
    return learn_novel_experts(X, y, exemplars, hashes, growth, seed, FittedSingle() if base is None else base)


def episode(X: Tensor, y: Tensor, share: float = 0.35, growth: Growth | None = None, seed: int = 0) -> Episode:
    found = make_episode(X, y, names(int(y.max()) + 1), share, growth or Growth(), [seed, 0])
    assert found is not None
    return found


# ------------------------------------------------------------------------------------------------------- one of them


@settings(deadline=None, max_examples=60)
@given(
    counts=st.lists(st.sampled_from([1, 2, 3, 6, 14, 70]), min_size=2, max_size=9),
    share=st.sampled_from([0.1, 0.2, 0.35, 0.5, 1.0]),
    shots=st.integers(1, 6),
    exemplars=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_what_an_episode_holds(counts, share: float, shots: int, exemplars: int, seed: int) -> None:
    X, y = blobs(counts, seed=seed)
    found = episode(X, y, share, Growth(exemplars, shots, selection=Herding()), seed)
    row_of = {tuple(x.tolist()): i for i, x in enumerate(X)}

    def rows(features: Tensor) -> list[int]:
        return [row_of[tuple(x.tolist())] for x in features]

    C = len(counts)
    n_novel = min(max(1, round(share * C)), C - 1)
    assert (found.n_classes, found.n_base) == (C, C - n_novel)
    kept, shown, asked = rows(found.base.X), rows(found.shots), rows(found.queries)
    assert [each.tolist() for each in found.rows] == [kept, shown, asked]
    everything = kept + shown + asked
    assert len(set(everything)) == len(everything)  # no query among what is known, and nothing twice
    numbers = torch.cat([found.base.y, found.shot_labels, found.labels]).tolist()
    number_of = dict(zip(y[everything].tolist(), numbers, strict=True))
    assert [number_of[c] for c in y[everything].tolist()] == numbers  # one number a class, in all three parts
    assert sorted(number_of.values()) == list(range(C))
    for c, n in enumerate(counts):
        known, queries = sum(y[i] == c for i in kept + shown), sum(y[i] == c for i in asked)
        old = number_of[c] < found.n_base
        assert known == (max(int(0.8 * n), n - 12, 1) if old else min(shots, max(n - 1, 1)))
        assert queries == min(12, n - known)
    assert set(found.base.y.tolist()) == set(range(found.n_base))
    assert set(found.shot_labels.tolist()) == set(range(found.n_base, C))
    labels = found.base.y.numpy()[found.exemplars.rows]
    assert np.bincount(labels, minlength=found.n_base).max() <= exemplars
    assert set(labels.tolist()) == set(range(found.n_base))


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_novel_classes_queries_and_exemplars_are_held_out(share: float) -> None:
    """Of 40 rows of a class 10 are unseen: five stay for exemplars, or are shots; five are queries."""
    X, y = blobs([40] * 6)
    held_out = np.zeros(len(y), dtype=bool)
    for c in range(6):
        held_out[np.flatnonzero(y.numpy() == c)[:10]] = True
    found = make_episode(X, y, names(6), share, Growth(2), [0, 0], held_out)
    assert found is not None
    fresh = {tuple(x.tolist()) for x in X[held_out]}

    def unseen_in(features: Tensor) -> list[bool]:
        return [tuple(x.tolist()) in fresh for x in features]

    assert all(unseen_in(found.shots))
    assert all(unseen_in(found.queries))
    assert all(unseen_in(found.base.X[found.exemplars.rows]))
    assert torch.bincount(found.labels).tolist() == [5] * 6
    assert torch.bincount(found.base.y).tolist() == [35] * found.n_base  # all that are seen, and five more
    everyone = make_episode(X, y, names(6), share, Growth(2), [0, 0], np.ones(len(y), dtype=bool))
    assert everyone is not None
    assert torch.equal(everyone.queries, episode(X, y, share, Growth(2)).queries)


def test_an_episode_depends_on_its_seed() -> None:
    X, y = blobs([6] * 8)
    first, again, other = (episode(X, y, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.queries, again.queries)
    assert torch.equal(first.shots, again.shots)
    assert not torch.equal(first.shots, other.shots)


def test_two_classes_can_be_split(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    select = episodes.select_exemplars
    monkeypatch.setattr(episodes, "select_exemplars", lambda *a, **b: seeds.append(a[5]) or select(*a, **b))
    X, y = blobs([6, 7])
    found = make_episode(X, y, names(2), 0.35, Growth(), [9, 4])
    assert found is not None
    assert (found.n_base, found.n_classes) == (1, 2)
    assert seeds == [9]  # as in the base session, whichever episode it is


def test_where_no_query_is_left_the_most_careful_settings_are_taken() -> None:
    X, y = blobs([2, 1, 3])
    examples = Examples.of(X, y)
    lda = FittedLDA.of(examples)
    choice = episodes._choose_lda([], lda, X)
    gaps = [[float((a - b).square().sum()) for b in lda.means] for a in lda.means]
    n = torch.tensor([2.0, 1.0, 3.0], dtype=torch.float64)
    scores = -0.5 * n / (n + 1) * torch.tensor(gaps, dtype=torch.float64) / lda.isotropic
    centre = temperature_centre(scores, 2.0)
    assert choice.settings == pytest.approx({"shrinkage": 1.0, "count_penalty": 6.0, "temperature": centre})

    density = exemplar_density(X, y, torch.tensor([0.5, 1.0, 2.0, 1.0, 1.5, 1.0]), 3)
    choice = episodes._choose_density([], density)
    centre = temperature_centre(density.scores(X, (5.0,))[0], 2.0)
    assert choice.settings == pytest.approx({"sharpness": 5.0, "temperature": centre})

    choice = episodes._choose_ridge([], X)
    centre = temperature_centre((X @ X.T - 1).exp(), 2.0)
    assert choice.settings == pytest.approx({"penalty": 3.0, "temperature": centre})
    assert choice.logs == []


def test_queries_whose_labels_are_not_believed_at_all_ask_nothing() -> None:
    X, y = blobs([6] * 8)
    hashes, growth = names(8), Growth()
    exemplars = select_exemplars(X.numpy(), y.numpy(), growth.exemplars, growth.selection, hashes, 0)
    about = X, y, exemplars, hashes, growth, 0, FittedSingle()
    beliefs = torch.where(y == 3, 0.0, 1.0).double()
    found = make_episode(X, y, hashes, 0.35, growth, [0, 0], asked_weights=beliefs)
    assert found is not None
    believed = {tuple(x.tolist()) for x in X[y != 3]}
    everyone = [tuple(x.tolist()) for x in episode(X, y).queries]
    assert [tuple(x.tolist()) for x in found.queries] == [x for x in everyone if x in believed] != everyone
    none = learn_novel_experts(*about, beliefs=torch.zeros_like(beliefs))
    assert none.root_weights.tolist() == none.novel_weights.tolist() == [0.25] * 4
    assert none.bias == 0.0


def test_one_class_cannot_be_split() -> None:
    assert make_episode(*blobs([5]), names(1), 0.5, Growth(), [0, 0]) is None


def test_queries_of_many_classes_are_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs([10] * 6)
    whole = episode(X, y)
    monkeypatch.setattr(episodes, "MAX_SCORES", 60)
    monkeypatch.setattr(episodes, "MIN_QUERIES", 7)
    part = episode(X, y)
    assert len(part.queries) == 10  # 60 scores of 6 classes
    assert torch.equal(part.shots, whole.shots)
    there = {tuple(x.tolist()): int(c) for x, c in zip(whole.queries, whole.labels, strict=True)}
    assert [there[tuple(x.tolist())] for x in part.queries] == part.labels.tolist()
    monkeypatch.setattr(episodes, "MAX_SCORES", 6)
    assert len(episode(X, y).queries) == 7


def test_many_classes_rehearse_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs([4] * 6)
    drawn: list[tuple[float, int]] = []

    def spied(*about, **more) -> Episode | None:
        drawn.append((about[3], about[5][1]))
        return make_episode(*about, **more)

    monkeypatch.setattr(episodes, "make_episode", spied)
    learn(X, y)
    assert drawn == [(share, k) for k, share in enumerate(episodes.NOVEL_SHARES)]
    monkeypatch.setattr(episodes, "MANY_CLASSES", 5)
    drawn.clear()
    learn(X, y)
    assert drawn == [(0.1, 0), (0.5, 3)]


# ------------------------------------------------------------------------------------------------------ what is learnt


@pytest.mark.parametrize(
    "counts",
    [[12] * 6, [2] * 5, [1] * 5, [9, 1, 3, 1, 2], [5, 5], [1, 1], [1, 4], [7], [1]],
    ids=lambda counts: "-".join(map(str, counts)),
)
@pytest.mark.parametrize("d", [3, 30])
def test_any_number_of_classes_and_examples(counts: list[int], d: int) -> None:
    X, y = blobs(counts, d)
    learnt = learn(X, y)
    tensors, _ = learnt.state()
    assert all(bool(torch.isfinite(value).all()) for value in tensors.values() if value.is_floating_point())
    for weights in (learnt.root_weights, learnt.novel_weights):
        assert weights.shape == (4,)
        assert float(weights.min()) >= 0
    assert math.isfinite(learnt.bias)
    for expert in (learnt.lda, learnt.random_lda.expert, learnt.density):
        assert 0 < expert.temperature < math.inf
    assert 0 < learnt.ridge_temperature < math.inf
    C = len(counts)
    later, shown = blobs([1, 3], d, seed=1)
    n = len(learnt.density.points) + len(later)
    base = FittedSingle() if C == 1 else learnt.lda
    uniform = torch.zeros(n, C).double().log_softmax(1)
    grown, scores = learnt.grown(base, torch.arange(C), later, C + shown, uniform.__getitem__)
    left_out = scores.dense()
    assert bool(torch.isfinite(left_out).all())
    assert bool(torch.isfinite(grown.log_probabilities(X)).all())


def test_the_statistics_are_those_of_all_base_examples() -> None:
    X, y = blobs([5, 8, 6])
    learnt = learn(X, y, Growth(exemplars=2))
    assert learnt.lda.counts.tolist() == [5, 8, 6]
    torch.testing.assert_close(learnt.lda.means + learnt.lda.centre, torch.stack([X[y == c].mean(0) for c in range(3)]))
    features = learnt.random_lda.features(X)
    inner = learnt.random_lda.expert
    assert isinstance(inner, FittedLDA)
    torch.testing.assert_close(inner.means + inner.centre, torch.stack([features[y == c].mean(0) for c in range(3)]))
    assert torch.bincount(learnt.density.labels).tolist() == [2, 2, 2]
    assert learnt.density.masses.tolist() == [6, 9, 7]  # ½ more for each exemplar


@pytest.mark.parametrize("random", [True, False], ids=["with random features", "without"])
def test_what_the_base_experts_know_is_not_computed_again(random: bool) -> None:
    X, y = blobs([5, 8, 6, 7])
    experts = (KernelDensity(), LDA(), *([episodes.RANDOM_LDA] if random else []))
    pool = Pool(experts).fit(Examples.of(X, y)).expert
    shared, alone = learn(X, y, base=pool), learn(X, y)
    assert shared.lda.basis is pool.experts[1].basis
    if random:
        assert shared.random_lda.projection is pool.experts[2].projection
    for name, value in alone.state()[0].items():  # alone, random features are in single precision
        if not name.endswith("basis"):  # its signs are free
            torch.testing.assert_close(shared.state()[0][name].to(value), value, rtol=0, atol=1e-5)
    torch.testing.assert_close(shared.lda.log_probabilities(X), alone.lda.log_probabilities(X))


def test_base_experts_that_know_other_examples_are_not_taken() -> None:
    X, y = blobs([5, 8, 6, 7])
    pool = Pool((LDA(), episodes.RANDOM_LDA)).fit(Examples.of(X[1:], y[1:])).expert
    examples = Examples.of(X, y)
    lda, random = episodes._discriminants(examples, pool)
    assert lda.counts.tolist() == random.expert.counts.tolist() == [5, 8, 6, 7]


def test_nothing_but_the_base_and_the_seed_matters() -> None:
    X, y = blobs([6] * 6)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 (the global state must not matter)
    first = learn(X, y).state()
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    again, other = learn(X, y).state(), learn(X, y, seed=1).state()
    assert again[1] == first[1]
    assert all(torch.equal(again[0][name], value) for name, value in first[0].items())
    assert not torch.equal(other[0]["root_weights"], first[0]["root_weights"])


def test_novel_classes_are_told_apart_from_each_other_and_from_the_base() -> None:
    X, y = blobs([15] * 9, noise=0.35)
    old, shots = y < 6, torch.zeros(len(y), dtype=torch.bool)
    for c in range(6, 9):
        shots[(y == c).nonzero()[:5, 0]] = True
    learnt = learn(X[old], y[old])
    n = len(learnt.density.points) + int(shots.sum())
    uniform = torch.zeros(n, 6).double().log_softmax(1)
    grown, _ = learnt.grown(learnt.lda, torch.arange(6), X[shots], y[shots], uniform.__getitem__)
    rest = ~old & ~shots
    assert float((grown.log_probabilities(X[rest]).argmax(1) == y[rest]).double().mean()) > 0.9
    assert float((grown.log_probabilities(X[old]).argmax(1) == y[old]).double().mean()) > 0.9


# ------------------------------------------------------------------------------------------------- choices are minima


def rehearsals(X: Tensor, y: Tensor) -> list[Episode]:
    hashes = names(int(y.max()) + 1)
    shares = episodes.NOVEL_SHARES
    found = [make_episode(X, y, hashes, share, Growth(), [0, k]) for k, share in enumerate(shares)]
    return [e for e in found if e is not None]


def least_nll(scores: Tensor, labels: Tensor) -> tuple[float, float]:
    """τ on a fine grid, with the prior around the temperature that the scores' spread suggests; and the least loss."""
    centre, n = math.log(temperature_centre(scores, 2.0)), len(labels)
    grid = [centre + step / 100 for step in range(-400, 401)]
    losses = [
        float(torch.nn.functional.cross_entropy(math.exp(t) * scores, labels)) + (t - centre) ** 2 / (2 * n)
        for t in grid
    ]
    best = int(np.argmin(losses))
    return math.exp(grid[best]), losses[best]


def check_choice(choice, candidates: dict[tuple, list[Tensor]], cases: list[Episode]) -> None:
    """Settings and temperature with the least loss over the queries of all episodes, and the log-probabilities."""
    labels = torch.cat([e.labels for e in cases])
    found = {values: least_nll(torch.cat(scores), labels) for values, scores in candidates.items()}
    best = min(found, key=lambda values: found[values][1])
    *chosen, temperature = choice.settings.values()
    np.testing.assert_allclose(chosen, best, rtol=1e-9)
    assert temperature == pytest.approx(found[best][0], rel=0.02)  # the grid's step is 0.01
    for logs, scores in zip(choice.logs, candidates[best], strict=True):
        torch.testing.assert_close(logs, (temperature * scores).log_softmax(1))


def test_the_sharpness_of_the_density_is_the_best() -> None:
    X, y = blobs([10] * 6)
    cases = rehearsals(X, y)
    candidates = {}
    for beta in (60.0, 45.0, 30.0, 20.0, 15.0, 10.0, 5.0):
        scores = []
        for e in cases:
            points = torch.cat([e.base.X[e.exemplars.rows], e.shots])
            labels = torch.cat([e.base.y[e.exemplars.rows], e.shot_labels])
            weights = torch.cat([torch.as_tensor(e.exemplars.weights), torch.ones(len(e.shots)).double()])
            each = torch.exp(beta * (e.queries @ points.T - 1)) * weights
            own = labels == torch.arange(e.n_classes)[:, None]
            scores.append(torch.stack([each[:, c].sum(1) / weights[c].sum() for c in own], 1).log())
        candidates[(beta,)] = scores
    density = exemplar_density(X[:6], torch.arange(6), torch.ones(6), 6)
    check_choice(episodes._choose_density(cases, density), candidates, cases)


def test_shrinkage_and_count_weight_of_lda_are_the_best() -> None:
    X, y = blobs([10] * 6)
    cases = rehearsals(X, y)
    moments = []
    for e in cases:
        means = torch.stack([e.base.X[e.base.y == c].mean(0) for c in range(e.n_base)])
        gaps = e.base.X - means[e.base.y]
        novel = [e.shots[e.shot_labels == c] for c in range(e.n_base, e.n_classes)]
        S = gaps.T @ gaps / (len(e.base) - e.n_base)
        counts = torch.tensor([*(int((e.base.y == c).sum()) for c in range(e.n_base)), *map(len, novel)])
        moments.append((torch.cat([means, torch.stack([x.mean(0) for x in novel])]), S, counts.double()))
    candidates = {}
    for shrinkage in episodes.SHRINKAGES:
        distances, spreads = [], []
        for e, (means, S, n) in zip(cases, moments, strict=True):
            eye = torch.eye(len(S), dtype=S.dtype)
            A = torch.linalg.inv((1 - shrinkage) * S + shrinkage * S.trace() / len(S) * eye)
            gaps = e.queries[:, None] - means
            distances.append(torch.einsum("tci,ij,tcj->tc", gaps, A, gaps))
            old = [t for t, c in enumerate(e.labels.tolist()) if c < e.n_base]
            own = [float(n[c] / (n[c] + 1) * distances[-1][t, c]) for t in old for c in [int(e.labels[t])]]
            spreads.append(np.mean(own))
        D = float(np.mean(spreads))
        for weight in episodes.COUNT_WEIGHTS:
            candidates[(shrinkage, weight * D)] = [
                -0.5 * n / (n + 1) * q - 0.5 * weight * D * torch.log(1 + 1 / n)
                for q, (_, _, n) in zip(distances, moments, strict=True)
            ]
    choice = episodes._choose_lda(cases, learn(X, y).lda, X)
    check_choice(choice, candidates, cases)


@pytest.mark.parametrize("most", [1000, 20], ids=["all points", "some points"])
def test_the_penalty_of_ridge_regression_is_the_best(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many points, penalties are compared on the first of them in the order of shots."""
    monkeypatch.setattr(episodes, "RIDGE_POINTS", most)
    X, y = blobs([10] * 6, noise=0.8)
    cases = rehearsals(X, y)

    def scores(e: Episode, penalty: float, most: int) -> Tensor:
        points = torch.cat([e.base.X[e.exemplars.rows], e.shots])
        labels = torch.cat([e.base.y[e.exemplars.rows], e.shot_labels])
        shot = [int((labels[:i] == c).sum()) for i, c in enumerate(labels.tolist())]
        taken = sorted(sorted(range(len(labels)), key=lambda i: (shot[i], i))[:most])
        points, labels = points[taken], labels[taken]
        count = torch.bincount(labels)[labels].double()
        W = torch.diag((1 / count / (1 / count).mean()).sqrt())
        K = W @ torch.exp(points @ points.T - 1) @ W + penalty * torch.eye(len(points))
        weights = W @ torch.linalg.inv(K) @ W @ torch.nn.functional.one_hot(labels, e.n_classes).double()
        return torch.exp(e.queries @ points.T - 1) @ weights

    grid = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    tried = {(penalty,): [scores(e, penalty, most) for e in cases] for penalty in grid}
    choice = episodes._choose_ridge(cases, X[:6])
    if most == 20:  # then the temperature is that of all points
        labels = torch.cat([e.labels for e in cases])
        best = min(tried, key=lambda values: least_nll(torch.cat(tried[values]), labels)[1])
        tried = {best: [scores(e, best[0], 1000) for e in cases]}
    check_choice(choice, tried, cases)


def pool_cases(seed: int) -> tuple[list[Tensor], list]:
    """Log-probabilities of four experts, the first good and the last harmful, at queries of two episodes."""
    random = torch.Generator().manual_seed(seed)
    logs, cases = [], []
    for Q, B, C in ((40, 5, 7), (30, 3, 7)):
        labels = torch.randint(C, (Q,), generator=random)
        told = torch.nn.functional.one_hot(labels, C) * torch.tensor([3.0, 1.0, 0.2, -1.5])[:, None, None]
        logs.append((told + torch.randn(4, Q, C, generator=random)).double().log_softmax(2))
        cases.append(SimpleNamespace(labels=labels, n_base=B, weights=torch.ones(len(labels), dtype=torch.float64)))
    return logs, cases


def root_loss(parameters: np.ndarray, logs: list[Tensor], cases: list) -> float:
    losses = []
    for log, e in zip(logs, cases, strict=True):
        for t, label in enumerate(e.labels.tolist()):
            total = sum(parameters[k] * log[k, t].numpy() for k in range(4))
            r = np.log(np.exp(total[e.n_base :]).sum()) - np.log(np.exp(total[: e.n_base]).sum()) + parameters[4]
            losses.append(np.log1p(np.exp(-r if label >= e.n_base else r)))
    return float(np.mean(losses)) + 1e-2 * float(np.square(parameters[:4] - 0.25).sum())


def novel_loss(weights: np.ndarray, logs: list[Tensor], cases: list) -> float:
    losses = []
    for log, e in zip(logs, cases, strict=True):
        for t, label in enumerate(e.labels.tolist()):
            if label >= e.n_base:
                total = sum(weights[k] * log[k, t, e.n_base :].numpy() for k in range(4))
                losses.append(np.log(np.exp(total).sum()) - total[label - e.n_base])
    return float(np.mean(losses)) + 1e-2 * float(np.square(weights - 0.25).sum())


@pytest.mark.parametrize("seed", range(3))
def test_learnt_weights_are_a_minimum(seed: int) -> None:
    logs, cases = pool_cases(seed)
    weights, bias = episodes._root_pool(logs, cases, 4, logs[0])
    root, novel = np.append(weights.numpy(), bias), episodes._novel_pool(logs, cases, 4, logs[0]).numpy()
    for loss, found in ((root_loss, root), (novel_loss, novel)):
        assert (found[:4] >= 0).all()
        assert found[3] == 0  # nothing negative, however harmful
        least = loss(found, logs, cases)
        for k in range(len(found)):
            for step in (-0.05, -0.01, 0.01, 0.05):
                moved = found.copy()
                moved[k] += step
                if k == 4 or moved[k] >= 0:
                    assert loss(moved, logs, cases) > least


def test_weights_stay_even_where_nothing_can_be_learnt() -> None:
    X, y = blobs([1] * 4)
    learnt = learn(X, y)
    assert learnt.root_weights.tolist() == learnt.novel_weights.tolist() == [0.25] * 4
    assert learnt.bias == 0.0


def test_of_many_classes_some_rehearse(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as if there were no others, for the settings that are chosen."""
    X, y = blobs([6] * 8)
    monkeypatch.setattr(episodes, "MOST_CLASSES", 5)
    weights, held_out = torch.arange(1.0, 49.0, dtype=torch.float64), np.arange(48) % 7 > 0
    some = episodes._players(X, y, names(8), held_out, weights, weights.flip(0))
    chosen = np.sort(np.argsort(names(8))[:5])
    rows = np.flatnonzero(np.isin(y.numpy(), chosen))
    assert torch.equal(some[0], X[rows])
    assert [chosen[c] for c in some[1]] == y[rows].tolist()
    assert np.array_equal(some[2], names(8)[chosen])
    assert np.array_equal(some[3], held_out[rows])
    assert torch.equal(some[4], weights[rows])
    assert torch.equal(some[5], weights.flip(0)[rows])
    monkeypatch.setattr(episodes, "make_episode", Kept(make_episode))
    learnt = learn(X, y)
    assert len(learnt.lda.counts) == 8
    assert [found.n_classes for found in episodes.make_episode.found] == [5] * 4


class Kept:
    """A function that remembers what it found."""

    def __init__(self, function) -> None:
        self.function, self.found = function, []

    def __call__(self, *given):
        self.found.append(self.function(*given))
        return self.found[-1]
