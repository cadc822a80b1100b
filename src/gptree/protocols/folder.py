"""`RunFolder`: rows.jsonl and details.jsonl of a run, one method and seed after another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gptree.protocols.rows import DAMAGE, parse_detail, parse_row, why
from gptree.protocols.run import StreamResult
from gptree.storage import clear_left_overs, locked, write_atomically

#: Among the settings of a run: what identifies the data, and what only names them.
CONTENT = "data_content"
_NAMES_OF_DATA = ("lists", "test")


@dataclass
class RunFolder:
    """The rows and the details of each finished method and seed.

    Attributes
    ----------
    folder : Path
    rows : dict
        (method, seed) → its rows, one a session.
    details : dict
        (method, seed) → the details of its last session.

    Examples
    --------
    >>> run = RunFolder.open(Path("run"))
    >>> run.add(run_stream(model, stream, seed=0, method="mine"))  # doctest: +SKIP
    """

    folder: Path
    rows: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=dict)
    details: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    _checked: tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]] | None = field(default=None, repr=False)

    @classmethod
    def open(cls, folder: Path) -> RunFolder:
        """Read a folder; one that is not there yet holds no runs."""
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file; name the folder of the run.")
        run = cls(folder)
        run._read()
        return run

    def has(self, method: str, seed: int) -> bool:
        """Whether this method and seed is finished."""
        return (method, seed) in self.rows and (method, seed) in self.details

    def all_rows(self) -> list[dict[str, Any]]:
        """The rows of all methods and seeds."""
        return [row for rows in self.rows.values() for row in rows]

    def check(self, protocol: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Complain of rows of other data, of another protocol, or of other settings of a method.

        What is added later by others is held to the same.

        Parameters
        ----------
        protocol : mapping
            What all rows share. `data_content` identifies the data; where it agrees, the names of files need not.
        settings : mapping
            Of each method, with the protocol among them.
        """
        for row in self.all_rows():
            wanted, held = settings.get(row["method"], protocol), row["settings"]
            same_data = held.get(CONTENT) == wanted.get(CONTENT)
            for name in wanted:
                if held.get(name) != wanted[name] and not (same_data and name in _NAMES_OF_DATA):
                    raise ValueError(
                        f"{self.folder} holds rows of {row['method']} with {name.replace('_', ' ')} {held.get(name)}, "
                        f"not {wanted[name]}: choose another folder."
                    )
        self._checked = protocol, settings

    def add(self, result: StreamResult) -> None:
        """Add a finished run to what the folder holds by now. Files are replaced as wholes, under the folder's lock."""
        try:
            for row in result.rows:
                parse_row(json.dumps(row))
            parse_detail(json.dumps(result.details))
        except DAMAGE as error:
            raise ValueError(f"the run cannot be added to {self.folder}: {why(error)}.") from None
        key = result.details["method"], result.details["seed"]
        with locked(self.folder):
            clear_left_overs(self.folder)
            self._read()
            if self._checked is not None:
                self.check(*self._checked)
            rows, details = {**self.rows, key: result.rows}, {**self.details, key: result.details}
            _write_lines(self.folder / "details.jsonl", details.values())
            _write_lines(self.folder / "rows.jsonl", (row for run in rows.values() for row in run))
            self.rows, self.details = rows, details

    def _read(self) -> None:
        """Take in what the folder holds now. Rows are written last, so that they are read first."""
        rows: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in _read_lines(self.folder / "rows.jsonl", parse_row):
            rows.setdefault((row["method"], row["seed"]), []).append(row)
        details = _read_lines(self.folder / "details.jsonl", parse_detail)
        self.rows, self.details = rows, {(one["method"], one["seed"]): one for one in details}


def _read_lines(path: Path, parse: Callable[[str], Any]) -> list[dict[str, Any]]:
    """The documents of a file, each of which `parse` has taken."""
    try:
        lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return []
    documents = []
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                parse(line)
                documents.append(json.loads(line))
        except DAMAGE as error:
            raise ValueError(
                f"{path} is damaged, line {number}: {why(error)}. Mend it, or choose another folder."
            ) from None
    return documents


def _write_lines(path: Path, documents: Iterable[Mapping[str, Any]]) -> None:
    lines = (json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n" for document in documents)
    write_atomically(path, "".join(lines))


def data_content(*arrays: np.ndarray) -> str:
    """What identifies data: a digest of the values of arrays, whatever file they came from."""
    digest = hashlib.sha256()
    for array in arrays:
        is_number = array.dtype.kind in "biuf"
        digest.update(repr((array.shape, array.dtype.kind if not is_number else "number")).encode())
        digest.update(array.astype(np.float64).tobytes() if is_number else repr(array.tolist()).encode())
    return digest.hexdigest()[:16]
