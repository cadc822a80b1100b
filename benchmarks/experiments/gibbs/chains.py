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
- On CLINC150 with 60 classes ten steps have a far higher NLL than one, {mean NLL | ten steps | data=clinc150 |
  classes=60} instead of {mean NLL | four chains | data=clinc150 | classes=60}. The choice of the kernel does that, not
  the steps. At the same kernel and scale ten steps lower the NLL of the validation half (last table), there from {mean
  NLL at RBF 18 | four chains | data=clinc150 | classes=60} to {mean NLL at RBF 18 | ten steps | data=clinc150 |
  classes=60} for RBF with scale 18. But as in the paper accuracy chooses, and it hardly tells the settings apart: with
  ten steps RBF with scale 1 has {mean accuracy at RBF 1 | ten steps | data=clinc150 | classes=60} % of the validation
  half, scale 18 {mean accuracy at RBF 18 | ten steps | data=clinc150 | classes=60} %. So scale 1 is chosen, whose NLL
  there is {mean NLL at RBF 1 | ten steps | data=clinc150 | classes=60}; with one step scale 18 was.

Set-up
------
Data, halves, kernels and scales are those of [more and more classes](gibbs-classes.md). The paper shows a figure
without numbers, ten runs, and varies the chains; of the steps it says that they have a minor effect. The experiment is
closed with two draws of CUB and one of CLINC150: more would not change what it says, since a choice by accuracy moves
the NLL more than chains and steps do. With one draw no verdict is given.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.core.gaps import gap
from benchmarks.core.tables import Column, Summary, Table, chosen, number
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.gibbs import tables as made
from benchmarks.experiments.gibbs import trials as gibbs

GROUP, SEEDS, PAPER = "The paper's experiments", 2, "supplement, figure 4, right"

#: Draws of a data set, where they are not as many as `SEEDS`.
DRAWS = {"clinc150": 1}
#: Validation scores of a trial, kernel after kernel and scale after scale.
SETTINGS = [(kernel, scale) for kernel in gibbs.KERNELS for scale in gibbs.SCALES]


def at_setting(column: Column, place: int) -> Column:
    """The column on the validation half with the kernel and scale at a place of `SETTINGS`."""
    return replace(column, path=column.path.replace(".mean.", f".validation.{place}."))


run = gibbs.run_chains
COLUMNS = made.COLUMNS | {
    f"{name} at RBF {scale:g}": at_setting(column, SETTINGS.index(("rbf", scale)))
    for name, column in (("accuracy", made.ACCURACY), ("NLL", made.NLL))
    for scale in (1.0, 18.0)
}
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
    wanted = [trial for line in lines for trial in line if trial.seed < DRAWS.get(trial.data, seeds)]
    return sorted(wanted, key=lambda trial: trial.seed)


def tables(rows: list[Row]) -> list[Table]:
    rows = sorted(rows, key=lambda row: (row.trial.settings["steps"], row.trial.settings["chains"]))
    one, four, many, long = CHOICES.values()
    pairs = [(four, one), (many, four), (long, four)]
    shown = made.all_tables(rows, by=("settings.chains", "settings.steps"))
    return [*shown, made.gaps_at(rows, 60, pairs), at_equal_settings(rows)]


def at_equal_settings(rows: list[Row]) -> Table:
    """Ten steps less one at each kernel and scale, whichever was chosen."""
    lines = []
    for data, name in gibbs.NAMES.items():
        for place, (kernel, scale) in enumerate(SETTINGS):
            column = at_setting(made.NLL, place)
            gaps = []
            for classes in gibbs.CLASSES:
                here = chosen(rows, data=data, classes=classes)
                one, ten = (chosen(here, **CHOICES[steps]) for steps in ("four chains", "ten steps"))
                gaps += [each.mean for each in [gap(ten, one, column)] if each.count]
            lower = sum(each < 0 for each in gaps)
            mean = number(Summary.over(gaps).mean, 3, "+") if gaps else "–"
            lines.append([name, kernel, f"{scale:g}", mean, f"{lower} of {len(gaps)}"])
    titles = ["data", "kernel", "output scale", "Δ NLL", "numbers of classes where it is lower"]
    note = "Mean over draws and then over the numbers of classes. Four chains, validation half, at the latent mean."
    return Table("NLL with ten steps less that with one, at the same kernel and scale", titles, lines, note)


def figure(rows: list[Row], path: Path) -> None:
    drawings = []
    for data, name in gibbs.NAMES.items():
        for vary, fixed in (("chains", {"steps": 1}), ("steps", {"chains": 4})):
            part = sorted(chosen(rows, data=data, **fixed), key=lambda row, by=vary: row.trial.settings[by])
            title = f"{name}, {'one step' if vary == 'chains' else 'four chains'}"
            drawings += [(title, part, f"settings.{vary}")] if part else []
    made.accuracy_figure(drawings, path)
