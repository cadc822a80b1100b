"""Many classes.

What do thousands of classes cost, and what do the Gaussian processes add there?

A tree of 10,000 classes is fitted in {mean fit | method=gptree, tree | classes=10000} s of processor time on one
thread, in {mean memory | method=gptree, tree | classes=10000} GB with everything that Python imports; one of 1,000 in
{mean fit | method=gptree, tree | classes=1000} s, and its file has {mean file | method=gptree, tree | classes=1000} MB.
The experts score every row for every class, which grows with the square of the classes; trees, nodes, memory and file
grow slower.

Findings
--------
- Neither memory nor file holds an array of rows × classes: what they hold is features, class means, and what nodes know
  of their rows. Pools of more than 500 classes do without ridge regression.
- The Gaussian processes add little here. NLL of experts alone, tree and forest: {mean NLL | method=experts alone |
  classes=1000}, {mean NLL | method=gptree, tree | classes=1000} and {mean NLL | method=gptree, forest | classes=1000}
  with 1,000 classes; {mean NLL | method=experts alone | classes=10000}, {mean NLL | method=gptree, tree |
  classes=10000} and {mean NLL | method=gptree, forest | classes=10000} with 10,000, where the tree is behind. The
  classes are nearly those that discriminant analysis assumes.
- Logistic regression has {mean NLL | method=logistic regression | classes=1000} with 1,000 classes, nearest means
  {mean NLL | method=nearest means | classes=1000}; they predict a row in a tenth of the time.
- 100,000 classes are not measured yet. The class means of `gptree.rivals` run out of memory with 10,000.

Set-up
------
Made-up classes of five examples with 256 features: 20 groups of 20 families, a class at random in one of 400 families;
two shapes of noise with a power-law spectrum, at random for each class, and a size of its own for each, so that linear
discriminant analysis is not the truth. 1,000 further rows are predicted. All methods with their defaults, one thread
(two for the fit of 100,000 classes), a fresh process for each; processor seconds, and seconds of the clock on a GPU,
from tensors in its memory to a fitted model. "Experts alone" is the pool that a tree has as prior mean. The penalty of
logistic regression is the one that it chooses with 100 classes of seed 0. Peak memory has imports (0.45 GB) and data in
it; a file is in double precision.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from gptree import GPForestClassifier, GPTreeClassifier
from gptree.experts import Examples, Pool
from gptree.maths.sphere import unit_length
from gptree.metrics import accuracy, ece, nll
from gptree.rivals import LogisticClassifier, NearestClassMean, NearestNeighbours

GROUP, NEEDS_DATA, FRESH_PROCESS, SEEDS = "Speed and size", False, True, 1

SHOTS, DIMENSIONS, QUERIES = 5, 256, 1_000
#: Each method, and up to how many classes it is tried: logistic regression as long as it takes less than ten minutes,
#: rivals that keep an array of rows × classes as long as that fits.
METHODS = {
    "gptree, tree": 100_000,
    "gptree, forest": 100_000,
    "experts alone": 100_000,
    "logistic regression": 1_000,
    "nearest means": 10_000,
    "k-NN": 10_000,
}
#: The same on a GPU, from tensors in its memory to a fitted model: seconds of the clock.
ON_GPU = {"gptree, tree, GPU": "gptree, tree", "gptree, forest, GPU": "gptree, forest"}
GPU_CLASSES = (1_000, 10_000, 100_000)
TWO_THREADS = 100_000
CLASSES = (100, 1_000, 3_000, 10_000, 100_000)
PENALTY = 1e4  # inverse, of logistic regression

COLUMNS = {
    "classes": Column("classes", "settings.classes", digits=0),
    "fit": Column("fit (CPU s)", "metrics.fit", digits=1),
    "predict": Column("predict 1,000 rows (CPU s)", "metrics.predict", digits=2),
    "clock": Column("fit (clock s)", "metrics.clock", digits=1),
    "beam": Column("top 5 of 1,000 rows, beam of 16 (CPU s)", "metrics.beam", digits=2),
    "beam top-1": Column("its top-1 %", "metrics.beam_accuracy", scale=100, digits=1),
    "memory": Column("peak memory (GB)", "peak_memory_bytes", scale=1e-9, digits=2),
    "file": Column("file (MB)", "metrics.file_bytes", scale=1e-6, digits=1),
    "top-1": Column("top-1 %", "metrics.accuracy", scale=100, digits=1),
    "top-5": Column("top-5 %", "metrics.top5", scale=100, digits=1),
    "NLL": Column("NLL", "metrics.nll"),
    "ECE": Column("ECE %", "metrics.ece", scale=100, digits=1),
}


def trials(seeds: int) -> list[Trial]:
    sizes = [(classes, method) for classes in CLASSES for method, most in METHODS.items() if classes <= most]
    sizes += [(classes, method) for classes in GPU_CLASSES for method in ON_GPU]
    return [
        Trial("many-classes", method, "made-up", seed, {"classes": classes})
        for seed in range(seeds)
        for classes, method in sizes
    ]


def needs_gpu(trial: Trial) -> bool:
    return trial.method in ON_GPU


def make_data(classes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """X and y of the examples, and of the rows to predict."""
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

    def draw(y: np.ndarray) -> np.ndarray:
        noise = random.normal(size=(len(y), d)) * shapes[shape[y]]
        return (means[y] + sizes[y, None] * noise) @ turned

    y, y_new = np.repeat(np.arange(classes), SHOTS), random.integers(0, classes, QUERIES)
    return draw(y), y, draw(y_new), y_new


class ExpertsAlone:
    """The pool of experts that a tree has as prior mean, by itself."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> ExpertsAlone:
        self._mean = X.mean(0)
        self._expert = Pool().fit(Examples.of(self._rows(X), torch.as_tensor(y))).expert
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        parts = torch.as_tensor(self._rows(X)).split(100)
        return torch.cat([self._expert.log_probabilities(part) for part in parts]).exp().numpy()

    def _rows(self, X: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(unit_length(X - self._mean))


def make_method(name: str, seed: int) -> Any:
    device = "cuda" if name in ON_GPU else "cpu"
    return {
        "gptree, tree": GPTreeClassifier(random_state=seed, device=device),
        "gptree, forest": GPForestClassifier(random_state=seed, device=device),
        "experts alone": ExpertsAlone(),
        "logistic regression": LogisticClassifier(C=PENALTY),
        "nearest means": NearestClassMean(),
        "k-NN": NearestNeighbours(),
    }[ON_GPU.get(name, name)]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(2 if trial.settings["classes"] >= TWO_THREADS else 1)
    X, y, X_new, y_new = make_data(trial.settings["classes"], trial.seed)
    method, given, clock = make_method(trial.method, trial.seed), X, time.process_time
    if needs_gpu(trial):
        few = make_data(100, trial.seed)
        make_method(trial.method, trial.seed).fit(*few[:2]).predict_proba(few[2])  # loads the libraries of the GPU
        given, clock = torch.as_tensor(X, device="cuda"), time.perf_counter
        torch.cuda.synchronize()
    began, started = clock(), time.perf_counter()
    method.fit(given, y)
    found = {"fit": clock() - began, "clock": time.perf_counter() - started}
    torch.set_num_threads(1)
    if hasattr(method, "predict_top_k"):
        method.predict_top_k(X_new[:50], 5, beam=16)  # builds what is built once
        began = clock()
        best = method.predict_top_k(X_new, 5, beam=16).classes
        found |= {"beam": clock() - began, "beam_accuracy": float((best[:, 0] == y_new).mean())}
    began = clock()
    p = method.predict_proba(X_new)
    found["predict"] = clock() - began
    if hasattr(method, "save"):
        with tempfile.TemporaryDirectory() as scratch:
            method.save(Path(scratch) / "model")
            found["file_bytes"] = sum(file.stat().st_size for file in Path(scratch).rglob("*") if file.is_file())
    best = np.argpartition(p, -5, axis=1)[:, -5:]
    found["top5"] = float((best == y_new[:, None]).any(1).mean())
    return found | {"accuracy": accuracy(p, y_new), "nll": nll(p, y_new), "ece": ece(p, y_new)}


def tables(rows: list[Row]) -> list[Table]:
    classes = sorted({row.trial.settings["classes"] for row in rows})
    found = [
        listing(
            f"{each:,} classes",
            [row for row in rows if row.trial.settings["classes"] == each],
            ["method"],
            [column for name, column in COLUMNS.items() if name != "classes"],
        )
        for each in classes
    ]
    return [*found, exponents(rows)]


def exponents(rows: list[Row]) -> Table:
    """d log / d log C of processor time and file, between neighbouring sizes."""
    lines = []
    for method in (*METHODS, *ON_GPU):
        mine = [row for row in rows if row.trial.method == method]
        for one, other in pairwise(sorted(mine, key=lambda row: row.trial.settings["classes"])):
            few, many = (row.trial.settings["classes"] for row in (one, other))
            values = [
                np.log(other.metrics[name] / one.metrics[name]) / np.log(many / few) if name in one.metrics else None
                for name in ("fit", "predict", "file_bytes")
            ]
            lines.append([method, f"{few:,} → {many:,}", *("" if v is None else f"{v:.2f}" for v in values)])
    return Table("Exponents in the number of classes", ["method", "classes", "fit", "predict", "file"], lines)
