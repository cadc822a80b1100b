"""Trials of Gibbs sampling on frozen features: draws of classes, the methods, and the choice of a kernel."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from benchmarks.core.trials import Trial
from benchmarks.data import Dataset, draw, load
from gptree import CoordinateAscent, Gibbs, GPForestClassifier, GPTreeClassifier, SparseVariational, SphereMap
from gptree.inference import Inference
from gptree.metrics import accuracy, ece, nll
from gptree.rivals import LogisticClassifier, LogisticSoftmaxGP, OneVsEachGP, OverBudget, StickBreakingGP
from gptree.tree import RandomBalanced

#: Data sets, and what they are called on the pages.
NAMES = {"cub200": "CUB", "clinc150": "CLINC150"}
CLASSES = (4, 6, 8, 10, 20, 30, 40, 50, 60)
KERNELS = ("linear", "rbf")
SCALES = (1.0, 4.0, 9.0, 18.0)
#: Bytes that a method may take.
BUDGET = 4 * 2**30
#: Training rows a class, all where nothing is said. CUB has about 30 a class; CLINC150 gives as many of its 100.
SHOTS = {"clinc150": 30}


def chains_for(classes: int) -> int:
    """The paper's: 20 chains up to 20 classes, 10 at 30, 1 above."""
    return 20 if classes <= 20 else 10 if classes <= 30 else 1


# ------------------------------------------------------------------------------------------------------------ the data


@dataclass(frozen=True)
class Part:
    """Features (n, d) and class codes (n,)."""

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Task:
    train: Part
    validation: Part
    test: Part


