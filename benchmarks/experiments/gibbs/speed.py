"""Speed of Gibbs sampling.

How long does Gibbs sampling on a whole tree take?

At 200 classes and 4 chains {mean total | gptree | classes=200 | chains=4} s on one thread and
{mean total | gptree, GPU | classes=200 | chains=4} s on a GPU; a plain loop takes
{mean total | plain loop | classes=200 | chains=4} s, the authors' code 310 s (quoted).

Findings
--------
- `Gibbs(pooled=True)`, one factor for all draws of a large node, takes {mean total | gptree, one factor | classes=60
  | chains=20} s where every draw with its own takes {mean total | gptree | classes=60 | chains=20} s (60 classes, 20
  chains). The probability that moves most moves by {mean moved | gptree, one factor | classes=60 | chains=20}, the mean
  of three seeds. With few chains it gains less: {mean total | gptree, one factor | classes=60 | chains=4} against {mean
  total | gptree | classes=60 | chains=4} s with 4. It is offered and not the default: the default is the sampler of the
  paper, and whoever samples rather than ascends (by default nobody does) asks for its draws.

Set-up
------
Build, fit and predict. Made-up features (`structured`, 2,048 dimensions, 30 training and 15 test points a class),
linear kernel of output scale 4, one Gibbs step, quadrature, float32, one thread, each trial in a fresh process; wall-
clock seconds on a GPU. "Plain loop" is a loop over nodes and chains that computes the Gram matrix once and inverts
nothing, in the same run. "One factor" is `Gibbs(pooled=True)`: variances of large nodes at the mean ω of the draws;
"moved" is the largest change of a probability by it, on the same draws. The authors' code is quoted from one earlier
measurement of the same work: the GP-Tree authors' public implementation (2022), one thread, float32, measured once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.core.figures import panels
from benchmarks.core.tables import Column, Summary, Table, chosen, grouped
from benchmarks.core.trials import Row, Trial
from benchmarks.data.structured import make
from gptree import ClassTree, Gibbs, GPTreeClassifier, UnitLength
from gptree.maths import log_sigmoid_expectation, sample_pg
from gptree.metrics import accuracy, nll
from gptree.tree import TwoMeans, class_log_probabilities

GROUP, SEEDS, NEEDS_DATA, FRESH_PROCESS = "Speed and size", 3, False, True

SIZES = ((10, 20), (60, 1), (60, 4), (60, 20), (200, 1), (200, 4))
SCALE = 4.0
OURS, ON_GPU, LOOP, THEIRS = "gptree", "gptree, GPU", "plain loop", "authors' code (quoted)"
POOLED, POOLED_SIZES = "gptree, one factor", ((60, 4), (60, 20), (200, 4))
#: Processor seconds, peak MB, accuracy and NLL of the authors' code.
AUTHORS = {
    (10, 20): (0.88, 462, 0.947, 0.81),
    (60, 1): (7.4, 780, 0.696, 1.6),
    (60, 4): (12.2, 855, 0.709, 1.56),
    (60, 20): (38.3, 1705, 0.708, 1.56),
    (200, 1): (221, 3497, 0.453, 2.37),
    (200, 4): (310, 4608, 0.467, 2.35),
}


def trials(seeds: int) -> list[Trial]:
    """The plain loop and the GPU have one seed."""
    sizes = [(OURS, size, seed) for seed in range(seeds) for size in SIZES]
    sizes += [(POOLED, size, seed) for seed in range(seeds) for size in POOLED_SIZES]
    sizes += [(LOOP, size, 0) for size in SIZES] + [(ON_GPU, size, 0) for size in (*SIZES, (200, 20))]
    return [
        Trial("gibbs-speed", method, "structured", seed, {"classes": classes, "chains": chains})
        for method, (classes, chains), seed in sizes
    ]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    """Processor seconds (wall seconds on a GPU) of each part, accuracy and NLL; data and imports are not timed."""
    torch.set_num_threads(1)
    classes, chains = trial.settings["classes"], trial.settings["chains"]
    X, y, X_new, y_new = make(classes)
    cuda = trial.method == ON_GPU
    estimator = GPTreeClassifier.paper(  # making a kernel is what first imports parts of torch
        "linear",
        SCALE,
        inference=Gibbs(chains, pooled=trial.method == POOLED),
        dtype="float32",
        device="cuda" if cuda else "cpu",
        random_state=trial.seed,
    )
    if cuda:
        _warm_up()
    clock = time.perf_counter if cuda else time.process_time
    start = clock()
    means = np.stack([X[y == c].mean(0) for c in range(classes)])
    tree = TwoMeans().build(means, range(classes), trial.seed)
    built = clock()
    if trial.method == LOOP:
        fitted, log_p = _plain_loop(tree, X, y, X_new, chains, clock)
    else:
        estimator.set_params(tree=tree).fit(X, y)
        fitted = clock()
        log_p = estimator.predict_log_proba(X_new)
    done = clock()
    p = np.exp(log_p)
    moved = {}
    if trial.method == POOLED:
        exact = estimator.set_params(inference=Gibbs(chains)).fit(X, y).predict_proba(X_new)
        moved = {"moved": float(np.abs(exact - p).max())}
    return {
        **moved,
        "tree": built - start,
        "fit": fitted - built,
        "predict": done - fitted,
        "total": done - start,
        "accuracy": accuracy(p, y_new),
        "nll": nll(p, y_new),
    }


def _warm_up() -> None:
    """Loads the GPU's libraries, which the first call of a process pays for, on a small problem."""
    X, y, X_new, _ = make(4)
    GPTreeClassifier.paper("linear", SCALE, inference=Gibbs(2), dtype="float32", device="cuda").fit(X, y).predict(X_new)


