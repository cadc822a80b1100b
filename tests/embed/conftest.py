"""A store of its own for every test: none may look into that of the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from embed_cases import Run
from typer.testing import CliRunner

from gptree.cli.main import app


@pytest.fixture(autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GPTREE_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def run() -> Run:
    """Run `gptree …` and check its exit code; a failure that no one foresaw is raised."""

    def run_command(*arguments: object, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return run_command
