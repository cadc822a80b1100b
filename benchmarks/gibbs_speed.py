"""Speed of Gibbs sampling on a whole tree: build, fit and predict, against a plain loop over nodes and chains.

Work: `make_features` ("structured", 2,048 dimensions, 30 training and 15 test points a class), linear kernel of output
scale 4, one Gibbs step, quadrature, float32, one thread. Run it on an otherwise idle machine:

    python -m benchmarks.gibbs_speed            # measures what has no row yet, prints the table
    python -m benchmarks.gibbs_speed --cuda     # the same on a GPU
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.make_features import make
from benchmarks.rows import Row, Rows, Trial, run_trials
from benchmarks.tables import Column, Summary, grouped
from gptree import ClassTree, Gibbs, GPTreeClassifier
from gptree.estimators import UnitLength
from gptree.maths import log_sigmoid_expectation, sample_pg
from gptree.metrics import accuracy, nll
from gptree.tree import TwoMeans, class_log_probabilities

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "gibbs_speed.jsonl"
REFERENCE = HERE / "reference" / "gibbs_speed.json"
SIZES = ((10, 20), (60, 1), (60, 4), (60, 20), (200, 1), (200, 4))
SCALE = 4.0


def trials(cuda: bool, seeds: int) -> list[Trial]:
    if cuda:
        return [_trial("gptree, GPU", classes, chains, 0) for classes, chains in (*SIZES, (200, 20))]
    ours = [_trial("gptree", classes, chains, seed) for seed in range(seeds) for classes, chains in SIZES]
    return ours + [_trial("plain loop", classes, chains, 0) for classes, chains in SIZES]


def _trial(method: str, classes: int, chains: int, seed: int) -> Trial:
    return Trial("gibbs_speed", method, "structured", seed, {"classes": classes, "chains": chains})


def run(trial: Trial) -> Mapping[str, Any]:
    """Processor seconds (wall seconds on a GPU) of each part, accuracy and NLL; data and imports are not timed."""
    torch.set_num_threads(1)
    classes, chains = trial.settings["classes"], trial.settings["chains"]
    X, y, X_new, y_new = make(classes, "structured")
    cuda = trial.method == "gptree, GPU"
    estimator = GPTreeClassifier.paper(  # making a kernel is what first imports parts of torch
        "linear", SCALE, inference=Gibbs(chains), dtype="float32", random_state=trial.seed
    ).set_params(device="cuda" if cuda else "cpu")
    if cuda:
        _warm_up()
    clock = time.perf_counter if cuda else time.process_time
    start = clock()
    means = np.stack([X[y == c].mean(0) for c in range(classes)])
    tree = TwoMeans().build(means, range(classes), trial.seed)
    built = clock()
    if trial.method == "plain loop":
        fitted, log_p = _plain_loop(tree, X, y, X_new, chains, clock)
    else:
        estimator.set_params(tree=tree).fit(X, y)
        fitted = clock()
        log_p = estimator.predict_log_proba(X_new)
    done = clock()
    p = np.exp(log_p)
    return {
        "tree": built - start,
        "fit": fitted - built,
        "predict": done - fitted,
        "total": done - start,
        "accuracy": accuracy(p, y_new),
        "nll": nll(p, y_new),
    }


def _warm_up() -> None:
    """Loads the GPU's libraries, which the first call of a process pays for, on a small problem."""
    X, y, X_new, _ = make(4, "structured")
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


COLUMNS = (
    Column("tree s", "metrics.tree", digits=2),
    Column("fit s", "metrics.fit", digits=2),
    Column("predict s", "metrics.predict", digits=2),
    Column("total s", "metrics.total", digits=2),
    Column("peak MB", "peak_memory_bytes", scale=1e-6, digits=0),
    Column("accuracy", "metrics.accuracy"),
    Column("NLL", "metrics.nll"),
)


def table(rows: list[Row]) -> str:
    """Every method at every size, the ratio to gptree of the same size, and the quoted reference."""
    groups = dict(sorted(grouped(rows, ["settings.classes", "settings.chains", "method"]).items()))
    quoted = json.loads(REFERENCE.read_text())
    head = ["classes", "chains", "method", *(column.title for column in COLUMNS), "× gptree", "runs"]
    lines = [head, ["---"] * len(head)]
    for classes, chains in dict.fromkeys(key[:2] for key in groups):
        ours = groups.get((classes, chains, "gptree"))
        total = Summary.of(ours, COLUMNS[3]).mean if ours else float("nan")
        for key, group in groups.items():
            if key[:2] == (classes, chains):
                numbers = [Summary.of(group, column) for column in COLUMNS]
                texts = [number.text(column.digits) for number, column in zip(numbers, COLUMNS, strict=True)]
                lines.append([*map(str, key), *texts, f"{numbers[3].mean / total:.1f}", str(len(group))])
        for row in quoted["rows"]:
            if (row["classes"], row["chains"]) == (classes, chains):
                texts = ["–", "–", "–", str(row["cpu"]), str(row["peak_mb"]), str(row["accuracy"]), str(row["nll"])]
                ratio = f"{row['cpu'] / total:.1f}"
                lines.append([str(classes), str(chains), "authors' code (quoted)", *texts, ratio, "1"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\nQuoted: {quoted['source']}.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", action="store_true", help="measure on the GPU")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of gptree's runs; the plain loop has one")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows = Rows(arguments.results)
    run_trials(trials(arguments.cuda, arguments.seeds), run, rows, fresh_process=True)
    print(table(list(rows)))


if __name__ == "__main__":
    main()
