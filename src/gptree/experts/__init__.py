"""Closed-form class scorers with left-out predictions at their own training points, and their pool."""

from gptree.experts.adapters import PriorScores, SklearnExpert
from gptree.experts.density import FittedKernelDensity, KernelDensity
from gptree.experts.examples import ALONE, Examples, shot_folds
from gptree.experts.interface import Expert, Fit, FittedExpert, State, restore
from gptree.experts.lda import LDA, FittedLDA
from gptree.experts.pool import FittedPool, Pool
from gptree.experts.random_features import FittedRandomFeatures, RandomFeatures
from gptree.experts.ridge import FittedKernelRidge, FittedRidge, KernelRidge, Ridge

__all__ = [
    "ALONE",
    "LDA",
    "Examples",
    "Expert",
    "Fit",
    "FittedExpert",
    "FittedKernelDensity",
    "FittedKernelRidge",
    "FittedLDA",
    "FittedPool",
    "FittedRandomFeatures",
    "FittedRidge",
    "KernelDensity",
    "KernelRidge",
    "Pool",
    "PriorScores",
    "RandomFeatures",
    "Ridge",
    "SklearnExpert",
    "State",
    "restore",
    "shot_folds",
]
