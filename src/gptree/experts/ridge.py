"""Ridge regression on one-hot targets: on the features as they are, or with the kernel exp(g − 1)."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from gptree.experts.base import Expert, Fit, FittedExpert, LeftOutAt, ScoreCache, positive_grid
from gptree.experts.calibration import CalibrationRows, choose, fill_own, fit_tempered, tempered_at, tempering_bytes
from gptree.experts.examples import ALONE, Examples, check_features, shot_folds, stable_order
from gptree.experts.products import DOUBLE_UP_TO, check_unit_length, chunks, shared_products
from gptree.experts.scorers import KernelScores, LinearScores
from gptree.maths.frozen import Parts
from gptree.settings import require_whole
from gptree.storage import Array, Number


@dataclass(frozen=True)
class Ridge(Expert):
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

    def __post_init__(self) -> None:
        positive_grid(self, "penalties")
        require_whole("most_classes", self.most_classes, 1)

    def pays(self, n_classes: int) -> bool:
        return n_classes <= self.most_classes

    def settled(self, fitted: FittedExpert) -> Ridge:
        assert isinstance(fitted, FittedRidge)
        return replace(self, penalties=(fitted.penalty,))

    def fit(self, examples: Examples) -> Fit:
        return fit_tempered(_LinearScorer(self.penalties, examples), examples)

    def on_exemplars(self, rows: Tensor, weights: Tensor) -> KeptRidge:
        return KeptRidge(rows, self)

    def fit_bytes(self, rows: int, columns: int, classes: int, itemsize: int) -> int:
        arrays = 4 * rows * columns + 3 * min(rows, columns) ** 2
        return itemsize * arrays + tempering_bytes(len(self.penalties), rows, classes, itemsize)


@dataclass(frozen=True)
class KernelRidge(Expert):
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
        positive_grid(self, "penalties")
        require_whole("choose_on", self.choose_on, 10)
        require_whole("at_most", self.at_most, 10)
        require_whole("most_classes", self.most_classes, 1)

    def pays(self, n_classes: int) -> bool:
        return n_classes <= self.most_classes

    def settled(self, fitted: FittedExpert) -> KernelRidge:
        assert isinstance(fitted, FittedKernelRidge)
        return replace(self, penalties=(fitted.penalty,))

    def fit(self, examples: Examples) -> Fit:
        return self.fit_on(examples, torch.ones_like(examples.usable))

    def fit_bytes(self, rows: int, columns: int, classes: int, itemsize: int) -> int:
        points = min(rows, self.at_most)
        number = itemsize if points <= DOUBLE_UP_TO else 4
        all_penalties = points <= self.choose_on
        matrices = 3 if all_penalties else 2  # two of kernel, factor and inverse, and a kernel to keep
        tempering = tempering_bytes(len(self.penalties) if all_penalties else 1, rows, classes, itemsize)
        return number * (matrices * points**2 + points * (columns + 3 * classes)) + tempering

    def on_exemplars(self, rows: Tensor, weights: Tensor) -> ExemplarRidge:
        return ExemplarRidge(rows, self)

    def fit_on(self, examples: Examples, points: Tensor) -> Fit:
        """Fit to the examples marked in `points` (n,), balanced; the other examples are new points to it."""
        check_unit_length(examples.X)
        penalties = self.penalties
        if int(points.sum()) > self.choose_on and len(penalties) > 1:
            part = _few_classes(examples, self.choose_on)
            penalties = (choose(_KernelScorer(penalties, part, len(part)), part, CalibrationRows.of(part)).value,)
        return fit_tempered(_KernelScorer(penalties, examples, self.at_most, points), examples)

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


@dataclass(frozen=True, eq=False)
class KeptRidge(Expert):
    """What `Ridge` is in a base session: it knows what is left out at the exemplars.

    Parameters
    ----------
    rows : int64 tensor (m,)
        Which examples the exemplars are.
    ridge : Ridge
    """

    rows: Tensor
    ridge: Ridge

    def pays(self, n_classes: int) -> bool:
        return self.ridge.pays(n_classes)

    def fit(self, examples: Examples) -> Fit:
        scorer = _LinearScorer(self.ridge.penalties, examples)
        fit = fit_tempered(scorer, examples)
        assert isinstance(fit.expert, FittedRidge)
        residuals = scorer.residual_shares(fit.expert.penalty)[self.rows]
        return replace(fit, expert=replace(fit.expert, residuals=residuals))


@dataclass(frozen=True, eq=False)
class ExemplarRidge(Expert):
    """Kernel ridge regression fitted to exemplars alone: what `KernelRidge` is in a base session.

    Parameters
    ----------
    rows : int64 tensor (m,)
        Which examples the exemplars are.
    ridge : KernelRidge
    """

    rows: Tensor
    ridge: KernelRidge

    def fit(self, examples: Examples) -> Fit:
        points = torch.zeros_like(examples.usable).index_fill_(0, self.rows, True)
        return self.ridge.fit_on(examples, points)


def _few_classes(examples: Examples, size: int) -> Examples:
    """At most `size` examples to choose on, balanced, of no more classes than can have five each; renumbered."""
    step = math.ceil(examples.n_classes / max(size // 5, 2))
    order = examples.in_shot_order(examples.calibration)
    rows = order[examples.y[order] % step == 0][:size]
    numbers = examples.y[rows].unique(return_inverse=True)[1]
    return Examples.of(examples.X[rows], numbers, weights=examples.weights[rows])


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


@dataclass(frozen=True, eq=False)
class FittedKernelRidge(FittedExpert):
    """A fitted `KernelRidge` or `ExemplarRidge`.

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


