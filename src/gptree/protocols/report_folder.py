"""Reading a run folder for a report: a damaged line is left out and complained about."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from gptree.protocols.rows import DAMAGE, Detail, Row, parse_detail, parse_row, why


@dataclass(frozen=True)
class Run:
    """Sound rows and details by method, and complaints about the rest."""

    data: str
    rows: dict[str, list[Row]]  # one a seed and session
    details: dict[str, list[Detail]]
    complaints: list[str]

    @property
    def methods(self) -> list[str]:
        return list(self.rows)

    @property
    def all_rows(self) -> list[Row]:
        return [row for rows in self.rows.values() for row in rows]

    @property
    def n_sessions(self) -> int:
        return 1 + max(row["session"] for row in self.all_rows)

    def complete(self) -> list[Row]:
        """The rows of those methods and seeds that have all sessions."""
        incomplete = self.incomplete()
        return [row for row in self.all_rows if (row["method"], row["seed"]) not in incomplete]

    def incomplete(self) -> dict[tuple[str, int], int]:
        """How many sessions a method and seed has, where it has not all."""
        count, n_sessions = Counter((row["method"], row["seed"]) for row in self.all_rows), self.n_sessions
        return {key: n for key, n in count.items() if n < n_sessions}


def read_run(folder: Path) -> Run:
    """Read a run folder; a `ValueError` says why there is nothing to report on."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: make a run with gptree fscil DATA --out {folder}.")
    if not (folder / "rows.jsonl").is_file():
        raise ValueError(f"{folder} has no rows.jsonl: it is not the folder of a run; gptree fscil makes one.")
    complaints: list[str] = []
    sound: dict[tuple[str, int, int], Row] = {}
    for place, line in _lines(folder / "rows.jsonl"):
        try:
            row = parse_row(line)
        except DAMAGE as error:
            complaints.append(f"{place} was left out: {why(error)}.")
            continue
        key = (row["method"], row["seed"], row["session"])
        if key in sound:
            complaints.append(f"{place} repeats {key[0]}, seed {key[1]}, session {key[2]}: the later row counts.")
        sound[key] = row
    if not sound:
        first = f" ({len(complaints)} damaged lines; the first: {complaints[0]})" if complaints else ""
        raise ValueError(f"{folder / 'rows.jsonl'} has no usable row{first}: run gptree fscil again.")
    data = sorted({row["data"] for row in sound.values()})
    if len(data) > 1:
        raise ValueError(f"A report is about one data set; the rows are about {', '.join(data)}.")
    rows: dict[str, list[Row]] = {}
    for (method, *_), row in sound.items():
        rows.setdefault(method, []).append(row)
    details: dict[str, list[Detail]] = {method: [] for method in rows}
    for place, line in _lines(folder / "details.jsonl"):
        try:
            detail = parse_detail(line)
            if detail.method not in details:
                raise ValueError(f"rows.jsonl has no row of {detail.method}")
            details[detail.method].append(detail)
        except DAMAGE as error:
            complaints.append(f"{place} was left out: {why(error)}.")
    return Run(data[0], rows, details, complaints)


def _lines(path: Path) -> list[tuple[str, str]]:
    """The lines of a file that are not empty, each with its place; none where there is no file."""
    if not path.is_file():
        return []
    lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")
    return [(f"{path.name}, line {i},", line) for i, line in enumerate(lines, 1) if line.strip()]
