"""Pólya-Gamma variables: moments, Kullback-Leibler divergence and an exact vectorised sampler.

ω ~ PG(b, c) has the Laplace transform E[exp(−ωt)] = (cosh(c/2) / cosh(√(c²/4 + t/2)))^b.
All functions are even in c, elementwise, and broadcast b against c; b = 0 gives 0.

The sampler
    X = 4ω is the variable J*(b, z) of Devroye, z = |c|/2. Expanding 1/cosh^b in powers of exp(−2s) shows
    that its density is an inverse Gaussian one times a factor that does not depend on z:

        f(x) = (1 + e^(−2z))^b · IG(x; mean b/z, shape b²) · r_b(x),
        r_b(x) = Σ_n (−1)^n Γ(n+b)/(n! Γ(b)) · (1 + 2n/b) · exp(−2n(n+b)/x).

    Moreover 0 ≤ r_b ≤ 1: the Lévy density of the inverse Gaussian is ν(x) = b x^(−3/2) e^(−z²x/2) / √(2π),
    that of X is ν(x) · Σ_k (−1)^k exp(−2k²/x) over all integers k, which is smaller. So the inverse Gaussian
    is X plus an independent compound Poisson variable, and r_b is the probability, given the sum, that the
    latter did not jump. Hence rejection from the inverse Gaussian is exact for every b > 0. It accepts with
    probability (1 + e^(−2z))^(−b), and as there are no mixture weights, nothing overflows at large c.

    For b = 1 Jacobi's identities give r_1 in closed form, and a proposal with a lighter tail lifts the
    acceptance to 0.84 at least. Integer b is a sum of such draws. A fraction left over is one more draw, by
    the series.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def _tanh_coefficients(count: int) -> list[float]:
    """The first coefficients t_k of tanh z = Σ_{k≥1} t_k z^(2k−1), from tanh' = 1 − tanh²."""
    t = [1.0]
    for k in range(2, count + 1):
        t.append(-math.fsum(t[i] * t[k - 2 - i] for i in range(k - 1)) / (2 * k - 1))
    return t


# log cosh z − (z/2) tanh z = Σ_{k≥2} (1 − k)/(2k) · t_k z^(2k); 14 terms suffice for float64 below z = 0.4.
_KL_SERIES = [(1 - k) / (2 * k) * t for k, t in enumerate(_tanh_coefficients(15), start=1)][1:]

# e^(δx) r_1(x) ≤ M for all x: log r_1 is concave, and this line of slope −δ touches it near x = 1.14.
_SLOPE = 0.3  # δ
_LOG_BOUND = 0.248061  # log M, rounded up
_STEEP_BELOW = 1.09  # z below which the steeper proposal is accepted more often

# Beyond x = 32 the untilted J*(b, 0), b < 1, has probability below 1e-17; terms up to the 25th are enough up to there.
_FARTHEST = 32.0
_SERIES = range(1, 26)

_COPIES = 6  # most candidates that an element gets in one pass
# Elements drawn at a time: on a CPU the intermediate values should fit the cache.
_BLOCK_CPU, _BLOCK_ACCELERATOR = 2**16, 2**20
# Candidates below which the overhead of a pass outweighs its arithmetic.
_WORTHWHILE_CPU, _WORTHWHILE_ACCELERATOR = 2**12, 2**20


def _block(device: torch.device) -> int:
    return _BLOCK_CPU if device.type == "cpu" else _BLOCK_ACCELERATOR


def _worthwhile(device: torch.device) -> int:
    return _WORTHWHILE_CPU if device.type == "cpu" else _WORTHWHILE_ACCELERATOR


def _by_size(x: Tensor, limit: float, near: Callable[[Tensor], Tensor], far: Callable[[Tensor], Tensor]) -> Tensor:
    """near(x) where |x| < limit, else far(x); neither sees arguments of the other, so that no derivative is NaN."""
    inside = x.abs() < limit
    return torch.where(inside, near(torch.where(inside, x, 0.0)), far(torch.where(inside, limit, x)))


