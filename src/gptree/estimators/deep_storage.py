"""Deep classifiers to and from folders: settings as JSON, the network and what it carries as tensors.

A fitted `classifier` is saved by itself in a folder `classifier-…` within. The document names that folder and is
replaced last, so that an interrupted save leaves the old model whole.
"""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from gpytorch.kernels import Kernel
from sklearn.base import clone
from torch import Tensor, nn

import gptree
from gptree.deep import (
    Backbone,
    ObjectiveLayer,
    TreeHead,
    WeightedEnsemble,
    build_backbone,
)
from gptree.estimators.deep_inputs import Inputs
from gptree.estimators.deep_state import DeepState
from gptree.estimators.forest import TREE_CLASSIFIERS, GPForestClassifier, GPTreeClassifier
from gptree.estimators.storage import load_estimator
from gptree.settings import require
from gptree.storage import (
    DOCUMENT,
    StorageError,
    as_tuples,
    below,
    check_free,
    check_load_arguments,
    decode,
    encode,
    kernel_from_parts,
    kernel_to_parts,
    labels_from_json,
    labels_to_json,
    locked,
    present,
    read_folder,
    settled,
    write_folder,
)
from gptree.tree import ClassTree

#: In the place of an estimator's name while the first save into a folder is under way.
_UNFINISHED = "unfinished model"


def save_deep(estimator: Any, folder: str | Path) -> None:
    """Write a fitted estimator into a folder."""
    folder = Path(folder)
    document, tensors = _estimator_to_parts(estimator)
    check_free(folder)
    with locked(folder):
        if estimator.classifier_ is not None:
            if not (folder / DOCUMENT).exists():
                write_folder(folder, {"estimator": _UNFINISHED}, {})  # from here on the folder is known to be ours
            document["classifier"] = f"classifier-{1 + max(_classifiers(folder).values(), default=0)}"
            estimator.classifier_.save(folder / document["classifier"])
        write_folder(folder, document, tensors)
        for name in _classifiers(folder):
            if name != document["classifier"]:
                shutil.rmtree(folder / name, ignore_errors=True)


def _classifiers(folder: Path) -> dict[str, int]:
    """Folders of classifiers and their numbers: the one in use, and those of an interrupted save or of version 2."""
    matches = (re.fullmatch(r"(?:classifier|head)-([1-9]\d*)", path.name) for path in folder.iterdir())
    return {match[0]: int(match[1]) for match in matches if match}


def load_deep(
    family: Any,
    folder: str | Path,
    backbone: nn.Module | None,
    kernel: Kernel | None,
    settings: Sequence[type],
    device: str | None,
) -> Any:
    """Read an estimator of the class `family`."""
    check_load_arguments(kernel, settings)
    return settled(folder, lambda: _load(family, folder, backbone, kernel, settings, device))


def _load(
    family: Any,
    folder: str | Path,
    backbone: nn.Module | None,
    kernel: Kernel | None,
    settings: Sequence[type],
    device: str | None,
) -> Any:
    document, tensors = read_folder(folder)
    name = document.get("estimator")
    if name != family.__name__:
        raise StorageError(f"{folder} holds a {name}; this call loads {family.__name__}.")
    try:
        network, before = _networks_from_parts(document["network"], tensors, backbone)
        parameters = {name: decode(value, settings) for name, value in document["parameters"].items()}
        parameters["augment"] = tuple(parameters["augment"])
        own_kernel, parameters["kernel"] = _kernel_from_parts(document["kernel"], tensors, kernel)
        estimator = family(before, **parameters)
        if device is not None:
            estimator.device = device
        place = _place(estimator.device)
        network = network.to(place).eval()
        if place.type == "cuda":  # as in training
            network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        state = DeepState(
            network=network,
            labels=labels_from_json(document["classes"]),
            inputs=_inputs_from_json(document["inputs"]),
            seed=document["seed"],
            device=place,
            rows=tensors["rows"].numpy(),
            log=document["log"],
            best_epoch=document["best_epoch"],
        )
        if document["classifier"] is None:
            ensemble = _ensemble_from_parts(document["ensemble"], below("ensemble", tensors), state, kernel, settings)
            state = replace(state, ensemble=ensemble)
        else:
            inner = Path(folder) / document["classifier"]
            classifier = load_estimator(inner, TREE_CLASSIFIERS, None if own_kernel else kernel, settings, device)
            estimator.classifier = clone(classifier)
            state = replace(state, classifier=classifier)
        estimator.state_ = state
    except (KeyError, TypeError, RuntimeError) as error:  # the last from tensors that do not fit
        raise StorageError(f"{folder} is damaged or incomplete: {error!r}.") from None
    return estimator


