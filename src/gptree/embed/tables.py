"""Tables of texts, or of paths of pictures: .csv and .parquet files."""

from __future__ import annotations

import csv
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptree.embed.collection import Collection, Item, Label, check_ids, parsed_labels

#: Columns that are taken where none are named.
TEXT, IMAGE, LABEL, IDS = "text", "image", "label", ("id", "path")

Column = list[str | None]
_cells = threading.Lock()  # around the longest cell that the csv module takes, which is one number for all


class Table(Collection):
    """The rows of a .csv or .parquet file: a text, or the path of a picture, and perhaps a label and an id.

    Parameters
    ----------
    path : path, or a TableFile
    text, image : str, optional
        The column of the texts, or that of paths of pictures, which are relative to the folder of the table. If neither
        is given: the column `text`, else `image`.
    label : str, optional
        The column of the labels; `label` where there is one. Rows where it is empty have no label.
    id : str, optional
        The column of ids; `id`, else `path` where there is one; else the paths of pictures, and for texts row numbers
        from 0.

    Raises
    ------
    ValueError
        If the file cannot be read, lacks a column, or gives an id twice.

    Examples
    --------
    >>> data = Table("tickets.csv", text="text", label="intent", id="ticket")    # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | Path | TableFile,
        text: str | None = None,
        image: str | None = None,
        label: str | None = None,
        id: str | None = None,
    ) -> None:
        self.path = path.path if isinstance(path, TableFile) else Path(path).expanduser()
        if text is not None and image is not None:
            raise ValueError(f"{self.path}: a table gives texts or pictures, so name {text!r} or {image!r}, not both.")
        table = path if isinstance(path, TableFile) else TableFile.read(self.path)
        header, column = table.header, table.column
        check_names(self.path, header)
        content = text or image or next((name for name in (TEXT, IMAGE) if name in header), None)
        if content is None:
            raise ValueError(
                f"{self.path} has no column '{TEXT}' or '{IMAGE}': name the one to use, of {listed(header)}."
            )
        self.kind = "image" if content == image or (text is None and content == IMAGE) else "text"
        cells = [cell or "" for cell in column(content)]
        if not cells:
            raise ValueError(f"{self.path} holds no rows.")
        label = label or (LABEL if LABEL in header else None)
        labels = [None] * len(cells) if label is None else _labels(column(label))
        id_column = id or next((name for name in IDS if name in header and name != content), None)
        ids = self._ids(cells) if id_column is None else [cell or "" for cell in column(id_column)]
        if "" in ids:
            raise ValueError(f"{self.path}: the id of row {ids.index('')} (counted from 0) is empty; fill it in.")
        check_ids(self.path, ids)
        sources = [self.path.parent / cell if self.kind == "image" else cell for cell in cells]
        self.items = tuple(map(Item, ids, sources, labels))
        self.failed = ()

    def _ids(self, cells: Sequence[str]) -> list[str]:
        """Ids of rows that have no column of them."""
        own = self.kind == "image" and len(set(cells)) == len(cells) and all(cells)
        return list(cells) if own else list(map(str, range(len(cells))))


def _labels(cells: Column) -> list[Label | None]:
    stripped = [(cell or "").strip() for cell in cells]
    given = iter(parsed_labels([cell for cell in stripped if cell]))
    return [next(given) if cell else None for cell in stripped]


# ------------------------------------------------------------------------------------------------------------- files


@dataclass(frozen=True, eq=False)
class TableFile:
    """A .csv or .parquet file that was read: once, whatever is then taken from it.

    Attributes
    ----------
    path : Path
    header : list of str
        The names of the columns.
    lines : list of (int, list of str) or None
        Of a .csv file: the rows with the numbers of their lines.
    frame : pandas.DataFrame or None
        Of a .parquet file.
    """

    path: Path
    header: list[str]
    lines: list[tuple[int, list[str]]] | None = None
    frame: Any = None

    @classmethod
    def read(cls, path: Path) -> TableFile:
        """Read a file; a ValueError says why it cannot be read."""
        _check_file(path)
        if path.suffix.lower() == ".csv":
            return cls(path, *read_csv(path))
        frame = read_parquet(path)
        return cls(path, list(frame.columns), frame=frame)

    def column(self, name: str) -> Column:
        """A column as text, None where there is nothing; a ValueError if there is none of this name."""
        check_names(self.path, self.header)
        if name not in self.header:
            raise ValueError(f"{self.path} has no column '{name}'; it has {listed(self.header)}.")
        if self.lines is not None:
            at = self.header.index(name)
            return [row[at] for _, row in self.lines]
        return [None if gap else str(c) for c, gap in zip(self.frame[name], self.frame[name].isna(), strict=True)]


def _check_file(path: Path) -> None:
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"{path}: cannot read '{path.suffix}' files; tables are .csv or .parquet files.")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file.")


def read_csv(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header of a .csv file, and its rows with the numbers of their lines, all as long as the header."""
    try:
        with _cells, path.open(newline="", encoding="utf-8-sig") as file:
            before = csv.field_size_limit(2**31 - 1)  # a text may be a book
            try:
                reader = csv.reader(file)
                header = [name.strip() for name in next(reader, [])]
                lines = [(reader.line_num, row) for row in reader if row]
            finally:
                csv.field_size_limit(before)
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is not a comma-separated UTF-8 text file ({error}); save it as such, from a spreadsheet as "
            "“CSV UTF-8”."
        ) from None
    for number, row in lines:
        if len(row) != len(header):
            raise ValueError(f"{path}, line {number}: {len(row)} cells, but the header names {len(header)} columns.")
    return header, lines


def read_parquet(path: Path) -> Any:
    """The data frame of a .parquet file, its columns named by text."""
    try:
        import pandas
        import pyarrow
    except ImportError:
        raise ValueError(f"{path}: .parquet files need pandas and pyarrow: pip install 'gptree[data]'") from None
    try:
        frame = pandas.read_parquet(path)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is damaged or not a parquet file ({error}).") from None
    frame.columns = [str(name) for name in frame.columns]
    return frame


def check_names(path: Path, header: Sequence[str]) -> None:
    """A ValueError if two columns have one name."""
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise ValueError(f"{path}: two columns are called {', '.join(sorted(twice))}; give each its own name.")


def is_number(cell: str) -> bool:
    """Whether a cell is written as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names for a message."""
    first = ", ".join(f"'{name}'" for name in names[:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"
