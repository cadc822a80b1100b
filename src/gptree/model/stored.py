"""Fitted forests as JSON and tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.inference import DensePosterior, Diagnostics, Grams, LinearPosterior, NodePredictor, SparsePosterior
from gptree.model.forest import ForestModel
from gptree.storage import StorageError, kernel_from_parts, kernel_to_parts
from gptree.tree import ClassTree

_POSTERIORS = {family.kind: family for family in (DensePosterior, LinearPosterior, SparsePosterior)}
_POSTERIOR_TENSORS = {"dense": ("omega",), "linear": ("omega",), "sparse": ("precision",)}


def model_to_parts(model: ForestModel) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A fitted model as a JSON document and named tensors."""
    grams, posteriors = model.predictor.grams, model.predictor.posteriors
    kernel, tensors = kernel_to_parts(grams.kernel, "kernel")
    document = {
        "trees": [tree.to_json() for tree in model.trees],
        "posteriors": [posterior.kind for posterior in posteriors],
        "kernel": kernel,
        "memory_budget": model.memory_budget,
    }
    tensors["features"] = grams.X
    tensors |= {f"node_of.{t}": nodes for t, nodes in enumerate(model.node_of)}
    for i, posterior in enumerate(posteriors):
        for name in ("nodes", "rows", "weights", *_POSTERIOR_TENSORS[posterior.kind]):
            tensors[f"posterior.{i}.{name}"] = getattr(posterior, name)
    for name, value in vars(model.diagnostics).items():
        if value is not None:
            tensors[f"diagnostics.{name}"] = value
    return document, tensors


def model_from_parts(
    document: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    device: torch.device,
    kernel: Kernel | None = None,
) -> ForestModel:
    """The model again, on a device; `kernel` is needed only for kernels that GPyTorch does not have."""
    try:
        X = tensors["features"].to(device)
        fitted = kernel_from_parts(document["kernel"], tensors, "kernel", kernel, X.dtype)
        grams = Grams(fitted.to(device), X, document["memory_budget"] // 4)
        posteriors = []
        for i, kind in enumerate(document["posteriors"]):
            names = ("nodes", "rows", "weights", *_POSTERIOR_TENSORS[kind])
            parts = {name: tensors[f"posterior.{i}.{name}"].to(device) for name in names}
            posteriors.append(_POSTERIORS[kind](**parts))
        diagnostics = {
            name.removeprefix("diagnostics."): value
            for name, value in tensors.items()
            if name.startswith("diagnostics.")
        }
        trees = tuple(ClassTree.from_json(tree) for tree in document["trees"])
        return ForestModel(
            trees=trees,
            node_of=tuple(tensors[f"node_of.{t}"].to(device) for t in range(len(trees))),
            predictor=NodePredictor(grams, posteriors, document["memory_budget"]),
            diagnostics=Diagnostics(**diagnostics),
            memory_budget=document["memory_budget"],
        )
    except (KeyError, TypeError) as error:
        raise StorageError(f"the stored model is incomplete or damaged: {error!r}.") from None
