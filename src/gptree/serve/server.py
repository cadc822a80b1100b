"""Running the service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gptree import load_model
from gptree.serve.app import Service
from gptree.serve.watch import ModelWatch


def serve(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str = "",
    teach: bool = False,
    weights: Path | None = None,
    load: Callable[[Path], Any] = load_model,
    tell: Callable[[str], None] = print,
) -> None:
    """Serve the model of a folder until interrupted.

    Parameters
    ----------
    folder : Path
    host : str
    port : int
        0 is any that is free.
    token : str
        What clients have to send; "" asks for nothing.
    teach : bool
        Whether clients may change the model.
    weights : Path or None
        Of the model's encoder.
    load : callable
        From the folder to a classifier.
    tell : callable
        Is given the address when the model is ready.
    """
    import uvicorn

    from gptree.studio.server import bind

    bound = bind(host, port)
    service = Service(ModelWatch(folder, load, weights), token, teach)
    tell(f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}")
    config = uvicorn.Config(service.app(), log_level="warning", access_log=False, server_header=False, ws="none")
    uvicorn.Server(config).run(sockets=[bound])
