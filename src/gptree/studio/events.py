"""What happens, told to every open page as it happens: server-sent events."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

#: Seconds between signs of life.
HEARTBEAT = 15.0
_KEPT = 256  # events that a page which was away for a moment can catch up on


class Events:
    """A stream of events with numbers; a page that comes back names the last one it saw, and is told the rest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: deque[tuple[int, str]] = deque(maxlen=_KEPT)
        self._number = 0
        self._life = secrets.token_hex(4)  # of this process: numbers of another one mean nothing
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Queue[str | None]]] = set()
        self._closed = False

    def publish(self, kind: str, **data: Any) -> None:
        """Tell everybody; may be called from any thread."""
        with self._lock:
            self._number += 1
            text = f"id: {self._life}-{self._number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
            self._recent.append((self._number, text))
            listeners = list(self._listeners)
        for loop, queue in listeners:
            loop.call_soon_threadsafe(queue.put_nowait, text)

    def close(self) -> None:
        """End all streams, so that the server can stop."""
        self._closed = True
        with self._lock:
            listeners = list(self._listeners)
        for loop, queue in listeners:
            loop.call_soon_threadsafe(queue.put_nowait, None)

    async def stream(self, last: str = "", heartbeat: float = HEARTBEAT) -> AsyncIterator[str]:
        """Text of the events after the one with the id `last`, for as long as the page listens."""
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        me = (asyncio.get_running_loop(), queue)
        with self._lock:
            missed = self._missed(last)
            self._listeners.add(me)
        try:
            yield ": hello\n\n" + "".join(missed)
            while not self._closed:
                try:
                    text = await asyncio.wait_for(queue.get(), heartbeat)
                except TimeoutError:
                    text = ": still here\n\n"
                if text is None:
                    return
                yield text
        finally:
            with self._lock:
                self._listeners.discard(me)

    def _missed(self, last: str) -> list[str]:
        life, _, number = last.partition("-")
        if not last:
            return []
        if life != self._life or not number.isdigit() or (self._recent and int(number) < self._recent[0][0] - 1):
            return ["event: reset\ndata: {}\n\n"]  # too long ago: the page asks for everything again
        return [text for n, text in self._recent if n > int(number)]
