"""Trouble in labelled data: labels that are probably wrong, duplicates, outliers.

Labels are judged by a forest's probabilities of its own rows, each left out. A label is probably wrong where another
class j has p_j ≥ t_j, the mean of p_j over the rows that are called j, and is the most probable of those; the label's
own class counts as well (the confident joint of Northcutt et al., 2021).

Rows are compared on the sphere that the forest sees them on. Two are near duplicates if they are closer than a quarter
of the usual distance (the median) to a nearest neighbour. A row is an outlier if the distance to its fifth neighbour is
more than three robust standard deviations above the usual one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gptree.embed import Failure
from gptree.estimators import GPForestClassifier

NEAR = 0.25  # of the usual distance to the nearest neighbour
FAR = 3.0  # robust standard deviations
NEIGHBOUR = 5  # whose distance says how lonely a row is

_BLOCK = 2**22  # distances that are computed at a time


class Suspect(NamedTuple):
    """A label that is probably wrong."""

    id: str
    label: Any
    probability: float
    """Of the label, by a model that was not shown the row."""
    answer: Any
    """What the row looks like to that model."""
    answer_probability: float


class Twins(NamedTuple):
    """Rows that are the same, or nearly."""

    ids: tuple[str, ...]
    labels: tuple[Any, ...]
    exact: bool
    distance: float
    """As a share of the usual distance to the nearest neighbour; 0 for equal content."""

    @property
    def disagree(self) -> bool:
        """Whether they have different labels."""
        return len({label for label in self.labels if label is not None}) > 1


class Outlier(NamedTuple):
    """A row far from all others."""

    id: str
    label: Any
    deviations: float
    """How far above the usual distance, in robust standard deviations."""


@dataclass(frozen=True)
class Findings:
    """What was found in data, the worst first.

    Attributes
    ----------
    rows, labelled, classes : int
    suspects : tuple of Suspect
    twins : tuple of Twins
        Those with different labels first, then exact ones.
    outliers : tuple of Outlier
    alone : tuple of labels
        Classes with one row, about which nothing can be said.
    failed : tuple of Failure
        What could not be read.
    """

    rows: int
    labelled: int
    classes: int
    suspects: tuple[Suspect, ...] = ()
    twins: tuple[Twins, ...] = ()
    outliers: tuple[Outlier, ...] = ()
    alone: tuple[Any, ...] = ()
    failed: tuple[Failure, ...] = ()

    def __str__(self) -> str:
        found = [
            _count(len(self.suspects), "label is probably wrong", "labels are probably wrong"),
            _count(
                sum(twins.disagree for twins in self.twins), "duplicate has two labels", "duplicates have two labels"
            ),
            _count(sum(t.exact for t in self.twins), "exact duplicate", "exact duplicates"),
            _count(sum(not t.exact for t in self.twins), "near duplicate", "near duplicates"),
            _count(len(self.outliers), "outlier", "outliers"),
            _count(len(self.failed), "file could not be read", "files could not be read"),
        ]
        rows = f"{self.rows:,} rows, {self.labelled:,} with a label, {self.classes:,} classes: "
        return rows + (", ".join(filter(None, found)) or "nothing wrong was found")


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}" if number else ""


def findings(
    X: np.ndarray,
    labels: Sequence[Any],
    ids: Sequence[str],
    keys: Sequence[str],
    failed: Sequence[Failure] = (),
    *,
    seed: int = 0,
    progress: bool = False,
) -> Findings:
    """Look for trouble in rows.

    Parameters
    ----------
    X : ndarray (n, d)
    labels : sequence (n,)
        None where there is none.
    ids, keys : sequence of str (n,)
        What the rows are called; hashes of their contents.
    failed : sequence of Failure
        What could not be read, to be passed on.
    seed : int
        Of the forest.
    progress : bool
        Show a bar while it is fitted.

    Returns
    -------
    Findings
    """
    known = np.array([label is not None for label in labels], dtype=bool)
    y = np.array([label for label in labels if label is not None])
    names, counts = np.unique(y, return_counts=True) if len(y) else (np.array([]), np.array([]))
    suspects: tuple[Suspect, ...] = ()
    features = np.asarray(X, dtype=np.float64)
    if len(names) > 1 and counts.max() > 1:
        forest = GPForestClassifier(random_state=seed, verbose=progress)
        forest.fit(X[known], y, ids=[name for name, is_known in zip(ids, known, strict=True) if is_known])
        suspects = suspects_of(forest)
        features = forest.state_.features(np.asarray(X)).double().cpu().numpy()
    twins, outliers = _neighbours(features, labels, ids, keys)
    return Findings(
        rows=len(X),
        labelled=int(known.sum()),
        classes=len(names),
        suspects=suspects,
        twins=twins,
        outliers=outliers,
        alone=tuple(names[counts == 1].tolist()),
        failed=tuple(failed),
    )


def suspects_of(forest: Any) -> tuple[Suspect, ...]:
    """Labels of a fitted classifier's own examples that are probably wrong, the least probable first."""
    left_out, classes = forest.left_out(), forest.classes_.tolist()
    p, y = left_out.probabilities, left_out.y
    counts = np.bincount(y, minlength=len(classes))
    own = p[np.arange(len(y)), y]
    usual = np.bincount(y, own, len(classes)) / np.maximum(counts, 1)
    confident = np.where((p >= usual) & (counts > 1), p, -1.0)
    answer = confident.argmax(1)
    wrong = (confident.max(1) >= 0) & (answer != y) & (counts[y] > 1) & (p[np.arange(len(y)), answer] > own)
    found = [
        Suspect(left_out.ids[i], classes[y[i]], float(own[i]), classes[answer[i]], float(p[i, answer[i]]))
        for i in np.flatnonzero(wrong)
    ]
    return tuple(sorted(found, key=lambda each: (each.probability, each.id)))


