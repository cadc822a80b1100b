"""A pool for many classes and rows: its first expert scores all classes, kernel densities those that it finds best.

What a density says of the other classes is taken from the first expert: slope · (its score) + a level of the row, where
the worse half of the shortlist says how high it is. So an example costs one product with all class means, and inner
products with the points of some hundred classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import torch
from torch import Tensor

from gptree.experts.base import Expert, Fit, LeftOutAt, ScoreCache
from gptree.experts.calibration import CalibrationRows
from gptree.experts.density import ExemplarDensity, FittedKernelDensity, KernelDensity
from gptree.experts.examples import ALONE, MANY_CLASSES, Examples
from gptree.experts.pool import FittedPool, robust_weights
from gptree.experts.scorers import ClassPoints, ShortlistScores, best_classes, with_tail
from gptree.maths.frozen import Parts
from gptree.storage import Array, Number, Sizes, ensure

#: Up to so many examples one product with them all takes hardly longer than those with the points of a shortlist.
MANY_ROWS = 2**16
#: Classes on the shortlist, and how many of those after them the slope of the tail is fitted to.
SHORTLIST = 300
TAIL = 300


def shortlist_size(experts: Sequence[Expert], examples: Examples, asked: int | None) -> int | None:
    """How many classes the densities of a pool score, `asked` for or by itself; None for all.

    All but the first of its experts must be densities.
    """
    first, *others = experts
    kinds = KernelDensity, ExemplarDensity
    densities = len(others) > 0 and all(type(expert) in kinds for expert in others)
    if not densities or isinstance(first, kinds):
        return None
    many = examples.n_classes > MANY_CLASSES and len(examples) > MANY_ROWS
    return SHORTLIST if asked is None and many else asked


def fit_shortlist(experts: Sequence[Expert], examples: Examples, size: int) -> Fit:
    """Fit a pool whose densities score a shortlist of the first expert.

    Settings and temperatures are chosen as always, on some rows and all classes; the weights as the pool will be used.

    Parameters
    ----------
    experts : sequence of Expert
        The first scores all classes, the others are kernel densities.
    examples : Examples
    size : int
        How many classes are on the shortlist.

    Returns
    -------
    Fit
    """
    first, calibration = experts[0].fit(examples), CalibrationRows.of(examples)
    guide = first.at(calibration.rows)
    fitted, slopes = [first.expert], [0.0]
    for expert in experts[1:]:
        fit = expert.fit(examples)
        fitted.append(fit.expert)
        slopes.append(tail_slope(guide, fit.at(calibration.rows), size))
        del fit  # with its copies of the examples
    pool = FittedShortlist(tuple(fitted), guide.new_ones(len(fitted)), guide.new_tensor(slopes), size)
    itself = next((expert.itself(examples) for expert in experts if isinstance(expert, ExemplarDensity)), None)
    found = pool.densities_at(examples, itself)(calibration.rows, shortlist := best_classes(guide, size))
    one = torch.eye(len(fitted)).tolist()
    logs = guide.new_empty(len(one), len(guide), len(calibration.classes))
    for log, weights in zip(logs, one, strict=True):
        log.copy_(calibration.see(with_tail(guide.clone(), shortlist, found, weights, slopes).log_softmax(1)))
    del guide, found  # of many classes they are large
    about = calibration.labels, calibration.balanced.to(logs), examples.few
    weights = robust_weights(logs, *about, more_to_come=examples.more_to_come)
    pool = FittedShortlist(pool.experts, weights.to(examples.X), pool.slopes.to(examples.X), size)
    return Fit(pool, pool.combined_at(first.at, examples, itself), examples.usable)


def tail_slope(guide: Tensor, other: Tensor, size: int) -> float:
    """How the scores (r, C) of an expert change with those of the first, over the classes after the first `size`."""
    order = guide.topk(min(size + TAIL, guide.shape[1]), dim=1).indices[:, size:]
    if order.numel() == 0:
        return 0.0
    x, y = guide.gather(1, order), other.to(guide).gather(1, order)
    x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    return max(0.0, float((x * y).sum() / x.square().sum().clamp(min=torch.finfo(x.dtype).tiny)))


@dataclass(frozen=True, eq=False)
class FittedShortlist(FittedPool):
    """A fitted `Pool` of an expert that scores all classes, and densities of those that it finds best.

    Attributes
    ----------
    experts : tuple[FittedExpert, ...]
    weights : tensor (K,)
    slopes : tensor (K,)
        Of the scores over those of the first expert, beyond the shortlist; 0 for the first.
    size : int
        How many classes are on the shortlist.
    """

    slopes: Annotated[Tensor, Array("K", least=0)]
    size: Annotated[int, Number(least=1, whole=True)]

    def check(self, name: str, sizes: Sizes) -> None:
        kernel = all(isinstance(expert, FittedKernelDensity) for expert in self.experts[1:])
        ensure(kernel and len(self.experts) > 0, f"{name}.experts are not kernel densities after another expert.")

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        guide = self.experts[0].log_probabilities(X, raw, cache)
        shortlist = best_classes(guide, self.size)
        found = [points.scores(X, shortlist, beta, tau) for points, beta, tau in self._densities]
        return self._combined(guide, shortlist, found).log_softmax(1).to(X.dtype)

    def frozen(self, parts: Parts) -> ShortlistScores:
        guide = self.experts[0].single().frozen(parts)
        return ShortlistScores(guide, self._densities, *self._say, self.size)

    def left_out_at(self, examples: Examples) -> LeftOutAt:
        return self.combined_at(self.experts[0].left_out_at(examples), examples)

    def at_exemplars(self, exemplars: Examples) -> LeftOutAt | None:
        first, *densities = [self.experts[k].at_exemplars(exemplars) for k in (0, *self._heard)]
        if first is None or None in densities:
            return None
        return self.combined_at(first, exemplars, torch.arange(len(exemplars), device=exemplars.y.device))

    def combined_at(self, first: LeftOutAt, examples: Examples, itself: Tensor | None = None) -> LeftOutAt:
        """Left-out scores of the pool, from those of its first expert; see `densities_at`."""
        densities_at = self.densities_at(examples, itself)

        def at(rows: Tensor) -> Tensor:
            guide = first(rows)
            shortlist = best_classes(guide, self.size)
            return self._combined(guide, shortlist, densities_at(rows, shortlist))

        return at

    def densities_at(
        self, examples: Examples, itself: Tensor | None = None
    ) -> Callable[[Tensor, Tensor], list[Tensor]]:
        """Left-out scores of each density at rows (r,), for some classes (r, k) of each.

        The points of a density are the examples, and the fold of a row is left out; or they are exemplars, of which a
        row leaves out the one that it is `itself` (n,), −1 for none.
        """

        def at(rows: Tensor, classes: Tensor) -> list[Tensor]:
            folds, mine = examples.folds[rows], None if itself is None else itself[rows]

            def hidden(places: Tensor, points: Tensor) -> Tensor:
                """Which points (q, s) are left out with the rows at these places (q,)."""
                if mine is not None:
                    return points == mine[places][:, None]
                fold = folds[places][:, None]
                return torch.where(fold == ALONE, points == rows[places][:, None], examples.folds[points] == fold)

            found, x = [], examples.X[rows]
            for points, beta, tau in self._densities:
                if mine is None:
                    left = left_out_masses(examples, rows, classes)
                else:
                    own = torch.where(mine >= 0, points.weights[mine], 0)[:, None]
                    left = _left(points.masses[classes], own * (classes == examples.y[rows][:, None]))
                found.append(points.scores(x, classes, beta, tau, left, hidden))
            return found

        return at

    def _combined(self, guide: Tensor, shortlist: Tensor, found: Sequence[Tensor]) -> Tensor:
        return with_tail(guide, shortlist, found, *self._say)

    @property
    def _heard(self) -> list[int]:
        """Numbers of the densities that have a say."""
        return [k for k, weight in enumerate(self.weights.tolist()) if k > 0 and weight > 0]

    @property
    def _say(self) -> tuple[list[float], list[float]]:
        """Weights and slopes of the first expert and those that have a say."""
        heard = [0, *self._heard]
        return self.weights[heard].tolist(), self.slopes[heard].tolist()

    @cached_property
    def _densities(self) -> list[tuple[ClassPoints, float, float]]:
        """The points of the densities that have a say, their sharpness and temperature."""
        found = []
        for k in self._heard:
            density = self.experts[k]
            assert isinstance(density, FittedKernelDensity)
            points = ClassPoints(density.points, density.labels, density.weights, density.masses)
            found.append((points, density.sharpness, density.temperature))
        return found


def left_out_masses(examples: Examples, rows: Tensor, classes: Tensor) -> Tensor:
    """What is left of the `counts` of classes (r, k) when each of `rows` (r,) is left out; 1 where nothing is."""
    folds = examples.folds[rows]
    of_folds = torch.cat([examples.fold_counts, torch.zeros_like(examples.counts)[None]])  # the last stands for alone
    gone = of_folds[folds[:, None], classes]
    itself = examples.weights[rows][:, None] * (classes == examples.y[rows][:, None])
    return _left(examples.counts[classes], torch.where(folds[:, None] == ALONE, itself, gone))


def _left(masses: Tensor, gone: Tensor) -> Tensor:
    """What is left of masses; 1 where that is nothing but rounding."""
    return torch.where(masses - gone > 1e-6 * masses, masses - gone, 1)
