"""Models on disk: one folder, one versioned JSON document, one safetensors file. No code is stored, none is run.

The arrays are written first, under a name made of their content; then the document that names them is written under a
temporary name and renamed over the old one. Whatever is interrupted, the folder holds the old model or the new one.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpytorch.kernels
import torch
from gpytorch.kernels import Kernel
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gptree.inference import (
    DensePosterior,
    Diagnostics,
    Grams,
    LinearPosterior,
    NodePredictor,
    SparsePosterior,
)
from gptree.maths.kernels import node_kernels
from gptree.model.forest import ForestModel
from gptree.tree import ClassTree

FORMAT = "gptree"
VERSION = 2
DOCUMENT = "model.json"
_OWN_FILES = re.compile(r"arrays-\w+\.safetensors|\.(arrays|model\.json)-\d+\.tmp")  # beside the document

_POSTERIORS = {family.kind: family for family in (DensePosterior, LinearPosterior, SparsePosterior)}
_POSTERIOR_TENSORS = {"dense": ("omega",), "linear": ("omega",), "sparse": ("precision",)}

#: GPyTorch kernels that can be rebuilt from their name, and the constructor arguments each one needs.
_KERNEL_ARGUMENTS = {
    "RBFKernel": ("ard_num_dims",),
    "MaternKernel": ("nu", "ard_num_dims"),
    "RQKernel": ("ard_num_dims",),
    "PeriodicKernel": ("ard_num_dims",),
    "CosineKernel": (),
    "ConstantKernel": (),
    "LinearKernel": ("ard_num_dims",),
    "PolynomialKernel": ("power",),
    "ScaleKernel": (),
    "AdditiveKernel": (),
    "ProductKernel": (),
}


class StorageError(ValueError):
    """A folder that holds no model, a damaged one, or one of a version that cannot be read."""


# ------------------------------------------------------------------------------------------------------- folders


def write_folder(folder: str | Path, document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write document and tensors; an interrupted write leaves what was there before."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not _is_ours(folder):
        raise StorageError(f"{folder} holds other files: save a model into an empty or a new folder.")
    temporary = folder / f".arrays-{os.getpid()}.tmp"
    stored, aliases = _without_copies(tensors)
    save_file(stored, temporary)
    digest = _digest(temporary)
    arrays = folder / f"arrays-{digest[:16]}.safetensors"
    _sync(temporary)
    os.replace(temporary, arrays)
    arrays_document = {"arrays": arrays.name, "sha256": digest, "aliases": aliases}
    complete = {"format": FORMAT, "version": VERSION, **arrays_document, **document}
    complete["checksum"] = _checksum(complete)
    draft = folder / f".{DOCUMENT}-{os.getpid()}.tmp"
    draft.write_text(json.dumps(complete, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    _sync(draft)
    os.replace(draft, folder / DOCUMENT)
    for stale in folder.iterdir():
        if stale != arrays and _OWN_FILES.fullmatch(stale.name):
            stale.unlink()


def _is_ours(folder: Path) -> bool:
    """A folder with a model of ours, with what an interrupted write left, or with nothing."""
    if (folder / DOCUMENT).exists():
        try:
            return json.loads((folder / DOCUMENT).read_text(encoding="utf-8"))["format"] == FORMAT
        except (ValueError, LookupError, TypeError):
            return False
    return all(_OWN_FILES.fullmatch(file.name) for file in folder.iterdir())


def read_folder(folder: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Document and tensors, checked; `StorageError` says what is wrong with a folder."""
    folder = Path(folder)
    path = folder / DOCUMENT
    if not path.is_file():
        raise StorageError(f"{folder} holds no gptree model: there is no {DOCUMENT} in it.")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise StorageError(f"{path} is damaged: it is not valid JSON ({error}).") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise StorageError(f"{path} was not written by gptree.")
    version = document.get("version")
    if version != VERSION:
        raise StorageError(
            f"{folder} holds a model of format version {version}; this gptree reads version {VERSION}. "
            "Load it with the gptree that wrote it, or install a newer gptree."
        )
    if document.pop("checksum", None) != _checksum(document):
        raise StorageError(f"{path} is damaged: its content differs from what was written.")
    arrays = folder / Path(str(document.get("arrays"))).name
    if not arrays.is_file():
        raise StorageError(f"{folder} is damaged: {arrays.name} is missing.")
    if _digest(arrays) != document.get("sha256"):
        raise StorageError(f"{arrays} is damaged: its checksum differs from the one in {DOCUMENT}.")
    try:
        # copied, so that they start where fresh arrays do: products may differ in the last bit by alignment
        tensors = {name: value.clone() for name, value in load_file(arrays).items()}
        return document, tensors | {name: tensors[other] for name, other in document["aliases"].items()}
    except (SafetensorError, KeyError) as error:
        raise StorageError(f"{folder} is damaged: {error}.") from None


