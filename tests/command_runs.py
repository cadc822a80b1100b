"""The command in this process, for tests of several folders."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner

from gptree.cli.main import app


def run_command(*arguments: object, code: int = 0) -> Any:
    """Run `gptree …` and check its exit code; a failure that no one foresaw is raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result
