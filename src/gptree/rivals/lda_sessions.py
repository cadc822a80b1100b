"""Linear discriminant analysis for classes that arrive later: SLDA, and base covariance with TEEN's means."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax
from sklearn.metrics.pairwise import cosine_similarity

from gptree.maths.sphere import unit_length
from gptree.rivals.lda import discriminant, left_out_temperature, within_covariance
from gptree.rivals.left_out import class_means
from gptree.rivals.random_features import random_projection, relu_features
from gptree.rivals.rehearsal import RehearsedHead
from gptree.settings import require

SHRINKAGES = (1e-4, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)


class SessionLDA(RehearsedHead):
    """Gaussian classes of equal weight, covariance Σ_λ = (1 − λ) S + λ tr(S)/d I, at a temperature.

    The setting is λ. Where every base class has one example, λ = 1 and the temperature is 1, and S is as in
    `ShrinkageLDA`.
    """

    shrinkages: tuple[float, ...]

    def _settings(self) -> tuple[float, ...]:
        return self.shrinkages

    def _temperature(self, h: np.ndarray, y: np.ndarray) -> float:
        return left_out_temperature(h, y, within_covariance(h, y), self.setting_)

    def _one_shot(self, h: np.ndarray) -> tuple[float, float]:
        return 1.0, 1.0

    def _map(self, x: np.ndarray) -> np.ndarray:
        return x.astype(np.float64)  # a covariance shrunk by little is near singular


class StreamingLDA(SessionLDA):
    """SLDA (Hayes and Kanan 2020): every example of every session counts in the class means and in S.

    shrinkages: the λ to choose from; the paper has 1e-4 alone, for features of unit variance. `shots` is the
        number of examples that novel classes have where λ is chosen.
    """

    def __init__(self, shrinkages: tuple[float, ...] = SHRINKAGES, shots: int = 5, random_state: int = 0):
        self.shrinkages = shrinkages
        self.shots = shots
        self.random_state = random_state

    def _begin(self, h: np.ndarray, y: np.ndarray) -> RunningGaussians:
        return RunningGaussians(class_means(h, y), within_covariance(h, y), len(h))


class TeenLDA(SessionLDA):
    """LDA with the covariance of the base, the means of novel classes drawn to similar base means as in TEEN.

    TEEN (Wang et al. 2023): μ̂ = α μ + (1 − α) Σ_b w_b μ_b, w the softmax over base classes of
    `sharpness` · cos(μ, μ_b), and μ the mean of the shots. α = ½ and sharpness 16 are the published values.

    random_features: if given, all of it happens on that many features relu(Wᵀx), W ~ N(0, 1), scaled to unit
        length.
    shrinkages: the λ to choose from; `shots` is the number of examples that novel classes have where λ is
        chosen.
    """

    def __init__(
        self,
        alpha: float = 0.5,
        sharpness: float = 16.0,
        random_features: int | None = None,
        shrinkages: tuple[float, ...] = SHRINKAGES,
        shots: int = 5,
        random_state: int = 0,
    ):
        self.alpha = alpha
        self.sharpness = sharpness
        self.random_features = random_features
        self.shrinkages = shrinkages
        self.shots = shots
        self.random_state = random_state

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        require(0 <= self.alpha <= 1, f"alpha must lie in 0 … 1, got {self.alpha}.")
        if self.random_features is not None:
            self.projection_ = random_projection(x, self.random_features, self.random_state)
        super()._fit(x, y)

    def _map(self, x: np.ndarray) -> np.ndarray:
        if self.random_features is not None:
            x = unit_length(relu_features(x, self.projection_))
        return super()._map(x)

    def _begin(self, h: np.ndarray, y: np.ndarray) -> TeenGaussians:
        means = class_means(h, y)
        return TeenGaussians(means, within_covariance(h, y), len(means), self.alpha, self.sharpness)


@dataclass(frozen=True, eq=False)
class Gaussians:
    means: np.ndarray  # (C, d)
    covariance: np.ndarray  # S (d, d)

    def weights(self, setting: float) -> tuple[np.ndarray, np.ndarray]:
        return discriminant(self.means, self.covariance, setting)


@dataclass(frozen=True, eq=False)
class RunningGaussians(Gaussians):
    """S is the covariance about the class means of all examples seen.

    One at a time, example z of a class with n examples of mean μ adds n/(n+1) (z − μ)(z − μ)ᵀ to the scatter.
    The paper writes t/(t+1) instead, t the number of all examples, which is almost the same but for the first
    ones of a class: their distance from a mean that is not yet known would count.
    """

    count: int

    def add(self, h: np.ndarray, y: np.ndarray) -> RunningGaussians:
        means = class_means(h, y)
        residuals = h - means[y]  # the sum of the updates, since all examples of a class are here
        count = self.count + len(h)
        covariance = (self.count * self.covariance + residuals.T @ residuals) / count
        return RunningGaussians(np.concatenate([self.means, means]), covariance, count)


@dataclass(frozen=True, eq=False)
class TeenGaussians(Gaussians):
    """S is the base's, and novel means lean on base means."""

    n_base: int
    alpha: float
    sharpness: float

    def add(self, h: np.ndarray, y: np.ndarray) -> TeenGaussians:
        means, base = class_means(h, y), self.means[: self.n_base]
        similar = softmax(self.sharpness * cosine_similarity(means, base), axis=1)
        drawn = self.alpha * means + (1 - self.alpha) * similar @ base
        return replace(self, means=np.concatenate([self.means, drawn]))
