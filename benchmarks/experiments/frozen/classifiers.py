"""Classifiers on frozen features.

Is a forest of Gaussian-process trees better than the usual classifiers on frozen embeddings?

On CUB and Banking77 the default forest has the best mean accuracy and NLL with all classes, on Banking77 with five
shots by less than the draws can tell. On CLINC150 logistic regression with label smoothing and a temperature, and
kernel logistic regression, are as good, with five shots a little more accurate. On CUB with 30 shots the forest has
{mean accuracy | gptree forest | data=cub200 | classes=null | shots=30} %, plain logistic regression {mean accuracy |
rival: logistic | data=cub200 | classes=null | shots=30} %, RanPAC {mean accuracy | rival: ranpac | data=cub200 |
classes=null | shots=30} %.

Findings
--------
- Logistic regression with label smoothing and a temperature is the nearest rival, with kernel logistic regression.
  With 5 shots and all classes the forest has {gap fine accuracy | gptree forest | rival: logistic-smoothed |
  data=cub200 | classes=null | shots=5} points of accuracy and {gap fine NLL | gptree forest | rival: logistic-smoothed
  | data=cub200 | classes=null | shots=5} of NLL from it on CUB, {gap fine accuracy | gptree forest | rival:
  logistic-smoothed | data=banking77 | classes=null | shots=5} and {gap fine NLL | gptree forest | rival:
  logistic-smoothed | data=banking77 | classes=null | shots=5} on Banking77, {gap fine accuracy | gptree forest |
  rival: logistic-smoothed | data=clinc150 | classes=null | shots=5} and {gap fine NLL | gptree forest | rival:
  logistic-smoothed | data=clinc150 | classes=null | shots=5} on CLINC150.
- The Gaussian processes add to the experts where there are many classes: with 30 shots and all classes of CUB {ahead
  fine accuracy | gptree forest | pool of experts | data=cub200 | classes=null | shots=30} points of accuracy and
  {ahead fine NLL | gptree forest | pool of experts | data=cub200 | classes=null | shots=30} of NLL, of CLINC150 {gap
  fine accuracy | gptree forest | pool of experts | data=clinc150 | classes=null | shots=30} and {ahead fine NLL |
  gptree forest | pool of experts | data=clinc150 | classes=null | shots=30}. With 20 classes they add little.
- Logistic regression is better calibrated on Banking77 with 5 shots, where the forest has {behind ECE | gptree forest |
  rival: logistic-smoothed | data=banking77 | classes=null | shots=5} points of ECE from it; on CUB with 30 they are
  {level ECE | gptree forest | rival: logistic-smoothed | data=cub200 | classes=null | shots=30} apart.
- The newest defaults, which choose the output scale and count classes equally, change little where classes are clean
  and of equal size. With 5 shots and all classes the NLL is {ahead fine NLL | gptree forest | gptree forest, defaults
  2 | data=cub200 | classes=null | shots=5} from that of defaults 2 on CUB, {level fine NLL | gptree forest | gptree
  forest, defaults 2 | data=banking77 | classes=null | shots=5} on Banking77 and {level fine NLL | gptree forest |
  gptree forest, defaults 2 | data=clinc150 | classes=null | shots=5} on CLINC150. They are for
  [unequal](few-and-unequal.md) and [wrongly labelled](noisy-labels.md) classes.
- The paper's tree, which has no experts, is far less sure of itself than it should be: its calibration error on
  Banking77 with 5 shots is {mean ECE | paper's tree | data=banking77 | classes=null | shots=5} %, the forest's {mean
  ECE | gptree forest | data=banking77 | classes=null | shots=5} %.

Set-up
------
20, 60 and all classes; 5, 20, 30 and all shots a class; five seeds, three where all classes meet 20 shots or more. The
paper's tree (RBF, output scale 8, float32, one Gibbs step, ten chains up to 1,000 points and one beyond; no row beyond
3,000 points), each expert alone, the pool of experts alone, the default tree and forest, and rivals: nearest class
mean, logistic regression, the same with label smoothing and a temperature, kernel logistic regression (RBF, with a
temperature; 2,000 landmarks where there are more points), k nearest neighbours, ridge, LDA with shrinkage, RanPAC.
Every rival chooses its settings on left-out training rows. Every method sees the same draws. Experts and rivals get
the features through the same map as gptree's own classifiers (`SphereMap`); the paper's tree has its own. Nothing is
tuned on test data. NLL is the negative log-likelihood in nats, ECE the expected calibration error over 15 bins of
equal width. Seconds of trials that ran side by side are a little longer than those of [the speed of a
forest](frozen-speed.md).
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.core.gaps import gap, gap_table
from benchmarks.core.tables import Table, chosen, grouped, listing, one_cell
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.frozen import methods
from benchmarks.experiments.frozen.methods import (
    ACCURACY,
    BY,
    ECE,
    EXPERTS,
    FOREST,
    LOGISTIC,
    MEAN,
    NLL,
    OLD,
    PAPERS_TREE,
    POOL,
    RANPAC,
    SECONDS,
    TREE,
)

GROUP, SEEDS = "Frozen features", 5

NAME = "frozen-classifiers"
run = methods.run
COLUMNS = {"accuracy": ACCURACY, "NLL": NLL, "ECE": ECE}
COLUMNS |= {f"fine {name}": replace(column, digits=column.digits + 1) for name, column in COLUMNS.items()}
FINE_NLL = COLUMNS["fine NLL"]
SHOTS = (5, 20, 30, None)
#: Numbers of classes that are drawn; all classes, and all rows of one.
CLASSES = {"clinc150": (20, 60, None), "banking77": (20, 60, None), "cub200": (20, 60, None), "digits": (None,)}
SIZES = {"clinc150": (150, 100), "banking77": (77, 130), "cub200": (200, 30), "digits": (10, 90)}
#: The paper's tree is exact; beyond this many training points it would take minutes a run, and has no row.
PAPER_POINTS = 3_000
SMOOTHED, KERNEL = "rival: logistic-smoothed", "rival: kernel-logistic"
RIVALS = (MEAN, LOGISTIC, SMOOTHED, KERNEL, "rival: knn", "rival: ridge", "rival: lda", RANPAC)
METHODS = (PAPERS_TREE, *EXPERTS, TREE, FOREST, OLD, *RIVALS)
AT_A_GLANCE = {
    "class mean": MEAN,
    "logistic regression": LOGISTIC,
    "the same, smoothed": SMOOTHED,
    "kernel logistic": KERNEL,
    "RanPAC": RANPAC,
    "the paper's tree": PAPERS_TREE,
    "gptree's experts alone": POOL,
    "**gptree forest**": FOREST,
}
TASKS = (("banking77", 5), ("banking77", 30), ("clinc150", 5), ("clinc150", 30), ("cub200", 5), ("cub200", 30))
CAPTION = """\
Accuracy % / negative log-likelihood / expected calibration error %, mean over three to five draws, all classes, frozen
embeddings; the best of each is bold. The paper's tree is not run beyond 3,000 points."""


