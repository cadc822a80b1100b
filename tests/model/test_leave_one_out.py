"""Left-out predictions by cavities against posteriors computed without the point, node by node and point by point."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from forest_cases import BUDGET, FIRST, SECOND, data, fit, kernel, new_points
from gpytorch.kernels import Kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import slow_twins
from gptree.inference import (
    CoordinateAscent,
    FixedInducingPoints,
    Gibbs,
    InducingPoints,
    InducingPosterior,
    LearnKernel,
    LinearPosterior,
    NodePredictor,
    NodeProblem,
    SubsetOfData,
)
from gptree.maths import gram
from gptree.maths.kernels import kernel_at
from gptree.maths.quadrature import log_sigmoid_expectation
from gptree.model import ForestModel, StayingNodes, TrainingData, cavities, node_data, node_problems
from gptree.model.cavities import Places, joined
from gptree.model.leave_one_out import left_out_predictions, novelty_threshold, smallest_share
from gptree.tree import ClassTree

SETTLED = CoordinateAscent(sweeps=5000, tolerance=1e-14)
TREES = (FIRST, SECOND)


# ------------------------------------------------------------------------------------------------- the slow twin


@dataclass(frozen=True)
class Node:
    """A fitted node: its points, their ω (S, n), and what is needed to compute its posterior again."""

    problem: NodeProblem
    omega: Tensor
    kernel: Kernel


def fitted_nodes(model: ForestModel, problems: list[NodeProblem]) -> list[Node]:
    found: dict[int, Node] = {}
    shared = model.predictor.grams.kernel
    for posterior in model.predictor.posteriors:
        for v, node in enumerate(posterior.nodes.tolist()):
            problem = problems[node]
            own = kernel_at(shared, torch.tensor([node])) if model.predictor.grams.per_node else shared
            if isinstance(posterior, InducingPosterior):
                omega = settled_omega(model, problem)
            else:
                assert torch.equal(posterior.rows[v, : len(problem.rows)], problem.rows)
                omega = posterior.omega[:, v, : len(problem.rows)]
            found[node] = Node(problem, omega, own)
    return [found[node] for node in range(len(problems))]


def plain(problem: NodeProblem) -> tuple[Tensor, Tensor, Tensor]:
    """κ, b and μ without None."""
    zeros = torch.zeros(len(problem.rows), dtype=torch.float64)
    b = zeros + 1 if problem.weight is None else problem.weight
    return b * (problem.left.double() - 0.5), b, zeros if problem.mean is None else problem.mean


def sparse_moments(K_mm: Tensor, K_mn: Tensor, k_nn: Tensor, omega: Tensor, kappa: Tensor, mu: Tensor, keep: Tensor):
    """Mean and variance of g at all points from the sites of those in `keep`, through q(u) at the inducing points."""
    A = torch.linalg.inv(K_mm) @ K_mn
    S = torch.linalg.inv(torch.linalg.inv(K_mm) + (A[:, keep] * omega[keep]) @ A[:, keep].T)
    mean = A.T @ S @ A[:, keep] @ (kappa - omega * mu)[keep]
    return mean, k_nn - (K_mn * A).sum(0) + (A * (S @ A)).sum(0)


def settled_omega(model: ForestModel, problem: NodeProblem) -> Tensor:
    """E[ω] at the fixed point of coordinate ascent with inducing points, (1, n)."""
    X, k = model.predictor.grams.X, model.predictor.grams.kernel
    assert problem.inducing is not None
    K_mm, K_mn = gram(k, X[problem.inducing]), gram(k, X[problem.inducing], X[problem.rows])
    k_nn = gram(k, X[problem.rows]).diagonal()
    kappa, b, mu = plain(problem)
    c = (mu.square() + 0.25).sqrt()
    for _ in range(1000):
        omega = slow_twins.pg_mean(b, c)
        mean, variance = sparse_moments(K_mm, K_mn, k_nn, omega, kappa, mu, torch.arange(len(b)))
        c = (variance + (mu + mean).square()).sqrt()
    return slow_twins.pg_mean(b, c)[None]


def regression(K: Tensor, omega: Tensor, kappa: Tensor, mu: Tensor, i: int, keep: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of g at point i from the others: given ω, regression on κ/ω − μ with noise 1/ω."""
    solved = torch.linalg.solve(K[keep][:, keep] + torch.diag(1 / omega[keep]), K[keep, i])
    return solved @ (kappa / omega - mu)[keep], K[i, i] - solved @ K[keep, i]


