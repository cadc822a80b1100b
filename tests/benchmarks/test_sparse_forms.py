"""The two forms of a sparse node: the same q step by step in float64, which is the library's; failures become rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import slow_twins as slow
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments import sparse_forms
from benchmarks.experiments.sparse_forms import (
    FORMS,
    Node,
    NotFactorised,
    bound,
    factor,
    fit,
    run,
    step,
    tables,
    trials,
)
from gptree import SparseVariational
from gptree.inference import NodeProblem, fit_nodes
from gptree.maths import as_kernel, gram, make_kernel

WHITENED, DUAL = FORMS["whitened"], FORMS["dual"]
KERNEL = as_kernel(make_kernel("rbf", 3.0, 1.3), torch.float64, torch.device("cpu"))
X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LEFT = X[:, 0] + X[:, 1] * X[:, 2] > 0
M = 12


@torch.no_grad()
def problem() -> tuple[Node, Tensor, Tensor]:
    """50 rows of which twelve are inducing points, and ten new rows."""
    K, kappa = gram(KERNEL, X), LEFT.double() - 0.5
    return Node(K[:M, :M], K[:M, :50], K.diagonal()[:50], kappa[:50]), K[:M, 50:], K.diagonal()[50:]


@pytest.mark.parametrize(("rate", "scale"), [(1.0, 1.0), (0.3, 1.0), (0.05, 7.0)])
def test_both_pass_through_the_same_q(rate: float, scale: float) -> None:
    """t = L η, T = L (P − I) Lᵀ after every step of any size."""
    node, *_ = problem()
    L, identity = torch.linalg.cholesky(node.K_mm), torch.eye(M, dtype=torch.float64)
    whitened, dual = WHITENED.prior(node.K_mm), DUAL.prior(node.K_mm)
    for _ in range(10):
        whitened, dual = (step(f, node, s, rate, scale) for f, s in ((WHITENED, whitened), (DUAL, dual)))
        torch.testing.assert_close(L @ whitened[0], dual[0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(L @ (whitened[1] - identity) @ L.T, dual[1], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(bound(WHITENED, node, whitened), bound(DUAL, node, dual), rtol=1e-8, atol=1e-8)
    assert dual[0].abs().max() > 0.1


def test_both_reach_the_same_fixed_point_which_is_the_librarys() -> None:
    found = {name: fit(form, *problem(), steps=200) for name, form in FORMS.items()}
    for whitened, dual in zip(*found.values(), strict=True):
        torch.testing.assert_close(whitened, dual, rtol=1e-8, atol=1e-8)
    nodes = [NodeProblem(rows=torch.arange(50), left=LEFT[:50], seed=0, inducing=torch.arange(M))]
    fits = fit_nodes(nodes, KERNEL, X, SparseVariational(sweeps=200, tolerance=0.0), memory_budget=2**30)
    assert fits.diagnostics.bound is not None
    torch.testing.assert_close(found["dual"].bound, fits.diagnostics.bound[0], rtol=1e-8, atol=1e-8)
    _, K_new, k_new = problem()
    (posterior,) = fits.posteriors
    torch.testing.assert_close(found["dual"].mean, K_new.T @ posterior.weights[0, 0], rtol=1e-8, atol=1e-8)
    with torch.no_grad():
        factors = posterior.factoriser(fits.grams)(slice(None))
        variance = posterior.variance(factors, K_new[None], k_new[None])[0, 0]
    torch.testing.assert_close(found["dual"].variance, variance, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", FORMS)
def test_the_bound_is_the_plain_sum_over_points(name: str) -> None:
    """From q(u) = N(m, S) by explicit inverses, anywhere on the way."""
    form, (node, *_) = FORMS[name], problem()
    state = form.prior(node.K_mm)
    for _ in range(3):
        state = step(form, node, state, rate=0.5)
    L = torch.linalg.cholesky(node.K_mm)
    if name == "whitened":
        S = L @ torch.linalg.inv(state[1]) @ L.T
        m = L @ torch.linalg.solve(state[1], state[0][:, 0])
    else:
        R = node.K_mm + state[1]
        S = node.K_mm @ torch.linalg.inv(R) @ node.K_mm
        m = node.K_mm @ torch.linalg.solve(R, state[0][:, 0])
    A = torch.linalg.solve(node.K_mm, node.K_mn)
    c = (node.k_nn - (node.K_mn * A).sum(0) + (A * (S @ A)).sum(0) + (A.T @ m) ** 2).sqrt()
    ones, zeros = torch.ones_like(c), torch.zeros_like(c)
    expected = slow.bound(node.K_mm, node.K_mn, node.k_nn, m, S, c, node.kappa, ones, zeros)
    torch.testing.assert_close(bound(form, node, state), expected, rtol=1e-8, atol=1e-8)


def test_a_matrix_that_cannot_be_factorised_is_named() -> None:
    with pytest.raises(NotFactorised, match="K_mm"):
        factor(-torch.eye(2), "K_mm")
    with pytest.raises(NotFactorised, match="R"):
        factor(torch.full((2, 2), torch.nan), "R")


def measured(trial: Trial) -> Row:
    return Row(trial, run(trial, Path()), {}, 0, {}, {})


def test_trials_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long length-scale without jitter: the dual form fails where the whitened one does not."""
    monkeypatch.setattr(sparse_forms, "ROWS", 256)
    settings = {"measured": "rounding", "features": "tight", "length_scale": 4.0, "inducing": 64, "jitter": 0.0}
    assert any(dict(trial.settings) == settings for trial in trials(1))
    rows = [measured(Trial("sparse-forms", name, "structured", 0, settings)) for name in FORMS]
    whitened, dual = (row.metrics for row in rows)
    assert whitened["failed"] is None
    assert whitened["mean_error"] < 1e-3
    assert dual["failed"] == "R" or dual["mean_error"] > 10 * whitened["mean_error"]
    short = {"measured": "step", "inducing": 8, "repeats": 1}
    rows += [measured(Trial("sparse-forms", name, "structured", 0, short)) for name in FORMS]
    errors, steps = tables(rows)
    ((*cells,),) = errors.lines
    assert len(cells) == len(errors.columns)
    assert cells.count("R fails") in (0, 3)
    assert [line[1] for line in steps.lines] == list(FORMS)
