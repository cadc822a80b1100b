"""A store of its own for every test: none may look into that of the user."""

from __future__ import annotations

from pathlib import Path

import pytest
from embed_cases import Run

from command_runs import run_command


@pytest.fixture(autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GPTREE_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def run() -> Run:
    """`run_command`."""
    return run_command
