"""Trees and forests to and from folders: parameters and labels as JSON, arrays as tensors (see `gptree.storage`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

import gptree
from gptree.estimators.feature_map import FEATURE_MAPS, SphereMap, UnitLength
from gptree.estimators.state import FittedState, on_sphere
from gptree.estimators.stored_checks import available, check_parameters, check_state
from gptree.estimators.validation import check_encoder
from gptree.experts import LeftOutScores
from gptree.experts.wrong_labels import likelihood_weights
from gptree.incremental import BaseState, Entry, GrownState, left_out_again
from gptree.model.stored import model_from_parts, model_to_parts, sharing
from gptree.storage import (
    COUNT,
    KERNEL,
    Array,
    Number,
    Sizes,
    StorageError,
    as_tuples,
    below,
    check_labels,
    check_load_arguments,
    check_types,
    decode,
    encode,
    ensure,
    kernel_from_parts,
    kernel_to_parts,
    labels_from_json,
    labels_to_json,
    present,
    read_folder,
    reading,
    restore,
    write_folder,
)

#: Parts of a document, of an entry of its journal, and of its base session.
_KEYS = {
    *("format", "version", "arrays", "sha256", "aliases", "gptree", "estimator", "parameters"),
    *("n_features", "feature_names", "feature_map", "classes", "seed", "experts", "journal", "base"),
    *("trees", "posteriors", "kernel", "memory_budget", "encoder"),
}
_ENTRY = ("kind", "labels", "counts", "time", "note", "rows", "ids", "author")
_BASE = {"model", "expert", "novel_experts", "novelty"}
#: Arrays of a base session of N rows and m exemplars, and of a grown model with n rows in memory.
_BASE_TENSORS = {
    "y": Array("N", below="C"),
    "stands_for": Array("N", above=0),
    "exemplars": Array("m", below="N", distinct=True),
    "exemplar_weights": Array("m", above=0),
    "left_out": Array("N C", most=1e-3),
    "spreads": Array("C", least=0),
    "weights": Array("N", least=1e-7, most=1e16),
    "beliefs": Array("N", least=0, most=1.001),
    "likelihood": Array("N", least=0, most=1e16),
}
_OPTIONAL = ("left_out", "spreads", "weights", "beliefs", "likelihood")
_GROWN = {
    "rows": Array("n", below="N", distinct=True),
    "y": Array("n", below="C"),
    "left_out": Array("n C", most=1e-3),
    "log_sizes": Array("C"),
}


def save_estimator(estimator: Any, folder: str | Path) -> None:
    """Write a fitted tree or forest into a folder."""
    parameters = {name: encode(name, value) for name, value in estimator.get_params(deep=False).items()}
    document, tensors = state_to_parts(estimator.state_)
    names = getattr(estimator, "feature_names_in_", None)
    document |= {
        "gptree": gptree.__version__,
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        "n_features": estimator.n_features_in_,
        "feature_names": None if names is None else [str(name) for name in names],
    }
    if isinstance(estimator.kernel, Kernel):
        document["parameter_kernel"], kernel_tensors = kernel_to_parts(estimator.kernel, "parameter_kernel")
        tensors |= kernel_tensors
    write_folder(folder, document, tensors)


def load_estimator(
    folder: str | Path,
    classes: Mapping[str, type],
    kernel: Kernel | None,
    settings: Sequence[type],
    device: str | None,
) -> Any:
    """Read a tree or a forest, one of the given classes by name."""
    check_load_arguments(kernel, settings)
    with reading(folder):
        document, tensors = read_folder(folder)
    name = str(document.get("estimator"))
    if name not in classes:
        raise StorageError(f"{folder} holds a {name:.80}; this call loads {' or '.join(sorted(classes))}.")
    with reading(folder):
        ensure(document.keys() == _KEYS | document.keys() & {"parameter_kernel"}, f"{folder} lacks parts of a model.")
        parameters = stored_parameters(classes[name], document["parameters"], settings)
        width = Number(least=1, most=2**40, whole=True).check("n_features", document["n_features"])
        if document["parameters"].get("kernel") == KERNEL:
            given = document.get("parameter_kernel")
            dtype = torch.get_default_dtype()
            parameters["kernel"] = kernel_from_parts(given, tensors, "parameter_kernel", kernel, dtype, width)
        estimator = classes[name](**parameters)
        check_parameters(estimator)
        names = document["feature_names"]
        if names is not None:
            named = isinstance(names, list) and len(names) == width and all(isinstance(each, str) for each in names)
            ensure(named, f"feature_names are not {width} names.")
            estimator.feature_names_in_ = np.array(names, dtype=object)
        estimator.n_features_in_ = width
    if device is not None:
        estimator.device = device
    place = available(estimator._placement()[1])
    with reading(folder):
        estimator.state_ = state_from_parts(document, tensors, place, kernel)
    return estimator


def stored_parameters(kind: type, document: Any, settings: Sequence[type]) -> dict[str, Any]:
    """Parameters of an estimator, of the types that it declares."""
    ensure(isinstance(document, dict), "there are no parameters.")
    parameters = {key: decode(value, settings) for key, value in document.items()}
    check_types(kind, {key: value for key, value in parameters.items() if key != "memory_budget"})  # 1e9 is one, too
    return parameters


# ------------------------------------------------------------------------------------------------- the fitted state


def state_to_parts(state: FittedState) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A fitted state as a JSON document and tensors by name."""
    document, tensors = model_to_parts(state.model)
    map_document, map_tensors = _feature_map_to_parts(state.feature_map)
    document |= {
        "classes": labels_to_json(state.classes),
        "seed": state.seed,
        "feature_map": map_document,
        "experts": _record_to_parts(state.experts, "experts", tensors),
        "journal": [{name: getattr(entry, name) for name in _ENTRY} for entry in state.journal],
        "encoder": None if state.encoder is None else dict(state.encoder),
        "base": None if state.base is None else _base_to_parts(state.base, tensors),
    }
    tensors |= map_tensors
    tensors |= {"y": torch.as_tensor(state.y), "origins": torch.as_tensor(state.origins)}
    for i, entry in enumerate(state.journal):
        tensors |= present(f"journal.{i}", features=entry.features, weights=entry.weights)
    if state.base is None:
        left_out = state.left_out if isinstance(state.left_out, Tensor) else None
        tensors |= present("fit", left_out=left_out, weights=state.weights, beliefs=state.beliefs)
    if state.grown is not None:
        tensors |= present("grown", **{name: getattr(state.grown, name) for name in _GROWN})
    if state.class_log_prior is not None:
        tensors["class_log_prior"] = torch.as_tensor(state.class_log_prior)
    if state.log_frequencies is not None:
        tensors["fit.log_frequencies"] = torch.as_tensor(state.log_frequencies)
    return document, tensors