def _differentiated(x: Tensor) -> bool:
    """Whether derivatives may be asked for; otherwise fewer operations do."""
    return torch.is_grad_enabled() and x.requires_grad


def log_cosh(x: Tensor) -> Tensor:
    """log cosh x, elementwise, with full relative accuracy near 0 and no overflow.

    Parameters
    ----------
    x : tensor

    Returns
    -------
    tensor
    """

    def near(x: Tensor) -> Tensor:
        return 0.5 * torch.log1p(torch.sinh(x).square())

    def far(x: Tensor) -> Tensor:
        x = x.abs()
        return x + torch.log1p(torch.exp(-2 * x)) - math.log(2)

    return _by_size(x, 1.0, near, far)


def log_2cosh_half(c: Tensor) -> Tensor:
    """log(2 cosh(c/2)), the normaliser of the bound: σ(f) = exp(f/2) / (2 cosh(f/2))."""
    if _differentiated(c):
        return log_cosh(c / 2) + math.log(2)
    c = c.abs()
    return c / 2 + torch.log1p(torch.exp(-c))


def pg_mean(c: Tensor, b: float | Tensor = 1.0) -> Tensor:
    """E[ω] = b tanh(c/2) / (2c), which tends to b/4 at 0.

    Parameters
    ----------
    c : tensor
        Tilts.
    b : float or tensor
        Shapes, broadcast against `c`.

    Returns
    -------
    tensor
    """

    def near(z: Tensor) -> Tensor:
        # tanh z / z = 1/(1 + z²/(3 + z²/(5 + …))): unlike the quotient, exact derivatives at and around zero.
        square = z.square()
        fraction = torch.full_like(square, 13.0)
        for odd in (11, 9, 7, 5, 3, 1):
            fraction = odd + square / fraction
        return 1 / fraction

    if not _differentiated(c):
        z = c / 2
        return b * 0.25 * (torch.tanh(z) / z).masked_fill_(z == 0.0, 1.0)
    return b * 0.25 * _by_size(c / 2, 0.5, near, lambda z: torch.tanh(z) / z)


def pg_variance(c: Tensor, b: float | Tensor = 1.0) -> Tensor:
    """Var[ω] = b (sinh c − c) / (4 c³ cosh²(c/2)), which tends to b/24 at 0.

    Parameters
    ----------
    c : tensor
        Tilts.
    b : float or tensor
        Shapes, broadcast against `c`.

    Returns
    -------
    tensor
    """

    def near(c: Tensor) -> Tensor:
        series = torch.zeros_like(c)
        for k in range(8, -1, -1):  # (sinh c − c)/c³ = Σ_k c^(2k)/(2k+3)!
            series = series * c.square() + 1 / math.factorial(2 * k + 3)
        return 0.25 * series / torch.cosh(c / 2).square()

    def far(c: Tensor) -> Tensor:
        z = c / 2
        tanh = torch.tanh(z)
        return (tanh - z * (1 - tanh.square())) / (16 * z.pow(3))

    return b * _by_size(c, 1.0, near, far)


def pg_kl(c: Tensor, b: float | Tensor = 1.0) -> Tensor:
    """KL(PG(b, c) ‖ PG(b, 0)) = b [log cosh(c/2) − (c/4) tanh(c/2)], about b c⁴/192 near 0.

    Parameters
    ----------
    c : tensor
        Tilts.
    b : float or tensor
        Shapes, broadcast against `c`.

    Returns
    -------
    tensor
    """

    def near(z: Tensor) -> Tensor:  # the two terms agree in all but the fourth order there
        square = z.square()
        series = torch.zeros_like(square)
        for coefficient in reversed(_KL_SERIES):
            series = (series + coefficient) * square
        return series * square

    # paper (S5)
    return b * _by_size(c / 2, 0.4, near, lambda z: log_cosh(z) - z / 2 * torch.tanh(z))


