"""Deep classifiers to and from folders: settings as JSON, the network and what it carries as tensors.

A fitted `classifier` is saved by itself in a folder `classifier-…` within. The document names that folder and is
replaced last, so that an interrupted save leaves the old model whole.
"""

from __future__ import annotations

import copy
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.base import clone
from torch import Tensor, nn

import gptree
from gptree.deep import (
    Backbone,
    Objective,
    ObjectiveLayer,
    TreeHead,
    VariationalTree,
    WeightedEnsemble,
    build_backbone,
)
from gptree.deep.heads.gp_tree import LARGEST_JITTER
from gptree.estimators.deep_inputs import Inputs
from gptree.estimators.deep_state import DeepState
from gptree.estimators.forest import TREE_CLASSIFIERS, GPForestClassifier, GPTreeClassifier
from gptree.estimators.storage import load_estimator, stored_parameters
from gptree.maths.kernels import KERNEL_NAMES
from gptree.settings import require
from gptree.storage import (
    COUNT,
    DOCUMENT,
    Array,
    Number,
    Sizes,
    StorageError,
    agree,
    as_tuples,
    below,
    check_free,
    check_load_arguments,
    check_types,
    decode,
    encode,
    ensure,
    inside,
    kernel_from_parts,
    kernel_to_parts,
    labels_from_json,
    labels_to_json,
    locked,
    present,
    read_folder,
    reading,
    settled,
    write_folder,
)
from gptree.tree import ClassTree, TreeBuilder

#: In the place of an estimator's name while the first save into a folder is under way.
_UNFINISHED = "unfinished model"
#: Folders of classifiers; those of version 2 are called heads.
_CLASSIFIER = re.compile(r"(?:classifier|head)-([1-9]\d{0,17})")
#: Parts of a document.
_KEYS = {
    *("format", "version", "arrays", "sha256", "aliases", "gptree", "estimator", "parameters", "kernel", "network"),
    *("classes", "seed", "log", "best_epoch", "inputs", "ensemble", "classifier"),
}
#: No number of a network is larger. Inputs of more numbers are not tried when a model is read.
LARGEST, LARGEST_PROBE = 1e9, 2**20


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
    matches = (_CLASSIFIER.fullmatch(path.name) for path in folder.iterdir())
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
    folder = Path(folder)
    return settled(folder, lambda: _load(family, folder, backbone, kernel, settings, device))


def _load(
    family: Any,
    folder: Path,
    backbone: nn.Module | None,
    kernel: Kernel | None,
    settings: Sequence[type],
    device: str | None,
) -> Any:
    with reading(folder):
        document, tensors = read_folder(folder)
    name = document.get("estimator")
    if name != family.__name__:
        raise StorageError(f"{folder} holds a {name!s:.80}; this call loads {family.__name__}.")
    with reading(folder):
        ensure(document.keys() == _KEYS, f"{folder} lacks parts of a model.")
        inputs = _inputs_from_json(document["inputs"])
        network, before, width = _networks_from_parts(document["network"], tensors, inputs, backbone)
        parameters = stored_parameters(family, document["parameters"], settings)
        ensure("folder" in parameters, "the parameters are incomplete.")
        parameters["folder"] = None  # no path of a document is followed
        parameters["augment"] = tuple(parameters["augment"])
        own_kernel, parameters["kernel"] = _kernel_from_parts(document["kernel"], tensors, kernel)
        estimator = family(before, **parameters)
        _check_parameters(estimator)
    if device is not None:
        estimator.device = device
    place = _place(estimator.device)
    with reading(folder):
        network = network.to(place).eval()
        if place.type == "cuda":  # as in training
            network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        state = DeepState(
            network=network,
            labels=labels_from_json(document["classes"]),
            inputs=inputs,
            seed=COUNT.check("seed", document["seed"]),
            device=place,
            rows=Array("n", least=0, whole=True, distinct=True).check("rows", tensors.get("rows"), {}).numpy(),
            log=_log_from_json(document["log"]),
            best_epoch=COUNT.check("best_epoch", document["best_epoch"]),
        )
        one = (document["classifier"] is None) != (document["ensemble"] is None)
        ensure(one, "either layers or a classifier predict.")
        if document["classifier"] is None:
            ensemble = _ensemble_from_parts(
                document["ensemble"], below("ensemble", tensors), state, width, kernel, settings
            )
            state = replace(state, ensemble=ensemble)
        else:
            given = None if own_kernel else kernel
            classifier = _classifier(inside(folder, document["classifier"]), given, settings, device)
            ensure(width in (None, classifier.n_features_in_), "classifier and network do not fit each other.")
            labels = list(classifier.state_.base_labels)
            ensure(labels == state.labels.tolist(), "the labels are not those of the classifier.")
            estimator.classifier = clone(classifier)
            state = replace(state, classifier=classifier)
        _check_probabilities(state)
        estimator.state_ = state
    return estimator


