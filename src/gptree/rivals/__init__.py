"""Frozen-feature heads to compare with, all scikit-learn classifiers with probabilities.

None of them maps the features beyond what is part of its method: put a transformer before it in a pipeline.
Settings left open are chosen on left-out training points, never on test data.
"""

from __future__ import annotations

from collections.abc import Callable

from gptree.rivals.base import Head
from gptree.rivals.class_mean import NearestClassMean
from gptree.rivals.lda import ShrinkageLDA
from gptree.rivals.logistic import LogisticHead
from gptree.rivals.neighbours import NearestNeighbours
from gptree.rivals.ranpac import RanPAC
from gptree.rivals.ridge import RidgeHead

RIVALS: dict[str, Callable[[], Head]] = {
    "class-mean": NearestClassMean,
    "logistic": LogisticHead,
    "knn": NearestNeighbours,
    "ridge": RidgeHead,
    "lda": ShrinkageLDA,
    "ranpac": RanPAC,
}
"""Every rival by name, made with its default settings."""

__all__ = [
    "RIVALS",
    "Head",
    "LogisticHead",
    "NearestClassMean",
    "NearestNeighbours",
    "RanPAC",
    "RidgeHead",
    "ShrinkageLDA",
]
