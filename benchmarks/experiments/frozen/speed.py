"""Speed of a forest.

How long do fit and prediction of the default forest take?

{mean seconds | data=banking77} s on Banking77 with 5 shots, {mean seconds | data=cub200} s on CUB with 30 shots, on one
thread.

Set-up
------
One thread, each trial in a process of its own: run it on an idle machine. Seconds are those of fit and prediction of
all test rows.
"""

from __future__ import annotations

from benchmarks.core.tables import Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.frozen import methods
from benchmarks.experiments.frozen.methods import ACCURACY, BY, ECE, FOREST, NLL, SECONDS

GROUP, SEEDS, FRESH_PROCESS = "Speed and size", 3, True

run = methods.run
COLUMNS = {"accuracy": ACCURACY, "NLL": NLL, "ECE": ECE, "seconds": SECONDS}
TASKS = (("clinc150", 30), ("banking77", 5), ("cub200", 30))


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("frozen-speed", FOREST, data, seed, {"classes": None, "shots": shots})
        for seed in range(seeds)
        for data, shots in TASKS
    ]


def tables(rows: list[Row]) -> list[Table]:
    return [listing("The default forest", rows, [*BY, "method"], COLUMNS.values())]
