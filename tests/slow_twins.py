"""Slow, obvious versions of what the library does fast: explicit inverses, loops over points, integrals on a grid.

Everything here is for one node: K is (n, n), all else (n,). Labels enter as κ = b (y − ½).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

FLOAT = torch.float64


def conditional(K: Tensor, omega: Tensor, kappa: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of g | ω, y with f = μ + g: Σ = (K⁻¹ + Ω)⁻¹, mean Σ (κ − Ω μ)."""
    sigma = torch.linalg.inv(torch.linalg.inv(K) + torch.diag(omega))
    return sigma @ (kappa - omega * mu), sigma


def predictive(
    K: Tensor, cross: Tensor, prior: Tensor, omega: Tensor, kappa: Tensor, mu: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and variance of g⋆ from cross = k(X, x⋆) (n, T) and prior = k(x⋆, x⋆) (T,), through p(g⋆ | g)."""
    mean, sigma = conditional(K, omega, kappa, mu)
    a = torch.linalg.inv(K) @ cross
    return a.T @ mean, prior - (cross * a).sum(0) + (a * (sigma @ a)).sum(0)


def pg_mean(b: Tensor, c: Tensor) -> Tensor:
    return torch.where(c == 0, b / 4, b * torch.tanh(c / 2) / (2 * torch.where(c == 0, 1.0, c)))


def bound(
    K_mm: Tensor,
    K_mn: Tensor,
    k_nn: Tensor,
    m: Tensor,
    S: Tensor,
    c: Tensor,
    kappa: Tensor,
    b: Tensor,
    mu: Tensor,
) -> Tensor:
    """The variational bound at q(u) = N(m, S), q(ω) = PG(b, c), point by point; u is g at the inducing points.

    Σ_i [κ_i (μ_i + a_iᵀ m) − ½ λ_i (E[f_i²] − c_i²) − b_i log(2 cosh(c_i / 2))] − KL(N(m, S) ‖ N(0, K_mm))
    """
    inverse = torch.linalg.inv(K_mm)
    total = torch.zeros((), dtype=m.dtype)
    for i in range(K_mn.shape[1]):
        a = inverse @ K_mn[:, i]
        residual = k_nn[i] - K_mn[:, i] @ inverse @ K_mn[:, i]
        mean = mu[i] + a @ m
        second = residual + a @ S @ a + mean**2
        log_2cosh = torch.log(torch.exp(c[i] / 2) + torch.exp(-c[i] / 2))
        total = total + kappa[i] * mean - 0.5 * pg_mean(b[i], c[i]) * (second - c[i] ** 2) - b[i] * log_2cosh
    kl = 0.5 * (torch.trace(inverse @ S) + m @ inverse @ m - len(m) + torch.logdet(K_mm) - torch.logdet(S))
    return total - kl


def dense_bound(K: Tensor, m: Tensor, S: Tensor, c: Tensor, kappa: Tensor, b: Tensor, mu: Tensor) -> Tensor:
    """`bound` with q(g) on the data themselves."""
    return bound(K, K, K.diagonal(), m, S, c, kappa, b, mu)


def log_likelihood(f: Tensor, kappa: Tensor, b: Tensor) -> Tensor:
    """Σ_i b_i [y_i log σ(f_i) + (1 − y_i) log σ(−f_i)] of grid points f (..., n); y from κ = b (y − ½)."""
    signs = torch.sign(kappa)
    return (b * torch.nn.functional.logsigmoid(signs * f)).sum(-1)


def grid(K: Tensor, mu: Tensor, step: float = 0.3, reach: float = 9.0) -> tuple[Tensor, Tensor]:
    """Points f (G, n) and log weights (G,) of the trapezoid rule under N(μ, K), for n up to 3.

    The rule converges exponentially for such smooth integrands: at this step it is exact to rounding while the prior
    deviations stay below about 3.
    """
    n = len(mu)
    axis = torch.arange(-reach, reach + step / 2, step, dtype=FLOAT)
    x = torch.cartesian_prod(*[axis] * n).reshape(-1, n)
    log_weights = -0.5 * x.square().sum(-1) + n * math.log(step / math.sqrt(2 * math.pi))
    return mu + x @ torch.linalg.cholesky(K).T, log_weights


def exact_posterior(K: Tensor, kappa: Tensor, b: Tensor, mu: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """By integration over a grid: log p(y), posterior weights of the points of `grid`, mean and covariance of f."""
    f, log_weights = grid(K, mu)
    log_joint = log_weights + log_likelihood(f, kappa, b)
    log_evidence = log_joint.logsumexp(0)
    p = (log_joint - log_evidence).exp()
    mean = p @ f
    centred = f - mean
    return log_evidence, p, mean, (p[:, None] * centred).T @ centred
