"""The log of a training: a line of JSON an epoch, its picture, and a progress bar."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gptree.storage.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOG, CURVES = "log.jsonl", "curves.png"

_FEW = 30  # points of a curve, up to which they are marked
_INK = "#2b2f36"
_FAINT = "#8c96a3"
_BLUE, _RED, _GREEN, _VIOLET = "#2a6f97", "#d1495b", "#588157", "#8e5ea2"


def write_log(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write all rows, a JSON document a line."""
    write_atomically(folder / LOG, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """The rows of the log in the folder of a training."""
    path = Path(folder) / LOG
    if not path.is_file():
        raise ValueError(f"{folder} holds no {LOG}: it is not the folder of a training.")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# ---------------------------------------------------------------------------------------------------------- picture


def plot_curves(log: Sequence[dict[str, Any]] | str | Path) -> Figure:
    """Draw loss, bound, accuracy and calibration of a training over its epochs.

    The losses of the two stages are different functions, so that each has its own curve; the dashed line is where one
    stage gave way to the other.

    Parameters
    ----------
    log : the rows of a log, or the folder of a training

    Returns
    -------
    matplotlib.figure.Figure
        Save it with `figure.savefig(...)`; no display is needed.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    rows = read_log(log) if isinstance(log, str | Path) else list(log)
    if not rows:
        raise ValueError("the log is empty: no epoch is done yet.")
    before, joint = ([row for row in rows if (row["stage"] == "joint") == late] for late in (False, True))
    figure = Figure(figsize=(11.0, 5.6), dpi=150, facecolor="white", layout="constrained")
    panels = figure.subplots(2, 3, sharex=True)
    (loss, bound, rate), (accuracy, nll, ece) = panels
    _draw(loss, before, "loss", _FAINT, "pre-training")
    _draw(loss, joint, "loss", _BLUE, "joint")
    _draw(bound, joint, "expected_log_likelihood", _GREEN, "expected log-likelihood")
    _draw(bound, joint, "bound", _BLUE, "bound: less KL")
    _draw(rate, rows, "learning_rate", _FAINT)
    _draw(accuracy, rows, "accuracy", _BLUE, times=100)
    _draw(nll, rows, "nll", _VIOLET)
    _draw(ece, rows, "ece", _RED, times=100)
    titles = ("Training loss", "Bound, a row", "Learning rate", "Accuracy, %", "NLL, nats", "Calibration error, %")
    for ax, title in zip(panels.flat, titles, strict=True):
        _dress(ax, title)
        if before and joint:
            ax.axvline(before[-1]["epoch"] + 0.5, color=_FAINT, linewidth=0.8, linestyle="--", zorder=0)
    for ax in panels[1]:
        ax.set_xlabel("epoch", color=_INK, fontsize=9)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _draw(
    ax: Axes, rows: Sequence[dict[str, Any]], name: str, colour: str, label: str | None = None, times: float = 1.0
) -> None:
    points = [(row["epoch"], times * row[name]) for row in rows if name in row]
    if points:
        marker = "o" if len(points) <= _FEW else ""
        ax.plot(*zip(*points, strict=True), color=colour, linewidth=1.4, marker=marker, markersize=3, label=label)


def _dress(ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left", fontsize=10, color=_INK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(_FAINT)
    ax.tick_params(colors=_INK, labelsize=8, length=3)
    ax.grid(axis="y", color="0.92", linewidth=0.8)
    ax.set_axisbelow(True)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=8, labelcolor=_INK)
    if not ax.lines:
        ax.set_yticks([])
        ax.text(0.5, 0.5, "none", transform=ax.transAxes, ha="center", va="center", fontsize=9, color=_FAINT)


# --------------------------------------------------------------------------------------------------------- progress


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
