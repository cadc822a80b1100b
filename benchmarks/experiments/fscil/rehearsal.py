"""Rehearsed sessions.

With which settings do rivals that go on training a network learn classes best, as far as base classes can tell?

Few of them gain by training at all.

Set-up
------
Sessions are drawn from the base classes alone, with one seed: 40 of the 60 base classes of mini-ImageNet and CIFAR-100
come first, then four sessions of five; 80 of the 100 of CUB, then two of ten; five shots each. A network is trained on
the first of them, and a tenth of the rows of every class, a quarter on CUB, is for testing. The settings with the
highest accuracy, averaged over these sessions, are those of "tuned" in the experiments on sessions; learning rate 0,
which leaves the network as it is, is always among them. The temperature of the probabilities is the one with the least
NLL after the last rehearsed session; settings of publications are rehearsed for that alone. No test row of a data set
is looked at.
"""

from __future__ import annotations

from benchmarks.core.tables import Column, Table
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.fscil import rivals
from benchmarks.experiments.fscil.lines import DATA, NETWORK_RIVALS
from benchmarks.experiments.fscil.sets import SETS

GROUP = "Classes that arrive later"
run = rivals.rehearse
COLUMNS = {
    "mean": Column("accuracy, mean over sessions (%)", "metrics.mean", 100, 1),
    "base": Column("base, last session (%)", "metrics.sessions.-1.base_accuracy", 100, 1),
    "novel": Column("novel, last session (%)", "metrics.sessions.-1.novel_accuracy", 100, 1),
}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("fscil-rehearsal", rival, data, seed, {"candidate": candidate})
        for seed in range(seeds)
        for data in SETS
        for rival in NETWORK_RIVALS
        for candidate in rivals.candidates(data, rival)
    ]


def tables(rows: list[Row]) -> list[Table]:
    """Of every data set: all settings of every rival, those chosen in bold."""
    made = []
    for data in SETS:
        lines = []
        for rival, title in NETWORK_RIVALS.items():
            mine = [row for row in rows if (row.trial.data, row.trial.method) == (data, rival)]
            best = max((row.metrics["mean"] for row in mine if _is_open(row)), default=None)
            for row in mine:
                cells = [title, _told(row), *(f"{column.of(row):.{column.digits}f}" for column in COLUMNS.values())]
                cells.append(f"{row.metrics['temperature']:.3g}")
                is_best = _is_open(row) and row.metrics["mean"] == best
                lines.append([f"**{cell}**" for cell in cells] if is_best else cells)
        if lines:
            titles = ["method", "settings", *(column.title for column in COLUMNS.values()), "temperature"]
            made.append(Table(f"{DATA[data]}: rehearsed", titles, lines))
    return made


def _is_open(row: Row) -> bool:
    return row.trial.settings["candidate"] != rivals.TAO


def _told(row: Row) -> str:
    candidate = row.trial.settings["candidate"]
    if candidate == rivals.TAO:
        return "published"
    return ", ".join(f"{name.split('__')[-1]} {value}" for name, value in rivals.differences(candidate).items())