def _estimator_to_parts(estimator: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A document, in which no classifier is named yet, and tensors."""
    classifier = estimator.classifier_
    if not isinstance(classifier, GPTreeClassifier | GPForestClassifier | None):
        raise StorageError(
            f"the classifier {classifier!r} cannot be stored without code (no pickles are written): classifiers "
            "that can are GPTreeClassifier and GPForestClassifier."
        )
    for name, value in ({} if classifier is None else classifier.get_params(deep=False)).items():
        encode(name, value)  # what cannot be stored shows before anything is written
    apart = ("backbone", "classifier", "kernel", "folder")
    parameters = {
        name: _encode(name, value) for name, value in estimator.get_params(deep=False).items() if name not in apart
    }
    parameters["folder"] = None if estimator.folder is None else str(estimator.folder)
    network, tensors = _networks_to_parts(estimator.network_, estimator.backbone)
    kernel = estimator.kernel
    if isinstance(kernel, Kernel):
        kernel, own = kernel_to_parts(kernel, "kernel")
        tensors |= own
    ensemble = estimator.ensemble_
    if ensemble is not None:
        tensors |= present("ensemble", **ensemble.state_dict())
    tensors["rows"] = torch.as_tensor(estimator.state_.rows)
    document = {
        "gptree": gptree.__version__,
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        "kernel": kernel,
        "network": network,
        "classes": labels_to_json(estimator.state_.labels),
        "seed": estimator.state_.seed,
        "log": estimator.state_.log,
        "best_epoch": estimator.state_.best_epoch,
        "inputs": vars(estimator.state_.inputs),
        "ensemble": None if ensemble is None else [_layer_to_json(layer) for layer in ensemble.layers],
        "classifier": None,
    }
    return document, tensors


# ------------------------------------------------------------------------------------------------------- networks


def _networks_to_parts(network: nn.Module, before: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
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


def _networks_from_parts(
    document: Mapping[str, Any], tensors: Mapping[str, Tensor], given: nn.Module | None
) -> tuple[nn.Module, nn.Module]:
    """The trained network, and the one before training."""
    if given is None and document["recipe"] is None:
        raise StorageError(
            f"the network is a {document['class']}, which only your own code can make: pass one like it, "
            "load(folder, backbone=…); its parameters will be set from the file."
        )
    before = build_backbone(document["recipe"]) if given is None else given
    network = _filled(before, below("network", tensors), document["class"])
    stored = below("backbone", tensors)
    return network, _filled(before, stored, document["class"]) if given is None and stored else before


def _filled(like: nn.Module, tensors: Mapping[str, Tensor], name: str) -> nn.Module:
    """A copy of a network with the parameters and buffers given, in their dtypes."""
    network = copy.deepcopy(like)
    own = network.state_dict()
    faults = [f"the file has no {n}" for n in sorted(own.keys() - tensors.keys())]
    faults += [f"the backbone has no {n}" for n in sorted(tensors.keys() - own.keys())]
    faults += [
        f"{n} is {tuple(own[n].shape)} in the backbone and {tuple(tensors[n].shape)} in the file"
        for n in sorted(own.keys() & tensors.keys())
        if own[n].shape != tensors[n].shape
    ]
    if faults:
        more = f", and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise StorageError(f"the backbone does not fit the stored network, {name}: {'; '.join(faults[:5])}{more}.")
    network.load_state_dict(tensors, assign=True)
    return network


def _place(device: str) -> torch.device:
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise ValueError('there is no CUDA device: load(folder, device="cpu").')
    require(device in ("auto", "cpu", "cuda"), f'device must be "auto", "cpu" or "cuda", not {device!r}.')
    return torch.device("cuda" if has_cuda and device != "cpu" else "cpu")


# --------------------------------------------------------------------------------------------- kernels and layers


def _kernel_from_parts(
    document: Mapping[str, Any] | str | None, tensors: Mapping[str, Tensor], given: Kernel | None
) -> tuple[bool, str | Kernel | None]:
    """The parameter `kernel`, and whether it is of the user's own code."""
    if not isinstance(document, Mapping):
        return False, document
    own = document["structure"] is None
    return own, kernel_from_parts(document, tensors, "kernel", given if own else None, torch.get_default_dtype())


def _layer_to_json(layer: Any) -> dict[str, Any]:
    """All of a layer but its tensors. Kernel and settings are its own: parameters may have changed since the fit."""
    if isinstance(layer, TreeHead):
        kernel, _ = kernel_to_parts(layer.kernel, "kernel")  # its numbers are among the layer's
        return {"tree": layer.tree.to_json(), "settings": _encode("variational", layer.settings), "kernel": kernel}
    return {"tree": None, "settings": _encode("training", layer.objective)}


def _ensemble_from_parts(
    documents: list[Mapping[str, Any]],
    tensors: dict[str, Tensor],
    state: DeepState,
    given: Kernel | None,
    settings: Sequence[type],
) -> WeightedEnsemble:
    parts = ((document, below(f"layers.{k}", tensors)) for k, document in enumerate(documents))
    ensemble = WeightedEnsemble(*(_layer_from_parts(*part, state, given, settings) for part in parts))
    ensemble.weights.copy_(tensors["weights"])
    return ensemble


def _layer_from_parts(
    document: Mapping[str, Any],
    tensors: dict[str, Tensor],
    state: DeepState,
    given: Kernel | None,
    settings_classes: Sequence[type],
) -> TreeHead | ObjectiveLayer:
    settings = decode(document["settings"], settings_classes)
    place, n_classes = state.device, len(state.labels)
    if document["tree"] is None:
        width, dtype = tensors["weight"].shape[1], tensors["weight"].dtype
        layer = settings.layer(width, n_classes, 0, dtype).to(place)
    else:
        own = document["kernel"]["structure"] is None
        points = tensors["points"]
        kernel = kernel_from_parts(document["kernel"], tensors, "kernel", given if own else None, points.dtype)
        layer = TreeHead(
            ClassTree.from_json(document["tree"]),
            points.to(place),
            tensors["point_class"].to(place),
            torch.ones(n_classes, dtype=torch.long),
            kernel.to(place),
            settings,
        )
    layer.load_state_dict(tensors)  # every number of it
    return layer


# ------------------------------------------------------------------------------------------------------- settings


def _inputs_from_json(data: Mapping[str, Any]) -> Inputs:
    return Inputs(**{key: as_tuples(value) for key, value in data.items()})


def _encode(name: str, value: Any) -> Any:
    try:
        return encode(name, value)
    except StorageError as error:
        raise StorageError(f"{error} Predictions do not need it: set_params({name}=…) to another, and save.") from None
