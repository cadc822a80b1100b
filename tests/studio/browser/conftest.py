"""One server for all tests in the browser; they skip, and say so, where there is none."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="pip install playwright")

import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page

from gptree.studio.app import Studio
from gptree.studio.desk import Desk
from gptree.studio.events import Events
from gptree.studio.guard import new_token
from gptree.studio.server import bind, hosts_of
from gptree.studio.sources import opener


class Served:
    """A studio on a port of its own."""

    def __init__(self, path: Path | None, root: Path, read_only: bool = False) -> None:
        self.desk = Desk(Events(), "ann", read_only)
        bound = bind("127.0.0.1", 0)
        port, token = bound.getsockname()[1], new_token()
        self.base = f"http://127.0.0.1:{port}/"
        self.address = f"{self.base}?token={token}"
        app = Studio(self.desk, root).app(token, hosts_of("127.0.0.1", port))
        config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [bound]}, daemon=True)
        self.thread.start()
        if path is not None:
            self.desk.open(opener(path, "ann"))
        while not self.server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self.desk.close()
        self.server.should_exit = True
        self.thread.join(10)


@pytest.fixture(scope="session")
def served(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory, digits_project: Path
) -> Iterator[Callable[..., Served]]:
    """A function that serves a copy of the small project, or something else."""
    servers: list[Served] = []

    def made(path: Path | str | None = "copy", **how: Any) -> Served:
        root = tmp_path_factory.mktemp("served")
        if path == "copy":
            path = root / "project"
            shutil.copytree(digits_project, path)
        servers.append(Served(Path(path) if path is not None else None, root, **how))
        return servers[-1]

    yield made
    for server in servers:
        server.stop()


def _is_trouble(said: Any) -> bool:
    """A complaint of the browser; a stale version is answered 409, and the test of two tabs stops its events."""
    return said.type in ("error", "warning") and "409" not in said.text and "ERR_FAILED" not in said.text


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """A function that opens a page; whatever it complains of, or asks of another host, fails the test."""
    contexts: list[BrowserContext] = []
    troubles: list[str] = []

    def opened(server: Served, where: str = "", **how: Any) -> Page:
        context = chromium.new_context(**{"viewport": {"width": 1440, "height": 900}, **how})
        contexts.append(context)
        context.set_default_timeout(20_000)

        def only_here(route: Any) -> None:
            if route.request.url.startswith((server.base, "blob:", "data:")):
                route.continue_()
            else:
                troubles.append(f"asked {route.request.url}")
                route.abort()

        context.route("**", only_here)
        page = context.new_page()
        page.on("console", lambda said: troubles.append(said.text) if _is_trouble(said) else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(server.address)
        if where:
            page.goto(server.base + where)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []
