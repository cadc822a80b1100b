"""The tree of a head as a model of its own predicts as the head does."""

from __future__ import annotations

import math

import pytest
import torch
from head_twins import DIMENSION, FLOAT, TREES, in_double, make_head, randn, spread, training_rows, walk
from torch import Tensor

from gptree.deep import TreeHead
from gptree.deep.heads.forest import LEAST_SCALE, MOST_SCALE, as_forest, latent_scale
from gptree.maths.sphere import unit_length

CPU = torch.device("cpu")
BUDGET = 2**24


def sphere(x: Tensor) -> Tensor:
    return torch.as_tensor(unit_length(x.numpy()))


def walked(tree: str, kernel: str = "rbf", **settings: object) -> TreeHead:
    head = make_head(TREES[tree], in_double(**settings), kernel=kernel)  # pyright: ignore[reportArgumentType]
    spread(head)
    walk(head)
    return head


@pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
@pytest.mark.parametrize("kernel", ["rbf", "matern52", "linear"])
@pytest.mark.parametrize("learn_kernel", ["shared", "per-node"])
@pytest.mark.parametrize("tree", ["two classes", "chain", "balanced"])
def test_it_predicts_as_the_head_does(tree: str, learn_kernel: str, kernel: str, predict_at: str) -> None:
    head = walked(tree, kernel, learn_kernel=learn_kernel, cap=12 if tree == "balanced" else None)
    x = randn(7, DIMENSION, seed=8)
    model = as_forest(head, (FLOAT, CPU), BUDGET)
    found = model.log_probabilities(sphere(x), predict_at=predict_at)  # pyright: ignore[reportArgumentType]
    torch.testing.assert_close(found, head.log_probabilities(x, predict_at), rtol=0.0, atol=1e-10)


def test_points_that_coincide_do_no_harm() -> None:
    """K_mm is singular: the head adds jitter, and the model's own root needs another one."""
    head = make_head(TREES["chain"], in_double())
    with torch.no_grad():
        head.points[1:] = head.points[:1] + 1e-9 * head.points[1:]
        head.points[: len(head.points) // 2] = randn(len(head.points) // 2, DIMENSION, seed=3)
    walk(head)
    x = randn(7, DIMENSION, seed=8)
    found = as_forest(head, (FLOAT, CPU), BUDGET).log_probabilities(sphere(x), predict_at="quadrature")
    torch.testing.assert_close(found, head.log_probabilities(x), rtol=0.0, atol=1e-8)


def test_single_precision() -> None:
    head = walked("balanced", dtype="float32")
    x = randn(7, DIMENSION, seed=8)
    for dtype in (torch.float32, FLOAT):
        model = as_forest(head, (dtype, CPU), BUDGET)
        assert model.predictor.grams.X.dtype == dtype
        found = model.log_probabilities(sphere(x).to(dtype), predict_at="quadrature")
        torch.testing.assert_close(found.float(), head.log_probabilities(x).float(), rtol=0.0, atol=1e-3)


def test_a_scale_multiplies_the_latent_functions() -> None:
    head, x = walked("chain", learn_kernel="per-node"), sphere(randn(7, DIMENSION, seed=8))
    mean, variance = as_forest(head, (FLOAT, CPU), BUDGET).predictor.moments(x)
    scaled = as_forest(head, (FLOAT, CPU), BUDGET, scale=1.7).predictor.moments(x)
    torch.testing.assert_close(scaled[0], 1.7 * mean)
    torch.testing.assert_close(scaled[1], 1.7**2 * variance)
    assert float(head.kernel.outputscale.detach().mean()) < 10  # the head's own kernel is as it was


@pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
def test_the_scale_is_the_most_probable_one(predict_at: str) -> None:
    head = walked("leaning")
    x, y = training_rows(head.tree, seed=11)

    def loss(scale: float) -> float:
        model = as_forest(head, (FLOAT, CPU), BUDGET, scale)
        log_p = model.log_probabilities(sphere(x), predict_at=predict_at)  # pyright: ignore[reportArgumentType]
        return 0.5 * math.log(scale) ** 2 - sum(float(log_p[i, c]) for i, c in enumerate(y.tolist()))

    found = latent_scale(head, x, y, predict_at)  # pyright: ignore[reportArgumentType]
    others = [LEAST_SCALE * (MOST_SCALE / LEAST_SCALE) ** (k / 15) for k in range(16)]
    best = min(others, key=loss)
    assert abs(math.log(found / best)) < math.log(MOST_SCALE / LEAST_SCALE) / 15
    assert loss(found) <= loss(best) + 1e-9


def test_rows_that_are_all_right_do_not_call_for_certainty() -> None:
    head = walked("two classes")
    x = randn(3, DIMENSION, seed=11)
    y = head.log_probabilities(x).argmax(1)
    assert 1.0 < latent_scale(head, x, y, "quadrature") < MOST_SCALE / 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_head_on_a_gpu() -> None:
    head = walked("balanced")
    x, y = training_rows(head.tree, seed=11)
    expected = head.log_probabilities(x)
    scale = latent_scale(head, x, y, "quadrature")
    head = head.to("cuda")
    assert latent_scale(head, x.cuda(), y.cuda(), "quadrature") == pytest.approx(scale, rel=1e-4)
    for device in (CPU, torch.device("cuda")):
        found = as_forest(head, (FLOAT, device), BUDGET).log_probabilities(
            sphere(x).to(device), predict_at="quadrature"
        )
        torch.testing.assert_close(found.cpu(), expected, rtol=0.0, atol=1e-8)
