"""Coordinate ascent: against a plain loop, its bound against integrals, its fixed point against autograd."""

from __future__ import annotations

import pytest
import torch
from node_cases import BUDGET, Fitted, assert_same_fits, by_node, features, kernel, plain, problem, problems
from torch import Tensor

import slow_twins as slow
from gptree.inference import CoordinateAscent, LearnKernel, NodeFits, NodeProblem, fit_nodes
from gptree.maths import gram, linear_features

EXACT = CoordinateAscent(sweeps=300, tolerance=0.0)


def fit(of: list[NodeProblem], inference: CoordinateAscent, name: str = "rbf", d: int = 3) -> NodeFits:
    return fit_nodes(of, kernel(name), features(d=d), inference, memory_budget=BUDGET)


@pytest.mark.parametrize("bad", [{"sweeps": 0}, {"tolerance": -1.0}, {"learn": True}])
def test_bad_settings_are_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match=r"sweep|tolerance|learn"):
        CoordinateAscent(**bad)


@pytest.mark.parametrize("bad", [{"steps": 0}, {"rate": 0.0}])
def test_bad_learning_settings_are_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match=r"step|rate"):
        LearnKernel(**bad)


# ------------------------------------------------------------------------------------------- against a plain loop


def loop_ascent(K: Tensor, p: NodeProblem, inference: CoordinateAscent) -> tuple[Tensor, Tensor, int, float]:
    """c, E[f], sweeps taken and last change of one dense node, with explicit inverses."""
    q = plain(p)
    c, mean, change, taken = (q.mu**2 + 0.25).sqrt(), q.mu, float("inf"), 0
    while taken < inference.sweeps and change > inference.tolerance:
        g, sigma = slow.conditional(K, slow.pg_mean(q.b, c), q.kappa, q.mu)
        change = float((q.mu + g - mean).abs().max())
        mean = q.mu + g
        c = (sigma.diagonal() + mean**2).sqrt()
        taken += 1
    return c, mean, taken, change


@pytest.mark.parametrize(
    "inference", [CoordinateAscent(), CoordinateAscent(sweeps=3), CoordinateAscent(tolerance=1e-6)]
)
@torch.no_grad()
def test_batched_equals_the_plain_loop(inference: CoordinateAscent) -> None:
    """Each node stops when it has settled, whatever the others do; diagnostics say when and where."""
    X, of = features(), problems()
    fits = fit(of, inference)
    found = fits.diagnostics
    assert found.bound is not None
    assert found.change is not None
    assert found.converged is not None
    for v, (fitted, p) in enumerate(zip(by_node(fits, of), of, strict=True)):
        K, q = gram(kernel(), X[p.rows]), plain(p)
        c, _, taken, change = loop_ascent(K, p, inference)
        omega = slow.pg_mean(q.b, c)
        assert fitted.omega is not None
        torch.testing.assert_close(fitted.omega[0], omega, rtol=1e-10, atol=1e-10)
        mean, sigma = slow.conditional(K, omega, q.kappa, q.mu)
        torch.testing.assert_close(K @ fitted.weights[0], mean, rtol=1e-9, atol=1e-9)
        assert found.sweeps[v] == taken
        assert float(found.change[v]) == pytest.approx(change, abs=1e-9)
        assert bool(found.converged[v]) == (change <= inference.tolerance)
        expected = slow.dense_bound(K, mean, sigma, c, q.kappa, q.b, q.mu)
        torch.testing.assert_close(found.bound[v], expected, rtol=1e-9, atol=1e-9)


def test_convergence_is_reported() -> None:
    hurried, patient = fit(problems(), CoordinateAscent(sweeps=1)), fit(problems(), CoordinateAscent(sweeps=200))
    assert hurried.diagnostics.converged is not None
    assert patient.diagnostics.converged is not None
    assert not hurried.diagnostics.converged.any()
    assert patient.diagnostics.converged.all()


# -------------------------------------------------------------------------------------------- the bound's properties


def sparse_problems() -> list[NodeProblem]:
    return problems([12, 9, 15], inducing=4)


