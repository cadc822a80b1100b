"""Pólya-Gamma functions against exact arithmetic, draws against `polyagamma` and closed forms.

Statistical tests have fixed seeds. FAMILY_RATE is the probability, over seeds, that any of the checks of a
family rejects a correct sampler; each check of a family of m has the level FAMILY_RATE / m (Bonferroni).
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gptree.maths import polya_gamma
from gptree.maths.polya_gamma import log_2cosh_half, log_cosh, pg_kl, pg_mean, pg_variance, sample_pg

polyagamma = pytest.importorskip("polyagamma", reason="it has no wheel for this Python")

DTYPES = [torch.float32, torch.float64]
FAMILY_RATE = 1e-3
SHAPES = (1, 2, 3, 7, 0.1, 0.5, 1.5, 2.7)
TILTS = (0.0, 1e-3, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0, 1e3, 1e4)
GRID = list(product(SHAPES, TILTS))
DRAWS = 20_000


def generator(seed: int, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device=device).manual_seed(seed)


# Moments and divergence: exact arithmetic


def exact_cosh_sinh(x: Decimal) -> tuple[Decimal, Decimal]:
    return (x.exp() + (-x).exp()) / 2, (x.exp() - (-x).exp()) / 2


def exact_log_cosh(x: Decimal) -> Decimal:
    return exact_cosh_sinh(x)[0].ln()


def exact_log_2cosh_half(c: Decimal) -> Decimal:
    return (2 * exact_cosh_sinh(c / 2)[0]).ln()


def exact_mean(c: Decimal) -> Decimal:
    cosh, sinh = exact_cosh_sinh(c / 2)
    return sinh / cosh / (2 * c)


def exact_variance(c: Decimal) -> Decimal:
    return (exact_cosh_sinh(c)[1] - c) / (4 * c**3 * exact_cosh_sinh(c / 2)[0] ** 2)


def exact_kl(c: Decimal) -> Decimal:
    cosh, sinh = exact_cosh_sinh(c / 2)
    return cosh.ln() - c / 4 * sinh / cosh


FUNCTIONS = [
    (log_cosh, exact_log_cosh),
    (pg_mean, exact_mean),
    (pg_variance, exact_variance),
    (pg_kl, exact_kl),
]
POINTS = [*np.geomspace(1e-5, 1e4, 40), 0.4, 0.79, 0.8, 0.81, 0.9, 0.99, 1.0, 1.01, 1.2, 1.5, 1.99, 2.0, 2.01]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("function", "exact"), FUNCTIONS)
def test_values_and_slopes_are_accurate_from_tiny_to_huge_arguments(function, exact, dtype):
    c = torch.tensor(POINTS, dtype=dtype, requires_grad=True)
    values = function(c)
    (slopes,) = torch.autograd.grad(values.sum(), c)
    tolerance = 100 * torch.finfo(dtype).eps
    with localcontext() as context:
        context.prec = 80
        step = Decimal(10) ** -20
        for point, value, slope in zip(c.tolist(), values.tolist(), slopes.tolist(), strict=True):
            x = Decimal(point)
            assert value == pytest.approx(float(exact(x)), rel=tolerance)
            exact_slope = (exact(x * (1 + step)) - exact(x * (1 - step))) / (2 * step * x)
            assert slope == pytest.approx(float(exact_slope), rel=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("function", "at_zero", "curvature"),
    [
        (log_cosh, 0, 1),
        (log_2cosh_half, math.log(2), 1 / 4),
        (pg_mean, 1 / 4, -1 / 24),
        (pg_variance, 1 / 24, -1 / 60),
        (pg_kl, 0, 0),
    ],
)
def test_limits_at_zero(function, at_zero, curvature, dtype):
    c = torch.zeros((), dtype=dtype, requires_grad=True)
    value = function(c)
    (slope,) = torch.autograd.grad(value, c, create_graph=True)
    (second,) = torch.autograd.grad(slope, c)
    assert value.item() == pytest.approx(at_zero, rel=1e-6)
    assert slope.item() == 0
    assert second.item() == pytest.approx(curvature, rel=1e-6)


@pytest.mark.parametrize("function", [f for f, _ in FUNCTIONS])
def test_first_and_second_derivatives(function):
    c = torch.tensor([0.0, 0.3, -0.7, 0.9, 1.1, -1.9, 2.2, 7.0, -40.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, (c,))
    assert torch.autograd.gradgradcheck(function, (c,))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [f for f, _ in FUNCTIONS])
def test_even_and_finite_with_finite_gradients(function, dtype):
    c = torch.cat([torch.zeros(1), torch.logspace(-30, 4, 500), torch.tensor([1e8])]).to(dtype).requires_grad_()
    value = function(c)
    (slope,) = torch.autograd.grad(value.sum(), c, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), c)
    assert all(torch.isfinite(x).all() for x in (value, slope, second))
    assert value.dtype == dtype
    assert torch.equal(function(-c), value)


@pytest.mark.parametrize("function", [pg_mean, pg_variance, pg_kl])
def test_shape_parameter_scales_and_broadcasts(function):
    c = torch.tensor([0.0, 0.5, 3.0, 1e4])
    b = torch.tensor([[0.0], [1.0], [2.5]])
    assert torch.equal(function(c, b), torch.stack([torch.zeros(4), function(c), 2.5 * function(c)]))
    assert function(c.new_zeros(2, 0, 3)).shape == (2, 0, 3)


def test_variance_is_the_tilted_derivative_of_the_mean():
    c = torch.linspace(0.05, 12, 200, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(pg_mean(c).sum(), c)  # d E[ω] / d(c²/2) = −Var[ω]
    torch.testing.assert_close(pg_variance(c).detach(), -slope / c.detach(), rtol=1e-10, atol=0)


# The sampler's ingredients


def exact_factor(x: float, b: float) -> float:
    """r_b(x) by the plain series in 50 digits, for x up to 40."""
    with localcontext() as context:
        context.prec = 50
        x, b = Decimal(x), Decimal(b)
        total, binomial = Decimal(1), Decimal(1)
        for n in range(1, 60):
            binomial *= (n - 1 + b) / n  # Γ(n+b) / (n! Γ(b))
            total += (-1) ** n * binomial * (1 + 2 * n / b) * (-2 * n * (n + b) / x).exp()
        return float(total)


@pytest.mark.parametrize("dtype", DTYPES)
def test_closed_form_of_the_unit_factor(dtype):
    x = torch.cat([torch.linspace(0.02, 1.5, 60), torch.linspace(2, 25, 20)]).to(dtype)
    expected = [exact_factor(v, 1.0) for v in x.tolist()]
    # rounding of the exponent, (π²/8)x, is relative to its size
    np.testing.assert_allclose(polya_gamma._unit_factor(x), expected, rtol=50 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("b", [1e-6, 0.1, 0.5, 0.9, 0.999999])
def test_series_of_the_fractional_factor(b):
    x = torch.cat([torch.logspace(-12, 0, 20), torch.linspace(1.1, 31.9, 40)]).double()
    expected = np.array([exact_factor(v, b) for v in x.tolist()])
    actual = polya_gamma._fraction_factor(x, torch.full_like(x, b))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-14)
    assert expected.min() >= 0  # a probability
    assert expected.max() <= 1
    assert polya_gamma._fraction_factor(x + 32, torch.full_like(x, b)).count_nonzero() == 0
    assert polya_gamma._fraction_factor(torch.full_like(x, 32.0), torch.full_like(x, b)).count_nonzero() == 0


def test_steeper_proposal_is_an_envelope_and_tight():
    x = torch.logspace(-3, 1.7, 100_000, dtype=torch.float64)
    log_ratio = polya_gamma._unit_factor(x).log() + polya_gamma._SLOPE * x - polya_gamma._LOG_BOUND
    assert -1e-5 < log_ratio.max() <= 0


@pytest.mark.parametrize("c", [0.0, 1.0, 2.1, 2.3, 4.0, 20.0])
def test_acceptance_of_unit_proposals(c):
    z = torch.full((100_000,), c / 2)
    _, accepted = polya_gamma._propose_unit(z, generator(11))
    assert accepted.double().mean() > 0.84


# The sampler against the oracle


@cache
def oracle(b: float, c: float) -> np.ndarray:
    # polyagamma's default method for b = 1 overflows from about c = 300 on; "alternate", for b ≥ 1, does not.
    method = "alternate" if b >= 1 else None
    rng = np.random.default_rng([71, GRID.index((b, c))])
    return polyagamma.random_polyagamma(b, c, size=DRAWS, method=method, random_state=rng)


@cache
def draws(b: float, c: float, dtype: torch.dtype) -> np.ndarray:
    tilts = torch.full((DRAWS,), c, dtype=dtype)
    return sample_pg(tilts, b, generator=generator(GRID.index((b, c)))).double().numpy()


def rejections(sampler, cells, level: float) -> list[tuple[float, float]]:
    """The cells (b, c) at which a two-sample Kolmogorov-Smirnov test tells the sampler from the oracle."""
    return [cell for cell in cells if stats.ks_2samp(sampler(*cell), oracle(*cell), method="asymp").pvalue < level]


@pytest.mark.parametrize("dtype", DTYPES)
def test_draws_agree_with_polyagamma(dtype):
    assert rejections(lambda b, c: draws(b, c, dtype), GRID, FAMILY_RATE / len(GRID)) == []


def too_steep(b: float, c: float) -> np.ndarray:
    return sample_pg(torch.full((DRAWS,), 1.2 * c), b, generator=generator(5)).numpy()


def too_large(b: float, c: float) -> np.ndarray:
    return sample_pg(torch.full((DRAWS,), c), 1.1 * b, generator=generator(5)).numpy()


def all_accepted(b: float, c: float) -> np.ndarray:
    return polya_gamma._inverse_gaussian(torch.full((DRAWS,), c / 2), generator(5)).numpy() / 4


@pytest.mark.parametrize(
    ("wrong", "cells"),
    [
        (too_steep, list(product((1, 7, 0.5, 2.7), (5.0, 100.0, 1e4)))),
        (too_large, list(product((1, 7, 0.1, 2.7), (0.0, 2.0, 1e4)))),
        (all_accepted, list(product((1,), (0.0, 1.0, 2.0)))),
    ],
)
def test_the_comparison_has_power(wrong, cells):
    """Faults of 10 or 20 percent in a parameter, or in the rejection step, are found wherever they matter."""
    assert rejections(wrong, cells, FAMILY_RATE / len(GRID)) == cells


def analytic_cdf(omega: np.ndarray, b: float, c: float) -> np.ndarray:
    if c < 100:
        return polyagamma.polyagamma_cdf(omega, b, c)
    # 4ω is inverse Gaussian with mean 2b/c and shape b² but for terms of the order exp(−c)
    return stats.invgauss.cdf(4 * omega, mu=2 / (b * c), scale=b**2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("b", [1, 0.5])
def test_draws_follow_the_analytic_distribution(b, dtype):
    for seed, c in enumerate(TILTS):
        omega = sample_pg(torch.full((50_000,), c, dtype=dtype), b, generator=generator(seed)).double().numpy()
        test = stats.kstest(omega, lambda x, c=c: analytic_cdf(x, b, c), method="asymp")
        assert test.pvalue > FAMILY_RATE / len(TILTS), c


@pytest.mark.parametrize("dtype", DTYPES)
def test_mean_and_variance_of_draws(dtype):
    """z tests of the first two central moments, whose standard errors come from the draws."""
    threshold = stats.norm.isf(FAMILY_RATE / (2 * len(GRID)) / 2)
    for b, c in GRID:
        tilt = torch.tensor(c, dtype=torch.float64)
        centred = draws(b, c, dtype) - pg_mean(tilt, b).item()
        squares = centred**2 - pg_variance(tilt, b).item()
        for deviations in (centred, squares):
            assert abs(deviations.mean()) < threshold * deviations.std() / math.sqrt(DRAWS), (b, c)


@pytest.mark.parametrize("b", [0.25, 1.0, 3.6])
def test_laplace_transform(b):
    """E[exp(−ω ψ²/2)] = cosh(ψ/2)^−b under PG(b, 0), the identity behind the augmentation."""
    tilts = (0.3, 1.0, 2.5, 6.0)
    omega = sample_pg(torch.zeros(200_000, dtype=torch.float64), b, generator=generator(3))
    threshold = stats.norm.isf(FAMILY_RATE / len(tilts) / 2)
    for psi in tilts:
        values = torch.exp(-omega * psi**2 / 2)
        error = values.mean() - math.cosh(psi / 2) ** -b
        assert abs(error) < threshold * values.std() / math.sqrt(len(values))


def test_elements_with_different_parameters_do_not_mix():
    """One call with all of the grid, rows apart: the mean of every row, and no two draws the same."""
    b, c = (torch.tensor(column, dtype=torch.float64)[:, None] for column in zip(*GRID, strict=True))
    omega = sample_pg(c.expand(-1, 2000), b, generator=generator(17))
    error = (omega.mean(1, keepdim=True) - pg_mean(c, b)) / torch.sqrt(pg_variance(c, b) / 2000)
    assert error.abs().max() < stats.norm.isf(FAMILY_RATE / len(GRID) / 2)
    assert omega.unique().numel() == omega.numel()


def test_large_shapes_are_sums_of_exact_draws():
    omega = sample_pg(torch.full((2000,), 1.5, dtype=torch.float64), 300.0, generator=generator(23)).numpy()
    test = stats.ks_2samp(omega, polyagamma.random_polyagamma(300.0, 1.5, size=20_000, random_state=23))
    assert test.pvalue > FAMILY_RATE


# The sampler's manners


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("b", [1.0, 2.6])
def test_generator_is_the_only_source_of_randomness(dtype, b):
    c = torch.linspace(-3, 3, 500, dtype=dtype)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = (sample_pg(c, b, generator=generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


def test_consecutive_calls_continue_the_stream():
    stream = generator(1)
    c = torch.ones(100)
    assert not torch.equal(sample_pg(c, generator=stream), sample_pg(c, generator=stream))


@pytest.mark.parametrize("dtype", DTYPES)
def test_shapes_broadcast_and_zero_shape_is_padding(dtype):
    c = torch.linspace(-2, 2, 12, dtype=dtype).reshape(4, 3).T  # not contiguous
    b = torch.tensor([[0.0], [1.0], [2.5]])
    omega = sample_pg(c.expand(5, 3, 4), b, generator=generator(0))
    assert omega.shape == (5, 3, 4)
    assert omega.dtype == dtype
    assert omega[:, 0].count_nonzero() == 0
    assert (omega[:, 1:] > 0).all()
    assert sample_pg(torch.ones(3, dtype=dtype), torch.ones(2, 1), generator=generator(0)).shape == (2, 3)
    assert sample_pg(torch.zeros((), dtype=dtype), 2, generator=generator(0)).shape == ()
    assert sample_pg(torch.zeros(0, 3, dtype=dtype), 0.5, generator=generator(0)).shape == (0, 3)
    assert torch.equal(sample_pg(c, 0.0, generator=generator(0)), torch.zeros(3, 4, dtype=dtype))


def test_arguments_are_left_alone_and_draws_carry_no_gradient():
    c = torch.linspace(-2, 2, 100, requires_grad=True)
    b = torch.full((100,), 1.5)
    before = c.detach().clone()
    assert not sample_pg(c, b, generator=generator(0)).requires_grad
    assert torch.equal(c, before)
    assert (b == 1.5).all()


@settings(max_examples=60, deadline=None)
@given(
    c=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20),
    b=st.floats(min_value=1e-30, max_value=20),
    dtype=st.sampled_from(DTYPES),
)
def test_draws_are_positive_and_finite(c, b, dtype):
    omega = sample_pg(torch.tensor(c, dtype=dtype), b, generator=generator(0))
    assert torch.isfinite(omega).all()
    assert (omega > 0).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_bad_values_are_refused(bad):
    with pytest.raises(ValueError, match="c must be finite"):
        sample_pg(torch.tensor([0.0, bad]), generator=generator(0))
    with pytest.raises(ValueError, match="b must be finite and at least 0"):
        sample_pg(torch.zeros(2), torch.tensor([1.0, bad]), generator=generator(0))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="b must be finite and at least 0"):
        sample_pg(torch.zeros(2), -0.5, generator=generator(0))
    with pytest.raises(TypeError, match="float32 or float64"):
        sample_pg(torch.zeros(2, dtype=torch.int64), generator=generator(0))
    with pytest.raises(ValueError, match="put both on the same device"):
        sample_pg(torch.zeros(2, device="meta"), generator=generator(0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", DTYPES)
def test_draws_on_cuda(dtype):
    cells = [(b, c) for b, c in GRID if c in (0.0, 2.0, 1e4)]

    def on_cuda(b: float, c: float) -> np.ndarray:
        tilts = torch.full((DRAWS,), c, dtype=dtype, device="cuda")
        omega = sample_pg(tilts, b, generator=generator(GRID.index((b, c)), "cuda"))
        assert torch.equal(omega, sample_pg(tilts, b, generator=generator(GRID.index((b, c)), "cuda")))
        assert omega.device.type == "cuda"
        assert omega.dtype == dtype
        return omega.double().cpu().numpy()

    assert rejections(on_cuda, cells, FAMILY_RATE / len(cells)) == []
    with pytest.raises(ValueError, match="put both on the same device"):
        sample_pg(torch.zeros(2, device="cuda"), generator=generator(0))
