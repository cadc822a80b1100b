"""GPyTorch kernels as JSON and tensors."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import gpytorch.kernels
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.maths.kernels import node_kernels
from gptree.storage.folder import StorageError

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
            "pass one like it, load_model(folder, kernel=…); its hyper-parameters will be set from the file."
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
