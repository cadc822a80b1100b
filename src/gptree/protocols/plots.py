"""Pictures of session runs with matplotlib: curves, base against novel accuracy, reliability, confusion.

A method has one colour, marker and kind of dashes in all pictures, by its number. The seven colours were searched for:
each has a contrast of 3 to white, and each pair is at least 23 apart in CIE Lab, to people with normal colour vision
and to those without one kind of cones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gptree.metrics import ReliabilityCurve
from gptree.protocols.run import harmonic_mean
from gptree.protocols.tables import Estimate, Row, runs_by_method
from gptree.storage import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#002c6d", "#ea6500", "#00694e", "#bb76a2", "#0094e1", "#6c4100", "#090a06")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
_DASHES = ("-", "--", ":", "-.")
_ACCENT, _SOFT = "#b3253c", "0.45"

#: Panels of the curves: key in a row, title, factor.
_PANELS = (
    ("accuracy", "accuracy, all classes (%)", 100),
    ("base_accuracy", "accuracy, base classes (%)", 100),
    ("novel_accuracy", "accuracy, novel classes (%)", 100),
    ("nll", "NLL", 1),
    ("ece", "ECE (%)", 100),
)

Curve = Mapping[int, Estimate]  # the estimate of every session that has one


def method_style(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of a method by its number, for `Axes.plot` and `Axes.errorbar`."""
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": _DASHES[number // len(_COLOURS) % len(_DASHES)],
        "markersize": 4.5,
        "linewidth": 1.3,
    }


# ----------------------------------------------------------------------------------------------------------- curves


def plot_curves(rows: Iterable[Row], path: str | Path) -> None:
    """Draw accuracy (all, base, novel), NLL and ECE over the sessions of one data set; bars are standard errors.

    Parameters
    ----------
    rows : iterable of dict
        As `run_stream` makes them.
    path : path of a .png, .svg or .pdf file
    """
    from matplotlib.figure import Figure

    runs = runs_by_method(rows)
    if len({data for data, _ in runs}) > 1:
        raise ValueError(
            f"Curves are of one data set; the rows are of {', '.join(sorted({data for data, _ in runs}))}."
        )
    figure = Figure(figsize=(12, 6.8), layout="constrained")
    *panels, legend = figure.subplots(2, 3).flat
    for ax, (key, title, factor) in zip(panels, _PANELS, strict=True):
        draw_curves(ax, {number: session_curve(run, key) for number, run in enumerate(runs.values())}, factor)
        ax.set_title(title, fontsize=11)
        ax.set_xlabel("session")
        ax.set_xlim(-0.5, len(next(iter(runs.values()))[0]) - 0.5)
    legend.set_axis_off()
    names = [f"{method} ({len(run)} {'seed' if len(run) == 1 else 'seeds'})" for (_, method), run in runs.items()]
    (data,) = {data for data, _ in runs}
    legend.legend(panels[0].containers, names, loc="center left", frameon=False, title=data, alignment="left")
    write_figure(Path(path), figure, dpi=150)


def session_curve(runs: Iterable[Sequence[Row]], key: str) -> dict[int, Estimate]:
    """The estimate of a number for every session that has one, from one list of rows a seed."""
    values: dict[int, list[float | None]] = {}
    for run in runs:
        for row in run:
            values.setdefault(row["session"], []).append(row[key])
    estimates = {session: Estimate.of(values[session]) for session in sorted(values)}
    return {session: estimate for session, estimate in estimates.items() if estimate is not None}


def draw_curves(ax: Axes, curves: Mapping[int, Curve], factor: float = 1.0) -> None:
    """A line with error bars for every method by its number, times a factor.

    Each is moved a little aside, so that the bars of several methods can be told apart.
    """
    from matplotlib.ticker import MaxNLocator

    for place, (number, curve) in enumerate(curves.items()):
        aside = 0.3 * ((place + 0.5) / len(curves) - 0.5)
        points = [(x + aside, factor * y.mean, factor * (y.error or 0.0)) for x, y in sorted(curve.items())]
        x, mean, error = np.array(points).reshape(-1, 3).T
        ax.errorbar(x, mean, yerr=error, elinewidth=0.9, capsize=2, **method_style(number))
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    _plain(ax)


def _plain(ax: Axes) -> None:
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)


