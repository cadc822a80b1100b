"""Closed-form class scorers with left-out predictions at their own training points, and their pool."""

from gptree.experts.adapters import PriorScores, SklearnExpert
from gptree.experts.density import ExemplarDensity, FittedKernelDensity, KernelDensity, exemplar_density
from gptree.experts.examples import ALONE, Examples, shot_folds
from gptree.experts.grown import FittedGrown, FittedSingle, Newcomers, root_log_odds
from gptree.experts.interface import Expert, Fit, FittedExpert, Record, State, restore
from gptree.experts.lda import LDA, FittedLDA, lda_scores
from gptree.experts.pool import FittedPool, Pool, pooled
from gptree.experts.random_features import FittedRandomFeatures, RandomFeatures
from gptree.experts.ridge import FittedKernelRidge, FittedRidge, KernelRidge, Ridge
from gptree.experts.tempering import best_temperature, temperature_centre

__all__ = [
    "ALONE",
    "LDA",
    "Examples",
    "ExemplarDensity",
    "Expert",
    "Fit",
    "FittedExpert",
    "FittedGrown",
    "FittedKernelDensity",
    "FittedKernelRidge",
    "FittedLDA",
    "FittedPool",
    "FittedRandomFeatures",
    "FittedRidge",
    "FittedSingle",
    "KernelDensity",
    "KernelRidge",
    "Newcomers",
    "Pool",
    "PriorScores",
    "RandomFeatures",
    "Record",
    "Ridge",
    "SklearnExpert",
    "State",
    "best_temperature",
    "exemplar_density",
    "lda_scores",
    "pooled",
    "restore",
    "root_log_odds",
    "shot_folds",
    "temperature_centre",
]
