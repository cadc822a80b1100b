"""Output of the commands: results, messages, one-line errors, JSON, tables.

Results go to stdout, messages to stderr. With `--json`, stdout carries one JSON document and nothing else. Bad input,
and files that cannot be read or written, end with exit code 2 and one line that says what to do; anything unforeseen is
left alone, which is exit code 1. Control characters, as a label may hold them, are written out: a terminal obeys none.
"""

from __future__ import annotations

import functools
import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

import typer

BAD_INPUT = 2

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

#: Characters that move the cursor, change colours, turn the direction of text, or cannot be printed at all.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clear_errors(command: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A command whose bad input ends in one line on stderr, and whose warnings are one line each."""

    @functools.wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            # The commands match columns by name; scikit-learn, which is handed arrays, would warn that it cannot.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            try:
                return command(*args, **kwargs)
            except BrokenPipeError:
                raise  # `gptree … | head`: the frame around the commands ends this quietly
            except OSError as error:
                reason = str(error.strerror or error)
                fail(f"{reason}: {error.filename}" if error.filename else reason)
            except ValueError as error:  # StorageError and the library's complaints about bad input
                fail(str(error))

    return run


def fail(message: str) -> NoReturn:
    """Say what is wrong on stderr, and leave."""
    say(f"error: {one_line(message)}")
    raise typer.Exit(BAD_INPUT)


def say(message: str) -> None:
    """A message for people, on stderr; one line."""
    typer.echo(visible(message), err=True)


def visible(text: Any) -> str:
    """Text of one line with its control characters written out, such as \\x1b."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def one_line(message: str) -> str:
    return " ".join(message.split())


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"warning: {one_line(str(message))}")


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout; what JSON cannot say (NaN, infinity) is null."""
    text = json.dumps(_plain(document), indent=1, ensure_ascii=False, allow_nan=False)
    lines = text.split("\n")  # of the layout: those of a label are written out by now
    typer.echo("\n".join(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", line) for line in lines))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout: names in the first column, numbers in the others."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for i, name in enumerate(header):
        table.add_column(Text(visible(name)), justify="right" if i else "left")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))  # Text: square brackets in a name are no markup
    Console().print(table)


def check_parent(path: Path) -> None:
    """Complain, before the work begins, of an output in a folder that is not there."""
    if not path.parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {path.parent}; make it, or name another.")


def check_page(page: Path | None) -> None:
    """Complain, before the work begins, of a page that cannot be written."""
    if page is not None:
        if page.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"{page}: a page is an .html file; name such a file with --page.")
        check_parent(page)


def shows_progress(as_json: bool) -> bool:
    """Whether a progress bar has somebody to look at it, and does not get between machine and machine."""
    return not as_json and sys.stdout.isatty()
