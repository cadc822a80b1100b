"""Two forms of a sparse node.

Should a sparse node be kept whitened or in its dual form?

Whitened, as `SparseVariational` does: wherever K_mm can be factorised it goes through, at errors that hardly depend on
its condition; the dual form loses digits with it and fails from about 5e4 on, with jitter as well, because R holds the
small eigenvalues of K_mm beside the large ones of the data term. They cost the same: a step with 1,000 inducing points
takes {mean ms | whitened | measured=step | inducing=1000} and {mean ms | dual | measured=step | inducing=1000} ms.

Set-up
------
Whitened: q(w) = N(P⁻¹ η, P⁻¹) at w = L⁻¹ u, L Lᵀ = K_mm, with A = L⁻¹ K_mn and the best P̂ = I + A Λ Aᵀ, η̂ = A κ.
Dual: T̂ = K_mn Λ K_nm, t̂ = K_mn κ and R = K_mm + T; then q(u) = N(K_mm R⁻¹ t, K_mm R⁻¹ K_mm).

t = L η and T = L (P − I) Lᵀ, so in exact arithmetic natural-gradient steps of both pass through the same q (a test, to
1e-8 in float64). They differ in what is factorised: P has no eigenvalue below 1, R has the smallest ones of K_mm beside
those of T, which are larger than any of K_mm.

One node of 2,048 rows, 16 classes and 512 made-up features takes 20 steps in float32, from frozen-like features
("spread") and from ones as tight around their classes as a trained network makes them: the largest errors of the latent
mean and variance at 512 new rows against float64, and the error of the bound a row, or which matrix could not be
factorised. Output scale 4; jitter is relative to the diagonal. A step is one of a mini-batch of 256 rows, in float32,
kernel matrices given; one thread.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from benchmarks.core.tables import Column, Table, grouped, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data.structured import class_by_class
from gptree import SphereMap
from gptree.inference import class_inducing
from gptree.maths import as_kernel, gram, log_cosh, make_kernel, pg_mean
from gptree.tree import label_hashes

GROUP, NEEDS_DATA = "Speed and size", False

CLASSES, ROWS, NEW, DIMENSIONS, OUTPUT_SCALE = 16, 2048, 512, 512, 4.0
STEPS = 20
#: Of rows around their class: frozen features, and features that a network was trained to separate.
NOISE = {"spread": 1.8, "tight": 0.2}
LENGTH_SCALES, INDUCING, JITTER = (1.0, 4.0, 16.0), (64, 256, 1024), (0.0, 1e-3)
STEP_SIZES, BATCH = (500, 1000), 256

# ----------------------------------------------------------------------------------------------------- the two forms


class NotFactorised(ValueError):
    """Which matrix is not positive definite in this arithmetic."""


def factor(matrix: Tensor, name: str) -> Tensor:
    root, info = torch.linalg.cholesky_ex(matrix)
    if bool(info != 0) or not bool(torch.isfinite(root.diagonal().sum())):
        raise NotFactorised(name)
    return root


def _solve(L: Tensor, right: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(L, right, upper=False)


def _log_determinant(L: Tensor) -> Tensor:
    return 2 * L.diagonal().log().sum()


State = tuple[Tensor, Tensor]
"""A vector (M, 1) and a matrix (M, M): η and P, or t and T."""


class Form(Protocol):
    def prior(self, K_mm: Tensor) -> State: ...

    def factors(self, K_mm: Tensor, state: State) -> tuple[Tensor, Tensor]: ...

    def rows(
        self, factors: tuple[Tensor, Tensor], state: State, K_mn: Tensor, k_nn: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What the best state is made of (M, N), and the mean and variance of f at N rows."""
        ...

    def best(self, basis: Tensor, lam: Tensor, kappa: Tensor) -> State: ...

    def kl(self, factors: tuple[Tensor, Tensor], state: State) -> Tensor: ...


