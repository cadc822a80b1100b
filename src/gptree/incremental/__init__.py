"""Classes that keep arriving: what is kept, where new classes go, and a journal of what happened."""

from gptree.incremental.base import (
    base_experts,
    base_novelty,
    base_of,
    fit_base,
    left_out_again,
    with_novel_experts,
)
from gptree.incremental.exemplars import Herding, KMeansExemplars, KMeansPlusPlusExemplars, Selection, condensed
from gptree.incremental.journal import BaseClass, ClassRegistry, Entry, NovelClass, replay, with_classes
from gptree.incremental.kernels import joined_kernels
from gptree.incremental.memory import memory_left_out, memory_scores
from gptree.incremental.sessions import grow
from gptree.incremental.state import BaseState, GrownState, GrowthConfig, Novelty
from gptree.incremental.strategies import (
    Build,
    Graft,
    Growth,
    Logarithmic,
    Placement,
    RebuildTree,
    SessionTree,
    SharedRoot,
    Strategy,
)

__all__ = [
    "BaseClass",
    "BaseState",
    "Build",
    "ClassRegistry",
    "Entry",
    "Graft",
    "GrownState",
    "Growth",
    "GrowthConfig",
    "Herding",
    "KMeansExemplars",
    "KMeansPlusPlusExemplars",
    "Logarithmic",
    "NovelClass",
    "Novelty",
    "Placement",
    "RebuildTree",
    "Selection",
    "SessionTree",
    "SharedRoot",
    "Strategy",
    "base_experts",
    "base_novelty",
    "base_of",
    "condensed",
    "fit_base",
    "grow",
    "joined_kernels",
    "left_out_again",
    "memory_left_out",
    "memory_scores",
    "replay",
    "with_classes",
    "with_novel_experts",
]
