"""The command in this process, and coroutines beside it, for tests of several folders."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from typer.testing import CliRunner

from gptree.cli.main import app

Result = TypeVar("Result")


def run_command(*arguments: object, code: int = 0) -> Any:
    """Run `gptree …` and check its exit code; a failure that no one foresaw is raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def alone(story: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a thread of its own: that of the tests may have a loop already, that of a browser."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, story).result()
