"""Models of format version 6 with what version 7 added: base sessions have scores, not the signs of strangers."""

from __future__ import annotations

from typing import Any


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """A document of version 6 as version 7 would have written it."""
    base = document.get("base")
    if not isinstance(base, dict) or not isinstance(base.get("novelty"), dict):
        return document  # no base session, or one that keeps all its examples
    return {**document, "base": {**base, "novelty": {**base["novelty"], "signs": None, "variance_weight": None}}}
