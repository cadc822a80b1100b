"""Regression on weighted one-hot targets: what `Ridge` and `KernelRidge` share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gptree.experts.base import Expert, Fit, positive_grid
from gptree.experts.examples import ALONE, Examples
from gptree.settings import require_whole


class RidgeExpert(Expert):
    """Ridge regression on one-hot targets, with a grid of penalties."""

    penalties: tuple[float, ...]
    most_classes: int

    def __post_init__(self) -> None:
        positive_grid(self, "penalties")
        require_whole("most_classes", self.most_classes, 1)

    def pays(self, n_classes: int) -> bool:
        return n_classes <= self.most_classes

    def fit(self, examples: Examples) -> Fit:
        return self.fit_keeping(examples)

    @abstractmethod
    def fit_keeping(self, examples: Examples, exemplars: Tensor | None = None) -> Fit:
        """Fit to examples of which only the `exemplars` (m,) will be kept; None is all of them."""


@dataclass(frozen=True, eq=False)
class ExemplarRidge(Expert):
    """Ridge regression in a base session, of which only exemplars are kept.

    Parameters
    ----------
    rows : int64 tensor (m,)
        Which examples the exemplars are.
    ridge : Ridge or KernelRidge
    """

    rows: Tensor
    ridge: RidgeExpert

    def pays(self, n_classes: int) -> bool:
        return self.ridge.pays(n_classes)

    def fit(self, examples: Examples) -> Fit:
        return self.ridge.fit_keeping(examples, self.rows)


class Solution(NamedTuple):
    left_out: Tensor  # (m, C) left-out predictions of the points that were fitted
    weights: Tensor  # of the fitted expert; of `Ridge`, in the eigenvectors


@dataclass(frozen=True, eq=False)
class Targets:
    """Weighted one-hot targets W^½Y, and their left-out predictions.

    With weights W the regression is the ordinary one of W^½Y on W^½Φ. If Q = I − H takes targets to residuals
    R = QW^½Y, then the predictions for fold F without F are W_F^½Y_F − Q_FF⁻¹R_F, exactly. A multiple
    of Q serves as well; for a kernel it is P = (K + αI)⁻¹.
    """

    y: Tensor  # (m,)
    folds: Tensor  # (m,)
    root: Tensor  # (m,) W^½

    @classmethod
    def balanced(cls, y: Tensor, folds: Tensor, counted: Tensor) -> Targets:
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


class RidgeScorer(ABC):
    """Left-out scores from the solution at one penalty after the other; the last is kept."""

    spread = 1.3

    def __init__(self, penalties: tuple[float, ...], examples: Examples) -> None:
        self.grid, self.fallback, self.examples = penalties, max(penalties), examples
        self._last: tuple[float, Solution] | None = None

    @abstractmethod
    def _solve(self, penalty: float) -> Solution: ...

    def solution(self, penalty: float) -> Solution:
        if self._last is None or self._last[0] != penalty:
            self._last = (penalty, self._solve(penalty))
        return self._last[1]
