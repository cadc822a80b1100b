"""Models of format version 4 with what version 5 added: no left-out probabilities of the base session's examples."""

from __future__ import annotations

from typing import Any


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """A document of version 4 as version 5 would have written it."""
    base = document.get("base")
    if not isinstance(base, dict) or not isinstance(base.get("novelty"), dict):
        return document  # no base session, or one that keeps all its examples
    return {**document, "base": {**base, "novelty": {**base["novelty"], "own": None}}}