class _Solution(NamedTuple):
    left_out: Tensor  # (m, C) left-out predictions of the points that were fitted
    weights: Tensor  # of the fitted expert; of `_LinearScorer`, in its eigenvectors


@dataclass(frozen=True, eq=False)
class _Targets:
    """Weighted one-hot targets W^½Y, and their left-out predictions.

    With weights W the regression is the ordinary one of W^½Y on W^½Φ. If Q = I − H takes targets to residuals
    R = QW^½Y, then the predictions for fold F without F are W_F^½Y_F − Q_FF⁻¹R_F, exactly. A multiple
    of Q serves as well; for a kernel it is P = (K + αI)⁻¹.
    """

    y: Tensor  # (m,)
    folds: Tensor  # (m,)
    root: Tensor  # (m,) W^½

    @classmethod
    def balanced(cls, y: Tensor, folds: Tensor, counted: Tensor) -> _Targets:
        """Weights w_i/n_c for examples that count w_i times, n_c of their class; of mean one over all n."""
        classes = counted.new_zeros(int(y.max()) + 1).index_add_(0, y, counted)
        weights = counted / classes[y]
        return cls(y, folds, (weights / (weights.sum() / counted.sum())).sqrt())

    def added_to(self, values: Tensor) -> Tensor:
        """W^½Y added to `values` (m, C), in place."""
        values[torch.arange(len(values), device=values.device), self.y] += self.root
        return values

    def left_out(self, residuals: Tensor, block: Callable[[Tensor], Tensor], diagonal: Tensor) -> Tensor:
        """Predictions (m, C) from R (m, C), the blocks Q_FF and the diagonal of Q."""
        z = torch.empty_like(residuals)
        for fold in self.folds[self.folds != ALONE].unique():
            members = (self.folds == fold).nonzero()[:, 0]
            z[members] = -torch.cholesky_solve(residuals[members], torch.linalg.cholesky(block(members)))
        alone = self.folds == ALONE
        z[alone] = -residuals[alone] / diagonal[alone, None]
        return self.added_to(z).div_(self.root[:, None])


class _Scorer(ABC):
    """Left-out scores from the solution at one penalty after the other; the last is kept."""

    spread = 1.3

    def __init__(self, penalties: tuple[float, ...], examples: Examples) -> None:
        self.grid, self.fallback, self.examples = penalties, max(penalties), examples
        self._last: tuple[float, _Solution] | None = None

    @abstractmethod
    def _solve(self, penalty: float) -> _Solution: ...

    def solution(self, penalty: float) -> _Solution:
        if self._last is None or self._last[0] != penalty:
            self._last = (penalty, self._solve(penalty))
        return self._last[1]


class _LinearScorer(_Scorer):
    """In the eigenvectors of ΦᵀWΦ: B = W^½ΦV has BᵀB = diag(s), and H = B (s + α)⁻¹ Bᵀ."""

    def __init__(self, penalties: tuple[float, ...], examples: Examples) -> None:
        super().__init__(penalties, examples)
        self.targets = _Targets.balanced(examples.y, examples.folds, examples.weights)
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

    def _solve(self, penalty: float) -> _Solution:
        B, shrink = self.B, 1 / (self.spectrum + penalty)
        coefficients = self.moments * shrink[:, None]

        def block(members: Tensor) -> Tensor:
            H = (B[members] * shrink) @ B[members].T
            return torch.eye(len(H), dtype=H.dtype, device=H.device) - H

        residuals = self.targets.added_to(-B @ coefficients)
        z = self.targets.left_out(residuals, block, self.residual_shares(penalty))
        return _Solution(z, coefficients)

    def residual_shares(self, penalty: float) -> Tensor:
        """1 − h (n,)."""
        return 1 - self.B.square() @ (1 / (self.spectrum + penalty))

    def scores(self, grid: tuple[float, ...], rows: Tensor) -> Tensor:
        return torch.stack([self.solution(penalty).left_out[rows] for penalty in grid])

    def fitted(self, value: float, temperature: float) -> FittedRidge:
        return FittedRidge(self.rotated(self.solution(value).weights), value, temperature)


class _KernelScorer(_Scorer):
    """With P = (W^½KW^½ + αI)⁻¹ and its product with the targets, over at most `at_most` of the marked examples."""

    def __init__(
        self, penalties: tuple[float, ...], examples: Examples, at_most: int, points: Tensor | None = None
    ) -> None:
        super().__init__(penalties, examples)
        self.inside = examples.in_shot_order(points)[:at_most].sort().values
        m, y = len(self.inside), examples.y[self.inside]
        # The largest eigenvalue of K is at most m; single precision must resolve the penalty beside it.
        single = (m > DOUBLE_UP_TO or examples.X.dtype == torch.float32) and min(penalties) >= 1e-6 * m
        dtype = torch.float32 if single else torch.float64
        folds = torch.where(torch.bincount(y)[y] == 1, ALONE, examples.folds[self.inside])
        self.targets = _Targets.balanced(y, folds, examples.weights[self.inside].to(dtype))
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

    def _solve(self, penalty: float) -> _Solution:
        factor = self._factor(penalty)  # with many points such a matrix is the largest thing in memory
        P = torch.cholesky_inverse(factor)
        del factor
        root = self.targets.root[:, None]
        # P W^½Y: a column for each class is the sum of those of its examples
        PY = P.new_zeros(len(P), self.examples.n_classes).index_add_(1, self.targets.y, P * self.targets.root)
        z = self.targets.left_out(PY, lambda members: P[members[:, None], members], P.diagonal())
        return _Solution(z, PY * root)

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
