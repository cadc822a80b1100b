"""Ridge regression on one-hot targets with the kernel exp(g − 1), g the inner product of features of unit length."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from torch import Tensor

from gptree.experts.base import Fit, FittedExpert, LeftOutAt, ScoreCache
from gptree.experts.calibration import CalibrationRows, choose, fit_tempered, tempered_at, tempering_bytes
from gptree.experts.examples import ALONE, Examples, check_features, shot_folds, stable_order
from gptree.experts.one_hot import ExemplarRidge, RidgeExpert, RidgeScorer, Solution, Targets
from gptree.experts.products import DOUBLE_UP_TO, check_unit_length, chunks, shared_products
from gptree.experts.scorers import KernelScores
from gptree.maths.frozen import Parts
from gptree.settings import require_whole
from gptree.storage import Array, Number


@dataclass(frozen=True)
class KernelRidge(RidgeExpert):
    """Ridge regression on one-hot targets with the kernel exp(g − 1), g the inner product of features of unit length.

        A = W^½ (W^½ K W^½ + αI)⁻¹ W^½ Y,    score_c(x) = Σ_i k(x, x_i) A_ic

    Every class has the same total weight, as in `Ridge`. By the number n of examples:

    - up to `choose_on`, every penalty is tried on all of them, with one Cholesky factor each;
    - beyond, the penalty (a noise variance: it does not depend on n) is chosen on a balanced part of `choose_on`
      examples, and one Cholesky factor of all examples, in single precision, does the rest;
    - beyond `at_most`, the regression is fitted to a balanced part of `at_most` examples, and the other examples are
      new points to it. (A Nyström approximation from all examples costs more and predicts worse.) If there
      are more classes than that, those without an example in the part get the score 0.

    Cost: n³ for the Cholesky factor and the inverse, n ≤ `at_most`; n² memory.

    Parameters
    ----------
    penalties : tuple of float
        α is chosen among these by left-out NLL, together with the temperature.
    choose_on, at_most : int
        Numbers of examples, as above.
    most_classes : int
        A pool does without it where there are more classes: with 1,623 characters of Omniglot it was 55 % of the time
        of a fit for 0.006 of NLL, with 300 to 1,000 made-up ones half of it for nothing. With many more, most classes
        have none of the `at_most` examples.

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> model = GPTreeClassifier(prior_mean="kernel-ridge")
    """

    penalties: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    choose_on: int = 1_500
    at_most: int = 8_000
    most_classes: int = 500

    name = "kernel-ridge"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("choose_on", self.choose_on, 10)
        require_whole("at_most", self.at_most, 10)

    def settled(self, fitted: FittedExpert) -> KernelRidge:
        assert isinstance(fitted, FittedKernelRidge)
        return replace(self, penalties=(fitted.penalty,))

    def fit_bytes(self, rows: int, columns: int, classes: int, itemsize: int) -> int:
        points = min(rows, self.at_most)
        number = itemsize if points <= DOUBLE_UP_TO else 4
        all_penalties = points <= self.choose_on
        matrices = 3 if all_penalties else 2  # two of kernel, factor and inverse, and a kernel to keep
        tempering = tempering_bytes(len(self.penalties) if all_penalties else 1, rows, classes, itemsize)
        return number * (matrices * points**2 + points * (columns + 3 * classes)) + tempering

    def on_exemplars(self, rows: Tensor, weights: Tensor) -> ExemplarRidge:
        return ExemplarRidge(rows, self)

    def fit_keeping(self, examples: Examples, exemplars: Tensor | None = None) -> Fit:
        """Fit to the exemplars alone, balanced; the other examples are new points to it."""
        check_unit_length(examples.X)
        penalties = self.penalties
        if len(examples if exemplars is None else exemplars) > self.choose_on and len(penalties) > 1:
            part = _few_classes(examples, self.choose_on)
            penalties = (choose(_KernelScorer(penalties, part, len(part)), part, CalibrationRows.of(part)).value,)
        return fit_tempered(_KernelScorer(penalties, examples, self.at_most, exemplars), examples)

    def scores_at(self, X: Tensor, examples: Examples) -> list[Tensor]:
        """Untempered scores (T, C) at new points with each penalty, nothing left out."""
        scorer = _KernelScorer(self.penalties, examples, self.at_most)
        cross = _kernel(X.to(scorer.points.dtype), scorer.points)
        return [(cross @ scorer.weights(penalty)).to(X.dtype) for penalty in self.penalties]

    def fit_at(self, examples: Examples, penalty: float, temperature: float = 1.0) -> Fit:
        """Fit with a penalty and a temperature that were chosen elsewhere."""
        scorer = _KernelScorer((penalty,), examples, self.at_most)
        at = tempered_at(scorer, penalty, temperature, examples)
        return Fit(scorer.fitted(penalty, temperature), at, examples.usable)


def _few_classes(examples: Examples, size: int) -> Examples:
    """At most `size` examples to choose on, balanced, of no more classes than can have five each; renumbered."""
    step = math.ceil(examples.n_classes / max(size // 5, 2))
    order = examples.in_shot_order(examples.calibration)
    rows = order[examples.y[order] % step == 0][:size]
    numbers = examples.y[rows].unique(return_inverse=True)[1]
    return Examples.of(examples.X[rows], numbers, weights=examples.weights[rows])


@dataclass(frozen=True, eq=False)
class FittedKernelRidge(FittedExpert):
    """A fitted `KernelRidge`; in a base session its points are exemplars.

    Attributes
    ----------
    points : tensor (m, d)
        The examples it was fitted to.
    weights : tensor (m, C)
    penalty : float
        α.
    temperature : float
        τ.
    """

    points: Annotated[Tensor, Array("m d", least=-1.01, most=1.01)]
    weights: Annotated[Tensor, Array("m C")]
    penalty: Annotated[float, Number(least=0)]
    temperature: Annotated[float, Number(above=0)]

    def scores(self, X: Tensor) -> Tensor:
        check_features(X, self.points.shape[1])
        return _predict(X, self.points, self.weights)

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        products = shared_products(cache, X, self.points)
        scores = self.scores(X) if products is None else (products.T - 1).exp() @ self.weights
        return (self.temperature * scores).log_softmax(1)

    def frozen(self, parts: Parts) -> KernelScores:
        return KernelScores(parts.products(self.points), self.temperature * self.weights)

    def knows_left_out(self, X: Tensor, y: Tensor) -> bool:
        order = stable_order(shot_folds(y, max_folds=sys.maxsize))  # as `Examples.in_shot_order`
        rows = order[: len(self.points)].sort().values
        return torch.equal(X[rows].to(self.points.dtype), self.points)

    def left_out_at(self, examples: Examples) -> LeftOutAt:
        scorer = _KernelScorer((self.penalty,), examples, len(self.points))
        return tempered_at(scorer, self.penalty, self.temperature, examples)


def _predict(X: Tensor, points: Tensor, weights: Tensor) -> Tensor:
    scores = X.new_empty(len(X), weights.shape[1])
    for part in chunks(len(X), len(points), X.device):
        scores[part] = (_kernel(X[part].to(points.dtype), points) @ weights).to(X.dtype)
    return scores


def _kernel(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b.T).sub_(1).exp_()


class _KernelScorer(RidgeScorer):
    """With P = (W^½KW^½ + αI)⁻¹ and its product with the targets, over at most `at_most` exemplars or examples."""

    def __init__(
        self, penalties: tuple[float, ...], examples: Examples, at_most: int, exemplars: Tensor | None = None
    ) -> None:
        super().__init__(penalties, examples)
        some = None if exemplars is None else torch.zeros_like(examples.usable).index_fill_(0, exemplars, True)
        self.inside = examples.in_shot_order(some)[:at_most].sort().values
        m, y = len(self.inside), examples.y[self.inside]
        # The largest eigenvalue of K is at most m; single precision must resolve the penalty beside it.
        single = (m > DOUBLE_UP_TO or examples.X.dtype == torch.float32) and min(penalties) >= 1e-6 * m
        dtype = torch.float32 if single else torch.float64
        folds = torch.where(torch.bincount(y)[y] == 1, ALONE, examples.folds[self.inside])
        self.targets = Targets.balanced(y, folds, examples.weights[self.inside].to(dtype))
        self.points = examples.X[self.inside].to(dtype)
        self.K = self._weighted_kernel() if len(penalties) > 1 else None

    def _weighted_kernel(self) -> Tensor:
        """W^½KW^½."""
        return _kernel(self.points, self.points).mul_(self.targets.root).mul_(self.targets.root[:, None])

    def _factor(self, penalty: float) -> Tensor:
        K = self._weighted_kernel() if self.K is None else self.K.clone()
        K.diagonal().add_(penalty)
        # paper (1)
        return torch.linalg.cholesky(K)

    def weights(self, penalty: float) -> Tensor:
        """Those of the regression (m, C), without left-out predictions."""
        factor = self._factor(penalty)
        targets = self.targets.added_to(factor.new_zeros(len(factor), self.examples.n_classes))
        return torch.cholesky_solve(targets, factor).mul_(self.targets.root[:, None])

    def _solve(self, penalty: float) -> Solution:
        factor = self._factor(penalty)  # with many points such a matrix is the largest thing in memory
        P = torch.cholesky_inverse(factor)
        del factor
        root = self.targets.root[:, None]
        # P W^½Y: a column for each class is the sum of those of its examples
        PY = P.new_zeros(len(P), self.examples.n_classes).index_add_(1, self.targets.y, P * self.targets.root)
        z = self.targets.left_out(PY, lambda members: P[members[:, None], members], P.diagonal())
        return Solution(z, PY * root)

    def scores(self, grid: tuple[float, ...], rows: Tensor) -> Tensor:
        examples = self.examples
        scores = examples.X.new_empty(len(grid), len(rows), examples.n_classes)
        inside = torch.isin(rows, self.inside)
        places = torch.searchsorted(self.inside, rows[inside])
        for k, penalty in enumerate(grid):
            solution = self.solution(penalty)
            scores[k, inside] = solution.left_out[places].to(scores.dtype)
            scores[k, ~inside] = _predict(examples.X[rows[~inside]], self.points, solution.weights)
        return scores

    def fitted(self, value: float, temperature: float) -> FittedKernelRidge:
        return FittedKernelRidge(self.points, self.solution(value).weights, value, temperature)
