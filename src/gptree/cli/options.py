"""Arguments and options that several commands have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from gptree.incremental import Strategy as GrowthStrategy

Model = Annotated[Path, typer.Argument(help="Folder of a fitted model.", metavar="MODEL", show_default=False)]
Data = Annotated[
    Path,
    typer.Argument(
        help="Vectors (.npz, .npy, .csv or .parquet file), a folder of pictures, or a table of texts.",
        metavar="DATA",
        show_default=False,
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        help="Features in DATA: the array of an .npz file (X if not given), or columns of a table, separated by "
        "commas (if not given, all but the label; to a model fitted on a table, the same columns). One column of text "
        "is encoded; text, if not given.",
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
Ids = Annotated[
    str | None,
    typer.Option(
        help="Names of the rows in DATA: the array of an .npz file (ids if not given), or the column of a table (id, "
        "else path, if not given).",
        metavar="NAME",
        show_default=False,
    ),
]
RowWeights = Annotated[
    str | None,
    typer.Option(
        help="How many times each row of DATA counts, 0 or more: an array of an .npz file, a column of a table, or a "
        "further .npy file.",
        metavar="NAME",
        show_default=False,
    ),
]
Encoder = Annotated[
    str | None,
    typer.Option(
        help="Encoder of pictures or texts: efficientnet-lite0 or minilm (if not given), timm:NAME@FILE, sbert:FOLDER.",
        metavar="NAME",
        show_default=False,
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(help="File or folder of the encoder's weights.", metavar="PATH", show_default=False),
]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch weights from the Hugging Face hub; otherwise nothing is asked there.")
]
Note = Annotated[str, typer.Option(help="A remark for the journal.", metavar="TEXT", show_default=False)]
Author = Annotated[str, typer.Option(help="Who does this, for the journal.", metavar="NAME", show_default=False)]
Page = Annotated[
    Path | None, typer.Option(help="Write an HTML page that shows it.", metavar="FILE", show_default=False)
]
Shard = Annotated[
    str | None,
    typer.Option(help="Only the i-th of n parts of DATA, for n machines.", metavar="I/N", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, for machines.")]


def part(shard: str) -> tuple[int, int]:
    """What --shard names: the number of a part, and how many there are."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard)
    if found is None:
        raise ValueError(f"--shard: cannot read '{shard}'; write the part and how many there are, as 2/8.")
    return int(found[1]), int(found[2])


def choice(names: Iterable[str], help_text: str, *flags: str) -> Any:
    """An option whose value is one of the names, which its help lists."""
    names = list(names)

    def check(value: str | None) -> str | None:
        if value is not None and value not in names:
            raise typer.BadParameter(f"'{value}' is not one of {', '.join(names)}.")
        return value

    return typer.Option(*flags, help=f"{help_text}: {', '.join(names)}.", metavar="NAME", callback=check)


Strategy = Annotated[str | None, choice(GrowthStrategy.names(), "Where new classes go in the trees, if they grow")]
