"""Deep classifiers to and from folders: settings as JSON, the network and what it carries as tensors.

A fitted `classifier` is saved by itself in a folder `classifier-…` within. The document names that folder and is
replaced last, so that an interrupted save leaves the old model whole.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.base import clone
from torch import Tensor, nn

import gptree
from gptree.estimators.deep_inputs import Inputs
from gptree.estimators.deep_state import DeepState
from gptree.estimators.forest import TREE_CLASSIFIERS, GPForestClassifier, GPTreeClassifier
from gptree.estimators.storage import load_estimator, stored_parameters
from gptree.estimators.stored_layers import encode_setting, ensemble_from_parts, layer_to_json
from gptree.estimators.stored_networks import networks_from_parts, networks_to_parts
from gptree.maths.kernels import KERNEL_NAMES
from gptree.settings import require
from gptree.storage import (
    COUNT,
    DOCUMENT,
    Array,
    Number,
    StorageError,
    as_tuples,
    below,
    check_free,
    check_load_arguments,
    check_types,
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
#: Inputs of more numbers are not tried when a model is read.
LARGEST_PROBE = 2**20


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
        network, before, width = networks_from_parts(document["network"], tensors, inputs, backbone)
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
            ensemble = ensemble_from_parts(
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
    given = estimator.get_params(deep=False).items()
    parameters = {name: encode_setting(name, value) for name, value in given if name not in apart}
    parameters["folder"] = None  # a path of this machine
    network, tensors = networks_to_parts(estimator.network_, estimator.backbone)
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
        "ensemble": None if ensemble is None else [layer_to_json(layer) for layer in ensemble.layers],
        "classifier": None,
    }
    return document, tensors


def _place(device: str) -> torch.device:
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise ValueError('there is no CUDA device: load(folder, device="cpu").')
    require(device in ("auto", "cpu", "cuda"), f'device must be "auto", "cpu" or "cuda", not {device!r}.')
    return torch.device("cuda" if has_cuda and device != "cpu" else "cpu")


def _kernel_from_parts(
    document: Any, tensors: Mapping[str, Tensor], given: Kernel | None
) -> tuple[bool, str | Kernel | None]:
    """The parameter `kernel`, and whether it is of the user's own code."""
    if not isinstance(document, Mapping):
        ensure(isinstance(document, str | None), "kernel is none.")
        return False, document
    own = document.get("structure") is None
    return own, kernel_from_parts(document, tensors, "kernel", given if own else None, torch.get_default_dtype())


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