def draw_trade_off(ax: Axes, points: Mapping[int, tuple[Estimate, Estimate]]) -> None:
    """Accuracy on base classes against novel ones, in %, of every method by its number.

    Along a dotted line the harmonic mean is the number written there.
    """
    for number, (base, novel) in points.items():
        style = method_style(number) | {"linestyle": "none", "markersize": 7}
        errors = {"xerr": 100 * (base.error or 0.0), "yerr": 100 * (novel.error or 0.0)}
        ax.errorbar(100 * base.mean, 100 * novel.mean, **errors, elinewidth=0.9, capsize=2, **style)
    ax.margins(0.15)
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    x, y = np.meshgrid(np.linspace(max(left, 1e-6), right, 100), np.linspace(max(low, 1e-6), high, 100))
    lines = ax.contour(x, y, np.vectorize(harmonic_mean)(x, y), 5, colors=_SOFT, linewidths=0.8, linestyles="dotted")
    ax.clabel(lines, fontsize=8, fmt="%g")
    ax.set(xlabel="accuracy on base classes, %", ylabel="accuracy on novel classes, %")
    _plain(ax)


# ------------------------------------------------------------------------------------------ reliability and confusion


def plot_reliability(curve: ReliabilityCurve, ax: Axes) -> None:
    """Draw accuracy over confidence, the gap between them hatched, and a histogram of confidence beneath.

    Parameters
    ----------
    curve : ReliabilityCurve
        Of `gptree.metrics.reliability_curve`.
    ax : matplotlib.axes.Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> plot_reliability(reliability_curve(p, y), Figure().subplots())  # doctest: +SKIP
    """
    used = curve.count > 0
    left, right = curve.edges[:-1][used], curve.edges[1:][used]
    bars = {
        "x": left,
        "width": np.maximum(right - left, 0.004),
        "align": "edge",
    }  # a bin of one value stays visible
    share, confidence = curve.accuracy[used], curve.confidence[used]

    ax.bar(height=share, color="#8fb8de", edgecolor="white", linewidth=0.5, label="accuracy", **bars)
    gap = {"facecolor": "none", "edgecolor": "#c0392b", "linewidth": 0.6, "hatch": "////"}
    ax.bar(height=confidence - share, bottom=share, label="gap to confidence", **gap, **bars)
    ax.plot([0, 1], [0, 1], color="0.25", linewidth=1, linestyle="--", label="calibrated")
    ax.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy", aspect="equal")
    ax.tick_params(labelbottom=False)
    ax.legend(
        loc="upper left",
        title=f"ECE {100 * curve.ece:.1f} %",
        alignment="left",
        facecolor="white",
        framealpha=0.85,
        edgecolor="none",
    )

    below = ax.inset_axes((0, -0.28, 1, 0.22), sharex=ax)
    below.bar(
        height=100 * curve.count[used] / curve.count.sum(),
        color="0.65",
        edgecolor="white",
        linewidth=0.5,
        **bars,
    )
    below.set(xlabel="confidence", ylabel="% of rows")
    for axes in (ax, below):
        axes.spines[["top", "right"]].set_visible(False)


def draw_confusion(ax: Axes, counts: np.ndarray, names: Sequence[str], marked: Sequence[bool]) -> None:
    """How often each class (a row) was taken for each other one (a column); marked classes are bold and red.

    Columns have the names if those are short, otherwise letters, which stand behind the names as well.
    """
    letters = list(names) if all(len(name) <= 3 for name in names) else [chr(ord("A") + i) for i in range(len(names))]
    rows = [name if name == letter else f"{name}  {letter}" for name, letter in zip(names, letters, strict=True)]
    light = {"cmap": "Reds", "vmin": 0, "vmax": 2 * counts.max()}  # enough for dark numbers
    ax.pcolormesh(np.ma.masked_equal(counts, 0), edgecolors="0.85", linewidth=0.6, **light)
    for (i, j), count in np.ndenumerate(counts):
        if count:
            ax.text(j + 0.5, i + 0.5, str(count), ha="center", va="center", fontsize=8)
    ax.set_xticks(np.arange(len(letters)) + 0.5, letters, parse_math=False)
    ax.set_yticks(np.arange(len(rows)) + 0.5, rows, parse_math=False)
    ax.tick_params(length=0, labelsize=9, labeltop=True, labelbottom=False)
    ax.set(aspect="equal", ylim=(len(rows), 0))
    for axis in (ax.xaxis, ax.yaxis):
        for label, mark in zip(axis.get_ticklabels(), marked, strict=True):
            if mark:
                label.set(color=_ACCENT, fontweight="bold")
    ax.spines[:].set_visible(False)
