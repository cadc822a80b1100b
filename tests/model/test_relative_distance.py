"""The relative distance equals densities written out with matrices, and knows strangers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gptree.metrics import auroc
from gptree.model.relative_distance import RelativeDistance


def data(counts: list[int], width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat(np.arange(len(counts)), counts))
    spread = 0.3 + random.random(width)
    return random.normal(size=(len(counts), width))[y] + spread * random.normal(size=(len(y), width)), y


def log_density(x: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> float:
    gap = x - mean
    return -0.5 * (gap @ np.linalg.solve(covariance, gap) + np.linalg.slogdet(2 * np.pi * covariance)[1])


class Slow:
    """Matrices of the module's docstring."""

    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        (m, d), self.X, self.y = X.shape, X, y
        self.counts = np.bincount(y)
        classes = len(self.counts)
        self.means = np.stack([X[y == c].mean(0) for c in range(classes)])
        self.mu = self.means.mean(0)
        R, f, k = X - self.means[y], m - classes, 2 * d
        self.R, self.weight = R, 1 / (k + f)
        s = np.trace(R.T @ R) / (f * d) if f else np.square(X - self.mu).sum() / (2 * m * d)
        self.W = (k * s * np.eye(d) + R.T @ R) / (k + f)
        M = np.cov(self.means.T).reshape(d, d)
        size = np.trace(np.linalg.solve(self.W, M))
        noise = np.trace(np.linalg.solve(self.W, R.T @ R / f if f else self.W)) * np.mean(1 / self.counts)
        share = 25 / (25 + classes)
        b = max(size - noise, 0.1 * size)
        self.B = b * ((1 - share) * M / size + share * self.W / d)
        self.mean_weight = b * (1 - share) / size / (classes - 1)

    def known(self, x: np.ndarray, mean: np.ndarray, n: int, out: np.ndarray | float = 0.0) -> float:
        """Log-density of a row in a class of n rows with this mean; `out` is taken out of the covariance."""
        gain = n * self.B @ np.linalg.inv(n * self.B + self.W)
        return log_density(x, self.mu + gain @ (mean - self.mu), self.W + self.B - gain @ self.B - out)

    def new(self, x: np.ndarray, out: np.ndarray | float = 0.0) -> float:
        return log_density(x, self.mu, self.W + self.B - out)

    def at(self, x: np.ndarray) -> float:
        return self.new(x) - max(self.known(x, m, n) for m, n in zip(self.means, self.counts, strict=True))

    def left_out(self, i: int) -> tuple[float, float]:
        """Of a point without itself, and without its class."""
        x, c = self.X[i], self.y[i]
        n, r, classes = self.counts[c], self.R[i], len(self.counts)
        out = self.weight * n / max(n - 1, 1) * np.outer(r, r)
        best = max(self.known(x, self.means[k], self.counts[k], out) for k in set(self.y.tolist()) - {c})
        gap = self.means[c] - self.mu
        without = self.new(x, out + self.mean_weight * classes / (classes - 1) * np.outer(gap, gap)) - best
        if n > 1:
            best = max(best, self.known(x, (n * self.means[c] - x) / (n - 1), n - 1, out))
        return self.new(x, out) - best, without


@pytest.mark.parametrize(
    ("counts", "width"),
    [([2, 3, 3, 5, 1], 6), ([3, 2, 4], 20), ([4] * 7, 3), ([1, 1, 1], 5)],
    ids=["more rows than features", "more features than rows", "more classes than features", "one row each"],
)
def test_distances_equal_densities(counts: list[int], width: int) -> None:
    X, y = data(counts, width)
    slow, fast = Slow(X, y), RelativeDistance(torch.as_tensor(X), torch.as_tensor(y))
    new = np.random.default_rng(1).normal(size=(5, width))
    np.testing.assert_allclose(fast.at(torch.as_tensor(new)), [slow.at(x) for x in new], rtol=1e-8, atol=1e-8)
    expected = np.array([slow.left_out(i) for i in range(len(y))])
    found = torch.stack([fast.left_out(), fast.without_class()], 1)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_left_out_rows_look_like_new_ones() -> None:
    """30 classes of four rows, 600 new ones of them and of ten others.

    Left-out rows are a little stranger, because their classes are smaller: by less than half a standard deviation.
    """
    random = np.random.default_rng(0)
    means = random.normal(size=(40, 50))
    y, new, strange = np.repeat(np.arange(30), 4), np.repeat(np.arange(30), 20), np.repeat(np.arange(30, 40), 60)
    X, friends, strangers = (torch.as_tensor(means[c] + random.normal(size=(len(c), 50))) for c in (y, new, strange))
    distance = RelativeDistance(X, torch.as_tensor(y))
    left_out, known, others = distance.left_out(), distance.at(friends), distance.at(strangers)
    assert -0.2 < float((left_out.mean() - known.mean()) / known.std()) < 0.5
    assert auroc(known.numpy(), others.numpy()) > 0.95
    # a class that plays the stranger is as strange as one
    assert abs(float((distance.without_class().mean() - others.mean()) / others.std())) < 0.5
    # and what is far away is stranger than all of them, in whatever direction
    assert float(distance.at(torch.as_tensor(20 * random.normal(size=(50, 50)))).min()) > float(others.max())


def test_rows_without_spread() -> None:
    X = torch.eye(3, 4, dtype=torch.float64)[[0, 0, 1, 1, 2, 2]]
    distance = RelativeDistance(X, torch.tensor([5, 5, 0, 0, 7, 7]))
    assert torch.isfinite(torch.stack([distance.at(X), distance.left_out(), distance.without_class()])).all()
    same = RelativeDistance(torch.ones(4, 3, dtype=torch.float64), torch.tensor([0, 0, 1, 1]))
    assert torch.isfinite(same.at(torch.ones(1, 3, dtype=torch.float64))).all()
