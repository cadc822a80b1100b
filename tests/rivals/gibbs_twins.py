"""Slow, obvious versions of the rivals that sample Gaussian processes: loops, inverses, weighted prior draws."""

from __future__ import annotations

import numpy as np
import pytest

random_polyagamma = pytest.importorskip("polyagamma", reason="it has no wheel for this Python").random_polyagamma

# ------------------------------------------------------------------------------------------------- likelihoods


def sigmoid(f: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-f))


def logistic_softmax(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Π_n σ(f_y) / Σ_c σ(f_c) of latent values f (R, C, N)."""
    out = np.ones(len(f))
    for n, label in enumerate(y):
        out *= sigmoid(f[:, label, n]) / sigmoid(f[:, :, n]).sum(axis=1)
    return out


def one_vs_each(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Π_n Π_{c ≠ y} σ(f_y − f_c) of latent values f (R, C, N)."""
    out = np.ones(len(f))
    for n, label in enumerate(y):
        for c in range(f.shape[1]):
            if c != label:
                out *= sigmoid(f[:, label, n] - f[:, c, n])
    return out


def posterior_moments(K: np.ndarray, likelihood, y: np.ndarray, classes: int, draws: int = 400_000):
    """E[f] and E[f²] (C, N) given the labels, and their standard errors, by draws of the prior with weights."""
    rng = np.random.default_rng(1)
    f = rng.standard_normal((draws, classes, len(K))) @ np.linalg.cholesky(K).T
    w = likelihood(f, y)
    w /= w.sum()
    out = []
    for values in (f, f**2):
        mean = np.tensordot(w, values, axes=1)
        out.append((mean, np.sqrt(np.tensordot(w**2, (values - mean) ** 2, axes=1))))
    return out


# ------------------------------------------------------------------------------------------------ stick-breaking


def binary_predictive(
    K: np.ndarray, cross: np.ndarray, prior: np.ndarray, omega: np.ndarray, kappa: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (T,) of f⋆ given ω and κ (n,), from K (n, n), k(X, x⋆) (n, T) and k(x⋆, x⋆) (T,)."""
    sigma = np.linalg.inv(np.linalg.inv(K) + np.diag(omega))
    a = np.linalg.solve(K, cross)
    return a.T @ sigma @ kappa, prior - np.sum(cross * a, axis=0) + np.sum(a * (sigma @ a), axis=0)


def expected_sigmoid(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    z = np.linspace(-8, 8, 321)
    w = np.exp(-0.5 * z**2)
    return sigmoid(mean[..., None] + np.sqrt(variance)[..., None] * z) @ (w / w.sum())


def break_stick(left: np.ndarray) -> np.ndarray:
    """p(class) (T, C) from the probability of each break (C − 1, T)."""
    rest, out = np.ones(left.shape[1]), []
    for p in left:
        out.append(rest * p)
        rest = rest * (1 - p)
    return np.stack([*out, rest], axis=1)


def sample_break(K: np.ndarray, kappa: np.ndarray, sweeps: int, rng: np.random.Generator) -> np.ndarray:
    """ω after some sweeps of a chain for one break, started from the prior."""
    f = np.linalg.cholesky(K) @ rng.standard_normal(len(K))
    omega = random_polyagamma(1.0, f, random_state=rng)
    for _ in range(sweeps):
        sigma = np.linalg.inv(np.linalg.inv(K) + np.diag(omega))
        f = sigma @ kappa + np.linalg.cholesky(sigma) @ rng.standard_normal(len(K))
        omega = random_polyagamma(1.0, f, random_state=rng)
    return omega


# -------------------------------------------------------------------------------------------------- one-vs-each


def difference_matrix(y: np.ndarray, classes: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """A with one row f_y(x_n) − f_c(x_n) for every point n and class c ≠ y_n, and those (c, n); f is class by class."""
    rows, places = [], []
    for n, label in enumerate(y):
        for c in range(classes):
            if c != label:
                row = np.zeros((classes, len(y)))
                row[label, n], row[c, n] = 1, -1
                rows.append(row.ravel())
                places.append((c, n))
    return np.array(rows), places


def one_vs_each_conditional(K, y, classes: int, omega: np.ndarray, cross=None, prior=None):
    """Mean and covariance of f | ω, all C·N together, or of f⋆ at one new point (C of them). ω is (C, N).

    𝐊⋆ Aᵀ (A 𝐊 Aᵀ + Ω⁻¹)⁻¹ Ω⁻¹ κ, and the prior covariance less 𝐊⋆ Aᵀ (A 𝐊 Aᵀ + Ω⁻¹)⁻¹ A 𝐊⋆ᵀ.
    """
    A, places = difference_matrix(y, classes)
    o = np.array([omega[place] for place in places])
    eye = np.eye(classes)
    left = np.kron(eye, K if cross is None else cross[None])
    own = np.kron(eye, K if prior is None else [[prior]])
    noisy = np.linalg.inv(A @ np.kron(eye, K) @ A.T + np.diag(1 / o))
    return left @ A.T @ noisy @ (0.5 / o), own - left @ A.T @ noisy @ A @ left.T
