"""Experts: closed-form class scorers with left-out predictions at their training points, and their pool.

A new file in this folder is found by the name that its `Expert` gives itself.
"""

from gptree.experts.adapters import PriorScores, SklearnExpert, fit_weighted
from gptree.experts.base import Expert, Fit, FittedExpert, ScoreCache, cached
from gptree.experts.calibration import LeftOutScorer, best_temperature, fit_tempered, temperature_centre, weighted_mean
from gptree.experts.density import ExemplarDensity, FittedKernelDensity, KernelDensity, exemplar_density
from gptree.experts.examples import ALONE, FEW_ROWS, MANY_CLASSES, Examples, check_features, few_rows, shot_folds
from gptree.experts.kernel_ridge import FittedKernelRidge, KernelRidge
from gptree.experts.lda import LDA, FittedLDA, distances_to_classes, lda_scores
from gptree.experts.left_out import ExemplarScores, FitScores, LeftOutScores, in_chunks
from gptree.experts.novel import FittedBaseNovelExpert, FittedSingle, NovelClassExperts
from gptree.experts.novel_layers import Layer, NovelSums
from gptree.experts.novel_scores import GrownScores, root_log_odds
from gptree.experts.one_hot import ExemplarRidge
from gptree.experts.pool import FittedPool, Pool, fit_weights, pooled
from gptree.experts.random_features import FittedRandomFeatures, RandomFeatures
from gptree.experts.ridge import FittedRidge, Ridge
from gptree.experts.shortlist import FittedShortlist
from gptree.settings import import_modules

import_modules(__name__, __path__)

__all__ = [
    "ALONE",
    "FEW_ROWS",
    "LDA",
    "MANY_CLASSES",
    "Examples",
    "ExemplarDensity",
    "ExemplarRidge",
    "ExemplarScores",
    "Expert",
    "Fit",
    "FitScores",
    "FittedBaseNovelExpert",
    "FittedExpert",
    "FittedKernelDensity",
    "FittedKernelRidge",
    "FittedLDA",
    "FittedPool",
    "FittedRandomFeatures",
    "FittedRidge",
    "FittedShortlist",
    "FittedSingle",
    "GrownScores",
    "KernelDensity",
    "KernelRidge",
    "Layer",
    "LeftOutScorer",
    "LeftOutScores",
    "NovelClassExperts",
    "NovelSums",
    "Pool",
    "PriorScores",
    "RandomFeatures",
    "Ridge",
    "ScoreCache",
    "SklearnExpert",
    "best_temperature",
    "cached",
    "check_features",
    "distances_to_classes",
    "exemplar_density",
    "few_rows",
    "fit_tempered",
    "fit_weighted",
    "fit_weights",
    "in_chunks",
    "lda_scores",
    "pooled",
    "root_log_odds",
    "shot_folds",
    "temperature_centre",
    "weighted_mean",
]
