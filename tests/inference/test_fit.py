"""Fitting all nodes: any memory budget and any joblib backend give the same numbers; kernels are learned."""

from __future__ import annotations

import copy
import os
import signal
import threading
from contextlib import nullcontext
from typing import Any

import joblib
import pytest
import torch
from distributed import Client, LocalCluster
from gpytorch.kernels import Kernel
from joblib._parallel_backends import ThreadingBackend
from joblib.externals.loky.process_executor import TerminatedWorkerError
from node_cases import BUDGET, assert_same_fits, features, kernel, plain, problems
from torch import Tensor

import gptree.inference.fit
from gptree.inference import (
    CoordinateAscent,
    Gibbs,
    Inference,
    LearnKernel,
    NodeFits,
    NodeProblem,
    fit_nodes,
    learn_kernel,
)
from gptree.maths.kernels import node_kernels

MIXED = problems() + problems([9, 11], inducing=4)  # dense, and sparse beside them
CASES: dict[str, tuple[list[NodeProblem], Kernel, Inference]] = {
    "gibbs": (problems(), kernel(), Gibbs(chains=3, steps=4, keep=2)),
    "gibbs, linear": (problems(), kernel("linear"), Gibbs(chains=3, steps=4, keep=2)),
    "ascent": (MIXED, kernel(), CoordinateAscent()),
    "ascent, linear": (problems(), kernel("linear"), CoordinateAscent()),
    "ascent, a kernel a node": (MIXED, node_kernels(kernel(), len(MIXED)), CoordinateAscent()),
}


def fit(case: str, **how) -> NodeFits:
    of, k, inference = CASES[case]
    return fit_nodes(of, k, features(), inference, **{"memory_budget": BUDGET, **how})


# ------------------------------------------------------------------------------------------------ memory budget


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("budget", [1, 20_000])
def test_the_memory_budget_changes_no_number(case: str, budget: int) -> None:
    """One byte: one node a batch and one draw at a time. 20,000: some in between, no cached Gram matrix."""
    assert_same_fits(fit(case, memory_budget=budget), fit(case), CASES[case][0])


def test_a_small_budget_makes_more_batches() -> None:
    assert len(fit("gibbs", memory_budget=1).posteriors) == len(CASES["gibbs"][0]) > len(fit("gibbs").posteriors)


def test_the_gram_matrix_is_kept_within_a_quarter_of_the_budget() -> None:
    size = 40 * 40 * 8  # bytes
    assert fit("gibbs", memory_budget=4 * size).grams._full is not None
    assert fit("gibbs", memory_budget=4 * size - 1).grams._full is None


# ---------------------------------------------------------------------------------------------------- parallel