def state_from_parts(
    document: Mapping[str, Any], tensors: Mapping[str, Tensor], device: torch.device, kernel: Kernel | None
) -> FittedState:
    """The fitted state again, on a device, checked; `kernel` is needed for kernels of the user's own."""
    classes = labels_from_json(document["classes"])
    sizes: Sizes = {"C": len(classes), "d": document["n_features"]}
    model = model_from_parts(document, tensors, device, kernel, sizes)
    feature_map = _feature_map_from_parts(document["feature_map"], tensors, sizes)
    journal = _journal_from_parts(document["journal"], tensors, device, sizes | {"J": len(document["journal"])})
    base = None
    if document["base"] is not None:
        base = _base_from_parts(document["base"], tensors, journal[0].labels, device, kernel, sizes)
        if base.left_out is None and base.expert is not None:
            left_out = left_out_again(base, partial(on_sphere, feature_map))
            ensure(left_out is not None, "left-out predictions are missing: the experts of the base have other rows.")
            base = replace(base, left_out=left_out)
        model = sharing(model, base.model)  # nodes that stay are known to be the same
    left_out = _optional("fit.left_out", Array("N C", most=1e-3), tensors, sizes)
    weights = _optional("fit.weights", _BASE_TENSORS["weights"], tensors, sizes)
    beliefs = _optional("fit.beliefs", _BASE_TENSORS["beliefs"], tensors, sizes)
    prior = _optional("class_log_prior", Array("C", most=0), tensors, sizes)
    known: Sizes = {"C": len(journal[0].labels)}
    frequencies = _optional("fit.log_frequencies", Array("C", most=0), tensors, known)
    state = FittedState(
        classes=classes,
        seed=COUNT.check("seed", document["seed"]),
        feature_map=feature_map,
        model=model,
        experts=_record_from_parts(document["experts"], tensors, "experts", device, sizes),
        left_out=_placed(left_out, device) if base is None else base.left_out,
        y=Array("N", least=-1, below="C").check("y", tensors.get("y"), sizes).numpy(),
        origins=Array("N 2", least=0, whole=True).check("origins", tensors.get("origins"), sizes).numpy(),
        journal=journal,
        class_log_prior=None if prior is None else prior.numpy(),
        log_frequencies=None if frequencies is None else frequencies.numpy(),
        base=base,
        weights=_placed(weights, device) if base is None else base.weights,
        beliefs=_placed(beliefs, device) if base is None else base.beliefs,
        encoder=None if document["encoder"] is None else check_encoder(document["encoder"], sizes["d"]),
    )
    if "grown.rows" in tensors:
        ensure(base is not None, "a model that has changed lacks its base session.")
        memory = {
            name: _placed(_optional(f"grown.{name}", stated, tensors, sizes), device) for name, stated in _GROWN.items()
        }
        state = replace(state, grown=GrownState(state.registry(), state.model, state.experts, **memory))
    check_state(state)
    if base is None and left_out is None and state.experts is not None:
        state = replace(state, left_out=_left_out_again(state))
    return state


