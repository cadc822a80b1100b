"""The rows of a JSONL file: read, appended to, and read on while other runs append."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from benchmarks.core.trials import Row, Trial


class Rows:
    """The rows of a JSONL file. Damaged lines are skipped and reported; a trial's last row is its row."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.damaged: list[str] = []
        self._rows: dict[str, Row] = {}
        self._lines = self._bytes = 0  # that have been read
        if rest := self._read():
            self._report(self._take(self._lines + 1, rest))

    def read_on(self) -> None:
        """Take in lines that were added since, as by another run. One that is being written is for the next time."""
        self._read()

    def _read(self) -> bytes:
        """Take in whole lines from where the last reading ended. What follows them."""
        if not self.path.exists():
            return b""
        with self.path.open("rb") as file:
            file.seek(self._bytes)
            text = file.read()
        *lines, rest = text.split(b"\n")
        self._report(*(self._take(number, line) for number, line in enumerate(lines, start=self._lines + 1)))
        self._lines += len(lines)
        self._bytes += len(text) - len(rest)
        return rest

    def _take(self, number: int, line: bytes) -> str | None:
        """Add the row of a line; what is wrong with it if it has none."""
        try:
            row = Row.from_line(line.decode())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return f"line {number}: {error!r}"
        self._rows[row.trial.key] = row
        return None

    def _report(self, *damage: str | None) -> None:
        new = [text for text in damage if text is not None and text not in self.damaged]
        self.damaged += new
        if new:
            warnings.warn(f"{self.path.name}: skipped damaged rows: {'; '.join(new)}", stacklevel=4)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def done(self, trial: Trial, defaults: int = 0) -> bool:
        """Whether the trial has a row of these defaults or newer ones, or of those that its method names. Rows of older
        code count: delete them to run them again."""
        row = self._rows.get(trial.key)
        return row is not None and (row.defaults >= defaults or trial.method.endswith(f", defaults {row.defaults}"))

    def append(self, row: Row) -> None:
        """Add a row in one write that is on the disk when this returns."""
        text = row.to_line()
        line = (text + "\n").encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b", buffering=0) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # the last run was cut off inside a line: leave that line to itself
                    line = b"\n" + line
            file.write(line)
            os.fsync(file.fileno())
        self._rows[row.trial.key] = Row.from_line(text)
