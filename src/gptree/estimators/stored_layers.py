"""Layers on top of a network as JSON and tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.deep import Objective, ObjectiveLayer, TreeHead, VariationalTree, WeightedEnsemble
from gptree.deep.heads.gp_tree import LARGEST_JITTER
from gptree.estimators.deep_state import DeepState
from gptree.storage import (
    Array,
    Sizes,
    StorageError,
    agree,
    below,
    decode,
    encode,
    ensure,
    kernel_from_parts,
    kernel_to_parts,
)
from gptree.tree import ClassTree

#: No number of a layer is larger.
LARGEST = 1e9


def layer_to_json(layer: Any) -> dict[str, Any]:
    """All of a layer but its tensors. Kernel and settings are its own: parameters may have changed since the fit."""
    if isinstance(layer, TreeHead):
        kernel, _ = kernel_to_parts(layer.kernel, "kernel")  # its numbers are among the layer's
        return {
            "tree": layer.tree.to_json(),
            "settings": encode_setting("variational", layer.settings),
            "kernel": kernel,
        }
    return {"tree": None, "settings": encode_setting("training", layer.objective)}


def ensemble_from_parts(
    documents: Any,
    tensors: dict[str, Tensor],
    state: DeepState,
    width: int | None,
    given: Kernel | None,
    settings: Sequence[type],
) -> WeightedEnsemble:
    ensure(isinstance(documents, list) and len(documents) > 0, "there are no layers.")
    sizes = {"C": len(state.labels), "K": len(documents)} | ({} if width is None else {"d": width})
    weights = Array("K", least=0).check("ensemble.weights", tensors.get("weights"), sizes)
    parts = ((document, below(f"layers.{k}", tensors)) for k, document in enumerate(documents))
    ensemble = WeightedEnsemble(*(_layer_from_parts(*part, state, sizes, given, settings) for part in parts))
    ensemble.weights.copy_(weights)
    return ensemble


def _layer_from_parts(
    document: Any,
    tensors: dict[str, Tensor],
    state: DeepState,
    sizes: Sizes,
    given: Kernel | None,
    settings_classes: Sequence[type],
) -> TreeHead | ObjectiveLayer:
    ensure(isinstance(document, dict) and {"tree", "settings"} <= document.keys(), "a layer is incomplete.")
    settings = decode(document["settings"], settings_classes)
    place = state.device
    if document["tree"] is None:
        ensure(isinstance(settings, Objective), "a layer has no objective.")
        weight = Array("outputs d").check("weight", tensors.get("weight"), dict(sizes))
        layer: Any = settings.layer(weight.shape[1], sizes["C"], 0, weight.dtype)
    else:
        complete = isinstance(settings, VariationalTree) and isinstance(document.get("kernel"), dict)
        ensure(complete, "a layer is no tree.")
        own = document["kernel"].get("structure") is None
        points = Array("P d").check("points", tensors.get("points"), sizes)
        point_class = Array("P", below="C").check("point_class", tensors.get("point_class"), sizes)
        tree = ClassTree.from_json(document["tree"])
        agree("the tree of a layer", sizes, "C", tree.n_classes)
        _check_precisions(tree, point_class, settings.cap, tensors)
        nodes, given = tree.n_nodes, given if own else None
        kernel = kernel_from_parts(document["kernel"], tensors, "kernel", given, points.dtype, sizes["d"], nodes)
        counts = torch.ones(tree.n_classes, dtype=torch.long)
        layer = TreeHead(tree, points, point_class, counts, kernel, settings)
    _check_layer(layer, tensors)
    layer = layer.to(place)
    layer.load_state_dict(tensors)  # every number of it
    return layer


def _check_precisions(tree: ClassTree, point_class: Tensor, cap: int | None, tensors: Mapping[str, Tensor]) -> None:
    """Raise unless there are about as many numbers of precision matrices as the nodes have, before these are made."""
    of_leaf = torch.bincount(point_class, minlength=tree.n_classes).numpy()[tree.order]
    ends = np.concatenate([[0], np.cumsum(of_leaf)])
    points = np.minimum(ends[tree.hi] - ends[tree.lo], np.inf if cap is None else cap)
    stored = sum(value.numel() for name, value in tensors.items() if name.startswith("precision_"))
    ensure(float(np.square(points.astype(float)).sum()) <= 4 * stored, "a layer lacks precision matrices.")


def _check_layer(layer: Any, tensors: Mapping[str, Tensor]) -> None:
    """Raise unless tensors are those of such a layer: what tree and points decide is equal, the rest is in range."""
    own = layer.state_dict()
    ensure(own.keys() == tensors.keys(), "a layer has other arrays than its kind.")
    for name, value in own.items():
        stored = tensors[name]
        fits = stored.shape == value.shape and stored.dtype == value.dtype
        ensure(fits, f"{name} of a layer has another shape or type.")
        if name.startswith("kernel."):
            continue
        if not value.is_floating_point():
            ensure(name == "skipped" or torch.equal(stored, value), f"{name} of a layer is not that of its tree.")
            continue
        least = {"rows": 1.0, "weight": -LARGEST if stored.dim() == 2 else 0.0, "jitter": 1e-12}.get(name, -LARGEST)
        most = LARGEST_JITTER if name == "jitter" else LARGEST
        low, high = (end.item() for end in stored.aminmax()) if stored.numel() > 0 else (least, most)
        ensure(least <= low and high <= most * 1.001, f"{name} of a layer holds {low} … {high}.")
        if name.startswith("precision_"):
            eye = torch.eye(stored.shape[-1], dtype=stored.dtype)
            more = stored - (1 - 1e-3) * eye
            sound = not bool(torch.linalg.cholesky_ex(more).info.any())
            ensure(sound, f"{name} of a layer is not I + (positive semi-definite).")


def encode_setting(name: str, value: Any) -> Any:
    try:
        return encode(name, value)
    except StorageError as error:
        raise StorageError(f"{error} Predictions do not need it: set_params({name}=…) to another, and save.") from None