def _plain_loop(tree: ClassTree, X: np.ndarray, y: np.ndarray, X_new: np.ndarray, chains: int, clock) -> Any:
    """Node by node and chain by chain; one Gram matrix for all, no explicit inverses, nothing else clever."""
    unit = UnitLength().fit(X)
    x, x_new = (torch.as_tensor(unit.transform(part)) for part in (X, X_new))
    K, K_new = SCALE * x @ x.mT, SCALE * x @ x_new.mT
    prior = SCALE * x_new.square().sum(1)
    generator = torch.Generator().manual_seed(0)
    posteriors = []
    for v in range(tree.n_nodes):
        rows = np.flatnonzero(np.isin(y, tree.members(v)))
        K_v = K[rows][:, rows]
        kappa = torch.as_tensor(np.isin(y[rows], tree.left(v)), dtype=K.dtype) - 0.5
        posteriors.append((rows, [_one_chain(K_v, x[rows], kappa, generator) for _ in range(chains)]))
    fitted = clock()
    log_left, log_right = torch.empty(2, tree.n_nodes, len(x_new))
    for v, (rows, draws) in enumerate(posteriors):
        sides = []
        for root, L, alpha in draws:
            scaled = root[:, None] * K_new[rows]
            variance = prior - torch.linalg.solve_triangular(L, scaled, upper=False).square().sum(0)
            sides.append(torch.stack(log_sigmoid_expectation(K_new[rows].mT @ alpha, variance)))
        log_left[v], log_right[v] = torch.stack(sides).logsumexp(0) - np.log(chains)
    return fitted, class_log_probabilities(tree, log_left, log_right).numpy()


def _one_chain(K: Tensor, X: Tensor, kappa: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """One Gibbs step from the prior, then the conditional given ω: √ω, the factor of B and α."""

    def factor(omega: Tensor) -> tuple[Tensor, Tensor]:
        root = omega.sqrt()
        return root, torch.linalg.cholesky(torch.eye(len(K)) + root[:, None] * K * root)

    def prior_draw() -> Tensor:
        return SCALE**0.5 * X @ torch.randn(X.shape[1], generator=generator)

    root, L = factor(sample_pg(prior_draw(), generator=generator))
    f = prior_draw()
    noise = torch.randn(len(K), generator=generator)
    correction = torch.cholesky_solve((root * (K @ kappa + f) + noise)[:, None], L)[:, 0]
    f = f + K @ (kappa - root * correction)
    root, L = factor(sample_pg(f, generator=generator))
    return root, L, kappa - root * torch.cholesky_solve((root * (K @ kappa))[:, None], L)[:, 0]


COLUMNS = {
    "tree": Column("tree s", "metrics.tree", digits=2),
    "fit": Column("fit s", "metrics.fit", digits=2),
    "predict": Column("predict s", "metrics.predict", digits=2),
    "total": Column("total s", "metrics.total", digits=2),
    "memory": Column("peak MB", "peak_memory_bytes", scale=1e-6, digits=0),
    "accuracy": Column("accuracy", "metrics.accuracy"),
    "NLL": Column("NLL", "metrics.nll"),
    "moved": Column("moved", "metrics.moved", digits=4),
}


def tables(rows: list[Row]) -> list[Table]:
    """Every method at every size, the ratio to gptree of the same size, and the quoted code."""
    groups = dict(sorted(grouped(rows, ["settings.classes", "settings.chains", "method"]).items()))
    lines = []
    for classes, chains in dict.fromkeys(key[:2] for key in groups):
        total = Summary.of(groups.get((classes, chains, OURS), []), COLUMNS["total"]).mean
        for (*size, method), group in groups.items():
            if size == [classes, chains]:
                texts = [Summary.of(group, column).text(column.digits) for column in COLUMNS.values()]
                ratio = f"{Summary.of(group, COLUMNS['total']).mean / total:.1f}"
                lines.append([str(classes), str(chains), method, *texts, ratio, str(len(group))])
        if (classes, chains) in AUTHORS:
            seconds, *others = AUTHORS[classes, chains]
            texts = ["–", "–", "–", str(seconds), *map(str, others), "–", f"{seconds / total:.1f}", "1"]
            lines.append([str(classes), str(chains), THEIRS, *texts])
    titles = ["classes", "chains", "method", *(column.title for column in COLUMNS.values()), "× gptree", "runs"]
    return [Table("Build, fit and predict", titles, lines)]


def figure(rows: list[Row], path: Path) -> None:
    """Total seconds at every size."""
    totals = {method: [_total(rows, method, *size) for size in SIZES] for method in (OURS, ON_GPU, LOOP)}
    totals[THEIRS] = [AUTHORS[size][0] for size in SIZES]
    picture, (ax,) = panels(1, 1, width=8, height=3.6)
    for place, (method, seconds) in enumerate(totals.items()):
        ax.bar(np.arange(len(SIZES)) + 0.2 * place - 0.3, seconds, width=0.18, label=method)
    ax.set_xticks(range(len(SIZES)), [f"{classes} classes,\n{chains} chains" for classes, chains in SIZES])
    ax.set(yscale="log", ylabel="seconds")
    ax.legend(frameon=False, fontsize="small")
    picture.savefig(path, dpi=150)


def _total(rows: list[Row], method: str, classes: int, chains: int) -> float:
    return Summary.of(chosen(rows, method=method, classes=classes, chains=chains), COLUMNS["total"]).mean


def needs_gpu(trial: Trial) -> bool:
    return trial.method == ON_GPU
