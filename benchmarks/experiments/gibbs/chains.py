"""Chains and steps of Gibbs sampling.

How many chains and steps does Gibbs sampling need?

On CUB with 60 classes four chains instead of one bring
{gap accuracy | four chains | one chain | data=cub200 | classes=60} points of accuracy, 32 instead of four
{gap accuracy | 32 chains | four chains | data=cub200 | classes=60}.

Findings
--------
- The paper has accuracy grow with the chains, and less beyond four, and calls the effect of the steps minor. Ten steps
  instead of one, at four chains, change accuracy on CUB with 60 classes by {gap accuracy | ten steps | four chains |
  data=cub200 | classes=60} points and NLL by {gap NLL | ten steps | four chains | data=cub200 | classes=60}.

Set-up
------
Data, halves, kernels and scales are those of [more and more classes](gibbs-classes.md). The paper shows a figure
without numbers, ten runs; here five are planned. It varies the chains; of the steps it says that they have a minor
effect.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.core.tables import Table, chosen
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.gibbs import tables as made
from benchmarks.experiments.gibbs import trials as gibbs

GROUP, SEEDS, PAPER = "The paper's experiments", 5, "supplement, figure 4, right"

run, COLUMNS = gibbs.run_chains, made.COLUMNS
#: (chains, steps): along the chains at one step, then along the steps at four chains.
CHAINS = (*((chains, 1) for chains in (1, 2, 4, 8, 16, 32)), (4, 2), (4, 5), (4, 10))
CHOICES = {
    "one chain": {"chains": 1, "steps": 1},
    "four chains": {"chains": 4, "steps": 1},
    "32 chains": {"chains": 32, "steps": 1},
    "ten steps": {"chains": 4, "steps": 10},
}


def trials(seeds: int) -> list[Trial]:
    lines = [gibbs.trials("gibbs-chains", seeds, ["GP-Tree"], chains=chains, steps=steps) for chains, steps in CHAINS]
    return sorted((trial for line in lines for trial in line), key=lambda trial: trial.seed)


def tables(rows: list[Row]) -> list[Table]:
    rows = sorted(rows, key=lambda row: (row.trial.settings["steps"], row.trial.settings["chains"]))
    one, four, many, long = CHOICES.values()
    pairs = [(four, one), (many, four), (long, four)]
    return [*made.all_tables(rows, by=("settings.chains", "settings.steps")), made.gaps_at(rows, 60, pairs)]


def figure(rows: list[Row], path: Path) -> None:
    drawings = []
    for data, name in gibbs.NAMES.items():
        for vary, fixed in (("chains", {"steps": 1}), ("steps", {"chains": 4})):
            part = sorted(chosen(rows, data=data, **fixed), key=lambda row, by=vary: row.trial.settings[by])
            title = f"{name}, {'one step' if vary == 'chains' else 'four chains'}"
            drawings += [(title, part, f"settings.{vary}")] if part else []
    made.accuracy_figure(drawings, path)
