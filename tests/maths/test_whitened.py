"""Whitened nodes: values and closed-form gradients against autograd through plain loops, and finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

import slow_twins as slow
from gptree.maths import as_kernel, gram, gram_diagonal, linalg, make_kernel, whitened
from gptree.maths.whitened import Likelihood, Whitened, WhitenedRows, root_inverse, whitened_kl

FLOAT = torch.float64
JITTER = 1e-3  # large, so that leaving it out shows
#: (nodes, inducing points) of batches of nodes, and the rows that all of them look at.
SIZES, ROWS = ((3, 5), (1, 8), (2, 1)), 7


@dataclass(frozen=True)
class Nodes:
    """V nodes with M points and N rows: kernel matrices, natural parameters, labels, likelihood weights, prior mean."""

    K_mm: Tensor
    K_mn: Tensor
    k_nn: Tensor
    eta: Tensor
    precision: Tensor
    kappa: Tensor
    b: Tensor
    mu: Tensor

    def __getitem__(self, v: int) -> Nodes:
        return Nodes(*(value[v] for value in vars(self).values()))

    def __len__(self) -> int:
        return len(self.K_mm)

    def to(self, place: torch.dtype | str) -> Nodes:
        return Nodes(*(value.to(place) for value in vars(self).values()))


def rbf(x: Tensor, other: Tensor, scale: Tensor | float = 3.0, length: Tensor | float = 1.2) -> Tensor:
    square = (x.unsqueeze(-2) - other.unsqueeze(-3)).square().sum(-1)
    return scale * torch.exp(-0.5 * square / length**2)


def places(count: int, points: int, rows: int = ROWS, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inducing points (V, M, 3) and features (V, N, 3)."""
    random = torch.Generator().manual_seed(seed + 100 * points)
    both = torch.randn(count, points + rows, 3, generator=random, dtype=FLOAT)
    return both[:, :points], both[:, points:]


def make_nodes(count: int, points: int, rows: int = ROWS, seed: int = 0, prior_mean: bool = False) -> Nodes:
    """Weights b are ½, 1, 2, or 0 for rows that are left out; P is the identity plus something of full rank."""
    random = torch.Generator().manual_seed(seed)
    z, x = places(count, points, rows, seed)
    factor = torch.randn(count, points, points, generator=random, dtype=FLOAT)
    b = torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=FLOAT)[torch.randint(4, (count, rows), generator=random)]
    b[:, 0], b[:, 1] = 0.0, 2.0
    y = torch.randint(2, (count, rows), generator=random)
    mu = torch.randn(count, rows, generator=random, dtype=FLOAT)
    return Nodes(
        K_mm=rbf(z, z),
        K_mn=rbf(z, x),
        k_nn=torch.full((count, rows), 3.0, dtype=FLOAT),
        eta=torch.randn(count, points, generator=random, dtype=FLOAT),
        precision=torch.eye(points, dtype=FLOAT) + factor @ factor.mT,
        kappa=b * (y - 0.5),
        b=b,
        mu=mu if prior_mean else torch.zeros_like(mu),
    )


BATCHES = [make_nodes(count, points, seed=i) for i, (count, points) in enumerate(SIZES)]


def factors(batches: Sequence[Nodes], jitter: float = JITTER) -> list[Whitened]:
    parts = ([getattr(batch, name) for batch in batches] for name in ("K_mm", "eta", "precision"))
    K_mm, eta, precision = parts
    return Whitened.each(K_mm, torch.full_like(K_mm[0][0, 0, 0], jitter), eta, precision)


def look(q: Whitened, nodes: Nodes) -> tuple[WhitenedRows, Likelihood]:
    rows = q.rows(nodes.K_mn, nodes.k_nn)
    return rows, Likelihood.of(nodes.mu + rows.mean, rows.variance, nodes.kappa, nodes.b)


# ------------------------------------------------------------------------------------------------- the slow twin


def jittered(K_mm: Tensor, jitter: float = JITTER) -> Tensor:
    return K_mm + jitter * torch.diag(K_mm.diagonal())