@torch.no_grad()
def sample_pg(c: Tensor, b: float | Tensor = 1.0, *, generator: torch.Generator) -> Tensor:
    """Independent draws ω ~ PG(b, c), one for every element of `c` and `b` broadcast together.

    Exact for every b > 0 up to rounding; for a fractional part of b the total variation error is below 1e-13.
    b = 0 gives exactly 0, which serves as padding. The cost is in proportion to b: one draw for every unit.

    Parameters
    ----------
    c : tensor
        Tilts, float32 or float64, any shape and sign; the draws have its dtype and device.
    b : float or tensor
        Shapes, at least 0.
    generator : torch.Generator
        The only source of randomness, on the device of `c`.

    Returns
    -------
    tensor
        Finite draws of the broadcast shape, positive where b > 0.
    """
    # paper (2)
    b = torch.as_tensor(b, dtype=torch.float64, device=None if isinstance(b, Tensor) else c.device)
    _check(c, b, generator)
    shape = torch.broadcast_shapes(c.shape, b.shape)
    z = c.abs().div_(2).expand(shape).reshape(-1)
    block = _block(c.device)
    blocks = zip(z.split(block), b.expand(shape).reshape(-1).split(block), strict=True)
    # X/4; a draw that underflows (c beyond 1e36 or b below 1e-18 in float32) stays positive all the same.
    draws = [(_draw(z, b, generator) / 4).clamp_min_(torch.finfo(c.dtype).tiny) * (b > 0) for z, b in blocks]
    return torch.cat(draws).reshape(shape)


def _check(c: Tensor, b: Tensor, generator: torch.Generator) -> None:
    if c.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"c must be of dtype float32 or float64, not {c.dtype}")
    for name, device in (("b", b.device), ("generator", generator.device)):
        if device.type != c.device.type:
            raise ValueError(f"{name} is on {device} but c is on {c.device}; put both on the same device")
    if not torch.isfinite(c).all():
        raise ValueError("c must be finite, but it has NaN or infinite elements")
    if not ((b >= 0) & torch.isfinite(b)).all():
        raise ValueError("b must be finite and at least 0, but it has NaN, infinite or negative elements")


def _draw(z: Tensor, b: Tensor, generator: torch.Generator) -> Tensor:
    """J*(b, z) elementwise, b ≥ 0 in float64; shapes (n,)."""
    if (b == 1).all():  # the common case, spared the bookkeeping
        return _reject(_propose_unit, (z,), generator)
    units = b.floor()
    total = _sum_of_units(z, units, generator)
    parts = b - units
    fractional = parts.nonzero().squeeze(1)
    # in float64, because the series cancels at large x
    draws = _reject(_propose_fraction, (z[fractional].double(), parts[fractional]), generator)
    return total.index_add_(0, fractional, draws.to(z.dtype))


