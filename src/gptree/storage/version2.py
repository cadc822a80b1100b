"""Models of format version 2 under the names of version 3.

Version 3 has the same content. Its classes, parameters and parts have other names, which the tables below give.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

#: Classes of settings, by the name under which version 2 stored them.
SETTINGS = {
    "Representatives": "SubsetOfData",
    "KMeansSamples": "KMeansExemplars",
    "SpreadSamples": "KMeansPlusPlusExemplars",
    "SparseHead": "VariationalTree",
}
#: Kinds of stored records.
RECORDS = {"Newcomers": "NovelClassExperts", "FittedGrown": "FittedBaseNovelExpert"}
#: Fields of settings, by class.
FIELDS = {"Growth": {"representatives": "exemplars"}}
#: Parameters of estimators.
PARAMETERS = {"n_trees": "n_estimators", "sparse": "variational", "head_rows": "classifier_rows"}
VALUES = {"classifier_rows": {"held back": "held_out"}}
#: Parts of a document, and prefixes of the names of its tensors.
PARTS = {"newcomers": "novel_experts", "vote": "ensemble", "head": "classifier"}
PREFIXES = {"base.newcomers.": "base.novel_experts.", "vote.": "ensemble."}


def upgraded(document: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Document and tensors of version 2 as version 3 would have written them."""
    document = {PARTS.get(name, name): _renamed(value) for name, value in document.items()}
    if isinstance(document.get("base"), dict):
        document["base"] = {PARTS.get(name, name): value for name, value in document["base"].items()}
    if isinstance(document.get("parameters"), dict):
        parameters = {PARAMETERS.get(name, name): value for name, value in document["parameters"].items()}
        for name, values in VALUES.items():
            if name in parameters:
                parameters[name] = values.get(parameters[name], parameters[name])
        document["parameters"] = parameters
    return document, {_tensor_name(name): value for name, value in tensors.items()}


def _renamed(value: Any) -> Any:
    """Settings and records under their new names, also inside others."""
    if isinstance(value, list):
        return [_renamed(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = FIELDS.get(value.get("@", ""), {})
    result = {fields.get(name, name): _renamed(item) for name, item in value.items()}
    for key, table in (("@", SETTINGS), ("kind", RECORDS)):
        if isinstance(result.get(key), str):
            result[key] = table.get(result[key], result[key])
    return result


def _tensor_name(name: str) -> str:
    for old, new in PREFIXES.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
