"""A small project of handwritten digits, made once; and studios around copies of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the studio needs its extra: pip install 'gptree[studio]'")

from starlette.testclient import TestClient
from studio_pages import BASE, PORT, TOKEN, Page, write_some_digits

from gptree.project import Project
from gptree.studio.app import Studio
from gptree.studio.desk import Desk
from gptree.studio.events import Events
from gptree.studio.sources import opener


@pytest.fixture(scope="session")
def digits_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studio")
    write_some_digits(folder / "digits")
    how: dict[str, Any] = {"encoder": "pixels:8", "test": folder / "digits" / "test", "author": "ann"}
    Project.create(folder / "project", folder / "digits" / "train", **how)
    return folder / "project"


def opened(root: Path, project: Path, stack: ExitStack, **how: Any) -> Page:
    """A studio on a copy of a project, on another path, or on nothing."""
    path, read_only, wait = how.pop("path", "copy"), how.pop("read_only", False), how.pop("wait", True)
    if path == "copy":
        path = root / "project"
        if not path.exists():
            shutil.copytree(project, path)
    desk = Desk(Events(), "ann", read_only)
    client = TestClient(Studio(desk, root).app(TOKEN, [f"127.0.0.1:{PORT}", f"localhost:{PORT}"]), base_url=BASE)
    stack.enter_context(client)
    stack.callback(desk.close)
    assert client.get(f"/?token={TOKEN}").status_code == 200
    page = Page(client, desk, root)
    if path is not None:
        desk.open(opener(Path(path), "ann", **how))
        if wait:
            page.wait("ready", "failed")
    return page


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, digits_project: Path) -> Iterator[Page]:
    """A studio for tests that change nothing."""
    with ExitStack() as stack:
        yield opened(tmp_path_factory.mktemp("shared"), digits_project, stack)


@pytest.fixture
def studio(tmp_path: Path, digits_project: Path) -> Iterator[Callable[..., Page]]:
    """A function that opens a studio of the test's own."""
    with ExitStack() as stack:
        yield lambda path="copy", **how: opened(tmp_path, digits_project, stack, path=path, **how)
