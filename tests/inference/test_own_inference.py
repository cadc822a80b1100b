"""An inference from outside the package: examples/own_inference.py against Newton's method in plain loops."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from node_cases import BUDGET, by_node, features, kernel, plain, problems
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import Tensor

import source_files
from gptree import Gibbs, GPForestClassifier, GPTreeClassifier, Growth, load_model
from gptree.inference import Inference, NodePredictor, NodeProblem, fit_nodes
from gptree.maths import gram
from gptree.settings import Settings
from gptree.storage import StorageError, decode, encode
from small_sizes import small_random_features

Laplace: Any = source_files.load(source_files.ROOT / "examples" / "own_inference.py").Laplace


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The class of this module; another test may have run the example as a script."""
    monkeypatch.setitem(Settings._kinds, "Laplace", Laplace)


X, Y = load_digits(return_X_y=True)
BASE, LATER = np.flatnonzero(Y[:300] < 7), np.flatnonzero(Y[:60] >= 7)


def log_posterior(f: Tensor, K_inverse: Tensor, kappa: Tensor, b: Tensor, mu: Tensor) -> float:
    likelihood = 0.0
    for k, x, w in zip(kappa.tolist(), f.tolist(), b.tolist(), strict=True):
        likelihood += k * x - w * math.log(2 * math.cosh(x / 2))
    return likelihood - 0.5 * float((f - mu) @ K_inverse @ (f - mu))


def slow_mode(K: Tensor, kappa: Tensor, b: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
    """The mode of p(f | y) and W there: Newton's method with explicit inverses, halving steps that overshoot."""
    K_inverse, f = torch.linalg.inv(K), mu.clone()
    for _ in range(200):
        W, gradient = torch.zeros_like(f), -K_inverse @ (f - mu)
        for i in range(len(f)):
            p = 1 / (1 + math.exp(-float(f[i])))
            W[i] = b[i] * p * (1 - p)
            gradient[i] += kappa[i] + b[i] * (0.5 - p)
        step = torch.linalg.inv(K_inverse + torch.diag(W)) @ gradient
        now, size = log_posterior(f, K_inverse, kappa, b, mu), 1.0
        while size > 1e-9 and log_posterior(f + size * step, K_inverse, kappa, b, mu) < now - 1e-10:
            size /= 2
        f = f + size * step
    return f, b / (2 + 2 * torch.cosh(f))


@pytest.mark.parametrize(("name", "scale"), [("rbf", 3.0), ("matern52", 30.0), ("linear", 3.0), ("linear", 30.0)])
@pytest.mark.parametrize("extras", [False, True])
def test_equals_newtons_method_in_loops(name: str, extras: bool, scale: float) -> None:
    of = problems(extras=extras)
    k, x = kernel(name, scale), features()
    if name == "linear":  # K must have an inverse in the twin: as many dimensions as points at a node, or more
        x = features(d=14)
    with torch.no_grad():
        fits = fit_nodes(of, k, x, Laplace(steps=100, tolerance=1e-12), memory_budget=BUDGET)
        new = features(5, d=x.shape[1], seed=9)
        mean, variance = NodePredictor(fits.grams, fits.posteriors, BUDGET).moments(new)
        for v, (p, fitted) in enumerate(zip(of, by_node(fits, of), strict=True)):
            K, own = gram(k, x[p.rows], x[p.rows]), plain(p)
            f, W = slow_mode(K, own.kappa, own.b, own.mu)
            cross, prior = gram(k, x[p.rows], new), gram(k, new, new).diagonal()
            assert fitted.omega is not None
            torch.testing.assert_close(fitted.omega[0], W, rtol=1e-9, atol=1e-9)
            expected = cross.T @ torch.linalg.inv(K) @ (f - own.mu)
            torch.testing.assert_close(mean[v], expected, rtol=1e-8, atol=1e-8)
            Z = torch.linalg.inv(K + torch.diag(1 / W))
            torch.testing.assert_close(variance[v], prior - (cross * (Z @ cross)).sum(0), rtol=1e-8, atol=1e-8)
    assert fits.diagnostics.converged is not None
    assert bool(fits.diagnostics.converged.all())


def test_linear_nodes_with_more_points_than_dimensions() -> None:
    """In weight space: the mode is that of function space, where the gradient vanishes."""
    of, k, x = problems([12, 11, 10]), kernel("linear"), features()
    fits = fit_nodes(of, k, x, Laplace(tolerance=1e-12), memory_budget=BUDGET)
    for p, fitted in zip(of, by_node(fits, of), strict=True):
        assert fitted.kind == "linear"
        with torch.no_grad():
            phi, own = fits.grams.features[p.rows], plain(p)
        f = own.mu + phi @ fitted.weights[0]
        gradient = phi.T @ (own.kappa + own.b * (0.5 - f.sigmoid())) - fitted.weights[0]
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-8, rtol=0)


