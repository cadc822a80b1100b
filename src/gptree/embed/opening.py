"""What a path holds: pictures or texts to encode, or vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gptree.embed.collection import Collection
from gptree.embed.folders import ImageFolder
from gptree.embed.tables import IMAGE, TEXT, Table, TableFile, is_number
from gptree.embed.vectors import Names


def opened(
    path: Path,
    names: Names,
    kind: Callable[[], str | None] = lambda: None,
    known_columns: Sequence[str] | None = None,
) -> Collection | TableFile | None:
    """What is to be encoded, if anything is; else the table that was read, or None where the path is no table.

    Parameters
    ----------
    path : Path
    names : Names
        Which columns to use.
    kind : callable
        Gives what the encoder takes, "image" or "text", if that is known; called where it matters.
    known_columns : sequence of str or None
        Columns of numbers that a model was fitted on: then tables hold vectors.

    Returns
    -------
    Collection, TableFile or None
    """
    if path.is_dir():
        return collection_of(path, names, None)
    if path.suffix.lower() not in (".csv", ".parquet") or not path.is_file():
        return None
    table = TableFile.read(path)
    return collection_of(table, names, kind()) if _is_raw(table, names, known_columns) else table


def collection_of(data: Path | TableFile, names: Names, kind: str | None) -> Collection:
    """The pictures of a folder, or the texts or pictures of a table; `kind` is what the encoder takes, if known."""
    if isinstance(data, Path) and data.is_dir():
        for option, name in (("--features", names.features), ("--labels", names.labels), ("--ids", names.ids)):
            if name is not None:
                raise ValueError(f"{data} is a folder, whose files give names and labels, so leave {option} out.")
        _check_no_weights(data, names)
        return ImageFolder(data)
    _check_no_weights(data if isinstance(data, Path) else data.path, names)
    image = names.features if kind == "image" or names.features == IMAGE else None
    return Table(data, text=None if image else names.features, image=image, label=names.labels, id=names.ids)


def _check_no_weights(path: Path, names: Names) -> None:
    if names.weights is not None:
        raise ValueError(
            f"{path} holds pictures or texts, and --row-weights belong to vectors: make vectors of them with gptree "
            "embed, and put an array of weights beside them."
        )


def _is_raw(table: TableFile, names: Names, known_columns: Sequence[str] | None) -> bool:
    """Whether the column of features holds text."""
    if names.features is None and known_columns is not None:
        return False
    name = names.features or next((name for name in (TEXT, IMAGE) if name in table.header), None)
    if name not in table.header:
        return False
    cells = [cell for cell in table.column(name) if cell]
    return sum(map(is_number, cells)) < len(cells) / 2  # a few mistakes make no text of numbers
