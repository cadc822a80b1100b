"""Gaussian-process trees for classification with many classes, and for classes that keep arriving."""

__version__ = "0.1.0"

from gptree.deep import Training, VariationalTree
from gptree.estimators import (
    DeepGPTreeClassifier,
    GPForestClassifier,
    GPTreeClassifier,
    SphereMap,
    UnitLength,
    load_model,
)
from gptree.incremental import (
    Graft,
    Growth,
    Herding,
    KMeansExemplars,
    KMeansPlusPlusExemplars,
    RebuildTree,
    SessionTree,
    SharedRoot,
)
from gptree.inference import CoordinateAscent, Gibbs, InducingPoints, LearnKernel, SparseVariational, SubsetOfData
from gptree.tree import ClassTree

__all__ = [
    "ClassTree",
    "CoordinateAscent",
    "DeepGPTreeClassifier",
    "GPForestClassifier",
    "GPTreeClassifier",
    "Gibbs",
    "Graft",
    "Growth",
    "Herding",
    "InducingPoints",
    "KMeansExemplars",
    "KMeansPlusPlusExemplars",
    "LearnKernel",
    "RebuildTree",
    "SessionTree",
    "SharedRoot",
    "SparseVariational",
    "SphereMap",
    "SubsetOfData",
    "Training",
    "UnitLength",
    "VariationalTree",
    "__version__",
    "load_model",
]
