"""Networks of deep classifiers as a recipe and tensors."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from gptree.deep import Backbone, build_backbone
from gptree.estimators.deep_inputs import Inputs
from gptree.storage import StorageError, below, ensure, present

#: No number of a network is larger.
LARGEST = 1e9


def networks_to_parts(network: nn.Module, before: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The trained network; and the one before training, where its recipe does not make the same weights again."""
    tensors, recipe = present("network", **network.state_dict()), None
    if isinstance(network, Backbone) and type(network).__module__ == Backbone.__module__:
        made = build_backbone(network.recipe)
        if repr(made) == repr(network):  # nobody has changed it since
            recipe = network.recipe
            if repr(before) == repr(network) and not _equal(before.state_dict(), made.state_dict()):
                tensors |= present("backbone", **before.state_dict())
    return {"recipe": recipe, "class": f"{type(network).__module__}.{type(network).__qualname__}"}, tensors


def _equal(some: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> bool:
    return all(
        value.dtype == others[name].dtype and torch.equal(value.cpu(), others[name]) for name, value in some.items()
    )


def networks_from_parts(
    document: Any, tensors: Mapping[str, Tensor], inputs: Inputs, given: nn.Module | None
) -> tuple[nn.Module, nn.Module, int | None]:
    """The trained network, the one before training, and the width of embeddings where the file says it."""
    ensure(isinstance(document, dict) and document.keys() == {"recipe", "class"}, "there is no network.")
    recipe, name = document["recipe"], f"{document['class']!s:.80}"
    if given is None and recipe is None:
        raise StorageError(
            f"the network is a {name}, which only your own code can make: pass one like it, "
            "load(folder, backbone=…); its parameters will be set from the file."
        )
    stored, first, width = below("network", tensors), below("backbone", tensors), None
    for key, value in (*stored.items(), *first.items()):
        finite = not value.is_floating_point() or bool((value.abs() <= LARGEST).all())
        ensure(finite, f"the network has numbers in {key} that no network has.")
        ensure(not key.endswith("running_var") or bool((value >= 0).all()), f"{key} holds negative variances.")
    if given is None:
        width = _check_recipe(recipe, stored, inputs)
    before = build_backbone(recipe) if given is None else given
    network = _filled(before, stored, name)
    return network, _filled(before, first, name) if given is None and first else before, width


def _check_recipe(recipe: Any, tensors: Mapping[str, Tensor], inputs: Inputs) -> int:
    """The width of embeddings; raises before a network is made of more numbers than the file has."""
    ensure(isinstance(recipe, dict), "the recipe of the network is none.")
    for key, value in recipe.items():
        counts = value if isinstance(value, list) else [value]
        plain = all(isinstance(n, str | None) or (isinstance(n, int) and 0 <= n < 2**32) for n in counts)
        ensure(plain and len(counts) <= len(tensors), f"the recipe of the network has {key!s:.80}: {value!r:.80}.")
    name, channels, embedding = recipe.get("name"), recipe.get("channels", 1), recipe.get("embedding") or 0
    if name == "mlp":
        widths = [recipe["features"], *recipe["hidden"]]
        weights, takes = sum(a * b for a, b in pairwise(widths)), widths[0] == math.prod(inputs.shape)
    elif name == "convnet":
        widths = [recipe["width"]]
        weights = 9 * widths[0] * (channels + widths[0] * (recipe["depth"] - 1))
        takes = len(inputs.shape) == 3 and inputs.shape[0] == channels
    else:
        widths, weights = [512], 9 * 64 * channels
        takes = len(inputs.shape) == 3 and inputs.shape[0] == channels
    there = sum(value.numel() for value in tensors.values())
    ensure(weights + widths[-1] * embedding <= there, f"the recipe of the network asks for more than {there} numbers.")
    ensure(takes, f"the network does not take inputs of the shape {inputs.shape!r:.80}.")
    return embedding or widths[-1]


def _filled(like: nn.Module, tensors: Mapping[str, Tensor], name: str) -> nn.Module:
    """A copy of a network with the parameters and buffers given, in their dtypes."""
    network = copy.deepcopy(like)
    own = network.state_dict()
    faults = [f"the file has no {n}" for n in sorted(own.keys() - tensors.keys())]
    faults += [f"the backbone has no {n}" for n in sorted(tensors.keys() - own.keys())]
    for n in sorted(own.keys() & tensors.keys()):
        mine, stored = own[n], tensors[n]
        if mine.shape != stored.shape:
            faults.append(f"{n} is {tuple(mine.shape)} in the backbone and {tuple(stored.shape)} in the file")
        elif mine.is_floating_point() != stored.is_floating_point():
            faults.append(f"{n} is of {mine.dtype} in the backbone and of {stored.dtype} in the file")
    if faults:
        more = f", and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise StorageError(f"the backbone does not fit the stored network, {name}: {'; '.join(faults[:5])}{more}.")
    network.load_state_dict(tensors, assign=True)
    return network
