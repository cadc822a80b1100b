"""Estimators to and from folders: parameters and labels as JSON, arrays as tensors (see `gptree.model.persistence`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

import gptree
from gptree.estimators.feature_map import FEATURE_MAPS, SphereMap, UnitLength
from gptree.incremental import (
    BaseState,
    Entry,
    GrownState,
)
from gptree.model.stored import model_from_parts, model_to_parts
from gptree.storage import (
    KERNEL,
    StorageError,
    below,
    decode,
    encode,
    kernel_from_parts,
    kernel_to_parts,
    labels_from_json,
    labels_to_json,
    present,
    read_folder,
    restore,
    write_folder,
)

_BASE_TENSORS = ("y", "stands_for", "exemplars", "exemplar_weights", "left_out")


def save_estimator(estimator: Any, folder: str | Path) -> None:
    """Write a fitted estimator into a folder."""
    parameters = {name: encode(name, value) for name, value in estimator.get_params(deep=False).items()}
    document, tensors = model_to_parts(estimator.model_)
    map_document, map_tensors = _feature_map_to_parts(estimator.feature_map_)
    names = getattr(estimator, "feature_names_in_", None)
    document |= {
        "gptree": gptree.__version__,
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        "classes": labels_to_json(estimator.classes_),
        "seed": estimator.seed_,
        "n_features": estimator.n_features_in_,
        "feature_names": None if names is None else [str(name) for name in names],
        "feature_map": map_document,
    }
    tensors |= map_tensors
    if isinstance(estimator.kernel, Kernel):
        document["parameter_kernel"], kernel_tensors = kernel_to_parts(estimator.kernel, "parameter_kernel")
        tensors |= kernel_tensors
    tensors["y"] = torch.as_tensor(estimator.y_)
    tensors["origins"] = torch.as_tensor(estimator.origins_)
    document["experts"] = _record_to_parts(estimator.experts_, "experts", tensors)
    document["journal"] = [
        {"kind": e.kind, "labels": e.labels, "counts": e.counts, "time": e.time, "note": e.note, "rows": e.rows}
        for e in estimator.journal_
    ]
    for i, entry in enumerate(estimator.journal_):
        tensors |= present(f"journal.{i}", features=entry.features)
    document["base"] = None if estimator.base_ is None else _base_to_parts(estimator.base_, tensors)
    if estimator.base_ is None:
        tensors |= present("fit", left_out=estimator.left_out_)
    if estimator.grown_ is not None:
        grown = estimator.grown_
        tensors |= present("grown", rows=grown.rows, y=grown.y, left_out=grown.left_out)
    if estimator.class_log_prior_ is not None:
        tensors["class_log_prior"] = torch.as_tensor(estimator.class_log_prior_)
    write_folder(folder, document, tensors)


def load_estimator(folder: str | Path, classes: Mapping[str, type], kernel: Kernel | None, device: str | None) -> Any:
    """Read an estimator of one of the given classes (by name)."""
    document, tensors = read_folder(folder)
    name = str(document.get("estimator"))
    if name not in classes:
        raise StorageError(f"{folder} holds a {name}; this call loads {' or '.join(sorted(classes))}.")
    try:
        parameters = {key: decode(value) for key, value in document["parameters"].items()}
        estimator = classes[name](**parameters)
        if device is not None:
            estimator.device = device
        _, place = estimator._place()
        estimator.model_ = model_from_parts(document, tensors, place, kernel)
        if document["parameters"]["kernel"] == KERNEL:
            estimator.kernel = kernel_from_parts(
                document["parameter_kernel"], tensors, "parameter_kernel", kernel, torch.get_default_dtype()
            )
        estimator.classes_ = labels_from_json(document["classes"])
        estimator.seed_ = document["seed"]
        estimator.n_features_in_ = document["n_features"]
        if document["feature_names"] is not None:
            estimator.feature_names_in_ = np.array(document["feature_names"], dtype=object)
        estimator.feature_map_ = _feature_map_from_parts(document["feature_map"], tensors, estimator.n_features_in_)
        estimator.y_ = tensors["y"].numpy()
        estimator.origins_ = tensors["origins"].numpy()
        there = {name: value.to(place) for name, value in tensors.items()}
        estimator.experts_ = _record_from_parts(document["experts"], there, "experts")
        estimator.journal_ = tuple(
            _entry_from_parts(entry, there.get(f"journal.{i}.features")) for i, entry in enumerate(document["journal"])
        )
        estimator.base_ = None
        if document["base"] is not None:
            estimator.base_ = _base_from_parts(document["base"], there, estimator.journal_[0].labels, place, kernel)
        estimator.left_out_ = there.get("fit.left_out") if estimator.base_ is None else estimator.base_.left_out
        estimator.grown_ = None
        if "grown.rows" in there:
            state = estimator._registry(estimator.journal_)
            parts = (there["grown.rows"], there["grown.y"], there.get("grown.left_out"))
            estimator.grown_ = GrownState(state, estimator.model_, estimator.experts_, *parts)
        prior = tensors.get("class_log_prior")
        estimator.class_log_prior_ = None if prior is None else prior.numpy()
    except (KeyError, TypeError) as error:
        raise StorageError(f"{folder} is damaged or incomplete: {error!r}.") from None
    return estimator


# ----------------------------------------------------------------------------------------------------- parameters


def _record_to_parts(record: Any, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any] | None:
    """The settings of a fitted expert, whose tensors are added to `tensors`."""
    if record is None:
        return None
    own, settings = record.state()
    tensors |= present(prefix, **own)
    return settings


def _record_from_parts(settings: dict[str, Any] | None, tensors: Mapping[str, Tensor], prefix: str) -> Any:
    if settings is None:
        return None
    try:
        return restore(below(prefix, tensors), settings)
    except ValueError as error:
        raise StorageError(str(error)) from None


def _entry_from_parts(entry: Mapping[str, Any], features: Tensor | None) -> Entry:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Entry(**values, features=features)


def _base_to_parts(base: BaseState, tensors: dict[str, Tensor]) -> dict[str, Any]:
    document, model = model_to_parts(base.model)
    tensors |= present("base.model", **model)
    tensors |= present("base", **{name: getattr(base, name) for name in _BASE_TENSORS})
    return {
        "model": document,
        "expert": _record_to_parts(base.expert, "base.expert", tensors),
        "novel_experts": _record_to_parts(base.novel_experts, "base.novel_experts", tensors),
        "novelty": _record_to_parts(base.novelty, "base.novelty", tensors),
    }


def _base_from_parts(
    document: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    keys: tuple[Any, ...],
    place: torch.device,
    kernel: Kernel | None,
) -> BaseState:
    return BaseState(
        keys=keys,
        model=model_from_parts(document["model"], below("base.model", tensors), place, kernel),
        expert=_record_from_parts(document["expert"], tensors, "base.expert"),
        novel_experts=_record_from_parts(document["novel_experts"], tensors, "base.novel_experts"),
        novelty=_record_from_parts(document["novelty"], tensors, "base.novelty"),
        **{name: tensors.get(f"base.{name}") for name in _BASE_TENSORS},  # pyright: ignore[reportArgumentType]
    )


def _feature_map_to_parts(feature_map: Any) -> tuple[dict[str, Any] | None, dict[str, Tensor]]:
    if feature_map is None:
        return None, {}
    if type(feature_map) is UnitLength:
        return {"name": "unit"}, {}
    assert type(feature_map) is SphereMap  # anything else was refused when the parameters were encoded
    mean = {"feature_map.mean": torch.as_tensor(feature_map.mean_)}
    return {"name": "sphere", "non_negative": feature_map.non_negative_}, mean


def _feature_map_from_parts(data: Mapping[str, Any] | None, tensors: Mapping[str, Tensor], width: int) -> Any:
    if data is None:
        return None
    feature_map = FEATURE_MAPS[data["name"]]()
    feature_map.n_features_in_ = width
    if isinstance(feature_map, SphereMap):
        feature_map.non_negative_ = data["non_negative"]
        feature_map.mean_ = tensors["feature_map.mean"].numpy()
    return feature_map