def without_point(model: ForestModel, node: Node, point: int) -> tuple[Tensor, Tensor]:
    """Mean and variance (S,) of f at a point of the node, from the other points and their ω."""
    X, rows, inducing = model.predictor.grams.X, node.problem.rows, node.problem.inducing
    kappa, _, mu = plain(node.problem)
    i = rows.tolist().index(point)
    keep = torch.tensor([j for j in range(len(rows)) if j != i])
    K = gram(node.kernel, X[rows]).reshape(len(rows), len(rows)).detach()
    moments = []
    for omega in node.omega:
        if inducing is None:
            mean, variance = regression(K, omega, kappa, mu, i, keep)
        else:
            K_mm, K_mn = gram(node.kernel, X[inducing]), gram(node.kernel, X[inducing], X[rows])
            mean, variance = (values[i] for values in sparse_moments(K_mm, K_mn, K.diagonal(), omega, kappa, mu, keep))
        moments.append((mu[i] + mean, variance))
    means, variances = zip(*moments, strict=True)
    return torch.stack(means), torch.stack(variances)


@torch.no_grad()
def slow_left_out(
    model: ForestModel, problems: list[NodeProblem], d: TrainingData, predict_at
) -> tuple[Tensor, Tensor]:
    """Class log-probabilities and familiarity: every node refitted without each of its points, ω fixed."""
    nodes = fitted_nodes(model, problems)
    left, right = model.node_log_probabilities(d.X, d.scores, predict_at)
    share = model.predictor.explained_share(d.X)
    for v, node in enumerate(nodes):
        for point in node.problem.rows.tolist():
            mean, variance = without_point(model, node, point)
            spread = variance if predict_at == "quadrature" else torch.zeros_like(variance)
            a, b = log_sigmoid_expectation(mean, spread, 20)
            left[v, point], right[v, point] = a.exp().mean().log(), b.exp().mean().log()
            prior = gram(node.kernel, d.X[point : point + 1]).detach().reshape(())
            share[v, point] = 1 - variance.mean() / prior
    p = torch.zeros(len(d.y), 5, dtype=torch.float64)
    for i in range(len(d.y)):
        for c in range(5):
            for tree, numbers in zip(model.trees, model.node_of, strict=True):
                decisions = [float((left if goes else right)[numbers[v], i].exp()) for v, goes in tree.path(c)]
                p[i, c] += math.prod(decisions) / len(model.trees)
    familiarity = torch.zeros(len(d.y), dtype=torch.float64)
    for i, winner in enumerate(p.argmax(1).tolist()):
        last = [numbers[t.path(winner)[-1][0]] for t, numbers in zip(model.trees, model.node_of, strict=True)]
        familiarity[i] = sum(float(share[node, i]) for node in last) / len(last)
    return p.log(), familiarity


# ------------------------------------------------------------------------------------------------------ exactness

CASES = {
    "dense, three sweeps": (CoordinateAscent(sweeps=3, tolerance=0.0), None, None),
    "Gibbs": (Gibbs(chains=3), None, None),
    "linear": (CoordinateAscent(sweeps=3, tolerance=0.0), None, "linear"),
    "sparse": (SETTLED, InducingPoints(10), None),
    "sparse, every point but one inducing": (SETTLED, FixedInducingPoints(), None),
    "sparse, some of the points": (SETTLED, InducingPoints(6), None),
    "some of the points": (CoordinateAscent(sweeps=3, tolerance=0.0), SubsetOfData(8), None),
    "a kernel a node": (CoordinateAscent(learn=LearnKernel(steps=2, per_node=True)), None, None),
}


