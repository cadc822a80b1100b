"""Who may ask, and what a browser may do with the answers: token, cookie, Host, Origin, headers, sizes.

Everything here runs before any other code of the studio sees a request.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Bytes of the body of a request that is no upload.
MOST_JSON = 4 * 2**20
UPLOAD = "/api/upload"

#: Nothing from elsewhere is loaded, nothing inline is run, and no other page may frame this one or send forms from it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_NO_TOKEN = (
    "This page needs its token: open the address that gptree studio printed, with ?token=… at its end. "
    "It changes with every start."
)


def new_token() -> str:
    """192 random bits."""
    return secrets.token_urlsafe(24)


class Guard:
    """The studio behind its checks.

    Parameters
    ----------
    app : ASGI application
    token : str
        Exchanged for a cookie at the first visit.
    hosts : sequence of str
        Values of the Host header that are answered, with port: any other name may be a stranger's that was made to
        point here.
    upload_limit : int
        Bytes of an upload.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: Sequence[str], upload_limit: int) -> None:
        self.app, self.token, self.hosts, self.upload_limit = app, token, frozenset(hosts), upload_limit
        self.session = secrets.token_urlsafe(24)
        port = next(iter(hosts)).rpartition(":")[2]
        self.cookie = f"gptree-{port}"  # browsers share cookies between the ports of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                mutable = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    mutable[name] = value
                if "cache-control" not in mutable:
                    mutable["Cache-Control"] = "no-store"
            await send(message)

        if headers.get("host", "") not in self.hosts:
            return await _refuse(guarded, 403, "The studio is not asked by this name; open the address it printed.")
        if scope["path"] == "/" and scope["method"] == "GET":
            given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
            if given and _same(given, self.token):
                return await self._welcome(guarded)
        if not _same(_cookie(headers, self.cookie), self.session):
            return await _refuse(guarded, 401, _NO_TOKEN, plain=not scope["path"].startswith("/api/"))
        if scope["method"] not in ("GET", "HEAD"):
            if headers.get("x-gptree") != "1" or headers.get("origin") != f"http://{headers['host']}":
                return await _refuse(guarded, 403, "Changes are taken from the studio's own page only.")
            limit = self.upload_limit if scope["path"] == UPLOAD else MOST_JSON
            try:
                if int(headers.get("content-length", 0)) > limit:
                    return await _refuse(guarded, 413, _too_much(limit))
            except ValueError:
                return await _refuse(guarded, 400, "Content-Length is not a number.")
            receive = _counted(receive, limit)
        await self.app(scope, receive, guarded)

    async def _welcome(self, send: Send) -> None:
        """The cookie, and the page without the token in its address."""
        cookie = f"{self.cookie}={self.session}; HttpOnly; SameSite=Strict; Path=/"
        headers = [(b"location", b"/"), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _counted(receive: Receive, limit: int) -> Receive:
    """Counts the body while it comes: a header may say anything."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > limit:
                raise HTTPException(413, _too_much(limit))
        return message

    return counted


def _too_much(limit: int) -> str:
    return f"More than {limit // 2**20} MiB at once are not taken; send less at a time."


def _same(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode(), secret.encode())


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except Exception:  # whatever a client sends
        return ""
    return "" if found is None else found.value


async def _refuse(send: Send, status: int, message: str, plain: bool = False) -> None:
    body, kind = message.encode(), b"text/plain; charset=utf-8"
    if not plain:
        content: dict[str, Any] = {"error": message}
        body, kind = json.dumps(content).encode(), b"application/json"
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
