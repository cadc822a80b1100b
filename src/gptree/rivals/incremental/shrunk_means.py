"""Linear discriminant analysis whose novel means are shrunk towards similar base means."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import softmax
from sklearn.metrics.pairwise import cosine_similarity

from gptree.maths.sphere import unit_length
from gptree.rivals.frozen.lda import within_covariance
from gptree.rivals.frozen.ranpac import random_projection, relu_features
from gptree.rivals.incremental.lda import SHRINKAGES, Gaussians, SessionLDA
from gptree.rivals.left_out import class_means
from gptree.settings import require


@dataclass(kw_only=True, eq=False, repr=False)
class ShrunkMeanLDA(SessionLDA):
    """LDA with the covariance of the base, the means of novel classes shrunk towards similar base means.

    μ̂ = α μ + (1 − α) Σ_b w_b μ_b, w the softmax over base classes of `sharpness` · cos(μ, μ_b), and μ the mean of the
    shots. The weights w are those of TEEN, which is another method: `Teen` has prototypes and cosines instead of
    Gaussians.

    Parameters
    ----------
    alpha : float
        Weight of the mean of the shots, in 0 … 1.
    sharpness : float
    random_features : int or None
        If given, all of it happens on that many features relu(Wᵀx), W ~ N(0, 1), scaled to unit length.
    shrinkages : tuple of float
        The λ to choose from.
    shots : int
        Examples that novel classes have where λ is chosen.
    random_state : int
        Seed of the random features and of the rehearsals.

    Examples
    --------
    >>> from gptree.rivals import ShrunkMeanLDA
    >>> rival = ShrunkMeanLDA(alpha=0.7).fit([[1.0, 0.0], [0.0, 1.0]], [0, 1]).add_classes([[-1.0, 0.1]], [2])
    """

    name = "lda-shrunk-means"
    variants: ClassVar = {"rf-lda-shrunk-means": {"random_features": 1_000}}
    alpha: float = 0.5
    sharpness: float = 16.0
    random_features: int | None = None
    shrinkages: tuple[float, ...] = SHRINKAGES
    shots: int = 5
    random_state: int = 0

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        require(0 <= self.alpha <= 1, f"alpha must lie in 0 … 1, got {self.alpha}.")
        if self.random_features is not None:
            self.projection_ = random_projection(x, self.random_features, self.random_state)
        super()._fit(x, y)

    def _map(self, x: np.ndarray) -> np.ndarray:
        if self.random_features is not None:
            x = unit_length(relu_features(x, self.projection_))
        return super()._map(x)

    def _begin(self, h: np.ndarray, y: np.ndarray) -> ShrunkGaussians:
        means = class_means(h, y)
        return ShrunkGaussians(means, within_covariance(h, y), len(means), self.alpha, self.sharpness)


@dataclass(frozen=True, eq=False)
class ShrunkGaussians(Gaussians):
    """S is the base's, and novel means are shrunk."""

    n_base: int
    alpha: float
    sharpness: float

    def add(self, h: np.ndarray, y: np.ndarray) -> ShrunkGaussians:
        means, base = class_means(h, y), self.means[: self.n_base]
        similar = softmax(self.sharpness * cosine_similarity(means, base), axis=1)
        shrunk = self.alpha * means + (1 - self.alpha) * similar @ base
        return replace(self, means=np.concatenate([self.means, shrunk]))
