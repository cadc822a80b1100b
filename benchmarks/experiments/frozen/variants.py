"""Single changes to the default forest.

Which of the default settings matter?

The prior mean by far: without the experts the NLL on Banking77 with 5 shots is
{mean NLL | gptree forest, zero prior mean | data=banking77 | shots=5}, with them
{mean NLL | gptree forest | data=banking77 | shots=5}. Quadrature instead of the latent mean raises the ECE from
{mean ECE | gptree forest | data=banking77 | shots=5} to
{mean ECE | gptree forest, quadrature | data=banking77 | shots=5} %. The other single changes move accuracy and NLL
little.

Set-up
------
On draws (seeds 100 and 101) that the other tables do not use. Each line changes one setting of `GPForestClassifier`.
"""

from __future__ import annotations

from benchmarks.core.tables import Table, chosen, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.frozen import methods
from benchmarks.experiments.frozen.methods import ACCURACY, BY, ECE, NLL, SECONDS, VARIANTS

GROUP, SEEDS = "Frozen features", 2

run = methods.run
COLUMNS = {"accuracy": ACCURACY, "NLL": NLL, "ECE": ECE, "seconds": SECONDS}
#: The first is the same as the default where classes are equal; the others have experiments of their own.
ELSEWHERE = ("gptree forest, empirical class prior", "gptree forest, random trees")
TASKS = (("clinc150", None, 5), ("banking77", None, 5), ("banking77", None, 30), ("cub200", 60, 20))


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("frozen-variants", method, data, seed, {"classes": classes, "shots": shots})
        for seed in range(100, 100 + seeds)
        for data, classes, shots in TASKS
        for method in VARIANTS
        if method not in ELSEWHERE
    ]


def tables(rows: list[Row]) -> list[Table]:
    return [listing("Single changes", rows, [*BY, "method"], COLUMNS.values())]


def glance(rows: list[Row]) -> Table:
    few = chosen(rows, data="banking77", shots=5)
    return listing("Banking77, 5 shots a class", few, ["method"], COLUMNS.values())
