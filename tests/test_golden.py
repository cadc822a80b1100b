"""Numbers of small fixed problems, compared with those that were stored: a change of any of them must be noticed.

Twins elsewhere say that the formulas are right; these say that nothing moved, settings inside functions included.
`python tests/test_golden.py` writes the numbers anew, where a change is wanted.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.naive_bayes import GaussianNB
from torch import Tensor

from gptree import GPForestClassifier, GPTreeClassifier, Growth
from gptree.experts import (
    ALONE,
    LDA,
    Examples,
    FittedSingle,
    KernelDensity,
    KernelRidge,
    Pool,
    PriorScores,
    RandomFeatures,
    Ridge,
    SklearnExpert,
)
from gptree.experts.calibration import best_temperature, temperature_centre
from gptree.experts.pool import pool_weights, robust_weights
from gptree.experts.wrong_labels import label_noise, likelihood, right_label
from gptree.incremental import Graft, Herding, KMeansExemplars, KMeansPlusPlusExemplars, RebuildTree, SessionTree
from gptree.incremental.episodes import NOVEL_SHARES, learn_novel_experts, make_episode
from gptree.incremental.exemplars import select_exemplars
from gptree.inference import (
    CoordinateAscent,
    FixedInducingPoints,
    Gibbs,
    InducingPoints,
    LearnKernel,
    NodePredictor,
    NodeProblem,
    SparseVariational,
    SubsetOfData,
    fit_nodes,
)
from gptree.maths import as_kernel, make_kernel
from gptree.maths.polya_gamma import sample_pg
from gptree.maths.quadrature import log_sigmoid_expectation
from gptree.model import TrainingData, fit_forest, left_out_predictions
from gptree.model.conformal import class_thresholds, probability_threshold, supported_coverage
from gptree.tree import TreeBuilder, label_hashes
from small_sizes import small_random_features

STORED = Path(__file__).with_name("golden.json")
Digests = dict[str, list[float]]


def digest(values: Any) -> list[float]:
    """Sums that tell apart arrays that differ in any number or in its place."""
    flat = torch.as_tensor(values).detach().double().flatten()
    places = torch.arange(len(flat), dtype=torch.float64)
    return [float(len(flat)), float(flat.sum()), float(flat.square().sum()), float(flat @ torch.cos(places))]


def sphere(counts: list[int], d: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of unit length around class centres, in mixed order."""
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat(np.arange(len(counts)), counts))
    X = random.normal(size=(len(counts), d))[y] + 0.8 * random.normal(size=(len(y), d))
    return torch.as_tensor(X / np.linalg.norm(X, axis=1, keepdims=True)), torch.as_tensor(y)


# ------------------------------------------------------------------------------------------------- draws and integrals


