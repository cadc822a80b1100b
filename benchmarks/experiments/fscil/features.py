"""Sessions on frozen features.

Which classifier on frozen features learns further classes best?

The default forest with a shared root, on all three data sets: from LDA with shrunk novel means
{ahead accuracy | forest, shared root | rival: lda-shrunk-means | data=cub200} points of accuracy on CUB,
{ahead accuracy | forest, shared root | rival: lda-shrunk-means | data=clinc150} on CLINC150 and
{ahead accuracy | forest, shared root | rival: lda-shrunk-means | data=banking77} on Banking77 after the last session.

Findings
--------
- The strategies of a forest are close to each other; of the paper's tree, grafting is by far the worst on CUB ({mean
  accuracy | paper, graft | data=cub200} %, shared root {mean accuracy | paper, shared root | data=cub200} %).
- The nearest rival on Banking77 is LDA with shrunk novel means on random features: the forest has {gap accuracy |
  forest, shared root | rival: rf-lda-shrunk-means | data=banking77} points of accuracy from it and {ahead NLL | forest,
  shared root | rival: rf-lda-shrunk-means | data=banking77} of NLL.
- A single tree is nearly as good as a forest: on CUB the forest has {gap accuracy | forest, shared root | tree, shared
  root | data=cub200} points more.
- Against defaults 1 the forest has {gap NLL | forest, shared root | forest, shared root, defaults 1 | data=cub200},
  {gap NLL | forest, shared root | forest, shared root, defaults 1 | data=clinc150} and {gap NLL | forest, shared root |
  forest, shared root, defaults 1 | data=banking77} of NLL on CUB, CLINC150 and Banking77, and {gap ECE | forest, shared
  root | forest, shared root, defaults 1 | data=cub200}, {gap ECE | forest, shared root | forest, shared root, defaults
  1 | data=clinc150} and {gap ECE | forest, shared root | forest, shared root, defaults 1 | data=banking77} points of
  ECE.

Set-up
------
A base session with all training rows of the base classes, then sessions of new classes with five shots each. After
every session the model is tested on all classes seen. CUB: 100 base classes and 10 sessions of 10, which the public
lists fix; seeds then change the methods' own random choices only, and standard errors say nothing about other draws.
CLINC150: 100 and 10 × 5 classes; Banking77: 37 and 8 × 5; classes, order and shots are drawn with the seed.

Forest and tree with default settings and the paper's tree (RBF kernel, output scale 8, Gibbs sampling, zero mean), each
by [strategy](../growing.md#choosing-a-strategy); rivals: nearest class mean, TEEN's prototypes with both published
weights of its calibration (0.5 for CUB), SLDA, RanPAC plain and class-balanced, LDA with the base covariance and novel
means shrunk towards similar base means, the same on random features, and logistic regression on the memory. What keeps
examples keeps five of each base class. Rivals see the features through the map of the base session, as the forest does;
no method is tuned on test data.

Last, harmonic mean, forgetting, NLL and ECE are those after the last session; average is accuracy averaged over
sessions; drop is accuracy after the base session minus that after the last; open AUROC, of classes still to come, is
averaged over sessions; worst ECE is that of the worst session. In %, but for the NLL; mean ± standard error over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core.tables import Table, chosen, grouped, one_cell
from benchmarks.core.trials import Row, Trial
from benchmarks.data import load
from benchmarks.experiments.fscil.lines import RIVALS
from benchmarks.experiments.fscil.methods import STRATEGIES, frozen_cub, run_method
from benchmarks.experiments.fscil.tables import ACCURACY, ECE, HARMONIC, NLL
from gptree.protocols import SessionStream, plot_curves, stream_from_arrays, summary, summary_cells

GROUP, SEEDS = "Classes that arrive later", 5

PROTOCOLS: dict[str, dict[str, Any]] = {
    "cub200": {"base": 100, "way": 10, "shot": 5},
    "clinc150": {"base": 100, "way": 5, "shot": 5},
    "banking77": {"base": 37, "way": 5, "shot": 5},
}
COLUMNS = {"accuracy": ACCURACY, "harmonic": HARMONIC, "NLL": NLL, "ECE": ECE}
METHODS = (
    *(f"forest, {name}" for name in STRATEGIES),
    "forest, shared root, defaults 1",
    "tree, shared root",
    *(f"paper, {name}" for name in STRATEGIES),
    *(line.method for line in RIVALS),
)
AT_A_GLANCE = {
    "class mean": "rival: class-mean",
    "TEEN": "rival: teen",
    "logistic regression on what is kept": "rival: logistic-memory",
    "RanPAC, class-balanced": "rival: ranpac-balanced",
    "LDA with shrunk novel means": "rival: lda-shrunk-means",
    "the same on random features": "rival: rf-lda-shrunk-means",
    "the paper's tree": "paper, shared root",
    "**gptree forest**": "forest, shared root",
}
CAPTION = """\
Accuracy % / harmonic mean of the accuracies on base and novel classes % / negative log-likelihood / expected
calibration error %, over all classes after the last session, mean over five seeds; the best of each is bold. CUB: 100
base classes and 10 sessions of 10; CLINC150: 100 and 10 × 5; Banking77: 37 and 8 × 5; five shots a novel class, five
examples kept of a base class."""


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("fscil-features", method, data, seed, {**protocol, "exemplars": 5})
        for data, protocol in PROTOCOLS.items()
        for seed in range(seeds)
        for method in METHODS
    ]


def make_stream(data: str, folder: Path, seed: int) -> SessionStream:
    if data == "cub200":
        return frozen_cub(folder)
    features = load(data, folder)
    arrays = (features.train_x, features.train_y, features.test_x, features.test_y)
    return stream_from_arrays(*arrays, **PROTOCOLS[data], seed=seed, name=data)


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    return run_method(trial, make_stream(trial.data, folder, trial.seed))


def session_rows(rows: list[Row]) -> list[dict[str, Any]]:
    """One dictionary a session, as `run_stream` makes them, method by method."""
    return [
        {"data": row.trial.data, "method": row.trial.method, "seed": row.trial.seed, **session}
        for group in grouped(rows, ["data", "method"]).values()
        for row in group
        for session in row.metrics["sessions"]
    ]


def tables(rows: list[Row]) -> list[Table]:
    return [_table(data, group) for data in PROTOCOLS if (group := chosen(rows, data=data))]


def _table(data: str, rows: list[Row]) -> Table:
    """Every method on one data set, and the worst session's ECE."""
    lines, titles = [], []
    for line in summary(session_rows(rows)):
        cells = summary_cells(line)
        sessions = [row.metrics["sessions"] for row in rows if row.trial.method == line["method"]]
        worst = max(np.mean([session["ece"] for session in column]) for column in zip(*sessions, strict=True))
        titles = ["method", "seeds", *cells, "worst ECE"]
        lines.append([line["method"], str(line["seeds"]), *cells.values(), f"{100 * worst:.1f}"])
    return Table(data, titles, lines)


def glance(rows: list[Row]) -> Table:
    """Accuracy / harmonic mean / NLL / ECE after the last session."""
    columns = [["method", *AT_A_GLANCE]]
    for data in PROTOCOLS:
        groups = [chosen(rows, data=data, method=method) for method in AT_A_GLANCE.values()]
        columns.append([data, *one_cell(groups, COLUMNS.values())])
    titles, *lines = zip(*columns, strict=True)
    return Table("After the last session", titles, lines, CAPTION)


def figure(rows: list[Row], path: Path) -> None:
    """CUB, session by session: accuracy over all, base and novel classes, NLL and ECE."""
    drawn = [row for row in rows if row.trial.data == "cub200" and row.trial.method in AT_A_GLANCE.values()]
    plot_curves(session_rows(drawn), path)
