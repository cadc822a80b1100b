"""The base session, and what the nodes of later sessions are fitted to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gptree.experts import ExemplarScores, FittedSingle
from gptree.incremental import (
    BaseState,
    ClassRegistry,
    Entry,
    Graft,
    Growth,
    GrowthConfig,
    RebuildTree,
    SessionTree,
    SharedRoot,
    Strategy,
    base_experts,
    base_of,
    fit_base,
    grow,
    memory_left_out,
    replay,
    sessions,
    with_novel_experts,
)
from gptree.incremental import base as base_session
from gptree.inference import CoordinateAscent, DensePosterior, FixedInducingPoints, Gibbs, InducingPoints
from gptree.maths import as_kernel, make_kernel
from gptree.model import TrainingData, fit_forest
from gptree.progress import silent
from gptree.tree import ClassTree, build_tree

LABELS = ["ant", "bee", "cat", "dog", "eel"]
COUNTS = (9, 4, 12, 3, 7)
D, SEED, BUDGET = 6, 3, 2**28
GROWTH = Growth(exemplars=3, shots=3)
CENTRES = np.random.default_rng(0).normal(size=(12, D))


def points(classes: list[int], counts: list[int] | tuple[int, ...], seed: int) -> tuple[Tensor, np.ndarray]:
    random = np.random.default_rng(seed)
    y = np.repeat(classes, counts)
    X = CENTRES[y] + 0.4 * random.normal(size=(len(y), D))
    return torch.as_tensor(X / np.linalg.norm(X, axis=1, keepdims=True)), y


X, Y = points([0, 1, 2, 3, 4], COUNTS, 1)
MEANS = np.stack([part.mean(0).numpy() for part in X.split(COUNTS)])
TREES = [build_tree(None, MEANS, LABELS, seed) for seed in (0, 1)]
KERNEL = as_kernel(make_kernel("rbf", 5.0), torch.float64, torch.device("cpu"))
SWEEPS = CoordinateAscent(sweeps=3, tolerance=0.0)
NEW = points([0, 3, 5, 6], [2, 2, 2, 2], 9)[0]


def identity(x: Tensor) -> Tensor:
    return x


pytestmark = pytest.mark.usefixtures("few_random_features")


def fitted(inference=SWEEPS, with_experts: bool = True, growth: Growth = GROWTH) -> tuple[BaseState, np.ndarray]:
    base, rows, frequencies = fit_base(
        X,
        Y,
        LABELS,
        TREES,
        lambda spread: KERNEL,
        inference,
        growth,
        expert=base_experts(5) if with_experts else None,
        predict_at="mean",
        on_sphere=identity,
        memory_budget=BUDGET,
        n_jobs=None,
        seed=SEED,
    )
    if with_experts:
        np.testing.assert_allclose(frequencies, np.log(np.array(COUNTS) / sum(COUNTS)))
    return base, rows


@pytest.fixture(scope="module")
def base() -> BaseState:
    return fitted()[0]


def rules(strategy: Strategy = SharedRoot()) -> GrowthConfig:  # noqa: B008 (a frozen value)
    return GrowthConfig(strategy, SWEEPS, InducingPoints(), None, [0, 1], SEED, BUDGET, None, identity)


def entry(kind: Any, classes: list[int], counts: list[int], seed: int) -> Entry:
    features, _ = points(classes, counts, seed)
    labels = tuple(LABELS[c] if c < 5 else f"new {c}" for c in classes)
    return Entry(kind, labels, tuple(counts), features=features, rows=tuple(range(len(features))))


def state(*entries: Entry) -> ClassRegistry:
    return replay(LABELS, (Entry("fit", tuple(LABELS)), *entries), D, X)


TWO_SESSIONS = (entry("add_classes", [5, 6], [3, 2], 2), entry("add_classes", [7], [4], 3))


# ---------------------------------------------------------------------------------------------------- the base session


def test_only_exemplars_are_kept() -> None:
    base, rows = fitted()
    assert np.bincount(Y[rows]).tolist() == [3, 3, 3, 3, 3]
    assert torch.equal(base.X, X[rows])
    assert base.y.tolist() == Y[rows].tolist()
    assert base.exemplars.tolist() == list(range(15))
    assert torch.equal(base.stands_for, base.exemplar_weights)
    totals = np.bincount(Y[rows], base.stands_for.numpy())
    assert totals.tolist() == [n + 1.5 for n in COUNTS]
    assert isinstance(base.left_out, ExemplarScores)
    assert base.left_out.dense().shape == (15, 5)
    torch.testing.assert_close(base.left_out.dense().exp().sum(1), torch.ones(15, dtype=torch.float64))
    assert base.expert is not None
    in_sample = base.expert.log_probabilities(base.X)[torch.arange(15), base.y]
    assert float(base.left_out.dense()[torch.arange(15), base.y].mean()) < float(in_sample.mean())


def test_nodes_saw_all_examples_before_those_were_dropped(base: BaseState) -> None:
    """The same predictions as of a forest that still holds them."""
    exemplars = torch.cdist(base.X, X).argmin(1).tolist()
    kept = base_session.Exemplars(np.array(exemplars), base.exemplar_weights.numpy())
    given = base_session._Rows(X, X, torch.as_tensor(Y), None)
    fit = base_session._base_experts(base_experts(5), given, 5, kept, None, silent)
    pool, left_out = fit.expert, fit.left_out
    frequent = left_out + torch.tensor(COUNTS).log()  # nodes do not learn how large classes are
    data = TrainingData(X, Y, LABELS, frequent, inducing=np.array(exemplars))
    how = {"large_nodes": FixedInducingPoints(), "memory_budget": BUDGET, "seed": SEED}
    whole = fit_forest(TREES, data, KERNEL, SWEEPS, **how)
    scores = pool.log_probabilities(NEW)
    for at in ("mean", "quadrature"):
        expected = whole.log_probabilities(NEW, lambda rows: scores[rows], at)
        torch.testing.assert_close(base.model.log_probabilities(NEW, lambda rows: scores[rows], at), expected)
    assert isinstance(base.left_out, ExemplarScores)
    torch.testing.assert_close(base.left_out.dense(), left_out[exemplars], rtol=0, atol=1e-5)  # random features: single


def test_padding_of_nodes_may_be_a_row_that_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of few rows are dense, and padded with the first row of all."""
    a, b, c, d, e = LABELS
    tree = ClassTree.from_nested([[a, [b, c]], [d, e]], LABELS)  # nodes of three rows and of four are small ones
    X, y = points([0, 1, 2, 3, 4], [9, 1, 2, 2, 2], 4)
    made = []
    monkeypatch.setattr(
        base_session, "fit_forest", lambda *given, **how: made.append(fit_forest(*given, **how)) or made[-1]
    )
    about = LABELS, [tree], lambda spread: KERNEL, SWEEPS, replace(GROWTH, exemplars=3)
    how: dict[str, Any] = {"memory_budget": BUDGET, "n_jobs": None, "seed": SEED, "predict_at": "mean"}
    base, rows, _ = fit_base(X, y, *about, expert=None, on_sphere=identity, **how)
    assert 0 not in rows
    (whole,) = made
    padded = [p for p in whole.predictor.posteriors if isinstance(p, DensePosterior) and bool((p.omega == 0).any())]
    assert padded
    for at in ("mean", "quadrature"):
        expected = whole.log_probabilities(NEW, None, at)
        torch.testing.assert_close(base.model.log_probabilities(NEW, None, at), expected)