class Whitened:
    def prior(self, K_mm: Tensor) -> State:
        return torch.zeros_like(K_mm[:, :1]), torch.eye(len(K_mm)).to(K_mm)

    def factors(self, K_mm: Tensor, state: State) -> tuple[Tensor, Tensor]:
        return factor(K_mm, "K_mm"), factor(state[1], "P")

    def rows(
        self, factors: tuple[Tensor, Tensor], state: State, K_mn: Tensor, k_nn: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        A = _solve(factors[0], K_mn)
        C = _solve(factors[1], A)
        mean = (C.mT @ _solve(factors[1], state[0])).squeeze(-1)
        return A, mean, k_nn - A.square().sum(0) + C.square().sum(0)

    def best(self, basis: Tensor, lam: Tensor, kappa: Tensor) -> State:
        P = (basis * lam) @ basis.mT
        P.diagonal().add_(1.0)
        return basis @ kappa.unsqueeze(-1), P

    def kl(self, factors: tuple[Tensor, Tensor], state: State) -> Tensor:
        # ½ [tr P⁻¹ + ‖P⁻¹ η‖² − M + log |P|]
        _, L_P = factors
        trace = _solve(L_P, torch.eye(len(L_P)).to(L_P)).square().sum()
        mean = torch.cholesky_solve(state[0], L_P)
        return 0.5 * (trace + mean.square().sum() - len(L_P) + _log_determinant(L_P))


class Dual:
    def prior(self, K_mm: Tensor) -> State:
        return torch.zeros_like(K_mm[:, :1]), torch.zeros_like(K_mm)

    def factors(self, K_mm: Tensor, state: State) -> tuple[Tensor, Tensor]:
        return factor(K_mm, "K_mm"), factor(K_mm + state[1], "R")

    def rows(
        self, factors: tuple[Tensor, Tensor], state: State, K_mn: Tensor, k_nn: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        C = _solve(factors[1], K_mn)
        mean = (C.mT @ _solve(factors[1], state[0])).squeeze(-1)
        return K_mn, mean, k_nn - _solve(factors[0], K_mn).square().sum(0) + C.square().sum(0)

    def best(self, basis: Tensor, lam: Tensor, kappa: Tensor) -> State:
        return basis @ kappa.unsqueeze(-1), (basis * lam) @ basis.mT

    def kl(self, factors: tuple[Tensor, Tensor], state: State) -> Tensor:
        # ½ [tr(R⁻¹ K_mm) + tᵀ R⁻¹ K_mm R⁻¹ t − M + log |R| − log |K_mm|]
        L, L_R = factors
        trace, mean = _solve(L_R, L).square().sum(), L.mT @ torch.cholesky_solve(state[0], L_R)
        return 0.5 * (trace + mean.square().sum() - len(L) + _log_determinant(L_R) - _log_determinant(L))


FORMS: dict[str, Form] = {"whitened": Whitened(), "dual": Dual()}


class Node(NamedTuple):
    """Kernel matrices of a node, K_mm with its jitter, and κ = y − ½ of its rows."""

    K_mm: Tensor
    K_mn: Tensor
    k_nn: Tensor
    kappa: Tensor


def step(form: Form, node: Node, state: State, rate: float = 1.0, scale: float = 1.0) -> State:
    """A natural-gradient step; `scale` is the number of rows for which each row stands."""
    basis, mean, variance = form.rows(form.factors(node.K_mm, state), state, node.K_mn, node.k_nn)
    c = (variance.clamp_min(0.0) + mean.square()).sqrt()
    best = form.best(basis, scale * pg_mean(c, torch.ones_like(c)), scale * node.kappa)
    return state[0].lerp(best[0], rate), state[1].lerp(best[1], rate)


def bound(form: Form, node: Node, state: State) -> Tensor:
    """Σ κ E[f] − log(2 cosh(c / 2)) − KL at the best c² = E[f²]."""
    factors = form.factors(node.K_mm, state)
    _, mean, variance = form.rows(factors, state, node.K_mn, node.k_nn)
    c = (variance.clamp_min(0.0) + mean.square()).sqrt()
    return (node.kappa * mean - log_cosh(c / 2) - math.log(2)).sum() - form.kl(factors, state)


class Prediction(NamedTuple):
    mean: Tensor
    variance: Tensor
    bound: Tensor


def fit(form: Form, node: Node, K_new: Tensor, k_new: Tensor, steps: int = STEPS) -> Prediction:
    """Steps of size 1 on all rows, then the posterior at new rows."""
    state = form.prior(node.K_mm)
    for _ in range(steps):
        state = step(form, node, state)
    _, mean, variance = form.rows(form.factors(node.K_mm, state), state, K_new, k_new)
    return Prediction(mean.double(), variance.double(), bound(form, node, state).double())


# ------------------------------------------------------------------------------------------------------- the trials


@functools.cache
def _data(noise: float, inducing: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows (float32, unit length), whether each goes left, which are inducing points, and new rows."""
    each, new = ROWS // CLASSES, NEW // CLASSES
    made = np.stack(list(class_by_class(CLASSES, each + new, DIMENSIONS, noise=noise)))
    X, X_new = made[:, :each].reshape(ROWS, -1), made[:, each:].reshape(NEW, -1)
    sphere, y = SphereMap().fit(X), np.repeat(np.arange(CLASSES), each)
    X, X_new = sphere.transform(X), sphere.transform(X_new)
    chosen = class_inducing(X, y, inducing // CLASSES, label_hashes(range(CLASSES)), 0)
    return X, y < CLASSES // 2, chosen, X_new


def _problem(settings: Mapping[str, Any], dtype: torch.dtype) -> tuple[Node, Tensor, Tensor]:
    X, left, chosen, X_new = _data(NOISE[settings["features"]], settings["inducing"])
    kernel = as_kernel(make_kernel("rbf", OUTPUT_SCALE, settings["length_scale"]), dtype, torch.device("cpu"))
    x, x_new = (torch.as_tensor(part, dtype=dtype) for part in (X, X_new))
    points = x[torch.as_tensor(chosen)]
    K_mm, K_mn, K_new = (gram(kernel, points, other) for other in (points, x, x_new))
    K_mm.diagonal().add_(settings["jitter"] * OUTPUT_SCALE)
    kappa = torch.as_tensor(left, dtype=dtype) - 0.5
    variances = [torch.full((n,), OUTPUT_SCALE, dtype=dtype) for n in (ROWS, NEW)]
    return Node(K_mm, K_mn, variances[0], kappa), K_new, variances[1]


@functools.lru_cache(maxsize=1)
def _exact(key: tuple[tuple[str, Any], ...]) -> tuple[Prediction, float]:
    """In float64, and the condition number of K_mm; the same for both forms."""
    problem = _problem(dict(key), torch.float64)
    return fit(FORMS["whitened"], *problem), float(torch.linalg.cond(problem[0].K_mm))


def rounding(trial: Trial) -> Mapping[str, Any]:
    """Largest errors at new rows, the bound's error a row, and what failed."""
    exact, condition = _exact(tuple(sorted(trial.settings.items())))
    try:
        single = fit(FORMS[trial.method], *_problem(trial.settings, torch.float32))
    except NotFactorised as error:
        return {"condition": condition, "failed": str(error)}
    return {
        "condition": condition,
        "failed": None,
        "mean_error": float((single.mean - exact.mean).abs().max()),
        "variance_error": float((single.variance - exact.variance).abs().max()),
        "bound_error": float((single.bound - exact.bound).abs()) / ROWS,
        "negative_variances": float((single.variance < 0).double().mean()),
    }


def milliseconds(trial: Trial) -> Mapping[str, Any]:
    """One step of a mini-batch on new kernel matrices, as in training, whatever they hold; median of several."""
    points = trial.settings["inducing"]
    random = torch.Generator().manual_seed(trial.seed)
    x = torch.randn(points + BATCH, 64, generator=random)
    K = gram(as_kernel(make_kernel("rbf", OUTPUT_SCALE, 4.0), x.dtype, x.device), x).detach()
    K_mm = K[:points, :points] + 1e-3 * OUTPUT_SCALE * torch.eye(points)
    kappa = torch.where(torch.rand(BATCH, generator=random) < 0.5, 0.5, -0.5)
    node = Node(K_mm, K[:points, points:].contiguous(), K.diagonal()[points:], kappa)
    form, taken = FORMS[trial.method], []
    state = form.prior(K_mm)
    for _ in range(3 + trial.settings["repeats"]):
        start = time.perf_counter()
        state = step(form, node, state, rate=0.05, scale=10.0)
        taken.append(1e3 * (time.perf_counter() - start))
    return {"milliseconds": float(np.median(taken[3:]))}


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    with torch.no_grad():
        return {"rounding": rounding, "step": milliseconds}[trial.settings["measured"]](trial)


def trials(seeds: int) -> list[Trial]:
    settings = [
        {"measured": "rounding", "features": features, "length_scale": length, "inducing": inducing, "jitter": jitter}
        for features in NOISE
        for length in LENGTH_SCALES
        for inducing in INDUCING
        for jitter in JITTER
    ]
    settings += [{"measured": "step", "inducing": size, "repeats": 20} for size in STEP_SIZES]
    return [
        Trial("sparse-forms", form, "structured", seed, each)
        for seed in range(seeds)
        for each in settings
        for form in FORMS
    ]


# ------------------------------------------------------------------------------------------------------- the tables

COLUMNS = {"ms": Column("ms a step", "metrics.milliseconds", digits=2)}
ERRORS = {"mean": "metrics.mean_error", "variance": "metrics.variance_error", "bound a row": "metrics.bound_error"}
BY = ("settings.features", "settings.length_scale", "settings.inducing", "settings.jitter")


def tables(rows: list[Row]) -> list[Table]:
    rounded, steps = ([row for row in rows if row.trial.settings["measured"] == what] for what in ("rounding", "step"))
    return [
        rounding_table(rounded),
        listing("Time of a step", steps, ["settings.inducing", "method"], COLUMNS.values()),
    ]


def glance(rows: list[Row]) -> Table:
    return tables(rows)[1]


def rounding_table(rows: list[Row]) -> Table:
    """Largest errors of both forms side by side, or the matrix that could not be factorised."""
    titles = [f"{form}: {name}" for form in FORMS for name in ERRORS]
    lines = []
    for values, group in grouped(rows, BY).items():
        by_form = {row.trial.method: row for row in group}
        texts = [text for form in FORMS for text in _errors(by_form.get(form))]
        lines.append([*map(str, values), f"{group[0].metrics['condition']:.0e}", *texts])
    return Table("Rounding errors", [*(path.rsplit(".", 1)[-1] for path in BY), "condition of K_mm", *titles], lines)


def _errors(row: Row | None) -> list[str]:
    if row is None:
        return ["–"] * len(ERRORS)
    failed = row.metrics["failed"]
    return [f"{failed} fails" if failed else f"{row.field(path):.0e}" for path in ERRORS.values()]
