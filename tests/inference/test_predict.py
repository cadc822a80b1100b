"""Node probabilities against loops over nodes, draws, points and quadrature nodes, for every kind of posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel
from node_cases import BUDGET, Fitted, by_node, features, kernel, plain, problem, problems
from torch import Tensor

import gptree.inference.grams
import gptree.inference.posterior
import gptree.inference.predict
from gptree.inference import (
    CoordinateAscent,
    DensePosterior,
    Gibbs,
    Grams,
    InducingPosterior,
    Inference,
    LinearPosterior,
    NodeFits,
    NodePredictor,
    NodeProblem,
    fit_nodes,
)
from gptree.maths import frozen, gram
from gptree.maths.frozen import Parts, Rows
from gptree.maths.kernels import kernel_at, node_kernels

THREE_KINDS = [*problems([5, 11, 4, 8]), problem(9, 20, inducing=4), problem(7, 21, inducing=3)]
T, D = 7, 6


def different_kernels(count: int) -> Kernel:
    kernels = node_kernels(kernel(), count)
    with torch.no_grad():
        kernels.outputscale = torch.linspace(1.0, 5.0, count, dtype=torch.float64)
    return kernels


CASES: dict[str, tuple[list[NodeProblem], Kernel, Inference]] = {
    "dense, one draw": (problems(), kernel(), CoordinateAscent()),
    "dense, draws": (problems(), kernel(), Gibbs(chains=3, steps=3, keep=2)),
    "linear, draws": (problems([10, 11, 12]), kernel("linear"), Gibbs(chains=3)),
    "linear and dense, draws": (problems(), kernel("linear"), Gibbs(chains=3)),
    "dense and sparse": (THREE_KINDS, kernel(), CoordinateAscent()),
    "linear, dense and sparse": (THREE_KINDS, kernel("linear"), CoordinateAscent()),
    "a kernel a node": (THREE_KINDS, different_kernels(6), CoordinateAscent()),
    "a kernel a node, draws": (problems([5, 9, 4, 8]), different_kernels(4), Gibbs(chains=2)),
}


def fit(case: str) -> NodeFits:
    of, k, inference = CASES[case]
    return fit_nodes(of, k, features(d=D), inference, memory_budget=BUDGET)


def predictor(case: str, budget: int = BUDGET) -> NodePredictor:
    fits = fit(case)
    return NodePredictor(fits.grams, fits.posteriors, budget)


def new_points() -> Tensor:
    return features(T, D, seed=7)


def prior_means(count: int) -> Tensor:
    return torch.randn(count, T, generator=torch.Generator().manual_seed(8), dtype=torch.float64)


# --------------------------------------------------------------------------------------------------- the slow twin


def loop_moments(fitted: Fitted, p: NodeProblem, k: Kernel, n: int = 40) -> list[tuple[Tensor, Tensor]]:
    """Mean and variance of g⋆ (T,) for each draw of one node over n training points, with explicit inverses."""
    X, x, q = features(n, D), new_points(), plain(p)
    prior = torch.stack([gram(k, x[t : t + 1])[0, 0] for t in range(T)])
    if fitted.precision is not None:
        K_mm, cross = gram(k, X[fitted.rows]), gram(k, X[fitted.rows], x)
        inverse, root = torch.linalg.inv(K_mm), torch.linalg.cholesky(K_mm)
        S = root @ torch.linalg.inv(fitted.precision) @ root.T
        m = K_mm @ fitted.weights[0]
        change = inverse @ (S @ inverse - torch.eye(len(m), dtype=torch.float64))
        return [(cross.T @ inverse @ m, prior + (cross * (change @ cross)).sum(0))]
    assert fitted.omega is not None
    K, cross = gram(k, X[p.rows]), gram(k, X[p.rows], x)
    out = []
    for omega in fitted.omega:
        noisy = torch.linalg.inv(K + torch.diag(1 / omega))
        out.append((cross.T @ noisy @ (q.kappa / omega - q.mu), prior - (cross * (noisy @ cross)).sum(0)))
    return out


def loop_probability(f: float, variance: float, predict_at: str) -> float:
    if predict_at == "mean":
        return 1 / (1 + math.exp(-f))
    if variance > 12:  # too wide for twenty points: a fine grid
        grid = np.linspace(-12, 12, 20_001)
        density = np.exp(-0.5 * grid**2)
        return float((density / (1 + np.exp(-(f + math.sqrt(variance) * grid)))).sum() / density.sum())
    total = 0.0
    for x, w in zip(*np.polynomial.hermite.hermgauss(20), strict=True):
        total += w / math.sqrt(math.pi) / (1 + math.exp(-(f + math.sqrt(2 * variance) * x)))
    return total


def loop_log_probabilities(case: str, predict_at: str, prior_mean: Tensor | None) -> tuple[Tensor, Tensor]:
    of, k, _ = CASES[case]
    out = torch.zeros(2, len(of), T, dtype=torch.float64)
    for v, (fitted, p) in enumerate(zip(by_node(fit(case), of), of, strict=True)):
        draws = loop_moments(fitted, p, separate(k, v))
        for t in range(T):
            shift = 0.0 if prior_mean is None else float(prior_mean[v, t])
            left = [loop_probability(float(m[t]) + shift, float(s[t]), predict_at) for m, s in draws]
            out[0, v, t] = math.log(sum(left) / len(left))
            out[1, v, t] = math.log(1 - sum(left) / len(left))
    return out[0], out[1]


def separate(k: Kernel, node: int) -> Kernel:
    """A plain kernel that is the node's own."""
    if len(k.batch_shape) == 0:
        return k
    own = kernel()
    with torch.no_grad():
        own.raw_outputscale.copy_(kernel_at(k, torch.tensor([node])).raw_outputscale[0])
    return own


