"""Gibbs draws that share the factor of their variances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from node_cases import BUDGET, features, kernel, problems

import gptree.inference.gibbs
from gptree import Gibbs, GPTreeClassifier, load_model
from gptree.inference import NodePredictor, PooledDensePosterior, PooledLinearPosterior, fit_nodes
from gptree.maths import gram
from gptree.maths.kernels import linear_features
from gptree.maths.quadrature import log_mean_exp, log_sigmoid_expectation

D = 6


@pytest.fixture
def all_nodes_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gptree.inference.gibbs, "EXPLICIT_ORDER", 0)


def predictor(name: str, inference: Gibbs) -> NodePredictor:
    fits = fit_nodes(problems([5, 11, 4, 8]), kernel(name), features(d=D), inference, memory_budget=BUDGET)
    return NodePredictor(fits.grams, fits.posteriors, BUDGET)


@pytest.mark.usefixtures("all_nodes_are_large")
@pytest.mark.parametrize("name", ["rbf", "linear"])
def test_means_are_those_of_the_draws_and_the_variance_that_of_their_mean_omega(name: str) -> None:
    pooled, x = predictor(name, Gibbs(chains=3, pooled=True)), features(7, D, seed=7)
    kinds = {type(p) for p in pooled.posteriors}
    assert kinds == ({PooledDensePosterior} if name == "rbf" else {PooledDensePosterior, PooledLinearPosterior})
    left, right = pooled.log_probabilities(x, predict_at="quadrature")
    X, K, prior = features(d=D), kernel(name), gram(kernel(name), x).diagonal()
    for p in pooled.posteriors:
        assert p.factors == 1
        for v, node in enumerate(p.nodes.tolist()):
            rows = p.rows[v][(p.omega[:, v] > 0).all(0)]
            omega = p.omega[:, v, : len(rows)]
            cross = gram(K, X[rows], x)
            solved = torch.linalg.solve(gram(K, X[rows]) + torch.diag(1 / omega.mean(0)), cross)
            variance = prior - (cross * solved).sum(0)
            if isinstance(p, PooledDensePosterior):
                means = p.weights[:, v, : len(rows)] @ cross
            else:
                phi = linear_features(K, x)
                assert phi is not None
                means = p.weights[:, v] @ phi.mT
            both = [log_mean_exp(side) for side in log_sigmoid_expectation(means, variance)]
            assert torch.allclose(torch.stack(both), torch.stack([left[node], right[node]]), atol=1e-9)


def test_small_nodes_keep_a_factor_a_draw() -> None:
    x = features(7, D, seed=7)
    exact, pooled = (predictor("rbf", Gibbs(chains=3, pooled=value)) for value in (False, True))
    assert {p.kind for p in pooled.posteriors} == {"dense"}
    assert torch.equal(
        exact.log_probabilities(x, predict_at="quadrature")[0], pooled.log_probabilities(x, predict_at="quadrature")[0]
    )


@pytest.mark.usefixtures("all_nodes_are_large")
@pytest.mark.parametrize("name", ["rbf", "linear"])
def test_probabilities_hardly_move_and_files_keep_them(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 12)
    X = rng.normal(size=(4, 5))[y] + 0.7 * rng.normal(size=(48, 5))
    settings = {"feature_map": None, "random_state": 0}
    exact, pooled = (
        GPTreeClassifier.paper(name, inference=Gibbs(chains=20, pooled=value), **settings).fit(X, y)
        for value in (False, True)
    )
    new = rng.normal(size=(200, 5))
    assert set(pooled.diagnostics_["posterior"]) <= {"pooled dense", "pooled linear"}
    assert (
        0 < np.abs(exact.predict_proba(new) - pooled.predict_proba(new)).max() < 0.02
    )  # of small nodes; of large ones a tenth of it
    assert np.abs(exact.novelty_score(new) - pooled.novelty_score(new)).max() < 0.1
    assert abs(exact.novelty_threshold(0.1) - pooled.novelty_threshold(0.1)) < 0.05  # by left-out predictions
    pooled.save(tmp_path / "m")
    assert np.array_equal(load_model(tmp_path / "m").predict_proba(new), pooled.predict_proba(new))
