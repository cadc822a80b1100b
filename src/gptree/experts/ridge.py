"""Linear ridge regression on one-hot targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from torch import Tensor

from gptree.experts.base import Fit, FittedExpert, LeftOutAt, ScoreCache
from gptree.experts.calibration import fill_own, fit_tempered, tempered_at, tempering_bytes
from gptree.experts.examples import Examples, check_features
from gptree.experts.one_hot import ExemplarRidge, RidgeExpert, RidgeScorer, Solution, Targets
from gptree.experts.scorers import LinearScores
from gptree.maths.frozen import Parts
from gptree.storage import Array, Number


@dataclass(frozen=True)
class Ridge(RidgeExpert):
    """Linear ridge regression without intercept on one-hot targets; meant for random features.

        B = (ΦᵀWΦ + αI)⁻¹ ΦᵀWY,    score_c(x) = φ(x)ᵀ B_c

    W gives every class the same total weight, so that a rare class is not scored down for being rare.
    Cost: one eigendecomposition of size min(n, d), and n·d·(C + size of a fold) for each penalty.

    Parameters
    ----------
    penalties : tuple of float
        α is chosen among these by left-out NLL, together with the temperature.
    most_classes : int
        A pool does without it where there are more classes.

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> from gptree.experts import RandomFeatures, Ridge
    >>> model = GPTreeClassifier(prior_mean=RandomFeatures(Ridge(), 500, unit_length=False))
    """

    penalties: tuple[float, ...] = (10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4)
    most_classes: int = 500

    name = "ridge"

    def settled(self, fitted: FittedExpert) -> Ridge:
        assert isinstance(fitted, FittedRidge)
        return replace(self, penalties=(fitted.penalty,))

    def fit_keeping(self, examples: Examples, exemplars: Tensor | None = None) -> Fit:
        return fit_tempered(_LinearScorer(self.penalties, examples, exemplars), examples)

    def on_exemplars(self, rows: Tensor, weights: Tensor) -> ExemplarRidge:
        return ExemplarRidge(rows, self)

    def fit_bytes(self, rows: int, columns: int, classes: int, itemsize: int) -> int:
        arrays = 4 * rows * columns + 3 * min(rows, columns) ** 2
        return itemsize * arrays + tempering_bytes(len(self.penalties), rows, classes, itemsize)


@dataclass(frozen=True, eq=False)
class FittedRidge(FittedExpert):
    """A fitted `Ridge`.

    Attributes
    ----------
    weights : tensor (d, C)
    penalty : float
        α.
    temperature : float
        τ.
    residuals : tensor (m,) or None
        1 − h at the exemplars of a base session, h the leverage: without it the residual of an example is the one with
        it, divided by that. None elsewhere.
    """

    weights: Annotated[Tensor, Array("d C")]
    penalty: Annotated[float, Number(least=0)]
    temperature: Annotated[float, Number(above=0)]
    residuals: Annotated[Tensor | None, Array("m", above=0, most=1.001)] = None

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        check_features(X, len(self.weights))
        return (self.temperature * (X.to(self.weights.dtype) @ self.weights)).log_softmax(1).to(X.dtype)

    def frozen(self, parts: Parts) -> LinearScores:
        return LinearScores(self.temperature * self.weights)

    def knows_left_out(self, X: Tensor, y: Tensor) -> bool:
        return X.dtype == self.weights.dtype

    def at_exemplars(self, exemplars: Examples) -> LeftOutAt | None:
        residuals = self.residuals
        if residuals is None or len(residuals) != len(exemplars):
            return None

        def at(rows: Tensor) -> Tensor:
            scores, targets = exemplars.X[rows].to(self.weights) @ self.weights, exemplars.y[rows, None]
            one = scores.new_ones(len(rows), 1)
            scores = scores.scatter_add_(1, targets, -one).div_(residuals[rows, None]).scatter_add_(1, targets, one)
            return fill_own(scores, exemplars, rows).mul_(self.temperature)

        return at

    def left_out_at(self, examples: Examples) -> LeftOutAt:
        scorer = _LinearScorer((self.penalty,), examples)
        return tempered_at(scorer, self.penalty, self.temperature, examples)


class _LinearScorer(RidgeScorer):
    """In the eigenvectors of ΦᵀWΦ: B = W^½ΦV has BᵀB = diag(s), and H = B (s + α)⁻¹ Bᵀ."""

    def __init__(self, penalties: tuple[float, ...], examples: Examples, exemplars: Tensor | None = None) -> None:
        super().__init__(penalties, examples)
        self.exemplars = exemplars
        self.targets = Targets.balanced(examples.y, examples.folds, examples.weights)
        features = examples.X * self.targets.root[:, None]
        if len(features) < features.shape[1]:  # the eigenvectors within the span of the examples, from the smaller side
            spectrum, left = torch.linalg.eigh(features @ features.T)
            inside = spectrum > torch.finfo(spectrum.dtype).eps * spectrum[-1]
            self.spectrum, left = spectrum[inside], left[:, inside]
            self.B = left * self.spectrum.sqrt()
            self.rotated = lambda values: features.T @ (left @ (values / self.spectrum.sqrt()[:, None]))
        else:
            spectrum, rotation = torch.linalg.eigh(features.T @ features)
            self.spectrum, self.B = spectrum.clamp(min=0), features @ rotation
            self.rotated = lambda values: rotation @ values
        self.moments = examples.class_sums(self.B * self.targets.root[:, None]).T  # BᵀW^½Y

    def _solve(self, penalty: float) -> Solution:
        B, shrink = self.B, 1 / (self.spectrum + penalty)
        coefficients = self.moments * shrink[:, None]

        def block(members: Tensor) -> Tensor:
            H = (B[members] * shrink) @ B[members].T
            return torch.eye(len(H), dtype=H.dtype, device=H.device) - H

        residuals = self.targets.added_to(-B @ coefficients)
        z = self.targets.left_out(residuals, block, self._residual_shares(penalty))
        return Solution(z, coefficients)

    def _residual_shares(self, penalty: float) -> Tensor:
        """1 − h (n,)."""
        return 1 - self.B.square() @ (1 / (self.spectrum + penalty))

    def scores(self, grid: tuple[float, ...], rows: Tensor) -> Tensor:
        return torch.stack([self.solution(penalty).left_out[rows] for penalty in grid])

    def fitted(self, value: float, temperature: float) -> FittedRidge:
        residuals = None if self.exemplars is None else self._residual_shares(value)[self.exemplars]
        return FittedRidge(self.rotated(self.solution(value).weights), value, temperature, residuals)
