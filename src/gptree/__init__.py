"""Gaussian-process trees for classification with many classes, and for classes that keep arriving."""

__version__ = "0.1.0"

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
    KMeansSamples,
    RebuildTree,
    SessionTree,
    SharedRoot,
    SpreadSamples,
)
from gptree.inference import CoordinateAscent, Gibbs, InducingPoints, LearnKernel, Representatives, SparseVariational
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
    "KMeansSamples",
    "LearnKernel",
    "RebuildTree",
    "Representatives",
    "SessionTree",
    "SharedRoot",
    "SparseVariational",
    "SphereMap",
    "SpreadSamples",
    "UnitLength",
    "__version__",
    "load_model",
]
