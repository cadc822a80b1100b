"""Fitted forests as JSON and tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from gpytorch.kernels import CosineKernel, Kernel
from torch import Tensor

from gptree.inference import (
    DensePosterior,
    Diagnostics,
    Grams,
    LinearPosterior,
    NodePosterior,
    NodePredictor,
    PooledDensePosterior,
    PooledLinearPosterior,
    SitesPosterior,
    SparsePosterior,
)
from gptree.inference.grams import finite
from gptree.model.forest import ForestModel
from gptree.storage import (
    Array,
    Number,
    Sizes,
    agree,
    check_precision,
    ensure,
    kernel_from_parts,
    kernel_to_parts,
    reading,
)
from gptree.tree import ClassTree

_FAMILIES = (
    *(DensePosterior, LinearPosterior, SparsePosterior, SitesPosterior),
    *(PooledDensePosterior, PooledLinearPosterior),
)
_POSTERIORS = {family.kind: family for family in _FAMILIES}
_NODES, _ROWS = Array("v", least=0, whole=True), Array("v n", below="N")
#: What the arrays of a posterior are: v nodes, n points or inducing points each, s draws; k points that are seen
#: through inducing points. Without b it is 1 of sites, and not known of linear nodes.
_STATED = {
    "dense": {"nodes": _NODES, "rows": _ROWS, "weights": Array("s v n"), "omega": Array("s v n", least=0, most=1e9)},
    "linear": {
        **{"nodes": _NODES, "rows": _ROWS, "weights": Array("s v d")},
        **{"omega": Array("s v n", least=0, most=1e9), "b": Array("v n", least=0, most=1e16)},
    },
    "sparse": {"nodes": _NODES, "rows": _ROWS, "weights": Array("1 v n"), "precision": Array("v n n")},
    "sites": {
        **{"nodes": _NODES, "rows": _ROWS, "weights": Array("1 v n")},
        **{"points": Array("v k", below="N"), "omega": Array("v k", least=0, most=1e9)},
        **{"b": Array("v k", least=0, most=1e16)},
    },
}
_STATED |= {f"pooled {kind}": _STATED[kind] for kind in ("dense", "linear")}
#: And those of the diagnostics, of V nodes.
_DIAGNOSTICS = {
    "nodes": Array("V", below="V", distinct=True),
    "sweeps": Array("V", least=0, whole=True),
    "bound": Array("V"),
    "change": Array("V", least=0),
    "converged": Array("V", truth=True),
    "r_hat": Array("V", least=0),
    "jitter": Array("V", least=0),
}
_KEYS = {"trees", "posteriors", "kernel", "memory_budget"}


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
        for name in _STATED[posterior.kind]:
            value = getattr(posterior, name)
            if value is not None:
                tensors[f"posterior.{i}.{name}"] = _lower(value) if name == "precision" else value
    for name, value in vars(model.diagnostics).items():
        if value is not None:
            tensors[f"diagnostics.{name}"] = value
    return document, tensors


def model_from_parts(
    document: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    device: torch.device,
    kernel: Kernel | None = None,
    sizes: Sizes | None = None,
    name: str = "model",
) -> ForestModel:
    """The model again, on a device, checked.

    Parameters
    ----------
    document, tensors
        As `model_to_parts` has them, among others.
    device : torch.device
    kernel : Kernel, optional
        Needed only for kernels that GPyTorch does not have.
    sizes : dict, optional
        C and d, where they are known; they are added otherwise, and N, the number of rows.
    name : str
        For messages.

    Raises
    ------
    StorageError
        If it is not as `docs/format.md` says.
    """
    whole = isinstance(document, Mapping) and document.keys() >= _KEYS
    ensure(whole, f"{name} is incomplete or damaged: parts are missing.")
    budget = Number(least=2**20, most=2**62, whole=True).check(f"{name}.memory_budget", document["memory_budget"])
    sizes = {} if sizes is None else sizes
    trees = _trees(document["trees"], sizes, name)
    X = Array("N d").check(f"{name}.features", tensors.get("features"), sizes)
    posteriors = _posteriors(document["posteriors"], tensors, X, sizes, name)
    inner = sizes | {"inner": sizes["C"] - 1, "V": sum(len(p.nodes) for p in posteriors)}
    nodes = torch.cat([torch.empty(0, dtype=torch.long), *(p.nodes for p in posteriors)])
    ensure(torch.equal(nodes.sort().values, torch.arange(inner["V"])), f"{name} does not have every node once.")
    stated = Array("inner", below="V", distinct=True)
    node_of = [stated.check(f"{name}.node_of.{t}", tensors.get(f"node_of.{t}"), inner) for t in range(len(trees))]
    fitted = kernel_from_parts(document["kernel"], tensors, "kernel", kernel, X.dtype, sizes["d"], inner["V"])
    diagnostics = {
        key: stated.check(f"{name}.diagnostics.{key}", tensors[f"diagnostics.{key}"], inner)
        for key, stated in _DIAGNOSTICS.items()
        if f"diagnostics.{key}" in tensors
    }
    ensure({"nodes", "sweeps"} <= diagnostics.keys(), f"{name} lacks its diagnostics.")
    _check_factors(posteriors, Grams(fitted, X), name)
    grams = Grams(fitted.to(device), X.to(device), budget)
    placed = [replace(p, **{key: value.to(device) for key, value in _arrays(p).items()}) for p in posteriors]
    return ForestModel(
        trees=trees,
        node_of=tuple(nodes.to(device) for nodes in node_of),
        predictor=NodePredictor(grams, placed, budget),
        diagnostics=Diagnostics(**diagnostics),
        memory_budget=budget,
    )


def sharing(model: ForestModel, other: ForestModel) -> ForestModel:
    """A model whose posteriors are those of another one where they are equal, as before both were stored."""
    known = {(p.kind, tuple(p.nodes.tolist())): p for p in other.predictor.posteriors}
    found = [_same(p, known.get((p.kind, tuple(p.nodes.tolist())))) for p in model.predictor.posteriors]
    return replace(model, predictor=NodePredictor(model.predictor.grams, found, model.memory_budget))


def _same(posterior: NodePosterior, other: NodePosterior | None) -> NodePosterior:
    """The other one, if it is equal."""
    if other is None:
        return posterior
    mine, theirs = _arrays(posterior), _arrays(other)
    alike = mine.keys() == theirs.keys()
    same = alike and all(a.dtype == theirs[key].dtype and torch.equal(a, theirs[key]) for key, a in mine.items())
    return other if same else posterior


def _arrays(posterior: NodePosterior) -> dict[str, Tensor]:
    """Those that it has, by name."""
    return {name: value for name, value in vars(posterior).items() if value is not None}


def _trees(documents: Any, sizes: Sizes, name: str) -> tuple[ClassTree, ...]:
    ensure(isinstance(documents, list) and len(documents) > 0, f"{name} has no trees.")
    with reading(f"a tree of {name}"):
        trees = tuple(ClassTree.from_json(tree) for tree in documents)
    for t, tree in enumerate(trees):
        agree(f"{name}.trees.{t}", sizes, "C", tree.n_classes)
    return trees


def _posteriors(kinds: Any, tensors: Mapping[str, Tensor], X: Tensor, sizes: Sizes, name: str) -> list[NodePosterior]:
    """The posteriors of all nodes; letters of their own sizes are those of one posterior only."""
    ensure(isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds), f"{name} has no posteriors.")
    out = []
    for i, kind in enumerate(kinds):
        ensure(kind in _POSTERIORS, f"{name} has a posterior of the unknown kind {kind!r:.80}.")
        own, label = dict(sizes), f"{name}.posterior.{i}"
        stated = {part: array for part, array in _STATED[kind].items() if part != "b" or f"posterior.{i}.b" in tensors}
        found = {part: tensors.get(f"posterior.{i}.{part}") for part in stated}
        if (precision := found.get("precision")) is not None:
            found["precision"] = _whole(precision)
        parts = {part: array.check(f"{label}.{part}", found[part], own) for part, array in stated.items()}
        alike = all(value.dtype == X.dtype for value in parts.values() if value.is_floating_point())
        ensure(alike, f"{label} is not in the precision of the features.")
        out.append(_POSTERIORS[kind](**parts))
    return out


def _lower(matrices: Tensor) -> Tensor:
    """The lower triangles (v, n(n + 1)/2) of symmetric matrices (v, n, n), row after row: all that is used of them."""
    row, column = torch.tril_indices(*matrices.shape[1:], device=matrices.device)
    return matrices[:, row, column]


def _whole(lower: Tensor) -> Tensor:
    """The matrices again. Files of versions before 6 have them as they are; what is neither is left as it is."""
    n = math.isqrt(2 * lower.shape[-1]) if lower.ndim == 2 else 0
    if n * (n + 1) != 2 * lower.shape[-1]:
        return lower
    matrices = lower.new_empty(len(lower), n, n)
    row, column = torch.tril_indices(n, n, device=lower.device)
    matrices[:, row, column] = matrices[:, column, row] = lower
    return matrices


def _check_factors(posteriors: Sequence[NodePosterior], grams: Grams, name: str) -> None:
    """Raise unless the matrices that variances need can be factorised.

    I + Ω^½ K Ω^½ can, for a positive semi-definite K, unless rounding errors are larger than I. Where they might be, or
    K might not be positive semi-definite, it is tried.
    """
    linear = grams.features is not None
    doubtful = any(isinstance(part, CosineKernel) for part in grams.kernel.modules())
    for i, p in enumerate(posteriors):
        label = f"{name}.posterior.{i}"
        ensure(linear or not isinstance(p, LinearPosterior), f"{label} is for a linear kernel, which this is not.")
        with torch.no_grad(), reading(label):
            diagonal = finite(grams.diagonal(p.nodes, p.rows))
            ensure(bool((diagonal >= 0).all()), f"{label} has a kernel with negative variances.")
            if isinstance(p, SparsePosterior):
                check_precision(f"{label}.precision", p.precision)
                if doubtful:
                    p.factoriser(grams)(slice(None))
                continue
            points = p.points if isinstance(p, SitesPosterior) else p.rows
            diagonal = finite(grams.diagonal(p.nodes, points))
            size = float(p.omega.max()) * float(diagonal.max()) * points.shape[1]
            if doubtful or size * torch.finfo(diagonal.dtype).eps > 1e-2:
                factors = p.factoriser(grams)
                for draw in range(p.factors):
                    factors(slice(draw, draw + 1))
