"""Models of format version 6 with what version 7 added.

Base sessions had scores, not the signs of strangers, and no model was less sure because of what new classes showed.
Experts for novel classes took every label for right.
"""

from __future__ import annotations

from typing import Any


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """A document of version 6 as version 7 would have written it."""
    base, experts = document.get("base"), document.get("experts")
    if isinstance(base, dict):
        added = {"novelty": {"signs": None, "variance_weight": None}, "novel_experts": {"trusts_labels": True}}
        known = {name: {**base[name], **values} for name, values in added.items() if isinstance(base.get(name), dict)}
        document = {**document, "base": {**base, **known}}
    if isinstance(experts, dict) and experts.get("kind") == "FittedBaseNovelExpert":
        document = {**document, "experts": {**experts, "sharpness": 1.0}}
    return document
