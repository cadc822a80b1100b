"""log E[σ(±f)] against adaptive integration."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from torch.nn.functional import logsigmoid

from gptree.maths.quadrature import log_mean_exp, log_sigmoid_expectation

DTYPES = [torch.float32, torch.float64]
MEANS = (-600.0, -100.0, -20.0, -8.0, -3.0, -1.0, -0.2, 0.0, 0.5, 1.0, 4.0, 20.0, 50.0, 1000.0)


def integrated(mean: float, variance: float) -> float:
    """log E[σ(f)] by adaptive integration over x = (f − mean)/deviation, scaled by its largest value."""
    deviation = math.sqrt(variance)

    def log_integrand(x):
        f = mean + deviation * x
        return -0.5 * x * x - np.logaddexp(0.0, -f) - 0.5 * math.log(2 * math.pi)

    edge = -mean / deviation  # where f = 0; the integrand falls off on both sides of its peak within 12 of it
    grid = np.linspace(min(0.0, edge) - 12, max(deviation, edge) + 12, 20_001)
    values = log_integrand(grid)
    peak, place = values.max(), grid[values.argmax()]
    inside = grid[values > peak - 40]
    cuts = np.unique([*np.linspace(inside[0], inside[-1], 40), place, *np.clip([edge], inside[0], inside[-1])])
    pieces = [
        integrate.quad(lambda x: math.exp(log_integrand(x) - peak), low, high, epsabs=1e-14, epsrel=1e-12)[0]
        for low, high in pairwise(cuts)
    ]
    return peak + math.log(math.fsum(pieces))


@pytest.mark.parametrize(
    ("variance", "error"),
    [
        (0.01, 1e-12),
        (0.25, 1e-11),
        (1.0, 1e-9),
        (2.0, 1e-6),
        (4.0, 3e-5),
        (10.0, 3e-3),
        (12.0, 6e-3),
        (12.1, 1e-9),
        (100.0, 1e-9),
        (1e4, 1e-9),
    ],
)
def test_error_of_twenty_points(variance, error):
    """The accuracy that the documentation states; at variance 12 it is not far too pessimistic either."""
    mean = torch.tensor(MEANS, dtype=torch.float64)
    left, right = log_sigmoid_expectation(mean, torch.full_like(mean, variance))
    expected = torch.tensor([[integrated(m, variance), integrated(-m, variance)] for m in MEANS], dtype=torch.float64)
    errors = (torch.stack([left, right], 1) - expected).abs()
    assert errors.max() < error
    if variance == 12:
        assert errors.max() > error / 5


@pytest.mark.parametrize("variance", [0.3, 4.0, 30.0])
def test_more_points_are_more_accurate(variance):
    mean = torch.tensor(MEANS, dtype=torch.float64)
    left, _ = log_sigmoid_expectation(mean, torch.full_like(mean, variance), points=150)
    np.testing.assert_allclose(left, [integrated(m, variance) for m in MEANS], atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_a_plain_loop(dtype):
    mean = torch.linspace(-30, 30, 41, dtype=dtype)
    variance = torch.linspace(0, 9, 41, dtype=dtype)
    nodes, weights = np.polynomial.hermite.hermgauss(20)  # the physicists' rule, for weight exp(−t²)
    left, right = log_sigmoid_expectation(mean, variance)
    for i, (m, v) in enumerate(zip(mean.tolist(), variance.tolist(), strict=True)):
        p = [0.0, 0.0]
        for t, w in zip(nodes, weights, strict=True):
            f = m + math.sqrt(2 * v) * t
            p[0] += w / math.sqrt(math.pi) / (1 + math.exp(-f))
            p[1] += w / math.sqrt(math.pi) / (1 + math.exp(f))
        tolerance = 20 * torch.finfo(dtype).eps
        assert right[i].item() == pytest.approx(math.log(p[1]), rel=tolerance, abs=tolerance)
        assert left[i].item() == pytest.approx(math.log(p[0]), rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variance", [0.0, 1e-3, 1.0, 4.0])
@pytest.mark.parametrize("mean", [-40.0, -100.0, -1000.0])
def test_relative_accuracy_in_the_tails(mean, variance, dtype):
    """E[σ(f)] = exp(mean + variance/2) far on the left, to all digits; and E[σ(−f)] = 1 − E[σ(f)]."""
    rare, sure = log_sigmoid_expectation(torch.tensor(mean, dtype=dtype), torch.tensor(variance, dtype=dtype))
    assert rare.item() == pytest.approx(mean + variance / 2, rel=20 * torch.finfo(dtype).eps)
    assert sure.item() == pytest.approx(-math.exp(mean + variance / 2), rel=1e-4, abs=1e-38)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variance", [0.0, -1e-9, -1e-3])
def test_no_variance_is_the_logistic_function_itself(variance, dtype):
    mean = torch.linspace(-120, 120, 97, dtype=dtype)
    left, right = log_sigmoid_expectation(mean, torch.full_like(mean, variance))
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(left, logsigmoid(mean), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(right, logsigmoid(-mean), rtol=tolerance, atol=tolerance)


@settings(max_examples=100, deadline=None)
@given(
    means=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20),
    variance=st.floats(0, 2.0**100, width=32),
    dtype=st.sampled_from(DTYPES),
    points=st.integers(1, 40),
)
def test_probabilities_sum_to_one_and_swap_with_the_sign(means, variance, dtype, points):
    mean = torch.tensor(means, dtype=dtype)
    left, right = log_sigmoid_expectation(mean, torch.tensor(variance, dtype=dtype), points)
    assert torch.isfinite(left).all()
    assert torch.isfinite(right).all()
    total = left.exp() + right.exp()
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=4 * torch.finfo(dtype).eps)
    swapped_left, swapped_right = log_sigmoid_expectation(-mean, torch.tensor(variance, dtype=dtype), points)
    away_from_zero = mean != 0
    assert torch.equal(left[away_from_zero], swapped_right[away_from_zero])
    assert torch.equal(right[away_from_zero], swapped_left[away_from_zero])


def test_gradients():
    mean = torch.tensor([-100.0, -3.0, -0.4, 0.0, 0.7, 2.0, 50.0], dtype=torch.float64, requires_grad=True)
    variance = torch.tensor([1.0, 0.3, 4.0, 1.0, 2.0, 30.0, 0.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(log_sigmoid_expectation, (mean, variance))
    far = torch.tensor([-400.0, -2.0, 900.0], dtype=torch.float64, requires_grad=True)  # the path in log space
    assert torch.autograd.gradcheck(log_sigmoid_expectation, (far, variance[:3]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_at_no_variance(dtype):
    """d log E[σ] / d variance = σ''/(2σ) and d log E[σ] / d mean = σ'/σ at variance 0."""
    mean = torch.tensor([-5.0, -1.0, 0.0, 1.0, 5.0], dtype=dtype, requires_grad=True)
    variance = torch.zeros(5, dtype=dtype, requires_grad=True)
    left, _ = log_sigmoid_expectation(mean, variance)
    by_mean, by_variance = torch.autograd.grad(left.sum(), (mean, variance))
    sigma = torch.sigmoid(mean.detach())
    tolerance = 4 * math.sqrt(torch.finfo(dtype).eps)
    torch.testing.assert_close(by_mean, 1 - sigma, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(by_variance, (1 - sigma) * (1 - 2 * sigma) / 2, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_are_finite_everywhere(dtype):
    mean = torch.tensor([-1e4, -100.0, -1.0, 0.0, 1.0, 100.0, 1e4], dtype=dtype)[:, None].requires_grad_()
    variance = torch.tensor([-1e-8, 0.0, 1e-12, 1e-3, 1.0, 100.0, 1e6], dtype=dtype, requires_grad=True)
    for side in log_sigmoid_expectation(mean, variance):
        assert all(
            torch.isfinite(g).all() for g in torch.autograd.grad(side.sum(), (mean, variance), retain_graph=True)
        )


def test_shapes_broadcast_and_blocks_join():
    mean = torch.linspace(-4, 4, 30_000, dtype=torch.float64).reshape(3, 100, 100)
    left, right = log_sigmoid_expectation(mean, torch.tensor([[0.5], [2.0]], dtype=torch.float64).expand(2, 100)[:1])
    assert left.shape == right.shape == (3, 100, 100)
    one_by_one = torch.stack([log_sigmoid_expectation(m, torch.tensor(0.5).double())[0] for m in mean[0, :5, 0]])
    torch.testing.assert_close(left[0, :5, 0], one_by_one, rtol=1e-14, atol=0)
    torch.testing.assert_close(left.flatten().flip(0), right.flatten(), rtol=1e-12, atol=0)  # symmetric means
    assert log_sigmoid_expectation(torch.zeros(0, 3), torch.zeros(0, 3))[0].shape == (0, 3)
    assert log_sigmoid_expectation(torch.zeros(()), torch.ones(()))[0].shape == ()


def test_infinite_means_are_certain():
    left, right = log_sigmoid_expectation(torch.tensor([math.inf, -math.inf]), torch.ones(2))
    assert left.tolist() == [0, -math.inf]
    assert right.tolist() == [-math.inf, 0]


def test_number_of_points_is_checked():
    with pytest.raises(ValueError, match="points must be at least 1"):
        log_sigmoid_expectation(torch.zeros(1), torch.ones(1), points=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_agrees_with_cpu(dtype):
    mean, variance = torch.linspace(-60, 60, 5000, dtype=dtype), torch.linspace(0, 9, 5000, dtype=dtype)
    tolerance = 50 * torch.finfo(dtype).eps
    for ours, theirs in zip(
        log_sigmoid_expectation(mean.cuda(), variance.cuda()),
        log_sigmoid_expectation(mean, variance),
        strict=True,
    ):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=tolerance, atol=tolerance)


def test_log_mean_exp_over_draws() -> None:
    values = torch.tensor([[0.0, -1000.0, -torch.inf], [-2.0, -1001.0, -torch.inf], [1.0, -999.0, 0.0]])
    values = values.double()
    for column, entries in zip(log_mean_exp(values).tolist(), values.T.tolist(), strict=True):
        top = max(entries)
        assert column == pytest.approx(top + math.log(sum(math.exp(v - top) for v in entries) / 3), rel=1e-14)
    assert torch.equal(log_mean_exp(values[:1]), values[0])
