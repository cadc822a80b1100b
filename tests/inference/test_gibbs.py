"""Gibbs sampling against a plain loop, against exact integrals, and by a joint-distribution test that can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from node_cases import BUDGET, assert_same_fits, by_node, features, kernel, plain, problem, problems
from torch import Tensor

import gptree.inference.gibbs
import gptree.inference.posterior
import slow_twins as slow
from gptree.inference import Gibbs, Grams, NodeBatch, NodeProblem, fit_nodes, split_r_hat
from gptree.inference.gibbs import _sample_omega
from gptree.maths import FunctionSpace, Space, WeightSpace, gram, linear_features, sample_pg
from gptree.maths.quadrature import log_sigmoid_expectation

CPU = torch.device("cpu")


# ------------------------------------------------------------------------------------------- settings and limits


@pytest.mark.parametrize("bad", [{"chains": 0}, {"steps": 0}, {"keep": 0}, {"steps": 2, "keep": 3}])
def test_bad_settings_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"chain|step|keep"):
        Gibbs(**bad)


def test_inducing_points_are_refused() -> None:
    with pytest.raises(ValueError, match="use SubsetOfData"):
        fit_nodes(problems([6], inducing=3), kernel(), features(), Gibbs(), memory_budget=BUDGET)


# ------------------------------------------------------------------------------------------- against a plain loop


def loop_draw(K: Tensor, phi: Tensor | None, omega: Tensor, kappa: Tensor, z: Tensor, epsilon: Tensor) -> Tensor:
    """One draw of g | ω, y with explicit inverses: prior draw and correction, or weights of features."""
    if takes_weights(phi):
        assert phi is not None
        B = torch.eye(phi.shape[1], dtype=K.dtype) + phi.T @ torch.diag(omega) @ phi
        return phi @ torch.linalg.inv(B) @ (z + phi.T @ (kappa + omega.sqrt() * epsilon))
    prior = loop_root(K, phi) @ z
    noisy = torch.linalg.inv(K + torch.diag(1 / omega))
    return prior + K @ noisy @ (kappa / omega - prior - epsilon / omega.sqrt())


def takes_weights(phi: Tensor | None) -> bool:
    return phi is not None and len(phi) > 1.5 * phi.shape[1]


def loop_root(K: Tensor, phi: Tensor | None) -> Tensor:
    return torch.linalg.cholesky(K) if phi is None else phi


def loop_gibbs(p: NodeProblem, name: str, X: Tensor, gibbs: Gibbs) -> tuple[list[Tensor], list[Tensor]]:
    """Kept f's and ω's of one node, (chains, n) each, one chain at a time.

    The first ω comes from a draw of the prior; a sweep takes z, then ε, then ω.
    """
    q, x = plain(p), X[p.rows]
    phi = linear_features(kernel(name), x)
    K = gram(kernel(name), x)
    random = torch.Generator().manual_seed(p.seed >> 1)

    def normals(width: int) -> Tensor:
        return torch.randn(gibbs.chains, width, generator=random, dtype=torch.float64)

    root = loop_root(K, phi)
    omega = sample_pg(q.mu + normals(root.shape[1]) @ root.T, q.b, generator=random)
    kept_f, kept_omega = [], []
    for step in range(gibbs.steps):
        z, epsilon = normals(root.shape[1]), normals(len(x))
        f = torch.stack(
            [
                q.mu + loop_draw(K, phi, omega[s], q.kappa - omega[s] * q.mu, z[s], epsilon[s])
                for s in range(gibbs.chains)
            ]
        )
        omega = sample_pg(f, q.b, generator=random)
        if step >= gibbs.steps - gibbs.keep:
            kept_f.append(f)
            kept_omega.append(omega)
    return kept_f, kept_omega


@pytest.mark.parametrize(("name", "d"), [("rbf", 3), ("linear", 6)])
@pytest.mark.parametrize("gibbs", [Gibbs(chains=3), Gibbs(chains=1, steps=2), Gibbs(chains=2, steps=7, keep=5)])
@torch.no_grad()
def test_batched_equals_the_plain_loop(name: str, d: int, gibbs: Gibbs) -> None:
    """Function space, function space with features and weight space (n > 1.5 d), padded and not."""
    X, of = features(d=d), problems()
    fits = fit_nodes(of, kernel(name), X, gibbs, memory_budget=BUDGET)
    assert max(len(posterior.nodes) for posterior in fits.posteriors) > 1
    new = features(4, d, seed=9)
    for v, (fitted, p) in enumerate(zip(by_node(fits, of), of, strict=True)):
        kept_f, kept_omega = loop_gibbs(p, name, X, gibbs)
        omega = torch.cat(kept_omega)
        assert fitted.omega is not None
        torch.testing.assert_close(fitted.omega, omega, rtol=1e-10, atol=1e-10)
        q, x = plain(p), X[p.rows]
        cross, phi = gram(kernel(name), x, new), linear_features(kernel(name), new)
        for s in range(gibbs.chains * gibbs.keep):
            # α = (K + Ω⁻¹)⁻¹ Ω⁻¹ κ̃ needs no inverse of K, which a linear kernel lacks
            noisy = torch.linalg.inv(gram(kernel(name), x) + torch.diag(1 / omega[s]))
            expected = cross.T @ noisy @ (q.kappa / omega[s] - q.mu)
            weights = fitted.weights[s]
            mean = phi @ weights if fitted.kind == "linear" and phi is not None else cross.T @ weights
            torch.testing.assert_close(mean, expected, rtol=1e-9, atol=1e-9)
        if gibbs.keep > 1:
            assert fits.diagnostics.r_hat is not None
            expected = slow_split_r_hat(torch.stack(kept_f, 1)).amax()
            torch.testing.assert_close(fits.diagnostics.r_hat[v], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["rbf", "linear"])
def test_a_node_does_not_depend_on_what_is_fitted_beside_it(name: str) -> None:
    """Neither its form nor its draws nor its R̂, padded or not."""
    X, gibbs = features(d=6), Gibbs(chains=2, steps=4, keep=4)
    of = problems([9, 10, 9, 8, 11, 12, 4, *[2, 3] * 5])
    together = fit_nodes(of, kernel(name), X, gibbs, memory_budget=BUDGET)
    assert together.diagnostics.r_hat is not None
    for v, (fitted, p) in enumerate(zip(by_node(together, of), of, strict=True)):
        single = fit_nodes([p], kernel(name), X, gibbs, memory_budget=BUDGET)
        alone = by_node(single, [p])[0]
        assert fitted.kind == alone.kind
        torch.testing.assert_close(fitted.weights, alone.weights, rtol=1e-10, atol=1e-10)
        assert single.diagnostics.r_hat is not None
        torch.testing.assert_close(together.diagnostics.r_hat[v], single.diagnostics.r_hat[0])


@pytest.mark.parametrize("name", ["rbf", "linear"])
def test_iteration_gives_the_numbers_of_factors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of, gibbs = problems(), Gibbs(chains=3, steps=4)
    factorised = fit_nodes(of, kernel(name), features(), gibbs, memory_budget=BUDGET)
    for module in (gptree.inference.gibbs, gptree.inference.posterior):
        monkeypatch.setattr(module, "ITERATIVE_ORDER", 1)
    assert_same_fits(fit_nodes(of, kernel(name), features(), gibbs, memory_budget=BUDGET), factorised, of, 1e-8)


# --------------------------------------------------------------------------------------------- against integrals


@pytest.mark.parametrize("n", [2, 3])
@torch.no_grad()
def test_moments_equal_those_of_the_exact_posterior(n: int) -> None:
    """4,000 independent chains of 25 sweeps, prior means and weights included.

    Each of the ω's kept is a draw from p(ω | y) up to the bias left after 25 sweeps, which is far below the standard
    error. Averages of E[f | ω], E[f fᵀ | ω] and E[σ(f) | ω] are compared with integrals over a grid: at most 12
    z-tests a case at 4.5 standard errors, a false alarm once in 12,000.
    """
    X, p = features(n, 2), problem(n, seed=3 + n, total=n)
    q = plain(p)
    fits = fit_nodes([p], kernel(), X, Gibbs(chains=4000, steps=25), memory_budget=BUDGET)
    omega = by_node(fits, [p])[0].omega
    assert omega is not None
    K = gram(kernel(), X[p.rows])
    space = FunctionSpace(K[None])
    L = space.factor(omega[:, None])
    means = q.mu + space.mean(space.weights(L, omega[:, None], q.kappa - omega[:, None] * q.mu))[:, 0]
    covariances = torch.linalg.inv(torch.linalg.inv(K) + torch.diag_embed(omega))
    seconds = covariances + means[:, :, None] * means[:, None, :]
    sigmoids = log_sigmoid_expectation(means, covariances.diagonal(dim1=-2, dim2=-1))[0].exp()

    _, weights, mean, covariance = slow.exact_posterior(K, q.kappa, q.b, q.mu)
    grid, _ = slow.grid(K, q.mu)
    pairs = [(i, j) for i in range(n) for j in range(i + 1)]
    checks = [(means[:, i], mean[i]) for i in range(n)]
    checks += [(seconds[:, i, j], (covariance + torch.outer(mean, mean))[i, j]) for i, j in pairs]
    checks += [(sigmoids[:, i], weights @ torch.sigmoid(grid[:, i])) for i in range(n)]
    for draws, expected in checks:
        assert abs(z_score(draws, expected)) < 4.5


def z_score(draws: Tensor, expected: Tensor | float) -> float:
    """How many standard errors the mean of independent draws (R,) is from what is expected."""
    return float((draws.mean() - expected) / (draws.std() / len(draws) ** 0.5))


# ------------------------------------------------------------------------------------- joint-distribution test


REPLICAS, SWEEPS = 150, 80
COVARIANCE = torch.tensor([[2.0, 1.2, -0.4], [1.2, 3.0, 0.5], [-0.4, 0.5, 1.5]], dtype=torch.float64)
TRIALS = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)  # likelihood weights: Binomial(b, σ(f)) counts


def block_diagonal(block: Tensor) -> Tensor:
    return torch.block_diag(*[block] * REPLICAS)[None]


def geweke_space(form: str) -> Space:
    """One node whose points are independent copies of a three-point problem."""
    root = torch.linalg.cholesky(COVARIANCE)
    if form == "weight space":
        return WeightSpace(block_diagonal(root))
    wide = torch.cat([0.6 * root, 0.8 * root.flip(1)], 1)  # six features, the same covariance
    return FunctionSpace(block_diagonal(COVARIANCE), block_diagonal(wide) if form == "features" else None)


def geweke_scores(space: Space, mu: Tensor, sign_of_kappa: float = 1.0) -> Tensor:
    """z-scores of the successive-conditional simulator against the joint distribution p(f) p(y | f) p(ω | f).

    The simulator starts from the joint distribution and repeats f | ω, y and ω | f by the library, y | f by the
    likelihood: all of them leave the joint distribution as it is. Test functions are averaged over the sweeps in each
    replica; the replicas are independent, so their scatter is the standard error. Expectations under the joint
    distribution come from a grid over the prior.
    """
    n = 3 * REPLICAS
    random = torch.Generator().manual_seed(17)
    batch = NodeBatch(
        nodes=torch.zeros(1, dtype=torch.long),
        rows=torch.arange(n)[None],
        kappa=torch.zeros(1, n, dtype=torch.float64),
        b=TRIALS.repeat(REPLICAS)[None],
        mu=mu.repeat(REPLICAS)[None],
        sizes=(n,),
        seeds=(0,),
    )
    noise = torch.randn(REPLICAS, 3, generator=random, dtype=torch.float64)
    f = batch.mu + (noise @ torch.linalg.cholesky(COVARIANCE).T).reshape(1, 1, n)
    omega = _sample_omega(batch, f, [random])
    totals = torch.zeros(REPLICAS, 21, dtype=torch.float64)
    for _ in range(SWEEPS):
        y = torch.binomial(batch.b, torch.sigmoid(f[0]), generator=random)
        batch = replace(batch, kappa=sign_of_kappa * (y - batch.b / 2))
        f = Gibbs(chains=1)._sample_f(batch, space, omega, [random], work=BUDGET)
        omega = _sample_omega(batch, f, [random])
        totals += functions(*(value.reshape(REPLICAS, 3) for value in (f, y, omega)))
    grid, log_weights = slow.grid(COVARIANCE, mu, step=0.5)
    p = TRIALS * torch.sigmoid(grid)
    expected = log_weights.exp() @ functions(grid, p, slow.pg_mean(TRIALS, grid))
    scores = [z_score(totals[:, k] / SWEEPS, expected[k]) for k in range(totals.shape[1])]
    return torch.tensor(scores).abs()


def functions(f: Tensor, y: Tensor, omega: Tensor) -> Tensor:
    """f, its products, its third powers, y, ω and y f: (..., 21)."""
    products = torch.stack([f[..., i] * f[..., j] for i in range(3) for j in range(i + 1)], -1)
    return torch.cat([f, products, f**3 / 10, y, omega, y * f], -1)


ZERO = torch.zeros(3, dtype=torch.float64)
MU = torch.tensor([0.8, -1.3, 0.3], dtype=torch.float64)
#: 21 z-tests at 4.7 standard errors on 150 replicas (Student's t): a false alarm once in 8,000 runs.
ALARM = 4.7


@pytest.mark.parametrize("mu", [ZERO, MU])
@pytest.mark.parametrize("form", ["function space", "features", "weight space"])
def test_joint_distribution(form: str, mu: Tensor) -> None:
    assert geweke_scores(geweke_space(form), mu).max() < ALARM


class WrongCorrection(FunctionSpace):
    """Matheron's rule with the correction's sign flipped: g = g₀ − K (…)."""

    def draw(self, L: Tensor, omega: Tensor, kappa: Tensor, z: Tensor, epsilon: Tensor) -> Tensor:
        prior = torch.einsum("vnk,svk->svn", self.root, z)
        return 2 * prior - super().draw(L, omega, kappa, z, epsilon)


class WrongPriorMean(FunctionSpace):
    """κ̃ = κ + ω μ."""

    def draw(self, L: Tensor, omega: Tensor, kappa: Tensor, z: Tensor, epsilon: Tensor) -> Tensor:
        return super().draw(L, omega, kappa + 2 * omega * MU.repeat(REPLICAS), z, epsilon)


@pytest.mark.parametrize("mu", [ZERO, MU])
@pytest.mark.parametrize("form", ["function space", "weight space"])
def test_joint_distribution_test_fails_when_kappa_has_the_wrong_sign(form: str, mu: Tensor) -> None:
    assert geweke_scores(geweke_space(form), mu, sign_of_kappa=-1.0).max() > 2 * ALARM


@pytest.mark.parametrize("wrong", [WrongCorrection, WrongPriorMean])
def test_joint_distribution_test_fails_when_a_sign_in_the_draw_is_flipped(wrong: type[FunctionSpace]) -> None:
    assert geweke_scores(wrong(block_diagonal(COVARIANCE)), MU).max() > 2 * ALARM


# ------------------------------------------------------------------------------------------------------------ R̂


def slow_split_r_hat(draws: Tensor) -> Tensor:
    """Split R̂ of draws (chains, kept, n), one quantity and one chain at a time."""
    kept = draws.shape[1]
    out = []
    for i in range(draws.shape[2]):
        chains = [chain.tolist() for chain in draws[:, :, i]]
        if kept >= 4:
            half = kept // 2
            chains = [chain[:half] for chain in chains] + [chain[-half:] for chain in chains]
        length = len(chains[0])
        means = [sum(chain) / length for chain in chains]
        within = sum(
            sum((value - mean) ** 2 for value in chain) / (length - 1)
            for chain, mean in zip(chains, means, strict=True)
        ) / len(chains)
        centre = sum(means) / len(means)
        between = sum((mean - centre) ** 2 for mean in means) / (len(means) - 1)
        out.append((((length - 1) / length * within + between) / within) ** 0.5)
    return torch.tensor(out, dtype=draws.dtype)


def normals(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(("chains", "kept"), [(4, 10), (2, 3), (1, 8), (3, 7)])
def test_split_r_hat_equals_its_twin(chains: int, kept: int) -> None:
    draws = normals(chains, kept, 5)
    torch.testing.assert_close(split_r_hat(draws), slow_split_r_hat(draws))


def test_split_r_hat_sees_what_it_should() -> None:
    mixed = normals(4, 500, 3)
    assert (split_r_hat(mixed) < 1.02).all()
    apart = mixed + 3.0 * torch.arange(4)[:, None, None]
    assert (split_r_hat(apart) > 2).all()
    drifting = mixed + torch.linspace(0, 5, 500)[:, None]
    assert (split_r_hat(drifting) > 1.3).all()
    stuck = torch.arange(4.0, dtype=torch.float64)[:, None, None].expand(-1, 500, 3)
    assert (split_r_hat(stuck) > 100).all()
    assert (split_r_hat(torch.ones(4, 500, 3)) == 1).all()


def test_split_r_hat_needs_two_of_something() -> None:
    assert split_r_hat(normals(1, 3, 2)).isnan().all()
    assert split_r_hat(normals(5, 1, 2)).isnan().all()


def test_long_chains_report_an_r_hat_near_one() -> None:
    of = problems([3, 5])
    fits = fit_nodes(of, kernel(), features(), Gibbs(chains=4, steps=450, keep=400), memory_budget=BUDGET)
    assert fits.diagnostics.r_hat is not None
    assert (fits.diagnostics.r_hat < 1.05).all()


def test_chains_that_stay_where_they_are_report_a_large_r_hat(monkeypatch: pytest.MonkeyPatch) -> None:
    def stay(self: Gibbs, batch: NodeBatch, space: Space, omega: Tensor, random: list, work: int) -> Tensor:
        start = 3.0 * torch.arange(self.chains, dtype=torch.float64)[:, None, None]
        jiggle = torch.randn(self.chains, *batch.rows.shape, generator=random[0], dtype=torch.float64)
        return start + 0.1 * jiggle

    monkeypatch.setattr(Gibbs, "_sample_f", stay)
    fits = fit_nodes(problems([3]), kernel(), features(), Gibbs(chains=4, steps=20, keep=20), memory_budget=BUDGET)
    assert fits.diagnostics.r_hat is not None
    assert (fits.diagnostics.r_hat > 10).all()


def test_one_kept_draw_has_no_r_hat() -> None:
    fits = fit_nodes(problems([3]), kernel(), features(), Gibbs(chains=4, steps=5), memory_budget=BUDGET)
    assert fits.diagnostics.r_hat is None
    assert fits.diagnostics.sweeps.tolist() == [5]


def test_a_batch_is_fitted_through_the_public_pieces() -> None:
    """Grams, batch, inference: with a shared Gram matrix or without, the same posterior and the same factors."""
    X, of = features(), problems([4, 5])
    batch = NodeBatch.stack([0, 1], of, torch.float64)
    with torch.no_grad():
        shared, apart = Grams(kernel(), X, BUDGET), Grams(kernel(), X, 0)
        (first, _), (second, _) = (Gibbs(chains=3).fit(batch, grams, BUDGET) for grams in (shared, apart))
        torch.testing.assert_close(first.weights, second.weights, rtol=1e-12, atol=1e-12)
        for draws in (slice(None), slice(1, 2)):
            factors = [p.factoriser(grams)(draws) for p, grams in ((first, shared), (second, apart))]
            torch.testing.assert_close(factors[0], factors[1], rtol=1e-12, atol=1e-12)
