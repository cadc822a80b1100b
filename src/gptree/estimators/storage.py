"""Trees and forests to and from folders: parameters and labels as JSON, arrays as tensors (see `gptree.storage`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

import gptree
from gptree.estimators.feature_map import FEATURE_MAPS, SphereMap, UnitLength
from gptree.estimators.state import FittedState
from gptree.incremental import (
    BaseState,
    Entry,
    GrownState,
)
from gptree.model.stored import model_from_parts, model_to_parts
from gptree.storage import (
    KERNEL,
    StorageError,
    as_tuples,
    below,
    check_load_arguments,
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
    """Write a fitted tree or forest into a folder."""
    parameters = {name: encode(name, value) for name, value in estimator.get_params(deep=False).items()}
    document, tensors = state_to_parts(estimator.state_)
    names = getattr(estimator, "feature_names_in_", None)
    document |= {
        "gptree": gptree.__version__,
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        "n_features": estimator.n_features_in_,
        "feature_names": None if names is None else [str(name) for name in names],
    }
    if isinstance(estimator.kernel, Kernel):
        document["parameter_kernel"], kernel_tensors = kernel_to_parts(estimator.kernel, "parameter_kernel")
        tensors |= kernel_tensors
    write_folder(folder, document, tensors)


def load_estimator(
    folder: str | Path,
    classes: Mapping[str, type],
    kernel: Kernel | None,
    settings: Sequence[type],
    device: str | None,
) -> Any:
    """Read a tree or a forest, one of the given classes by name."""
    check_load_arguments(kernel, settings)
    document, tensors = read_folder(folder)
    name = str(document.get("estimator"))
    if name not in classes:
        raise StorageError(f"{folder} holds a {name}; this call loads {' or '.join(sorted(classes))}.")
    try:
        estimator = classes[name](**{key: decode(value, settings) for key, value in document["parameters"].items()})
        if device is not None:
            estimator.device = device
        if document["parameters"]["kernel"] == KERNEL:
            estimator.kernel = kernel_from_parts(
                document["parameter_kernel"], tensors, "parameter_kernel", kernel, torch.get_default_dtype()
            )
        estimator.n_features_in_ = document["n_features"]
        if document["feature_names"] is not None:
            estimator.feature_names_in_ = np.array(document["feature_names"], dtype=object)
        estimator.state_ = state_from_parts(document, tensors, estimator._placement()[1], kernel)
    except (KeyError, TypeError) as error:
        raise StorageError(f"{folder} is damaged or incomplete: {error!r}.") from None
    return estimator


# ------------------------------------------------------------------------------------------------- the fitted state


def state_to_parts(state: FittedState) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A fitted state as a JSON document and tensors by name."""
    document, tensors = model_to_parts(state.model)
    map_document, map_tensors = _feature_map_to_parts(state.feature_map)
    document |= {
        "classes": labels_to_json(state.classes),
        "seed": state.seed,
        "feature_map": map_document,
        "experts": _record_to_parts(state.experts, "experts", tensors),
        "journal": [
            {"kind": e.kind, "labels": e.labels, "counts": e.counts, "time": e.time, "note": e.note, "rows": e.rows}
            for e in state.journal
        ],
        "base": None if state.base is None else _base_to_parts(state.base, tensors),
    }
    tensors |= map_tensors
    tensors |= {"y": torch.as_tensor(state.y), "origins": torch.as_tensor(state.origins)}
    for i, entry in enumerate(state.journal):
        tensors |= present(f"journal.{i}", features=entry.features)
    if state.base is None:
        tensors |= present("fit", left_out=state.left_out)
    if state.grown is not None:
        tensors |= present("grown", rows=state.grown.rows, y=state.grown.y, left_out=state.grown.left_out)
    if state.class_log_prior is not None:
        tensors["class_log_prior"] = torch.as_tensor(state.class_log_prior)
    return document, tensors


def state_from_parts(
    document: Mapping[str, Any], tensors: Mapping[str, Tensor], device: torch.device, kernel: Kernel | None
) -> FittedState:
    """The fitted state again, on a device; `kernel` is needed for kernels of the user's own."""
    on_device = {name: value.to(device) for name, value in tensors.items()}
    journal = tuple(
        _entry_from_parts(entry, on_device.get(f"journal.{i}.features")) for i, entry in enumerate(document["journal"])
    )
    base = None
    if document["base"] is not None:
        base = _base_from_parts(document["base"], on_device, journal[0].labels, device, kernel)
    prior = tensors.get("class_log_prior")
    state = FittedState(
        classes=labels_from_json(document["classes"]),
        seed=document["seed"],
        feature_map=_feature_map_from_parts(document["feature_map"], tensors, document["n_features"]),
        model=model_from_parts(document, tensors, device, kernel),
        experts=_record_from_parts(document["experts"], on_device, "experts"),
        left_out=on_device.get("fit.left_out") if base is None else base.left_out,
        y=tensors["y"].numpy(),
        origins=tensors["origins"].numpy(),
        journal=journal,
        class_log_prior=None if prior is None else prior.numpy(),
        base=base,
    )
    if "grown.rows" not in on_device:
        return state
    memory = (on_device["grown.rows"], on_device["grown.y"], on_device.get("grown.left_out"))
    return replace(state, grown=GrownState(state.registry(), state.model, state.experts, *memory))


def _record_to_parts(record: Any, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any] | None:
    """The settings of a fitted expert, whose tensors are added to `tensors`."""
    if record is None:
        return None
    record_tensors, settings = record.state()
    tensors |= present(prefix, **record_tensors)
    return settings


def _record_from_parts(settings: dict[str, Any] | None, tensors: Mapping[str, Tensor], prefix: str) -> Any:
    if settings is None:
        return None
    try:
        return restore(below(prefix, tensors), settings)
    except ValueError as error:
        raise StorageError(str(error)) from None


def _entry_from_parts(entry: Mapping[str, Any], features: Tensor | None) -> Entry:
    return Entry(**{key: as_tuples(value) for key, value in entry.items()}, features=features)


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
    if type(feature_map) is not SphereMap:  # set_params may have changed the parameter since the fit
        raise StorageError(f"the fitted feature map {feature_map!r} cannot be stored without code.")
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