@pytest.mark.parametrize(("extras", "predict_at"), [(False, "mean"), (True, "quadrature")])
@pytest.mark.parametrize("case", CASES)
def test_cavities_are_the_posterior_without_the_point(
    case: str, extras: bool, predict_at, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At points that a node holds but did not see, that is the posterior."""
    if case == "sparse, some of the points":
        monkeypatch.setattr(node_data, "MOST_POINTS", 9)
    inference, large_nodes, name = CASES[case]
    d = data(weights=extras, scores=extras)
    d = replace(d, inducing=np.arange(1, len(d.y)))
    model = fit(inference, TREES, d, None if name is None else kernel(name), large_nodes=large_nodes)
    problems, _ = node_problems(TREES, d, large_nodes, 0)
    actual = left_out_predictions(model, d.y, d.scores, d.weights, predict_at)
    log_p, familiarity = slow_left_out(model, problems, d, predict_at)
    tolerance = 1e-8
    torch.testing.assert_close(actual.log_probabilities, log_p, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(actual.familiarity, familiarity, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(actual.novelty, 1 - log_p.exp().amax(1) * familiarity, rtol=tolerance, atol=tolerance)


@torch.no_grad()
@pytest.mark.parametrize("case", ["dense, three sweeps", "linear", "sparse"])
def test_another_class_prior_is_asked_about_than_was_learnt(case: str) -> None:
    """What a node says without a point is what it has learnt, around other prior means."""
    inference, large_nodes, name = CASES[case]
    d = data(weights=True, scores=True)
    model = fit(inference, TREES, d, None if name is None else kernel(name), large_nodes=large_nodes)
    assert d.scores is not None
    shift = torch.tensor([0.0, 1.5, -0.5, 2.0, -1.0], dtype=torch.float64)
    actual = left_out_predictions(model, d.y, d.scores + shift, d.weights, learnt_prior=-shift)
    problems, _ = node_problems(TREES, d, large_nodes, 0)
    before, after = (model.prior_means(scores) for scores in (d.scores, d.scores + shift))
    left, right = model.node_log_probabilities(d.X, d.scores + shift, "mean")
    for v, node in enumerate(fitted_nodes(model, problems)):
        for point in node.problem.rows.tolist():
            f = without_point(model, node, point)[0] + after[v, point] - before[v, point]
            left[v, point], right[v, point] = map(torch.nn.functional.logsigmoid, (f.mean(), -f.mean()))
    log_p = model.paths.class_log_probabilities(left, right)
    torch.testing.assert_close(actual.log_probabilities, log_p, rtol=1e-8, atol=1e-8)


def test_the_kinds_of_posterior_are_those_the_cases_say() -> None:
    kinds = {}
    for case, (inference, large_nodes, name) in CASES.items():
        d = replace(data(), inducing=np.arange(1, len(data().y)))
        model = fit(inference, with_data=d, k=None if name is None else kernel(name), large_nodes=large_nodes)
        kinds[case] = {posterior.kind for posterior in model.predictor.posteriors}
    assert kinds["dense, three sweeps"] == kinds["Gibbs"] == kinds["some of the points"] == {"dense"}
    assert "linear" in kinds["linear"]
    assert kinds["sparse"] == {"dense", "sites"}
    assert kinds["sparse, some of the points"] == {"sites"}
    assert kinds["sparse, every point but one inducing"] == {"dense", "sparse"}


@pytest.mark.parametrize("large_nodes", [None, InducingPoints(8)])
def test_chunks_change_nothing(large_nodes) -> None:
    d = data(scores=True)
    model = fit(CoordinateAscent(), TREES, d, large_nodes=large_nodes)
    small = replace(model, memory_budget=2**13)
    assert len(small.chunks(d.X)) > 3
    whole, again = (left_out_predictions(m, d.y, d.scores) for m in (model, small))
    torch.testing.assert_close(again.log_probabilities, whole.log_probabilities, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(again.familiarity, whole.familiarity, rtol=1e-10, atol=1e-10)
    fewer = left_out_predictions(small, d.y, d.scores, dense=False)
    assert fewer.log_probabilities is None
    log_p = whole.log_probabilities
    torch.testing.assert_close(fewer.own, log_p[torch.arange(len(d.y)), torch.as_tensor(d.y)], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(fewer.best, log_p.amax(1), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(fewer.novelty, whole.novelty, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("large_nodes", [None, InducingPoints(10), FixedInducingPoints()])
def test_nodes_that_no_tree_has_are_not_looked_at(large_nodes) -> None:
    d = replace(data(scores=True), inducing=np.arange(1, len(data().y)))
    both = fit(SETTLED, TREES, d, large_nodes=large_nodes)
    one = replace(both, trees=both.trees[:1], node_of=both.node_of[:1])
    alone = fit(SETTLED, TREES[:1], d, large_nodes=large_nodes)
    found, expected = (left_out_predictions(model, d.y, d.scores) for model in (one, alone))
    torch.testing.assert_close(found.log_probabilities, expected.log_probabilities, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.familiarity, expected.familiarity, rtol=1e-8, atol=1e-8)
    places = Places(one, torch.as_tensor(d.y))
    for posterior in one.predictor.posteriors:
        asked = places.asked(posterior.nodes)
        assert torch.equal(asked, torch.isin(posterior.nodes, one.node_of[0]))
        seen = [node for part in StayingNodes().members(one, posterior, places) for node in part.nodes.tolist()]
        if isinstance(posterior, InducingPosterior) or not asked.any():
            assert set(seen) == set(posterior.nodes[asked].tolist())


@pytest.mark.parametrize("large_nodes", [InducingPoints(10), FixedInducingPoints()])
def test_nodes_that_stay_are_known_where_others_of_their_batch_are_gone(
    large_nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = replace(data(), inducing=np.arange(len(data().y)))
    both = fit(SETTLED, TREES, d, large_nodes=large_nodes)
    one, y = replace(both, trees=both.trees[:1], node_of=both.node_of[:1]), torch.as_tensor(d.y)
    staying, looked = StayingNodes(both.predictor.posteriors), cavities.node_members
    for posterior in both.predictor.posteriors:
        if isinstance(posterior, InducingPosterior):
            staying.members(both, posterior, Places(both, y))
            expected = joined(list(looked(one, posterior, Places(one, y))))
            monkeypatch.setattr(cavities, "node_members", None)
            for found, fresh in zip(joined(staying.members(one, posterior, Places(one, y))), expected, strict=True):
                for name in ("nodes", "points", "mean", "variance", "residual"):
                    torch.testing.assert_close(getattr(found, name), getattr(fresh, name), rtol=1e-10, atol=1e-10)
            monkeypatch.setattr(cavities, "node_members", looked)


@pytest.mark.parametrize(("name", "large_nodes"), [("rbf", None), ("rbf", InducingPoints(10)), ("linear", None)])
def test_nodes_know_their_weights(name: str, large_nodes) -> None:
    d = data(weights=True, scores=True)
    model = fit(CoordinateAscent(), TREES, d, kernel(name), large_nodes=large_nodes)
    given, known = (left_out_predictions(model, d.y, d.scores, weights) for weights in (d.weights, None))
    assert torch.equal(given.log_probabilities, known.log_probabilities)


def test_linear_nodes_of_older_files_are_told_their_weights() -> None:
    d = data(weights=True, scores=True)
    model = fit(CoordinateAscent(), TREES, d, kernel("linear"))
    posteriors = [replace(p, b=None) if isinstance(p, LinearPosterior) else p for p in model.predictor.posteriors]
    assert any(isinstance(p, LinearPosterior) for p in posteriors)
    older = replace(model, predictor=NodePredictor(model.predictor.grams, posteriors, BUDGET))
    told, known = left_out_predictions(older, d.y, d.scores, d.weights), left_out_predictions(model, d.y, d.scores)
    assert torch.equal(told.log_probabilities, known.log_probabilities)


def test_scores_that_are_the_same_for_all_rows() -> None:
    d = replace(data(), scores=torch.tensor([[0.3, -1.0, 0.5, 0.0, 2.0]], dtype=torch.float64))
    assert d.scores is not None
    model = fit(CoordinateAscent(), TREES, d)
    one, all_rows = (left_out_predictions(model, d.y, s) for s in (d.scores, d.scores.expand(len(d.y), 5)))
    assert torch.equal(one.log_probabilities, all_rows.log_probabilities)


def test_no_cavity_variance_exceeds_the_prior_where_inference_stopped_early() -> None:
    """After one sweep from a wrong prior mean, the next ω of a sparse node is far from the one it was fitted with."""
    d = data()
    wrong = torch.nn.functional.one_hot(torch.as_tensor(d.y), 5).double() * -40
    early = CoordinateAscent(sweeps=1, tolerance=0.0)
    model = fit(early, TREES, replace(d, scores=wrong), kernel(scale=300.0), large_nodes=InducingPoints(8))
    found = left_out_predictions(model, d.y, wrong, predict_at="quadrature")
    assert torch.isfinite(found.log_probabilities).all()
    assert (found.familiarity >= 0).all()
    assert (found.familiarity <= 1).all()


def test_one_class() -> None:
    d = TrainingData(new_points(), np.zeros(6, dtype=int), ["only"])
    found = left_out_predictions(fit(CoordinateAscent(), (ClassTree.from_preorder([0]),), d), d.y)
    assert torch.equal(found.log_probabilities, torch.zeros(6, 1).double())
    assert torch.equal(found.novelty, torch.zeros(6).double())


def test_a_class_for_every_row_is_needed() -> None:
    with pytest.raises(ValueError, match="each of the 35 rows"):
        left_out_predictions(fit(CoordinateAscent()), data().y[:-1])


# -------------------------------------------------------------------------------------------- against real refits


def nll(log_p: Tensor, y: np.ndarray) -> Tensor:
    return -log_p[torch.arange(len(y)), torch.as_tensor(y)]


@pytest.mark.parametrize("large_nodes", [None, InducingPoints(16)])
@pytest.mark.parametrize("scores", [False, True])
def test_left_out_nll_is_close_to_that_of_refits(large_nodes, scores: bool) -> None:
    """Inference run again without each point: the other ω's move too, by little. In-sample predictions are far off."""
    d = data(scores=scores, seed=3)
    model = fit(CoordinateAscent(), TREES, d, large_nodes=large_nodes)
    cavity = nll(left_out_predictions(model, d.y, d.scores).log_probabilities, d.y)
    class_scores = None if d.scores is None else (lambda rows: d.scores[rows])  # pyright: ignore[reportOptionalSubscript]
    inside = nll(model.log_probabilities(d.X, class_scores), d.y)
    some = range(0, len(d.y), 2)
    refitted = torch.empty_like(cavity)
    for i in some:
        keep = np.arange(len(d.y)) != i
        own = None if d.scores is None else d.scores[i : i + 1]
        part = replace(d, X=d.X[keep], y=d.y[keep], scores=None if d.scores is None else d.scores[keep])
        again = fit(CoordinateAscent(), TREES, part, large_nodes=large_nodes)
        log_p = again.log_probabilities(d.X[i : i + 1], None if own is None else lambda _, own=own: own)
        refitted[i] = nll(log_p, d.y[i : i + 1])[0]
    cavity, inside, refitted = cavity[::2], inside[::2], refitted[::2]
    gap, in_sample_gap = (float((values.mean() - refitted.mean()).abs()) for values in (cavity, inside))
    assert gap < (0.1 if large_nodes is None else 0.2) * in_sample_gap  # refits choose other inducing points
    assert float(torch.corrcoef(torch.stack((cavity, refitted)))[0, 1]) > 0.97


# ------------------------------------------------------------------------------------------------------ threshold


def test_threshold_by_hand() -> None:
    # four equal points stand at 1/5, 2/5, 3/5, 4/5
    novelty, y = np.array([0.4, 0.1, 0.3, 0.2]), np.array([0, 0, 1, 1])
    assert novelty_threshold(novelty, y, 0.2) == pytest.approx(0.4)
    assert novelty_threshold(novelty, y, 0.5) == pytest.approx(0.25)
    assert novelty_threshold(novelty, y, 0.18) == pytest.approx(0.46)  # a tenth of the way from the largest to 1
    assert novelty_threshold(novelty, y, 0.1) == pytest.approx(0.5)  # four points support a sixth
    assert novelty_threshold(novelty, y, 0.0) == 1.0
    assert novelty_threshold(novelty, y, 1.0) == 0.0


def test_classes_count_equally() -> None:
    # two at 0.8 weigh as much as eight at 0.2: weights 1/4 and 1/16, worth 1/(2/16 + 8/256) = 6.4 equal points
    novelty, y = np.repeat([0.2, 0.8], [8, 2]), np.repeat([0, 1], [8, 2])
    at = 6.4 / 7.4
    assert novelty_threshold(novelty, y, 1 - at) == pytest.approx(0.8)
    assert novelty_threshold(novelty, y, 1 - 0.75 * at) == pytest.approx(0.8)
    assert novelty_threshold(novelty, y, 1 - 0.5 * at) == pytest.approx(0.2)


def test_only_examples_do_not_count_beside_others() -> None:
    novelty, y = np.array([0.1, 0.2, 0.3, 0.99]), np.array([0, 0, 0, 1])
    assert novelty_threshold(novelty, y, 0.25) == pytest.approx(novelty_threshold(novelty[:3], y[:3], 0.25))
    assert novelty_threshold(np.array([0.7, 0.9]), np.array([0, 1]), 1 / 3) == pytest.approx(0.9)


@pytest.mark.parametrize("reject", [-0.1, 1.5, float("nan")])
def test_a_share_is_a_share(reject: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        novelty_threshold(np.array([0.5]), np.array([0]), reject)


def test_a_share_needs_points_beyond_it() -> None:
    def share(*sizes: int) -> float:
        return smallest_share(np.repeat(np.arange(len(sizes)), sizes))

    assert share(3, 3, 3, 3, 3, 3, 3, 3) == pytest.approx(4 / 25)
    assert share(100, 100) == pytest.approx(4 / 201)
    assert share(2, 2) == share(1, 1, 1) == 1 / 6
    assert share(30, 30, 1) == pytest.approx(4 / 61)  # the only example of a class does not count
    assert share(90, 10) == pytest.approx(4 / (1 / (90 / 180**2 + 10 / 20**2) + 1))


@pytest.mark.parametrize(("points", "asked", "reject"), [(3, 0.05, 1 / 6), (40, 0.05, 4 / 41), (40, 0.2, 0.2)])
def test_new_points_pass_as_often_as_asked(points: int, asked: float, reject: float) -> None:
    """Known novelty is uniform here, so a threshold t turns away 1 − t; 4,000 draws, a 5σ bound."""
    random = np.random.default_rng(0)
    y = np.zeros(points, dtype=int)
    shares = np.array([1 - novelty_threshold(random.random(points), y, asked) for _ in range(4000)])
    assert abs(shares.mean() - reject) < 5 * shares.std() / math.sqrt(len(shares))


@given(
    novelty=st.lists(st.floats(0, 1), min_size=1, max_size=20),
    seed=st.integers(0, 100),
    rejects=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
@settings(max_examples=100, deadline=None)
def test_thresholds_fall_as_more_is_turned_away(novelty: list[float], seed: int, rejects: tuple[float, float]) -> None:
    y = np.random.default_rng(seed).integers(0, 4, len(novelty))
    less, more = (novelty_threshold(np.array(novelty), y, share) for share in sorted(rejects))
    assert 0 <= more <= less <= 1
