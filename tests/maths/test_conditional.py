"""The conditional, the augmented marginal likelihood and the bounds, against explicit inverses and integrals."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import gptree.maths.linalg
import slow_twins as slow
from gptree.maths import (
    FunctionSpace,
    WeightSpace,
    collapsed_bound,
    covariance_root,
    log_augmented_marginal,
    pg_mean,
    variational_bound,
)


@dataclass(frozen=True)
class Problem:
    """S draws × V nodes × n points, with r features whose product is K, and T new points."""

    K: Tensor
    features: Tensor
    new_features: Tensor
    omega: Tensor
    kappa: Tensor
    b: Tensor
    mu: Tensor

    @property
    def shifted(self) -> Tensor:
        return self.kappa - self.omega * self.mu


def make_problem(seed: int, draws: int = 3, nodes: int = 4, n: int = 5, r: int = 8, zeros: bool = True) -> Problem:
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    features = normal(nodes, n, r) / 2
    b = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)[torch.randint(3, (nodes, n), generator=random)]
    y = torch.randint(2, (nodes, n), generator=random).double()
    omega = normal(draws, nodes, n).square()
    if zeros:
        omega[..., -1] = 0.0
    return Problem(features @ features.mT, features, normal(nodes, 6, r), omega, b * (y - 0.5), b, normal(nodes, n))


def spaces(p: Problem) -> dict[str, FunctionSpace | WeightSpace]:
    return {
        "function": FunctionSpace(p.K),
        "function with features": FunctionSpace(p.K, p.features),
        "weight": WeightSpace(p.features),
    }


SPACES = ["function", "function with features", "weight"]


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------------------------------------- conditional


@pytest.mark.parametrize("name", SPACES)
def test_mean_and_variance_equal_explicit_inverses(name: str) -> None:
    p = make_problem(seed=1)
    space = spaces(p)[name]
    L = space.factor(p.omega)
    weights = space.weights(L, p.omega, p.shifted)
    mean, variance = space.mean(weights), space.variance(L, p.omega)
    for s in range(3):
        for v in range(4):
            m, sigma = slow.conditional(p.K[v], p.omega[s, v], p.kappa[v], p.mu[v])
            assert_close(mean[s, v], m)
            assert_close(variance[s, v], sigma.diagonal())


@pytest.mark.parametrize("name", SPACES)
def test_squared_norm_is_that_of_the_prior(name: str) -> None:
    p = make_problem(seed=1)
    space = spaces(p)[name]
    weights = space.weights(space.factor(p.omega), p.omega, p.shifted)
    mean, norm = space.mean(weights), space.squared_norm(weights)
    for s in range(3):
        for v in range(4):
            assert_close(norm[s, v], mean[s, v] @ torch.linalg.inv(p.K[v]) @ mean[s, v])


def test_weights_predict_at_new_points() -> None:
    p = make_problem(seed=2)
    dense, weight = FunctionSpace(p.K), WeightSpace(p.features)
    alpha = dense.weights(dense.factor(p.omega), p.omega, p.shifted)
    t = weight.weights(weight.factor(p.omega), p.omega, p.shifted)
    for s in range(3):
        for v in range(4):
            cross, new = p.features[v] @ p.new_features[v].T, p.new_features[v]
            expected, _ = slow.predictive(p.K[v], cross, new.square().sum(-1), p.omega[s, v], p.kappa[v], p.mu[v])
            assert_close(cross.T @ alpha[s, v], expected)
            assert_close(new @ t[s, v], expected)


def test_both_spaces_agree_where_the_gram_matrix_is_singular() -> None:
    p = make_problem(seed=3, n=9, r=4)
    dense, weight = FunctionSpace(p.K), WeightSpace(p.features)
    L, M = dense.factor(p.omega), weight.factor(p.omega)
    assert_close(dense.mean(dense.weights(L, p.omega, p.shifted)), weight.mean(weight.weights(M, p.omega, p.shifted)))
    assert_close(dense.variance(L, p.omega), weight.variance(M, p.omega))
    assert_close(
        log_augmented_marginal(dense, p.omega, p.kappa, p.b, p.mu),
        log_augmented_marginal(weight, p.omega, p.kappa, p.b, p.mu),
    )


@pytest.mark.parametrize("name", ["function", "weight"])
def test_without_data_the_conditional_is_the_prior(name: str) -> None:
    p = make_problem(seed=4)
    space, nothing = spaces(p)[name], torch.zeros_like(p.omega)
    L = space.factor(nothing)
    assert_close(space.variance(L, nothing), p.K.diagonal(dim1=-2, dim2=-1).expand(3, -1, -1))
    assert_close(
        space.mean(space.weights(L, nothing, p.kappa - nothing * p.mu)),
        (p.K @ p.kappa[..., None])[..., 0].expand(3, -1, -1),
    )


@pytest.mark.parametrize("name", ["function", "weight"])
def test_padding_is_exact(name: str) -> None:
    """Padded points repeat a real one's features; with ω = κ = b = 0 every real number stays as it was."""
    p, extra = make_problem(seed=5), 3

    def pad(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values, (0, extra))

    features = torch.cat([p.features, p.features[:, :1].expand(-1, extra, -1)], 1)
    padded = Problem(features @ features.mT, features, p.new_features, pad(p.omega), pad(p.kappa), pad(p.b), pad(p.mu))
    results = []
    for q in (p, padded):
        space = spaces(q)[name]
        L = space.factor(q.omega)
        mean = space.mean(space.weights(L, q.omega, q.shifted))[..., :5]
        evidence = log_augmented_marginal(space, q.omega, q.kappa, q.b, q.mu)
        results.append((mean, space.variance(L, q.omega)[..., :5], evidence))
    for plain, with_padding in zip(*results, strict=True):
        assert_close(with_padding, plain, 1e-12)
    if name == "function":
        alpha = FunctionSpace(padded.K).weights(
            FunctionSpace(padded.K).factor(padded.omega), padded.omega, padded.shifted
        )
        assert (alpha[..., 5:] == 0).all()