@pytest.mark.parametrize("form", ["dense", "linear", "sparse"])
def test_bound_never_falls(form: str) -> None:
    of = sparse_problems() if form == "sparse" else problems()
    bounds = []
    for sweeps in range(1, 16):
        inference = CoordinateAscent(sweeps=sweeps, tolerance=0.0)
        fits = fit(of, inference, name="linear" if form == "linear" else "rbf")
        assert fits.diagnostics.bound is not None
        bounds.append(fits.diagnostics.bound)
    steps = torch.stack(bounds).diff(dim=0)
    assert (steps > -1e-12).all()
    assert (steps[0] > 1e-6).any()


@pytest.mark.parametrize("n", [1, 2, 3])
@torch.no_grad()
def test_bound_stays_below_the_marginal_likelihood_and_near_it(n: int) -> None:
    X, of = features(), [problem(n, seed) for seed in range(8)]
    bound = fit(of, EXACT).diagnostics.bound
    assert bound is not None
    for v, p in enumerate(of):
        q = plain(p)
        log_evidence = slow.exact_posterior(gram(kernel(), X[p.rows]), q.kappa, q.b, q.mu)[0]
        assert log_evidence - 0.2 * n < bound[v] < log_evidence


def q_of(fitted: Fitted, p: NodeProblem, X: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """K_mm, K_mn, k_nn and the mean and covariance of u from what is stored of a node."""
    q, m_rows = plain(p), fitted.rows
    K_mm, K_mn = gram(kernel(), X[m_rows]), gram(kernel(), X[m_rows], X[p.rows])
    k_nn = gram(kernel(), X[p.rows]).diagonal()
    if fitted.precision is None:
        assert fitted.omega is not None
        return K_mm, K_mn, k_nn, *slow.conditional(K_mm, fitted.omega[0], q.kappa, q.mu)
    root = torch.linalg.cholesky(K_mm)
    return K_mm, K_mn, k_nn, K_mm @ fitted.weights[0], root @ torch.linalg.inv(fitted.precision) @ root.T


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_gradient_of_the_bound_is_zero_at_the_fixed_point(form: str) -> None:
    """Autograd on the point-by-point bound, with respect to the mean, a root of the covariance and c."""
    X, of = features(), sparse_problems() if form == "sparse" else problems()
    fits = fit(of, EXACT)
    assert fits.diagnostics.bound is not None
    for v, (fitted, p) in enumerate(zip(by_node(fits, of), of, strict=True)):
        q = plain(p)
        with torch.no_grad():
            K_mm, K_mn, k_nn, m, S = q_of(fitted, p, X)
            A = torch.linalg.solve(K_mm, K_mn)
            c = (k_nn - (K_mn * A).sum(0) + (A * (S @ A)).sum(0) + (q.mu + A.T @ m) ** 2).sqrt()
            root = torch.linalg.cholesky(S)
        at = [value.clone().requires_grad_() for value in (m, root, c)]
        value = slow.bound(K_mm, K_mn, k_nn, at[0], at[1] @ at[1].T, at[2], q.kappa, q.b, q.mu)
        torch.testing.assert_close(value.detach(), fits.diagnostics.bound[v], rtol=1e-8, atol=1e-8)
        for gradient in torch.autograd.grad(value, at):
            assert gradient.abs().max() < 1e-6
        moved = slow.bound(K_mm, K_mn, k_nn, at[0] + 0.1, at[1] @ at[1].T, at[2], q.kappa, q.b, q.mu)
        assert max(g.abs().max() for g in torch.autograd.grad(moved, at)) > 1e-3  # the test can fail


# ------------------------------------------------------------------------------------------------------- sparse


@torch.no_grad()
def test_inducing_points_at_the_data_give_the_dense_posterior() -> None:
    X, sizes = features(), (7, 5, 6, 7)
    dense_of = problems(sizes)
    sparse_of = [problem(n, seed, inducing=n) for seed, n in enumerate(sizes)]
    dense, sparse = fit(dense_of, EXACT), fit(sparse_of, EXACT)
    assert dense.diagnostics.bound is not None
    assert sparse.diagnostics.bound is not None
    torch.testing.assert_close(dense.diagnostics.bound, sparse.diagnostics.bound, rtol=1e-7, atol=1e-7)
    new = features(5, seed=3)
    pairs = zip(by_node(dense, dense_of), by_node(sparse, sparse_of), dense_of, strict=True)
    for d, s, p in pairs:
        assert (d.kind, s.kind) == ("dense", "sites")
        assert d.omega is not None
        q, cross = plain(p), gram(kernel(), X[p.rows], new)
        prior = gram(kernel(), new).diagonal()
        mean, variance = slow.predictive(gram(kernel(), X[p.rows]), cross, prior, d.omega[0], q.kappa, q.mu)
        K_mm, _, _, _, S = q_of(s, p, X)
        a = torch.linalg.solve(K_mm, cross)
        torch.testing.assert_close(cross.T @ s.weights[0], mean, rtol=1e-6, atol=1e-6)
        # var⋆ = k⋆⋆ + kᵀ K_mm⁻¹ (S K_mm⁻¹ − I) k
        torch.testing.assert_close(prior + (a * (S @ a - cross)).sum(0), variance, rtol=1e-6, atol=1e-6)


def test_sparse_bound_stays_below_the_dense_one() -> None:
    dense = fit(problems([12, 9, 15]), EXACT).diagnostics.bound
    assert dense is not None
    previous = torch.full_like(dense, -torch.inf)
    for inducing in (1, 4, 8):
        bound = fit(problems([12, 9, 15], inducing=inducing), EXACT).diagnostics.bound
        assert bound is not None
        assert (bound > previous).all()
        assert (bound < dense).all()
        previous = bound


# --------------------------------------------------------------------------------------------------------- linear


@torch.no_grad()
def test_weight_space_equals_the_dense_posterior() -> None:
    """n > d: the d × d side gives the numbers of the n × n side."""
    X, of = features(), problems()
    linear = fit(of, EXACT, name="linear")
    assert {f.kind for f in by_node(linear, of)} == {"linear", "dense"}
    assert linear.diagnostics.bound is not None
    new = features(5, seed=3)
    phi = linear_features(kernel("linear"), new)
    assert phi is not None
    for v, (fitted, p) in enumerate(zip(by_node(linear, of), of, strict=True)):
        q = plain(p)
        K = gram(kernel("linear"), X[p.rows])
        c, mean = (q.mu**2 + 0.25).sqrt(), q.mu
        for _ in range(EXACT.sweeps):
            # Σ = K − K (K + Ω⁻¹)⁻¹ K: K itself is singular
            omega = slow.pg_mean(q.b, c)
            sigma = K - K @ torch.linalg.inv(K + torch.diag(1 / omega)) @ K
            mean = q.mu + sigma @ (q.kappa - omega * q.mu)
            c = (sigma.diagonal() + mean**2).sqrt()
        if fitted.kind == "linear":
            features_here = linear_features(kernel("linear"), X[p.rows])
            assert features_here is not None
            torch.testing.assert_close(q.mu + features_here @ fitted.weights[0], mean, rtol=1e-10, atol=1e-10)
        else:
            torch.testing.assert_close(q.mu + K @ fitted.weights[0], mean, rtol=1e-10, atol=1e-10)
        assert fitted.omega is not None
        torch.testing.assert_close(fitted.omega[0], slow.pg_mean(q.b, c), rtol=1e-10, atol=1e-10)
        assert torch.isfinite(linear.diagnostics.bound[v])


def test_a_node_does_not_depend_on_what_is_fitted_beside_it() -> None:
    of = problems()
    together = fit(of, CoordinateAscent())
    alone = fit(of[3:4], CoordinateAscent())
    torch.testing.assert_close(by_node(together, of)[3].weights, by_node(alone, of[3:4])[0].weights)
    assert_same_fits(fit(of, CoordinateAscent()), together, of, 0.0)