def _left_out_again(state: FittedState) -> LeftOutScores | None:
    """Left-out scores that are not in the file, from experts and rows."""
    assert state.experts is not None
    sphere, y = state.on_sphere(state.X), torch.as_tensor(state.y, device=state.X.device)
    single = len(state.classes) == 1
    ensure(
        single or state.experts.knows_left_out(sphere, y),
        "left-out predictions are missing: the experts have other rows.",
    )
    return None if single else LeftOutScores(state.experts, sphere, y, len(state.classes), state.weights)


def _optional(name: str, stated: Array, tensors: Mapping[str, Tensor], sizes: Sizes) -> Tensor | None:
    return stated.check(name, tensors[name], sizes) if name in tensors else None


def _placed(value: Tensor | None, device: torch.device) -> Any:
    return None if value is None else value.to(device)


def _record_to_parts(record: Any, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any] | None:
    """The settings of a fitted expert, whose tensors are added to `tensors`."""
    if record is None:
        return None
    record_tensors, settings = record.state()
    tensors |= present(prefix, **record_tensors)
    return settings


def _record_from_parts(
    settings: Any, tensors: Mapping[str, Tensor], prefix: str, device: torch.device, sizes: Sizes
) -> Any:
    if settings is None:
        return None
    parts = {name: value.to(device) for name, value in below(prefix, tensors).items()}
    return restore(parts, settings, {letter: sizes[letter] for letter in "Cd"}, prefix)


def _journal_from_parts(
    document: Any, tensors: Mapping[str, Tensor], device: torch.device, sizes: Sizes
) -> tuple[Entry, ...]:
    ensure(isinstance(document, list) and len(document) > 0, "there is no journal.")
    return tuple(_entry_from_parts(entry, i, tensors, device, sizes) for i, entry in enumerate(document))


def _entry_from_parts(
    entry: Any, number: int, tensors: Mapping[str, Tensor], device: torch.device, sizes: Sizes
) -> Entry:
    """An entry of the journal: one count for each label, and one row for each example."""
    name = f"journal.{number}"
    ensure(isinstance(entry, dict) and entry.keys() == set(_ENTRY), f"{name} is no entry of a journal.")
    check_types(Entry, {key: as_tuples(value) for key, value in entry.items()})
    kind, labels, counts, rows = (entry[key] for key in ("kind", "labels", "counts", "rows"))
    ensure((kind == "fit") == (number == 0), f"{name} is {kind!r:.80}: fit comes first, and once.")
    distinct = labels[:-1] if kind == "merge_classes" else labels  # into one of themselves
    check_labels(distinct, f"{name}.labels")
    check_labels(labels[-1:], f"{name}.labels")
    features, brings = tensors.get(f"{name}.features"), kind in ("add_classes", "add_examples")
    counted = len(counts) == (len(labels) if kind == "fit" or brings else 0) and all(n >= 1 for n in counts)
    ensure(counted and len(labels) > 0, f"{name} does not have a count for each label.")
    ensure(len(rows) == (sum(counts) if brings else 0), f"{name} does not have a row for each example.")
    ensure(all(row >= 0 for row in rows), f"{name}.rows holds a negative number.")
    named = not entry["ids"] or kind == "fit" or len(entry["ids"]) == len(rows)
    ensure(named, f"{name} does not have an id for each example.")
    ensure(brings == (features is not None), f"{name}.features do not go with {kind!r:.80}.")
    own = sizes | {"k": sum(counts)}
    if features is not None:
        Array("k d").check(f"{name}.features", features, own)
    weights = _optional(f"{name}.weights", Array("k", least=1e-7, most=1e7), tensors, own)
    ensure(features is not None or weights is None, f"{name}.weights do not go with {kind!r:.80}.")
    examples = {"features": _placed(features, device), "weights": _placed(weights, device)}
    return Entry(**{key: as_tuples(value) for key, value in entry.items()}, **examples)


