"""Tables and curves over sessions, made of rows alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.experiment import Table
from benchmarks.experiments.fscil_lines import DATA, EMBEDDED, Line
from benchmarks.rows import Row
from benchmarks.tables import Better, Summary, best_of_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {
    "accuracy": "accuracy, all classes (%)",
    "base_accuracy": "accuracy, base classes (%)",
    "novel_accuracy": "accuracy, novel classes (%)",
    "forgetting": "average forgetting (%)",
}
#: What is shown of the last session: key, title, scale, digits, and which is best.
LAST: tuple[tuple[str, str, float, int, Better], ...] = (
    ("accuracy", "accuracy (%)", 100, 1, max),
    ("base_accuracy", "base (%)", 100, 1, max),
    ("novel_accuracy", "novel (%)", 100, 1, max),
    ("harmonic_mean", "harmonic mean (%)", 100, 1, max),
    ("forgetting", "forgetting (%)", 100, 1, min),
    ("nll", "NLL", 1, 3, min),
    ("ece", "ECE (%)", 100, 1, min),
)
NOTE = "In %, sessions as the paper numbers them, 1 being the base; mean ± standard error over seeds; best in bold."
LAST_NOTE = """\
All classes after the last session; harmonic mean of base and novel accuracy; forgetting as in `fscil-forgetting`;
mean ± standard error over seeds; best in bold."""
FORGETTING_NOTE = """\
After session k: the mean over sessions j < k of the best accuracy that the classes of session j had in sessions
1 … k − 1, less what they have now; mean ± standard error over seeds (none: one seed), lowest in bold. What never learns
a class has nothing to forget: read it beside the accuracies."""

#: The palette of Okabe and Ito, told apart by people with any kind of colour vision, and three more.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C6D31", "#7F7F7F", "#6A3D9A")
MARKERS = "os^DvPX<>h"


def estimate(rows: Sequence[Row], metric: str, session: int = -1, scale: float = 100.0) -> Summary:
    """Of a line's rows: the metric after a session, over the seeds that have it."""
    found = (row.metrics["sessions"][session][metric] for row in rows)
    return Summary.over(scale * value for value in found if value is not None)


def groups(rows: Sequence[Row], lines: Sequence[Line], data: str) -> dict[Line, list[Row]]:
    """The lines that have rows on a data set, and these."""
    return {line: found for line in lines if (found := line.of(rows, data))}


# ------------------------------------------------------------------------------------------------------------ tables


def tables(rows: list[Row], *, lines: Sequence[Line], data: Sequence[str], metric: str) -> list[Table]:
    """Of every data set that has rows: the metric after each session and, beside accuracy, the last one's scores."""
    return [table for name in data for table in _tables_of(groups(rows, lines, name), name, metric)]


def _tables_of(found: dict[Line, list[Row]], data: str, metric: str) -> Iterator[Table]:
    if not found:
        return
    names = [line.name for line in found]
    forgets = metric == "forgetting"  # there is nothing to forget in the base session
    sessions = range(int(forgets), len(next(iter(found.values()))[0].metrics["sessions"]))
    columns = [
        best_of_line([estimate(own, metric, k) for own in found.values()], 1, min if forgets else max) for k in sessions
    ]
    yield Table(
        title=f"{DATA[data]}: {TITLES[metric].removesuffix(' (%)')}, after each session",
        head=["method", *(str(k + 1) for k in sessions)],
        lines=_typed(zip(names, *columns, strict=True)),
        note=f"{EMBEDDED[data]} {FORGETTING_NOTE if forgets else NOTE}",
    )
    if forgets:
        return
    scores = [
        best_of_line([estimate(own, key, scale=scale) for own in found.values()], digits, best)
        for key, _, scale, digits, best in LAST
    ]
    seeds = [str(len(own)) for own in found.values()]
    yield Table(
        title=f"{DATA[data]}: after the last session",
        head=["method", "seeds", *(title for _, title, *_ in LAST)],
        lines=_typed(zip(names, seeds, *scores, strict=True)),
        note=LAST_NOTE,
    )


def _typed(lines: Iterable[Sequence[str]]) -> list[list[str]]:
    """Numbers with a true minus sign."""
    return [[name, *(cell.replace("-", "−") for cell in cells)] for name, *cells in lines]


# ------------------------------------------------------------------------------------------------------------ figure


def figure(rows: list[Row], path: Path, *, lines: Sequence[Line], data: Sequence[str], metric: str) -> None:
    """A row of panels for every data set that has rows, or a panel where one metric is drawn; a curve a line."""
    from matplotlib.figure import Figure

    keys = [metric] if metric == "forgetting" else ["accuracy", "base_accuracy", "novel_accuracy"]
    found = {name: own for name in data if (own := groups(rows, lines, name))}
    if not found:
        raise ValueError("There are no rows to draw; run the experiment first.")
    across = len(keys) if len(keys) > 1 else len(found)
    down = len(found) * len(keys) // across
    figure = Figure(figsize=(4.2 * across, 3.3 * down + 0.9), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).flat
    drawn: dict[str, Any] = {}
    for ax, (name, key) in zip(axes, [(name, key) for name in found for key in keys], strict=True):
        for line, own in found[name].items():
            drawn[line.name] = _draw(ax, line, lines.index(line), own, key)
        ax.set_title(DATA[name], fontsize=8.5)
        ax.set(xlabel="session", ylabel=TITLES[key])
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    below: dict[str, Any] = {"loc": "outside lower center", "ncols": across, "frameon": False, "fontsize": 9}
    figure.legend(list(drawn.values()), list(drawn), **below)
    figure.savefig(path, dpi=150)


def _draw(ax: Axes, line: Line, number: int, rows: Sequence[Row], key: str) -> Any:
    """A curve with bars of one standard error; rivals are thin and dashed."""
    points = []
    for session in range(len(rows[0].metrics["sessions"])):
        found = estimate(rows, key, session)
        if found.count:  # there are no novel classes in the base session
            points.append((session + 1, found.mean, np.nan_to_num(found.error)))
    x, mean, error = np.array(points).T
    rival = line.method.startswith("rival: ")
    return ax.errorbar(
        x,
        mean,
        yerr=error,
        color=COLOURS[number % len(COLOURS)],
        marker=MARKERS[number % len(MARKERS)],
        linestyle="--" if rival else "-",
        linewidth=0.9 if rival else 2.0,
        markersize=3.5 if rival else 5,
        alpha=0.8 if rival else 1.0,
        zorder=2 if rival else 3,
        elinewidth=0.8,
        capsize=1.5,
    )
