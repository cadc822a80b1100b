"""Closed-form class scorers with left-out predictions at their own training points, and their pool."""

from gptree.experts.adapters import PriorScores, SklearnExpert
from gptree.experts.base import Expert, Fit, FittedExpert
from gptree.experts.calibration import best_temperature, temperature_centre
from gptree.experts.density import ExemplarDensity, FittedKernelDensity, KernelDensity, exemplar_density
from gptree.experts.examples import ALONE, Examples, shot_folds
from gptree.experts.lda import LDA, FittedLDA, lda_scores
from gptree.experts.novel import FittedBaseNovelExpert, FittedSingle, NovelClassExperts, root_log_odds
from gptree.experts.pool import FittedPool, Pool, pooled
from gptree.experts.random_features import FittedRandomFeatures, RandomFeatures
from gptree.experts.ridge import FittedKernelRidge, FittedRidge, KernelRidge, Ridge

__all__ = [
    "ALONE",
    "LDA",
    "Examples",
    "ExemplarDensity",
    "Expert",
    "Fit",
    "FittedBaseNovelExpert",
    "FittedExpert",
    "FittedKernelDensity",
    "FittedKernelRidge",
    "FittedLDA",
    "FittedPool",
    "FittedRandomFeatures",
    "FittedRidge",
    "FittedSingle",
    "KernelDensity",
    "KernelRidge",
    "NovelClassExperts",
    "Pool",
    "PriorScores",
    "RandomFeatures",
    "Ridge",
    "SklearnExpert",
    "best_temperature",
    "exemplar_density",
    "lda_scores",
    "pooled",
    "root_log_odds",
    "shot_folds",
    "temperature_centre",
]
