"""Panels and lines of the pictures on result pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core.tables import Column, Summary, grouped
from benchmarks.core.trials import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def panels(down: int, across: int, width: float = 4.2, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """A figure of plain panels, in reading order."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * across, height * down), layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    return figure, axes


def line_plot(
    rows: Iterable[Row], x: str, y: Column, series: str, ax: Axes, colours: Mapping[Any, str] | None = None
) -> None:
    """Mean of y over x, one line for each value of `series`, with bars of one standard error.

    colours : by the values of `series`, so that panels agree where one lacks a line.
    """
    for (name,), group in grouped(rows, [series]).items():
        points = sorted((place, Summary.of(part, y)) for (place,), part in grouped(group, [x]).items())
        places = [place for place, _ in points]
        means, errors = ([getattr(summary, part) for _, summary in points] for part in ("mean", "error"))
        how = {"color": None if colours is None else colours[name], "marker": "o", "markersize": 4, "capsize": 2}
        ax.errorbar(places, means, yerr=np.nan_to_num(errors), label=str(name), **how)
    ax.set(xlabel=x.rsplit(".", 1)[-1], ylabel=y.title)
    ax.legend(frameon=False, fontsize="small")