def _base_to_parts(base: BaseState, tensors: dict[str, Tensor]) -> dict[str, Any]:
    document, model = model_to_parts(base.model)
    tensors |= present("base.model", **model)
    arrays = {name: getattr(base, name) for name in _BASE_TENSORS}
    if not isinstance(base.left_out, Tensor):  # computed again
        del arrays["left_out"]
    tensors |= present("base", **arrays)
    return {
        "model": document,
        "expert": _record_to_parts(base.expert, "base.expert", tensors),
        "novel_experts": _record_to_parts(base.novel_experts, "base.novel_experts", tensors),
        "novelty": _record_to_parts(base.novelty, "base.novelty", tensors),
    }


def _base_from_parts(
    document: Any,
    tensors: Mapping[str, Tensor],
    keys: tuple[Any, ...],
    device: torch.device,
    kernel: Kernel | None,
    outside: Sizes,
) -> BaseState:
    ensure(isinstance(document, dict) and document.keys() == _BASE, "base is no base session.")
    sizes = {"C": len(keys), "d": outside["d"]}
    model = model_from_parts(document["model"], below("base.model", tensors), device, kernel, sizes, "base.model")
    arrays = {
        name: _optional(f"base.{name}", stated, tensors, sizes)
        if name in _OPTIONAL
        else stated.check(f"base.{name}", tensors.get(f"base.{name}"), sizes)
        for name, stated in _BASE_TENSORS.items()
    }
    if arrays["likelihood"] is None:
        arrays["likelihood"] = likelihood_weights(arrays["weights"], arrays["beliefs"])
    records = {
        name: _record_from_parts(document[name], tensors, f"base.{name}", device, sizes)
        for name in ("expert", "novel_experts", "novelty")
    }
    return BaseState(keys, model, **records, **{name: _placed(value, device) for name, value in arrays.items()})


def _feature_map_to_parts(feature_map: Any) -> tuple[dict[str, Any] | None, dict[str, Tensor]]:
    if feature_map is None:
        return None, {}
    if type(feature_map) is UnitLength:
        return {"name": "unit"}, {}
    if type(feature_map) is not SphereMap:  # set_params may have changed the parameter since the fit
        raise StorageError(f"the fitted feature map {feature_map!r} cannot be stored without code.")
    mean = {"feature_map.mean": torch.as_tensor(feature_map.mean_)}
    return {"name": "sphere", "non_negative": feature_map.non_negative_}, mean


def _feature_map_from_parts(data: Any, tensors: Mapping[str, Tensor], sizes: Sizes) -> Any:
    if data is None:
        return None
    keys = {"name"} | ({"non_negative"} if isinstance(data, dict) and data.get("name") == "sphere" else set())
    known = isinstance(data, dict) and data.keys() == keys and data["name"] in FEATURE_MAPS
    ensure(known, "feature_map is none that gptree has.")
    feature_map = FEATURE_MAPS[data["name"]]()
    feature_map.n_features_in_ = sizes["d"]
    if isinstance(feature_map, SphereMap):
        ensure(isinstance(data["non_negative"], bool), "feature_map.non_negative is neither true nor false.")
        feature_map.non_negative_ = data["non_negative"]
        mean = Array("d", least=-1.001, most=1.001).check("feature_map.mean", tensors.get("feature_map.mean"), sizes)
        feature_map.mean_ = mean.numpy()
    return feature_map