def test_scores_of_many_examples_are_not_held(base: BaseState, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are computed some rows at a time, and give the same base session."""
    monkeypatch.setattr("gptree.experts.left_out.MOST_KEPT", 0)
    streamed, _ = fitted()
    for a, b in zip(base.model.predictor.posteriors, streamed.model.predictor.posteriors, strict=True):
        torch.testing.assert_close(a.weights, b.weights)
    assert base.novelty is not None
    assert streamed.novelty is not None
    torch.testing.assert_close(base.novelty.signs, streamed.novelty.signs)


def test_sampling_is_for_later_classes() -> None:
    base, _ = fitted(Gibbs(chains=2), with_experts=False)
    assert {(p.kind, len(p.weights)) for p in base.model.predictor.posteriors} == {("sparse", 1)}
    assert (base.expert, base.left_out, base.novel_experts) == (None, None, None)
    grown = grow(base, state(*TWO_SESSIONS), replace(rules(), inference=Gibbs(chains=2), large_nodes=None))
    assert (grown.expert, grown.left_out) == (None, None)
    assert {(p.kind, len(p.weights)) for p in grown.model.predictor.posteriors} == {("sparse", 1), ("dense", 2)}
    assert bool(torch.isfinite(grown.model.log_probabilities(NEW)).all())


def test_the_strategy_plays_no_part_in_the_base_session(base: BaseState) -> None:
    other, _ = fitted(growth=replace(GROWTH, strategy=Graft()))
    for a, b in zip(base.model.predictor.posteriors, other.model.predictor.posteriors, strict=True):
        assert torch.equal(a.weights, b.weights)
    assert base.novel_experts is not None
    assert other.novel_experts is not None
    assert torch.equal(base.novel_experts.root_weights, other.novel_experts.root_weights)


def test_a_base_of_a_model_that_kept_everything() -> None:
    model = fit_forest(TREES, TrainingData(X, Y, LABELS), KERNEL, SWEEPS, memory_budget=BUDGET, seed=SEED)
    base = base_of(model, FittedSingle(), torch.zeros(len(X), 5), Y, LABELS, GROWTH, SEED, identity, held_out=False)
    assert base.model is model
    assert base.stands_for.tolist() == [1.0] * len(X)
    assert np.bincount(Y[base.exemplars]).tolist() == [3, 3, 3, 3, 3]
    assert base.novel_experts is None
    learnt = with_novel_experts(base, GROWTH, SEED, identity).novel_experts
    assert learnt is not None
    assert learnt.lda.counts.tolist() == list(COUNTS)
    assert torch.equal(learnt.density.points, X[base.exemplars])


# ------------------------------------------------------------------------------------------------------ later sessions


@dataclass
class Seen:
    """What nodes were fitted to and trees built from."""

    data: list[TrainingData]
    known: list[list[np.ndarray]]
    built: list[tuple[np.ndarray, list[Any], int]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    record = Seen([], [], [])
    problems, build = sessions.node_problems, sessions.build_tree

    def node_problems(trees, data, large_nodes, seed, fitted, n_fitted):
        record.data.append(data)
        record.known.append(fitted)
        return problems(trees, data, large_nodes, seed, fitted, n_fitted)

    def recorded(spec, means, labels, seed):
        record.built.append((means, list(labels), seed))
        return build(spec, means, labels, seed)

    monkeypatch.setattr(sessions, "node_problems", node_problems)
    monkeypatch.setattr(sessions, "build_tree", recorded)
    return record


def test_new_nodes_see_exemplars_and_shots(base: BaseState, seen: Seen) -> None:
    registry = state(*TWO_SESSIONS, entry("add_examples", [5], [2], 4))
    grown = grow(base, registry, rules())
    (data,) = seen.data
    later = [torch.cat([TWO_SESSIONS[0].features[:3], points([5], [2], 4)[0]]), TWO_SESSIONS[0].features[3:]]
    assert torch.equal(data.X, torch.cat([base.X, *later, TWO_SESSIONS[1].features]))
    counts = [3, 3, 3, 3, 3, 5, 2, 4]
    assert data.y.tolist() == np.repeat(np.arange(8), counts).tolist()
    assert list(data.labels) == [*LABELS, "new 5", "new 6", "new 7"]
    # each class counts as much as a novel class does on average, and never more than its examples
    mean = (5 + 2 + 4) / 3
    assert data.weights is not None
    expected = [min(1.0, mean / counts[c]) for c in data.y]
    np.testing.assert_allclose(data.weights.numpy(), expected)
    assert torch.equal(grown.y, torch.as_tensor(data.y))
    assert torch.equal(grown.model.predictor.grams.X[grown.rows], data.X)


@pytest.mark.parametrize("strategy", [SharedRoot(), SessionTree(), Graft()])
@pytest.mark.parametrize("most", [4000, 7])
@pytest.mark.parametrize("learns_sizes", [False, True])
def test_prior_means_of_new_nodes_are_log_odds_of_left_out_scores(
    base: BaseState, strategy: Strategy, most: int, learns_sizes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of earlier classes at most so many rows are seen, evenly, where new nodes are a root and what is below it.

    The means express what the rows of each class count for, so that nodes do not learn it; in older files they do.
    """
    monkeypatch.setattr("gptree.incremental.exemplars.ROOT_ROWS", most)
    given: list[tuple] = []
    problems = sessions.node_problems

    def node_problems(trees, data, large_nodes, seed, fitted, n_fitted):
        found = problems(trees, data, large_nodes, seed, fitted, n_fitted)
        given.append((trees, data, n_fitted, *found))
        return found

    monkeypatch.setattr(sessions, "node_problems", node_problems)
    grown = grow(base, state(*TWO_SESSIONS), replace(rules(strategy), learns_sizes=learns_sizes))
    trees, data, n_fitted, found, node_of = given[-1]
    M = memory_left_out(base, grown, identity)
    assert M is not None
    torch.testing.assert_close(M.exp().sum(1), torch.ones(len(M), dtype=M.dtype))
    memory = grown.model.predictor.grams.X[grown.rows]
    rows = torch.tensor([int((memory == x).all(1).nonzero()[0]) for x in data.X])  # all are different
    first = {SharedRoot(): 5, SessionTree(): 7}.get(strategy)
    counts, novel = np.bincount(data.y[data.y < (first or 99)]), data.y >= (first or 99)
    if first is not None and most == 7:
        assert counts.sum() == 7
        assert counts.max() - counts.min() <= 1
        assert novel.sum() == int((grown.y >= first).sum())
    else:
        assert len(rows) == len(M)
    if not learns_sizes:
        assert data.weights is not None
        mass = np.bincount(data.y, data.weights.numpy(), 8)
        mass[:first] = mass[:first].mean() if first is not None else mass[:first]  # one class to the new nodes
        M = M + torch.as_tensor(np.log(mass))
    checked = 0
    for tree, nodes in zip(trees, node_of, strict=True):
        for v in range(tree.n_nodes):
            if int(nodes[v]) >= n_fitted:
                problem = found[int(nodes[v]) - n_fitted]
                at = M[rows[problem.rows]]
                odds = at[:, tree.left(v).tolist()].logsumexp(1) - at[:, tree.right(v).tolist()].logsumexp(1)
                torch.testing.assert_close(problem.mean, odds, rtol=1e-6, atol=1e-5)  # random features: single
                checked += 1
    assert checked >= 2


@pytest.mark.parametrize("pair", [[0, 3], [1, 2], [3, 4]])
def test_nodes_on_the_path_of_either_of_two_base_classes_are_fitted_again(base: BaseState, pair: list[int]) -> None:
    grown = grow(base, state(entry("add_examples", pair, [2, 3], 4)), rules())
    kept = base.model.predictor.n_nodes
    for tree, nodes, before in zip(base.model.trees, grown.model.node_of, base.model.node_of, strict=True):
        for v in range(tree.n_nodes):
            touched = bool(set(pair) & set(tree.members(v).tolist()))
            assert int(nodes[v]) >= kept if touched else int(nodes[v]) == int(before[v])


def test_left_out_scores_are_those_of_the_novel_classes(base: BaseState) -> None:
    """A base class is gone, another has got examples: what the base experts said before those is left out of them."""
    extra = entry("add_examples", [2], [3], 4)
    registry = state(*TWO_SESSIONS, extra, Entry("remove_classes", ("bee",)))
    grown = grow(base, registry, rules())
    later = torch.cat([extra.features, TWO_SESSIONS[0].features, TWO_SESSIONS[1].features])
    labels = torch.tensor([1, 1, 1, 4, 4, 4, 5, 5, 6, 6, 6, 6])
    kept = torch.tensor([0, 2, 3, 4])
    assert base.novel_experts is not None
    assert base.expert is not None
    assert base.left_out is not None
    exemplars = base.left_out[base.y != 1][:, kept].log_softmax(1)
    at_all = torch.cat([exemplars, base.expert.log_probabilities(later)[:, kept].log_softmax(1)])
    taught = base.expert.grown(extra.features, torch.full((3,), 2), 5)
    expert, left_out = base.novel_experts.grown(taught.only(kept), kept, later, labels, at_all.__getitem__)
    torch.testing.assert_close(memory_left_out(base, grown, identity), left_out.dense())
    assert grown.expert is not None
    torch.testing.assert_close(grown.expert.log_probabilities(NEW), expert.log_probabilities(NEW))


def test_trees_are_built_from_what_the_classes_came_with(base: BaseState, seen: Seen) -> None:
    registry = state(*TWO_SESSIONS, entry("add_examples", [5, 7], [2, 2], 4))
    grow(base, registry, rules(RebuildTree()))
    means, labels, _ = seen.built[0]
    assert [built[2] for built in seen.built] == [0, 1]  # a seed for each tree
    assert labels == [*LABELS, "new 5", "new 6", "new 7"]
    for c in range(5):
        rows = (base.y == c).nonzero()[:, 0]
        weighted = sum(float(base.stands_for[i]) * base.X[i] for i in rows) / float(base.stands_for[rows].sum())
        np.testing.assert_allclose(means[c], weighted.numpy())
    first, second = TWO_SESSIONS[0].features, TWO_SESSIONS[1].features
    for c, shots in ((5, first[:3]), (6, first[3:]), (7, second)):
        np.testing.assert_allclose(means[c], shots.mean(0).numpy())


def test_the_tree_of_novel_classes_is_built_from_theirs(base: BaseState, seen: Seen) -> None:
    grow(base, state(*TWO_SESSIONS), rules())
    first, second = TWO_SESSIONS[0].features, TWO_SESSIONS[1].features
    for means, labels, _ in seen.built:
        assert labels == ["new 5", "new 6", "new 7"]
        np.testing.assert_allclose(means, torch.stack([x.mean(0) for x in (first[:3], first[3:], second)]).numpy())


def test_a_graft_goes_to_the_most_similar_base_class(base: BaseState, seen: Seen) -> None:
    grown = grow(base, state(*TWO_SESSIONS), rules(Graft()))
    directions = np.stack([base.stands_for[base.y == c].numpy() @ base.X[base.y == c].numpy() for c in range(5)])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    shots = [TWO_SESSIONS[0].features[:3], TWO_SESSIONS[0].features[3:], TWO_SESSIONS[1].features]
    hosts = [int((directions @ x.mean(0).numpy()).argmax()) for x in shots]
    for tree in grown.model.trees:
        families = [frozenset(tree.members(v).tolist()) for v in range(tree.n_nodes)]
        for host in set(hosts):
            assert frozenset([host, *(5 + i for i in range(3) if hosts[i] == host)]) in families


def test_nodes_on_the_path_of_a_base_class_are_fitted_to_all_that_is_kept(base: BaseState, seen: Seen) -> None:
    more = entry("add_examples", [1], [3], 4)
    grow(base, state(more), rules())
    (data,), (known,) = seen.data, seen.known
    assert torch.equal(data.X, torch.cat([base.X, more.features]))
    assert data.y.tolist() == [*base.y.tolist(), 1, 1, 1]
    assert data.weights is not None
    assert data.weights.tolist() == [*base.stands_for.tolist(), 1, 1, 1]
    assert base.expert is not None
    assert data.scores is not None
    frequent = torch.bincount(torch.as_tensor(data.y), data.weights).log()  # nodes do not learn how large classes are
    torch.testing.assert_close(data.scores[15:], base.expert.log_probabilities(more.features) + frequent)
    assert isinstance(base.left_out, ExemplarScores)
    torch.testing.assert_close(data.scores[:15], base.left_out.dense() + frequent)
    for tree, nodes, before in zip(TREES, known, base.model.node_of, strict=True):
        path = {node for node, _ in tree.path(1)}
        assert [v for v in range(tree.n_nodes) if nodes[v] < 0] == sorted(path)
        assert all(nodes[v] == before[v] for v in range(tree.n_nodes) if v not in path)


def test_sessions_that_did_not_change_are_not_fitted_again(base: BaseState, seen: Seen) -> None:
    first = grow(base, state(TWO_SESSIONS[0]), rules(SessionTree()))
    assert len(seen.data) == 1
    second = grow(base, state(*TWO_SESSIONS), rules(SessionTree()), first)
    assert len(seen.data) == 2
    assert second.layers[0] is first.layers[0]
    alone = grow(base, state(*TWO_SESSIONS), rules(SessionTree()))
    assert len(seen.data) == 4
    scores = alone.expert.log_probabilities(NEW) if alone.expert is not None else NEW
    found, expected = (g.model.log_probabilities(NEW, lambda rows: scores[rows]) for g in (second, alone))
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "change",
    [
        entry("add_examples", [5], [1], 5),
        entry("add_examples", [0], [1], 5),
        Entry("remove_classes", ("new 6",)),
        Entry("remove_classes", ("ant",)),
        Entry("merge_classes", ("new 5", "new 6", "new 5")),
        Entry("merge_classes", ("new 6", "bee", "bee")),
    ],
    ids=["examples of it", "base examples", "removed", "base class removed", "merged", "merged into the base"],
)
def test_a_changed_session_and_all_after_it_are_fitted_again(base: BaseState, seen: Seen, change: Entry) -> None:
    before = grow(base, state(*TWO_SESSIONS), rules(SessionTree()))
    changed = state(*TWO_SESSIONS, change)
    found = grow(base, changed, rules(SessionTree()), before)
    alone = grow(base, changed, rules(SessionTree()))
    assert found.layers[0] is not before.layers[0]
    assert found.expert is not None
    scores = found.expert.log_probabilities(NEW)
    a, b = (g.model.log_probabilities(NEW, lambda rows: scores[rows]) for g in (found, alone))
    assert torch.equal(a, b)


