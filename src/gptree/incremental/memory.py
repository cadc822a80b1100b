"""The examples in memory, and what the experts say of them left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gptree.experts import FittedBaseNovelExpert, FittedExpert
from gptree.experts.base import LeftOutAt, dense_left_out
from gptree.incremental.journal import BaseClass, ClassRegistry
from gptree.incremental.state import BaseState, GrownState

#: In place of a row of the base model.
NO_TWIN = -1


@dataclass(frozen=True, eq=False)
class Memory:
    """Examples kept of the classes there are: exemplars of the base classes, then everything that came later.

    Classes are numbered as the registry orders them: base classes that are still there, then novel ones.
    """

    features: Tensor
    """(N, d) features of the base model, and then all later examples."""
    rows: Tensor
    """(n,) rows of `features` that are in memory."""
    y: Tensor
    """(n,) class numbers."""
    weights: Tensor
    """(n,) how many times each counts."""
    later: Tensor
    """(k, d) later examples, the end of `features`."""
    later_y: Tensor
    twins: Tensor
    """(k,) the row of the base model that a later example of a base class equals, `NO_TWIN` if there is none."""
    kept: Tensor
    """(B,) numbers, in the base session, of the base classes that are still there."""
    place: Tensor
    """(classes of the base session,) where each stands now, −1 if it is gone."""

    @classmethod
    def of(cls, base: BaseState, registry: ClassRegistry) -> Memory:
        device = base.X.device
        kept = torch.tensor([c.number for c in registry.base], device=device)
        taught = [c for c in (*registry.base, *registry.novel) if c.origins]
        later = torch.cat([base.X[:0], *(c.extra if isinstance(c, BaseClass) else c.features for c in taught)])
        sizes = torch.tensor([len(c.origins) for c in (*registry.base, *registry.novel)], device=device)
        later_y = torch.arange(len(sizes), device=device).repeat_interleave(sizes)
        place = torch.as_tensor(registry.base_places(base.n_classes), device=device)
        exemplars = base.exemplars[place[base.y[base.exemplars]] >= 0]
        rows = torch.cat([exemplars, len(base.X) + torch.arange(len(later), device=device)])
        y = torch.cat([place[base.y[exemplars]], later_y])
        weights = torch.cat([base.row_weights[exemplars], *(c.weights for c in taught)])
        twins = _twins(base, registry, len(later))
        return cls(torch.cat([base.X, later]), rows, y, weights, later, later_y, twins, kept, place)

    @property
    def n_exemplars(self) -> int:
        return len(self.rows) - len(self.later)

    @property
    def later_weights(self) -> Tensor:
        return self.weights[self.n_exemplars :]


def _twins(base: BaseState, registry: ClassRegistry, n_later: int) -> Tensor:
    """See `Memory.twins`."""
    found: list[int] = []
    for c in registry.base:
        if not c.origins:
            continue
        rows = (base.y == c.number).nonzero()[:, 0].tolist()
        known = {(x + 0.0).tobytes(): row for row, x in zip(rows, base.X[rows].cpu().numpy(), strict=True)}
        found += [known.get((x + 0.0).tobytes(), NO_TWIN) for x in c.extra.cpu().numpy()]
    return torch.tensor(found + [NO_TWIN] * (n_later - len(found)), dtype=torch.long, device=base.X.device)


def memory_left_out(base: BaseState, grown: GrownState, on_sphere: Callable[[Tensor], Tensor]) -> Tensor | None:
    """Left-out class log-probabilities (n, C) of a grown model at the examples in memory; None for zero prior means."""
    if grown.left_out is not None:
        return grown.left_out
    scores = memory_scores(base, grown, on_sphere)
    return None if scores is None else dense_left_out(scores, len(grown.rows), grown.rows.device)


def memory_scores(base: BaseState, grown: GrownState, on_sphere: Callable[[Tensor], Tensor]) -> LeftOutAt | None:
    """The same at examples in memory by their numbers."""
    if grown.left_out is not None:
        return grown.left_out.__getitem__
    if base.expert is None:
        return None
    memory, registry = Memory.of(base, grown.registry), grown.registry
    later = on_sphere(memory.later)
    scores = base_scores(base, memory, later)
    if not registry.novel:
        return scores
    assert base.novel_experts is not None
    assert isinstance(grown.expert, FittedBaseNovelExpert)
    if grown._table is not None:
        return grown.expert.known_scores(scores, grown._table).at
    known = memory.kept, later, memory.later_y, scores, memory.weights
    return base.novel_experts.left_out(grown.expert, *known, base_at_arrivals(base, registry, later)).at


def base_at_arrivals(base: BaseState, registry: ClassRegistry, later: Tensor) -> Tensor | None:
    """What base classes score at later examples (k, d), if these are all that is new; None with ridge regression."""
    experts = base.novel_experts
    if registry.base_changed or experts is None or experts.base_mass is None:
        return None
    return experts.at_arrivals(later, [len(c.origins) for c in registry.novel])


def base_scores(base: BaseState, memory: Memory, later: Tensor) -> LeftOutAt:
    """Left-out log-probabilities of the base classes still there, at examples in memory by their numbers."""
    m = memory.n_exemplars

    def at(asked: Tensor) -> Tensor:
        old, new = asked < m, asked[asked >= m] - m
        found = base_left_out(base, memory, memory.rows[asked[old]], later[new], new)
        order = torch.cat([old.nonzero()[:, 0], (~old).nonzero()[:, 0]])
        return torch.empty_like(found).index_copy_(0, order, found)

    return at


def base_left_out(
    base: BaseState, memory: Memory, rows: Tensor, later: Tensor, numbers: Tensor | None = None
) -> Tensor:
    """Log-probabilities of the base classes still there, at rows of the base and then at later examples (k, d).

    The base session never saw the latter: they are left out of its experts as these are. One that equals a row of the
    base it did see, and what is left out there is left out here. They are the first later ones, or those `numbers`.
    """
    assert base.expert is not None
    assert base.left_out is not None
    twins = memory.twins[: len(later)] if numbers is None else memory.twins[numbers]
    known = (twins != NO_TWIN).nonzero()[:, 0]
    at_rows, at_twins = (base.left_out[each][:, memory.kept].log_softmax(1) for each in (rows, twins[known]))
    at_later = of_kept(base.expert, memory).log_probabilities(later)
    return torch.cat([at_rows, at_later.index_copy(0, known, at_twins.to(at_later))])


def of_kept(expert: FittedExpert, memory: Memory) -> FittedExpert:
    """An expert of the base classes as one of those that are still there."""
    return expert if len(memory.kept) == len(memory.place) else expert.only(memory.kept)
