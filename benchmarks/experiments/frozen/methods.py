"""Classifiers on frozen features: the paper's tree, each expert, their pool, the default tree and forest, rivals."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.pipeline import make_pipeline
from sklearn.utils import check_random_state

from benchmarks.core.tables import Column
from benchmarks.core.trials import Trial
from benchmarks.data import Dataset, draw, load
from gptree import CoordinateAscent, Gibbs, GPForestClassifier, GPTreeClassifier, SphereMap
from gptree.estimators.row_order import direction, shuffled
from gptree.experts import LDA, Examples, Expert, KernelDensity, KernelRidge, Pool, RandomFeatures, Ridge
from gptree.maths import make_kernel
from gptree.metrics import accuracy, brier, columns, ece, nll
from gptree.rivals import RIVALS

FOREST, TREE, POOL, PAPERS_TREE = "gptree forest", "gptree", "pool of experts", "paper's tree"
#: Rows that earlier versions measured: the default forest, the one that chose its output scale, and the default forest
#: and pool of defaults 3, which differ from today's with fewer than three rows a class.
OLD, OLD_CHOSEN = "gptree forest, defaults 2", "gptree forest, chosen scale, defaults 2"
OLD_FEW, OLD_POOL = "gptree forest, defaults 3", "pool of experts, defaults 3"
MEAN, LOGISTIC, RANPAC = "rival: class-mean", "rival: logistic", "rival: ranpac"
ACCURACY = Column("accuracy %", "metrics.accuracy", scale=100, digits=1)
NLL = Column("NLL", "metrics.nll", better=min)
ECE = Column("ECE %", "metrics.ece", scale=100, digits=1, better=min)
SECONDS = Column("seconds", "metrics.seconds", digits=1, better=min)
BY = ("data", "settings.classes", "settings.shots")


@dataclass(eq=False)
class ExpertClassifier(ClassifierMixin, BaseEstimator):
    """An expert as a classifier of its own; it leaves out the folds that it does in an estimator."""

    expert: Expert
    random_state: int = 0

    def fit(self, X: np.ndarray, y: np.ndarray) -> ExpertClassifier:
        self.classes_, codes = np.unique(y, return_inverse=True)
        features, labels = torch.as_tensor(X, dtype=torch.float64), self.classes_.tolist()
        along = direction(features, torch.as_tensor(codes), labels)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        order = shuffled(features, codes, along, labels, seed)
        examples = Examples.of(features[order], torch.as_tensor(codes[order]), len(labels))
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
    POOL: Pool(),
}
#: Single changes to the default forest.
VARIANTS: dict[str, dict[str, Any]] = {
    FOREST: {},
    "gptree forest, one tree": {"n_estimators": 1},
    "gptree forest, eight trees": {"n_estimators": 8},
    "gptree forest, float32": {"dtype": "float32"},
    "gptree forest, no node limit": {"node_limit": None},
    "gptree forest, subset of 1,024 points": {"node_limit": 1024},
    "gptree forest, output scale 5": {"kernel": make_kernel("rbf", 5.0)},
    "gptree forest, output scale 10": {"kernel": make_kernel("rbf", 10.0)},
    "gptree forest, 20 sweeps": {"inference": CoordinateAscent(sweeps=20, tolerance=0.0)},
    "gptree forest, random trees": {"tree": "random"},
    "gptree forest, quadrature": {"predict_at": "quadrature"},
    "gptree forest, random-feature LDA too": {"prior_mean": Pool((*Pool().experts, RandomFeatures(LDA(), count=1000)))},
    "gptree forest, zero prior mean": {"prior_mean": None},
    "gptree forest, empirical class prior": {"class_prior": "empirical"},
}


def make_method(name: str, points: int, seed: int) -> Any:
    """An estimator by the name it has in the tables, for so many training points."""
    if name in (OLD, OLD_CHOSEN, OLD_FEW, OLD_POOL):
        raise ValueError(f"{name} was measured by an earlier version; its rows cannot be made again.")
    if name == TREE:
        return GPTreeClassifier(random_state=seed)
    if name in VARIANTS:
        return GPForestClassifier(random_state=seed, **VARIANTS[name])
    if name == PAPERS_TREE:
        chains = 10 if points <= 1_000 else 1
        return GPTreeClassifier.paper("rbf", 8.0, inference=Gibbs(chains), dtype="float32", random_state=seed)
    rival = ExpertClassifier(EXPERTS[name], seed) if name in EXPERTS else RIVALS[name.removeprefix("rival: ")]()
    return make_pipeline(SphereMap(), rival)


def run(trial: Trial, folder: Path) -> dict[str, Any]:
    """Scores and processor seconds of one method on one draw of classes and shots."""
    task = draw(load(trial.data, folder), trial.settings["classes"], trial.settings["shots"], trial.seed)
    return scored(trial, task)[0]


def scored(trial: Trial, task: Dataset) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Accuracy, NLL, Brier score, ECE and processor seconds, one thread; probabilities, and columns of the labels."""
    return score(make_method(trial.method, len(task.train_y), trial.seed), task)


def score(estimator: Any, task: Dataset) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """The same of an estimator."""
    torch.set_num_threads(1)
    start = time.process_time()
    estimator.fit(task.train_x, task.train_y)
    fitted = time.process_time()
    p = estimator.predict_proba(task.test_x)
    done = time.process_time()
    y = columns(task.test_y, estimator.classes_)
    scores = {
        "points": len(task.train_y),
        "accuracy": accuracy(p, y),
        "nll": nll(p, y),
        "brier": brier(p, y),
        "ece": ece(p, y),
        "fit_seconds": fitted - start,
        "predict_seconds": done - fitted,
        "seconds": done - start,
    }
    return scores, p, y
