"""Reading requests, and the files of the page. A ValueError says what is wrong with a request."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object of a request."""
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise ValueError("A change is sent as application/json.")
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise ValueError("The request is no JSON.") from None
    if not isinstance(body, dict):
        raise ValueError("The request is no JSON object.")
    return body


def version_of(body: dict[str, Any]) -> int:
    """The version that a change was decided at."""
    if type(body.get("version")) is not int:
        raise ValueError("A change names the version that it was decided at.")
    return body["version"]


def list_of(body: dict[str, Any], name: str, most: int) -> list[Any]:
    """A list that is neither empty nor too long."""
    values = body.get(name)
    if not isinstance(values, list) or not 0 < len(values) <= most:
        raise ValueError(f"{name} is a list of 1 to {most:,}.")
    return values


def whole(value: Any, name: str) -> int:
    """A whole number."""
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is a whole number.") from None


def static_file(name: str) -> Response:
    """A file of the built page."""
    content = files("gptree.studio").joinpath("static", name).read_bytes()
    return Response(content, media_type=_KINDS[Path(name).suffix], headers={"Cache-Control": "no-cache"})