def _sum_of_units(z: Tensor, units: Tensor, generator: torch.Generator) -> Tensor:
    """The sum of `units` (whole numbers) independent draws of J*(1, z), elementwise; shapes (n,)."""
    total = torch.zeros_like(z)
    done = 0
    waiting = units.nonzero().squeeze(1)
    while waiting.numel() > 0:
        # all that every waiting element still needs at least, but no more than is worked on at a time
        rows = min(int(units[waiting].min()) - done, max(1, _block(z.device) // waiting.numel()))
        draws = _reject(_propose_unit, (z[waiting].expand(rows, -1).reshape(-1),), generator)
        total[waiting] += draws.reshape(rows, -1).sum(0)
        done += rows
        waiting = waiting[units[waiting] > done]
    return total


_Propose = Callable[..., tuple[Tensor, Tensor]]


def _reject(propose: _Propose, parameters: tuple[Tensor, ...], generator: torch.Generator) -> Tensor:
    """Rejection sampling of n elements at once; every parameter has shape (n,).

    A pass over few elements costs as much as one over many, so few elements get several candidates each and
    take the first that is accepted.
    """
    draws = torch.empty_like(parameters[0])
    worthwhile = _worthwhile(draws.device)
    waiting = torch.arange(draws.numel(), device=draws.device)
    while waiting.numel() > 0:
        copies = max(1, min(_COPIES, worthwhile // waiting.numel()))
        candidates, accepted = propose(*(p[waiting].expand(copies, -1) for p in parameters), generator)
        first, done = candidates[0], accepted[0]
        for candidate, accept in zip(candidates[1:], accepted[1:], strict=True):
            first = torch.where(done, first, candidate)
            done = done | accept
        draws[waiting] = first
        waiting = waiting[~done]
    return draws


def _propose_unit(z: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Candidates for J*(1, z), and which of them are accepted.

    Where z is small the proposal is IG(1/z', 1) with z'² = z² + 2δ, whose tail is lighter by e^(−δx).
    """
    steep = z < _STEEP_BELOW
    x = _inverse_gaussian(torch.where(steep, torch.sqrt(z * z + 2 * _SLOPE), z), generator)
    correction = torch.exp(torch.where(steep, x * _SLOPE - _LOG_BOUND, 0.0))
    return x, _uniform_like(z, generator) < _unit_factor(x) * correction


def _unit_factor(x: Tensor) -> Tensor:
    """r_1(x), accurate to rounding for all x > 0.

    With s = πx/2 and S(v) = Σ_n (−1)^n (2n+1) v^(n(n+1)/2),
        r_1 = S(exp(−2π/s))                                for s ≤ 1
            = s^(3/2) exp(−(π/4)(s − 1/s)) S(exp(−2πs))    for s ≥ 1.
    As v ≤ exp(−2π) = 0.0019, the first three terms of S leave out less than 3e-16.
    """
    s = x * (math.pi / 2)
    inverse = s.reciprocal()
    v = torch.exp(torch.maximum(s, inverse) * (-2 * math.pi))
    tail = torch.exp((s - inverse).relu_() * (-math.pi / 4))
    w = s.clamp_min(1.0)
    return w * torch.sqrt(w) * tail * (1 - v * (3 - 5 * v * v))


def _propose_fraction(z: Tensor, b: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Candidates for J*(b, z) with 0 < b < 1 in float64, and which of them are accepted."""
    x = _inverse_gaussian(b * z, generator) * b * b  # IG(b/z, b²) = b² · IG(1/(bz), 1)
    return x, _uniform_like(x, generator) < _fraction_factor(x, b)


def _fraction_factor(x: Tensor, b: Tensor) -> Tensor:
    """r_b(x) for 0 < b < 1 in float64, within 1e-14; 0 beyond x = 32."""
    inverse = 1 / x.clamp_max(_FARTHEST)
    # The n-th term is (−1)^n/n! · Γ(n+b)/Γ(1+b) · (b + 2n) · exp(−2n(n+b)/x).
    total = torch.ones_like(x)
    term = torch.ones_like(x)
    growth = torch.exp((1 + b) * inverse * -2)
    growth_of_growth = torch.exp(inverse * -4)
    rising = b.clone()
    for n in _SERIES:
        term *= growth
        growth *= growth_of_growth
        sign = (-1) ** n / math.factorial(n)
        total.addcmul_(term, b, value=sign).add_(term, alpha=sign * 2 * n)
        rising += 1
        term *= rising
    return torch.where(x < _FARTHEST, total, 0.0)


def _inverse_gaussian(z: Tensor, generator: torch.Generator) -> Tensor:
    """Draws of IG(mean 1/z, shape 1), z ≥ 0 (the hitting time of a Brownian motion with drift z).

    (zx − 1)²/x is χ² with one degree of freedom. Of the two x that give the same value y, the smaller has
    probability 1/(1 + zx); it is written without a difference, so that it keeps its digits at any z ≥ 0.
    """
    y = torch.randn(z.shape, generator=generator, dtype=z.dtype, device=z.device).square_()
    x = 2 / torch.sqrt(torch.addcmul(y * y, y, z, value=4)).add_(y).add_(z, alpha=2)
    zx = z * x
    return torch.where(_uniform_like(z, generator) * (1 + zx) < 1, x, x / (zx * zx))


def _uniform_like(x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(x.shape, generator=generator, dtype=x.dtype, device=x.device)
