"""Arguments and options that several commands have in common."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

Model = Annotated[Path, typer.Argument(help="Folder of a fitted model.", metavar="MODEL", show_default=False)]
Data = Annotated[Path, typer.Argument(help=".npz, .npy, .csv or .parquet file.", metavar="DATA", show_default=False)]
Features = Annotated[
    str | None,
    typer.Option(
        help="Features in DATA: the array of an .npz file (X if not given), or columns of a table, separated by "
        "commas (if not given, all but the label; to a model fitted on a table, the same columns).",
        metavar="NAME",
        show_default=False,
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        help="Labels in DATA: the array of an .npz file (y if not given), the column of a table (label if not given), "
        "or a second .npy file.",
        metavar="NAME",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, for machines.")]


class Strategy(StrEnum):
    shared_root = "shared-root"
    session_tree = "session-tree"
    rebuild_tree = "rebuild-tree"
    graft = "graft"


def growth_of(strategy: str | None, **settings: Any) -> Any:
    """The `Growth` of a strategy by its name on the command line."""
    from gptree import Graft, Growth, RebuildTree, SessionTree, SharedRoot

    strategies = {
        Strategy.shared_root: SharedRoot,
        Strategy.session_tree: SessionTree,
        Strategy.rebuild_tree: RebuildTree,
        Strategy.graft: Graft,
    }
    return Growth(strategy=strategies[Strategy(strategy or Strategy.shared_root)](), **settings)