def moments(node: Nodes, jitter: float = JITTER) -> list[tuple[Tensor, Tensor, Tensor]]:
    """a_i, E[f_i] and var(f_i) of one node, row by row."""
    root = torch.linalg.cholesky(jittered(node.K_mm, jitter))
    covariance = torch.linalg.inv(node.precision)
    m, found = covariance @ node.eta, []
    for i in range(node.K_mn.shape[1]):
        a = torch.linalg.solve(root, node.K_mn[:, i])
        found.append((a, node.mu[i] + a @ m, node.k_nn[i] - a @ a + a @ covariance @ a))
    return found


def expected_log_likelihood(node: Nodes, jitter: float = JITTER) -> Tensor:
    """Σ_i κ_i E[f_i] − b_i log(2 cosh(c_i / 2)), c_i² = E[f_i²]."""
    total = torch.zeros((), dtype=FLOAT)
    for i, (_, mean, variance) in enumerate(moments(node, jitter)):
        c = (variance + mean**2).sqrt()
        total = total + node.kappa[i] * mean - node.b[i] * torch.log(2 * torch.cosh(c / 2))
    return total


def prior_mean_or_not() -> list[list[Nodes]]:
    return [BATCHES, [make_nodes(*size, seed=9 + i, prior_mean=True) for i, size in enumerate(SIZES)]]


