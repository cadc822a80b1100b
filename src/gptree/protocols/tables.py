"""Summary of session runs over seeds: numbers, and a Markdown table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gptree.protocols.run import performance_drop

Row = Mapping[str, Any]

#: Name in a table, and whether it is a percentage there.
_NAMES = {
    "last": ("last", True),
    "average": ("average", True),
    "drop": ("drop", True),
    "harmonic_mean": ("harmonic mean", True),
    "forgetting": ("forgetting", True),
    "nll": ("NLL", False),
    "ece": ("ECE", True),
    "auroc": ("open AUROC", True),
}
METRICS = tuple(_NAMES)


class Estimate(NamedTuple):
    """Mean over seeds, and its standard error.

    Attributes
    ----------
    mean : float
    error : float or None
        None for one seed.
    """

    mean: float
    error: float | None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Estimate | None:
        """The estimate from one value a seed; None where any seed has none."""
        values = list(values)
        if not values or None in values:
            return None
        numbers = np.array(values, dtype=float)
        error = float(numbers.std(ddof=1) / np.sqrt(len(numbers))) if len(numbers) > 1 else None
        return cls(float(numbers.mean()), error)


def summary(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows of sessions, summed up over seeds.

    Parameters
    ----------
    rows : iterable of dict
        As `run_stream` makes them; every method and seed has all sessions of its data set.

    Returns
    -------
    list of dict
        One a data set and method: "data", "method", "seeds", and an `Estimate` or None for each of `METRICS`. last,
        average, drop: accuracy after the last session, its mean over sessions, and the base session's minus the last.
        harmonic_mean, forgetting, nll, ece: after the last session. auroc: mean over the sessions that are followed by
        others.
    """
    lines = []
    for (data, method), runs in runs_by_method(rows).items():
        scores = [_run_scores(run) for run in runs]
        estimates = {metric: Estimate.of(score[metric] for score in scores) for metric in METRICS}
        lines.append({"data": data, "method": method, "seeds": len(runs), **estimates})
    return lines


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


def runs_by_method(rows: Iterable[Row]) -> dict[tuple[str, str], list[list[Row]]]:
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
        length = max(len(run) for (other, _), seeds in sessions.items() if other == data for run in seeds.values())
        for run in runs.values():
            if sorted(run) != list(range(length)):
                raise ValueError(f"{_name(next(iter(run.values())))} has {len(run)} of {length} sessions: finish it.")
    return {key: [[run[k] for k in sorted(run)] for run in runs.values()] for key, runs in sessions.items()}


def _name(row: Row) -> str:
    return f"{row['method']} on {row['data']}, seed {row['seed']},"


# ------------------------------------------------------------------------------------------------------------ table


def summary_cells(line: Mapping[str, Any]) -> dict[str, str]:
    """The metrics of one line of `summary` as text: percentages but for the NLL, with standard errors."""
    return {name: _cell(line[metric], percent) for metric, (name, percent) in _NAMES.items()}


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