# ------------------------------------------------------------------------------------------------------------ tests


def test_the_cases_cover_all_kinds() -> None:
    kinds = {case: {f.kind for f in by_node(fit(case), CASES[case][0])} for case in CASES}
    assert kinds["linear, dense and sparse"] == {"linear", "dense", "sites"}
    assert kinds["dense and sparse"] == {"dense", "sites"}
    assert kinds["linear, draws"] == {"linear"}


def test_distances_are_taken_from_the_mean_of_the_points() -> None:
    """Where they are most exact."""
    p = predictor("dense and sparse")
    assert torch.equal(p._layer.shared[0].centre, p.grams.X.mean(0))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
@pytest.mark.parametrize("with_mean", [False, True])
@torch.no_grad()
def test_log_probabilities_equal_the_loop(case: str, predict_at, with_mean: bool) -> None:
    prior_mean = prior_means(len(CASES[case][0])) if with_mean else None
    actual = predictor(case).log_probabilities(new_points(), prior_mean, predict_at)
    expected = loop_log_probabilities(case, predict_at, prior_mean)
    for a, e in zip(actual, expected, strict=True):
        # a series takes the place of the quadrature at large variances, right to 1e-6
        torch.testing.assert_close(a, e, rtol=1e-9, atol=1e-6 if predict_at == "quadrature" else 1e-9)


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_moments_are_those_of_the_mixture_of_draws(case: str) -> None:
    of, k, _ = CASES[case]
    mean, variance = predictor(case).moments(new_points())
    for v, (fitted, p) in enumerate(zip(by_node(fit(case), of), of, strict=True)):
        draws = loop_moments(fitted, p, separate(k, v))
        first = sum(m for m, _ in draws) / len(draws)
        second = sum(s + m**2 for m, s in draws) / len(draws)
        torch.testing.assert_close(mean[v], first, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(variance[v], second - first**2, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_explained_share_compares_posterior_and_prior_variances(case: str) -> None:
    of, k, _ = CASES[case]
    share = predictor(case).explained_share(new_points())
    for v, (fitted, p) in enumerate(zip(by_node(fit(case), of), of, strict=True)):
        own = separate(k, v)
        prior = torch.stack([gram(own, new_points()[t : t + 1])[0, 0] for t in range(T)])
        draws = loop_moments(fitted, p, own)
        expected = 1 - sum(s for _, s in draws) / len(draws) / prior
        torch.testing.assert_close(share[v], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("limit", [0, 5])
@torch.no_grad()
def test_triangular_solves_give_the_numbers_of_explicit_inverses(
    case: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With solves at all nodes, and at those beyond five points only."""
    x, expected = new_points(), predictor(case).moments(new_points())
    monkeypatch.setattr(gptree.inference.posterior, "EXPLICIT_ORDER", limit)
    for budget in (1, BUDGET):
        for actual, e in zip(predictor(case, budget).moments(x), expected, strict=True):
            torch.testing.assert_close(actual, e, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("inference", [CoordinateAscent(), Gibbs(chains=2)])
@torch.no_grad()
def test_nodes_too_large_for_explicit_inverses_equal_the_loop(inference: Inference) -> None:
    """One node at the limit, one beyond it; both beyond the order from which Gibbs sampling iterates."""
    limit = gptree.inference.posterior.EXPLICIT_ORDER
    n = limit + 10
    of = [problem(size, seed, total=n) for seed, size in enumerate((limit, limit + 1))]
    fits = fit_nodes(of, kernel(), features(n, D), inference, memory_budget=BUDGET)
    mean, variance = NodePredictor(fits.grams, fits.posteriors, BUDGET).moments(new_points())
    for v, (fitted, p) in enumerate(zip(by_node(fits, of), of, strict=True)):
        draws = loop_moments(fitted, p, kernel(), n)
        first = sum(m for m, _ in draws) / len(draws)
        second = sum(s + m**2 for m, s in draws) / len(draws)
        torch.testing.assert_close(mean[v], first, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(variance[v], second - first**2, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_streamed_factors_give_the_numbers_of_kept_ones(case: str) -> None:
    keeping = predictor(case)
    kept = keeping.log_probabilities(new_points(), None, "quadrature")
    needed = numbers_of_factors(keeping)
    assert sum(0 if factors is None else factors.numel() for factors in keeping._factors) == needed
    for budget in (1, 3_000, 8 * 8 * needed - 1):
        streaming = predictor(case, budget)
        for left_or_right, expected in zip(
            streaming.log_probabilities(new_points(), None, "quadrature"), kept, strict=True
        ):
            torch.testing.assert_close(left_or_right, expected, rtol=1e-10, atol=1e-10)
        assert all(factors is None for factors in streaming._factors)


def numbers_of_factors(p: NodePredictor) -> int:
    return sum(posterior.factor_numbers * len(posterior.weights) for posterior in p.posteriors)


@dataclass(frozen=True)
class Made:
    """Factors that were computed: whose, of how many draws, how many numbers."""

    posterior: int
    draws: int
    numbers: int


def record_factors(monkeypatch: pytest.MonkeyPatch) -> list[Made]:
    made: list[Made] = []
    for family in (DensePosterior, LinearPosterior, InducingPosterior):
        original = family.factoriser

        def factoriser(self, grams, original=original):
            make = original(self, grams)

            def recorded(draws: slice) -> Tensor:
                factors = make(draws)
                made.append(Made(id(self), len(range(len(self.weights))[draws]), factors.numel()))
                return factors

            return recorded

        monkeypatch.setattr(family, "factoriser", factoriser)
    return made


def test_factors_are_computed_at_most_once(monkeypatch: pytest.MonkeyPatch) -> None:
    case = "linear, dense and sparse"
    made = record_factors(monkeypatch)
    p = predictor(case)
    p.log_probabilities(new_points(), None, "mean")
    assert made == []
    for _ in range(3):
        p.log_probabilities(new_points(), None, "quadrature")
        p.moments(new_points())
        p.explained_share(new_points())
    assert [m.posterior for m in made] == [id(posterior) for posterior in p.posteriors]
    made.clear()
    streaming = predictor(case, budget=1)
    for _ in range(2):
        streaming.log_probabilities(new_points(), None, "quadrature")
    assert [m.posterior for m in made] == 2 * [id(posterior) for posterior in streaming.posteriors]


def test_factors_are_kept_within_an_eighth_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    made = record_factors(monkeypatch)
    case = "dense, draws"
    needed = 8 * numbers_of_factors(predictor(case))  # bytes
    for budget, times in ((8 * needed, 1), (8 * needed - 1, 2)):
        made.clear()
        p = predictor(case, budget)
        for _ in range(2):
            p.moments(new_points())
        assert sum(m.numbers for m in made) == times * needed // 8


@pytest.mark.parametrize("limit", [1, 1_000, 2**22])
def test_streamed_factors_are_few_at_a_time(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw once, never more numbers than the limit, a third of the working memory or one draw's factors."""
    monkeypatch.setattr(gptree.inference.predict, "STREAMED_NUMBERS", limit)
    made = record_factors(monkeypatch)
    case = "dense, draws"
    budget = 8 * 8 * numbers_of_factors(predictor(case)) - 1
    p = predictor(case, budget)
    p.moments(new_points())
    most = min(limit, budget // (8 * 8) // 3)
    for posterior in p.posteriors:
        chunks = [m for m in made if m.posterior == id(posterior)]
        assert sum(m.draws for m in chunks) == len(posterior.weights)
        assert all(m.draws == 1 or m.numbers <= most for m in chunks)
    assert max(m.draws for m in made) == (1 if limit == 1 else 6)


def test_factors_do_not_evaluate_the_kernel_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Gram matrix of the fit serves them."""
    fits = fit("dense, draws")

    def watched(k: Kernel, x: Tensor, other: Tensor | None = None) -> Tensor:
        raise AssertionError("the kernel was evaluated")

    monkeypatch.setattr(gptree.inference.grams, "gram", watched)
    predictor = NodePredictor(fits.grams, fits.posteriors, BUDGET)
    predictor.log_probabilities(new_points(), None, "quadrature")
    assert predictor.used_rows.tolist() == sorted({int(row) for p in fits.posteriors for row in p.rows.flatten()})


def test_probabilities_not_logits_are_averaged_over_the_draws() -> None:
    """Two draws that disagree: the probability is the mean of theirs, far from σ of the mean logit."""
    posterior = DensePosterior(
        nodes=torch.tensor([0]),
        rows=torch.tensor([[0]]),
        omega=torch.ones(2, 1, 1, dtype=torch.float64),
        weights=torch.tensor([[[2.0]], [[-1.0]]], dtype=torch.float64),
    )
    X = torch.zeros(1, 2, dtype=torch.float64)
    p = NodePredictor(Grams(kernel(output_scale=3.0), X, 0), [posterior], BUDGET)
    left, right = p.log_probabilities(X)
    expected = (1 / (1 + math.exp(-6.0)) + 1 / (1 + math.exp(3.0))) / 2
    assert float(left.exp()) == pytest.approx(expected, abs=1e-6)
    assert float((left.exp() + right.exp())[0, 0]) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
def test_both_sides_sum_to_one_and_infinite_prior_means_decide(case: str, predict_at) -> None:
    count = len(CASES[case][0])
    prior_mean = prior_means(count)
    prior_mean[0], prior_mean[1], prior_mean[2] = torch.inf, -torch.inf, 800.0
    left, right = predictor(case).log_probabilities(new_points(), prior_mean, predict_at)
    torch.testing.assert_close(torch.logaddexp(left, right), torch.zeros(count, T, dtype=torch.float64))
    assert (left[0] == 0).all()
    assert (right[0] == -torch.inf).all()
    assert (left[1] == -torch.inf).all()
    assert (right[1] == 0).all()
    assert torch.isfinite(right[2]).all()
    assert (right[2] < -600).all()


def test_many_nodes_are_stacked_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a frozen prediction that is exported, which has no sparse matrices."""
    p, rows = predictor("dense and sparse"), Rows(new_points())
    expected = p.log_probabilities(rows.x)
    monkeypatch.setattr(frozen, "SUMS_A_GROUP", 2)
    parts = Parts(frozen=True)
    layer = p.layer(parts)
    _ = parts.shared()
    sums: Any = layer.means.get_submodule("sums")
    dense = sums.dense
    assert [len(dense.get_buffer(f"weights_{k}")) for k in range(dense.groups)] == [2, 2, 2]
    monkeypatch.setattr(sums, "forward", dense)
    for a, e in zip(layer(rows), expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", ["dense, one draw", "linear, draws", "dense and sparse", "a kernel a node"])
def test_no_matrix_of_test_points_by_test_points(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, ...]] = []

    def watched(k: Kernel, x: Tensor, other: Tensor | None = None) -> Tensor:
        out = gram(k, x, other)
        sizes.append(tuple(out.shape))
        return out

    for module in (gptree.inference.predict, gptree.inference.grams):
        monkeypatch.setattr(module, "gram", watched)
    predictor(case).log_probabilities(features(101, D, seed=1), None, "quadrature")
    assert all(shape[-2:] != (101, 101) for shape in sizes)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
def test_points_on_which_the_kernel_is_not_finite_are_refused(case: str, predict_at) -> None:
    x = new_points()
    x[0] = torch.inf
    with pytest.raises(ValueError, match="not finite on these features"):
        predictor(case).log_probabilities(x, None, predict_at)
