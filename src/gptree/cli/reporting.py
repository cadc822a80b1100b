"""`gptree report`: a run folder as one HTML page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from gptree.cli.console import clear_errors, say


@clear_errors
def report(
    run: Annotated[
        Path, typer.Argument(help="Folder that gptree fscil has written.", metavar="RUN", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write to this file; report.html in RUN if not given.")
    ] = None,
    open_it: Annotated[bool, typer.Option("--open/--no-open", help="Show the page in the web browser.")] = False,
) -> None:
    """Write one HTML page about a run: summary, session curves, forgetting, reliability, confusion, class trees.

    The page needs no network and no other file: it can be mailed, printed, or read on a phone.
    """
    from gptree.protocols.report import write_report

    page = write_report(run, out)
    say(f"report written to {page}")
    if open_it and not webbrowser.open(page.resolve().as_uri()):
        say(f"no web browser was found: open {page} yourself")
