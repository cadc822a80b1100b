"""How good a model is: on test rows, or else on its own examples, each left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from gptree.metrics import Confusion, ReliabilityCurve, accuracy, ece, most_confused, nll, reliability_curve

_CONFUSIONS = 20  # most frequent mistakes that are kept


class ClassQuality(NamedTuple):
    """How one class fares: rows of it, the share that is answered right, and how often it is the answer."""

    label: Any
    rows: int
    right: int
    answered: int


@dataclass(frozen=True, eq=False)
class Quality:
    """Numbers about one version of a model.

    Attributes
    ----------
    source : "test", "left out" or "nothing"
        Where they come from: rows kept for testing; the model's own examples, each as if it had not been shown it; or
        there is nothing to measure on.
    note : str
        What to know about them, in a sentence.
    rows : int
    unknown : int
        Test rows of classes that the model does not know; they are left out of the numbers.
    accuracy, nll, ece : float
        NaN without rows.
    reliability : ReliabilityCurve or None
    confusions : tuple of Confusion
        The most frequent first.
    classes : tuple of ClassQuality
    """

    source: Literal["test", "left out", "nothing"]
    note: str
    rows: int = 0
    unknown: int = 0
    accuracy: float = float("nan")
    nll: float = float("nan")
    ece: float = float("nan")
    reliability: ReliabilityCurve | None = None
    confusions: tuple[Confusion, ...] = ()
    classes: tuple[ClassQuality, ...] = ()

    def __str__(self) -> str:
        if not self.rows:
            return self.note
        return f"accuracy {100 * self.accuracy:.1f} %, NLL {self.nll:.3f}, ECE {100 * self.ece:.1f} % ({self.note})"


def measured(p: np.ndarray, y: np.ndarray, classes: Sequence[Any], source: Any, note: str, unknown: int = 0) -> Quality:
    """Numbers from class probabilities (n, C) and class numbers (n,)."""
    if not len(y):
        return Quality(source, note, unknown=unknown)
    names, answer = np.array(list(classes), dtype=object), p.argmax(1)
    rows, right, answered = (np.bincount(each, minlength=len(names)) for each in (y, y[answer == y], answer))
    return Quality(
        source=source,
        note=note,
        rows=len(y),
        unknown=unknown,
        accuracy=accuracy(p, y),
        nll=nll(p, y),
        ece=ece(p, y),
        reliability=reliability_curve(p, y),
        confusions=tuple(most_confused(names[y], names[answer], _CONFUSIONS)),
        classes=tuple(map(ClassQuality, names.tolist(), rows.tolist(), right.tolist(), answered.tolist())),
    )


def quality_of_test(p: np.ndarray, truth: Sequence[Any], classes: Sequence[Any]) -> Quality | None:
    """On test rows; None where there are none."""
    if not len(truth):
        return None
    number = {label: i for i, label in enumerate(classes)}
    known = np.array([label in number for label in truth], dtype=bool)
    y = np.array([number[label] for label in truth if label in number], dtype=int)
    unknown = int((~known).sum())
    more = f"; {unknown:,} more are of classes that the model does not know" if unknown else ""
    return measured(p[known], y, classes, "test", f"on {len(y):,} test rows{more}", unknown)


def left_out_quality(model: Any) -> Quality:
    """On the examples that a model keeps, each left out; those that are alone in their class do not count."""
    found = model.left_out()
    counts = np.bincount(found.y, minlength=len(model.classes_))
    rows = counts[found.y] > 1
    note = f"no test rows: estimated on {rows.sum():,} examples that the model keeps, each left out"
    if model.growth is not None:
        note += "; those of the first fit are typical ones, so that this is more than new rows will show"
    return measured(found.probabilities[rows], found.y[rows], model.classes_.tolist(), "left out", note)
