"""Classifiers on frozen features: the paper's tree, each expert, their pool, the default tree and forest, and rivals.

    python -m benchmarks.heads --data DIR [--jobs N]      # measures what has no row yet, prints the tables
    python -m benchmarks.heads --data DIR --experiment speed|one-shot|heads|table

`DIR` holds the feature files that `benchmarks.data` names. All methods see the same features, through the same map.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.pipeline import make_pipeline

from benchmarks.data import Dataset, draw, load
from benchmarks.rows import Row, Rows, Trial, run_trials
from benchmarks.tables import Column, Summary, field_of, grouped, markdown
from gptree import CoordinateAscent, Gibbs, GPForestClassifier, GPTreeClassifier, SphereMap
from gptree.experts import LDA, Examples, Expert, KernelDensity, KernelRidge, Pool, RandomFeatures, Ridge
from gptree.maths import make_kernel
from gptree.metrics import accuracy, brier, columns, ece, nll
from gptree.rivals import RIVALS

RESULTS = Path(__file__).parent / "results"
CLASSES = {"clinc150": (20, 60, None), "banking77": (20, 60, None), "cub200": (20, 60, None), "digits": (None,)}
SHOTS = (5, 20, 30, None)
#: The paper's tree is exact; beyond this many training points it would take minutes a run, and has no row.
PAPER_POINTS = 3_000


@dataclass(eq=False)
class ExpertHead(ClassifierMixin, BaseEstimator):
    """An expert as a classifier of its own."""

    expert: Expert

    def fit(self, X: np.ndarray, y: np.ndarray) -> ExpertHead:
        self.classes_, codes = np.unique(y, return_inverse=True)
        examples = Examples.of(torch.as_tensor(X, dtype=torch.float64), torch.as_tensor(codes), len(self.classes_))
        self.fitted_ = self.expert.fit(examples).expert
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.fitted_.log_probabilities(torch.as_tensor(X, dtype=torch.float64)).exp().numpy()


EXPERTS: dict[str, Expert] = {
    "expert: LDA": LDA(),
    "expert: kernel ridge": KernelRidge(),
    "expert: kernel density": KernelDensity(),
    "expert: random-feature LDA": RandomFeatures(LDA(), count=1000),
    "expert: random-feature ridge": RandomFeatures(Ridge(), count=2000),
    "pool of experts": Pool(),
}
#: Single changes to the default forest.
VARIANTS: dict[str, dict[str, Any]] = {
    "gptree forest": {},
    "gptree forest, one tree": {"n_estimators": 1},
    "gptree forest, eight trees": {"n_estimators": 8},
    "gptree forest, float32": {"dtype": "float32"},
    "gptree forest, no node limit": {"node_limit": None},
    "gptree forest, 1,024 exemplars": {"node_limit": 1024},
    "gptree forest, output scale 5": {"kernel": make_kernel("rbf", 5.0)},
    "gptree forest, 20 sweeps": {"inference": CoordinateAscent(sweeps=20, tolerance=0.0)},
    "gptree forest, quadrature": {"predict_at": "quadrature"},
    "gptree forest, random-feature LDA too": {"prior_mean": Pool((*Pool().experts, RandomFeatures(LDA(), count=1000)))},
    "gptree forest, zero prior mean": {"prior_mean": None},
    "gptree forest, empirical class prior": {"class_prior": "empirical"},
}
METHODS = ("paper's tree", *EXPERTS, "gptree", *VARIANTS, *(f"rival: {name}" for name in RIVALS))
HEADS = tuple(name for name in METHODS if name not in VARIANTS or name == "gptree forest")


def make_method(name: str, points: int, seed: int) -> Any:
    """An estimator by the name it has in the tables, for so many training points."""
    if name == "gptree":
        return GPTreeClassifier(random_state=seed)
    if name in VARIANTS:
        return GPForestClassifier(random_state=seed, **VARIANTS[name])
    if name == "paper's tree":
        chains = 10 if points <= 1_000 else 1
        return GPTreeClassifier.paper("rbf", 8.0, inference=Gibbs(chains), dtype="float32", random_state=seed)
    head = ExpertHead(EXPERTS[name]) if name in EXPERTS else RIVALS[name.removeprefix("rival: ")]()
    return make_pipeline(SphereMap(), head)


def run(trial: Trial, folder: str) -> Mapping[str, Any]:
    """Accuracy, NLL, Brier score, ECE and processor seconds of one method on one draw, one thread."""
    torch.set_num_threads(1)
    dataset = load(trial.data, folder)
    one_shot = trial.settings.get("one_shot", 0)
    task = draw(dataset, trial.settings["classes"], trial.settings["shots"], trial.seed)
    skewed = np.arange(len(task.test_y))
    if trial.experiment == "unequal":
        task, skewed = _unequal(dataset, trial.seed)
    single = np.unique(task.train_y)[:0]
    if one_shot:
        task, single = _with_one_shot_classes(task, one_shot, trial.seed)
    estimator = make_method(trial.method, len(task.train_y), trial.seed)
    start = time.process_time()
    estimator.fit(task.train_x, task.train_y)
    fitted = time.process_time()
    p = estimator.predict_proba(task.test_x)
    done = time.process_time()
    y = columns(task.test_y, estimator.classes_)
    own = np.isin(task.test_y, single)
    return {
        "points": len(task.train_y),
        "accuracy": accuracy(p, y),
        "nll": nll(p, y),
        "brier": brier(p, y),
        "ece": ece(p, y),
        "fit_seconds": fitted - start,
        "predict_seconds": done - fitted,
        "seconds": done - start,
        "one_shot_accuracy": accuracy(p[own], y[own]) if own.any() else None,
        "skewed_accuracy": accuracy(p[skewed], y[skewed]),
        "skewed_nll": nll(p[skewed], y[skewed]),
    }


def _unequal(dataset: Dataset, seed: int) -> tuple[Dataset, np.ndarray]:
    """2 to 40 training rows a class, and the test rows that are as unequal as they are."""
    rng = np.random.default_rng(seed)
    counts = np.exp(rng.uniform(np.log(2), np.log(40), len(dataset.names))).round().astype(int)
    train, test = (
        np.concatenate(
            [rng.permutation(np.flatnonzero(y == c))[: max(1, int(share * n))] for c, n in enumerate(counts)]
        )
        for y, share in ((dataset.train_y, 1.0), (dataset.test_y, 0.7))
    )
    return replace(dataset, train_x=dataset.train_x[train], train_y=dataset.train_y[train]), test


def _with_one_shot_classes(task: Dataset, count: int, seed: int) -> tuple[Dataset, np.ndarray]:
    """`count` random classes keep one of their examples; and which classes those are."""
    classes = np.unique(task.train_y)
    single = np.random.default_rng([seed, count]).permutation(classes)[:count]
    keep = np.ones(len(task.train_y), dtype=bool)
    for c in single:
        keep[np.flatnonzero(task.train_y == c)[1:]] = False
    return replace(task, train_x=task.train_x[keep], train_y=task.train_y[keep]), single


def head_trials() -> list[Trial]:
    """Every data set, number of classes and of shots; five seeds, three where all classes meet 20 shots or more."""
    trials = []
    for seed in range(5):
        for data, sizes in CLASSES.items():
            for classes in sizes:
                for shots in SHOTS:
                    large = classes is None and shots != 5 and data != "digits"
                    if large and seed >= 3:
                        continue
                    for method in HEADS:
                        if method == "paper's tree" and _points(data, classes, shots) > PAPER_POINTS:
                            continue
                        trials.append(Trial("heads", method, data, seed, {"classes": classes, "shots": shots}))
    return trials


def _points(data: str, classes: int | None, shots: int | None) -> int:
    all_classes, all_shots = {"clinc150": (150, 100), "banking77": (77, 130), "cub200": (200, 30), "digits": (10, 90)}[
        data
    ]
    return (classes or all_classes) * (shots or all_shots)


def one_shot_trials() -> list[Trial]:
    """Banking77: 20 one-shot classes among five-shot ones, and one shot everywhere."""
    methods = ("pool of experts", "gptree", "gptree forest", "rival: class-mean", "rival: logistic")
    settings = ({"classes": None, "shots": 5, "one_shot": 20}, {"classes": None, "shots": 1})
    return [
        Trial("one-shot", method, data, seed, each)
        for seed in range(5)
        for data in ("banking77", "clinc150", "cub200")
        for each in settings
        for method in methods
    ]


def speed_trials() -> list[Trial]:
    """The default forest, one thread, each in its own process: run these on an idle machine."""
    sizes = (("banking77", None, 5), ("clinc150", None, 30), ("cub200", None, 30))
    return [
        Trial("speed", "gptree forest", data, seed, {"classes": classes, "shots": shots})
        for seed in range(3)
        for data, classes, shots in sizes
    ]


def variant_trials() -> list[Trial]:
    """Single changes to the default forest, on draws that the other tables do not use."""
    tasks = (("banking77", None, 5), ("banking77", None, 30), ("clinc150", None, 5), ("cub200", 60, 20))
    return [
        Trial("variants", method, data, seed, {"classes": classes, "shots": shots})
        for seed in (100, 101)
        for data, classes, shots in tasks
        for method in VARIANTS
        if method != "gptree forest, empirical class prior"  # the same as the default where classes are equal
    ]


def unequal_trials() -> list[Trial]:
    """Classes of 2 to 40 examples, with and without the empirical class prior."""
    return [
        Trial("unequal", method, data, seed, {"classes": None, "shots": None})
        for seed in range(5)
        for data in ("banking77", "clinc150")
        for method in ("gptree forest", "gptree forest, empirical class prior", "rival: class-mean")
    ]


TRIALS = {
    "heads": head_trials,
    "one-shot": one_shot_trials,
    "variants": variant_trials,
    "unequal": unequal_trials,
    "speed": speed_trials,
}
COLUMNS = (
    Column("accuracy %", "metrics.accuracy", scale=100, digits=1),
    Column("NLL", "metrics.nll"),
    Column("ECE %", "metrics.ece", scale=100, digits=1),
    Column("seconds", "metrics.seconds", digits=1),
)


BY = ("data", "settings.classes", "settings.shots")


def of_experiment(rows: Iterable[Row], experiment: str) -> list[Row]:
    """The rows of an experiment in the order of the tables: data, classes, shots, method, seed."""

    def place(row: Row) -> tuple[Any, ...]:
        sizes = [np.inf if value is None else value for value in (field_of(row, path) for path in BY[1:])]
        mixed = row.trial.settings.get("one_shot", 0)
        return list(CLASSES).index(row.trial.data), *sizes, mixed, METHODS.index(row.trial.method), row.trial.seed

    return sorted((row for row in rows if row.trial.experiment == experiment), key=place)


def table(rows: Iterable[Row], experiment: str) -> str:
    """Every method on every draw of an experiment, mean ± standard error over seeds."""
    chosen = of_experiment(rows, experiment)
    if experiment == "unequal":
        skewed = (
            Column("accuracy %, unequal test", "metrics.skewed_accuracy", scale=100, digits=1),
            Column("NLL, unequal test", "metrics.skewed_nll"),
        )
        return markdown(chosen, ["data", "method"], (*COLUMNS[:2], *skewed))
    if experiment != "one-shot":
        return markdown(chosen, [*BY, "method"], COLUMNS)
    extra = Column("one-shot classes %", "metrics.one_shot_accuracy", scale=100, digits=1)
    return markdown(chosen, [*BY, "settings.one_shot", "method"], (*COLUMNS[:3], extra))


def contribution(rows: Iterable[Row]) -> str:
    """What the Gaussian processes add: forest minus pool over the same draws, mean ± standard error."""
    by, rows = list(BY), of_experiment(rows, "heads")
    head = [*(path.rsplit(".", 1)[-1] for path in by), *(f"Δ {c.title}" for c in COLUMNS[:3]), "draws"]
    lines = [head, ["---"] * len(head)]
    for values, group in grouped(rows, by).items():
        found = {(row.trial.method, row.trial.seed): row for row in group}
        seeds = [s for m, s in found if m == "gptree forest" and ("pool of experts", s) in found]
        texts = []
        for column in COLUMNS[:3]:
            differences = np.array(
                [
                    column.scale
                    * (
                        field_of(found["gptree forest", seed], column.path)
                        - field_of(found["pool of experts", seed], column.path)
                    )
                    for seed in seeds
                ]
            )
            error = differences.std(ddof=1) / len(differences) ** 0.5 if len(differences) > 1 else float("nan")
            digits = column.digits + 1
            texts.append(Summary(float(differences.mean()), float(error), len(seeds)).text(digits) if seeds else "–")
        lines.append([*("all" if v is None else str(v) for v in values), *texts, str(len(seeds))])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the feature files")
    parser.add_argument("--experiment", choices=[*TRIALS, "all", "table"], default="all")
    parser.add_argument("--results", type=Path, default=RESULTS / "heads.jsonl")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time (not for speed)")
    arguments = parser.parse_args()
    rows = Rows(arguments.results)
    chosen = list(TRIALS) if arguments.experiment == "all" else [arguments.experiment]
    for name in chosen:
        if name in TRIALS:
            if arguments.data is None:
                parser.error("--data DIR is needed to measure; --experiment table only prints what there is.")
            function = functools.partial(run, folder=arguments.data)
            run_trials(TRIALS[name](), function, rows, name == "speed", 1 if name == "speed" else arguments.jobs)
    for name in TRIALS:
        print(f"## {name}\n\n{table(rows, name)}")
    print(f"## Forest minus pool\n\n{contribution(rows)}")


if __name__ == "__main__":
    main()