@torch.no_grad()
def factors(fits: NodeFits) -> list[Tensor]:
    return [posterior.factoriser(fits.grams)(slice(None)) for posterior in fits.posteriors]


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_workers_give_the_numbers_of_one_process(backend: str) -> None:
    for case, (of, *_) in CASES.items():
        with joblib.parallel_config(backend=backend):
            parallel = fit(case, n_jobs=2, memory_budget=40_000)
        serial = fit(case, memory_budget=40_000)
        assert_same_fits(parallel, serial, of)
        for a, b in zip(factors(parallel), factors(serial), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_a_worker_that_dies_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*batch: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(gptree.inference.fit, "_fit_batch", dies)
    with joblib.parallel_config(backend="loky"), pytest.raises(TerminatedWorkerError, match="unexpectedly terminated"):
        fit("gibbs", n_jobs=2, memory_budget=40_000)


def test_a_dask_cluster_gives_the_numbers_of_one_process() -> None:
    serial = {case: fit(case) for case in CASES}
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        for case, (of, *_) in CASES.items():
            assert_same_fits(fit(case, n_jobs=2, memory_budget=40_000), serial[case], of)


# ------------------------------------------------------------------------------------------------ what comes back


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_progress_counts_every_node(n_jobs: int | None) -> None:
    counts: list[int] = []
    with joblib.parallel_config(backend="threading") if n_jobs else nullcontext():
        fit("ascent", n_jobs=n_jobs, progress=counts.append)
    assert sum(counts) == len(MIXED)


def test_batches_are_counted_while_others_are_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch waits for the first to be counted; five seconds, if all came back at the end."""
    counted, waited, whole = threading.Event(), [], gptree.inference.fit._fit_batch
    last = len(fit("gibbs", memory_budget=1).posteriors) - 1

    def fit_batch(inference, batch, *rest):
        if last in batch.nodes:
            waited.append(counted.wait(5))
        return whole(inference, batch, *rest)

    monkeypatch.setattr(gptree.inference.fit, "_fit_batch", fit_batch)
    with joblib.parallel_config(backend="threading"):
        fit("gibbs", n_jobs=2, memory_budget=1, progress=lambda count: counted.set())
    assert waited == [True]


def test_a_backend_that_hands_over_all_at_the_end() -> None:
    class AtTheEnd(ThreadingBackend):
        @property
        def supports_return_generator(self) -> bool:
            return False

    with joblib.parallel_config(backend=AtTheEnd()):
        assert_same_fits(fit("ascent", n_jobs=2, memory_budget=40_000), fit("ascent"), MIXED)


def test_an_error_in_a_worker_is_that_error(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def fails(inference, batch, *rest):
        raise FloatingPointError("as it stands")

    monkeypatch.setattr(gptree.inference.fit, "_fit_batch", fails)
    with joblib.parallel_config(backend="threading"), pytest.raises(FloatingPointError, match="as it stands"):
        fit("gibbs", n_jobs=2, memory_budget=1, progress=counts.append)
    assert not counts


def test_one_worker_is_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gptree.inference.fit, "_fit_parallel", lambda *_: [])
    assert len(fit("ascent").posteriors) == len(fit("ascent", n_jobs=1).posteriors) > 0
    assert not fit("ascent", n_jobs=2).posteriors


def test_diagnostics_are_in_the_order_of_the_problems() -> None:
    fits = fit("ascent")
    assert fits.diagnostics.nodes.tolist() == list(range(len(MIXED)))
    assert fits.diagnostics.bound is not None
    for v in (0, 3, 8):
        alone = fit_nodes(MIXED[v : v + 1], kernel(), features(), CoordinateAscent(), memory_budget=BUDGET)
        assert alone.diagnostics.bound is not None
        torch.testing.assert_close(fits.diagnostics.bound[v], alone.diagnostics.bound[0])


def test_no_problems_at_all() -> None:
    """A tree of one class has no node."""
    fits = fit_nodes([], kernel(), features(), CoordinateAscent(), memory_budget=BUDGET)
    assert fits.posteriors == ()
    assert len(fits.diagnostics.nodes) == 0


def test_fits_carry_no_graph() -> None:
    for case in CASES:
        for posterior in fit(case).posteriors:
            assert not posterior.weights.requires_grad


# --------------------------------------------------------------------------------------------- learning a kernel


SHARED, PER_NODE = LearnKernel(steps=30, rate=0.05), LearnKernel(steps=30, rate=0.05, per_node=True)
FIXED_POINT = CoordinateAscent(sweeps=150, tolerance=1e-13)
FEW = problems([7, 3]) + problems([9], inducing=4)


def bounds(of: list[NodeProblem], k: Kernel) -> Tensor:
    found = fit_nodes(of, k, features(), FIXED_POINT, memory_budget=BUDGET).diagnostics.bound
    assert found is not None
    return found


def values(k: Kernel) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in k.named_parameters()}


@pytest.mark.parametrize("name", ["rbf", "linear"])
@pytest.mark.parametrize("learn", [SHARED, PER_NODE])
def test_learning_raises_the_bounds(name: str, learn: LearnKernel) -> None:
    of = FEW if name == "rbf" else problems([7, 3])
    before = kernel(name)
    learned = learn_kernel(of, before, features(), learn, BUDGET)
    gain = bounds(of, learned) - bounds(of, before)
    assert gain.sum() > 0.1
    if learn.per_node:
        assert learned.batch_shape == torch.Size([len(of)])
        assert (gain > -1e-6).all()
        assert all((p.reshape(len(of), -1).std(0) > 1e-3).all() for p in learned.parameters())
    else:
        assert learned.batch_shape == torch.Size([])


def test_the_given_kernel_is_left_alone() -> None:
    for learn in (SHARED, PER_NODE):
        given = kernel()
        before = values(given)
        learned = learn_kernel(FEW, given, features(), learn, BUDGET)
        assert learned is not given
        for name, value in values(given).items():
            assert torch.equal(value, before[name])


def test_fixed_parameters_stay() -> None:
    for learn in (SHARED, PER_NODE):
        given = kernel()
        given.base_kernel.raw_lengthscale.requires_grad_(False)
        learned = learn_kernel(FEW, given, features(), learn, BUDGET)
        start = given.base_kernel.raw_lengthscale
        assert torch.equal(learned.base_kernel.raw_lengthscale, start.expand_as(learned.base_kernel.raw_lengthscale))
        assert not torch.equal(learned.raw_outputscale, given.raw_outputscale.expand_as(learned.raw_outputscale))


def test_a_kernel_with_nothing_to_learn_comes_back_as_it_is() -> None:
    given = kernel()
    given.requires_grad_(False)
    learned = learn_kernel(FEW, given, features(), SHARED, BUDGET)
    assert all(torch.equal(value, values(given)[name]) for name, value in values(learned).items())


def record_gradients(monkeypatch: pytest.MonkeyPatch) -> list[list[Tensor]]:
    """What Adam would step along, round by round; it takes no step."""
    seen: list[list[Tensor]] = []

    class Recorder(torch.optim.Adam):
        def step(self, closure=None):  # pyright: ignore[reportIncompatibleMethodOverride]
            assert self.defaults["maximize"]
            seen.append([p.grad.clone() for group in self.param_groups for p in group["params"]])

    monkeypatch.setattr(gptree.inference.fit.torch.optim, "Adam", Recorder)
    return seen


@pytest.mark.parametrize(
    ("name", "per_node", "node_weights"),
    [("rbf", False, "size"), ("rbf", True, "equal"), ("linear", False, "equal"), ("linear", True, "size")],
)
def test_the_gradient_is_that_of_the_converged_bound(
    name: str, per_node: bool, node_weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where q has converged, the gradient at fixed q(ω) is the gradient of the best bound; by central differences."""
    seen = record_gradients(monkeypatch)
    of = FEW if name == "rbf" else problems([7, 3])
    start = kernel(name)
    learn = LearnKernel(steps=40, rate=1.0, per_node=per_node, node_weights=node_weights)
    learn_kernel(of, start, features(), learn, BUDGET)

    rows = torch.tensor([sum(plain(p).b.tolist()) for p in of], dtype=torch.float64)  # one of weight ½ is half a row
    k = node_kernels(start, len(of)) if per_node else copy.deepcopy(start)
    for p, gradient in zip([p for p in k.parameters() if p.requires_grad], seen[-1], strict=True):
        sides = []
        for h in (1e-5, -1e-5):
            with torch.no_grad():
                p += h
                sides.append(bounds(of, k))
                p -= h
        slope = (sides[0] - sides[1]) / 2e-5
        slope = slope / rows if node_weights == "size" else slope
        expected = slope if per_node else slope.sum()
        torch.testing.assert_close(gradient.reshape(expected.shape), expected, rtol=1e-4, atol=1e-6)


def test_nodes_of_equal_weight_count_by_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without likelihood weights: "size" is the loop over nodes of gradient over number of rows."""
    of, seen = problems([7, 3, 12], extras=False), record_gradients(monkeypatch)
    learn = LearnKernel(steps=1, node_weights="size")
    learn_kernel(of, kernel(), features(), learn, BUDGET)
    for p in of:
        learn_kernel([p], kernel(), features(), LearnKernel(steps=1), BUDGET)
    together, *alone = seen
    for i, gradient in enumerate(together):
        expected = sum(each[i] / len(p.rows) for each, p in zip(alone, of, strict=True))
        torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)


def test_node_weights_have_two_names() -> None:
    with pytest.raises(ValueError, match="node_weights"):
        LearnKernel(node_weights="rows")  # pyright: ignore[reportArgumentType]


def test_learning_goes_on_where_inducing_points_need_jitter() -> None:
    """Four inducing points under a linear kernel in three dimensions: K_mm is singular."""
    of = problems([9, 11], inducing=4)
    learned = learn_kernel(of, kernel("linear", 0.1), features(), SHARED, BUDGET)
    assert (bounds(of, learned) - bounds(of, kernel("linear", 0.1))).sum() > 0.1


def test_fit_nodes_learns_first() -> None:
    inference = CoordinateAscent(sweeps=150, tolerance=1e-13, learn=SHARED)
    fits = fit_nodes(FEW, kernel(), features(), inference, memory_budget=BUDGET)
    learned = learn_kernel(FEW, kernel(), features(), SHARED, BUDGET)
    for name, value in values(fits.grams.kernel).items():
        torch.testing.assert_close(value, values(learned)[name])
    torch.testing.assert_close(fits.diagnostics.bound, bounds(FEW, learned))