def draws() -> Digests:
    """So many that there are passes with one candidate an element, with several, and several blocks."""
    found: Digests = {}
    shapes: dict[str, Any] = {"1": 1.0, "0.3": 0.3, "2.6": 2.6, "0 … 3": torch.arange(7) % 4 + torch.arange(7) % 2 / 4}
    for n in (3, 700, 1_500, 30_000, 70_000):
        c = 6 * torch.cos(torch.arange(n, dtype=torch.float64))
        c[::3] = 2.18  # where one proposal ends and the other begins
        for name, b in shapes.items():
            if n > 2_000 and name == "0.3":
                continue
            b = b.repeat(n // 7 + 1)[:n] if isinstance(b, Tensor) else b
            found[f"{n} of {name}"] = digest(sample_pg(c, b, generator=torch.Generator().manual_seed(n)))
    return found


def integrals() -> Digests:
    mean = torch.tensor([-900.0, -360.0, -30.0, -1.5, 0.0, 0.5, 4.0, 80.0, 400.0], dtype=torch.float64)
    variances = (0.0, 0.5, 12.0, 12.0 + 1e-9, 40.0)
    found = {f"{v}": digest(torch.stack(log_sigmoid_expectation(mean, torch.full_like(mean, v)))) for v in variances}
    near = mean.abs() < 300
    found["near"] = digest(torch.stack(log_sigmoid_expectation(mean[near], torch.ones_like(mean[near]), 7)))
    return found


# ------------------------------------------------------------------------------------------------------------- trees


def trees() -> Digests:
    random, found = np.random.default_rng(0), {}
    for n, d in ((13, 4), (40, 60), (25, 2)):
        prototypes = random.normal(size=(n, d)).round(0 if d == 2 else 6)
        for name in ("two-means", "balanced", "ward", "random", "chain"):
            tree = TreeBuilder.of(name).build(prototypes, [f"class {c}" for c in range(n)], 3)
            found[f"{name} {n}"] = digest(np.concatenate([tree.order, tree.lo, tree.mid, tree.hi]))
    return found


# ------------------------------------------------------------------------------------------------------------ experts


def experts() -> Digests:
    found: Digests = {}
    new, _ = sphere([3, 3, 3], 7, seed=9)
    for case, counts in (("many", [5, 4, 6, 1, 2]), ("one shot", [1, 1, 1]), ("wide", [3, 2, 2])):
        X, y = sphere(counts, 12 if case == "wide" else 7, seed=1)
        points = sphere([4, 4], 12, seed=2)[0] if case == "wide" else new
        choices: dict[str, Any] = {
            "lda": LDA(),
            "ridge": Ridge(),
            "kernel ridge": KernelRidge(),
            "part of kernel ridge": KernelRidge(choose_on=10, at_most=12),
            "density": KernelDensity(),
            "random": RandomFeatures(Ridge(), 30, unit_length=False, seed=2),
            "pool": Pool(),
            "given": PriorScores(lambda x, classes=counts: x[:, : len(classes)]),
            "bayes": SklearnExpert(GaussianNB()),
        }
        for name, expert in choices.items():
            fit = expert.fit(Examples.of(X, y))
            found[f"{name}, {case}"] = digest(fit.left_out) + digest(fit.expert.log_probabilities(points))
    return found


def weighted_experts() -> Digests:
    """Examples that count more than once or less, among them classes of one and a class that hardly counts."""
    found: Digests = {}
    for case, counts, d in (("many", [5, 4, 6, 1, 2], 7), ("one shot", [1, 1, 1], 7), ("wide", [3, 2, 2], 12)):
        X, y = sphere(counts, d, seed=11)
        weights = 0.2 + 2.5 * torch.rand(len(y), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        weights[y == 1] *= 0.05
        examples = Examples.of(X, y, weights=weights)
        more, labels = sphere([2, 3], d, seed=12)
        for name, expert in {
            "lda": LDA(),
            "ridge": Ridge(),
            "kernel ridge": KernelRidge(choose_on=10, at_most=12),
            "density": KernelDensity(),
            "pool": Pool(),
            "bayes": SklearnExpert(GaussianNB()),
        }.items():
            fit = expert.fit(examples)
            found[f"{name}, {case}"] = digest(fit.left_out) + digest(fit.expert.log_probabilities(more))
            if name in ("lda", "density"):
                grown = fit.expert.grown(more, labels + len(counts) - 1, len(counts) + 1, labels / 3 + 0.5)
                found[f"{name}, {case}"] += digest(grown.log_probabilities(X))
        lda: Any = LDA().fit(examples).expert
        found[f"left out, {case}"] = digest(lda.left_out(lda.whitened(X), y, weights > 0.5, weights))
    return found


def calibrations() -> Digests:
    """Temperatures and pools of given scores: with and without weights, an expert that is no good, rows that agree."""
    random = torch.Generator().manual_seed(8)
    logs = torch.randn(3, 40, 4, generator=random, dtype=torch.float64).log_softmax(2)
    labels = torch.randint(4, (40,), generator=random)
    logs[0, torch.arange(40), labels] += 1.5
    logs[2, torch.arange(40), labels] -= 3.0
    weights, found = 3 * torch.rand(40, generator=random, dtype=torch.float64), {}
    for name, counts in (("plain", None), ("weighted", weights), ("hardly", weights / 1000)):
        found[f"pool, {name}"] = pool_weights(logs, labels, counts=counts).tolist()
        for k in range(3):
            centre = temperature_centre(logs[k], 2.0, counts)
            found[f"{k}, {name}"] = [centre, *best_temperature(logs[k], labels, centre, counts)]
            found[f"{k}, {name}"] += best_temperature(logs[k], logs[k].argmax(1), 3.0, counts)
    return found


def doubts() -> Digests:
    """Shares of wrong labels and pools that reckon with them, from none to many, by rows that count once or not."""
    random, found = np.random.default_rng(4), {}
    for wrong in (0, 4, 8, 25, 90):
        truth = random.integers(4, size=300)
        logs = torch.as_tensor(4.0 * np.eye(4)[truth] + 0.9 * random.normal(size=(2, 300, 4))).log_softmax(2)
        y = torch.as_tensor(np.where(np.arange(300) < wrong, (truth + 1) % 4, truth))
        counts = torch.as_tensor(2 * random.random(300))
        own = logs[1].gather(1, y[:, None])[:, 0].exp()
        for name, each in (("once", None), ("counted", counts)):
            noise = label_noise(own, 4, each)
            found[f"{wrong}, {name}"] = [noise, *robust_weights(0.6 * logs, y, each).tolist()]
        found[f"{wrong}"] = digest(right_label(own, 0.1, 4)) + digest(likelihood(own, 0.1, 4))
        codes = y.numpy()
        thresholds, few = class_thresholds(own.numpy(), codes, 4, 0.9)
        some = [probability_threshold(own.numpy(), codes, c) for c in (0.5, 0.8, 0.95)]
        found[f"{wrong}, sets"] = [*thresholds, *few.astype(float), *some, supported_coverage(codes)]
    return found


def experts_on_exemplars() -> Digests:
    X, y = sphere([9, 8, 12, 6], 7, seed=3)
    rows = torch.cat([(y == c).nonzero()[:2, 0] for c in range(4)])
    weights = torch.linspace(1, 4, len(rows), dtype=torch.float64)
    found: Digests = {}
    for name, expert in (("density", KernelDensity()), ("ridge", KernelRidge())):
        fit = expert.on_exemplars(rows, weights).fit(Examples.of(X, y, folds=torch.full_like(y, ALONE)))
        found[name] = digest(fit.left_out) + digest(fit.expert.log_probabilities(X[::4]))
    return found


def episodes() -> Digests:
    X, y = sphere([14, 9, 12, 5, 1, 30, 2], 6, seed=4)
    hashes, found = label_hashes([f"class {c}" for c in range(7)]), {}
    for name, selection in (("k", KMeansExemplars()), ("herd", Herding()), ("++", KMeansPlusPlusExemplars())):
        exemplars = select_exemplars(X.numpy(), y.numpy(), 3, selection, hashes, 5)
        found[f"exemplars {name}"] = digest(exemplars.rows) + digest(exemplars.weights)
    for share in (0.1, 0.35, 0.5):
        e = make_episode(X, y, hashes, share, Growth(shots=3), [5, 1], None)
        assert e is not None
        parts = (e.base.X, e.base.y, e.shots, e.shot_labels, e.queries, e.labels)
        found[f"episode {share}"] = [number for part in parts for number in digest(part)]
    exemplars = select_exemplars(X.numpy(), y.numpy(), 3, KMeansExemplars(), hashes, 5)
    held_out = np.arange(len(y)) % 3 > 0
    for name, rows in (("all", None), ("held out", held_out)):
        chosen = exemplars
        if rows is not None:
            chosen = select_exemplars(X.numpy(), y.numpy(), 3, KMeansExemplars(), hashes, 5, among=rows)
        learned = learn_novel_experts(X, y, chosen, hashes, Growth(shots=2), 5, FittedSingle(), rows)
        few = [learned.lda.shrinkage, learned.lda.count_penalty, learned.lda.temperature, learned.density.sharpness]
        few += [learned.density.temperature, learned.ridge_penalty, learned.ridge_temperature, learned.bias]
        found[f"learned {name}"] = [*few, *digest(learned.root_weights), *digest(learned.novel_weights)]
    for counts in ([6], [1, 1, 1, 1]):  # nothing to rehearse with
        X, y = sphere(counts, 6, seed=5)
        exemplars = select_exemplars(X.numpy(), y.numpy(), 3, Herding(), hashes[: len(counts)], 5)
        learned = learn_novel_experts(X, y, exemplars, hashes[: len(counts)], Growth(), 5, FittedSingle())
        few = [learned.lda.shrinkage, learned.lda.count_penalty, learned.lda.temperature, learned.density.temperature]
        few += [learned.density.sharpness, learned.ridge_penalty, learned.ridge_temperature]
        found[f"of {counts}"] = [*few, *learned.root_weights.tolist(), *learned.novel_weights.tolist()]
    return found


# ----------------------------------------------------------------------------------------------------- nodes and models


def node_problems(inducing: int | None = None) -> list[NodeProblem]:
    found = []
    for seed, n in enumerate((7, 5, 12, 11, 2, 5)):
        random = torch.Generator().manual_seed(seed)
        rows = torch.randperm(40, generator=random)[:n]
        left = torch.rand(n, generator=random) < 0.5
        mean = torch.randn(n, generator=random, dtype=torch.float64)
        weight = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)[torch.randint(3, (n,), generator=random)]
        points = None if inducing is None else rows[: min(n, inducing)]
        found.append(NodeProblem(rows, left, seed + (1 << 60), mean, weight, points))
    return found


def nodes() -> Digests:
    X = torch.as_tensor(np.random.default_rng(6).normal(size=(40, 3)))
    new = torch.as_tensor(np.random.default_rng(7).normal(size=(4, 3)))
    learn = LearnKernel(steps=4)
    ways: dict[str, tuple[Any, int | None]] = {
        "ascent": (CoordinateAscent(), None),
        "few sweeps": (CoordinateAscent(sweeps=2, tolerance=0.0), None),
        "sparse ascent": (CoordinateAscent(), 3),
        "learnt": (CoordinateAscent(learn=learn), None),
        "learnt by node and size": (CoordinateAscent(learn=LearnKernel(3, 0.2, True, "size")), None),
        "gibbs": (Gibbs(chains=3, steps=6, keep=5), None),
        "natural": (SparseVariational(step=0.7), 3),
        "batches": (SparseVariational(batch_size=4, sweeps=7, learn=learn), 3),
    }
    found: Digests = {}
    for kind in ("rbf", "linear"):
        for name, (inference, inducing) in ways.items():
            kernel = as_kernel(make_kernel(kind, 3.0, 1.3), torch.float64, torch.device("cpu"))
            fits = fit_nodes(node_problems(inducing), kernel, X, inference, memory_budget=2**26)
            predictor = NodePredictor(fits.grams, fits.posteriors, 2**26)
            at_mean, integrated = (predictor.log_probabilities(new, None, at) for at in ("mean", "quadrature"))
            numbers = [*digest(at_mean[0]), *digest(integrated[1]), *digest(predictor.moments(new)[1])]
            held = [value for value in vars(fits.diagnostics).values() if value is not None]
            found[f"{name}, {kind}"] = numbers + [n for value in held for n in digest(value)]
    return found


def models() -> Digests:
    X, y = sphere([9, 4, 12, 3, 7], 4, seed=8)
    labels, found = [f"class {c}" for c in range(5)], {}
    forest = [TreeBuilder.of(name).build(np.eye(5, 4), labels, 1) for name in ("random", "chain")]
    scores = torch.as_tensor(np.random.default_rng(1).normal(size=(35, 5)))
    inducing = torch.cat([(y == c).nonzero()[:2, 0] for c in range(5)]).numpy()
    limits: dict[str, Any] = {
        "none": None,
        "subset": SubsetOfData(6),
        "few": SubsetOfData(3),
        "inducing": InducingPoints(5),
        "fixed": FixedInducingPoints(4, 20),
    }
    for name, limit in limits.items():
        for way in (CoordinateAscent(), Gibbs(chains=2)):
            if isinstance(way, Gibbs) and name in ("inducing", "fixed"):
                continue
            kernel = as_kernel(make_kernel("rbf", 3.0, 1.3), torch.float64, torch.device("cpu"))
            data = TrainingData(X, y.numpy(), labels, scores, inducing=inducing if name == "fixed" else None)
            model = fit_forest(forest, data, kernel, way, large_nodes=limit, memory_budget=2**26, seed=2)
            out = left_out_predictions(model, y.numpy(), scores, predict_at="quadrature")
            predicted = model.log_probabilities(X[::5], lambda chunk: scores[::5][chunk], "quadrature")
            found[f"{name}, {type(way).__name__}"] = (
                digest(predicted) + digest(out.log_probabilities) + digest(out.novelty)
            )
    return found


def grown() -> Digests:
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 10)
    X = random.normal(size=(8, 6))[y] + 0.5 * random.normal(size=(80, 6))
    base, first, second = y < 5, (y == 5) | (y == 6), y == 7
    found: Digests = {}
    with small_random_features(lda=20, ridge=25, shares=NOVEL_SHARES), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for strategy in (None, Graft(), RebuildTree(), SessionTree()):
            growth = (
                Growth(exemplars=3, shots=4) if strategy is None else Growth(strategy=strategy, exemplars=3, shots=4)
            )
            model = GPForestClassifier(n_estimators=2, growth=growth, random_state=0, device="cpu")
            model.fit(X[base], y[base])
            model.add_classes(X[first], y[first]).add_classes(X[second][:1], y[second][:1])
            model.add_examples(X[base][::9], y[base][::9])
            numbers = digest(model.predict_proba(X[::7])) + digest(model.novelty_score(X[::7]))
            model.merge_classes([0, 6], 0).remove_classes([5])
            found[type(strategy).__name__] = numbers + digest(model.predict_proba(X[::7]))
        plain = GPTreeClassifier.paper("rbf", 8.0, inference=Gibbs(chains=3), growth=None, random_state=0, device="cpu")
        plain.fit(X[base], y[base]).add_classes(X[first], y[first])
        found["paper"] = digest(plain.predict_proba(X[::7]))
    return found


PROBLEMS: dict[str, Callable[[], Digests]] = {
    each.__name__: each
    for each in (
        draws,
        integrals,
        trees,
        experts,
        weighted_experts,
        calibrations,
        doubts,
        experts_on_exemplars,
        episodes,
        nodes,
        models,
        grown,
    )
}


#: Where a search by L-BFGS ends depends a little on rounding.
ROUNDING = {"episodes": 1e-6, "grown": 1e-6}


@pytest.mark.parametrize("name", PROBLEMS)
def test_numbers_are_those_stored(name: str) -> None:
    found, stored = PROBLEMS[name](), json.loads(STORED.read_text())[name]
    assert found.keys() == stored.keys()
    for key, numbers in found.items():
        np.testing.assert_allclose(numbers, stored[key], rtol=ROUNDING.get(name, 1e-8), atol=1e-9, err_msg=key)


if __name__ == "__main__":
    everything = {name: problem() for name, problem in PROBLEMS.items()}
    parts = []
    for name, found in everything.items():
        rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(numbers)}" for key, numbers in found.items())
        parts.append(f" {json.dumps(name)}: {{\n{rows}\n }}")
    STORED.write_text("{\n" + ",\n".join(parts) + "\n}\n")
