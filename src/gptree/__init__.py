"""Gaussian-process trees for classification with many classes, and for classes that keep arriving."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
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
        Logarithmic,
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
    "Logarithmic",
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

#: The packages that the names above come from, the lowest first. They load torch, and so wait until they are asked for.
_PACKAGES = ("tree", "inference", "deep", "incremental", "estimators")


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"gptree.{name}")
    if name in __all__:
        for package in map(__getattr__, _PACKAGES):
            if name in package.__all__:
                globals()[name] = getattr(package, name)
                return globals()[name]
    raise AttributeError(f"module 'gptree' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
