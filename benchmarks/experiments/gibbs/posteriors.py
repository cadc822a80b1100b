"""Posteriors at single nodes.

How far are the approximate posteriors of a node from the exact one?

The latent mean of Gibbs sampling with 512 chains is {mean shift | Gibbs, 1 step} standard deviations off after one
step, {mean shift | Gibbs, 10 steps} after ten and {mean shift | Gibbs, 100 steps} after a hundred, where two long
chains differ by {mean shift | another long chain}. Coordinate ascent is off by {mean shift | coordinate ascent}, sparse
variational inference with half of the points by {mean shift | sparse variational}, a Laplace approximation by
{mean shift | Laplace}.

Findings
--------
- Chains begin with a draw from the prior, and one step is as good as a hundred at nodes of this size: what is left is
  the noise of 512 draws.
- Standard deviations of coordinate ascent are {mean spread | coordinate ascent} times the exact ones, those of Laplace
  {mean spread | Laplace}, those of one step of Gibbs sampling {mean spread | Gibbs, 1 step}.
- p(left), integrated over the posterior, moves by {mean probability | Gibbs, 1 step} with one step of Gibbs sampling,
  {mean probability | Gibbs, 10 steps} with ten, {mean probability | coordinate ascent} with coordinate ascent,
  {mean probability | sparse variational} with half of the points and {mean probability | Laplace} with Laplace.

Set-up
------
Five nodes: two digits of scikit-learn each, eight rows of either, an RBF kernel (output scale 4, length-scale 1) on
centred rows of unit length, zero prior mean. Compared at 40 other rows of the two digits with 64 chains of 400 steps,
the last 100 of each kept: the distance of the latent means in exact standard deviations, the ratio of the standard
deviations (geometric mean), and the distance of p(left). Gibbs sampling has 512 chains and keeps the last draw of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from examples.own_inference import Laplace
from gptree import CoordinateAscent, Gibbs, SphereMap
from gptree.inference import Inference, NodePredictor, NodeProblem, fit_nodes
from gptree.maths import as_kernel, make_kernel

GROUP, SEEDS, NEEDS_DATA = "The paper's experiments", 1, False

ROWS, NEW, BUDGET = 8, 40, 2**28
DIGITS = (3, 8, 9, 4, 1, 7)  # five pairs of neighbours
SETTLED = CoordinateAscent(sweeps=2000, tolerance=1e-10)
METHODS: dict[str, tuple[Inference, bool]] = {
    "another long chain": (Gibbs(chains=64, steps=400, keep=100), False),
    "Gibbs, 1 step": (Gibbs(chains=512, steps=1), False),
    "Gibbs, 10 steps": (Gibbs(chains=512, steps=10), False),
    "Gibbs, 100 steps": (Gibbs(chains=512, steps=100), False),
    "coordinate ascent": (SETTLED, False),
    "sparse variational": (SETTLED, True),
    "Laplace": (Laplace(), False),
}
COLUMNS = {
    "shift": Column("latent mean off by, in standard deviations", "metrics.shift", digits=3, better=min),
    "spread": Column("standard deviation, times the exact one", "metrics.spread", digits=3),
    "probability": Column("p(left) off by", "metrics.probability", digits=4, better=min),
}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("gibbs-posteriors", method, "digits", seed, {"left": left, "right": right})
        for method in METHODS
        for seed in range(seeds)
        for left, right in pairwise(DIGITS)
    ]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    pair = (trial.settings["left"], trial.settings["right"])
    random = np.random.default_rng([trial.seed, *pair])
    X, y = load_digits(return_X_y=True)
    rows = [random.permutation(np.flatnonzero(y == digit))[: ROWS + NEW // 2] for digit in pair]
    known, new = (np.concatenate([each[part] for each in rows]) for part in (slice(ROWS), slice(ROWS, None)))
    sphere = SphereMap().fit(X[known])
    x, x_new = (torch.as_tensor(sphere.transform(X[part])) for part in (known, new))
    left = torch.as_tensor(y[known] == pair[0])
    exact = _moments(Gibbs(chains=64, steps=400, keep=100), False, x, left, x_new, seed=1_000 + trial.seed)
    found = _moments(*METHODS[trial.method], x, left, x_new, seed=trial.seed)
    return {
        "shift": float(np.mean(np.abs(found[0] - exact[0]) / exact[1])),
        "spread": float(np.exp(np.mean(np.log(found[1] / exact[1])))),
        "probability": float(np.mean(np.abs(found[2] - exact[2]))),
    }


def _moments(
    inference: Inference, sparse: bool, x: torch.Tensor, left: torch.Tensor, x_new: torch.Tensor, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and standard deviation of the latent function at new rows, and p(left) there."""
    kernel = as_kernel(make_kernel("rbf", 4.0, 1.0), torch.float64, torch.device("cpu"))
    inducing = torch.arange(0, len(x), 2) if sparse else None
    problem = NodeProblem(torch.arange(len(x)), left, seed, inducing=inducing)
    fits = fit_nodes([problem], kernel, x, inference, memory_budget=BUDGET)
    predictor = NodePredictor(fits.grams, fits.posteriors, BUDGET)
    mean, variance = predictor.moments(x_new)
    log_left, _ = predictor.log_probabilities(x_new, predict_at="quadrature")
    return mean[0].numpy(), variance[0].sqrt().numpy(), log_left[0].exp().numpy()


def tables(rows: list[Row]) -> list[Table]:
    return [listing("Five nodes", rows, ["method"], COLUMNS.values())]
