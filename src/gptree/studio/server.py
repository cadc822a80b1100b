"""Binding, the address, and the server around the application."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gptree.studio.app import Studio
from gptree.studio.desk import Desk
from gptree.studio.events import Events
from gptree.studio.guard import new_token

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(
    opened: Any = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    root: Path,
    author: str = "",
    read_only: bool = False,
    browser: bool = True,
    tell: Callable[[str], None] = print,
) -> None:
    """Serve the studio until it is interrupted.

    Parameters
    ----------
    opened : callable or None
        Opens a project, see `gptree.studio.sources.opener`; None shows the start screen.
    host : str
    port : int
        0 is any that is free.
    root : Path
        Only what lies below it can be opened from the page.
    author : str
        Who teaches, for the journal.
    read_only : bool
    browser : bool
        Whether to open one.
    tell : callable
        Is given the address, before anything heavy is loaded.
    """
    import uvicorn

    bound = bind(host, port)
    port = bound.getsockname()[1]
    token = new_token()
    desk = Desk(Events(), author, read_only)
    application = Studio(desk, root).app(token, hosts_of(host, port))
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/?token={token}"
    tell(address)
    if opened is not None:
        desk.open(opened)

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            threading.Thread(target=desk.events.close).start()  # open pages would listen for ever
            super().handle_exit(sig, frame)

    how: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False, "ws": "none"}
    server = Server(uvicorn.Config(application, timeout_graceful_shutdown=3, **how))
    if browser:
        webbrowser.open(address)
    try:
        server.run(sockets=[bound])
    finally:
        desk.close()


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; a ValueError says why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(128)  # a browser that comes before the server is ready waits
    except OSError as error:
        bound.close()
        raise ValueError(
            f"the studio cannot listen on {host}:{port} ({error.strerror}): choose another --port."
        ) from None
    return bound


def hosts_of(host: str, port: int) -> list[str]:
    """Values of the Host header that are answered."""
    names = [host, *LOOPBACK] if host in LOOPBACK else [host]
    return [f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in dict.fromkeys(names)]
