"""What a training tells while it runs: a line of JSON an epoch, and a progress bar."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

LOG = "log.jsonl"


def write_log(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """All rows, a JSON document a line. The file is replaced as a whole, so that none is left half written."""
    text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    unfinished = folder / f".{LOG}-{os.getpid()}.tmp"
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, folder / LOG)


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """The rows of the log in the folder of a training."""
    path = Path(folder) / LOG
    if not path.is_file():
        raise ValueError(f"{folder} holds no {LOG}: it is not the folder of a training.")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Progress(Protocol):
    def step(self) -> None: ...

    def epoch(self, row: dict[str, Any]) -> None: ...


class _Silent:
    def step(self) -> None:
        pass

    def epoch(self, row: dict[str, Any]) -> None:
        pass


class _Bar:
    def __init__(self, bar: Any, task: Any, epochs: int) -> None:
        self._bar, self._task, self._epochs = bar, task, epochs

    def step(self) -> None:
        self._bar.advance(self._task)

    def epoch(self, row: dict[str, Any]) -> None:
        """Only here numbers are known: within an epoch they stay on the device."""
        accuracy = f" · accuracy {100 * row['accuracy']:.1f} %" if "accuracy" in row else ""
        text = f"epoch {row['epoch']} of {self._epochs} · loss {row['loss']:.4f}{accuracy}"
        self._bar.update(self._task, description=text)


@contextmanager
def progress_bar(shown: bool, epochs: int, steps: int, done: int) -> Iterator[Progress]:
    """A bar over all steps of all epochs, gone when they are done; `done` of them were before."""
    if not shown:
        yield _Silent()
        return
    from rich.progress import Progress as RichProgress

    with RichProgress(transient=True) as bar:
        task = bar.add_task(f"epoch 0 of {epochs}", total=epochs * steps, completed=done)
        yield _Bar(bar, task, epochs)
