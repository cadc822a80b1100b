"""How strange rows are: four signs of a stranger, and their sum.

The signs of a row x, each larger for strangers:

- relative: how much better a class that is not known yet explains x than the best known one, see `RelativeDistance`;
- odds: log-odds against the predicted class;
- unexplained: logarithm of the share of the prior variance that is left where that class is decided;
- variance: that of a Gaussian process on all known rows, which is large far away from them.

The process has the kernel k(x, x') = exp(xᵀx' − 1) of rows of unit length. Let P be (K + αI)⁻¹. Leaving out the rows F,
a single one or all of a class, is exact: variance_F = diag(P_FF⁻¹) − α.

Near strangers are recognised by the relative distance and the odds, far ones by the variance. In standard deviations
of left-out known rows, they add up to

    s = relative + 0.3 odds + 0.15 unexplained + w variance + 10 max(variance − t, 0)²,

and the score is ½ (1 + s / (1 + |s|)); 5 % of the known rows have a variance above t. Known classes choose w: each
plays the stranger in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gptree.maths.linalg import triangular_inverse
from gptree.model.leave_one_out import LeftOut, class_weights
from gptree.model.relative_distance import RelativeDistance

UNEXPLAINED, VARIANCE = 2, 3
#: Of the relative distance, odds and what is unexplained; chosen once, on training rows of three sets of embeddings.
WEIGHTS = (1.0, 0.3, 0.15)
#: Of the variance: known classes choose; the first where they cannot tell.
VARIANCE_WEIGHTS = (0.2, 0.5, 1.0)
FAR, FAR_SHARE = 10.0, 0.05
#: Usual standard deviations of the signs, which count as so many known rows: few rows do not tell them.
USUAL, USUAL_ROWS = (30.0, 3.0, 0.2, 0.08), 2.0
NOISE = 0.03
#: Distances are from at most so many rows; with more classes than that there are none.
MOST_POINTS = 2048
ROWS_AT_ONCE = 1024
SMALLEST = 1e-6  # smaller probabilities and shares of variance count as this


class Distances:
    """Two distances from known rows of unit length: the relative one from their classes, and the variance.

    Parameters
    ----------
    points : tensor (m, d)
    y : int64 tensor (m,)
        Class numbers.
    """

    def __init__(self, points: Tensor, y: Tensor) -> None:
        self.points, self.y = points.double(), y
        self.relative = RelativeDistance(self.points, y)
        K = _kernel(self.points, self.points)
        K.diagonal().add_(NOISE)
        #: R with RᵀR = (K + αI)⁻¹.
        self._root = triangular_inverse(torch.linalg.cholesky(K))

    def at(self, x: Tensor) -> Tensor:
        """Both at new rows x (T, d) of unit length, (T, 2)."""
        found = []
        for rows in x.double().split(ROWS_AT_ONCE):
            rows = rows.clone()  # a copy is aligned: the last bits of products depend on it
            k = _kernel(rows, self.points)
            explained = (k @ self._root.T).square_().sum(1)
            found.append(torch.stack([self.relative.at(rows), 1.0 - explained], 1))
        return torch.cat([self.points.new_zeros(0, 2), *found])

    def left_out(self) -> Tensor:
        """The same at the points, each without itself, (m, 2)."""
        return torch.stack([self.relative.left_out(), 1.0 / self._root.square().sum(0) - NOISE], 1)

    def without_class(self) -> Tensor:
        """The same at the points, each without all points of its class, (m, 2)."""
        variance = self.points.new_empty(len(self.y))
        counts = torch.bincount(self.y)
        for count in counts.unique().tolist():  # classes of one size together
            rows = (counts[self.y] == count).nonzero()[:, 0]
            rows = rows[self.y[rows].argsort(stable=True)].view(-1, max(count, 1))
            columns = self._root.T[rows]
            block = torch.linalg.inv(columns @ columns.mT)
            variance[rows] = block.diagonal(dim1=1, dim2=2) - NOISE
        return torch.stack([self.relative.without_class(), variance], 1)


def _kernel(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b.T).sub_(1.0).exp_()


def distance_rows(y: np.ndarray, n_classes: int) -> np.ndarray:
    """Which of the rows of classes y (n,), −1 for none, distances are from: as many of each class as there is room.

    None where there are more classes than room.
    """
    if not 1 < n_classes <= MOST_POINTS:
        return np.zeros(0, dtype=np.int64)
    known = np.flatnonzero(y >= 0)
    order = known[np.argsort(y[known], kind="stable")]
    counts = np.bincount(y[known], minlength=n_classes)
    number = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)  # of the row in its class
    most = counts.max(initial=0)
    if len(order) > MOST_POINTS:
        room = np.cumsum([np.sum(counts > k) for k in range(most)])
        most = max(1, int(np.searchsorted(room, MOST_POINTS, side="right")))
    return np.sort(order[number < most])


def signs(best: Tensor, familiarity: Tensor, distances: Tensor) -> Tensor:
    """The four signs (n, 4).

    Parameters
    ----------
    best : tensor (n,)
        Log-probability of the predicted class.
    familiarity : tensor (n,)
        `ForestModel.familiarity` of it.
    distances : tensor (n, 2)
        The relative one, and the variance.
    """
    against = torch.log((-torch.expm1(best.double())).clamp_min(SMALLEST)) - best.double()
    unexplained = torch.log((1.0 - familiarity.double()).clamp_min(SMALLEST))
    return torch.stack([distances[:, 0], against, unexplained, distances[:, 1]], 1)


@dataclass(frozen=True, eq=False)
class KnownSigns:
    """Signs of known rows, and of the same rows as strangers."""

    known: Tensor
    """(n, 4) each row left out."""
    distances: Distances | None
    points: Tensor
    """(m,) rows that they are from."""
    left_out: LeftOut

    @cached_property
    def variance_weight(self) -> float:
        """The weight of the variance that tells best which classes are missing; see `choose_weight`."""
        if self.distances is None:
            return VARIANCE_WEIGHTS[0]
        own, other = self.left_out.own[self.points], self.left_out.other[self.points]
        alone = torch.log1p(-own.double().exp()).nan_to_num(neginf=0.0)
        without = self.distances.without_class()
        strangers = signs((other - alone).clamp_max(0.0), self.left_out.familiarity[self.points], without)
        known = self.known[self.points]
        return choose_weight(known.cpu().numpy(), strangers.cpu().numpy(), self.distances.y.cpu().numpy())


def known_signs(
    left_out: LeftOut, sphere: Tensor, y: np.ndarray, points: np.ndarray, distances: Distances | None = None
) -> KnownSigns:
    """Signs of the rows (n, d), of unit length, that left-out predictions were made for.

    Distances are from the `points` (m,) among them, whose classes are y[points]; the others are new to these. They are
    given where they are there already.
    """
    rows = torch.as_tensor(points, device=sphere.device)
    part = sphere.new_zeros(len(sphere), 2, dtype=torch.float64)
    if len(points) > 0:
        if distances is None:
            distances = Distances(sphere[rows], torch.as_tensor(y[points], device=sphere.device))
        others = torch.ones(len(sphere), dtype=torch.bool, device=sphere.device).index_fill_(0, rows, False)
        part[others], part[rows] = distances.at(sphere[others]), distances.left_out()
    return KnownSigns(signs(left_out.best, left_out.familiarity, part), distances, rows, left_out)


@dataclass(frozen=True, eq=False)
class NoveltyScore:
    """The sum of the signs as a number in [0, 1].

    Attributes
    ----------
    centre, spread : ndarray (4,)
        Mean and standard deviation of the signs of known rows, classes counting equally.
    far : float
        The standardised variance from which on a row is far away.
    variance_weight : float
    """

    centre: np.ndarray
    spread: np.ndarray
    far: float
    variance_weight: float

    @classmethod
    def of(cls, known: np.ndarray, y: np.ndarray, variance_weight: float) -> NoveltyScore:
        """From signs (n, 4) of left-out known rows of classes y (n,)."""
        chosen, weight = class_weights(y)
        known = known[chosen]
        centre, spread = _moments(known, weight)
        variance = (known[:, VARIANCE] - centre[VARIANCE]) / spread[VARIANCE]
        order = np.argsort(variance)
        place = np.searchsorted(np.cumsum(weight[order]), 1.0 - FAR_SHARE - 1e-9)
        return cls(centre, spread, float(variance[order][min(place, len(order) - 1)]), variance_weight)

    def __call__(self, signs: np.ndarray) -> np.ndarray:
        """Novelty (n,) of rows with such signs (n, 4)."""
        standard = (signs - self.centre) / self.spread
        excess = np.maximum(standard[:, VARIANCE] - self.far, 0.0)
        total = _sum(standard, self.variance_weight) + FAR * np.square(excess)
        return 0.5 * (1.0 + total / (1.0 + np.abs(total)))


def choose_weight(known: np.ndarray, strangers: np.ndarray, y: np.ndarray) -> float:
    """The weight of the variance, by classes that play strangers.

    Every class plays the stranger once: its rows as they look without it, against all known rows; the mean over the
    classes of the AUROC. The smallest weight is taken that is within one standard error of the best.

    Parameters
    ----------
    known, strangers : ndarray (n, 4)
        Signs of the rows, left out one by one and class by class. What is unexplained is not known of the latter, and
        not used.
    y : ndarray (n,)

    Returns
    -------
    float
        The first of `VARIANCE_WEIGHTS` if fewer than three classes have two rows.
    """
    chosen, weight = class_weights(y)
    codes = np.unique(y[chosen], return_inverse=True)[1]
    counts = np.bincount(codes)
    if len(counts) < 3 or counts.max() < 2:
        return VARIANCE_WEIGHTS[0]
    known, strangers = known[chosen], strangers[chosen]
    _, spread = _moments(known, weight)
    spread[UNEXPLAINED] = np.inf
    aurocs = []  # of each class as strangers, by the weight
    for each in VARIANCE_WEIGHTS:
        mine, theirs = (_sum(rows / spread, each) for rows in (known, strangers))
        mine = np.sort(mine)
        places = np.searchsorted(mine, theirs, "left") + np.searchsorted(mine, theirs, "right")
        aurocs.append(np.bincount(codes, 0.5 * places / len(mine)) / counts)
    gaps = aurocs[int(np.argmax(np.mean(aurocs, axis=1)))] - np.array(aurocs)
    error = gaps.std(axis=1, ddof=1) / np.sqrt(len(counts))
    return VARIANCE_WEIGHTS[int(np.argmax(gaps.mean(1) <= error + 1e-12))]


def _moments(known: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (4,) of signs (n, 4) with weights (n,)."""
    # no products of matrices, which may differ in the last bit by their alignment
    centre = (known * weight[:, None]).sum(0)
    squares = (np.square(known - centre) * weight[:, None]).sum(0)
    rows = 1.0 / np.square(weight).sum()  # so many equal ones
    return centre, np.sqrt((rows * squares + USUAL_ROWS * np.square(USUAL)) / (rows + USUAL_ROWS))


def _sum(standard: np.ndarray, variance_weight: float) -> np.ndarray:
    """The weighted sum of standardised signs (n, 4)."""
    return (standard * np.array([*WEIGHTS, variance_weight])).sum(1)