def halves(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Test rows for validation and for the report, always the same, every class in halves."""
    rows = np.arange(len(dataset.test_y))
    validation, test = train_test_split(rows, test_size=0.5, stratify=dataset.test_y, random_state=0)
    return np.sort(validation), np.sort(test)


def drawn(dataset: Dataset, classes: int, seed: int, shots: int | None = None) -> Task:
    """Random classes, and so many random training rows of each, all without a number.

    Classes are coded in the order of the draw, which is the order in which SBM-GP breaks its stick.
    """
    few = draw(dataset, classes, shots, seed)
    chosen = list(dict.fromkeys(few.train_y.tolist()))
    code = np.full(len(dataset.names), -1)
    code[chosen] = np.arange(classes)

    def part(half: np.ndarray) -> Part:
        rows = half[code[dataset.test_y[half]] >= 0]
        return Part(dataset.test_x[rows], code[dataset.test_y[rows]])

    return Task(Part(few.train_x, code[few.train_y]), *map(part, halves(dataset)))


# --------------------------------------------------------------------------------------------------------- the methods

Maker = Callable[[str, float, Gibbs, int], Any]
"""(kernel, output scale, chains and sweeps, seed) → a classifier whose `predict_at` may be changed."""


def _tree(kernel: str, scale: float, inference: Inference, seed: int, tree: Any = None) -> GPTreeClassifier:
    return GPTreeClassifier.paper(
        kernel, scale, inference=inference, tree=tree, device="cpu", memory_budget=BUDGET, random_state=seed
    )


def _rival(family: Callable[..., Any], **settings: Any) -> Maker:
    return lambda kernel, scale, gibbs, seed: family(
        kernel, scale, chains=gibbs.chains, steps=gibbs.steps, memory_budget=BUDGET, random_state=seed, **settings
    )


SCORES_AVERAGED = "OVE, scores averaged"
"""OVE with the average over chains that its published code takes."""
TEN_SWEEPS = ", ten sweeps"
"""What is behind the name of a method that has ten Gibbs steps instead of one."""

GIBBS_METHODS: dict[str, Maker] = {
    "SBM-GP": _rival(StickBreakingGP),
    "OVE": _rival(OneVsEachGP),
    "LSM": _rival(LogisticSoftmaxGP),
    "GP-Tree Rnd": lambda kernel, scale, gibbs, seed: _tree(kernel, scale, gibbs, seed, RandomBalanced()),
    "GP-Tree": _tree,
    SCORES_AVERAGED: _rival(OneVsEachGP, averaging="scores"),
}
"""Zero-mean Gaussian processes on features of unit length."""

PLAIN_METHODS: dict[str, Callable[[int], Any]] = {
    "gptree forest": lambda seed: GPForestClassifier(device="cpu", random_state=seed),
    "logistic regression": lambda seed: make_pipeline(SphereMap(), LogisticClassifier()),
}
"""With nothing left to choose on validation rows; both on the default feature map."""

INFERENCES: dict[str, Callable[..., Inference]] = {
    "Gibbs": Gibbs,
    "VI, all points": CoordinateAscent,
    "VI, 5 inducing points a class": SparseVariational,
}
"""GP-Tree's."""
VARIATIONAL = {"VI, all points": {"sweeps": 200}, "VI, 5 inducing points a class": {"sweeps": 200, "inducing": 5}}
"""Their settings."""
INFERENCE_SETTINGS = ("chains", "steps", "sweeps", "inducing")
"""Settings of a trial that its inference takes."""


def settings_of(method: str, data: str, classes: int) -> dict[str, Any]:
    """All that a trial's result depends on besides method, data and seed."""
    shots = {"shots": SHOTS[data]} if data in SHOTS else {}
    if method in PLAIN_METHODS:
        return {"classes": classes, **shots}
    inference = VARIATIONAL.get(method, {"chains": chains_for(classes)})
    inference |= {"steps": 10} if method.endswith(TEN_SWEEPS) else {}
    return {"classes": classes, **shots, **inference, "kernels": KERNELS, "scales": SCALES}


def trials(
    experiment: str, seeds: int, methods: Sequence[str], numbers: Sequence[int] = CLASSES, **settings: Any
) -> list[Trial]:
    """Every method on every data set and number of classes."""
    return [
        Trial(experiment, method, data, seed, {**settings_of(method, data, classes), **settings})
        for seed in range(seeds)
        for data in NAMES
        for classes in numbers
        for method in methods
    ]


# ----------------------------------------------------------------------------------------------------------- measuring


def scores(p: np.ndarray, part: Part) -> dict[str, float]:
    return {"accuracy": accuracy(p, part.y), "nll": nll(p, part.y), "ece": ece(p, part.y)}


def chosen_by_validation(
    make: Callable[[str, float], Any], task: Task, settings: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The fitted classifier of best validation accuracy, ties by NLL, both at the latent mean; and all the scores.

    Of the `kernels` and `scales` of the settings. Only the training and the validation rows are looked at.
    """
    best, model, validation, seconds = (np.inf, np.inf), None, [], 0.0
    chosen: dict[str, Any] = {}
    for kernel in settings["kernels"]:
        for scale in settings["scales"]:
            start = time.process_time()
            candidate = make(kernel, scale).set_params(predict_at="mean").fit(task.train.x, task.train.y)
            fitted = time.process_time() - start
            score = scores(candidate.predict_proba(task.validation.x), task.validation)
            validation.append({"kernel": kernel, "scale": scale, "accuracy": score["accuracy"], "nll": score["nll"]})
            if (place := (-score["accuracy"], score["nll"])) < best:
                best, model, seconds = place, candidate, fitted
                chosen = {"kernel": kernel, "scale": scale}
    return model, {"chosen": chosen, "validation": validation, "fit_seconds": seconds}


def reported(model: Any, test: Part) -> dict[str, Any]:
    """Test scores and processor seconds of a fitted Gaussian process, at the mean and by quadrature."""
    out = {}
    for predict_at in ("mean", "quadrature"):
        model.set_params(predict_at=predict_at)
        start = time.process_time()
        p = model.predict_proba(test.x)
        out[predict_at] = {"predict_seconds": time.process_time() - start, **scores(p, test)}
    return out


def prepared(trial: Trial, folder: Path) -> Task:
    """One thread, and the data of the trial."""
    torch.set_num_threads(1)
    threadpool_limits(1)
    return drawn(load(trial.data, folder), trial.settings["classes"], trial.seed, trial.settings.get("shots"))


def run_classes(trial: Trial, folder: Path) -> Mapping[str, Any]:
    """Test scores of one method on one draw; why it stopped, where it would need more than `BUDGET`."""
    task = prepared(trial, folder)
    if trial.method in PLAIN_METHODS:
        return {**about(task), **_run_plain(PLAIN_METHODS[trial.method](trial.seed), task)}
    make, settings = GIBBS_METHODS[trial.method.removesuffix(TEN_SWEEPS)], trial.settings
    gibbs = Gibbs(settings["chains"], settings.get("steps", 1))
    try:
        model, choice = chosen_by_validation(
            lambda kernel, scale: make(kernel, scale, gibbs, trial.seed), task, settings
        )
    except OverBudget as error:
        return {**about(task), "stopped": str(error)}
    return {**about(task), **choice, **reported(model, task.test)}


def run_inference(trial: Trial, folder: Path) -> Mapping[str, Any]:
    """Test scores of GP-Tree with one kind of inference, and at how many nodes it had not settled."""
    task = prepared(trial, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of a fit that may not be the chosen one
        model, choice = _chosen_tree(trial, INFERENCES[trial.method], task)
    settled = model.diagnostics_.get("converged", np.ones(1, dtype=bool))
    return {**about(task), **choice, "unsettled_nodes": int((~settled).sum()), **reported(model, task.test)}


def run_chains(trial: Trial, folder: Path) -> Mapping[str, Any]:
    """Test scores of GP-Tree with so many chains of so many steps."""
    task = prepared(trial, folder)
    model, choice = _chosen_tree(trial, Gibbs, task)
    return {**about(task), **choice, **reported(model, task.test)}


def _chosen_tree(trial: Trial, family: Callable[..., Inference], task: Task) -> tuple[Any, dict[str, Any]]:
    """GP-Tree with an inference of the trial's settings."""
    inference = family(**{name: trial.settings[name] for name in INFERENCE_SETTINGS if name in trial.settings})
    return chosen_by_validation(lambda kernel, scale: _tree(kernel, scale, inference, trial.seed), task, trial.settings)


def about(task: Task) -> dict[str, int]:
    return {"train_rows": len(task.train.y), "validation_rows": len(task.validation.y), "test_rows": len(task.test.y)}


def _run_plain(model: Any, task: Task) -> dict[str, Any]:
    start = time.process_time()
    model.fit(task.train.x, task.train.y)
    fitted = time.process_time()
    p = model.predict_proba(task.test.x)
    done = time.process_time()
    return {"fit_seconds": fitted - start, "mean": {"predict_seconds": done - fitted, **scores(p, task.test)}}