def _without_copies(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor once, and the names under which some appear again: experts share the features of the model."""
    stored: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    known: dict[tuple[Any, ...], str] = {}
    for name, value in tensors.items():
        value = value.detach()
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype)
        if value.numel() > 0 and place in known:
            aliases[name] = known[place]
        else:
            known[place] = name
            stored[name] = value.cpu().clone(memory_format=torch.contiguous_format)
    return stored, aliases


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


# -------------------------------------------------------------------------------------------------------- kernels


def kernel_to_parts(kernel: Kernel, name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A kernel as a document and tensors whose names start with `name`."""
    structure = _structure(kernel)
    if structure is not None and _makeup(_rebuild(structure)) != _makeup(kernel):
        structure = None  # with constraints or priors of its author's
    document = {
        "structure": structure,
        "class": f"{type(kernel).__module__}.{type(kernel).__qualname__}",
        "sets": list(kernel.batch_shape),
    }
    return document, {f"{name}.{key}": value.reshape(-1).clone() for key, value in kernel.state_dict().items()}


def _makeup(kernel: Kernel) -> list[tuple[type, str]]:
    """Everything a kernel is made of but its numbers: sub-kernels, constraints and their transforms, priors."""
    return [(type(module), repr(getattr(module, "_transform", None))) for module in kernel.modules()]


def kernel_from_parts(
    document: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str, given: Kernel | None, dtype: torch.dtype
) -> Kernel:
    """The kernel again; one that GPyTorch does not have is made from a copy of `given`."""
    if given is None and document["structure"] is None:
        raise StorageError(
            f"the model was fitted with the kernel {document['class']}, which only your own code can make: "
            "pass one like it, load(folder, kernel=…); its hyper-parameters will be set from the file."
        )
    kernel = _rebuild(document["structure"]) if given is None else copy.deepcopy(given)
    if document["sets"] and not kernel.batch_shape:
        kernel = node_kernels(kernel, document["sets"][0])
    kernel = kernel.to(dtype=dtype)
    state = kernel.state_dict()
    stored = {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
    if state.keys() != stored.keys() or any(state[key].numel() != stored[key].numel() for key in state):
        raise StorageError(f"the kernel given does not fit the stored one, {document['class']}.")
    kernel.load_state_dict({key: stored[key].reshape(state[key].shape) for key in state})
    return kernel.eval()


def _structure(kernel: Kernel) -> dict[str, Any] | None:
    """How to rebuild a kernel of GPyTorch's own; None for one that only its author's code can make."""
    name = type(kernel).__name__
    known = name in _KERNEL_ARGUMENTS and type(kernel) is getattr(gpytorch.kernels, name)
    if not known or kernel.active_dims is not None:
        return None
    parts = getattr(kernel, "kernels", None) or [getattr(kernel, "base_kernel", None)]
    children = [_structure(part) for part in parts if part is not None]
    if any(child is None for child in children):
        return None
    given = {key: getattr(kernel, key) for key in _KERNEL_ARGUMENTS[name]}
    arguments = {key: value for key, value in given.items() if value is not None}
    return {"name": name, "arguments": arguments, "children": children}


def _rebuild(data: Mapping[str, Any]) -> Kernel:
    name = data["name"]
    if name not in _KERNEL_ARGUMENTS:
        raise StorageError(f"the stored kernel {name!r} is not one that gptree can rebuild.")
    children = [_rebuild(child) for child in data["children"]]
    arguments = {key: value for key, value in data["arguments"].items() if key in _KERNEL_ARGUMENTS[name]}
    return getattr(gpytorch.kernels, name)(*children, **arguments)


# --------------------------------------------------------------------------------------------------------- models


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
