"""Models of format version 5 with what version 6 added: nothing is known of base classes at exemplars beforehand."""

from __future__ import annotations

from typing import Any


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """A document of version 5 as version 6 would have written it."""
    base = document.get("base")
    if not isinstance(base, dict) or not isinstance(base.get("novel_experts"), dict):
        return document  # no base session, or one without experts for novel classes
    return {**document, "base": {**base, "novel_experts": {**base["novel_experts"], "base_mass": None}}}
