"""`RunFolder`: rows.jsonl and details.jsonl of a run, one method and seed after another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gptree.protocols.run import StreamResult
from gptree.storage.files import write_atomically


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

    @classmethod
    def open(cls, folder: Path) -> RunFolder:
        """Read a folder; one that is not there yet holds no runs."""
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file; name the folder of the run.")
        run = cls(folder)
        for row in _read_lines(folder / "rows.jsonl"):
            run.rows.setdefault((row["method"], row["seed"]), []).append(row)
        run.details = {(one["method"], one["seed"]): one for one in _read_lines(folder / "details.jsonl")}
        return run

    def has(self, method: str, seed: int) -> bool:
        """Whether this method and seed is finished."""
        return (method, seed) in self.rows and (method, seed) in self.details

    def all_rows(self) -> list[dict[str, Any]]:
        """The rows of all methods and seeds."""
        return [row for rows in self.rows.values() for row in rows]

    def check(self, data: str, protocol: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Complain of rows of another protocol, or of other settings of a method than those in `settings`."""
        for row in self.all_rows():
            wanted = {"data": data, **settings.get(row["method"], protocol)}
            held = {"data": row["data"], **row["settings"]}
            for name in wanted:
                if held.get(name) != wanted[name]:
                    raise ValueError(
                        f"{self.folder} holds rows of {row['method']} with {name} {held.get(name)}, not "
                        f"{wanted[name]}: choose another folder."
                    )

    def add(self, result: StreamResult) -> None:
        """Add a finished run. Files are replaced as wholes, so that none is ever left half written."""
        key = result.details["method"], result.details["seed"]
        self.rows[key], self.details[key] = result.rows, result.details
        self.folder.mkdir(parents=True, exist_ok=True)
        _write_lines(self.folder / "details.jsonl", list(self.details.values()))
        _write_lines(self.folder / "rows.jsonl", self.all_rows())


def _read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): mend it, or choose another folder.") from None


def _write_lines(path: Path, documents: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n" for document in documents)
    write_atomically(path, text)
