"""Models of format version 3 with what version 4 added: no encoder, row numbers for ids, nobody as author."""

from __future__ import annotations

from typing import Any


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """A document of version 3 as version 4 would have written it."""
    if not isinstance(document.get("journal"), list):
        return document  # no tree and no forest
    entries = [
        {**entry, "ids": [], "author": ""} if isinstance(entry, dict) else entry for entry in document["journal"]
    ]
    return {**document, "journal": entries, "encoder": None}
