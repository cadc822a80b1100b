"""What must hold between the parts of a model that was read from a file; the rest stands next to the fields."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gptree.estimators.feature_map import SphereMap, UnitLength, make_feature_map
from gptree.estimators.state import FittedState
from gptree.estimators.validation import as_expert, check_predict_at
from gptree.incremental import BaseState, ClassRegistry, replay
from gptree.maths.kernels import KERNEL_NAMES
from gptree.settings import require
from gptree.storage import Number, ensure
from gptree.tree import ClassTree, TreeBuilder

#: Rows at which a model that was read is asked whether it gives probabilities.
PROBED = 2


def check_parameters(estimator: Any) -> None:
    """Raise what the estimator says to parameters that it cannot work with."""
    known = re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?|mps|xpu", estimator.device) is not None
    ensure(known, f"device is {estimator.device!r:.80}.")
    for name, stated in (
        ("memory_budget", Number(least=2**20, most=2**62)),
        ("n_jobs", Number(least=-1024, most=1024, whole=True)),
        ("random_state", Number(least=0, most=2**32 - 1, whole=True)),
    ):
        if getattr(estimator, name) is not None:
            stated.check(name, getattr(estimator, name))
    check_predict_at(estimator.predict_at)
    estimator._placement()
    estimator._n_trees()
    named = not isinstance(estimator.kernel, str) or estimator.kernel in KERNEL_NAMES
    ensure(named, f"kernel is {estimator.kernel!r:.80}.")
    estimator._large_nodes(estimator._inference())
    as_expert(estimator.prior_mean)
    make_feature_map(estimator.feature_map)
    if not isinstance(estimator.tree, ClassTree | list | tuple | None):
        TreeBuilder.of(estimator.tree)


def available(device: torch.device) -> torch.device:
    """The device itself; a ValueError where this machine has none."""
    backends: dict[str, Any] = {"cuda": torch.cuda, "mps": torch.backends.mps, "xpu": torch.xpu}
    there = device.type == "cpu" or backends[device.type].is_available()
    require(there, f'there is no device {str(device)!r} here: load_model(folder, device="cpu").')
    return device


def check_state(state: FittedState) -> None:
    """Raise unless labels, journal, rows, base session and grown model of a state fit each other."""
    labels = state.classes.tolist()
    if state.base is None:
        ensure(len(state.journal) == 1, "a model that has changed lacks its base session.")
        everybody = np.array_equal(np.unique(state.y), np.arange(len(labels)))
        ensure(everybody, "y lacks examples of a class.")
        ensure(state.left_out is None or state.experts is not None, "left-out predictions come without experts.")
    registry = state.registry()
    alike = registry.labels == labels and list(map(type, registry.labels)) == list(map(type, labels))
    ensure(alike, "the labels are not those that the journal leaves.")
    ensure(bool((state.origins[:, 0] < len(state.journal)).all()), "rows come from entries that the journal lacks.")
    rows = len(state.y) if state.base is None else len(state.base.y)
    ensure(len(state.journal[0].ids) in (0, rows), "the rows of the base session do not have an id each.")
    if isinstance(state.feature_map, SphereMap | UnitLength):
        longest = float(state.X.square().sum(1).max().sqrt())
        ensure(longest <= 1.001, f"features have the length {longest:.4g} after a map to unit length.")
    for what, logs in (("class prior", state.class_log_prior), ("share of the classes", state.log_frequencies)):
        total = 1.0 if logs is None else float(np.exp(logs.astype(float)).sum())
        ensure(abs(total - 1) < 1e-4, f"the {what} sums to {total:.4g}.")
    if state.base is not None:
        _check_base(state, state.base, registry)
        _check_growth(state, state.base, registry)
    _check_probabilities(state)


def _check_base(state: FittedState, base: BaseState, registry: ClassRegistry) -> None:
    X, exemplars = base.X, base.y[base.exemplars]
    ensure(state.class_log_prior is None, "a model that can change has no class prior.")
    ensure(len(base.model.trees) == len(state.model.trees), "base session and model differ in the number of trees.")
    everybody = torch.arange(base.n_classes, device=exemplars.device)
    ensure(torch.equal(exemplars.unique_consecutive(), everybody), "the exemplars are not class after class.")
    taught = [each for e in state.journal for each in (e.features, e.weights)]
    floats = [state.X, base.stands_for, base.exemplar_weights, base.weights, base.beliefs, *taught]
    ensure(all(each is None or each.dtype == X.dtype for each in floats), "arrays differ in precision.")
    ensure((base.expert is None) == (base.left_out is None), "left-out predictions and experts of the base differ.")
    ensure((base.expert is None) == (state.experts is None), "only one of base session and model has experts.")
    if base.novelty is not None:
        novelty = base.novelty
        same = torch.equal(novelty.y[novelty.exemplars], exemplars)
        ensure(same, "the novelty of the base session is of other exemplars.")
    if base.novel_experts is not None:
        experts = base.novel_experts
        ensure(base.expert is not None, "experts for novel classes come without those of the base session.")
        ensure(torch.equal(experts.density.labels, exemplars), "the experts for novel classes have other exemplars.")
        weights = (experts.root_weights, experts.novel_weights)
        ensure(all(value.dtype == X.dtype for value in weights), "weights of experts differ in precision.")
    elif registry.novel:
        ensure(base.expert is None, "a model with novel classes lacks the experts for them.")


def _check_growth(state: FittedState, base: BaseState, registry: ClassRegistry) -> None:
    """Features, rows and class numbers are those that base session and journal give."""
    ensure(len(state.journal) == 1 or state.grown is not None, "a model that has changed lacks its memory.")
    # older files have the examples as they came, or equal ones of a class for themselves
    as_they_came = replay(state.base_labels, state.journal, state.X.shape[1], state.X)
    known = [_examples(each) for each in (registry, state.registry(merged=False), as_they_came)]
    parts = next((each for each in known if torch.equal(state.X, torch.cat([base.X, *each]))), None)
    ensure(parts is not None, "the features are not those of base session and journal.")
    sizes = [len(part) for part in parts or ()]
    place = torch.as_tensor(registry.base_places(base.n_classes), device=base.y.device)
    numbers = torch.arange(len(sizes), device=base.y.device)
    later_y = numbers.repeat_interleave(torch.tensor(sizes, device=base.y.device))
    y = torch.cat([place[base.y], later_y])
    ensure(np.array_equal(state.y, y.cpu().numpy()), "y is not that of base session and journal.")
    if state.grown is None:
        ensure(state.left_out is base.left_out, "the base session has other left-out predictions.")
        return
    kept = base.exemplars[place[base.y[base.exemplars]] >= 0]
    rows = torch.cat([kept, torch.arange(len(base.X), len(state.X), device=kept.device)])
    memory = torch.equal(state.grown.rows, rows) and torch.equal(state.grown.y, y[rows])
    ensure(memory, "the memory is not that of base session and journal.")
    ensure(state.grown.left_out is None or base.expert is not None, "left-out predictions come without experts.")


def _examples(registry: ClassRegistry) -> list[Tensor]:
    """Later examples of each class."""
    return [c.extra for c in registry.base] + [c.features for c in registry.novel]


def _check_probabilities(state: FittedState) -> None:
    """Ask the model about some of its own rows."""
    features: Tensor = state.X[:PROBED]
    log_p = state.log_probabilities(features, np.zeros(features.shape), "mean").double()
    ensure(bool(torch.isfinite(log_p).all()), "the model gives probabilities that are not finite.")
    total = log_p.exp().sum(1)
    ensure(bool(((total - 1).abs() < 1e-2).all()), "the model gives probabilities that do not sum to one.")
