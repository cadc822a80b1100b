"""Slow, obvious versions of what the experts compute in closed form: plain loops over points, classes and folds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gptree.experts import ALONE, Examples


def blobs(
    counts: list[int], d: int, seed: int = 0, noise: float = 0.8, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Features of unit length (n, d) around random class centres, and shuffled labels (n,)."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    y = y[torch.randperm(len(y), generator=generator)]
    centres = torch.randn(len(counts), d, generator=generator, dtype=torch.float64)
    X = centres[y] + noise * torch.randn(len(y), d, generator=generator, dtype=torch.float64)
    return (X / X.norm(dim=1, keepdim=True)).to(dtype), y


def kept(examples: Examples, i: int) -> list[int]:
    """The examples that are left when example i is left out."""
    fold = int(examples.folds[i])
    if fold == ALONE:
        return [j for j in range(len(examples)) if j != i]
    return [j for j in range(len(examples)) if int(examples.folds[j]) != fold]


def lda_scores(examples: Examples, shrinkage: float, count_weight: float) -> Tensor:
    """Left-out scores (n, C): means and counts without the fold, covariance without x_i, ν and the trace kept.

    x_i goes with its copies in the class.
    """
    X, y, n, C = examples.X, examples.y.tolist(), len(examples), examples.n_classes
    d = X.shape[1]
    counts = [y.count(c) for c in range(C)]
    means = [X[[j for j in range(n) if y[j] == c]].mean(0) for c in range(C)]
    S = sum(torch.outer(X[j] - means[y[j]], X[j] - means[y[j]]) for j in range(n)) / (n - C)
    copies = [sum(1 for j in range(n) if y[j] == y[i] and torch.equal(X[j], X[i])) for i in range(n)]
    q = torch.zeros(n, C, dtype=X.dtype)
    left = torch.zeros(n, C, dtype=X.dtype)
    for i in range(n):
        r, n_y, k = X[i] - means[y[i]], counts[y[i]], copies[i]
        S_i = S - k * n_y / (n_y - k) * torch.outer(r, r) / (n - C)
        A = torch.linalg.inv((1 - shrinkage) * S_i + shrinkage * S.trace() / d * torch.eye(d, dtype=X.dtype))
        for c in range(C):
            rows = [j for j in kept(examples, i) if y[j] == c]
            delta = X[i] - X[rows].mean(0)
            q[i, c], left[i, c] = delta @ A @ delta, len(rows)
    D = sum(float(left[i, y[i]] / (left[i, y[i]] + 1) * q[i, y[i]]) for i in range(n)) / n
    return -0.5 * left / (left + 1) * q - 0.5 * count_weight * D * torch.log(1 + 1 / left)


def kernel_ridge_scores(examples: Examples, penalty: float) -> Tensor:
    """Left-out scores (n, C): a fit without the fold, every class with the same total weight."""
    X, y, n, C = examples.X, examples.y, len(examples), examples.n_classes
    weights = torch.tensor([1 / int((y == y[j]).sum()) for j in range(n)], dtype=X.dtype)
    weights = weights / weights.mean()
    z = torch.zeros(n, C, dtype=X.dtype)
    for i in range(n):
        rows = kept(examples, i)
        K = torch.exp(X[rows] @ X[rows].T - 1)
        Y = torch.nn.functional.one_hot(y[rows], C).to(X.dtype)
        # Σ_j w_j (y_j − f(x_j))² + α|f|² is least at coefficients (K + α W⁻¹)⁻¹ Y
        coefficients = torch.linalg.solve(K + penalty * torch.diag(1 / weights[rows]), Y)
        z[i] = torch.exp(X[i] @ X[rows].T - 1) @ coefficients
    return z


def ridge_scores(examples: Examples, penalty: float) -> Tensor:
    """Left-out scores (n, C): a weighted least-squares fit without the fold."""
    X, y, n, C = examples.X, examples.y, len(examples), examples.n_classes
    weights = torch.tensor([1 / int((y == y[j]).sum()) for j in range(n)], dtype=X.dtype)
    weights = weights / weights.mean()
    z = torch.zeros(n, C, dtype=X.dtype)
    for i in range(n):
        rows = kept(examples, i)
        W = torch.diag(weights[rows])
        Y = torch.nn.functional.one_hot(y[rows], C).to(X.dtype)
        normal = X[rows].T @ W @ X[rows] + penalty * torch.eye(X.shape[1], dtype=X.dtype)
        z[i] = X[i] @ torch.linalg.solve(normal, X[rows].T @ W @ Y)
    return z


def density_scores(examples: Examples, sharpness: float) -> Tensor:
    """Left-out scores (n, C): log mean of exp(β(g − 1)) over the examples of the class outside the fold."""
    X, y = examples.X, examples.y.tolist()
    scores = torch.zeros(len(examples), examples.n_classes, dtype=X.dtype)
    for i in range(len(examples)):
        for c in range(examples.n_classes):
            terms = [math.exp(sharpness * (float(X[i] @ X[j]) - 1)) for j in kept(examples, i) if y[j] == c]
            scores[i, c] = math.log(sum(terms) / len(terms)) if terms else math.nan
    return scores


def golden_section(
    scores: Tensor, y: Tensor, centre: float, counts: Sequence[float] | None = None
) -> tuple[float, float]:
    """τ within e^±4 of the centre with the least mean NLL + (log τ − log centre)²/(2n), and that value."""
    times = torch.ones(len(y), dtype=scores.dtype) if counts is None else torch.tensor(counts, dtype=scores.dtype)
    n = float(times.sum())

    def objective(t: float) -> float:
        each = torch.nn.functional.cross_entropy(math.exp(t) * scores, y, reduction="none")
        return float((each * times).sum()) / n + (t - math.log(centre)) ** 2 / (2 * n)

    low, high, ratio = math.log(centre) - 4, math.log(centre) + 4, (math.sqrt(5) - 1) / 2
    for _ in range(80):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if objective(left) < objective(right) else (left, high)
    return math.exp((low + high) / 2), objective((low + high) / 2)


def believed_temperature(scores: Tensor, y: Tensor, novel: list[float], k: int, few: bool = False) -> float:
    """The τ of `golden_section` around 1, or, if this explains the labels clearly better, with rows by belief.

    Rows are of the classes that are scored with the probabilities `novel`; there are k classes in all. Of classes of
    few rows it need not be clear.
    """
    n = len(scores)

    def own(tau: float) -> list[float]:
        among = [math.exp(float((tau * row).log_softmax(0)[c])) for row, c in zip(scores, y.tolist(), strict=True)]
        return [p * q for p, q in zip(among, novel, strict=True)]

    plain = tau = golden_section(scores, y, 1.0)[0]
    share = 0.1
    for _ in range(15):
        beliefs = [(1 - share) * p / ((1 - share) * p + share / k) for p in own(tau)]
        share = 1 - sum(beliefs) / n
        if share < 0.01:
            return plain
        before, tau = tau, golden_section(scores, y, 1.0, beliefs)[0]
        if abs(tau - before) <= 1e-3:
            break
    smoothed = 1 / (n + 1)
    gains = [
        math.log((1 - share) * p + share / k) - math.log((1 - smoothed) * q + smoothed / k)
        for p, q in zip(own(tau), own(plain), strict=True)
    ]
    mean = sum(gains) / n
    error = math.sqrt(sum((gain - mean) ** 2 for gain in gains) / n / (n - 1))
    return tau if mean > (0 if few else error) else plain