@pytest.mark.parametrize("name", SPACES)
def test_draw_has_exactly_the_right_mean_and_covariance(name: str) -> None:
    """A draw is affine in its standard normals: zeros give its mean, unit vectors a root of its covariance."""
    p = make_problem(seed=6)
    space = spaces(p)[name]
    L = space.factor(p.omega)
    z_width, e_width = (5 if width is None else width for width in space.noise_widths)

    def draw(noise: Tensor) -> Tensor:
        noise = noise.expand(3, 4, -1)
        return space.draw(L, p.omega, p.shifted, noise[..., :z_width], noise[..., z_width:])

    zero = torch.zeros(z_width + e_width, dtype=torch.float64)
    mean = draw(zero)
    root = torch.stack([draw(unit) - mean for unit in torch.eye(len(zero), dtype=torch.float64)], -1)
    for s in range(3):
        for v in range(4):
            m, sigma = slow.conditional(p.K[v], p.omega[s, v], p.kappa[v], p.mu[v])
            assert_close(mean[s, v], m)
            assert_close(root[s, v] @ root[s, v].T, sigma)


@pytest.mark.parametrize("name", SPACES)
def test_shared_omega_equals_the_expanded_one(name: str) -> None:
    p = make_problem(seed=7)
    space, shared = spaces(p)[name], p.omega[:1]
    z, epsilon = noise_of(space)
    kappa = p.kappa - shared * p.mu
    everywhere = shared.expand(3, -1, -1)
    one, many = space.factor(shared), space.factor(everywhere)
    assert one.shape[0] == 1
    assert_close(
        space.draw(one, shared, kappa, z, epsilon),
        space.draw(many, everywhere, kappa.expand(3, -1, -1), z, epsilon),
    )
    assert_close(
        space.weights(one, shared, kappa).expand(3, -1, -1),
        space.weights(many, everywhere, kappa.expand(3, -1, -1)),
    )
    assert_close(space.variance(one, shared).expand(3, -1, -1), space.variance(many, everywhere))


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("steps", [200, 1])
@pytest.mark.parametrize("shared", [False, True])
def test_iteration_equals_factors(name: str, steps: int, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a factor, B⁻¹ is applied by conjugate gradients, or after all by a factor where these do not arrive."""
    monkeypatch.setattr(gptree.maths.linalg, "CG_STEPS", steps)
    p = make_problem(seed=16)
    space, omega = spaces(p)[name], p.omega[:1] if shared else p.omega
    kappa = p.kappa - omega * p.mu
    z, epsilon = noise_of(space)
    L = space.factor(omega)
    assert_close(space.weights(None, omega, kappa), space.weights(L, omega, kappa), 1e-9)
    assert_close(space.draw(None, omega, kappa, z, epsilon), space.draw(L, omega, kappa, z, epsilon), 1e-9)


def noise_of(space: FunctionSpace | WeightSpace) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    widths = [5 if width is None else width for width in space.noise_widths]
    return [torch.randn(3, 4, width, generator=random, dtype=torch.float64) for width in widths]


@pytest.mark.parametrize("name", SPACES)
def test_prior_draws_have_the_prior_covariance(name: str) -> None:
    p = make_problem(seed=17)
    space = spaces(p)[name]
    width = 5 if space.noise_widths[0] is None else space.noise_widths[0]
    units = torch.eye(width, dtype=torch.float64)[:, None].expand(-1, 4, -1)
    root = space.prior_draw(units).permute(1, 2, 0)
    assert_close(root @ root.mT, p.K)


def test_inducing_points_whiten_and_leave_the_residual() -> None:
    p = make_problem(seed=8, n=7)
    K, m = p.K, 3
    space, L, jitter = WeightSpace.from_inducing(K[:, :m, :m], K[:, :, :m], K.diagonal(dim1=-2, dim2=-1))
    assert (jitter == 0).all()
    for v in range(4):
        assert_close(L[v] @ L[v].T, K[v, :m, :m])
        nystroem = K[v, :, :m] @ torch.linalg.inv(K[v, :m, :m]) @ K[v, :m]
        assert_close(space.A[v] @ space.A[v].T, nystroem)
        assert_close(space.residual[v], (K[v] - nystroem).diagonal())


# --------------------------------------------------------------------------------- augmented marginal likelihood


@pytest.mark.parametrize("name", ["function", "weight"])
def test_augmented_marginal_is_the_paper_s_gaussian(name: str) -> None:
    """p(y | ω) = Π 2^−b exp(κ²/2ω) √(2π/ω) · N(Ω⁻¹ κ | μ, K + Ω⁻¹)."""
    p = make_problem(seed=9, zeros=False)
    actual = log_augmented_marginal(spaces(p)[name], p.omega, p.kappa, p.b, p.mu)
    assert actual.shape == (3, 4)
    for s in range(3):
        for v in range(4):
            omega, kappa = p.omega[s, v], p.kappa[v]
            log_constants = (
                -p.b[v] * torch.log(torch.tensor(2.0)) + kappa**2 / (2 * omega) + 0.5 * torch.log(2 * torch.pi / omega)
            ).sum()
            density = scipy.stats.multivariate_normal(p.mu[v].numpy(), (p.K[v] + torch.diag(1 / omega)).numpy())
            expected = log_constants + density.logpdf((kappa / omega).numpy())
            assert_close(actual[s, v], expected, 1e-8)


@pytest.mark.parametrize("n", [1, 2])
def test_augmented_marginal_equals_integration(n: int) -> None:
    p = make_problem(seed=10, n=n, zeros=True)
    actual = log_augmented_marginal(FunctionSpace(p.K), p.omega, p.kappa, p.b, p.mu)
    for s in range(3):
        for v in range(4):
            f, log_weights = slow.grid(p.K[v], p.mu[v], step=0.05)
            log_integrand = p.kappa[v] * f - 0.5 * p.omega[s, v] * f**2 - p.b[v] * torch.log(torch.tensor(2.0))
            assert_close(actual[s, v], (log_weights + log_integrand.sum(-1)).logsumexp(0), 1e-7)


def test_augmented_marginal_has_the_right_gradient() -> None:
    p = make_problem(seed=11, draws=1, nodes=1, n=3)
    features = p.features.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda A: log_augmented_marginal(FunctionSpace(A @ A.mT), p.omega, p.kappa, p.b, p.mu), features
    )
    assert torch.autograd.gradcheck(
        lambda A: log_augmented_marginal(WeightSpace(A), p.omega, p.kappa, p.b, p.mu), features
    )


def test_gradients_are_right_where_the_precision_is_computed_in_blocks() -> None:
    """More than 512 features: B is assembled block by block."""
    p = make_problem(seed=18, draws=1, nodes=2, n=4, r=600)
    A = (p.features / 12).requires_grad_()
    with torch.no_grad():
        L = WeightSpace(A).factor(p.omega)
    omega = torch.diag_embed(p.omega)
    assert_close(L @ L.mT, torch.eye(600, dtype=torch.float64) + A.detach().mT @ omega @ A.detach())
    values = [
        log_augmented_marginal(space, p.omega, p.kappa, p.b, p.mu)
        for space in (WeightSpace(A), FunctionSpace(A @ A.mT))
    ]
    assert_close(values[0].detach(), values[1].detach())
    gradients = [torch.autograd.grad(value.sum(), A)[0] for value in values]
    assert_close(*gradients)


# ------------------------------------------------------------------------------------------------------ bounds


def random_tilts(seed: int, *shape: int) -> Tensor:
    return 0.1 + 3 * torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_collapsed_bound_is_the_bound_at_the_best_q() -> None:
    p = make_problem(seed=12)
    c = random_tilts(0, 3, 4, 5)
    omega = pg_mean(c, p.b)
    actual = collapsed_bound(FunctionSpace(p.K), c, omega, p.kappa, p.b, p.mu)
    for s in range(3):
        for v in range(4):
            m, S = slow.conditional(p.K[v], omega[s, v], p.kappa[v], p.mu[v])
            expected = slow.dense_bound(p.K[v], m, S, c[s, v], p.kappa[v], p.b[v], p.mu[v])
            assert_close(actual[s, v], expected, 1e-9)


def test_collapsed_sparse_bound_is_the_bound_at_the_best_q() -> None:
    p, m_points = make_problem(seed=13, n=7), 3
    K_mm, K_mn, k_nn = p.K[:, :m_points, :m_points], p.K[:, :m_points], p.K.diagonal(dim1=-2, dim2=-1)
    c = random_tilts(1, 1, 4, 7)
    omega = pg_mean(c, p.b)
    space, L, _ = WeightSpace.from_inducing(K_mm, K_mn.mT, k_nn)
    actual = collapsed_bound(space, c, omega, p.kappa, p.b, p.mu)
    t = space.weights(space.factor(omega), omega, p.kappa - omega * p.mu)
    for v in range(4):
        # the natural parameters of DESIGN's step of size one: S⁻¹ = K_mm⁻¹ + Aᵀ Λ A, S⁻¹ m = Aᵀ κ̃
        A = torch.linalg.inv(K_mm[v]) @ K_mn[v]
        S = torch.linalg.inv(torch.linalg.inv(K_mm[v]) + (A * omega[0, v]) @ A.T)
        m = S @ A @ (p.kappa[v] - omega[0, v] * p.mu[v])
        expected = slow.bound(K_mm[v], K_mn[v], k_nn[v], m, S, c[0, v], p.kappa[v], p.b[v], p.mu[v])
        assert_close(actual[0, v], expected, 1e-9)
        assert_close(L[v] @ t[0, v], m, 1e-9)


@pytest.mark.parametrize("inducing", [None, 3])
def test_variational_bound_equals_the_point_by_point_formula(inducing: int | None) -> None:
    p = make_problem(seed=14, n=6)
    m_points = 6 if inducing is None else inducing
    K_mm, K_mn, k_nn = p.K[:, :m_points, :m_points], p.K[:, :m_points], p.K.diagonal(dim1=-2, dim2=-1)
    if inducing is None:
        L = covariance_root(p.K)[0]
        space = WeightSpace(L)
    else:
        space, L, _ = WeightSpace.from_inducing(K_mm, K_mn.mT, k_nn)
    random = torch.Generator().manual_seed(3)
    m = torch.randn(3, 4, m_points, generator=random, dtype=torch.float64)
    root = torch.randn(3, 4, m_points, m_points, generator=random, dtype=torch.float64)
    S, c = root @ root.mT, random_tilts(2, 3, 4, 6)
    actual = variational_bound(space, m, S, c, p.kappa, p.b, p.mu)
    for s in range(3):
        for v in range(4):
            expected = slow.bound(
                K_mm[v], K_mn[v], k_nn[v], L[v] @ m[s, v], L[v] @ S[s, v] @ L[v].T,
                c[s, v], p.kappa[v], p.b[v], p.mu[v],
            )  # fmt: skip
            assert_close(actual[s, v], expected, 1e-9)


@given(
    seed=st.integers(0, 2**31),
    n=st.sampled_from([1, 2, 3]),
    perturbation=st.sampled_from([0.0, 0.1, 1.0]),
)
@settings(max_examples=40, deadline=None)
def test_bound_stays_below_the_marginal_likelihood(seed: int, n: int, perturbation: float) -> None:
    """At any q(f) and q(ω), best or not, with prior means and weights; and the best is near it."""
    p = make_problem(seed, draws=1, nodes=1, n=n, r=n + 3)
    log_evidence = slow.exact_posterior(p.K[0], p.kappa[0], p.b[0], p.mu[0])[0]
    root = covariance_root(p.K)[0]
    space = WeightSpace(root)
    c = (p.mu.square() + 0.25).sqrt()[None]
    for _ in range(100):
        omega = pg_mean(c, p.b)
        L = space.factor(omega)
        m = space.weights(L, omega, p.kappa - omega * p.mu)
        c = (space.variance(L, omega) + (p.mu + space.mean(m)).square()).sqrt()
    S = torch.linalg.inv(space.precision(omega))
    best = collapsed_bound(space, c, pg_mean(c, p.b), p.kappa, p.b, p.mu)[0, 0]
    assert best <= log_evidence + 1e-9
    assert best > log_evidence - 0.1 * n * p.b.max()

    random = torch.Generator().manual_seed(seed)
    m = m + perturbation * torch.randn(m.shape, generator=random, dtype=torch.float64)
    c = c * torch.exp(perturbation * torch.randn(c.shape, generator=random, dtype=torch.float64))
    S = S * (1 + perturbation)
    elsewhere = variational_bound(space, m, S, c, p.kappa, p.b, p.mu)[0, 0]
    assert elsewhere <= best + 1e-9
    assert collapsed_bound(space, c, pg_mean(c, p.b), p.kappa, p.b, p.mu)[0, 0] >= elsewhere - 1e-9


def test_sparse_bound_stays_below_the_dense_one() -> None:
    """For the same q(ω) the best sparse q is one of the dense q's; more inducing points give more."""
    p = make_problem(seed=15, n=7)
    c = random_tilts(4, 1, 4, 7)
    omega = pg_mean(c, p.b)
    values = [
        collapsed_bound(
            WeightSpace.from_inducing(p.K[:, :m, :m], p.K[:, :, :m], p.K.diagonal(dim1=-2, dim2=-1))[0],
            c, omega, p.kappa, p.b, p.mu,
        )
        for m in (1, 3, 5)
    ]  # fmt: skip
    values.append(collapsed_bound(FunctionSpace(p.K), c, omega, p.kappa, p.b, p.mu))
    for smaller, larger in pairwise(values):
        assert (smaller < larger).all()
