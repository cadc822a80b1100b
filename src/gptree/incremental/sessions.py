"""A grown model from the base session and the registry of a journal.

    base       the forest of the base session, its experts, and the examples that were kept
    registry   which classes there are now, and the examples that came later

`grow` is a function of these two: the same registry gives the same model, however it came about. Nodes of the base
trees keep their posteriors; only those on the path of a base class that was given further examples are fitted again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gptree.experts import FittedExpert, GrownScores, Layer, NovelSums
from gptree.incremental.exemplars import root_rows
from gptree.incremental.journal import BaseClass, ClassRegistry
from gptree.incremental.kernels import joined_kernels
from gptree.incremental.memorised import class_spreads, wider
from gptree.incremental.memory import Memory, base_at_arrivals, base_left_out, base_scores, of_kept
from gptree.incremental.new_nodes import all_odds, beliefs_in_labels, counted, log_sizes_of, path_odds, seen_rows
from gptree.incremental.state import BaseState, GrownState, GrowthConfig
from gptree.incremental.strategies import Placement
from gptree.inference import Diagnostics, Grams, NodePredictor, fit_nodes, on_rows
from gptree.maths.kernels import batch_shape, node_kernels
from gptree.maths.sphere import unit_length
from gptree.model import ForestModel, TrainingData, node_problems
from gptree.model.node_data import NEW
from gptree.progress import silent
from gptree.tree import ClassTree, build_tree, label_hashes, surviving

#: Left-out scores that a grown model keeps, at most; others are computed again.
KEPT_TABLE = 2**20


def grow(
    base: BaseState, registry: ClassRegistry, config: GrowthConfig, previous: GrownState | None = None
) -> GrownState:
    """The model of this registry; `previous` may save fitting sessions again that it has fitted already."""
    if previous is not None and _same(previous.registry, registry) and _fits(previous, base):
        return replace(previous, registry=registry)
    memory = Memory.of(base, registry)
    touched = [c.number for c in registry.base if c.origins]
    # paper section 3.4
    frozen = _pruned(base, registry)
    if touched:
        frozen = _refitted(base, registry, config, memory, frozen, touched)
    if not registry.novel:
        expert = _base_expert(base, registry, config, memory)
        return GrownState(registry, frozen.over(memory.features), expert, memory.rows, memory.y)
    if not config.strategy.layered:
        return _extended(base, registry, config, frozen, memory)
    layers: list[GrownState] = []
    sessions, below = registry.sessions, []
    ends = np.cumsum(config.strategy.groups(len(sessions))).tolist()
    advance, config = config.progress("fitting sessions", len(ends)), replace(config, progress=silent)
    for k, last in enumerate(ends):
        places = sorted(place for session in sessions[:last] for place in session)
        part = replace(registry, novel=tuple(registry.novel[i] for i in places))
        known = previous.layers[k] if previous is not None and len(previous.layers) > k else None
        if known is not None and _same(known.registry, part):
            layers.append(known)
        else:
            sums = layers[-1]._sums if layers and places[: len(below)] == below else None
            layers.append(_extended(base, part, config, frozen, Memory.of(base, part), sums))
            previous = None  # what was fitted on top of other classes is of no use
        below = places
        frozen = _Frozen.of(layers[-1].model)
        advance(1)
    light = (layer if layer._table is None else replace(layer, _table=None) for layer in layers)
    return replace(layers[-1], registry=registry, layers=tuple(light))


# -------------------------------------------------------------------------------------------------------- the classes


def _fits(grown: GrownState, base: BaseState) -> bool:
    """Whether a model has its examples in the order of its registry; one of an older file has them as they came."""
    return torch.equal(grown.model.predictor.grams.X, Memory.of(base, grown.registry).features)


def _same(a: ClassRegistry, b: ClassRegistry) -> bool:
    """Whether two registries give the same model, but for what the classes are called."""

    def alike(one: Any, other: Any) -> bool:
        if one is other:
            return True
        if isinstance(one, BaseClass):
            names, tensors = ("number", "origins"), ("extra", "weights")
        else:
            names, tensors = ("key", "origins"), ("features", "weights", "arrival")
        same = all(getattr(one, name) == getattr(other, name) for name in names)
        return same and all(torch.equal(getattr(one, name), getattr(other, name)) for name in tensors)

    sizes = [(len(each.base), len(each.novel)) for each in (a, b)]
    return sizes[0] == sizes[1] and all(map(alike, (*a.base, *a.novel), (*b.base, *b.novel)))


def _means(base: BaseState, registry: ClassRegistry) -> np.ndarray:
    """Class means (C, d) of the mapped features: of base classes from what their exemplars stand for."""
    kept = base.exemplar_means[[c.number for c in registry.base]]
    return torch.cat([kept, *(c.mean[None] for c in registry.novel)]).double().cpu().numpy()


# --------------------------------------------------------------------------------------------------------- the experts


def _base_expert(base: BaseState, registry: ClassRegistry, config: GrowthConfig, memory: Memory) -> FittedExpert | None:
    """The expert of the base classes still there, with what came later."""
    expert = base.expert
    if expert is None:
        return None
    n_extra = sum(len(c.origins) for c in registry.base)
    if n_extra:
        later, extra_y = config.on_sphere(memory.later[:n_extra]), memory.kept[memory.later_y[:n_extra]]
        expert = expert.grown(later, extra_y, base.n_classes, memory.later_weights[:n_extra])
    return of_kept(expert, memory)


def _experts(
    base: BaseState,
    registry: ClassRegistry,
    config: GrowthConfig,
    memory: Memory,
    rows: Tensor,
    memorised: bool,
    layer: Layer | None,
) -> tuple[FittedExpert | None, GrownScores | None]:
    """Experts over all classes, and their left-out log-probabilities (n, C) at the examples in memory.

    They are known at once at `rows` of the memory. The base may be `memorised`, the newest classes a `layer`, see
    `NovelClassExperts.grown`.
    """
    expert = _base_expert(base, registry, config, memory)
    if expert is None:
        return None, None
    assert base.novel_experts is not None
    later = config.on_sphere(memory.later)
    known = memory.kept, later, memory.later_y, base_scores(base, memory, later), memory.weights, rows
    arrivals = base_at_arrivals(base, registry, later)
    return base.novel_experts.grown(expert, *known, memorised, arrivals, layer)


def _times_wider(base: BaseState, config: GrowthConfig, memory: Memory) -> float | None:
    """How many times wider the novel classes are: the network behind the features knew the base by heart if at all."""
    if base.spreads is None:
        return None
    novel = memory.later_y >= len(memory.kept)
    numbers, features = memory.later_y[novel] - len(memory.kept), config.on_sphere(memory.later[novel])
    spreads = class_spreads(features, numbers, int(numbers.max()) + 1, memory.later_weights[novel])
    return wider(base.spreads[memory.kept], spreads)


# ----------------------------------------------------------------------------------------------------------- the trees


@dataclass(frozen=True, eq=False)
class _Frozen:
    """Fitted nodes, and the trees they stand in so far."""

    trees: tuple[ClassTree, ...]
    node_of: tuple[np.ndarray, ...]
    model: ForestModel

    @classmethod
    def of(cls, model: ForestModel) -> _Frozen:
        return cls(model.trees, tuple(nodes.cpu().numpy() for nodes in model.node_of), model)

    def over(self, features: Tensor) -> ForestModel:
        """The same nodes as a model over more features."""
        model, predictor = self.model, self.model.predictor
        grams = Grams(predictor.grams.kernel, features, model.memory_budget)
        return replace(
            model,
            trees=self.trees,
            node_of=tuple(torch.as_tensor(nodes, device=features.device) for nodes in self.node_of),
            predictor=NodePredictor(grams, predictor.posteriors, model.memory_budget),
        )


def _pruned(base: BaseState, registry: ClassRegistry) -> _Frozen:
    """The base trees without the classes that were removed."""
    frozen = _Frozen.of(base.model)
    gone = sorted(set(range(base.n_classes)) - {c.number for c in registry.base})
    if not gone:
        return frozen
    pruned = [surviving(tree, gone) for tree in frozen.trees]
    return replace(
        frozen,
        trees=tuple(tree for tree, _ in pruned),
        node_of=tuple(nodes[stays] for nodes, (_, stays) in zip(frozen.node_of, pruned, strict=True)),
    )


def _refitted(
    base: BaseState, registry: ClassRegistry, config: GrowthConfig, memory: Memory, frozen: _Frozen, touched: list[int]
) -> _Frozen:
    """Base nodes on the paths of classes with further examples, fitted again to all rows that are kept of the base.

    A row stands for several examples, which its likelihood weight says, times the belief in its label.
    """
    n_extra = sum(len(c.origins) for c in registry.base)
    held = (memory.place[base.y] >= 0).nonzero()[:, 0]
    rows = torch.cat([held, len(base.X) + torch.arange(n_extra, device=base.X.device)])
    weights = torch.cat([base.stands_for[held], memory.later_weights[:n_extra]])
    scores = None
    if base.expert is not None:
        scores = base_left_out(base, memory, held, config.on_sphere(memory.later[:n_extra]))
    y = torch.cat([memory.place[base.y[held]], memory.later_y[:n_extra]])
    if scores is not None and not config.learns_sizes:
        scores = scores + torch.bincount(y, weights).log().to(scores)
    keys = [base.keys[c.number] for c in registry.base]
    if base.beliefs is not None:
        weights = weights * torch.cat([base.beliefs[held], torch.ones_like(memory.later_weights[:n_extra])])
    data = TrainingData(memory.features[rows], y.cpu().numpy(), keys, scores, weights)
    numbers = [i for i, c in enumerate(registry.base) if c.number in touched]
    known = [
        np.where([np.isin(numbers, tree.members(v)).any() for v in range(tree.n_nodes)], NEW, nodes)
        for tree, nodes in zip(frozen.trees, frozen.node_of, strict=True)
    ]
    return _Frozen.of(_fitted(frozen.model, frozen.trees, known, data, rows, memory.features, config))


def _extended(
    base: BaseState,
    registry: ClassRegistry,
    config: GrowthConfig,
    frozen: _Frozen,
    memory: Memory,
    earlier: NovelSums | None = None,
) -> GrownState:
    """Novel classes placed in every tree, and the nodes that are new to it fitted to the examples in memory.

    Of layers below, what their novel classes score together may be known from `earlier`.
    """
    means = _means(base, registry)
    keys = [base.keys[c.number] for c in registry.base] + [c.key for c in registry.novel]
    n_base = len(registry.base)
    sessions = [n_base + np.array(places) for places in registry.sessions]
    similar = (unit_length(means[n_base:]) @ unit_length(means[:n_base]).T).argmax(1)
    placed: list[Placement] = []
    advance = config.progress("building trees", len(frozen.trees))
    for tree, seed in zip(frozen.trees, config.tree_seeds, strict=True):

        def build(classes: np.ndarray, seed: int = seed) -> ClassTree:
            return build_tree(config.tree, means[classes], [keys[c] for c in classes], seed)

        placed.append(config.strategy.place(tree, sessions, build, similar))
        advance(1)
    # −1 is a new node there, and the last entry here
    known = [np.append(nodes, NEW)[place.base_nodes] for place, nodes in zip(placed, frozen.node_of, strict=True)]
    joined = [place.novel for place in placed if place.novel is not None]
    first = len(keys) - joined[0].n_classes if len(joined) == len(placed) else None
    hashes = label_hashes(keys)
    seen = seen_rows(memory, first, hashes)
    times_wider = _times_wider(base, config, memory)
    layer, many = None, len(memory.y) * (1 + len(keys) - n_base) > KEPT_TABLE
    if config.strategy.layered and first is not None and many:
        below = earlier if earlier is not None and earlier.n_novel == first - n_base else None
        layer = Layer(below, root_rows(memory.y, hashes))
    scored = config.progress("scoring rows", None)
    expert, left_out = _experts(base, registry, config, memory, seen, times_wider is not None, layer)
    weights = counted(memory, n_base, config)[seen]
    trees, rows, y = tuple(place.tree for place in placed), memory.rows[seen], memory.y[seen].cpu().numpy()
    scores, log_sizes = None, None
    if left_out is not None:
        log_sizes = None if config.learns_sizes else log_sizes_of(memory.y[seen], weights, len(keys), n_base, first)
        if first is None:
            scores, own = all_odds(trees, left_out, memory, seen, log_sizes, scored)
        else:
            scores, own = path_odds(joined, left_out, memory, seen, first, n_base, log_sizes)
        weights = weights * beliefs_in_labels(base, memory, seen, own, len(keys), first)
    data = TrainingData(memory.features[rows], y, keys, scores, weights)
    keeps = not config.strategy.rebuilds
    model = _fitted(frozen.model, trees, known, data, rows, memory.features, config, keeps)
    # that of a layer has the newest classes alone; there are many then
    table = None if left_out is None or left_out.more is not None or many else left_out.table
    sums = None if left_out is None else left_out.sums
    known_of = {"times_wider": times_wider, "log_sizes": log_sizes, "_table": table, "_sums": sums}
    return GrownState(registry, model, expert, memory.rows, memory.y, **known_of)


def _fitted(
    source: ForestModel,
    trees: tuple[ClassTree, ...],
    known: list[np.ndarray],
    data: TrainingData,
    rows: Tensor,
    features: Tensor,
    config: GrowthConfig,
    keeps: bool = True,
) -> ForestModel:
    """The forest over `features` whose nodes are `known` nodes of `source`, or fitted to those rows of the features.

    Without `keeps`, nothing of the source stays but the kernel that all its nodes share. Where they have kernels of
    their own, so have the new ones: that of the settings.
    """
    kernel = source.predictor.grams.kernel
    posteriors = source.predictor.posteriors if keeps else ()
    n_fitted = sum(len(p.nodes) for p in posteriors)
    problems, node_of = node_problems(trees, data, config.large_nodes, config.seed, known, n_fitted)
    own = len(batch_shape(kernel)) > 0
    new_kernel = node_kernels(config.kernel, len(problems)) if own and config.kernel is not None else kernel
    fits = fit_nodes(
        problems,
        new_kernel,
        data.X,
        config.inference,
        memory_budget=config.memory_budget,
        n_jobs=config.n_jobs,
        progress=config.progress("fitting nodes", len(problems)),
    )
    new = [replace(on_rows(p, rows), nodes=p.nodes + n_fitted) for p in fits.posteriors]
    kernel = joined_kernels(kernel, new_kernel) if own and keeps else new_kernel
    grams = Grams(kernel, features, config.memory_budget)
    predictor = NodePredictor(grams, (*posteriors, *new), config.memory_budget)
    diagnostics = _together(source.diagnostics if keeps else None, fits.diagnostics, n_fitted)
    return ForestModel(trees, node_of, predictor, diagnostics, config.memory_budget)


def _together(before: Diagnostics | None, new: Diagnostics, offset: int) -> Diagnostics:
    """Diagnostics of all nodes; what only one of two kinds of inference reports is dropped."""
    new = replace(new, nodes=new.nodes + offset)
    if before is None:
        return new
    both: dict[str, Any] = {}
    for item in fields(Diagnostics):
        old, added = getattr(before, item.name), getattr(new, item.name)
        both[item.name] = None if old is None or added is None else torch.cat([old.cpu(), added.cpu()])
    return Diagnostics(**both)
