"""`gptree serve`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from gptree.cli import options
from gptree.cli.console import clear_errors, say


@clear_errors
def serve(
    model: options.Model,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 is any that is free.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            help="What clients have to send; a new one is made if none is given.",
            envvar="GPTREE_TOKEN",
            show_envvar=True,
            show_default=False,
            metavar="TEXT",
        ),
    ] = None,
    teach: Annotated[bool, typer.Option("--teach", help="Let clients teach classes and take lessons back.")] = False,
    weights: options.Weights = None,
) -> None:
    """Answer over HTTP: predictions, explanations, metrics; a new model is taken in without a gap.

    Clients send the token as «Authorization: Bearer TOKEN». What is sent is not encrypted: put a proxy with TLS in
    front of an address that others can reach.
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise ValueError("gptree serve needs the extra studio: pip install 'gptree[studio]'.")
    if token == "":
        raise ValueError("--token: an empty token keeps nobody out; leave it out to get a new one.")
    from gptree.cli.models import open_model
    from gptree.serve import serve as run
    from gptree.studio.guard import new_token
    from gptree.studio.server import LOOPBACK

    if not model.is_dir():
        open_model(model)  # says why it is none
    word = new_token() if token is None else token
    if host not in LOOPBACK:
        say("warning: others can reach this address; the token and what is sent are not encrypted.")
    if token is None:
        say(f"token: {word}")
    run(model, host=host, port=port, token=word, teach=teach, weights=weights, tell=lambda url: say(f"ready: {url}"))
