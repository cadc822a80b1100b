"""Linear discriminant analysis for classes that arrive later: SLDA (Hayes and Kanan 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gptree.rivals.frozen.lda import discriminant, left_out_temperature, within_covariance
from gptree.rivals.incremental.rehearsal import RehearsedRival
from gptree.rivals.left_out import class_means

SHRINKAGES = (1e-4, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)


class SessionLDA(RehearsedRival):
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


@dataclass(kw_only=True, eq=False, repr=False)
class StreamingLDA(SessionLDA):
    """SLDA: every example of every session counts in the class means and in S.

    Parameters
    ----------
    shrinkages : tuple of float
        The λ to choose from; the paper has 1e-4 alone, for features of unit variance.
    shots : int
        Examples that novel classes have where λ is chosen.
    random_state : int
        Seed of the rehearsals on which λ is chosen.

    Examples
    --------
    >>> from gptree.rivals import StreamingLDA
    >>> rival = StreamingLDA().fit([[1.0, 0.0], [0.0, 1.0]], [0, 1]).add_classes([[-1.0, 0.0]], [2])
    """

    name = "slda"
    shrinkages: tuple[float, ...] = SHRINKAGES
    shots: int = 5
    random_state: int = 0

    def _begin(self, h: np.ndarray, y: np.ndarray) -> RunningGaussians:
        return RunningGaussians(class_means(h, y), within_covariance(h, y), len(h))


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Class means and the covariance that the classes share."""

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
