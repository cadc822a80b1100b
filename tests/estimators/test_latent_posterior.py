"""Latent posteriors at nodes against explicit inverses; samples; simulation-based calibration of Gibbs sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.special import expit
from sklearn.base import clone
from torch import Tensor

from gptree import CoordinateAscent, Gibbs, GPForestClassifier, GPTreeClassifier
from gptree.inference import InducingPoints, InducingPosterior, LearnKernel, NodeProblem, fit_nodes
from gptree.inference.predict import NodePredictor
from gptree.maths import as_kernel, gram, make_kernel
from gptree.maths.kernels import kernel_at

RANDOM = np.random.default_rng(0)
Y = np.repeat(np.arange(5), 8)
X = RANDOM.normal(size=(5, 6))[Y] + 0.8 * RANDOM.normal(size=(len(Y), 6))
X_NEW = RANDOM.normal(size=(7, 6))

CASES = {
    "experts": GPForestClassifier(n_estimators=2),
    "Gibbs": GPTreeClassifier.paper(kernel="rbf", inference=Gibbs(chains=3)),
    "Gibbs, shared factor": GPTreeClassifier.paper(kernel="rbf", inference=Gibbs(chains=3, pooled=True)),
    "linear": GPTreeClassifier.paper(inference=CoordinateAscent()),
    "inducing points": GPTreeClassifier(node_limit=InducingPoints(12)),
    "a kernel a node": GPTreeClassifier(inference=CoordinateAscent(learn=LearnKernel(steps=2, per_node=True))),
}


def slow_joint(model: GPTreeClassifier, node: int) -> tuple[Tensor, Tensor]:
    """Means (S, n) and covariances (S, n, n) of g at the new rows, from (K⁻¹ + Ω)⁻¹ over old and new rows together."""
    predictor = model.model_.predictor
    number = int(model.model_.node_of[0][node])
    (p,) = (p for p in predictor.posteriors if number in p.nodes.tolist())
    v = p.nodes.tolist().index(number)
    x = model.state_.features(X_NEW)
    rows = predictor.grams.X[p.rows[v]]
    kernel = predictor.grams.kernel
    kernel = kernel_at(kernel, torch.tensor([number])) if predictor.grams.per_node else kernel
    both = torch.cat([rows, x])
    K = gram(kernel, both[None] if predictor.grams.per_node else both).detach().reshape(len(both), len(both))
    n = len(rows)
    means, covariances = [], []
    if isinstance(p, InducingPosterior):
        root = torch.linalg.cholesky(K[:n, :n])
        A = K[n:, :n] @ torch.linalg.inv(K[:n, :n])
        roots = torch.linalg.cholesky(predictor.grams.block(p.nodes, p.rows, p.rows))
        lower = p.precisions(predictor.grams, roots)[v].detach().tril()
        B = lower + lower.tril(-1).T
        S = root @ torch.linalg.inv(B) @ root.T
        return (K[n:, :n] @ p.weights[0, v])[None], (K[n:, n:] - A @ K[:n, n:] + A @ S @ A.T)[None]
    for omega in p.sites[:, v]:
        keep = torch.cat([omega > 0, torch.ones(len(x), dtype=torch.bool)])
        sites = torch.cat([omega, torch.zeros(len(x), dtype=omega.dtype)])[keep]
        joint = K[keep][:, keep]
        inner = torch.linalg.inv(torch.eye(len(joint)).double() + joint * sites) @ joint  # (K⁻¹ + Ω)⁻¹
        covariances.append(inner[-len(x) :, -len(x) :])
    for weights in p.weights[:, v]:
        if weights.shape[0] == n and p.kind.endswith("dense"):
            means.append(K[n:, :n] @ weights)
        else:
            features = predictor.grams.kernel.outputscale.sqrt() * x  # a scaled linear kernel
            means.append((features @ weights).detach())
    return torch.stack(means), torch.stack(covariances)


@pytest.mark.parametrize("case", CASES)
def test_posterior_is_the_slow_one(case: str) -> None:
    model: Any = clone(CASES[case])
    model.set_params(random_state=0).fit(X, Y)
    nodes = [2, 0]
    found = model.posterior(X_NEW, nodes)
    assert found.nodes.tolist() == nodes
    scores = model.state_.class_scores(model.state_.features(X_NEW), X_NEW)
    prior = model.model_.prior_means(scores)
    for place, node in enumerate(nodes):
        means, covariances = slow_joint(model, node)
        if prior is not None:
            means = means + prior[model.model_.node_of[0][node]]
        np.testing.assert_allclose(found.means[:, place], means.numpy(), rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(found.covariances[:, place], covariances.numpy(), rtol=1e-6, atol=1e-7)
    mean, variance = model.model_.predictor.moments(model.state_.features(X_NEW))
    numbers = model.model_.node_of[0][torch.tensor(nodes)]
    shift = 0.0 if prior is None else prior[numbers].numpy()
    np.testing.assert_allclose(found.mean, mean[numbers].numpy() + shift, rtol=1e-8, atol=1e-8)
    diagonal = np.diagonal(found.covariance, axis1=1, axis2=2)
    np.testing.assert_allclose(diagonal, variance[numbers].numpy(), rtol=1e-6, atol=1e-7)


def test_samples_have_the_moments() -> None:
    """20,000 samples: 5σ for every mean, and for every entry of the covariance by its Gaussian standard error."""
    model = CASES["Gibbs"].set_params(random_state=0).fit(X, Y)
    found = model.posterior(X_NEW[:3])
    samples = found.sample(20_000, random_state=0)
    assert samples.shape == (20_000, 4, 3)
    covariance, error = found.covariance, 5 / np.sqrt(len(samples))
    spread = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    assert (np.abs(samples.mean(0) - found.mean) < error * spread).all()
    apart = samples - found.mean
    empirical = np.einsum("svi,svj->vij", apart, apart) / len(samples)
    assert (np.abs(empirical - covariance) < 1.5 * error * spread[:, :, None] * spread[:, None]).all()
    assert np.array_equal(samples, found.sample(20_000, random_state=0))


@pytest.mark.parametrize("nodes", [[], [4], [-1], 0, [0.5]])
def test_nodes_are_those_of_the_tree(nodes) -> None:
    model = GPTreeClassifier(random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="the 4 nodes of tree_"):
        model.posterior(X_NEW, nodes)


def test_gibbs_sampling_is_calibrated() -> None:
    """Simulation-based calibration: f from the prior, y from f; the true f⋆ has a uniform place in its posterior.

    120 data sets of 5 points, 16 chains each. Places are compared with the uniform distribution by Kolmogorov and
    Smirnov: a right sampler fails once in 1,000 seeds. Labels that say the opposite are noticed.
    """
    random, runs, n = np.random.default_rng(1), 120, 5
    points = torch.as_tensor(random.normal(size=(n + 1, 2)))
    kernel = as_kernel(make_kernel("rbf", 4.0, 1.0), torch.float64, torch.device("cpu"))
    f = random.multivariate_normal(np.zeros(n + 1), gram(kernel, points).detach().numpy(), size=runs)
    y = random.random((runs, n)) < expit(f[:, :n])
    problems = [NodeProblem(torch.arange(n), torch.as_tensor(left), seed) for seed, left in enumerate(y)]
    fits = fit_nodes(problems, kernel, points[:n], Gibbs(chains=16, steps=12), memory_budget=2**28)
    predictor = NodePredictor(fits.grams, fits.posteriors, 2**28)
    mean, variance = (values.numpy() for values in predictor.joint(points[n:], torch.arange(runs)))

    def p_value(truth: np.ndarray) -> float:
        place = scipy.stats.norm.cdf((truth - mean[:, :, 0]) / np.sqrt(variance[:, :, 0, 0])).mean(0)
        return scipy.stats.kstest(place, "uniform").pvalue

    assert p_value(f[:, n]) > 1e-3
    assert p_value(-f[:, n]) < 1e-6