@pytest.mark.parametrize("strategy", [SharedRoot(), SessionTree(), RebuildTree(), Graft()], ids=str)
def test_a_new_name_fits_nothing(base: BaseState, seen: Seen, strategy: Strategy) -> None:
    before = grow(base, state(*TWO_SESSIONS), rules(strategy))
    fits = len(seen.data)
    after = grow(base, state(*TWO_SESSIONS, Entry("rename_class", ("new 5", "fox"))), rules(strategy), before)
    assert len(seen.data) == fits
    assert after.model is before.model
    assert after.registry.labels == [*LABELS, "fox", "new 6", "new 7"]


def test_pruned_trees_keep_the_nodes_that_survive(base: BaseState) -> None:
    grown = grow(base, state(Entry("remove_classes", ("cat", "eel"))), rules())
    old = [0, 1, 3]
    for tree, nodes, before, nodes_before in zip(
        grown.model.trees, grown.model.node_of, base.model.trees, base.model.node_of, strict=True
    ):
        assert isinstance(tree, ClassTree)
        assert tree.n_classes == 3
        for v in range(tree.n_nodes):
            u = nodes_before.tolist().index(int(nodes[v]))
            for side in ("left", "right"):
                left = {old[c] for c in getattr(tree, side)(v)}
                assert left == set(getattr(before, side)(u).tolist()) & set(old)
    assert grown.y.tolist() == [c for c in range(3) for _ in range(3)]
    assert torch.equal(grown.model.predictor.grams.X, base.X)  # rows keep their places
