"""Many classes.

What do thousands of classes cost, and what do other packages make of them?

A tree of 10,000 classes is fitted in {mean fit | method=gptree, tree | classes=10000} s of processor time on one
thread, in {mean memory | method=gptree, tree | classes=10000} GB with everything that Python imports; one of 1,000 in
{mean fit | method=gptree, tree | classes=1000} s, and its file has {mean file | method=gptree, tree | classes=1000} MB.
On Omniglot, 1,623 characters with five drawings each, {mean top-1 | method=gptree, tree | data=omniglot} % of new
drawings are right with an NLL of {mean NLL | method=gptree, tree | data=omniglot}; nearest means by faiss have {mean
top-1 | method=nearest means, faiss | data=omniglot} % and {mean NLL | method=nearest means, faiss | data=omniglot},
napkinXC {mean top-1 | method=napkinXC, HSM | data=omniglot} % and {mean NLL | method=napkinXC, HSM | data=omniglot}. A
tree of 100,000 classes takes {mean fit | method=gptree, tree | classes=100000} s of processor time on two cores, {mean
fit wall | method=gptree, tree | classes=100000} s of the clock beside other work, and {mean fit memory | method=gptree,
tree | classes=100000} GB; on an H200 less than a minute (below).

Findings
--------
- Where gptree is ahead in NLL and top-1, peers are ahead in seconds and bytes. On Omniglot nearest means by faiss are
  fitted in {mean fit | method=nearest means, faiss | data=omniglot} s, predict 1,000 rows in {mean predict |
  method=nearest means, faiss | data=omniglot} s, have a file of {mean file | method=nearest means, faiss |
  data=omniglot} MB and are right in {mean top-1 | method=nearest means, faiss | data=omniglot} %, more often than
  napkinXC's trees. The tree takes {mean fit | method=gptree, tree | data=omniglot} s, {mean predict | method=gptree,
  tree | data=omniglot} s and {mean file | method=gptree, tree | data=omniglot} MB. With 1,000 made-up classes logistic
  regression takes longer to fit, {mean fit | method=logistic regression | classes=1000} s against {mean fit |
  method=gptree, tree | classes=1000} s, and predicts 1,000 rows in {mean predict | method=logistic regression |
  classes=1000} s against {mean predict | method=gptree, tree | classes=1000} s.
- The Gaussian processes add a little. With 1,000 made-up classes the experts alone have an NLL of {mean NLL |
  method=experts alone | classes=1000}, a tree {mean NLL | method=gptree, tree | classes=1000}, a forest {mean NLL |
  method=gptree, forest | classes=1000}; with 10,000 the experts have {mean NLL | method=experts alone | classes=10000}
  and a tree {mean NLL | method=gptree, tree | classes=10000}. With 100,000 they take a little away: {mean NLL |
  method=experts alone | classes=100000} and {mean NLL | method=gptree, tree | classes=100000}. With 100 the experts
  have {mean NLL | method=experts alone | classes=100}, a tree {mean NLL | method=gptree, tree | classes=100}.
- 1,000 rows of 100,000 classes take {mean beam | method=gptree, tree | classes=100000} s by a beam of 16 nodes and
  {mean predict | method=gptree, tree | classes=100000} s at all nodes, with the same top-1.
- Against commit f78fcca, before all that was done for many classes, the NLL of a tree on Omniglot has changed by {gap
  NLL | gptree, tree | gptree, tree, f78fcca | data=omniglot}, and with 1,000 made-up classes by {gap NLL | gptree, tree
  | gptree, tree, f78fcca | data=made-up | classes=1000}; on Omniglot its file had {mean file | method=gptree, tree,
  f78fcca | data=omniglot} MB, and the fit took {mean fit | method=gptree, tree, f78fcca | data=omniglot} s.
- A forest of four trees takes at most 2.5 times what a tree takes, since what its trees share is computed once: {mean
  fit | method=gptree, forest | data=omniglot} s for the fit of Omniglot, {mean predict | method=gptree, forest |
  data=omniglot} s for 1,000 rows and {mean file | method=gptree, forest | data=omniglot} MB; with 100,000 classes {mean
  fit | method=gptree, forest | classes=100000} s, {mean fit memory | method=gptree, forest | classes=100000} GB, {mean
  predict | method=gptree, forest | classes=100000} s and {mean file | method=gptree, forest | classes=100000} MB. But
  there a beam takes more, {mean beam | method=gptree, forest | classes=100000} s where it takes {mean beam |
  method=gptree, tree | classes=100000} for a tree.
- The beam is for many classes: with 1,000 it takes {mean beam | method=gptree, tree | classes=1000} s where all nodes
  take {mean predict | method=gptree, tree | classes=1000} s, with 10,000 {mean beam | method=gptree, tree |
  classes=10000} and {mean predict | method=gptree, tree | classes=10000} s. Up to 5,000 classes `predict_top_k` asks
  all nodes unless it is told otherwise.
- Of more than 2,000 classes with more than 65,536 rows kernel densities score the 300 that discriminant analysis finds
  best. What this loses where densities matter is the difference between two pools, of fewer rows, where all
  classes can be scored (last table): on Omniglot {gap NLL | densities of 300 classes | densities of all classes |
  data=omniglot} in NLL; with 3,000 made-up classes that have a covariance each, {gap NLL | densities of 300 classes |
  densities of all classes | data=own covariances}, and with a list of 100 {gap NLL | densities of 100 classes |
  densities of all classes | data=own covariances}; with as many that live in two places each, where a mean says least,
  {gap NLL | densities of 300 classes | densities of all classes | data=two places}.
- Neither memory nor file holds an array of rows × classes: what they hold is features, class means, and what nodes know
  of their rows. Pools of more than 500 classes do without ridge regression.

Set-up
------
Made-up classes of five examples with 256 features: 20 groups of 20 families, a class at random in one of 400
families; two shapes of noise with a power-law spectrum, at random for each class, and a size of its own for each, so
that linear discriminant analysis is not the truth. 1,000 further rows are predicted. For the last table every class
has a shape of its own, or two means, each of half its rows, in different families; ten examples each. Omniglot:
histograms of gradients, 256 principal components of the training rows; five drawings of each character, the fifteen
others are predicted.

One thread (two for the fit of 100,000), a fresh process for each; processor seconds, and seconds of the clock on a GPU,
from tensors in its memory to a fitted model. Rows are predicted a thousand at a time, and the five best classes of the
first thousand also by a beam of 16 nodes. Peak memory counts from the fit on, predictions of all classes and the file
included, and has imports (0.45 GB) and data in it; a file is in double precision, faiss's in single. "Experts alone" is
the pool that a tree has as prior mean; it has no file of its own. Lines with a commit are of the package as it was then
(`python -m benchmarks.earlier`), on the same rows. The processor had other work to do, too, which makes seconds longer.

gptree has its defaults. The penalty of logistic regression is the one that it chooses by cross-validation with 100 of
the classes, and it is fitted to its end. napkinXC (a hierarchical softmax, HSM, and a probabilistic label tree, PLT, of
logistic regressions) has a penalty chosen in the same way (its default has a larger NLL) and other settings as they
are; it names 100 classes with its own probabilities, and the rest and a hundredth belong to all classes alike. Nearest
means and neighbours by faiss (exact, cosine, of centred rows) are the votes of the 100 nearest; how sharp they are, and
which share all classes have alike, is chosen on one example a class left out. Methods that would take more than ten
minutes are left out. The peers are not installed with gptree: `pip install faiss-cpu napkinxc`, both under the MIT
licence.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from benchmarks.core.classifying import Task, measure
from benchmarks.core.figures import line_plot, panels
from benchmarks.core.peers import Faiss, Napkin
from benchmarks.core.tables import Column, Table, chosen, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data import load
from gptree import GPForestClassifier, GPTreeClassifier
from gptree.experts import Examples, Pool
from gptree.maths.sphere import unit_length
from gptree.rivals import LogisticClassifier

GROUP, FRESH_PROCESS, SEEDS = "Speed and size", True, 1

SHOTS, DIMENSIONS, QUERIES = 5, 256, 1_000
MADE_UP, OMNIGLOT = "made-up", "omniglot"
CHARACTERS = 1_623
#: How many classes kernel densities score, of those that discriminant analysis finds best; and data where it matters.
SHORTLISTS = {"densities of 100 classes": 100, "densities of 300 classes": 300, "densities of all classes": None}
OWN_COVARIANCES, TWO_PLACES, MORE_SHOTS = "own covariances", "two places", 10
SHORTLIST_TASKS = ((OMNIGLOT, CHARACTERS), (OWN_COVARIANCES, 3_000), (TWO_PLACES, 3_000))
#: Each method, and up to how many classes it is tried: as long as it takes less than ten minutes, gptree always.
METHODS = {
    "gptree, tree": 100_000,
    "gptree, forest": 100_000,
    "experts alone": 100_000,
    "logistic regression": CHARACTERS,
    "napkinXC, HSM": 10_000,
    "napkinXC, PLT": 10_000,
    "nearest means, faiss": 100_000,
    "k-NN, faiss": 100_000,
}
#: From so many classes on the fit has two threads.
TWO_THREADS = 100_000
CLASSES = (100, 1_000, 10_000, 100_000)
TASKS = ((OMNIGLOT, CHARACTERS), *((MADE_UP, classes) for classes in CLASSES))
#: The same on a GPU, from tensors in its memory to a fitted model: seconds of the clock.
ON_GPU = {"gptree, tree, GPU": GPTreeClassifier, "gptree, forest, GPU": GPForestClassifier}
#: An earlier commit, measured by `python -m benchmarks.earlier` on some of the tasks.
EARLIER = "f78fcca"
EARLIER_METHODS = {f"gptree, {kind}, {EARLIER}": f"GP{kind.title()}Classifier" for kind in ("tree", "forest")}
COMPARED = ("gptree, tree", f"gptree, tree, {EARLIER}")
EARLIER_TASKS = ((MADE_UP, 1_000), (OMNIGLOT, CHARACTERS))
#: On Omniglot the two commits' trees have further seeds: one random tree is up to 0.03 nats better than another. So
#: have the made-up classes of shortlists.
FURTHER_SEEDS = 2
PENALTIES = {MADE_UP: 1e4, OMNIGLOT: 3e3}  # inverse, of logistic regression
COST = 100.0  # the same of napkinXC

COLUMNS = {
    "fit": Column("fit (CPU s)", "metrics.fit", digits=1),
    "predict": Column("predict 1,000 rows (CPU s)", "metrics.predict", digits=2),
    "beam": Column("the same, top 5 by beam (CPU s)", "metrics.beam", digits=2),
    "beam top-1": Column("its top-1 %", "metrics.beam_accuracy", scale=100, digits=1),
    "memory": Column("peak memory (GB)", "peak_memory_bytes", scale=1e-9, digits=2),
    "fit wall": Column("fit (s)", "metrics.fit_wall", digits=0),
    "fit memory": Column("of the fit (GB)", "metrics.fit_peak_bytes", scale=1e-9, digits=2),
    "file": Column("file (MB)", "metrics.file_bytes", scale=1e-6, digits=1),
    "top-1": Column("top-1 %", "metrics.accuracy", scale=100, digits=1),
    "top-5": Column("top-5 %", "metrics.top5", scale=100, digits=1),
    "NLL": Column("NLL", "metrics.nll", better=min),
    "ECE": Column("ECE %", "metrics.ece", scale=100, digits=1, better=min),
}
WALL = {
    "fit": Column("fit (s)", "metrics.fit_wall", digits=1),
    "predict": Column("predict 1,000 rows (s)", "metrics.predict_wall", digits=2),
    "beam": Column("the same, top 5 by beam (s)", "metrics.beam_wall", digits=2),
}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("many-classes", method, data, seed, {"classes": classes})
        for data, classes in TASKS
        for method in methods_of(data, classes)
        for seed in range(seeds + (FURTHER_SEEDS if data == OMNIGLOT and method in COMPARED else 0))
    ] + [
        Trial("many-classes", method, data, seed, {"classes": classes})
        for data, classes in SHORTLIST_TASKS
        for method in SHORTLISTS
        for seed in range(seeds + (0 if data == OMNIGLOT else FURTHER_SEEDS))
    ]


def methods_of(data: str, classes: int) -> list[str]:
    now = [method for method, most in METHODS.items() if classes <= most]
    return [*now, *(EARLIER_METHODS if (data, classes) in EARLIER_TASKS else ()), *ON_GPU]


def needs_gpu(trial: Trial) -> bool:
    return trial.method in ON_GPU


def make_data(classes: int, seed: int, kind: str = MADE_UP) -> Task:
    """Made-up classes; see above."""
    random, d = np.random.default_rng(seed), DIMENSIONS
    spectrum = (1.0 + np.arange(d)) ** -0.5
    spectrum /= np.sqrt(np.square(spectrum).mean())
    turned = np.linalg.qr(random.normal(size=(d, d)))[0]
    groups = random.normal(size=(20, 1, d)) * spectrum
    families = (groups + 0.7 * random.normal(size=(20, 20, d)) * spectrum).reshape(400, d)
    means = families[random.integers(0, 400, classes)] + 0.5 * random.normal(size=(classes, d)) * spectrum
    sizes = 2.2 * np.exp(0.3 * random.normal(size=classes))
    shapes = np.stack([spectrum, random.permutation(spectrum)])
    shape = random.integers(0, 2, classes)
    shots, places = SHOTS if kind == MADE_UP else MORE_SHOTS, means[None]
    if kind == OWN_COVARIANCES:
        shapes, shape = random.permuted(np.tile(spectrum, (classes, 1)), axis=1), np.arange(classes)
    elif kind == TWO_PLACES:
        places = np.stack([means, means[random.permutation(classes)]])

    def draw(y: np.ndarray) -> np.ndarray:
        noise = random.normal(size=(len(y), d)) * shapes[shape[y]]
        return (places[np.arange(len(y)) % len(places), y] + sizes[y, None] * noise) @ turned

    y, y_new = np.repeat(np.arange(classes), shots), random.integers(0, classes, QUERIES)
    return Task(draw(y), y, draw(y_new), y_new)


class ExpertsAlone:
    """The pool of experts that a tree has as prior mean, by itself, with densities of so many classes."""

    def __init__(self, shortlist: int | None = None) -> None:
        self._pool = Pool(shortlist=shortlist)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        self._mean = X.mean(0)
        self._expert = self._pool.fit(Examples.of(self._rows(X), torch.as_tensor(y))).expert
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        parts = torch.as_tensor(self._rows(X)).split(100)
        return torch.cat([self._expert.log_probabilities(part) for part in parts]).exp().numpy()

    def _rows(self, X: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(unit_length(X - self._mean))


class Logistic(LogisticClassifier):
    """With a file."""

    def save(self, folder: Path) -> None:
        folder.mkdir()
        np.savez(folder / "weights", classes=self.classes_, coef=self.coef_, intercept=self.intercept_)


def make_method(trial: Trial) -> Any:
    made = {
        "gptree, tree": partial(GPTreeClassifier, random_state=trial.seed, device="cpu"),
        "gptree, forest": partial(GPForestClassifier, random_state=trial.seed, device="cpu"),
        **{name: partial(kind, random_state=trial.seed, device="cuda") for name, kind in ON_GPU.items()},
        "experts alone": ExpertsAlone,
        **{name: partial(ExpertsAlone, size) for name, size in SHORTLISTS.items()},
        "logistic regression": partial(Logistic, C=PENALTIES.get(trial.data)),
        "napkinXC, HSM": partial(Napkin, "HSM", COST, trial.seed),
        "napkinXC, PLT": partial(Napkin, "PLT", COST, trial.seed),
        "nearest means, faiss": partial(Faiss, means=True),
        "k-NN, faiss": partial(Faiss, means=False),
    }
    if trial.method not in made:
        raise ValueError(f"{trial.method!r} is of another commit: `python -m benchmarks.earlier` measures it.")
    return made[trial.method]()


def make_task(trial: Trial, folder: Path) -> Task:
    if trial.data != OMNIGLOT:
        return make_data(trial.settings["classes"], trial.seed, trial.data)
    data = load(trial.data, folder)
    return Task(data.train_x.astype(float), data.train_y, data.test_x.astype(float), data.test_y)


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(2 if trial.settings["classes"] >= TWO_THREADS else 1)
    method, task = make_method(trial), make_task(trial, folder)
    if needs_gpu(trial):
        few = make_data(100, trial.seed)
        make_method(trial).fit(few.X, few.y).predict_proba(few.X_new)  # loads the libraries of the GPU
        task = task._replace(X=torch.as_tensor(task.X, device="cuda"))
    found = measure(method, task)
    if isinstance(method, GPTreeClassifier | GPForestClassifier):
        found |= by_beam(method, task)
    return found


def by_beam(method: GPTreeClassifier | GPForestClassifier, task: Task) -> dict[str, float]:
    """The five best classes of up to 1,000 rows by a beam of 16 nodes, on one thread: seconds, and top-1."""
    torch.set_num_threads(1)
    rows, y = task.X_new[:QUERIES], task.y_new[:QUERIES]
    method.predict_top_k(rows[:20], 5, beam=16)  # builds what is built once
    began, started = time.process_time(), time.perf_counter()
    best = method.predict_top_k(rows, 5, beam=16).classes
    seconds = {"beam": time.process_time() - began, "beam_wall": time.perf_counter() - started}
    return seconds | {"beam_accuracy": float((best[:, 0] == y).mean())}


def tables(rows: list[Row]) -> list[Table]:
    short = [row for row in rows if row.trial.method in SHORTLISTS]
    rows = [row for row in rows if row.trial.method not in SHORTLISTS]
    gpu, processor = ([row for row in rows if needs_gpu(row.trial) is wanted] for wanted in (True, False))
    titles = {OMNIGLOT: "Omniglot, {:,} characters", MADE_UP: "{:,} classes"}
    shown = {name: column for name, column in COLUMNS.items() if name != "fit wall"}
    found = [
        listing(titles[data].format(n), chosen(processor, data=data, classes=n), ["method"], shown.values())
        for data, n in TASKS
    ]
    columns = [WALL.get(name, column) for name, column in shown.items()]
    on_gpu = listing("On a GPU, wall clock", gpu, ["method", "data", "settings.classes"], columns)
    told = [COLUMNS[name] for name in ("fit", "predict", "top-1", "top-5", "NLL", "ECE")]
    shortlists = listing("Densities of a shortlist", short, ["data", "settings.classes", "method"], told)
    return [*(table for table in [*found, on_gpu] if table.lines), exponents(rows), *([shortlists] if short else [])]


def exponents(rows: list[Row]) -> Table:
    """d log / d log C between neighbouring sizes of what a method takes."""
    lines = []
    for method in METHODS:
        mine = sorted(chosen(rows, data=MADE_UP, method=method), key=_classes)
        for one, other in pairwise(mine):
            values = [_exponent(of(one), of(other), _classes(other) / _classes(one)) for of in COSTS.values()]
            lines.append([method, f"{_classes(one):,} → {_classes(other):,}", *values])
    note = "Memory is the peak above what the process holds before the fit."
    return Table("Exponents in the number of classes", ["method", "classes", *COSTS], lines, note)


def _own_memory(row: Row) -> float | None:
    held, peak = row.metrics.get("held_bytes"), row.peak_memory_bytes
    return None if held is None or peak is None else max(peak - held, 1)


def _exponent(one: float | None, other: float | None, times: float) -> str:
    return "" if not one or not other else f"{np.log(other / one) / np.log(times):.2f}"


def _classes(row: Row) -> int:
    return row.trial.settings["classes"]


COSTS = {
    "fit": lambda row: row.metrics["fit"],
    "predict": lambda row: row.metrics["predict"],
    "memory": _own_memory,
    "file": lambda row: row.metrics.get("file_bytes"),
}


def figure(rows: list[Row], path: Path) -> None:
    """What it takes and what comes of it, over the number of made-up classes."""
    colours = {method: f"C{place}" for place, method in enumerate(METHODS)}
    drawing, axes = panels(2, 3, width=4.6)
    for ax, name in zip(axes, ("fit", "predict", "memory", "file", "top-1", "NLL"), strict=True):
        shown = [row for row in chosen(rows, data=MADE_UP) if row.trial.method in METHODS]
        shown = [row for row in shown if COLUMNS[name].of(row) is not None]
        line_plot(shown, "settings.classes", COLUMNS[name], "method", ax, colours)
        ax.set(xscale="log", yscale="log" if name in COSTS else "linear")
        ax.legend().remove()
    gigabytes = (0.5, 1, 2, 5, 10)
    axes[2].set_yticks(gigabytes, map(str, gigabytes))
    axes[2].minorticks_off()
    drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    drawing.savefig(path, dpi=100)
