"""Tables and figure of the experiment on deep kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core.figures import panels
from benchmarks.core.gaps import gap_table
from benchmarks.core.tables import Column, Summary, Table, chosen, grouped, one_cell
from benchmarks.core.trials import Row
from benchmarks.experiments.deep.methods import (
    ALONE,
    LONG,
    MEASURED,
    NAMES,
    OURS,
    OURS_CALIBRATED,
    OURS_CUT,
    REFIT_SWEEPS,
    SMOOTHED,
    SOFTMAX,
    SOFTMAX_CALIBRATED,
    SOFTMAX_CUT,
    TWICE_CUT,
)

ACCURACY = Column("accuracy (%)", "metrics.test.accuracy", scale=100, digits=2)
NLL = Column("NLL", "metrics.test.nll", digits=3, better=min)
ECE = Column("ECE (%)", "metrics.test.ece", scale=100, digits=2, better=min)
COLUMNS = {"accuracy": ACCURACY, "NLL": NLL, "ECE": ECE}
SHOWN = (
    ACCURACY,
    NLL,
    ECE,
    Column("NLL, sharpened", "metrics.sharpened.nll", digits=3, better=min),
    Column("ECE (%), sharpened", "metrics.sharpened.ece", scale=100, digits=2, better=min),
    Column("minutes", "metrics.train_seconds", scale=1 / 60, digits=1, better=min),
)
#: Methods and what they are compared with.
PAIRS = (
    (OURS_CUT, SOFTMAX_CUT),
    (OURS_CUT, SOFTMAX),
    (OURS_CALIBRATED, SOFTMAX_CALIBRATED),
    (OURS_CALIBRATED, SOFTMAX),
    (OURS, SOFTMAX),
    (OURS, SMOOTHED),
    (OURS, "SV-DKL"),
    (OURS, "GPDNN"),
    (ALONE, SOFTMAX),
    (ALONE, SMOOTHED),
    ("SV-DKL", SOFTMAX),
    ("GPDNN", SOFTMAX),
)
#: Methods, and how they predict.
AT_A_GLANCE = {
    "softmax": (SOFTMAX_CUT, "test"),
    "**GP-Tree**, tree and linear layer together": (OURS_CUT, "test"),
    "GP-Tree, the tree alone": (OURS_CUT, "alone"),
    "two softmax layers together": (TWICE_CUT, "test"),
    "GP-Tree, the network left to the bound": (ALONE, "test"),
}
CAPTION = f"""\
Accuracy % / negative log-likelihood / expected calibration error % on the test set after {LONG} epochs;
the best of each is bold. Softmax and GP-Tree are both calibrated, on 2 % of the training pictures, and see pictures
with squares cut out. GP-Tree predicts with its tree and with the linear layer that was trained beside it; the tree
alone is that of the same networks. Two softmax layers, the second in the place of the tree, show what two layers are
worth without Gaussian processes. The last line has none of this, and no cross-entropy beside the bound, as in the
paper."""
#: Whose test set is measured as they go.
COLOURS = {SOFTMAX: "#7F7F7F", SMOOTHED: "#000000", ALONE: "#D55E00", OURS: "#0072B2"}
#: Whose test set is measured at the end.
MARKED: dict[str, dict[str, Any]] = {
    SOFTMAX_CUT: {"color": "#7F7F7F", "linestyle": "", "marker": "o", "markersize": 11, "markerfacecolor": "none"},
    OURS_CUT: {"color": "#0072B2", "linestyle": "", "marker": "D", "markersize": 5},
}


def glance(rows: list[Row]) -> Table:
    """Accuracy / NLL / ECE of the long trainings."""
    columns = [["ResNet-18", *AT_A_GLANCE]]
    for data, name in NAMES.items():
        groups = [
            [
                replace(row, metrics={"test": row.metrics[way]})
                for row in chosen(rows, data=data, epochs=LONG, method=method)
            ]
            for method, way in AT_A_GLANCE.values()
        ]
        seeds = " / ".join(str(len(group)) for group in groups)
        short = [replace(ACCURACY, digits=1), NLL, replace(ECE, digits=1)]
        columns.append([f"{name}, seeds {seeds}", *one_cell(groups, short)])
    titles, *lines = zip(*columns, strict=True)
    return Table("CIFAR", titles, lines, CAPTION)


def tables(rows: list[Row]) -> list[Table]:
    """Scores by data and epochs; gaps; and other ways to predict."""
    made, pairs = [], {}
    for (data, epochs), group in grouped(rows, ["data", "settings.epochs"]).items():
        by_method = {method: part for (method,), part in grouped(group, ["method"]).items()}
        lines = [
            [method, *(Summary.of(part, column).text(column.digits) for column in SHOWN), str(len(part))]
            for method, part in by_method.items()
        ]
        title = f"{NAMES[data]}, {epochs} epochs" + ("" if epochs == LONG else " (shorter than the paper's)")
        made.append(Table(title, ["method", *(column.title for column in SHOWN), "seeds"], lines, "" if made else NOTE))
        pairs |= {
            f"{NAMES[data]}, {epochs} epochs: {one} less {other}": (by_method[one], by_method[other])
            for one, other in PAIRS
            if one in by_method and other in by_method
        }
    gaps = [gap_table("Gaps", pairs, (ACCURACY, NLL, ECE))] if pairs else []
    return [*made, *gaps, *_other_ways(rows)]


def _other_ways(rows: list[Row]) -> Iterator[Table]:
    lines = [
        [f"{NAMES[data]}, {epochs} epochs", method, *cells]
        for (data, epochs, method), group in grouped(rows, ["data", "settings.epochs", "method"]).items()
        if WAYS.keys() & group[0].metrics.keys() > {"test"}
        for cells in _ways_of(group)
    ]
    if lines:
        titles = ["training", "method", "prediction", *(column.title for column in COLUMNS.values())]
        yield Table("Other ways to predict", titles, lines, WAYS_NOTE)


def _ways_of(rows: list[Row]) -> Iterator[list[str]]:
    for metric, name in WAYS.items():
        if metric not in rows[0].metrics:
            continue
        columns = [replace(column, path=column.path.replace("test", metric)) for column in COLUMNS.values()]
        yield [name, *(Summary.of(rows, column).text(column.digits) for column in columns)]


NOTE = (
    "Test set. Sharpened: each half of the test pictures with the power of the class probabilities (of each layer's, "
    "where two predict together) that is best on the other half, in full precision. Minutes of training on the machine "
    "of the rows, which some runs shared with others."
)
WAYS = {
    "test": "as in the tables above",
    "uncalibrated": "not calibrated",
    "alone": "the tree alone",
    "at the mean": "the tree at the mean of its latents",
    "refit": "the tree, its posteriors refitted",
}
WAYS_NOTE = (
    "Test set. Not calibrated: softmax, or the tree alone, as they were trained (from the scores that the runs kept, "
    "in half precision on CIFAR-100). At the mean: without the variance of the latent functions. Refitted: the "
    f"posteriors of the nodes after {REFIT_SWEEPS} sweeps of coordinate ascent over all pictures trained on, the "
    "network as it is. These are in full precision; where pictures were held out, one number is chosen on them."
)


def figure(rows: list[Row], path: Path) -> None:
    """Accuracy, NLL and calibration error over the epochs of the long trainings, or at their end where the test set is
    measured once; a row of panels a data set."""
    from matplotlib.lines import Line2D

    styles = {method: {"color": colour, "linewidth": 1.6} for method, colour in COLOURS.items()} | MARKED
    by_data = grouped(
        [row for row in rows if row.trial.settings["epochs"] == LONG and row.trial.method in styles], ["data"]
    )
    if not by_data:
        raise ValueError(f"There is no training of {LONG} epochs to draw; run the experiment first.")
    picture, axes = panels(len(by_data), len(MEASURED), width=3.7, height=3.6)
    drawings = [
        (data, group, metric)
        for (data,), group in by_data.items()
        for metric in zip(MEASURED, (ACCURACY, NLL, ECE), strict=True)
    ]
    for ax, (data, group, (name, column)) in zip(axes, drawings, strict=True):
        for row in group:
            method, last = row.trial.method, {"epoch": [LONG], name: [row.metrics["test"][name]]}
            curve = last if method in MARKED else row.metrics["curve"]
            ax.plot(curve["epoch"], column.scale * np.array(curve[name]), **styles[method])
        ax.axvline(0.4 * LONG, color="0.6", linestyle=":", linewidth=1)
        ax.set(title=NAMES[data], xlabel="epoch", ylabel=f"{column.title}, test set")
    present = {row.trial.method for group in by_data.values() for row in group}
    drawn = [method for method in styles if method in present]
    handles = [Line2D([], [], **styles[method]) for method in drawn]
    picture.legend(handles, drawn, loc="outside lower center", ncols=3, frameon=False)
    picture.savefig(path, dpi=150)


TABLE_2 = Table(
    "Test accuracy %, mean ± standard error over three seeds",
    ["method", "CIFAR-10", "CIFAR-100"],
    [
        ["GPDNN", "81.16 ± 0.1", "–"],
        ["SV-DKL", "92.73 ± 0.05", "70.61 ± 0.2"],
        [OURS, "93.25 ± 0.1", "72.11 ± 0.05"],
    ],
)
