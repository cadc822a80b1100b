"""Fitted experts as pieces of a prediction: modules from rows to class scores, up to a constant a row.

What is the same for all classes cancels in the log-odds of every node: nothing is normalised that need not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gptree.maths.frozen import Chosen, Parts, Rows, log_sigmoids


class LinearScores(nn.Module):
    """(x − centre)ᵀ W + bias, and, where classes weigh it differently, the squared length of x − centre in a metric.

    Parameters
    ----------
    weights : tensor (d, C)
    bias, centre : tensors (C,) and (d,), optional
    metric : (basis (d, r), r weights, weight of the squared length itself, weights of the classes (C,)), optional
    """

    weights: Tensor
    bias: Tensor | None
    centre: Tensor | None
    basis: Tensor | None
    spread: Tensor
    outside: Any
    shares: Tensor

    def __init__(
        self,
        weights: Tensor,
        bias: Tensor | None = None,
        centre: Tensor | None = None,
        metric: tuple[Tensor, Tensor, float, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("weights", weights)
        self.register_buffer("bias", bias)
        self.register_buffer("centre", centre)
        basis, spread, self.outside, shares = (None,) * 4 if metric is None else metric
        self.register_buffer("basis", basis)
        self.register_buffer("spread", spread)
        self.register_buffer("shares", shares)

    def forward(self, rows: Rows) -> Tensor:
        x = rows.x.to(self.weights.dtype)
        x = x if self.centre is None else x - self.centre
        scores = x @ self.weights if self.bias is None else torch.addmm(self.bias, x, self.weights)
        if self.basis is None:
            return scores
        norms = (x @ self.basis).square() @ self.spread + self.outside * x.square().sum(1)
        return scores + norms[:, None] * self.shares


class KernelScores(nn.Module):
    """Σ_i exp(⟨x, x_i⟩ − 1) A_ic, of points x_i."""

    weights: Tensor

    def __init__(self, points: Chosen, weights: Tensor) -> None:
        super().__init__()
        self.points = points
        self.register_buffer("weights", weights)

    def forward(self, rows: Rows) -> Tensor:
        g = rows.of(self.points)
        return (g - 1).to(self.weights.dtype).exp_().mT @ self.weights


class DensityScores(nn.Module):
    """τ log mean of exp(β ⟨x, x_i⟩) over the points of each class."""

    def __init__(
        self, points: Chosen, labels: Tensor, weights: Tensor, masses: Tensor, sharpness: float, temperature: float
    ) -> None:
        super().__init__()
        self.points, self.sharpness, self.temperature = points, sharpness, temperature
        alike = bool((weights == 1).all())
        for name, values in (("labels", labels), ("weights", None if alike else weights), ("masses", masses)):
            self.register_buffer(name, values)

    labels: Tensor
    weights: Tensor | None
    masses: Tensor

    def forward(self, rows: Rows) -> Tensor:
        g = rows.of(self.points).to(self.masses.dtype)
        terms = (g - g.amax(0)).mul_(self.sharpness).exp_()  # the largest is 1
        terms = terms if self.weights is None else terms.mul_(self.weights[:, None])
        sums = self._added(terms).clamp(min=torch.finfo(terms.dtype).tiny)
        return self.temperature * (sums / self.masses[:, None]).log().mT

    def _added(self, terms: Tensor) -> Tensor:
        """Sums over the points of each class."""
        return terms.new_zeros(len(self.masses), terms.shape[1]).index_add_(0, self.labels, terms)


class FrozenDensityScores(DensityScores):
    """The same with sums as matrix products, which exporters know."""

    def __init__(self, parts: Parts, *arguments: Any) -> None:
        super().__init__(*arguments)
        labels = self.labels
        points = torch.arange(len(labels), device=labels.device)
        shape = (len(self.masses), len(labels))
        self.sums = parts.sums(labels, points, self.masses.new_ones(len(labels)), shape)

    def _added(self, terms: Tensor) -> Tensor:
        return self.sums(terms)


class RandomRows(nn.Module):
    """Rows as their random features."""

    projection: Tensor

    def __init__(self, projection: Tensor, unit_length: bool) -> None:
        super().__init__()
        self.unit_length = unit_length
        self.register_buffer("projection", projection)

    def forward(self, rows: Rows) -> Rows:
        features = (rows.x.to(self.projection.dtype) @ self.projection).relu_()
        return Rows(nn.functional.normalize(features, dim=1) if self.unit_length else features)


class ScoresOf(nn.Module):
    """Scores from rows that a shared piece gives."""

    def __init__(self, features: nn.Module, scores: nn.Module) -> None:
        super().__init__()
        self._features = (features,)  # registered where it is owned
        self.scores = scores

    def forward(self, rows: Rows) -> Tensor:
        return self.scores(rows.of(self._features[0]))


class SomeScores(nn.Module):
    """Those of some classes."""

    classes: Tensor

    def __init__(self, scores: nn.Module, classes: Tensor) -> None:
        super().__init__()
        self.scores = scores
        self.register_buffer("classes", classes)

    def forward(self, rows: Rows) -> Tensor:
        return self.scores(rows).index_select(1, self.classes)


class OneClass(nn.Module):
    """One class, whatever the row."""

    def forward(self, rows: Rows) -> Tensor:
        return rows.x.new_zeros(rows.x.shape[0], 1)


class PooledScores(nn.Module):
    """Σ_k w_k score_k."""

    def __init__(self, scores: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.scores, self.weights = nn.ModuleList(scores), tuple(weights)

    def forward(self, rows: Rows) -> Tensor:
        return pooled_scores([score(rows).to(rows.x.dtype) for score in self.scores], self.weights)


class BaseNovelScores(nn.Module):
    """Base and novel classes, each among themselves, and the odds between them; see `gptree.experts.novel`."""

    def __init__(
        self,
        base: nn.Module,
        scores: Sequence[nn.Module],
        root_weights: Sequence[float],
        bias: float,
        novel_weights: Sequence[float],
        sharpness: float,
    ) -> None:
        super().__init__()
        self.base, self.scores, self.bias, self.sharpness = base, nn.ModuleList(scores), bias, sharpness
        self.root_weights, self.novel_weights = tuple(root_weights), tuple(novel_weights)

    def forward(self, rows: Rows) -> Tensor:
        base = self.base(rows).to(rows.x.dtype).log_softmax(1)
        if self.sharpness != 1:
            base = (self.sharpness * base).log_softmax(1)
        logs = [score(rows).to(rows.x.dtype) for score in self.scores]
        total, n_base = pooled_scores(logs, self.root_weights), base.shape[1]
        odds = total[:, n_base:].logsumexp(1) - total[:, :n_base].logsumexp(1) + self.bias
        novel = pooled_scores([log[:, n_base:] for log in logs], self.novel_weights).log_softmax(1)
        is_novel, is_base = log_sigmoids(self.sharpness * odds[:, None])
        return torch.cat([base + is_base, novel + is_novel], 1)


def pooled_scores(scores: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Σ_k w_k score_k."""
    total = scores[0] * weights[0]
    for score, weight in zip(scores[1:], weights[1:], strict=True):
        total = total.add(score, alpha=weight)
    return total
