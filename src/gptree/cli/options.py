"""Arguments and options that several commands have in common."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from gptree.incremental import Strategy as GrowthStrategy

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


def choice(names: Iterable[str], help_text: str, *flags: str) -> Any:
    """An option whose value is one of the names, which its help lists."""
    names = list(names)

    def check(value: str | None) -> str | None:
        if value is not None and value not in names:
            raise typer.BadParameter(f"'{value}' is not one of {', '.join(names)}.")
        return value

    return typer.Option(*flags, help=f"{help_text}: {', '.join(names)}.", metavar="NAME", callback=check)


Strategy = Annotated[str | None, choice(GrowthStrategy.names(), "Where new classes go in the trees, if they grow")]
