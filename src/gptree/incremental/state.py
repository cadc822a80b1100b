"""States of a growing model: its base session, how it grows, and the grown model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.experts import FittedExpert, LeftOutScores, NovelClassExperts, NovelSums
from gptree.incremental.journal import ClassRegistry
from gptree.incremental.strategies import Strategy
from gptree.inference import Inference, LargeNodes, PredictAt
from gptree.maths.frozen import Sums
from gptree.model import ForestModel, StayingNodes
from gptree.progress import Progress, silent
from gptree.storage import Array, Number, Serializable, Sizes, ensure


@dataclass(frozen=True, eq=False)
class Novelty(Serializable):
    """How the examples of the base session looked to its model, each left out."""

    signs: Annotated[Tensor | None, Array("n 4")]
    """(n, 4) the signs of a stranger, see `gptree.model.strangers`; None in files of versions before 7."""
    variance_weight: Annotated[float | None, Number(least=0, most=10)]
    """Weight of the last of them, which the base classes chose; None in files of versions before 7."""
    y: Annotated[Tensor, Array("n", below="C")]
    """(n,) class numbers."""
    exemplars: Annotated[Tensor, Array("m", below="n", distinct=True)]
    """(m,) which of them are the exemplars."""
    own: Annotated[Tensor | None, Array("n", most=1e-3)] = None
    """(n,) log-probabilities of their own classes; None in files of versions before 5."""
    values: Annotated[Tensor | None, Array("n", least=-1e-3, most=1.001)] = None
    """(n,) one minus confidence times familiarity; in files of versions before 7 only."""

    def check(self, name: str, sizes: Sizes) -> None:
        classes = self.y[self.exemplars]
        everybody = torch.arange(sizes["C"], device=classes.device)
        ensure(torch.equal(classes.unique_consecutive(), everybody), f"{name}.exemplars are not class after class.")
        new = self.signs is not None and self.variance_weight is not None and self.values is None
        old = self.signs is None and self.variance_weight is None and self.values is not None
        ensure(new or old, f"{name} has neither signs of strangers nor the scores of an older version.")


@dataclass(frozen=True, eq=False)
class BaseState:
    """The base session: its forest, its experts and the rows it keeps.

    Rows are those of the features of its model, all of them with a label.
    """

    keys: tuple[Any, ...]
    """The labels of its classes, as keys of random choices."""
    model: ForestModel
    expert: FittedExpert | None
    """None for zero prior means."""
    y: Tensor
    """(n,) class numbers of the rows."""
    stands_for: Tensor
    """(n,) how many examples each row stands for."""
    exemplars: Tensor
    """(m,) the exemplars of the classes, class after class."""
    exemplar_weights: Tensor
    """(m,) how many examples of their class they stand for there."""
    left_out: Tensor | LeftOutScores | None
    """(n, B) left-out class log-probabilities at the rows: an array only where they cannot be computed again."""
    novel_experts: NovelClassExperts | None
    """What was learnt about classes that arrive later; None for zero prior means, or before it is needed."""
    novelty: Novelty | None = None
    """Of all examples of the base session; None where all of them are kept, see `base_novelty`."""
    spreads: Tensor | None = None
    """(B,) see `class_spreads`; None where the rows are held out from the network, or not known to be."""
    weights: Tensor | None = None
    """(n,) how many times each row counted in the base session; None is once."""
    beliefs: Tensor | None = None
    """(n,) the belief that the label of each row is right, see `label_beliefs`; None is 1."""
    likelihood: Tensor | None = None
    """(n,) weights of the rows at the nodes: how many times each counted, times the belief in its label, or next to
    nothing where no class had two rows; None is 1."""
    _novelty: dict[PredictAt, Novelty] = field(default_factory=dict)
    """Computed by `base_novelty` when first asked for."""
    _staying: StayingNodes | None = None

    @cached_property
    def staying(self) -> StayingNodes:
        """Its nodes, of which models that grow from it make left-out predictions."""
        return StayingNodes(self.model.predictor.posteriors) if self._staying is None else self._staying

    @cached_property
    def exemplar_means(self) -> Tensor:
        """(B, d) class means of the mapped features, from what exemplars stand for."""
        weights, y = self.exemplar_weights, self.y[self.exemplars]
        sums = Sums(y, self.exemplars, weights, (self.n_classes, len(self.X)))(self.X)
        return sums / torch.bincount(y, weights, minlength=self.n_classes)[:, None]

    @property
    def X(self) -> Tensor:
        return self.model.predictor.grams.X

    @property
    def n_classes(self) -> int:
        return len(self.keys)

    @property
    def row_weights(self) -> Tensor:
        """(n,) `weights`, ones where there are none."""
        return torch.ones_like(self.stands_for) if self.weights is None else self.weights


@dataclass(frozen=True, eq=False)
class GrowthConfig:
    """How new nodes are placed and fitted."""

    strategy: Strategy
    inference: Inference
    large_nodes: LargeNodes | None
    tree: Any
    """Builds trees over novel classes; see `build_tree`."""
    tree_seeds: Sequence[int]
    """One for each tree of the forest."""
    seed: int
    memory_budget: int
    n_jobs: int | None
    on_sphere: Callable[[Tensor], Tensor]
    """Features as experts see them."""
    kernel: Kernel | None = None
    """Of new nodes, where those of the base session have kernels of their own; otherwise all share one."""
    session_exemplars: int | None = None
    """Rows of a class that are kept of a session, at most; None is all."""
    learns_sizes: bool = False
    """Whether nodes learn how large classes are, as they did in files of older versions."""
    progress: Progress = silent


@dataclass(frozen=True, eq=False)
class GrownState:
    """A model of all classes there are."""

    registry: ClassRegistry
    model: ForestModel
    expert: FittedExpert | None
    rows: Tensor
    """(n,) rows of the model's features that are examples kept in memory."""
    y: Tensor
    """(n,) their class numbers."""
    left_out: Tensor | None = None
    """(n, C) left-out class log-probabilities there, in older files; others are computed, see `memory_left_out`."""
    times_wider: float | None = None
    """How many times wider novel classes are than those of the base, where that is more than chance: see `wider`."""
    log_sizes: Tensor | None = None
    """(C,) logarithms of class sizes in the prior means around which new nodes were fitted; None is none."""
    layers: tuple[GrownState, ...] = ()
    """Of a forest that grows by sessions, or by groups of them: the model after each."""
    _table: Tensor | None = None
    """(n, 1 + N) what growing has computed of left-out predictions, see `GrownScores`; where it is small."""
    _sums: NovelSums | None = None
    """Of a layer, what its novel classes score together, for the next one; where there are many."""
