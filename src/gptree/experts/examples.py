"""Labelled examples, and the folds in which they are left out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ALONE = -1
"""The fold of an example that is left out by itself."""

MANY_CLASSES = 2_000
"""Beyond so many classes an example is scored for all of them in single precision; of many examples, too, by a pool in
full by one expert only: the others look at a shortlist of the first (`gptree.experts.shortlist`)."""

FEW_ROWS = 3
"""Fewer examples a class than that, on average, are few: left-out predictions rest on one example of a class or so."""

CHUNK_SIZE = 2**21  # scores computed at a time: 16 MB, small enough for the allocator to reuse
CHUNK_SIZE_CUDA = 2**27
CHUNK_ROWS = 192  # but no fewer rows than that: what is computed once a chunk is as large as some rows
BLOCK_SIZE = 2**20  # features copied at a time


def few_rows(n: int, n_classes: int) -> bool:
    """Whether n examples of so many classes are few, see `FEW_ROWS`."""
    return n < FEW_ROWS * n_classes


def row_chunks(rows: Tensor, n_classes: int) -> tuple[Tensor, ...]:
    """Row numbers (r,) in pieces whose scores (piece, C) are computed at a time."""
    return rows.split(max((CHUNK_SIZE_CUDA if rows.is_cuda else CHUNK_SIZE) // n_classes, CHUNK_ROWS))


def stable_order(keys: Tensor) -> Tensor:
    """Row numbers by key (n,), a whole number; rows of equal keys stay in their own order."""
    return (keys * len(keys) + torch.arange(len(keys), device=keys.device)).argsort()


def shot_folds(y: Tensor, max_folds: int = 30) -> Tensor:
    """Folds that leave one shot out: fold k holds the k-th example of every class, modulo `max_folds`.

    Dropping one example of *every* class keeps the classes balanced. The only example of a class is left
    out `ALONE`, so that its class is there when points of other classes are scored.

    Parameters
    ----------
    y : int64 tensor (n,)
        Class numbers.
    max_folds : int

    Returns
    -------
    int64 tensor (n,)
    """
    if max_folds < 2:
        raise ValueError(f"max_folds must be at least 2, not {max_folds}: a class must survive each fold.")
    counts = torch.bincount(y)
    order = stable_order(y)
    first = (counts.cumsum(0) - counts)[y[order]]
    shot = torch.empty_like(y)
    shot[order] = torch.arange(len(y), device=y.device) - first
    return torch.where(counts[y] == 1, ALONE, shot % max_folds)


@dataclass(frozen=True, eq=False)
class Examples:
    """Checked training examples; build them with `Examples.of`.

    To leave example i out is to leave out every example of its fold, or i only where the fold is `ALONE`. An example of
    weight w counts as w equal ones, which are left out together.

    Attributes
    ----------
    X : tensor (n, d)
        Features.
    y : int64 tensor (n,)
        Class numbers 0 … C − 1.
    n_classes : int
        C.
    folds : int64 tensor (n,)
    weights : tensor (n,)
        How many times each example counts, in the dtype of X.
    sizes : int64 tensor (C,)
        Examples of each class, each counted once.
    counts : tensor (C,)
        The weights of each class, summed: one for each example where nothing is weighted.
    fold_counts : tensor (K, C)
        The same of each class in each fold.
    calibration : bool tensor (n,)
        Whether settings are chosen on an example.
    few : bool
        Whether classes have few examples, see `FEW_ROWS`.
    raw : optional
        What the features were computed from, or a function without arguments that gives it.
    more_to_come : bool
        Whether there are classes that are not there yet, so that wrong labels may be those of their rows.
    """

    X: Tensor
    y: Tensor
    n_classes: int
    folds: Tensor
    weights: Tensor
    sizes: Tensor
    counts: Tensor
    fold_counts: Tensor
    calibration: Tensor
    few: bool
    raw: Any = None
    more_to_come: bool = False

    @classmethod
    def of(
        cls,
        X: Tensor,
        y: Tensor,
        n_classes: int | None = None,
        folds: Tensor | None = None,
        raw: Any = None,
        calibration: Tensor | None = None,
        weights: Tensor | None = None,
        few: bool | None = None,
        more_to_come: bool = False,
    ) -> Examples:
        """Check and count examples.

        Parameters
        ----------
        X : tensor (n, d)
            Features, float32 or float64.
        y : int tensor (n,)
            Class numbers 0 … n_classes − 1, every class with at least one example.
        n_classes : int or None
            None is the largest class number plus one.
        folds : int tensor (n,), optional
            `shot_folds` by default. A class of two or more examples must not lie in one fold; the only example of a
            class is always left out alone.
        raw : optional
            What the features were computed from, for experts that look at it rather than at X (`PriorScores`), or a
            function without arguments that gives it.
        calibration : bool tensor (n,), optional
            Settings are chosen on left-out predictions of these examples alone. Give them where a network was trained
            on the others.
        weights : tensor (n,), optional
            How many times each example counts, more than 0; once by default.
        few : bool, optional
            Whether classes are taken to have few examples; by default if they do.
        more_to_come : bool
            Whether there are classes that are not there yet.

        Returns
        -------
        Examples
        """
        check_features(X)
        if not isinstance(y, Tensor) or y.is_floating_point() or y.dtype == torch.bool or y.shape != (len(X),):
            raise ValueError(f"y must hold {len(X)} whole numbers, one per row of X; got {describe(y)}.")
        y = y.long().to(X.device)
        n_classes = int(y.max()) + 1 if n_classes is None else n_classes
        if int(y.min()) < 0 or int(y.max()) >= n_classes:
            raise ValueError(f"y must lie in 0..{n_classes - 1}; it spans {int(y.min())}..{int(y.max())}.")
        sizes = torch.bincount(y, minlength=n_classes)
        if int(sizes.min()) == 0:
            empty = int(sizes.argmin())
            raise ValueError(f"class {empty} has no example; give it one, or renumber the classes without it.")
        folds = shot_folds(y) if folds is None else _checked_folds(folds, y, sizes)
        weights = X.new_ones(len(X)) if weights is None else _checked_weights(weights, X)
        together = folds != ALONE
        n_folds = int(folds.max()) + 1
        cells, inside = (folds * n_classes + y)[together], weights[together]
        fold_counts = X.new_zeros(n_folds * n_classes).index_add_(0, cells, inside).view(n_folds, n_classes)
        counts = X.new_zeros(n_classes).index_add_(0, y, weights)
        calibration = torch.ones_like(y, dtype=torch.bool) if calibration is None else calibration
        few = few_rows(len(X), n_classes) if few is None else few
        return cls(X, y, n_classes, folds, weights, sizes, counts, fold_counts, calibration, few, raw, more_to_come)

    def __len__(self) -> int:
        return len(self.X)

    @property
    def usable(self) -> Tensor:
        """(n,) whether anything of an example's class is left without it."""
        return self.sizes[self.y] > 1

    @property
    def calibration_rows(self) -> Tensor:
        """(n,) which examples settings are chosen on."""
        return self.usable & self.calibration

    def class_sums(self, values: Tensor, rows: Tensor | None = None) -> Tensor:
        """Sums (C, k) of `values` (n, k) over the examples of each class; of `values` (r, k) over those of `rows`."""
        y = self.y if rows is None else self.y[rows]
        return values.new_zeros(self.n_classes, values.shape[1]).index_add_(0, y, values)

    def class_means(self, values: Tensor) -> Tensor:
        """Means (C, k) of `values` (n, k) over the examples of each class, weighted."""
        return self.class_sums(values * self.weights[:, None]) / self.counts[:, None]

    def left_out_counts(self, rows: Tensor) -> Tensor:
        """`counts` that are left when each of `rows` is left out, (len(rows), C); 0 for the only example of a class."""
        left = self.counts.repeat(len(rows), 1)
        together = (self.folds[rows] != ALONE).nonzero()[:, 0]
        left[together] -= self.fold_counts[self.folds[rows[together]]]
        alone = self.alone(rows)
        left[alone, self.y[rows[alone]]] -= torch.where(self.usable, self.weights, self.counts[self.y])[rows[alone]]
        return left

    def chunks(self, position: Tensor | None = None) -> tuple[Tensor, ...]:
        """All rows in pieces whose scores are computed at a time; a piece meets few folds.

        With a `position` (C,) of each class, neighbours come together: they ask for the same classes.
        """
        keys = self.folds if position is None else self.folds * self.n_classes + position[self.y]
        return row_chunks(stable_order(keys), self.n_classes)

    def blocks(self) -> tuple[Tensor, ...]:
        """All rows in order, so many at a time that copies of their features are no burden."""
        step = max(1, (CHUNK_SIZE_CUDA if self.y.is_cuda else BLOCK_SIZE) // self.X.shape[1])
        return torch.arange(len(self), device=self.y.device).split(step)

    def by_fold(self, rows: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """For every fold that meets `rows`: its number, its members, and the positions in `rows` of those asked for.

        Examples left out alone are not among them; see `alone`.
        """
        folds = self.folds[rows]
        for fold in folds[folds != ALONE].unique().tolist():
            yield fold, (self.folds == fold).nonzero()[:, 0], (folds == fold).nonzero()[:, 0]

    def alone(self, rows: Tensor) -> Tensor:
        """Positions in `rows` of the examples that are left out alone."""
        return (self.folds[rows] == ALONE).nonzero()[:, 0]

    def in_shot_order(self, some: Tensor | None = None) -> Tensor:
        """Rows, the first of every class before the second of any: every beginning of it is balanced.

        Of all, or of `some`, (n,) booleans.
        """
        rows = torch.arange(len(self), device=self.y.device) if some is None else some.nonzero()[:, 0]
        return rows[stable_order(shot_folds(self.y[rows], max_folds=sys.maxsize))]


def _checked_weights(weights: Tensor, X: Tensor) -> Tensor:
    if not isinstance(weights, Tensor) or weights.shape != X.shape[:1]:
        raise ValueError(f"weights must hold {len(X)} numbers, one per row of X; got {describe(weights)}.")
    weights = weights.to(X)
    if not bool(((weights > 0) & torch.isfinite(weights)).all()):
        raise ValueError("weights must be positive and finite: leave out the examples whose weight is 0.")
    return weights


def _checked_folds(folds: Tensor, y: Tensor, sizes: Tensor) -> Tensor:
    if not isinstance(folds, Tensor) or folds.shape != y.shape or folds.is_floating_point() or int(folds.min()) < ALONE:
        raise ValueError(
            f"folds must hold {len(y)} whole numbers, 0, 1, … or {ALONE} (left out alone); got {describe(folds)}."
        )
    folds = folds.long().to(y.device)
    # A fold of one is the same as being left out alone, and cheaper so. The other folds become 0, 1, …
    _, index, members = folds.unique(return_inverse=True, return_counts=True)
    together = (folds != ALONE) & (members[index] > 1) & (sizes[y] > 1)
    renumbered = folds[together].unique(return_inverse=True)[1]
    folds = torch.full_like(folds, ALONE).masked_scatter(together, renumbered)
    cells, cell_sizes = (folds * len(sizes) + y)[together].unique(return_counts=True)
    swallowed = cells[cell_sizes == sizes[cells % len(sizes)]] % len(sizes)
    if len(swallowed):
        raise ValueError(
            f"all examples of class {int(swallowed[0])} are in one fold, so that nothing of it is left without the "
            f"fold; spread them over two folds or more, or give them fold {ALONE}."
        )
    return folds


def check_features(X: Any, d: int | None = None) -> None:
    """Raise a ValueError unless X is a finite float32 or float64 tensor (n, d).

    Parameters
    ----------
    X : any
    d : int or None
        Number of features, where it is fixed.
    """
    wanted = f"(n, {'d' if d is None else d})"
    single_or_double = isinstance(X, Tensor) and X.dtype in (torch.float32, torch.float64)
    if not single_or_double or X.ndim != 2 or X.shape[1] != (d or X.shape[1]) or (d is None and 0 in X.shape):
        raise ValueError(f"features must be a float32 or float64 tensor of shape {wanted}; got {describe(X)}.")
    # the sum is finite if all are, unless it overflows: a look at every number is rarely needed
    if not torch.isfinite(X.sum()) and not torch.isfinite(X).all():
        raise ValueError("features contain NaN or infinity; remove or replace those rows first.")


def describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
