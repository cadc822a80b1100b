"""GPyTorch kernels as JSON and tensors."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import gpytorch.kernels
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.maths.kernels import batch_shape, node_kernels, scaled
from gptree.storage.errors import StorageError, ensure

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
#: How many kernels those are made of that are made of others.
_CHILDREN = {"ScaleKernel": (1, 1), "AdditiveKernel": (1, 64), "ProductKernel": (1, 64)}


#: Hyper-parameters of a stored kernel lie between these. Kernels that are nested more deeply, or have more parts, are
#: not rebuilt: GPyTorch's work doubles with every level.
SMALLEST, LARGEST = 1e-9, 1e12
DEPTH, PARTS = 6, 64


def kernel_to_parts(kernel: Kernel, name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A kernel as a document and tensors whose names start with `name`."""
    structure = _structure(kernel)
    if structure is not None and (_too_large(kernel) or _makeup(_rebuild(structure)) != _makeup(kernel)):
        structure = None  # or with constraints or priors of its author's
    document = {
        "structure": structure,
        "class": f"{type(kernel).__module__}.{type(kernel).__qualname__}",
        "sets": list(batch_shape(kernel)),
    }
    return document, {f"{name}.{key}": value.reshape(-1).clone() for key, value in kernel.state_dict().items()}


def _makeup(kernel: Kernel) -> list[tuple[type, str]]:
    """Everything a kernel is made of but its numbers: sub-kernels, constraints and their transforms, priors."""
    return [(type(module), repr(getattr(module, "_transform", None))) for module in kernel.modules()]


def kernel_from_parts(
    document: Any,
    tensors: Mapping[str, Tensor],
    name: str,
    given: Kernel | None,
    dtype: torch.dtype,
    width: int | None = None,
    nodes: int | None = None,
) -> Kernel:
    """The kernel again; one that GPyTorch does not have is made from a copy of `given`.

    Parameters
    ----------
    document, tensors, name
        As `kernel_to_parts` has them.
    given : Kernel or None
    dtype : torch.dtype
    width, nodes : int, optional
        How many features it is for, and, if it has hyper-parameters for every node, how many nodes.
    """
    keys = {"structure", "class", "sets"}
    ensure(isinstance(document, Mapping) and document.keys() == keys, f"{name} is no stored kernel.")
    structure, sets = document["structure"], document["sets"]
    stored = {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
    most = max((value.numel() for value in stored.values()), default=0)
    counts = isinstance(sets, list) and len(sets) <= 1 and all(type(n) is int and 0 <= n <= most for n in sets)
    ensure(counts and (not sets or nodes in (None, *sets)), f"{name} has hyper-parameters for {sets!r:.80} nodes.")
    if structure is not None:
        _check_structure(structure, name, most if width is None else width, exact=width is not None)
    elif given is None:
        raise StorageError(
            f"the model was fitted with the kernel {document['class']!s:.80}, which only your own code can make: "
            "pass one like it, load_model(folder, kernel=…); its hyper-parameters will be set from the file."
        )
    kernel = copy.deepcopy(given) if given is not None else _rebuild(structure)  # pyright: ignore[reportArgumentType]
    if sets and not batch_shape(kernel):
        kernel = node_kernels(kernel, sets[0])
    kernel = kernel.to(dtype=dtype)
    state = {key: value.clone() for key, value in kernel.state_dict().items()}
    fits = state.keys() == stored.keys() and all(state[key].numel() == stored[key].numel() for key in state)
    ensure(fits, f"the kernel given does not fit the stored one, {document['class']!s:.80}.")
    kernel.load_state_dict({key: stored[key].reshape(state[key].shape) for key in state})
    now = kernel.state_dict()
    for key in state.keys() - dict(kernel.named_parameters()).keys():  # bounds of constraints, columns it looks at
        free = given is not None and state[key].is_floating_point()
        ensure(free or torch.equal(now[key], state[key]), f"{name}.{key} differs from that of such a kernel.")
    _check_hyper_parameters(kernel, name)
    return kernel.eval()


def _check_structure(structure: Any, name: str, width: int, exact: bool) -> None:
    """A `StorageError` unless a kernel can be made of it: known parts, few of them, for so many features (at most)."""
    level, parts = [structure], 0
    for _ in range(DEPTH):
        following: list[Any] = []
        for part in level:
            shaped = isinstance(part, dict) and part.keys() == {"name", "arguments", "children"}
            ensure(shaped and isinstance(part["children"], list), f"{name} has a part that is no kernel.")
            kind, arguments, children = str(part["name"]), part["arguments"], part["children"]
            ensure(kind in _KERNEL_ARGUMENTS, f"the stored kernel {kind!r:.80} is not one that gptree can rebuild.")
            few, many = _CHILDREN.get(kind, (0, 0))
            ensure(few <= len(children) <= many, f"{name} has a {kind} of {len(children)} kernels.")
            known = isinstance(arguments, dict) and arguments.keys() <= set(_KERNEL_ARGUMENTS[kind])
            ensure(known, f"{name} has a {kind} with the arguments {arguments!r:.80}.")
            dims = arguments.get("ard_num_dims")
            fits = dims is None or (type(dims) is int and (dims == width if exact else 1 <= dims <= width))
            ensure(fits, f"{name} has a {kind} for {dims!r:.80} features.")
            smooth, power = arguments.get("nu", 0.5), arguments.get("power", 1)
            ensure(smooth in (0.5, 1.5, 2.5), f"{name} has a {kind} with nu={smooth!r:.80}.")
            ensure(type(power) is int and 1 <= power <= 20, f"{name} has a {kind} with power={power!r:.80}.")
            following += children
        level, parts = following, parts + len(level)
        ensure(parts + len(level) <= PARTS, f"{name} has more than {PARTS} parts.")
    ensure(not level, f"{name} is nested more than {DEPTH} deep.")


def _check_hyper_parameters(kernel: Kernel, name: str) -> None:
    for label, raw, constraint in kernel.named_parameters_and_constraints():
        ensure(bool(torch.isfinite(raw).all()), f"{name}.{label} holds numbers that are not finite.")
        value = (raw if constraint is None else constraint.transform(raw)).detach()
        if constraint is not None and value.numel() > 0:
            low, high = (end.item() for end in value.aminmax())
            within = low >= SMALLEST and high <= LARGEST
            ensure(within, f"{name}.{label} stands for {low:.3g} … {high:.3g}, which no kernel can use.")


def _too_large(kernel: Kernel) -> bool:
    """Whether a kernel is nested too deeply, or has too many parts, to be rebuilt."""
    names = [name for name, module in kernel.named_modules() if isinstance(module, Kernel)]
    depth = 1 + max(len([part for part in name.split(".") if part in ("base_kernel", "kernels")]) for name in names)
    return depth > DEPTH or len(names) > PARTS


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
    children = [_rebuild(child) for child in data["children"]]
    kind = scaled if data["name"] == "ScaleKernel" else getattr(gpytorch.kernels, data["name"])
    return kind(*children, **data["arguments"])