@pytest.mark.parametrize("batches", prior_mean_or_not(), ids=["zero mean", "prior mean"])
def test_values_and_natural_statistics_equal_a_plain_loop_s(batches: list[Nodes]) -> None:
    for q, nodes in zip(factors(batches), batches, strict=True):
        assert q.sound.all()
        rows, said = look(q, nodes)
        eta, precision = rows.sums(said.lam, nodes.kappa - said.lam * nodes.mu)
        for v in range(len(nodes)):
            node, to_eta, to_precision = nodes[v], 0.0, 0.0
            for i, (a, mean, variance) in enumerate(moments(node)):
                c = (variance + mean**2).sqrt()
                lam = slow.pg_mean(node.b[i], c)
                torch.testing.assert_close(rows.A[v, :, i], a, rtol=1e-10, atol=1e-10)
                torch.testing.assert_close(said.mean[v, i], mean, rtol=1e-10, atol=1e-10)
                torch.testing.assert_close(rows.variance[v, i], variance, rtol=1e-10, atol=1e-10)
                torch.testing.assert_close(said.lam[v, i], lam, rtol=1e-10, atol=1e-10)
                torch.testing.assert_close(said.slope[v, i], node.kappa[i] - lam * mean, rtol=1e-10, atol=1e-10)
                to_eta = to_eta + (node.kappa[i] - lam * node.mu[i]) * a
                to_precision = to_precision + lam * torch.outer(a, a)
            torch.testing.assert_close(said.value[v].sum(), expected_log_likelihood(node), rtol=1e-10, atol=1e-10)
            torch.testing.assert_close(eta[v], to_eta, rtol=1e-10, atol=1e-10)
            torch.testing.assert_close(precision[v], to_precision, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("batches", prior_mean_or_not(), ids=["zero mean", "prior mean"])
def test_gradients_of_the_kernel_matrices_equal_autograd_s(batches: list[Nodes]) -> None:
    """Each node's sum weighted differently, as a loss would. The symmetric part of K̄_mm counts: K_mm moves that way."""
    for q, nodes in zip(factors(batches), batches, strict=True):
        rows, said = look(q, nodes)
        share = torch.tensor([0.5, -1.0, 2.0], dtype=FLOAT)[: len(nodes), None]
        to_K_mm, to_K_mn = rows.gradients(q, share * said.lam, share * said.slope)
        to_K_mm = (to_K_mm + to_K_mm.mT) / 2
        for v in range(len(nodes)):
            at = [getattr(nodes[v], name).clone().requires_grad_() for name in ("K_mm", "K_mn", "k_nn")]
            moved = replace(nodes[v], K_mm=(at[0] + at[0].T) / 2, K_mn=at[1], k_nn=at[2])
            expected = torch.autograd.grad(share[v, 0] * expected_log_likelihood(moved), at)
            found = to_K_mm[v], to_K_mn[v], -0.5 * (share * said.lam)[v]
            for mine, theirs in zip(found, expected, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def test_rows_left_out_count_for_nothing() -> None:
    nodes = BATCHES[0]
    out = nodes.b[0] == 0
    assert 0 < out.sum() < ROWS
    (q,) = factors([nodes])
    rows, said = look(q, nodes)
    assert (said.value[0, out] == 0).all()
    to_K_mm, to_K_mn = rows.gradients(q, said.lam, said.slope)
    assert (to_K_mn[0][:, out] == 0).all()
    kept = replace(nodes, **{name: getattr(nodes, name)[..., ~out] for name in ("K_mn", "k_nn", "kappa", "b", "mu")})
    fewer, said_fewer = look(q, kept)
    pairs = [(fewer.gradients(q, said_fewer.lam, said_fewer.slope)[0], to_K_mm)]
    pairs += zip(fewer.sums(said_fewer.lam, kept.kappa), rows.sums(said.lam, nodes.kappa), strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine[0], theirs[0], rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------ through a kernel, with η and P as they are


def start() -> tuple[Nodes, list[Tensor]]:
    """One node, and what moves: features, inducing points, output scale and length-scale."""
    z, x = places(1, 6, 9, seed=3)
    moving = [x[0], z[0], torch.tensor(3.0, dtype=FLOAT), torch.tensor(1.2, dtype=FLOAT)]
    return make_nodes(1, 6, 9, seed=3)[0], moving


def at_place(node: Nodes, x: Tensor, z: Tensor, scale: Tensor, length: Tensor) -> Nodes:
    """The node with its kernel matrices at other features, points and hyper-parameters; η and P stay."""
    k_nn = scale.expand(len(x))
    return replace(node, K_mm=rbf(z, z, scale, length), K_mn=rbf(z, x, scale, length), k_nn=k_nn)


def closed_form(node: Nodes, moving: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of the expected log-likelihood: kernel matrices by the closed form, the rest by the kernel's own."""
    x, z, scale, length = (value.clone().requires_grad_() for value in moving)
    kernel = as_kernel(make_kernel("rbf"), FLOAT, x.device)
    raw = [kernel.raw_outputscale_constraint.inverse_transform(scale)]
    raw += [kernel.base_kernel.raw_lengthscale_constraint.inverse_transform(length)]
    del kernel.raw_outputscale, kernel.base_kernel.raw_lengthscale
    kernel.raw_outputscale, kernel.base_kernel.raw_lengthscale = raw
    parts = [gram(kernel, z), gram(kernel, z, x), gram_diagonal(kernel, x)]
    with torch.no_grad():
        nodes = replace(node, **dict(zip(("K_mm", "K_mn", "k_nn"), parts, strict=True)))
        nodes = Nodes(*(value.unsqueeze(0) for value in vars(nodes).values()))
        (q,) = factors([nodes])
        rows, said = look(q, nodes)
        to_K_mm, to_K_mn = rows.gradients(q, said.lam, said.slope)
    to_parts = [to_K_mm[0], to_K_mn[0], -0.5 * said.lam[0]]
    return list(torch.autograd.grad(parts, [x, z, scale, length], to_parts))


def test_gradients_through_the_kernel_equal_autograd_s() -> None:
    node, moving = start()
    at = [value.clone().requires_grad_() for value in moving]
    expected = torch.autograd.grad(expected_log_likelihood(at_place(node, *at)), at)
    for mine, theirs in zip(closed_form(node, moving), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def bound_in_place(node: Nodes, moving: Sequence[Tensor], u: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """The whole bound point by point at the best c, in terms of u = L w: with η and P held, or with q(u) held."""
    here = at_place(node, *moving)
    K_mm = jittered(here.K_mm)
    root, covariance = torch.linalg.cholesky(K_mm), torch.linalg.inv(node.precision)
    m, S = (root @ covariance @ node.eta, root @ covariance @ root.T) if u is None else u
    A = torch.linalg.solve(K_mm, here.K_mn)
    second = here.k_nn - (here.K_mn * A).sum(0) + (A * (S @ A)).sum(0) + (A.T @ m) ** 2
    return slow.bound(K_mm, here.K_mn, here.k_nn, m, S, second.sqrt(), node.kappa, node.b, node.mu)


def slopes(node: Nodes, moving: Sequence[Tensor], u: tuple[Tensor, Tensor] | None, h: float = 1e-4) -> list[float]:
    """Finite differences of the bound, each of the things that move along a fixed random direction of its own."""
    found = []
    for i, value in enumerate(moving):
        random = torch.Generator().manual_seed(i)
        direction = torch.randn(value.shape, generator=random, dtype=FLOAT)
        values = {}
        for step in (-2, -1, 1, 2):
            moved = [*moving[:i], value + step * h * direction, *moving[i + 1 :]]
            values[step] = float(bound_in_place(node, moved, u))
        found.append((8 * (values[1] - values[-1]) - (values[2] - values[-2])) / (12 * h))
    return found


def test_gradient_is_that_of_the_bound_with_the_whitened_parameters_held() -> None:
    """What stays fixed are η and P, the natural parameters of q(w) at the whitened values w = L⁻¹ u.

    So q(u) = N(L m, L P⁻¹ Lᵀ) moves along with the kernel and the inducing points, and KL(q ‖ p) does not move at all.
    Holding the mean and covariance of u instead is another algorithm: its gradient is another one.
    """
    node, moving = start()
    gradients = closed_form(node, moving)
    along = [
        float((gradient * torch.randn(gradient.shape, generator=torch.Generator().manual_seed(i), dtype=FLOAT)).sum())
        for i, gradient in enumerate(gradients)
    ]
    assert slopes(node, moving, None) == pytest.approx(along, rel=1e-7, abs=1e-7)
    root = torch.linalg.cholesky(jittered(at_place(node, *moving).K_mm))
    covariance = torch.linalg.inv(node.precision)
    u = root @ covariance @ node.eta, root @ covariance @ root.T
    held = slopes(node, moving, u)
    assert held[0] == pytest.approx(along[0], rel=1e-7)  # features move neither K_mm nor q(u)
    assert all(abs(a - b) > 1e-2 for a, b in zip(held[1:], along[1:], strict=True))


# ----------------------------------------------------------------------------------------- divergence and likelihood


def test_kl_equals_that_of_torch() -> None:
    for q, nodes in zip(factors(BATCHES), BATCHES, strict=True):
        points = nodes.eta.shape[-1]
        mean = torch.linalg.solve(nodes.precision, nodes.eta)
        prior = MultivariateNormal(torch.zeros(points, dtype=FLOAT), torch.eye(points, dtype=FLOAT))
        expected = kl_divergence(MultivariateNormal(mean, precision_matrix=nodes.precision), prior)
        torch.testing.assert_close(whitened_kl(q), expected, rtol=1e-10, atol=1e-10)


def test_kl_is_zero_at_the_prior() -> None:
    nodes = replace(BATCHES[0], eta=torch.zeros(3, 5, dtype=FLOAT), precision=torch.eye(5, dtype=FLOAT).repeat(3, 1, 1))
    assert torch.equal(whitened_kl(*factors([nodes])), torch.zeros(3, dtype=FLOAT))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_likelihood_and_its_slopes(dtype: torch.dtype) -> None:
    """∂/∂E[f] and ∂/∂var against autograd in double precision, from f = 0 exactly to |f| = 1e4."""
    mean = torch.tensor([0.0, 0.0, 1e-4, -0.3, 2.0, -30.0, 1e4], dtype=dtype).repeat(4, 1)
    variance = torch.tensor([[0.0], [1e-6], [0.7], [50.0]], dtype=dtype).expand_as(mean).contiguous()
    b = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.0, 1.0, 1.0], dtype=dtype).expand_as(mean)
    kappa = b * torch.tensor([0.5, -0.5, 0.5, -0.5, 0.5, -0.5, 0.5], dtype=dtype)
    said = Likelihood.of(mean, variance, kappa, b)
    at = [mean.double().requires_grad_(), variance.double().requires_grad_()]
    c = (at[1] + at[0].square()).clamp_min(1e-12).sqrt()
    value = kappa.double() * at[0] - b.double() * (c / 2 + torch.log1p(torch.exp(-c)))
    to_mean, to_variance = torch.autograd.grad(value.sum(), at)
    nowhere = (mean == 0) & (variance == 0)  # there the root has no derivative; λ is b / 4, its limit
    to_mean, to_variance = to_mean.where(~nowhere, kappa.double()), to_variance.where(~nowhere, -b.double() / 8)
    tolerance = 3e-6 if dtype == torch.float32 else 1e-9
    for mine, theirs in ((said.slope, to_mean), (-0.5 * said.lam, to_variance)):
        torch.testing.assert_close(mine.double(), theirs, rtol=tolerance, atol=tolerance)
    # κ E[f] and b log(2 cosh) cancel where a label is certain: digits of the larger are what can be had
    torch.testing.assert_close(said.value.double(), value.detach(), rtol=tolerance, atol=1e4 * tolerance)


# -------------------------------------------------------------------------------------- trouble, single precision


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
)
def test_failed_nodes_are_told_and_leave_the_others_alone(device: str) -> None:
    """A K_mm or a P that is not positive definite, or not finite: identity factors, and `sound` says so."""
    nodes = make_nodes(5, 4, seed=2).to(device)
    K_mm, precision = nodes.K_mm.clone(), nodes.precision.clone()
    K_mm[0] = -K_mm[0]
    K_mm[1, 2, 2] = torch.nan
    precision[3, 0, 0] = -1.0
    precision[4] = torch.inf
    (q,) = factors([replace(nodes, K_mm=K_mm, precision=precision)])
    (well,) = factors([nodes])
    assert q.sound.tolist() == [False, False, True, False, False]
    identity = torch.eye(4, dtype=FLOAT, device=device)
    for v in (0, 1):
        assert torch.equal(q.X[v], identity)
    for v in (3, 4):
        assert torch.equal(q.F[v], identity)
    for name in ("X", "F", "mean"):
        assert torch.isfinite(getattr(q, name)).all()
        assert torch.equal(getattr(q, name)[2], getattr(well, name)[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inverse_roots(dtype: torch.dtype) -> None:
    K = make_nodes(3, 6).K_mm.to(dtype) + torch.eye(6, dtype=dtype)
    X, sound = root_inverse(K)
    assert sound.all()
    torch.testing.assert_close(X @ K @ X.mT, torch.eye(6, dtype=dtype).expand_as(K), rtol=1e-5, atol=1e-5)


def test_arguments_stay_as_they_are() -> None:
    nodes = make_nodes(2, 4)
    before = Nodes(*(value.clone() for value in vars(nodes).values()))
    (q,) = factors([nodes])
    rows, said = look(q, nodes)
    rows.gradients(q, said.lam, said.slope)
    rows.sums(said.lam, nodes.kappa)
    for name, value in vars(before).items():
        assert torch.equal(getattr(nodes, name), value)


def test_single_precision_comes_near_double() -> None:
    """Condition numbers here stay below about 1e3."""
    nodes = make_nodes(3, 5)
    (q,), (q32,) = factors([nodes]), factors([nodes.to(torch.float32)])
    (rows, said), (rows32, said32) = look(q, nodes), look(q32, nodes.to(torch.float32))
    found = zip(rows.gradients(q, said.lam, said.slope), rows32.gradients(q32, said32.lam, said32.slope), strict=True)
    for double, single in [(said.value, said32.value), *found]:
        torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-4)


# -------------------------------------------------------------------------------------------------- large matrices


@pytest.mark.parametrize("halved", [2, 9, 768])
@pytest.mark.parametrize("order", [1, 2, 5, 40, 63])
def test_roots_in_halves(order: int, halved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linalg, "HALVED_ORDER", halved)
    matrix = torch.randn(3, 63, 63, generator=torch.Generator().manual_seed(order), dtype=FLOAT)
    matrix = matrix @ matrix.mT + torch.eye(63, dtype=FLOAT)
    monkeypatch.setattr(whitened, "FACTORED_ORDER", order)
    given = matrix.clone()
    found, sound = whitened.root_inverse(matrix)
    assert torch.equal(matrix, given)
    torch.testing.assert_close(found, torch.linalg.inv(torch.linalg.cholesky(matrix)), rtol=0.0, atol=1e-11)
    assert sound.all()


@pytest.mark.parametrize("value", [-1.0, torch.inf])
@pytest.mark.parametrize("place", [3, 50])
def test_failures_in_either_half_are_told(place: int, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.eye(63, dtype=FLOAT).repeat(2, 1, 1)
    matrix[1, place, place] = value
    monkeypatch.setattr(whitened, "FACTORED_ORDER", 20)
    found, sound = whitened.root_inverse(matrix)
    assert sound.tolist() == [True, False]
    assert torch.isfinite(found).all()