def trials(seeds: int) -> list[Trial]:
    return [
        Trial(NAME, method, data, seed, {"classes": classes, "shots": shots})
        for seed in range(seeds)
        for data, sizes in CLASSES.items()
        for classes in sizes
        for shots in SHOTS
        if seed < 3 or not (classes is None and shots != 5 and data != "digits")
        for method in METHODS
        if method != PAPERS_TREE or (classes or SIZES[data][0]) * (shots or SIZES[data][1]) <= PAPER_POINTS
    ]


def glance(rows: list[Row]) -> Table:
    """Accuracy / NLL / ECE with all classes."""
    lines = []
    for data, shots in TASKS:
        task = chosen(rows, data=data, classes=None, shots=shots)
        groups = [chosen(task, method=method) for method in AT_A_GLANCE.values()]
        lines.append([f"{data}, {shots}", *one_cell(groups, (ACCURACY, NLL, ECE))])
    return Table("All classes", ["data, shots a class", *AT_A_GLANCE], lines, CAPTION)


def added_by_the_gaussian_processes(rows: list[Row]) -> Table:
    """Forest minus pool over the same draws."""
    lines = []
    for (data, *sizes), task in grouped(rows, BY).items():
        forest, pool = (chosen(task, method=method) for method in (FOREST, POOL))
        gaps = [gap(forest, pool, column) for column in (ACCURACY, NLL, ECE)]
        texts = [each.text(column.digits + 1) for each, column in zip(gaps, (ACCURACY, NLL, ECE), strict=True)]
        lines.append([data, *("all" if size is None else str(size) for size in sizes), *texts, str(gaps[0].count)])
    titles = ["data", "classes", "shots", *(f"Δ {column.title}" for column in (ACCURACY, NLL, ECE)), "draws"]
    return Table("The default forest minus its own pool of experts, paired by draw", titles, lines)


def nearest_rivals(rows: list[Row]) -> Table:
    """Forest minus the rivals that come closest, with all classes."""
    lines = {}
    for data, shots in TASKS:
        task = chosen(rows, data=data, classes=None, shots=shots)
        for rival in (LOGISTIC, SMOOTHED, KERNEL):
            name = f"{data}, {shots}: {FOREST} less {rival.removeprefix('rival: ')}"
            lines[name] = chosen(task, method=FOREST), chosen(task, method=rival)
    return gap_table("All classes: gaps to the nearest rivals", lines, (ACCURACY, NLL, ECE))


def chosen_scales(rows: list[Row]) -> Table:
    """The default forest less the one of defaults 2."""
    lines = {}
    for (data, *sizes), task in grouped(rows, BY).items():
        classes, shots = ("all" if size is None else size for size in sizes)
        pair = chosen(task, method=FOREST), chosen(task, method=OLD)
        lines[f"{data}, {classes} classes, {shots} shots: newest less defaults 2"] = pair
    return gap_table("What the newest defaults have changed", lines, (ACCURACY, FINE_NLL, ECE))


def tables(rows: list[Row]) -> list[Table]:
    return [nearest_rivals(rows), added_by_the_gaussian_processes(rows), chosen_scales(rows)]


def details(rows: list[Row]) -> list[Table]:
    return [listing("Mean ± standard error over draws", rows, [*BY, "method"], (ACCURACY, NLL, ECE, SECONDS))]
