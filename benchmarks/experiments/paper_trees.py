"""Trees and superclasses.

Does a tree by two-means put classes of one meaning together?

Yes. On CIFAR-10 it parts animals and vehicles with a purity of {mean purity | two-means | data=cifar10} %, against
{mean purity | random tree | data=cifar10} % of random trees and {mean purity | stick-breaking | data=cifar10} % of
stick-breaking in a random order; on CIFAR-100 with its 20 superclasses {mean purity | two-means | data=cifar100} %
against {mean purity | random tree | data=cifar100} % and {mean purity | stick-breaking | data=cifar100} %; on CLINC150
with its ten domains {mean purity | two-means | data=clinc150} % against {mean purity | random tree | data=clinc150} %
and {mean purity | stick-breaking | data=clinc150} %.

Set-up
------
Dendrogram purity: of two classes of a superclass drawn at random, the share that the superclass has in the smallest
sub-tree with both, in expectation; 100 % where every superclass is a sub-tree of its own. Levels: those of the deepest
class. Seeds change the starts of two-means, the random halves, and the order in which the stick is broken. No label of
a superclass is used to build a tree.

CIFAR-10 has no superclasses; animals and vehicles are those of the paper's reading of its figure 1. Those of CIFAR-100
are the coarse labels of the data set, the domains of CLINC150 are its own.

Trees are built on class means of training rows, never of test rows: of CLINC150 on those of the sentence embeddings, of
CIFAR-10 and CIFAR-100 on those of a network trained on all classes, as the last table says. Logits are linear in the
embedding: their class means are an image of the embedding's, of as many dimensions as there are classes. The data
folder holds `clinc150_minilm.npz` and, in `class_means`, `cifar10.npz` and `cifar100.npz` with the arrays `means` (C,
d), `names` (C,) and `about`, a sentence that says whose means they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data import load, read_arrays
from benchmarks.experiments.superclasses import GROUPS as SUPERCLASSES
from benchmarks.experiments.superclasses import group_numbers, purity, whole_groups
from gptree import ClassTree
from gptree.maths.sphere import unit_length
from gptree.tree import RandomBalanced, TwoMeans, plot_tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUP, SEEDS, PAPER = "The paper's experiments", 20, "figure 1"

NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "clinc150": "CLINC150"}
PURITY = Column("purity %", "metrics.purity", 100, 1)
WHOLE = Column("superclasses that are a sub-tree", "metrics.whole", digits=1)
LEVELS = Column("levels", "metrics.levels", digits=1, better=min)
COLUMNS = {"purity": PURITY, "whole": WHOLE, "levels": LEVELS}


class Prototypes(NamedTuple):
    """Class means (C, d), their names, and whose they are."""

    means: np.ndarray
    names: tuple[str, ...]
    about: str


def prototypes(data: str, folder: Path) -> Prototypes:
    if data == "clinc150":
        rows = load(data, folder)
        unit = unit_length(rows.train_x)
        means = np.stack([unit[rows.train_y == c].mean(axis=0) for c in range(len(rows.names))])
        return Prototypes(means, rows.names, f"sentence embeddings of unit length, {len(unit):,} training queries")
    arrays = read_arrays(folder / "class_means" / f"{data}.npz", ("means", "names", "about"))
    return Prototypes(arrays["means"], tuple(map(str, arrays["names"])), str(arrays["about"]))


def stick(means: np.ndarray, names: tuple[str, ...], seed: int) -> ClassTree:
    """Each class in a random order against all that follow."""
    order = np.random.default_rng(seed).permutation(len(names))
    places = np.arange(len(names) - 1)
    return ClassTree(order, places, places + 1, np.full(len(places), len(names)))


TWO_MEANS, RANDOM, STICK = "two-means", "random tree", "stick-breaking"
METHODS: dict[str, Callable[[np.ndarray, tuple[str, ...], int], ClassTree]] = {
    TWO_MEANS: TwoMeans().build,
    RANDOM: RandomBalanced().build,
    STICK: stick,
}


def trials(seeds: int) -> list[Trial]:
    return [Trial("paper-trees", method, data, seed) for data in NAMES for method in METHODS for seed in range(seeds)]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    """Purity of a tree; the first one of each kind is kept, to be drawn."""
    means, names, about = prototypes(trial.data, folder)
    groups = group_numbers(SUPERCLASSES[trial.data], names)
    tree = METHODS[trial.method](means, names, trial.seed)
    kept = {"tree": tree.to_json(), "names": names, "about": about} if trial.seed == 0 else {}
    scores = {"purity": purity(tree, groups), "whole": whole_groups(tree, groups), "levels": tree.height}
    return {**scores, "superclasses": len(SUPERCLASSES[trial.data]), **kept}


def tables(rows: list[Row]) -> list[Table]:
    first = [row for row in rows if row.trial.seed == 0 and row.trial.method == TWO_MEANS]
    lines = [
        [NAMES[row.trial.data], str(len(row.metrics["names"])), str(row.metrics["superclasses"]), row.metrics["about"]]
        for row in first
    ]
    return [
        listing("Mean ± standard error over seeds", rows, ["data", "method"], COLUMNS.values()),
        Table("Whose class means", ["data", "classes", "superclasses", "class means of"], lines),
    ]


# ------------------------------------------------------------------------------------------------------------ pictures

#: (data, method, left, bottom, width, height) of the panels, in inches.
PANELS = (
    ("cifar10", TWO_MEANS, 0.2, 20.6, 5.6, 2.4),
    ("cifar10", STICK, 7.6, 20.6, 5.6, 2.4),
    ("cifar100", TWO_MEANS, 0.2, 10.2, 9.8, 9.8),
    ("clinc150", TWO_MEANS, 0.2, 0.0, 9.8, 9.8),
)
SIZE = (13.4, 23.5)
BRANCH = "#8c96a3"


def figure(rows: list[Row], path: Path) -> None:
    """The trees of seed 0, as far as there are any; names have the colours of their superclasses."""
    from matplotlib.figure import Figure

    there = {(row.trial.data, row.trial.method): row for row in rows if row.trial.seed == 0}
    shown = [panel for panel in PANELS if panel[:2] in there]
    lowest = min(panel[3] for panel in shown)  # panels stand from the top down
    size = SIZE[0], SIZE[1] - lowest
    picture = Figure(figsize=size, facecolor="white")
    for data, method, left, bottom, width, height in shown:
        box = (left / size[0], (bottom - lowest) / size[1], width / size[0], height / size[1])
        draw(picture, picture.add_axes(box), there[data, method])
    picture.savefig(path, dpi=100)


def draw(picture: Figure, ax: Axes, row: Row) -> None:
    """A tree, its title, and which colour is which superclass."""
    from matplotlib.colors import hsv_to_rgb
    from matplotlib.lines import Line2D

    data, names = row.trial.data, row.metrics["names"]
    groups, count = group_numbers(SUPERCLASSES[data], names), len(SUPERCLASSES[data])
    colours = [hsv_to_rgb((g / count, 0.9, 0.72 if g % 2 else 0.5)).tolist() for g in range(count)]
    tree = ClassTree.from_json(row.metrics["tree"])
    plot_tree(tree, [name.replace("_", " ") for name in names], ax)
    for branches in ax.collections:
        branches.set_color(BRANCH)
    for text, c in zip(ax.texts, tree.order, strict=True):
        text.set_color(colours[groups[c]])
    title = f"{NAMES[data]}, {row.trial.method}: purity {100 * row.metrics['purity']:.0f} %"
    ax.set_title(title, fontsize=11, loc="left")
    if row.trial.method == TWO_MEANS:
        handles = [Line2D([], [], color=colour, lw=5) for colour in colours]
        right = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5), "frameon": False}
        ax.legend(handles, list(SUPERCLASSES[data]), **right)
