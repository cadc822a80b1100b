"""`gptree studio`: a page in the browser on which a person teaches. Imports late: the address comes first."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from gptree.cli.console import clear_errors, say

_NEEDED = ("starlette", "uvicorn", "python_multipart")


@clear_errors
def studio(
    what: Annotated[
        Path | None,
        typer.Argument(
            help="A project; a model; a folder of pictures, a table or a file of vectors, beside which a project is "
            "made. Without it: a start screen.",
            metavar="[FOLDER | MODEL | PROJECT]",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 is any that is free.", min=0, max=65535)] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, and open no browser.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Nothing can be changed.")] = False,
    root: Annotated[
        Path | None,
        typer.Option(
            help="Only what lies below can be opened from the page; if not given, this folder.", show_default=False
        ),
    ] = None,
    author: Annotated[str, typer.Option(help="Who teaches, for the journal.", metavar="NAME", show_default=False)] = "",
    encoder: Annotated[
        str | None, typer.Option(help="Encoder of a new project, see gptree embed.", metavar="NAME", show_default=False)
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Labelled rows to test a new project with.", metavar="DATA", show_default=False)
    ] = None,
    hold_out: Annotated[
        float, typer.Option(help="Share of every class that a new project keeps for testing.", min=0.0, max=0.9)
    ] = 0.0,
    i_know: Annotated[
        bool, typer.Option("--i-know", help="Listen on an address that other machines reach, without encryption.")
    ] = False,
) -> None:
    """Teach a model on a page in the browser: show examples, see what changes, take it back."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ValueError("the studio needs some packages more: pip install 'gptree[studio]'")
    from gptree.studio.server import LOOPBACK, serve
    from gptree.studio.sources import is_project, opener

    if host not in LOOPBACK and not i_know:
        raise ValueError(
            f"--host {host} lets other machines in: whoever reads the traffic, which is not encrypted, can teach and "
            "read everything. Better: leave --host away and use an SSH tunnel. If you know what you do, add --i-know."
        )
    opened = None
    if what is not None:
        how = {"encoder": encoder, "test": test, "hold_out": hold_out or None}
        if is_project(what) and any(value is not None for value in how.values()):
            raise ValueError("--encoder, --test and --hold-out are for a new project; this one is there already.")
        if read_only and not is_project(what):
            raise ValueError(f"{what} is no project: --read-only opens one that is there.")
        opened = opener(what, author, **how)
    if host not in LOOPBACK:
        say(f"warning: everybody who reaches {host} and sees the address can change this project.")
    serve(
        opened,
        host=host,
        port=port,
        root=(root or Path.cwd()).resolve(),
        author=author,
        read_only=read_only,
        browser=not no_browser,
        tell=lambda address: typer.echo(address),
    )
