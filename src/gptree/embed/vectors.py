"""Vectors that somebody made already: .npz, a pair of .npy files, .csv or .parquet.

| file     | features                                        | labels                                | ids           |
|----------|-------------------------------------------------|---------------------------------------|---------------|
| .npz     | the array `--features` (default X)              | the array `--labels` (default y)      | array ids     |
| .npy     | the array in the file                           | the file `--labels`                   | row numbers   |
| .csv     | columns `--features a,b,c` (default all others) | the column `--labels` (default label) | id, else path |
| .parquet | as .csv                                         | as .csv                               | as .csv       |

`--row-weights` names an array, a column or a further .npy file of numbers: how many times each row counts. No file can
run code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gptree.embed.collection import Failure, check_ids, parsed_labels
from gptree.embed.tables import IDS, TableFile, check_names, is_number, listed
from gptree.settings import require

#: Default names of features, labels and ids in an .npz file, and of the label column in a table.
FEATURES, LABELS, NAMES, LABEL_COLUMN = "X", "y", "ids", "label"


@dataclass(frozen=True)
class Data:
    """The content of a file of data.

    Attributes
    ----------
    path : Path
    X : ndarray (n, d), or (n, …) for a network
    y : ndarray (n,) or None
        Labels.
    columns : tuple of str or None
        The names of the columns of X, where the file has names.
    names : tuple of str or None
        The ids of the rows, where the file has some.
    encoder : dict or None
        The description of the encoder of X, where it is known.
    weights : ndarray (n,) or None
        How many times each row counts, where that was asked for.
    given : tuple or None
        Labels of pictures or texts of which only some have one, with None for the others; y is None then.
    sources : dict
        Paths of pictures, or texts, by id, where X was encoded.
    keys : tuple of str or None
        Hashes of the contents, where X was encoded.
    failed : tuple of Failure
        What could not be encoded.
    """

    path: Path
    X: np.ndarray
    y: np.ndarray | None
    columns: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    encoder: Mapping[str, Any] | None = None
    weights: np.ndarray | None = None
    given: tuple[Any, ...] | None = None
    sources: Mapping[str, Path | str] = field(default_factory=dict)
    keys: tuple[str, ...] | None = None
    failed: tuple[Failure, ...] = ()

    def part(self, number: int, of: int) -> Data:
        """Every `of`-th row of vectors, beginning with the `number`-th, under its id; see `Collection.part`."""
        require(1 <= number <= of, f"there is no part {number} of {of}: parts are numbered 1 to {of}.")
        rows = slice(number - 1, None, of)
        y, weights = (None if each is None else each[rows] for each in (self.y, self.weights))
        return replace(self, X=self.X[rows], y=y, weights=weights, names=tuple(self.ids[rows]))

    @property
    def labels(self) -> list[Any]:
        """Labels of the rows, None where there is none."""
        if self.y is not None:
            return self.y.tolist()
        return [None] * len(self.X) if self.given is None else list(self.given)

    @property
    def contents(self) -> list[str]:
        """Hashes of the contents of the rows: of what was encoded, or of the vectors."""
        if self.keys is not None:
            return list(self.keys)
        rows = np.ascontiguousarray(self.X.reshape(len(self.X), -1), dtype=np.float32)
        return [hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest() for row in rows]

    @property
    def ids(self) -> list[str]:
        """Ids of the rows, or row numbers."""
        return list(map(str, range(len(self.X)))) if self.names is None else list(self.names)


@dataclass(frozen=True)
class Names:
    """The options that name parts of DATA; None is the default."""

    features: str | None = None
    labels: str | None = None
    ids: str | None = None
    weights: str | None = None


def read_vectors(
    path: Path,
    names: Names,
    need_labels: bool = True,
    known_columns: Sequence[str] | None = None,
    pictures: bool = False,
    table: TableFile | None = None,
) -> Data:
    """Read and check a file of vectors.

    Parameters
    ----------
    path : Path
    names : Names
    need_labels : bool
        Without it, labels that are not there are None, unless they were asked for by name.
    known_columns : sequence of str or None
        Columns that a model was fitted on: a table then gives these, in this order, whatever else it holds.
    pictures : bool
        Whether features may have more than two axes.
    table : TableFile, optional
        The file, if it is a table and was read already.

    Returns
    -------
    Data

    Raises
    ------
    ValueError
        If the file cannot be read, or does not hold what is asked for.
    """
    suffix, need_labels = path.suffix.lower(), need_labels or names.labels is not None
    suffixes = (".npz", ".npy", ".csv", ".parquet")
    if suffix not in suffixes:
        raise ValueError(f"{path}: cannot read '{suffix}' files; give a folder of pictures, or {', '.join(suffixes)}.")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file.")
    if suffix in (".npz", ".npy"):
        return _checked((_read_npz if suffix == ".npz" else _read_npy)(path, names, need_labels), pictures)
    read = _read_csv if suffix == ".csv" else _read_parquet
    return _checked(read(table or TableFile.read(path), names, need_labels, known_columns), pictures)


# ------------------------------------------------------------------------------------------------------ numpy files


def _read_npz(path: Path, names: Names, need_labels: bool) -> Data:
    with _load(path, np.lib.npyio.NpzFile, "numpy.savez(path, X=X, y=y)") as arrays:
        X = _array(path, arrays, names.features or FEATURES, "--features")
        key = names.labels or LABELS
        y = _array(path, arrays, key, "--labels") if need_labels or key in arrays else None
        key, ids = names.ids or NAMES, None
        if names.ids is not None or (key in arrays and names.features in (None, FEATURES)):
            ids = tuple(map(str, _array(path, arrays, key, "--ids").tolist()))
        encoder = _array(path, arrays, "encoder", "") if "encoder" in arrays else None
        weights = None if names.weights is None else _array(path, arrays, names.weights, "--row-weights")
    return Data(path, X, y, None, ids, _encoder(encoder), weights)


def _encoder(text: np.ndarray | None) -> dict[str, Any] | None:
    """The description that `gptree embed` writes; None where something else has its name."""
    try:
        found = json.loads(str(text)) if text is not None and text.dtype.kind == "U" else None
    except ValueError:
        return None
    return found if isinstance(found, dict) and "family" in found else None


def _read_npy(path: Path, names: Names, need_labels: bool) -> Data:
    for option, name in (("--features", names.features), ("--ids", names.ids)):
        if name is not None:
            raise ValueError(f"{path}: an .npy file holds one array, so {option} has no meaning here.")
    if names.labels is None and need_labels:
        raise ValueError(f"{path} holds features only: name the file of the labels, --labels labels.npy.")
    y, weights = (None if name is None else _read_array(Path(name)) for name in (names.labels, names.weights))
    return Data(path, _read_array(path), y, weights=weights)


def _read_array(path: Path) -> np.ndarray:
    if not path.is_file():
        raise ValueError(
            f"{path}: there is no such file; with .npy features, --labels and --row-weights name .npy files."
        )
    return _load(path, np.ndarray, "numpy.save(path, array)")


def _load(path: Path, expected: type, writer: str) -> Any:
    try:
        loaded = np.load(path, allow_pickle=False)
    except Exception as error:  # numpy raises a dozen kinds, from zlib.error to TokenError, for damaged files
        raise ValueError(_not_loaded(path, error)) from None
    if not isinstance(loaded, expected):
        raise ValueError(f"{path} is not an {path.suffix} file; write one with {writer}.")
    return loaded


def _array(path: Path, arrays: Mapping[str, np.ndarray], key: str, option: str) -> np.ndarray:
    if key not in arrays:
        raise ValueError(f"{path} holds no array '{key}': name one of {', '.join(arrays)} with {option}.")
    try:
        return arrays[key]
    except Exception as error:
        raise ValueError(_not_loaded(f"'{key}' in {path}", error)) from None


def _not_loaded(what: Path | str, error: Exception) -> str:
    if "allow_pickle" not in str(error):
        return f"{what} is damaged or not a numpy file ({error})."
    return (
        f"{what} holds pickled Python objects, or is not a numpy file. Pickles can run code and are never loaded: "
        "save plain arrays, numbers for the features, numbers or text (array.astype(str)) for the labels."
    )


# ----------------------------------------------------------------------------------------------------------- tables


def _read_csv(table: TableFile, names: Names, need_labels: bool, known_columns: Sequence[str] | None) -> Data:
    path, header, lines = table.path, table.header, table.lines or []
    cells = dict(zip(header, zip(*(row for _, row in lines), strict=True), strict=False)) if lines else {}
    columns, label, ids = _choose_columns(path, header, names, need_labels, known_columns)
    numbers = [_parsed_column(path, name, cells.get(name, ()), lines) for name in columns]
    X = np.array(numbers, dtype=np.float64).reshape(len(columns), len(lines)).T
    y = None if label is None else _parsed_labels(path, label, cells.get(label, ()))
    weights = (
        None if names.weights is None else _parsed_column(path, names.weights, cells.get(names.weights, ()), lines)
    )
    return Data(path, X, y, columns, None if ids is None else tuple(cells.get(ids, ())), weights=weights)


def _parsed_column(path: Path, name: str, cells: Sequence[str], lines: list[tuple[int, list[str]]]) -> np.ndarray:
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        row = next(i for i, cell in enumerate(cells) if not is_number(cell))
        raise ValueError(
            f"{path}, line {lines[row][0]}, column '{name}': '{cells[row]:.80}' is not a number. Columns of features "
            "are numeric; name those to use with --features a,b,c and the column of labels with --labels. A column of "
            f"texts is encoded if it is the only one, --features {name}."
        ) from None


def _parsed_labels(path: Path, name: str, cells: Sequence[str]) -> np.ndarray:
    cells = [cell.strip() for cell in cells]
    if not all(cells):
        raise ValueError(f"{path}: a label in column '{name}' is empty; fill it in or remove the line.")
    return np.array(parsed_labels(cells), dtype=None if cells else str)


def _read_parquet(table: TableFile, names: Names, need_labels: bool, known_columns: Sequence[str] | None) -> Data:
    import pandas

    path, frame = table.path, table.frame
    columns, label, ids = _choose_columns(path, list(frame.columns), names, need_labels, known_columns)
    for name in (*columns, *([] if names.weights is None else [names.weights])):
        if not pandas.api.types.is_numeric_dtype(frame[name]):
            raise ValueError(
                f"{path}, column '{name}' holds {frame[name].dtype}, not numbers: name the columns to use with "
                "--features a,b,c and the column of labels with --labels."
            )
    X = frame[list(columns)].to_numpy(dtype=np.float64, na_value=np.nan)
    named = None if ids is None else tuple(map(str, frame[ids].tolist()))
    weights = None if names.weights is None else frame[names.weights].to_numpy(dtype=np.float64, na_value=np.nan)
    if label is None:
        return Data(path, X, None, columns, named, weights=weights)
    if frame[label].isna().to_numpy().any():
        raise ValueError(f"{path}: a label in column '{label}' is empty; fill it in or remove the row.")
    return Data(path, X, np.array(frame[label].tolist()), columns, named, weights=weights)


def _choose_columns(
    path: Path, header: Sequence[str], names: Names, need_labels: bool, known_columns: Sequence[str] | None
) -> tuple[tuple[str, ...], str | None, str | None]:
    """Which columns are features, which one is the label and which the id (None: there is none)."""
    check_names(path, header)
    label = names.labels or LABEL_COLUMN
    if label not in header:
        if need_labels:
            raise ValueError(f"{path} has no column '{label}': name one of {listed(header)} with --labels.")
        label = None
    if names.features is not None:
        columns = tuple(name.strip() for name in names.features.split(","))
    else:
        columns = None if known_columns is None else tuple(known_columns)
    taken = (label, names.weights, *(columns or ()))
    ids = names.ids or next((name for name in IDS if name in header and name not in taken), None)
    if columns is None:
        columns = tuple(name for name in header if name not in (label, ids, names.weights))
    missing = [name for name in (*columns, ids, names.weights) if name is not None and name not in header]
    if missing:
        raise ValueError(f"{path} has no column {listed(missing)}; it has {listed(header)}.")
    return columns, label, ids


# ----------------------------------------------------------------------------------------------------------- checks


def _checked(data: Data, pictures: bool) -> Data:
    """The data with labels as text or numbers; a ValueError if something is wrong with them."""
    path, X = data.path, data.X
    if X.ndim < 2 or (X.ndim > 2 and not pictures):
        raise ValueError(f"{path}: features are a table of rows and columns, but their shape is {X.shape}.")
    if X.dtype.kind not in "biuf":
        raise ValueError(f"{path}: features must be numbers, not {X.dtype}.")
    if 0 in X.shape:
        raise ValueError(f"{path} holds no data: {X.shape[0]} rows and {X.shape[1]} columns of features.")
    bad = np.argwhere(~np.isfinite(X))
    if len(bad):
        row, *column = bad[0].tolist()
        name = f"'{data.columns[column[0]]}'" if data.columns else ", ".join(map(str, column))
        raise ValueError(
            f"{path}: row {row}, column {name} is {X[tuple(bad[0])]} (counted from 0; {len(bad)} such values in all). "
            "Fill in what is not finite, or remove its rows."
        )
    if data.names is not None:
        if len(data.names) != len(X):
            raise ValueError(f"{path}: {len(X)} rows of features, but {len(data.names)} ids.")
        check_ids(path, data.names)
    if data.weights is not None and (data.weights.shape != X.shape[:1] or data.weights.dtype.kind not in "biuf"):
        given = f"{data.weights.dtype} of shape {data.weights.shape}"
        raise ValueError(f"{path}: --row-weights are numbers, one for each of {len(X)} rows, not {given}.")
    return data if data.y is None else replace(data, y=_checked_labels(path, data.y, len(X)))


def _checked_labels(path: Path, y: np.ndarray, rows: int) -> np.ndarray:
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1:
        raise ValueError(f"{path}: labels are one a row, but their shape is {y.shape}.")
    if y.dtype.kind not in "biufUS":
        raise ValueError(f"{path}: labels must be numbers or text, not {y.dtype}.")
    if len(y) != rows:
        raise ValueError(f"{path}: {rows} rows of features, but {len(y)} labels.")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(f"{path}: labels hold NaN or infinity; remove those rows.")
    return y.astype(str) if y.dtype.kind == "S" else y
