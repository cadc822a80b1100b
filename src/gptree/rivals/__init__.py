"""Frozen-feature heads to compare with, all scikit-learn classifiers with probabilities.

None of them maps the features beyond what is part of its method: put a transformer before it in a pipeline.
Settings left open are chosen on left-out training points, never on test data.

`GPDNN` and `SVDKL` are no classifiers but settings of heads that `gptree.deep.train` trains together with a network.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gptree.rivals.base import RivalClassifier
from gptree.rivals.class_mean import NearestClassMean
from gptree.rivals.gpdnn import GPDNN
from gptree.rivals.incremental import IncrementalRival
from gptree.rivals.lda import ShrinkageLDA
from gptree.rivals.lda_sessions import StreamingLDA, TeenLDA
from gptree.rivals.logistic import LogisticRival
from gptree.rivals.logistic_memory import LogisticMemory
from gptree.rivals.logistic_softmax import LogisticSoftmaxGP
from gptree.rivals.mapped import Mapped
from gptree.rivals.neighbours import NearestNeighbours
from gptree.rivals.one_vs_each import OneVsEachGP
from gptree.rivals.ranpac import RanPAC, SessionRanPAC
from gptree.rivals.ridge import RidgeRival
from gptree.rivals.stick_breaking import StickBreakingGP
from gptree.rivals.sv_dkl import SVDKL

RIVALS: dict[str, Callable[[], RivalClassifier]] = {
    "class-mean": NearestClassMean,
    "logistic": LogisticRival,
    "knn": NearestNeighbours,
    "ridge": RidgeRival,
    "lda": ShrinkageLDA,
    "ranpac": RanPAC,
}
"""Every rival by name, made with its default settings."""

INCREMENTAL: dict[str, Callable[[], IncrementalRival]] = {
    "class-mean": NearestClassMean,
    "slda": StreamingLDA,
    "ranpac": SessionRanPAC,
    "ranpac-balanced": partial(SessionRanPAC, balanced=True),
    "lda-teen": TeenLDA,
    "rf-lda-teen": partial(TeenLDA, random_features=1_000),
    "logistic-memory": LogisticMemory,
}
"""Every rival that learns further classes, by name, made with its default settings."""

GIBBS_RIVALS: dict[str, Callable[[], RivalClassifier]] = {
    "sbm-gp": StickBreakingGP,
    "lsm": LogisticSoftmaxGP,
    "ove": OneVsEachGP,
}
"""Gaussian processes by Gibbs sampling with other likelihoods than a tree's, by name, at the settings of the paper."""

__all__ = [
    "GIBBS_RIVALS",
    "GPDNN",
    "INCREMENTAL",
    "RIVALS",
    "SVDKL",
    "IncrementalRival",
    "LogisticMemory",
    "LogisticRival",
    "LogisticSoftmaxGP",
    "Mapped",
    "NearestClassMean",
    "NearestNeighbours",
    "OneVsEachGP",
    "RanPAC",
    "RidgeRival",
    "RivalClassifier",
    "SessionRanPAC",
    "ShrinkageLDA",
    "StickBreakingGP",
    "StreamingLDA",
    "TeenLDA",
]
