"""Kernels of the nodes of a model whose new nodes have another kernel than those of its base session."""

from __future__ import annotations

import copy
from typing import Any

import torch
from gpytorch.kernels import Kernel


@torch.no_grad()
def joined_kernels(before: Kernel, new: Kernel) -> Kernel:
    """Kernels with a set of hyper-parameters for each of some nodes, and those of further nodes, as one.

    Raises
    ------
    ValueError
        If the two differ in more than numbers.
    """
    if _makeup(before) != _makeup(new):
        raise ValueError(
            "the kernel of new nodes must be of the same kind as that of the base session, with other numbers: an RBF "
            f"kernel goes with an RBF kernel. The base session has {before}, the new nodes {new}."
        )
    joined, sets = copy.deepcopy(before), torch.Size([before.batch_shape[0] + new.batch_shape[0]])
    parts = zip(joined.modules(), before.modules(), new.modules(), strict=True)
    for module, first, second in parts:
        if isinstance(module, Kernel):
            module.batch_shape = sets
        for name, parameter in first.named_parameters(recurse=False):
            together = torch.cat([parameter, second.get_parameter(name)])
            setattr(module, name, torch.nn.Parameter(together, requires_grad=False))
    return joined


def _makeup(kernel: Kernel) -> list[tuple[type, dict[str, Any]]]:
    """Everything a kernel is made of but its parameters: the parts, and their plain settings, such as ν."""
    return [
        (type(part), {k: v for k, v in vars(part).items() if k != "training" and isinstance(v, bool | int | float)})
        for part in kernel.modules()
    ]
