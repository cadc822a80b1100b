"""Parameters, labels and names of tensors as JSON holds them: settings by the name of their class, never code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.deep import (
    ColourJitter,
    Cosine,
    CosineMargin,
    CrossEntropy,
    Cutout,
    Milestones,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Training,
    VariationalTree,
)
from gptree.estimators.feature_map import FEATURE_MAPS, SphereMap, UnitLength
from gptree.experts import LDA, KernelDensity, KernelRidge, Pool, RandomFeatures, Ridge
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
from gptree.model.persistence import StorageError
from gptree.tree import BalancedTwoMeans, Chain, ClassTree, RandomBalanced, TwoMeans, Ward

#: Settings that a parameter may hold, by the name they are stored under.
VALUES: dict[str, Any] = {
    value.__name__: value
    for value in (
        Gibbs,
        CoordinateAscent,
        SparseVariational,
        LearnKernel,
        SubsetOfData,
        InducingPoints,
        TwoMeans,
        BalancedTwoMeans,
        RandomBalanced,
        Chain,
        Ward,
        Pool,
        LDA,
        KernelRidge,
        KernelDensity,
        RandomFeatures,
        Ridge,
        Growth,
        SharedRoot,
        SessionTree,
        RebuildTree,
        Graft,
        KMeansExemplars,
        Herding,
        KMeansPlusPlusExemplars,
        Training,
        VariationalTree,
        Cosine,
        Milestones,
        CrossEntropy,
        CosineMargin,
        RandomCrop,
        RandomFlip,
        RandomResizedCrop,
        ColourJitter,
        Cutout,
    )
}
KERNEL = {"@": "kernel"}  # stands for a kernel object, which is stored beside the parameters


def encode(name: str, value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic():
            return value.item()
        case np.ndarray() | list() | tuple():
            return [encode(name, item) for item in value]
        case Kernel():
            return KERNEL
        case ClassTree():
            return {"@": "ClassTree", **value.to_json()}
        case np.random.RandomState():
            return None  # the seed drawn from it is stored beside the parameters
        case SphereMap() | UnitLength():
            return next(key for key, family in FEATURE_MAPS.items() if type(value) is family)
    if is_dataclass(value) and VALUES.get(type(value).__name__) is type(value):
        return {"@": type(value).__name__} | {f.name: encode(name, getattr(value, f.name)) for f in fields(value)}
    raise StorageError(
        f"the parameter {name} holds {value!r}, which cannot be stored without code (no pickles are written). "
        "Apply your own transformer before the estimator, in a Pipeline, and save the two separately."
        if name == "feature_map"
        else f"the parameter {name} holds {value!r}, which cannot be stored without code (no pickles are written)."
    )


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    name = value["@"]
    if value == KERNEL:
        return None
    rest = {key: item for key, item in value.items() if key != "@"}
    if name == "ClassTree":
        return ClassTree.from_json(rest)
    if name not in VALUES:
        raise StorageError(f"the stored setting {name!r} is unknown to this version of gptree.")
    values = {key: decode(item) for key, item in rest.items()}
    # a settings value is hashable, so its sequences are tuples
    return VALUES[name](**{key: tuple(item) if isinstance(item, list) else item for key, item in values.items()})


def labels_to_json(labels: np.ndarray) -> dict[str, Any]:
    values = labels.tolist()
    if not all(isinstance(value, bool | int | float | str) for value in values):
        raise StorageError("labels must be numbers, strings or booleans to be stored.")
    return {"dtype": labels.dtype.str if labels.dtype.kind != "O" else "object", "values": values}


def labels_from_json(data: Mapping[str, Any]) -> np.ndarray:
    return np.array(data["values"], dtype=np.dtype(data["dtype"]))


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = prefix + "."
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
