"""Reading DATA: .npz, a pair of .npy files, .csv or .parquet. No file can run code.

| file     | features                                        | labels                                 |
|----------|-------------------------------------------------|----------------------------------------|
| .npz     | the array `--features` (default X)              | the array `--labels` (default y)       |
| .npy     | the array in the file                           | the file `--labels`                    |
| .csv     | columns `--features a,b,c` (default all others) | the column `--labels` (default label)  |
| .parquet | as .csv                                         | as .csv                                |
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

#: Default names of features and labels in an .npz file, and of the label column in a table.
FEATURES, LABELS, LABEL_COLUMN = "X", "y", "label"


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
    """

    path: Path
    X: np.ndarray
    y: np.ndarray | None
    columns: tuple[str, ...] | None = None


def read_data(
    path: Path,
    features: str | None = None,
    labels: str | None = None,
    *,
    need_labels: bool = True,
    known_columns: Sequence[str] | None = None,
    pictures: bool = False,
) -> Data:
    """Read and check a file.

    Parameters
    ----------
    path : Path
    features, labels : str or None
        The options of these names; None is the default.
    need_labels : bool
        Without it, labels that are not there are None, unless they were asked for by name.
    known_columns : sequence of str or None
        Columns that a model was fitted on: a table then gives these, in this order, whatever else it holds.
    pictures : bool
        Whether features may have more than two axes.
    """
    readers = {".npz": _read_npz, ".npy": _read_npy, ".csv": _read_csv, ".parquet": _read_parquet}
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise ValueError(f"{path}: cannot read '{suffix}' files; give one of {', '.join(readers)}.")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file.")
    need_labels = need_labels or labels is not None
    return _checked(readers[suffix](path, features, labels, need_labels, known_columns), pictures)


# ------------------------------------------------------------------------------------------------------ numpy files


def _read_npz(path: Path, features: str | None, labels: str | None, need_labels: bool, _: Any) -> Data:
    with _load(path, np.lib.npyio.NpzFile, "numpy.savez(path, X=X, y=y)") as arrays:
        X = _array(path, arrays, features or FEATURES, "--features")
        key = labels or LABELS
        y = _array(path, arrays, key, "--labels") if need_labels or key in arrays else None
    return Data(path, X, y)


def _read_npy(path: Path, features: str | None, labels: str | None, need_labels: bool, _: Any) -> Data:
    if features is not None:
        raise ValueError(f"{path}: an .npy file holds one array, so --features has no meaning here.")
    if labels is None and need_labels:
        raise ValueError(f"{path} holds features only: name the file of the labels, --labels labels.npy.")
    return Data(path, _read_array(path), None if labels is None else _read_array(Path(labels)))


def _read_array(path: Path) -> np.ndarray:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; with .npy features, --labels names an .npy file.")
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


def _read_csv(
    path: Path, features: str | None, labels: str | None, need_labels: bool, known_columns: Sequence[str] | None
) -> Data:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            lines = [(reader.line_num, row) for row in reader if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a comma-separated UTF-8 text file ({error}).") from None
    for number, row in lines:
        if len(row) != len(header):
            raise ValueError(f"{path}, line {number}: {len(row)} cells, but the header names {len(header)} columns.")
    cells = dict(zip(header, zip(*(row for _, row in lines), strict=True), strict=False)) if lines else {}
    columns, label = _choose_columns(path, header, features, labels, need_labels, known_columns)
    numbers = [_parsed_column(path, name, cells.get(name, ()), lines) for name in columns]
    y = None if label is None else _parsed_labels(path, label, cells.get(label, ()))
    return Data(path, np.array(numbers, dtype=np.float64).reshape(len(columns), len(lines)).T, y, columns)


def _parsed_column(path: Path, name: str, cells: Sequence[str], lines: list[tuple[int, list[str]]]) -> np.ndarray:
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        row = next(i for i, cell in enumerate(cells) if not _is_number(cell))
        raise ValueError(
            f"{path}, line {lines[row][0]}, column '{name}': '{cells[row]}' is not a number. Columns of features are "
            "numeric; name those to use with --features a,b,c and the column of labels with --labels."
        ) from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _parsed_labels(path: Path, name: str, cells: Sequence[str]) -> np.ndarray:
    """Integers where every label is written as one (007 is a name), else text."""
    cells = [cell.strip() for cell in cells]
    if not all(cells):
        raise ValueError(f"{path}: a label in column '{name}' is empty; fill it in or remove the line.")
    integers = all(re.fullmatch(r"0|-?[1-9]\d{0,17}", cell) for cell in cells)
    return np.array(cells, dtype=np.int64) if integers else np.array(cells)


def _read_parquet(
    path: Path, features: str | None, labels: str | None, need_labels: bool, known_columns: Sequence[str] | None
) -> Data:
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
    columns, label = _choose_columns(path, list(frame.columns), features, labels, need_labels, known_columns)
    for name in columns:
        if not pandas.api.types.is_numeric_dtype(frame[name]):
            raise ValueError(
                f"{path}, column '{name}' holds {frame[name].dtype}, not numbers: name the columns to use with "
                "--features a,b,c and the column of labels with --labels."
            )
    X = frame[list(columns)].to_numpy(dtype=np.float64, na_value=np.nan)
    if label is None:
        return Data(path, X, None, columns)
    if frame[label].isna().to_numpy().any():
        raise ValueError(f"{path}: a label in column '{label}' is empty; fill it in or remove the row.")
    return Data(path, X, np.array(frame[label].tolist()), columns)


def _choose_columns(
    path: Path,
    header: Sequence[str],
    features: str | None,
    labels: str | None,
    need_labels: bool,
    known_columns: Sequence[str] | None,
) -> tuple[tuple[str, ...], str | None]:
    """Which columns are features, and which one is the label (None: no label)."""
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise ValueError(f"{path}: two columns are called {', '.join(sorted(twice))}; give each its own name.")
    label = labels or LABEL_COLUMN
    if label not in header:
        if need_labels:
            raise ValueError(f"{path} has no column '{label}': name one of {_listed(header)} with --labels.")
        label = None
    if features is not None:
        columns = tuple(name.strip() for name in features.split(","))
    else:
        columns = tuple(known_columns) if known_columns is not None else tuple(name for name in header if name != label)
    missing = [name for name in columns if name not in header]
    if missing:
        raise ValueError(f"{path} has no column {_listed(missing)}; it has {_listed(header)}.")
    return columns, label


def _listed(names: Sequence[str], most: int = 8) -> str:
    first = ", ".join(f"'{name}'" for name in names[:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"


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
    return data if data.y is None else Data(path, X, _checked_labels(path, data.y, len(X)), data.columns)


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