def _neighbours(
    features: np.ndarray, labels: Sequence[Any], ids: Sequence[str], keys: Sequence[str]
) -> tuple[tuple[Twins, ...], tuple[Outlier, ...]]:
    """Duplicates and outliers. Rows of equal content are one row."""
    groups: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    first = [rows[0] for rows in groups.values()]
    twins = [
        Twins(tuple(ids[i] for i in rows), tuple(labels[i] for i in rows), True, 0.0)
        for rows in groups.values()
        if len(rows) > 1
    ]
    nearest, distance, lonely = _distances(features[first])
    usual = float(np.median(distance)) if len(distance) else 0.0
    for at in np.flatnonzero(distance < NEAR * usual):
        other = int(nearest[at])
        if at < other or nearest[other] != at:
            pair = first[at], first[other]
            share = float(distance[at] / usual)
            twins.append(Twins(tuple(ids[i] for i in pair), tuple(labels[i] for i in pair), False, share))
    outliers = []
    if len(lonely):
        middle = np.median(lonely)
        spread = 1.4826 * np.median(np.abs(lonely - middle))
        deviations = (lonely - middle) / max(spread, 1e-9)
        far = ((first[i], float(deviations[i])) for i in np.flatnonzero(deviations > FAR))
        outliers = [Outlier(ids[row], labels[row], value) for row, value in far]
    return (
        tuple(sorted(twins, key=lambda each: (not each.disagree, not each.exact, each.distance, each.ids))),
        tuple(sorted(outliers, key=lambda each: (-each.deviations, each.id))),
    )


def _distances(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every row: its nearest other row, the distance to that, and the distance to its fifth neighbour."""
    n = len(x)
    if n < 3:
        return np.zeros(0, dtype=int), np.zeros(0), np.zeros(0)
    k = min(NEIGHBOUR, n - 1)
    norms = np.square(x).sum(1)
    nearest, distance, lonely = np.zeros(n, dtype=int), np.zeros(n), np.zeros(n)
    step = max(1, _BLOCK // n)
    for start in range(0, n, step):
        rows = np.arange(start, min(start + step, n))
        squared = norms[rows, None] + norms[None] - 2 * x[rows] @ x.T
        squared[np.arange(len(rows)), rows] = np.inf
        part = np.partition(squared, k - 1, axis=1)[:, k - 1]
        nearest[rows] = squared.argmin(1)
        distance[rows] = np.sqrt(np.maximum(squared.min(1), 0.0))
        lonely[rows] = np.sqrt(np.maximum(part, 0.0))
    return nearest, distance, lonely
