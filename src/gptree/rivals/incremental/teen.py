"""TEEN: prototypes of novel classes calibrated by those of the base (Wang et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import softmax

from gptree.maths.sphere import unit_length
from gptree.rivals.frozen.class_mean import NearestClassMean
from gptree.rivals.incremental.base import IncrementalRival
from gptree.rivals.left_out import class_means
from gptree.settings import require


@dataclass(kw_only=True, eq=False, repr=False)
class Teen(IncrementalRival):
    """Cosine with class prototypes, those of novel classes drawn to similar base prototypes; nothing is trained.

    With p̂ a class mean of unit length, a base class has the prototype p̂ and a novel one

        p = (1 − α) p̂ + α p̄ / ‖p̄‖,   p̄ = Σ_b w_b p̂_b,   w = softmax_b(sharpness · cos(p̂, p̂_b)),

    b over the base classes, and p(c | x) ∝ exp(τ cos(x, p_c)). This is the published rule. Its network, which is
    trained with the same cosines, is not: here the features are given.

    Parameters
    ----------
    alpha : float
        In 0 … 1. Published are 0.5 for CUB and mini-ImageNet, and 0.1 for CIFAR-100, which is the variant "teen-0.1".
    sharpness : float
        16 as published.
    temperature : float or None
        τ, published as that of the network's training, 16 or 32. None fits it by the left-out NLL of the base session,
        as in `NearestClassMean`; predicted labels do not depend on it.

    Attributes
    ----------
    prototypes_ : ndarray (C, d)
    n_base_ : int
        How many of them are of the base session, the first ones.
    temperature_ : float

    Examples
    --------
    >>> from gptree.rivals import Teen
    >>> rival = Teen(alpha=0.1).fit([[1.0, 0.0], [0.0, 1.0]], [0, 1]).add_classes([[-1.0, 0.1]], [2])
    """

    name = "teen"
    variants: ClassVar = {"teen-0.1": {"alpha": 0.1}}
    alpha: float = 0.5
    sharpness: float = 16.0
    temperature: float | None = None

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        require(0 <= self.alpha <= 1, f"alpha must lie in 0 … 1, got {self.alpha}.")
        base = NearestClassMean(temperature=self.temperature)
        base._fit(x, y)
        self.temperature_ = base.temperature_
        self.prototypes_ = unit_length(base.means_)
        self.n_base_ = len(base.means_)

    def _add(self, x: np.ndarray, y: np.ndarray) -> None:
        few, base = unit_length(class_means(x, y)), self.prototypes_[: self.n_base_]
        similar = unit_length(softmax(self.sharpness * few @ base.T, axis=1) @ base)
        calibrated = (1 - self.alpha) * few + self.alpha * similar
        self.prototypes_ = np.concatenate([self.prototypes_, calibrated])

    def _logits(self, x: np.ndarray) -> np.ndarray:
        return self.temperature_ * unit_length(x) @ unit_length(self.prototypes_).T
