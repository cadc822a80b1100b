"""Gaussian posteriors of the weights of a last layer, given its features: Laplace approximations.

Logits are f = W φ, φ the features of a row with a 1 for the bias, and p = softmax(f). The posterior of W around the
trained weights has the precision of the generalised Gauss-Newton matrix and of a prior N(0, 1/δ):

    H = Σ_i φ_i φ_iᵀ ⊗ (diag p_i − p_i p_iᵀ) + δ I.

`Kronecker` takes the sum of products for a product of sums. `ByClass` takes each class's logit for itself, Σ_k⁻¹ = Σ_i
p_ik (1 − p_ik) φ_i φ_iᵀ + δ I, as SNGP does (Liu et al., 2020). Both give variances of logits, which make predictions
less sure: p = softmax(f / √(1 + π/8 var f)).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import nll_loss

#: δ is chosen among these by the held-out NLL.
PRIOR_PRECISIONS = tuple(10.0**power for power in range(-2, 6))
#: Rows at a time.
AT_ONCE = 4096


class LastLayer(ABC):
    """Logits and their variances, at a prior precision δ that `choose` has set."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        columns = [weight] if bias is None else [weight, bias[:, None]]
        self.weight = torch.cat(columns, 1).detach().double()
        self.has_bias = bias is not None
        self.precision = 1.0

    @abstractmethod
    def learn(self, features: Tensor) -> Self:
        """Take in the features (n, d) of all training rows."""

    @abstractmethod
    def variances(self, features: Tensor) -> Tensor:
        """var f (T, C) of features (T, d)."""

    def with_bias(self, features: Tensor) -> Tensor:
        features = features.double()
        return torch.cat([features, torch.ones_like(features[:, :1])], 1) if self.has_bias else features

    def mean(self, features: Tensor) -> Tensor:
        """E f (T, C)."""
        return self.with_bias(features) @ self.weight.mT

    def damped(self, features: Tensor) -> Tensor:
        """Logits (T, C) that the variances have made smaller."""
        return self.mean(features) / (1 + math.pi / 8 * self.variances(features)).sqrt()

    def choose(self, features: Tensor, y: Tensor) -> Self:
        """Set the prior precision that is best on held-out rows."""
        losses = {}
        for self.precision in PRIOR_PRECISIONS:
            losses[self.precision] = float(nll_loss(self.damped(features).log_softmax(-1), y))
        self.precision = min(losses, key=losses.__getitem__)
        return self


class Kronecker(LastLayer):
    """H ≈ n E[φ φᵀ] ⊗ E[diag p − p pᵀ] + δ I, by the eigenvectors of both."""

    def learn(self, features: Tensor) -> Kronecker:
        inputs = outputs = 0.0
        for part in features.split(AT_ONCE):
            phi, p = self.with_bias(part), self.mean(part).softmax(-1)
            inputs = inputs + phi.mT @ phi
            outputs = outputs + p.sum(0).diag() - p.mT @ p
        assert isinstance(inputs, Tensor)
        assert isinstance(outputs, Tensor)
        (self._a, self._U), (self._b, self._V) = torch.linalg.eigh(inputs), torch.linalg.eigh(outputs / len(features))
        return self

    def variances(self, features: Tensor) -> Tensor:
        # Σ_i (Uᵀφ)_i² / (a_i b_k + δ) in the directions V, and from there to the classes
        spectrum = 1 / (self._a[:, None] * self._b.clamp_min(0) + self.precision)
        along = (self.with_bias(features) @ self._U).square() @ spectrum
        return along @ self._V.square().mT


class ByClass(LastLayer):
    """One precision matrix a class."""

    def learn(self, features: Tensor) -> ByClass:
        classes, width = self.weight.shape
        self._H = self.weight.new_zeros(classes, width, width)
        for part in features.split(AT_ONCE):
            phi, p = self.with_bias(part), self.mean(part).softmax(-1)
            for H, variance in zip(self._H, (p * (1 - p)).mT, strict=True):
                H.addmm_(phi.mT * variance, phi)
        self._factored: tuple[float, Tensor] | None = None
        return self

    def variances(self, features: Tensor) -> Tensor:
        phi = self.with_bias(features)
        return torch.stack(
            [torch.linalg.solve_triangular(L, phi.mT, upper=False).square().sum(0) for L in self._roots], 1
        )

    @property
    def _roots(self) -> Tensor:
        """Cholesky factors (C, d, d) at the present prior precision."""
        if self._factored is None or self._factored[0] != self.precision:
            identity = torch.eye(self._H.shape[-1]).to(self._H)
            self._factored = self.precision, torch.linalg.cholesky(self._H + self.precision * identity)
        return self._factored[1]
