"""A picture of a training: loss, bound, accuracy and calibration over its epochs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptree.deep.loop.log import read_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = "curves.png"

_FEW = 30  # points of a curve, up to which they are marked
_INK = "#2b2f36"
_FAINT = "#8c96a3"
_BLUE, _RED, _GREEN, _VIOLET = "#2a6f97", "#d1495b", "#588157", "#8e5ea2"


def plot_curves(log: Sequence[dict[str, Any]] | str | Path) -> Figure:
    """The curves of a log, or of the log in the folder of a training.

    The losses of the two stages are different functions, so that each has its own curve; the dashed line is where one
    stage gave way to the other. Save the figure with `figure.savefig(...)`; no display is needed.
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
