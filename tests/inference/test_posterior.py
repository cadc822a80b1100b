"""Posteriors of a batch: weights and factors by draws at once or a few at a time, against explicit inverses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from node_cases import BUDGET, features, kernel, problems
from torch import Tensor

import gptree.inference.posterior
from gptree.inference import (
    CoordinateAscent,
    DensePosterior,
    Gibbs,
    Grams,
    LinearPosterior,
    NodeBatch,
    NodePosterior,
    SitesPosterior,
    SparsePosterior,
)
from gptree.inference.posterior import PRODUCT_ORDER, draw_chunks, make_posterior, select
from gptree.maths import gram

KINDS = {
    DensePosterior: ("rbf", (5, 4, 3), None, Gibbs(chains=3)),
    LinearPosterior: ("linear", (7, 6, 5), None, Gibbs(chains=3)),
    SparsePosterior: ("rbf", (7, 6, 5), 4, CoordinateAscent()),
    SitesPosterior: ("rbf", (7, 6, 5), 4, CoordinateAscent()),
}


ALL = slice(None)


def fit(kind: type) -> tuple[NodePosterior, Grams, NodeBatch]:
    name, sizes, inducing, inference = KINDS[kind]
    given = [replace(p, self_contained=kind is SparsePosterior) for p in problems(sizes, inducing=inducing)]
    batch = NodeBatch.stack(range(3), given, torch.float64)
    grams = Grams(kernel(name), features(), 0)
    with torch.no_grad():
        posterior, _ = inference.fit(batch, grams, BUDGET)
    return posterior, grams, batch


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_factors_hold_as_many_numbers_as_they_say(kind: type) -> None:
    posterior, grams, _ = fit(kind)
    assert type(posterior) is kind
    assert posterior.factoriser(grams)(ALL).numel() == posterior.factor_numbers * len(posterior.weights)


@pytest.mark.parametrize("explicit", [True, False])
@torch.no_grad()
def test_dense_factors_are_those_of_the_formula(explicit: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """RᵀR = (K + Ω⁻¹)⁻¹ and zero on padding up to the order of explicit inverses; beyond, L Lᵀ = I + Ω^½ K Ω^½."""
    monkeypatch.setattr(gptree.inference.posterior, "EXPLICIT_ORDER", 5 if explicit else 4)
    posterior, grams, batch = fit(DensePosterior)
    assert isinstance(posterior, DensePosterior)
    factors = posterior.factoriser(grams)(ALL)
    assert torch.equal(factors.triu(1), torch.zeros_like(factors))
    for v, n in enumerate(batch.sizes):
        K = gram(kernel(), features()[posterior.rows[v, :n]])
        for s in range(3):
            omega = posterior.omega[s, v, :n]
            if explicit:
                expected = torch.zeros(5, 5, dtype=torch.float64)
                expected[:n, :n] = torch.linalg.inv(K + torch.diag(1 / omega))
                actual = factors[s, v].T @ factors[s, v]
            else:
                expected = torch.eye(5, dtype=torch.float64)
                expected[:n, :n] += omega.sqrt()[:, None] * K * omega.sqrt()
                actual = factors[s, v] @ factors[s, v].T
            torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", [6, 340])
@torch.no_grad()
def test_explicit_inverses_and_triangular_solves_give_one_variance(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At both sides of the limit, two nodes with three draws each and one of them padded."""
    X, x = features(n + 5), features(7, seed=3)
    random = torch.Generator().manual_seed(1)
    rows = torch.stack([torch.randperm(n + 5, generator=random)[:n] for _ in range(2)])
    omega = torch.rand(3, 2, n, generator=random, dtype=torch.float64)
    omega[:, 1, n - 2 :] = 0.0
    posterior = DensePosterior(torch.arange(2), rows, omega, torch.zeros_like(omega))
    cross = torch.stack([gram(kernel(), X[r], x) for r in rows])
    prior = gram(kernel(), x).diagonal().expand(2, 7)

    def variance(limit: int, draws: slice) -> Tensor:
        monkeypatch.setattr(gptree.inference.posterior, "EXPLICIT_ORDER", limit)
        return posterior.variance(posterior.factoriser(Grams(kernel(), X, 0))(draws), cross, prior, draws)

    explicit, triangular = variance(n, ALL), variance(0, ALL)
    torch.testing.assert_close(explicit, triangular, rtol=1e-10, atol=1e-10)
    for limit in (0, n):
        torch.testing.assert_close(variance(limit, slice(1, 3)), explicit[1:3], rtol=1e-10, atol=1e-10)
    for v, real in enumerate((n, n - 2)):
        K, k = gram(kernel(), X[rows[v, :real]]), cross[v, :real]
        for s in range(3):
            noisy = torch.linalg.inv(K + torch.diag(1 / omega[s, v, :real]))
            expected = prior[v] - (k * (noisy @ k)).sum(0)
            torch.testing.assert_close(explicit[s, v], expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_variances_and_precisions_at_their_own_points() -> None:
    """As of other rows, asked about the points of the fit; those of the sites stand in any order, with others."""
    dense, grams, _ = fit(DensePosterior)
    assert isinstance(dense, DensePosterior)
    K = grams.block(dense.nodes, dense.rows, dense.rows)
    expected = dense.variance(dense.factoriser(grams)(ALL), K, K.diagonal(dim1=1, dim2=2))
    held = dense.omega > 0
    torch.testing.assert_close(dense.variance_at_rows(K)[held], expected[held], rtol=1e-10, atol=1e-10)
    assert (dense.variance_at_rows(K)[~held] == 0).all()
    sites, grams, _ = fit(SitesPosterior)
    assert isinstance(sites, SitesPosterior)
    root = torch.linalg.cholesky(grams.block(sites.nodes, sites.rows, sites.rows))
    points = torch.randperm(len(grams.X), generator=torch.Generator().manual_seed(0)).expand(3, -1)
    A = torch.linalg.solve_triangular(root, grams.block(sites.nodes, sites.rows, points), upper=False)
    found, expected = sites.precisions_at(points, A), sites.precisions(grams, root)
    torch.testing.assert_close(found.tril(), expected.tril(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", [DensePosterior, LinearPosterior])
@torch.no_grad()
def test_factors_of_some_draws(kind: type) -> None:
    posterior, grams, _ = fit(kind)
    make = posterior.factoriser(grams)
    torch.testing.assert_close(make(slice(1, 3)), make(ALL)[1:3])


@pytest.mark.parametrize("kind", [DensePosterior, LinearPosterior])
@torch.no_grad()
def test_chunks_of_draws_change_nothing(kind: type) -> None:
    posterior, grams, batch = fit(kind)
    space, root, _ = grams.space(batch)
    assert isinstance(posterior, DensePosterior | LinearPosterior)
    for work in (1, 300, BUDGET):
        again = make_posterior(batch, space, posterior.omega, work, root=root)
        assert type(again) is kind
        torch.testing.assert_close(again.weights, posterior.weights, rtol=1e-12, atol=1e-12)
    make = posterior.factoriser(grams)
    one_by_one = torch.cat([make(slice(s, s + 1)) for s in range(3)])
    torch.testing.assert_close(one_by_one, make(ALL), rtol=1e-12, atol=1e-12)


def test_draw_chunks_cover_the_draws_within_their_budget() -> None:
    space, *_ = Grams(kernel(), features(), 0).space(fit(DensePosterior)[2])
    for work in (1, 3 * 3 * 25, 5 * 3 * 3 * 25, 10**9):
        chunks = draw_chunks(space, 12, work)
        assert [i for chunk in chunks for i in range(12)[chunk]] == list(range(12))
        size = max(len(range(12)[chunk]) for chunk in chunks)
        assert size == 1 or 3 * size * 3 * 25 <= work


@torch.no_grad()
def test_padding_has_no_weight() -> None:
    posterior, _, batch = fit(DensePosterior)
    assert isinstance(posterior, DensePosterior)
    for v, n in enumerate(batch.sizes):
        assert (posterior.weights[:, v, n:] == 0).all()
        assert (posterior.omega[:, v, n:] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_some_nodes_of_a_posterior(kind: type) -> None:
    posterior, grams, _ = fit(kind)
    chosen = torch.tensor([2, 0])
    part = select(posterior, chosen)
    assert type(part) is kind
    assert part.nodes.tolist() == [2, 0]
    assert torch.equal(part.rows, posterior.rows[chosen])
    assert torch.equal(part.weights, posterior.weights[:, chosen])
    torch.testing.assert_close(part.factoriser(grams)(ALL), posterior.factoriser(grams)(ALL)[:, chosen])


@pytest.mark.parametrize("size", [PRODUCT_ORDER - 1, PRODUCT_ORDER])
def test_variances_at_the_points_of_large_nodes(size: int) -> None:
    """Σ = (K⁻¹ + Ω)⁻¹, whichever way its factor is inverted."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(2, size, 3, generator=random, dtype=torch.float64)
    K = torch.exp(-torch.cdist(x, x)) + torch.eye(size, dtype=torch.float64)
    omega = 0.25 * torch.rand(1, 2, size, generator=random, dtype=torch.float64)
    posterior = DensePosterior(torch.arange(2), torch.zeros(2, size, dtype=torch.long), omega, omega)
    expected = torch.linalg.inv(torch.linalg.inv(K) + torch.diag_embed(omega)).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(posterior.variance_at_rows(K), expected, rtol=1e-10, atol=1e-10)