def test_batches_do_not_matter() -> None:
    of = problems()
    whole = fit_nodes(of, kernel(), features(), Laplace(), memory_budget=BUDGET)
    alone = [fit_nodes([p], kernel(), features(), Laplace(), memory_budget=BUDGET) for p in of]
    for p, one, fitted in zip(of, alone, by_node(whole, of), strict=True):
        torch.testing.assert_close(by_node(one, [p])[0].weights, fitted.weights, rtol=1e-9, atol=1e-9)


def test_defaults_are_those_of_a_method_that_can_only_fit() -> None:
    inference = Inference.of("laplace")
    assert inference == Laplace()
    assert (inference.sparse, inference.inducing, inference.learn) == (False, None, None)
    assert "laplace" in Inference.names()
    assert Settings.kind("Laplace") is Laplace
    inducing = [NodeProblem(torch.arange(5), torch.arange(5) < 2, 0, inducing=torch.arange(2))]
    for method in (Laplace(), Gibbs()):
        with pytest.raises(ValueError, match=f"{type(method).__name__} has no form with inducing points"):
            fit_nodes(inducing, kernel(), features(), method, memory_budget=BUDGET)


@pytest.mark.parametrize("family", [GPTreeClassifier, GPForestClassifier])
@pytest.mark.parametrize("prior_mean", [None, "experts"])
def test_estimators_take_it(family: type, prior_mean: str | None, tmp_path: Path) -> None:
    model = family(inference=Laplace(), prior_mean=prior_mean, random_state=0, device="cpu").fit(X[BASE], Y[BASE])
    assert model.score(X[300:900], Y[300:900]) > 0.6  # of ten classes it knows seven
    assert model.score(X[:1500][Y[:1500] < 7], Y[:1500][Y[:1500] < 7]) > 0.9
    assert model.diagnostics_["converged"].all()
    assert np.isfinite(model.novelty_score(X[:5])).all()
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.inference == Laplace()
    np.testing.assert_allclose(loaded.predict_proba(X[:20]), model.predict_proba(X[:20]), rtol=0, atol=1e-12)
    assert clone(model).set_params(inference__steps=3).inference == Laplace(steps=3)


@pytest.mark.parametrize("growth", [None, Growth(exemplars=2)])
def test_it_fits_the_nodes_of_classes_that_arrive(growth: Growth | None, tmp_path: Path) -> None:
    with small_random_features():
        model = GPTreeClassifier(inference=Laplace(), growth=growth, random_state=0, device="cpu")
        model.fit(X[BASE], Y[BASE])
        before = model.predict_proba(X[:20])
        model.add_classes(X[LATER], Y[LATER])
        assert model.score(X[300:900], Y[300:900]) > 0.7
        model.save(tmp_path / "model")
        np.testing.assert_allclose(
            load_model(tmp_path / "model").predict_proba(X[:20]), model.predict_proba(X[:20]), rtol=0, atol=1e-12
        )
        assert np.array_equal(model.undo().predict_proba(X[:20]), before)


def test_files_name_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = encode("inference", Laplace(steps=7))
    assert stored == {"@": "Laplace", "steps": 7, "tolerance": 1e-8}
    monkeypatch.delitem(Settings._kinds, "Laplace")  # a process that has not imported the class
    with pytest.raises(StorageError, match=r"'Laplace' is unknown here.*settings=\[Laplace\]"):
        decode(stored)
    assert decode(stored, settings=[Laplace]) == Laplace(steps=7)
