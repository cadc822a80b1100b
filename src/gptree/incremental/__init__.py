"""Classes that keep arriving: what is kept, where new classes go, and a journal of what happened."""

from gptree.incremental.base import base_of, fit_base, with_newcomers, with_novelty
from gptree.incremental.growth import Graft, Growth, RebuildTree, SessionTree, SharedRoot, Strategy
from gptree.incremental.journal import Contents, Entry, contents, now
from gptree.incremental.memory import Herding, KMeansSamples, SpreadSamples
from gptree.incremental.session import Base, Grown, Novelty, Rules, grow

__all__ = [
    "Base",
    "Contents",
    "Entry",
    "Graft",
    "Grown",
    "Growth",
    "Herding",
    "KMeansSamples",
    "Novelty",
    "RebuildTree",
    "Rules",
    "SessionTree",
    "SharedRoot",
    "SpreadSamples",
    "Strategy",
    "base_of",
    "contents",
    "fit_base",
    "grow",
    "now",
    "with_newcomers",
    "with_novelty",
]
