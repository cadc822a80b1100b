"""The same numbers on an accelerator: deterministic inference agrees with the CPU, random inference with itself."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from forest_cases import BUDGET, FIRST, SECOND, data, kernel, new_points

from gptree import GPForestClassifier, Growth
from gptree.inference import CoordinateAscent, Gibbs, InducingPoints, Inference, LearnKernel
from gptree.model import ForestModel, TrainingData, fit_forest

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def fit(device: str, name: str, inference: Inference, **how) -> ForestModel:
    d = data(weights=True, scores=True)
    assert d.scores is not None
    assert d.weights is not None
    placed = TrainingData(d.X.to(device), d.y, d.labels, d.scores.to(device), d.weights.to(device))
    k = copy.deepcopy(kernel(name)).to(device)
    return fit_forest([FIRST, SECOND], placed, k, inference, memory_budget=BUDGET, **how)


def predictions(model: ForestModel, device: str) -> torch.Tensor:
    x = new_points().to(device)
    scores = torch.sin(x @ torch.ones(4, 5, dtype=torch.float64, device=device))
    found = [model.log_probabilities(x, lambda rows: scores[rows], at) for at in ("mean", "quadrature")]
    return torch.stack(found).cpu()


@pytest.mark.parametrize("name", ["rbf", "linear"])
@pytest.mark.parametrize("large_nodes", [None, InducingPoints(11)])
@pytest.mark.parametrize("learn", [None, LearnKernel(steps=3), LearnKernel(steps=3, per_node=True)])
def test_coordinate_ascent_agrees_with_the_cpu(name: str, large_nodes, learn) -> None:
    inference = CoordinateAscent(learn=learn)
    cpu, cuda = (
        predictions(fit(device, name, inference, large_nodes=large_nodes), device) for device in ("cpu", "cuda")
    )
    torch.testing.assert_close(cuda, cpu, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["rbf", "linear"])
def test_gibbs_repeats_itself_whatever_the_budget(name: str) -> None:
    gibbs = Gibbs(chains=3, steps=3, keep=2)
    first, again = (predictions(fit("cuda", name, gibbs), "cuda") for _ in range(2))
    torch.testing.assert_close(again, first, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(first.exp().sum(-1), torch.ones(2, 6, dtype=torch.float64))


@pytest.mark.parametrize(
    ("classes", "growth", "tolerance"),
    [(30, None, 1e-8), (30, Growth(), 1e-6), (320, None, 1e-4), (320, Growth(), 1e-4)],
)
def test_default_forests_agree_with_the_cpu(classes: int, growth: Growth | None, tolerance: float) -> None:
    """Random features, of models with growth, and products of more than 1,500 rows are in single precision."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(classes, 16))
    y = np.repeat(np.arange(classes), 5)
    X, queries = (centres[labels] + 0.6 * random.normal(size=(len(labels), 16)) for labels in (y, y[::3]))
    cpu, cuda = (
        GPForestClassifier(growth=growth, random_state=0, device=device).fit(X, y).predict_proba(queries)
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(cuda, cpu, rtol=0, atol=tolerance)
