"""Kinds of models and strategies of growth in pairs: where all sixteen would cost more than they find.

Each strategy meets a forest and a tree, one that keeps exemplars and one that keeps all, in either half; what one half
leaves out is in the other. A quarter has each kind and each strategy once; the campaign has longer stories of all.
"""

from __future__ import annotations

from typing import Any

import pytest

from gptree import Graft, RebuildTree, SessionTree, SharedRoot

KINDS = ["forest, growth", "forest", "paper, growth", "paper"]
STRATEGIES = [SharedRoot(), SessionTree(), RebuildTree(), Graft()]


def _pairs(first: list[str], second: list[str]) -> Any:
    shared_root, session_tree, rebuild_tree, graft = STRATEGIES
    pairs = [(kind, strategy) for strategy in (shared_root, graft) for kind in first]
    pairs += [(kind, strategy) for strategy in (session_tree, rebuild_tree) for kind in second]
    return pytest.mark.parametrize(("kind", "strategy"), pairs, ids=lambda value: getattr(value, "name", value))


_OUTER, _INNER = KINDS[::3], KINDS[1:3]
half_of_the_pairs = _pairs(_OUTER, _INNER)
other_half_of_the_pairs = _pairs(_INNER, _OUTER)


def quarter_of_the_pairs(number: int) -> Any:
    """One of four; together they have all pairs."""
    pairs = [(KINDS[(k + number) % 4], strategy) for k, strategy in enumerate(STRATEGIES)]
    return pytest.mark.parametrize(("kind", "strategy"), pairs, ids=lambda value: getattr(value, "name", value))
