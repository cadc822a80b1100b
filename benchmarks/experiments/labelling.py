"""Which rows to label.

Which unlabelled rows should be labelled next?

Those of `suggest`: on Banking77 the area under its curve is {mean area | suggest | data=banking77} %, that of the
smallest margin {mean area | margin | data=banking77} %, of random choice {mean area | random | data=banking77} %.

Findings
--------
- BALD, entropy and novelty are behind random choice nearly everywhere: they take strange rows, which say little about
  others, and many alike at once. On Banking77 BALD's area is {mean area | BALD | data=banking77} %, on digits {mean
  area | BALD | data=digits} % (random: {mean area | random | data=digits} %).

Set-up
------
Start: two labels each of a random half of the classes; nothing is known of the other half, not even that it exists.
Then, eight times: fit to what is labelled, let the method choose a batch of the unlabelled training rows (at most 2,000
of them), and label those. Accuracy is that on the test rows of all classes; the area under its curve is its mean over
the label budget; "classes found" counts those with a label at the end. The model is a single `GPTreeClassifier` in
float32, for speed; all methods share it. BALD takes the rows whose labels would say most about the latent functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.core.figures import panels
from benchmarks.core.tables import Column, Table, grouped, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data import Dataset, load
from gptree import GPTreeClassifier
from gptree.tree import class_log_probabilities

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUP, SEEDS = "Frozen features", 5

COLUMNS = {
    "area": Column("area under the curve %", "metrics.area", scale=100, digits=1),
    "last": Column("last accuracy %", "metrics.accuracy.-1", 100, 1),
    "classes": Column("classes found", "metrics.classes.-1", 1, 1),
}
#: Data, classes, labels a batch.
TASKS = (("banking77", None, 50), ("clinc150", 60, 50), ("cub200", 60, 50), ("digits", None, 10))
POOL = 2_000
ROUNDS = 8
POINTS = 20  # of a Gauss-Hermite rule


def most(scores: np.ndarray, n: int) -> np.ndarray:
    return np.argsort(-scores, kind="stable")[:n]


def closeness(log_probabilities: np.ndarray) -> np.ndarray:
    """One minus the margin between the two most probable classes."""
    second, first = np.sort(np.exp(log_probabilities), axis=1)[:, -2:].T
    return 1.0 - (first - second)


def entropy(log_probabilities: np.ndarray) -> np.ndarray:
    return -(np.exp(log_probabilities) * np.maximum(log_probabilities, -1e3)).sum(1)


def information(model: GPTreeClassifier, rows: np.ndarray) -> np.ndarray:
    """What a label would say about the latent functions, in nats (BALD): H(E p) − E H(p).

    The entropy of the classes is that of the decisions, each by the probability that it is met; latent functions of
    nodes are independent. So it is Σ_v p(v is met) (h(E σ(f_v)) − E h(σ(f_v))), h the entropy of a decision.
    """
    query = model._query(rows)
    forest, tree = query.state.model, model.tree_
    mean, variance = forest.predictor.moments(query.features)
    prior = forest.prior_means(query.state.class_scores(query.features, query.raw))
    mean = mean if prior is None else mean + prior
    points, shares = (torch.as_tensor(each).to(mean) for each in np.polynomial.hermite_e.hermegauss(POINTS))
    p = (mean[..., None] + variance.sqrt()[..., None] * points).sigmoid()
    shares = shares / shares.sum()
    nodes = forest.node_of[0]
    left = (p @ shares)[nodes]
    gain = decision_entropy(left) - (decision_entropy(p) @ shares)[nodes]
    of_class = class_log_probabilities(tree, left.log(), (1 - left).log()).exp()[:, tree.order]
    met = [of_class[:, tree.lo[v] : tree.hi[v]].sum(1) for v in range(tree.n_nodes)]
    return (torch.stack(met) * gain).sum(0).cpu().numpy()


def decision_entropy(p: Tensor) -> Tensor:
    return -torch.xlogy(p, p) - torch.xlogy(1 - p, 1 - p)


Chooser = Callable[[GPTreeClassifier, np.ndarray, int, np.random.Generator], np.ndarray]
#: Each chooses n of the unlabelled rows.
METHODS: dict[str, Chooser] = {
    "suggest": lambda model, rows, n, _: model.suggest(rows, n),
    "margin": lambda model, rows, n, _: most(closeness(model.predict_log_proba(rows)), n),
    "entropy": lambda model, rows, n, _: most(entropy(model.predict_log_proba(rows)), n),
    "BALD": lambda model, rows, n, _: most(information(model, rows), n),
    "novelty": lambda model, rows, n, _: most(model.novelty_score(rows), n),
    "random": lambda _, rows, n, random: random.permutation(len(rows))[:n],
}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("labelling", method, data, seed, {"classes": classes, "batch": batch, "rounds": ROUNDS})
        for data, classes, batch in TASKS
        for seed in range(seeds)
        for method in METHODS
    ]


@dataclass(frozen=True)
class Task:
    """A pool of rows, the few of them that are labelled at the start, and test rows of all classes."""

    X: np.ndarray
    y: np.ndarray
    start: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def make_task(dataset: Dataset, classes: int | None, random: np.random.Generator) -> Task:
    chosen = random.permutation(len(dataset.names))[:classes]
    pool = random.permutation(np.flatnonzero(np.isin(dataset.train_y, chosen)))[:POOL]
    X, y = dataset.train_x[pool], dataset.train_y[pool]
    first = chosen[: (len(chosen) + 1) // 2]
    start = np.concatenate([random.permutation(np.flatnonzero(y == c))[:2] for c in first])
    test = np.isin(dataset.test_y, chosen)
    return Task(X, y, start, dataset.test_x[test], dataset.test_y[test])


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    random = np.random.default_rng(trial.seed)
    task = make_task(load(trial.data, folder), trial.settings["classes"], random)
    choose, batch = METHODS[trial.method], trial.settings["batch"]
    labelled = np.zeros(len(task.y), dtype=bool)
    labelled[task.start] = True
    labels, accuracy, classes = [], [], []
    while True:
        model = GPTreeClassifier(dtype="float32", device="cpu", random_state=trial.seed)
        model.fit(task.X[labelled], task.y[labelled])
        labels.append(int(labelled.sum()))
        accuracy.append(float((model.predict(task.test_x) == task.test_y).mean()))
        classes.append(len(model.classes_))
        if len(labels) > trial.settings["rounds"]:
            break
        free = np.flatnonzero(~labelled)
        labelled[free[choose(model, task.X[free], batch, random)]] = True
    return {"area": area(accuracy), "labels": labels, "accuracy": accuracy, "classes": classes}


def area(accuracy: list[float]) -> float:
    """Mean height of the curve, straight between its points, which stand at equal distances."""
    heights = np.asarray(accuracy)
    return float((heights[1:] + heights[:-1]).mean()) / 2


def tables(rows: list[Row]) -> list[Table]:
    return [listing("Which rows to label", rows, ["data", "settings.classes", "method"], COLUMNS.values())]


def figure(rows: list[Row], path: Path) -> None:
    """Accuracy over the number of labels, a panel for each data set."""
    by_data = grouped(rows, ["data"])
    picture, axes = panels(1, len(by_data), width=3.2, height=3.2)
    for ax, ((data,), group) in zip(axes, by_data.items(), strict=True):
        curves(group, ax)
        ax.set(title=data, xlabel="labels")
    axes[0].set_ylabel("test accuracy %")
    axes[0].legend(frameon=False)
    picture.savefig(path, dpi=150)


def curves(rows: list[Row], ax: Axes) -> None:
    """Mean over seeds, shaded by one standard error."""
    for (method,), group in grouped(rows, ["method"]).items():
        labels = np.mean([row.metrics["labels"] for row in group], axis=0)
        accuracy = 100 * np.array([row.metrics["accuracy"] for row in group])
        mean, error = accuracy.mean(0), accuracy.std(0, ddof=1) / len(group) ** 0.5 if len(group) > 1 else 0.0
        first = method == "suggest"
        (line,) = ax.plot(labels, mean, linewidth=2.2 if first else 1.2, zorder=3 if first else 2, label=method)
        ax.fill_between(labels, mean - error, mean + error, color=line.get_color(), alpha=0.15, linewidth=0)
