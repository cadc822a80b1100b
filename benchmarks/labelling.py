"""Labels where they help most: accuracy over the label budget when the model chooses what to label.

    python -m benchmarks.labelling --data DIR [--jobs N]      # measures, prints the table, draws the curves

Start: two labels each of a random half of the classes; nothing is known of the other half, not even that it exists.
Then, eight times: fit to what is labelled, let the method choose a batch of the unlabelled training rows (at most 2,000
of them), and label those. Accuracy is that on the test rows of all classes; the area under its curve is its mean over
the label budget. The model is a single `GPTreeClassifier` in float32, for speed; all methods share it.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.data import Dataset, load
from benchmarks.rows import Row, Rows, Trial, run_trials
from benchmarks.tables import Column, grouped, markdown
from gptree import GPTreeClassifier
from gptree.estimators.active import uncertainty

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results" / "labelling.jsonl"
PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "labelling.png"
#: Data, classes, labels a batch.
TASKS = (("banking77", None, 50), ("clinc150", 60, 50), ("cub200", 60, 50), ("digits", None, 10))
POOL = 2_000
ROUNDS = 8


def most(scores: np.ndarray, n: int) -> np.ndarray:
    return np.argsort(-scores, kind="stable")[:n]


def entropy(log_probabilities: np.ndarray) -> np.ndarray:
    return -(np.exp(log_probabilities) * np.maximum(log_probabilities, -1e3)).sum(1)


Chooser = Callable[[GPTreeClassifier, np.ndarray, int, np.random.Generator], np.ndarray]
#: Each chooses n of the unlabelled rows.
METHODS: dict[str, Chooser] = {
    "suggest": lambda model, rows, n, _: model.suggest(rows, n),
    "margin": lambda model, rows, n, _: most(uncertainty(model.predict_log_proba(rows)), n),
    "entropy": lambda model, rows, n, _: most(entropy(model.predict_log_proba(rows)), n),
    "novelty": lambda model, rows, n, _: most(model.novelty_score(rows), n),
    "random": lambda _, rows, n, random: random.permutation(len(rows))[:n],
}


def trials() -> list[Trial]:
    return [
        Trial("labelling", method, data, seed, {"classes": classes, "batch": batch, "rounds": ROUNDS})
        for data, classes, batch in TASKS
        for seed in range(5)
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
    known = chosen[: (len(chosen) + 1) // 2]
    start = np.concatenate([random.permutation(np.flatnonzero(y == c))[:2] for c in known])
    test = np.isin(dataset.test_y, chosen)
    return Task(X, y, start, dataset.test_x[test], dataset.test_y[test])


def run(trial: Trial, folder: str) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    random = np.random.default_rng(trial.seed)
    task = make_task(load(trial.data, folder), trial.settings["classes"], random)
    choose, batch = METHODS[trial.method], trial.settings["batch"]
    labelled = np.zeros(len(task.y), dtype=bool)
    labelled[task.start] = True
    labels, accuracy, found = [], [], []
    while True:
        model = GPTreeClassifier(dtype="float32", device="cpu", random_state=trial.seed)
        model.fit(task.X[labelled], task.y[labelled])
        labels.append(int(labelled.sum()))
        accuracy.append(float((model.predict(task.test_x) == task.test_y).mean()))
        found.append(len(model.classes_))
        if len(labels) > trial.settings["rounds"]:
            break
        free = np.flatnonzero(~labelled)
        labelled[free[choose(model, task.X[free], batch, random)]] = True
    return {"area": area(accuracy), "labels": labels, "accuracy": accuracy, "classes": found}


def area(accuracy: list[float]) -> float:
    """Mean height of the curve, straight between its points, which stand at equal distances."""
    heights = np.asarray(accuracy)
    return float((heights[1:] + heights[:-1]).mean()) / 2


# ------------------------------------------------------------------------------------------------------- results


def ordered(rows: Iterable[Row]) -> list[Row]:
    place = {trial: i for i, trial in enumerate(trials())}
    return sorted((row for row in rows if row.trial in place), key=lambda row: place[row.trial])


def table(rows: Iterable[Row]) -> str:
    """Mean ± standard error over seeds."""
    columns = [Column("area under the curve %", "metrics.area", scale=100, digits=1)]
    ends = []
    for row in ordered(rows):
        last = {"area": row.metrics["area"], "last": row.metrics["accuracy"][-1], "classes": row.metrics["classes"][-1]}
        ends.append(Row(row.trial, last, row.seconds, row.peak_memory_bytes, row.versions, row.machine))
    columns += [Column("last accuracy %", "metrics.last", 100, 1), Column("classes found", "metrics.classes", 1, 1)]
    return markdown(ends, ["data", "settings.classes", "method"], columns)


def figure(rows: Iterable[Row]) -> Figure:
    """Accuracy over the number of labels, a panel for each data set."""
    from matplotlib.figure import Figure

    by_data = grouped(ordered(rows), ["data"])
    picture = Figure(figsize=(3.2 * len(by_data), 3.2), layout="constrained")
    panels = np.ravel(picture.subplots(1, len(by_data), squeeze=False))
    for ax, ((data,), group) in zip(panels, by_data.items(), strict=True):
        curves(group, ax)
        ax.set(title=data, xlabel="labels")
    panels[0].set_ylabel("test accuracy %")
    panels[0].legend(frameon=False)
    return picture


def curves(rows: list[Row], ax: Axes) -> None:
    """Mean over seeds, shaded by one standard error."""
    for (method,), group in grouped(rows, ["method"]).items():
        labels = np.mean([row.metrics["labels"] for row in group], axis=0)
        accuracy = 100 * np.array([row.metrics["accuracy"] for row in group])
        mean, error = accuracy.mean(0), accuracy.std(0, ddof=1) / len(group) ** 0.5 if len(group) > 1 else 0.0
        first = method == "suggest"
        (line,) = ax.plot(labels, mean, linewidth=2.2 if first else 1.2, zorder=3 if first else 2, label=method)
        ax.fill_between(labels, mean - error, mean + error, color=line.get_color(), alpha=0.15, linewidth=0)
    ax.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the feature files; without it only what was measured is shown")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time")
    arguments = parser.parse_args()
    rows = Rows(arguments.results)
    if arguments.data is not None:
        run_trials(trials(), functools.partial(run, folder=arguments.data), rows, n_jobs=arguments.jobs)
    print(table(rows))
    figure(rows).savefig(arguments.picture, dpi=150)


if __name__ == "__main__":
    main()
