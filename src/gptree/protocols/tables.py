"""Rows of session runs, summed up over seeds: numbers, a Markdown table, and curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gptree.protocols.run import performance_drop

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]

#: Name in a table, and whether it is shown as a percentage.
_SHOWN = {
    "last": ("last", True),
    "average": ("average", True),
    "drop": ("drop", True),
    "harmonic_mean": ("harmonic mean", True),
    "forgetting": ("forgetting", True),
    "nll": ("NLL", False),
    "ece": ("ECE", True),
    "auroc": ("open AUROC", True),
}
METRICS = tuple(_SHOWN)

#: Panels of the curves: key in a row, title, factor.
_PANELS = (
    ("accuracy", "accuracy, all classes (%)", 100),
    ("base_accuracy", "accuracy, base classes (%)", 100),
    ("novel_accuracy", "accuracy, novel classes (%)", 100),
    ("nll", "NLL", 1),
    ("ece", "ECE (%)", 100),
)
#: The palette of Okabe and Ito, told apart by people with any kind of colour vision; without its yellow, which is faint
#: on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
_DASHES = ("-", "--", ":", "-.")


class Estimate(NamedTuple):
    """Mean over seeds and its standard error, which is None for one seed."""

    mean: float
    error: float | None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Estimate | None:
        """None where any seed has no value."""
        found = list(values)
        if not found or any(value is None for value in found):
            return None
        numbers = np.array(found, dtype=float)
        error = float(numbers.std(ddof=1) / np.sqrt(len(numbers))) if len(numbers) > 1 else None
        return cls(float(numbers.mean()), error)


def summary(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """One dictionary a data set and method: "data", "method", "seeds", and an `Estimate` or None for each metric.

    last, average, drop: accuracy after the last session, its mean over sessions, and the base session's minus the
    last. harmonic_mean, forgetting, nll, ece: after the last session. auroc: mean over the sessions that are followed
    by others.
    """
    found = []
    for (data, method), runs in _runs(rows).items():
        scores = [_run_scores(run) for run in runs]
        estimates = {metric: Estimate.of(score[metric] for score in scores) for metric in METRICS}
        found.append({"data": data, "method": method, "seeds": len(runs), **estimates})
    return found


def _run_scores(run: Sequence[Row]) -> dict[str, float | None]:
    accuracies = [row["accuracy"] for row in run]
    aurocs = [row["open_auroc"] for row in run if row["open_auroc"] is not None]
    at_last = {metric: run[-1][metric] for metric in ("harmonic_mean", "forgetting", "nll", "ece")}
    return {
        "last": accuracies[-1],
        "average": float(np.mean(accuracies)),
        "drop": performance_drop(accuracies),
        "auroc": float(np.mean(aurocs)) if aurocs else None,
        **at_last,
    }


def _runs(rows: Iterable[Row]) -> dict[tuple[str, str], list[list[Row]]]:
    """Data set and method → one list of rows a seed, in the order of sessions; methods in the order of their rows."""
    sessions: dict[tuple[str, str], dict[int, dict[int, Row]]] = {}
    for row in rows:
        run = sessions.setdefault((row["data"], row["method"]), {}).setdefault(row["seed"], {})
        if row["session"] in run:
            raise ValueError(f"{_name(row)} has two rows for session {row['session']}: give one setting a method name.")
        run[row["session"]] = row
    if not sessions:
        raise ValueError("There are no rows.")
    for (data, _), runs in sessions.items():
        length = max(len(run) for (other, _), found in sessions.items() if other == data for run in found.values())
        for run in runs.values():
            if sorted(run) != list(range(length)):
                raise ValueError(f"{_name(next(iter(run.values())))} has {len(run)} of {length} sessions: finish it.")
    return {key: [[run[k] for k in sorted(run)] for run in runs.values()] for key, runs in sessions.items()}


def _name(row: Row) -> str:
    return f"{row['method']} on {row['data']}, seed {row['seed']},"


# ------------------------------------------------------------------------------------------------------------ table


def summary_cells(line: Mapping[str, Any]) -> dict[str, str]:
    """The metrics of one line of `summary` as text: percentages but for the NLL, with standard errors."""
    return {name: _cell(line[metric], percent) for metric, (name, percent) in _SHOWN.items()}


def _cell(estimate: Estimate | None, percent: bool) -> str:
    if estimate is None:
        return "–"
    factor, digits = (100, 1) if percent else (1, 3)
    error = "" if estimate.error is None else f" ± {factor * estimate.error:.{digits}f}"
    return f"{factor * estimate.mean:.{digits}f}{error}"


def markdown_table(rows: Iterable[Row]) -> str:
    """`summary` as a Markdown table, one line a data set and method."""
    lines = [
        {"data": s["data"], "method": s["method"], "seeds": str(s["seeds"]), **summary_cells(s)} for s in summary(rows)
    ]
    header = list(lines[0])
    rule = ["---", "---", *["---:"] * (len(header) - 2)]
    cells = [header, rule, *(line.values() for line in lines)]
    table = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in cells)
    return (
        f"{table}\n\nIn % but for the NLL; ± one standard error over seeds. Last, harmonic mean, forgetting, NLL and "
        "ECE: after the last session. Average: over sessions. Drop: base session minus last. Open AUROC: mean over the "
        "sessions that are followed by others.\n"
    )


# ----------------------------------------------------------------------------------------------------------- curves


def plot_curves(rows: Iterable[Row], path: str | Path) -> None:
    """Draw accuracy (all, base, novel), NLL and ECE over the sessions of one data set; bars are standard errors."""
    from matplotlib.figure import Figure

    runs = _runs(rows)
    if len({data for data, _ in runs}) > 1:
        raise ValueError(
            f"Curves are of one data set; the rows are of {', '.join(sorted({data for data, _ in runs}))}."
        )
    figure = Figure(figsize=(12, 6.8), layout="constrained")
    *panels, legend = figure.subplots(2, 3).flat
    for ax, (key, title, factor) in zip(panels, _PANELS, strict=True):
        for number, method_runs in enumerate(runs.values()):
            _draw_curve(ax, method_runs, key, factor, number, len(runs))
        ax.set_title(title, fontsize=11)
        ax.set_xlabel("session")
        ax.set_xlim(-0.5, len(next(iter(runs.values()))[0]) - 0.5)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    legend.set_axis_off()
    names = [f"{method} ({len(found)} {'seed' if len(found) == 1 else 'seeds'})" for (_, method), found in runs.items()]
    (data,) = {data for data, _ in runs}
    legend.legend(panels[0].containers, names, loc="center left", frameon=False, title=data, alignment="left")
    figure.savefig(path, dpi=150)


def _draw_curve(ax: Axes, runs: Sequence[Sequence[Row]], key: str, factor: float, number: int, methods: int) -> None:
    """One method in one panel, each moved a little aside so that the bars of several can be told apart."""
    points = []
    for session in range(len(runs[0])):
        estimate = Estimate.of(run[session][key] for run in runs)
        if estimate is not None:  # there are no novel classes in the base session
            aside = 0.3 * ((number + 0.5) / methods - 0.5)
            points.append((session + aside, factor * estimate.mean, factor * (estimate.error or 0.0)))
    x, mean, error = np.array(points).reshape(-1, 3).T
    ax.errorbar(
        x,
        mean,
        yerr=error,
        color=_COLOURS[number % len(_COLOURS)],
        marker=_MARKERS[number % len(_MARKERS)],
        linestyle=_DASHES[number // len(_COLOURS) % len(_DASHES)],
        markersize=4.5,
        linewidth=1.3,
        elinewidth=0.9,
        capsize=2,
    )
