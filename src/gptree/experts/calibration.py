"""The choice of an expert's setting and temperature by left-out NLL, the same for every expert.

Settings are chosen on examples as they come. How sure an expert may be is then chosen with classes that count equally,
however many examples they have: large ones are known better, and if they decided, it would be too sure of small ones.
Examples of one-shot classes take no part in a choice, and neither do their classes: among the left-out rows
such a class can only ever be wrong, and the choice would learn to rule it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from gptree.experts.base import Fit, FittedExpert, LeftOutAt
from gptree.experts.examples import CHUNK_ROWS, CHUNK_SIZE, Examples

# A choice looks at no more than this many scores (rows × classes) per value of the grid, unless that leaves
# fewer rows than the second number: 1,000 left-out rows are enough to choose one or two numbers.
MAX_CALIBRATION_SIZE = 2**19
MIN_CALIBRATION_ROWS = 1_000
#: Of very many classes fewer rows, so that their scores are at most so many.
MOST_CALIBRATION_SCORES = 2**25
MAX_GRID_SIZE = 2**27  # scores of all values of a grid at once; otherwise one value after the other
GAPS_AT_A_TIME = 2**22  # beyond so many scores the search for a temperature takes some rows after the other

BRACKET = 4.0  # log τ is sought within ± this of log τ₀
TOLERANCE = 1e-4  # on log τ: the NLL is flat to about 1e-8 there
MAX_STEPS = 60
#: A value of the grid must have an NLL lower than an earlier one's by this: with two rows a class all sharpnesses of a
#: density are one, up to rounding, which must not choose.
TIE = 1e-7


class LeftOutScorer(Protocol):
    """An expert's left-out class scores for the values of its grid.

    Attributes
    ----------
    grid : tuple[float, ...]
    fallback : float
        The value taken when no class has two examples: the smoothest.
    spread : float
        Of tempered scores over classes where nothing can be learnt; see `temperature_centre`.
    """

    grid: tuple[float, ...]
    fallback: float
    spread: float

    def scores(self, grid: tuple[float, ...], rows: Tensor) -> Tensor:
        """(len(grid), len(rows), C). For a row that is not usable, the score of its class may be any finite number."""
        ...

    def fitted(self, value: float, temperature: float) -> FittedExpert: ...


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """The left-out rows on which a choice is made, and the classes that compete there; no rows if not even two do."""

    rows: Tensor  # (R,) into the examples
    classes: Tensor  # (k,) into 0..C-1
    labels: Tensor  # (R,) the rows' classes, numbered within `classes`
    weights: Tensor  # (R,) how many times each row counts
    balanced: Tensor  # (R,) the same, such that classes count equally

    @classmethod
    def of(cls, examples: Examples) -> CalibrationRows:
        classes = (examples.sizes > 1).nonzero()[:, 0]
        calibration_rows = examples.calibration_rows.nonzero()[:, 0]
        rows = some(calibration_rows, examples.n_classes) if len(classes) > 1 else calibration_rows[:0]
        labels = torch.searchsorted(classes, examples.y[rows])
        weights = examples.weights[rows]
        return cls(rows, classes, labels, weights, balanced(weights, labels))

    def see(self, scores: Tensor) -> Tensor:
        """The scores (…, C) of the competing classes, (…, k)."""
        return scores if len(self.classes) == scores.shape[-1] else scores[..., self.classes]


def balanced(weights: Tensor, labels: Tensor) -> Tensor:
    """Weights (R,) of rows such that all classes among their labels (R,) count equally.

    They add up to what such rows are worth as evidence, (Σ b)² / Σ b² for rows that count b each: to the number of rows
    if classes have the same number of rows, and to less otherwise.
    """
    if len(labels) == 0:
        return weights
    _, numbers = labels.unique(return_inverse=True)
    totals = weights.new_zeros(int(numbers.max()) + 1).index_add_(0, numbers, weights)
    return weights / totals[numbers] * (len(totals) / totals.reciprocal().sum())


def some(rows: Tensor, n_classes: int) -> Tensor:
    """`rows`, or a fixed random choice of them if there are more than a calibration set needs."""
    size = calibration_size(n_classes)
    shuffled = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    return rows[shuffled[:size].sort().values.to(rows.device)]


def calibration_size(n_classes: int) -> int:
    """How many rows a choice is made on, at most."""
    at_least = min(MIN_CALIBRATION_ROWS, max(MOST_CALIBRATION_SCORES // n_classes, 1))
    return max(MAX_CALIBRATION_SIZE // n_classes, at_least)


class Choice(NamedTuple):
    value: float
    temperature: float
    scores: Tensor
    """(R, C) left-out scores of the calibration rows at that value."""


def choose(scorer: LeftOutScorer, examples: Examples, calibration: CalibrationRows) -> Choice:
    """The value of the grid with the lowest left-out NLL of log-softmax(τ·score) at its best τ, and a balanced τ."""
    if len(calibration.rows) == 0:
        rows = some(torch.arange(len(examples), device=examples.y.device), examples.n_classes)
        scores = fill_own(scorer.scores((scorer.fallback,), rows)[0], examples, rows)
        centre = temperature_centre(scores, scorer.spread, examples.weights[rows])
        return Choice(scorer.fallback, centre, scores[calibration.rows])
    best, least = None, math.inf
    for value, scores in _each_value(scorer, calibration.rows, examples.n_classes):
        centre = temperature_centre(scores, scorer.spread, calibration.weights)
        _, nll = best_temperature(calibration.see(scores), calibration.labels, centre, calibration.weights)
        if best is None or nll < least - TIE:
            best, least = (value, centre, scores), nll
    assert best is not None
    value, centre, scores = best
    tau, _ = best_temperature(calibration.see(scores), calibration.labels, centre, calibration.balanced)
    return Choice(value, tau, scores)


def _each_value(scorer: LeftOutScorer, rows: Tensor, n_classes: int) -> Iterator[tuple[float, Tensor]]:
    """The values of a grid and their scores (r, C): at once, or one after the other where that is too much to hold."""
    if len(scorer.grid) * len(rows) * n_classes <= MAX_GRID_SIZE:
        yield from zip(scorer.grid, scorer.scores(scorer.grid, rows), strict=True)
        return
    for value in scorer.grid:
        yield value, scorer.scores((value,), rows)[0]


def fit_tempered(scorer: LeftOutScorer, examples: Examples) -> Fit:
    """Choose the value of the grid and the temperature by left-out NLL, and say how every example is scored left out.

    Parameters
    ----------
    scorer : LeftOutScorer
    examples : Examples

    Returns
    -------
    Fit
    """
    calibration = CalibrationRows.of(examples)
    value, tau, scores = choose(scorer, examples, calibration)
    everyone = len(calibration.rows) == len(examples)  # few, and scored already
    at = tau * scores if everyone else tempered_at(scorer, value, tau, examples)
    return Fit(scorer.fitted(value, tau), at, examples.usable)


def tempered_at(scorer: LeftOutScorer, value: float, temperature: float, examples: Examples) -> LeftOutAt:
    """The left-out scores of examples for a value of the grid, tempered."""

    def at(rows: Tensor) -> Tensor:
        return fill_own(scorer.scores((value,), rows)[0], examples, rows).mul_(temperature)

    return at


def tempering_bytes(grid: int, rows: int, classes: int, itemsize: int) -> int:
    """Bytes that `fit_tempered` needs for a grid of so many values, roughly: for their scores and left-out ones."""
    calibration = min(rows, calibration_size(classes))
    at_once = grid if grid * calibration * classes <= MAX_GRID_SIZE else 2
    return itemsize * classes * ((at_once + 3) * calibration + 4 * min(rows, CHUNK_SIZE // classes + CHUNK_ROWS))


def fill_own(scores: Tensor, examples: Examples, rows: Tensor) -> Tensor:
    """Scores (r, C) of `rows`, where the class of an unusable row gets the mean score of the other classes.

    Without its only example nothing is known of the class; an average class is what that leaves to expect.
    """
    single = (~examples.usable[rows]).nonzero()[:, 0]
    if len(single) == 0 or examples.n_classes == 1:
        return scores
    scores, y = scores.clone(), examples.y[rows[single]]
    scores[single, y] = 0
    scores[single, y] = scores[single].sum(1) / (examples.n_classes - 1)
    return scores


def weighted_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """The mean of values (r, …) over r rows that count `weights` (r,) times each; None is once."""
    if weights is None:
        return values.mean(0)
    return (values * weights.view(-1, *[1] * (values.ndim - 1))).sum(0) / weights.sum()


def best_temperature(
    scores: Tensor, labels: Tensor, centre: float, weights: Tensor | None = None
) -> tuple[float, float]:
    """The τ that minimises the mean NLL of log-softmax(τ·score), and the minimum.

    A weak prior, log τ ~ N(log `centre`, 1), counted as one point, decides where the rows do not (scores that
    separate them all, or hardly any rows) and is part of the minimum. The NLL is convex in τ, so that it has
    one minimum in t = log τ, reached by Newton steps inside a shrinking bracket.

    Parameters
    ----------
    scores : tensor (r, k)
    labels : int64 tensor (r,)
    centre : float
        τ₀.
    weights : tensor (r,), optional
        How many times each row counts.

    Returns
    -------
    temperature, nll : float
    """
    weights = scores.new_ones(len(labels)) if weights is None else weights.to(scores)
    n, t0 = float(weights.sum()), math.log(centre)
    step = max(1, GAPS_AT_A_TIME // max(1, scores.shape[1]))

    def pieces() -> Iterator[tuple[Tensor, Tensor]]:
        """Δ_c = score_c − score_y of some rows, and their weights: the NLL is logsumexp(τΔ)."""
        for some, own, counted in zip(scores.split(step), labels.split(step), weights.split(step), strict=True):
            yield some - some.gather(1, own[:, None]), counted

    known = list(pieces()) if len(labels) <= step else None
    low, high, t = t0 - BRACKET, t0 + BRACKET, t0
    for _ in range(MAX_STEPS):
        tau, sums = math.exp(t), scores.new_zeros(3, dtype=torch.float64)
        for gap, counted in pieces() if known is None else known:
            weighted = (tau * gap).softmax(1).mul_(gap)  # p_c Δ_c
            means = weighted.sum(1)
            squares = torch.dot(weighted.mul_(counted[:, None]).flatten(), gap.flatten())
            sums += torch.stack([counted @ means, squares, counted @ means.square()])
        first, second, square = (sums / n).tolist()  # of the NLL in τ
        slope = tau * first + (t - t0) / n
        curvature = tau**2 * (second - square) + tau * first + 1 / n
        low, high = (t, high) if slope < 0 else (low, t)
        newton = t - slope / curvature if curvature > 0 else math.inf
        previous, t = t, newton if low <= newton <= high else (low + high) / 2
        if math.isclose(t, previous, rel_tol=0, abs_tol=TOLERANCE):
            break
    tau = math.exp(t)
    total = sum(float(counted @ (tau * gap).logsumexp(1)) for gap, counted in pieces())
    return tau, total / n + (t - t0) ** 2 / (2 * n)


def temperature_centre(scores: Tensor, spread: float, weights: Tensor | None = None) -> float:
    """τ₀ = spread / (standard deviation of a row's scores (r, k) over the classes, averaged); 1 if they are equal.

    It makes the tempered scores of the classes spread by `spread` nats, whatever unit the scores come in. With
    one shot a class no temperature can be learnt, and τ₀ is the one used: over three data sets of 20 to
    200 classes with one shot each, the best spread was 1.8 to 2.4 for distances and log densities, 1.1 to
    1.6 for ridge regression with its largest penalty.

    Parameters
    ----------
    scores : tensor (r, k)
    spread : float
    weights : tensor (r,), optional
        How many times each row counts.

    Returns
    -------
    float
    """
    spreads = (scores - scores.mean(1, keepdim=True)).square_().mean(1).sqrt()  # `std` takes four times as long
    deviation = float(weighted_mean(spreads, weights))
    least, most = scores.aminmax()
    rounding = 1e-6 * max(-float(least), float(most)) + 1e-12  # scores equal but for it say nothing
    return spread / deviation if deviation > rounding else 1.0
