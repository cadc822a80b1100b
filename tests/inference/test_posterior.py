"""Posteriors of a batch: weights and factors by draws at once or a few at a time, and how much they hold."""

from __future__ import annotations

import pytest
import torch
from node_cases import BUDGET, features, kernel, problems

from gptree.inference import (
    CoordinateAscent,
    DensePosterior,
    Gibbs,
    Grams,
    LinearPosterior,
    NodeBatch,
    NodePosterior,
    SparsePosterior,
)
from gptree.inference.posterior import draw_chunks, make_posterior, select

KINDS = {
    DensePosterior: ("rbf", (5, 4, 3), None, Gibbs(chains=3)),
    LinearPosterior: ("linear", (7, 6, 5), None, Gibbs(chains=3)),
    SparsePosterior: ("rbf", (7, 6, 5), 4, CoordinateAscent()),
}


def fit(kind: type, keep_factors: bool = False) -> tuple[NodePosterior, torch.Tensor | None, Grams, NodeBatch]:
    name, sizes, inducing, inference = KINDS[kind]
    batch = NodeBatch.stack(range(3), problems(sizes, inducing=inducing), torch.float64)
    grams = Grams(kernel(name), features(), 0)
    with torch.no_grad():
        posterior, factors, _ = inference.fit(batch, grams, BUDGET, keep_factors)
    return posterior, factors, grams, batch


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_kept_factors_are_those_computed_later(kind: type) -> None:
    posterior, kept, grams, _ = fit(kind, keep_factors=True)
    assert type(posterior) is kind
    assert kept is not None
    torch.testing.assert_close(posterior.factors(grams), kept, rtol=1e-12, atol=1e-12)
    assert kept.numel() == posterior.factor_numbers * len(posterior.weights)
    assert fit(kind)[1] is None


@pytest.mark.parametrize("kind", [DensePosterior, LinearPosterior])
@torch.no_grad()
def test_factors_of_some_draws(kind: type) -> None:
    posterior, _, grams, _ = fit(kind)
    torch.testing.assert_close(posterior.factors(grams, slice(1, 3)), posterior.factors(grams)[1:3])


@pytest.mark.parametrize("kind", [DensePosterior, LinearPosterior])
@torch.no_grad()
def test_chunks_of_draws_change_nothing(kind: type) -> None:
    posterior, _, grams, batch = fit(kind)
    space, root = grams.space(batch)
    assert not isinstance(posterior, SparsePosterior)
    for work in (1, 300, BUDGET):
        again, factors = make_posterior(batch, space, root, posterior.omega, work, keep_factors=True)
        torch.testing.assert_close(again.weights, posterior.weights, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(factors, posterior.factors(grams), rtol=1e-12, atol=1e-12)


def test_draw_chunks_cover_the_draws_within_their_budget() -> None:
    space, _ = Grams(kernel(), features(), 0).space(fit(DensePosterior)[3])
    for work in (1, 3 * 3 * 25, 5 * 3 * 3 * 25, 10**9):
        chunks = draw_chunks(space, 12, work)
        assert [i for chunk in chunks for i in range(12)[chunk]] == list(range(12))
        size = max(len(range(12)[chunk]) for chunk in chunks)
        assert size == 1 or 3 * size * 3 * 25 <= work


@torch.no_grad()
def test_padding_has_no_weight() -> None:
    posterior, _, _, batch = fit(DensePosterior)
    assert isinstance(posterior, DensePosterior)
    for v, n in enumerate(batch.sizes):
        assert (posterior.weights[:, v, n:] == 0).all()
        assert (posterior.omega[:, v, n:] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_some_nodes_of_a_posterior(kind: type) -> None:
    posterior, _, grams, _ = fit(kind)
    chosen = torch.tensor([2, 0])
    part = select(posterior, chosen)
    assert type(part) is kind
    assert part.nodes.tolist() == [2, 0]
    assert torch.equal(part.rows, posterior.rows[chosen])
    assert torch.equal(part.weights, posterior.weights[:, chosen])
    torch.testing.assert_close(part.factors(grams), posterior.factors(grams)[:, chosen])
