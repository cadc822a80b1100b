"""Figures of the paper on sessions, typed by hand from it."""

from __future__ import annotations

from benchmarks.experiment import Table

SESSIONS = tuple(str(session) for session in range(1, 12))
GP_TREE = "73.73 68.24 64.22 59.61 56.39 53.40 51.14 49.32 47.03 45.86 44.48"


def _table(title: str, note: str, lines: dict[str, str]) -> Table:
    return Table(title, ("method", *SESSIONS), [(name, *cells.split()) for name, cells in lines.items()], note)


TABLE_3 = _table(
    "Accuracy (%) on CUB-200 after each session, Table 3",
    "Mean of 10 runs, average standard error 0.4.",
    {
        "iCaRL": "68.68 52.65 48.61 44.16 36.62 29.52 27.83 26.26 24.01 23.89 21.16",
        "EEIL": "68.68 53.63 47.91 44.20 36.30 27.46 25.93 24.70 23.95 24.13 22.11",
        "NCM": "68.68 57.12 44.21 28.78 26.71 25.66 24.62 21.52 20.12 20.06 19.87",
        "TOPIC": "68.68 62.49 54.81 49.99 45.25 41.40 38.35 35.36 32.22 28.31 26.28",
        "SDC": "64.10 60.58 57.00 53.57 52.09 49.87 48.20 46.38 44.04 43.81 42.39",
        "PODNet": "75.93 70.29 64.50 49.00 45.90 43.00 41.33 40.56 40.09 40.59 39.30",
        "GP-Tree": GP_TREE,
    },
)
TREE_VARIANTS = _table(
    "Accuracy (%) on CUB-200 by tree construction, supplement",
    "Mean of 10 runs.",
    {
        "shared root (GP-Tree)": GP_TREE,
        "session tree": "73.73 68.24 64.07 59.42 56.12 52.80 50.73 48.89 46.34 45.01 43.33",
        "rebuild tree": "73.73 67.71 63.50 59.03 55.73 52.73 50.49 48.85 46.17 44.84 43.20",
    },
)