def _classifier(folder: Path, kernel: Kernel | None, settings: Sequence[type], device: str | None) -> Any:
    """The classifier in a folder within."""
    ensure(_CLASSIFIER.fullmatch(folder.name) is not None, f"{folder.name!r:.80} is no name of a classifier.")
    return load_estimator(folder, TREE_CLASSIFIERS, kernel, settings, device)


def _check_parameters(estimator: Any) -> None:
    """Raise what the estimator says to parameters that it cannot work with."""
    device = estimator.device
    require(device in ("auto", "cpu", "cuda"), f'device must be "auto", "cpu" or "cuda", not {device!r:.80}.')
    if estimator.random_state is not None:
        Number(least=0, most=2**32 - 1, whole=True).check("random_state", estimator.random_state)
    named = not isinstance(estimator.kernel, str) or estimator.kernel in KERNEL_NAMES
    ensure(named, f"kernel is {estimator.kernel!r:.80}.")
    COUNT.check("refit", estimator.refit)
    if not isinstance(estimator.tree, ClassTree | list | tuple | None):
        TreeBuilder.of(estimator.tree)


def _check_probabilities(state: DeepState) -> None:
    """Ask the model about an input, unless inputs are very large."""
    inputs = state.inputs
    if math.prod(inputs.shape) > LARGEST_PROBE:
        return
    x = np.random.default_rng(0).random((1, *inputs.shape)).astype(inputs.dtype)
    pictures = inputs.mean is not None
    log_p = state.predict_log_proba((255 * x).astype(np.uint8) if pictures else x, "mean")
    sums = np.exp(log_p.astype(float)).sum(1)
    ensure(bool(np.isfinite(log_p).all()) and bool((abs(sums - 1) < 1e-2).all()), "the model gives no probabilities.")


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
    parameters["folder"] = None  # a path of this machine
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


def _place(device: str) -> torch.device:
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise ValueError('there is no CUDA device: load(folder, device="cpu").')
    require(device in ("auto", "cpu", "cuda"), f'device must be "auto", "cpu" or "cuda", not {device!r}.')
    return torch.device("cuda" if has_cuda and device != "cpu" else "cpu")


# --------------------------------------------------------------------------------------------- kernels and layers


def _kernel_from_parts(
    document: Any, tensors: Mapping[str, Tensor], given: Kernel | None
) -> tuple[bool, str | Kernel | None]:
    """The parameter `kernel`, and whether it is of the user's own code."""
    if not isinstance(document, Mapping):
        ensure(isinstance(document, str | None), "kernel is none.")
        return False, document
    own = document.get("structure") is None
    return own, kernel_from_parts(document, tensors, "kernel", given if own else None, torch.get_default_dtype())


def _layer_to_json(layer: Any) -> dict[str, Any]:
    """All of a layer but its tensors. Kernel and settings are its own: parameters may have changed since the fit."""
    if isinstance(layer, TreeHead):
        kernel, _ = kernel_to_parts(layer.kernel, "kernel")  # its numbers are among the layer's
        return {"tree": layer.tree.to_json(), "settings": _encode("variational", layer.settings), "kernel": kernel}
    return {"tree": None, "settings": _encode("training", layer.objective)}


def _ensemble_from_parts(
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


# ------------------------------------------------------------------------------------------------------- settings


def _inputs_from_json(data: Any) -> Inputs:
    ensure(isinstance(data, dict), "it is not said what inputs are.")
    made = Inputs(**{key: as_tuples(value) for key, value in data.items()})
    check_types(Inputs, vars(made))
    sized = len(made.shape) > 0 and all(1 <= n <= 2**20 for n in made.shape) and math.prod(made.shape) <= 2**31
    ensure(sized, f"inputs have the shape {made.shape!r:.80}.")
    ensure(made.dtype in ("float64", "float32"), f"inputs are of type {made.dtype!r:.80}.")
    if made.mean is not None or made.std is not None:
        both = made.mean is not None and made.std is not None and len(made.mean) == len(made.std) == made.shape[0]
        ensure(both, "inputs lack a mean or a deviation of their channels.")
        assert made.std is not None
        ensure(all(1e-12 <= each <= 1e12 for each in made.std), "inputs have channels that do not vary.")
        ensure(made.dtype == "float32", "pictures are read in single precision.")
    return made


def _log_from_json(data: Any) -> list[dict[str, Any]]:
    rows = isinstance(data, list) and all(isinstance(row, dict) for row in data)
    ensure(rows, "the log has no row for each epoch.")
    return data


def _encode(name: str, value: Any) -> Any:
    try:
        return encode(name, value)
    except StorageError as error:
        raise StorageError(f"{error} Predictions do not need it: set_params({name}=…) to another, and save.") from None
