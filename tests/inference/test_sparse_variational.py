"""Sparse variational inference: against coordinate ascent, a plain loop, averages over mini-batches and autograd."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from joblib import parallel_config
from node_cases import BUDGET, Fitted, assert_same_fits, by_node, features, kernel, plain, problem, problems
from sklearn.base import clone
from torch import Tensor

import slow_twins as slow
from gptree import CoordinateAscent, GPForestClassifier, GPTreeClassifier, LearnKernel, SparseVariational
from gptree.inference import NodeBatch, NodeFits, NodeProblem, class_inducing, fit_nodes
from gptree.inference.grams import Grams
from gptree.inference.nodes import size_class
from gptree.inference.sparse_variational import Natural, WhitenedBatch
from gptree.maths import gram
from gptree.maths.linalg import JITTER
from gptree.tree import label_hashes

FULL = SparseVariational(sweeps=300, tolerance=0.0)
SMALL = 2**12  # bytes: rows are taken a few at a time


def sparse_problems(sizes: tuple[int, ...] = (12, 9, 15), inducing: int = 4, **kinds: bool) -> list[NodeProblem]:
    return problems(sizes, inducing=inducing, **kinds)


def fit(of: list[NodeProblem], inference: CoordinateAscent, budget: int = BUDGET, name: str = "rbf") -> NodeFits:
    return fit_nodes(of, kernel(name), features(), inference, memory_budget=budget)


def bounds(fits: NodeFits) -> Tensor:
    assert fits.diagnostics.bound is not None
    return fits.diagnostics.bound


@pytest.mark.parametrize(
    "bad",
    [{"inducing": 0}, {"cap": 1}, {"batch_size": 0}, {"step": 0.0}, {"step": 1.5}, {"epochs": 0}, {"sweeps": 0}],
)
def test_bad_settings_are_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match=r"inducing|batch_size|step|epoch|sweep"):
        SparseVariational(**bad)


# ------------------------------------------------------------------------------------- step 1 is coordinate ascent


@pytest.mark.parametrize("budget", [BUDGET, SMALL])
@pytest.mark.parametrize("settings", [{}, {"sweeps": 1}, {"sweeps": 7, "tolerance": 0.0}, {"tolerance": 1e-6}])
@pytest.mark.parametrize("name", ["rbf", "linear"])
def test_step_one_on_all_rows_is_coordinate_ascent(settings: dict, budget: int, name: str) -> None:
    """Posterior, bound, sweeps, change and convergence, with prior means and weights, whatever the chunks."""
    of = [replace(p, self_contained=True) for p in sparse_problems(inducing=3)]
    ascent = fit(of, CoordinateAscent(**settings), name=name)
    natural = fit(of, SparseVariational(**settings), budget, name)
    assert_same_fits(ascent, natural, of)


def test_a_small_budget_makes_several_chunks() -> None:
    grams = Grams(kernel(), features(), 0)
    rows = WhitenedBatch(NodeBatch.stack([0], sparse_problems((15,)), torch.float64), grams, SMALL // 8 // 8)
    assert rows.rows_at_once < 15 / 2


def test_nodes_without_inducing_points_are_dense() -> None:
    of = problems()
    assert_same_fits(fit(of, CoordinateAscent()), fit(of, SparseVariational()), of, 0.0)


def test_inducing_points_at_the_data_give_the_dense_posterior() -> None:
    X, sizes, new = features(), (7, 5, 6, 7), features(5, seed=3)
    dense_of = problems(sizes)
    sparse_of = [problem(n, seed, inducing=n) for seed, n in enumerate(sizes)]
    dense, sparse = fit(dense_of, CoordinateAscent(sweeps=300, tolerance=0.0)), fit(sparse_of, FULL)
    torch.testing.assert_close(bounds(dense), bounds(sparse), rtol=1e-7, atol=1e-7)
    for d, s, p in zip(by_node(dense, dense_of), by_node(sparse, sparse_of), dense_of, strict=True):
        with torch.no_grad():
            K, cross, prior = gram(kernel(), X[p.rows]), gram(kernel(), X[p.rows], new), gram(kernel(), new).diagonal()
        q = plain(p)
        assert d.omega is not None
        mean, variance = slow.predictive(K, cross, prior, d.omega[0], q.kappa, q.mu)
        _, S = q_of(s, X)
        a = torch.linalg.solve(K, cross)
        torch.testing.assert_close(cross.T @ s.weights[0], mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(prior + (a * (S @ a - cross)).sum(0), variance, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("step", [1.0, 0.5])
def test_bound_never_falls(step: float) -> None:
    of = sparse_problems()
    found = [bounds(fit(of, SparseVariational(sweeps=s, tolerance=0.0, step=step))) for s in range(1, 16)]
    rises = torch.stack(found).diff(dim=0)
    assert (rises > -1e-12).all()
    assert (rises[0] > 1e-6).any()


def q_of(fitted: Fitted, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of u from what is stored of a node."""
    assert fitted.precision is not None
    with torch.no_grad():
        K_mm = gram(kernel(), X[fitted.rows])
    root, P = torch.linalg.cholesky(K_mm), fitted.precision.tril() + fitted.precision.tril(-1).T
    return K_mm @ fitted.weights[0], root @ torch.linalg.inv(P) @ root.T


@pytest.mark.parametrize("inference", [FULL, SparseVariational(batch_size=6, epochs=400)])
def test_gradient_of_the_bound_is_zero_at_the_fixed_point(inference: SparseVariational) -> None:
    """Autograd on the point-by-point bound in the mean, a root of the covariance and c; mini-batches come near it."""
    X, of = features(), sparse_problems((12, 9)) if inference is FULL else sparse_problems((12,))
    fits, tolerance = fit(of, inference), 1e-6 if inference is FULL else 2e-2
    for v, (fitted, p) in enumerate(zip(by_node(fits, of), of, strict=True)):
        q = plain(p)
        with torch.no_grad():
            K_mm, K_mn = gram(kernel(), X[fitted.rows]), gram(kernel(), X[fitted.rows], X[p.rows])
            k_nn = gram(kernel(), X[p.rows]).diagonal()
            m, S = q_of(fitted, X)
            A = torch.linalg.solve(K_mm, K_mn)
            c = (k_nn - (K_mn * A).sum(0) + (A * (S @ A)).sum(0) + (q.mu + A.T @ m) ** 2).sqrt()
            root = torch.linalg.cholesky(S)
        at = [value.clone().requires_grad_() for value in (m, root, c)]
        value = slow.bound(K_mm, K_mn, k_nn, at[0], at[1] @ at[1].T, at[2], q.kappa, q.b, q.mu)
        torch.testing.assert_close(value.detach(), bounds(fits)[v], rtol=tolerance, atol=tolerance)
        for gradient in torch.autograd.grad(value, at):
            assert gradient.abs().max() < tolerance
        moved = slow.bound(K_mm, K_mn, k_nn, at[0] + 0.1, at[1] @ at[1].T, at[2], q.kappa, q.b, q.mu)
        assert max(g.abs().max() for g in torch.autograd.grad(moved, at)) > 3e-2  # the test can fail


@pytest.mark.parametrize(
    "inference",
    [CoordinateAscent(), SparseVariational(), SparseVariational(batch_size=10)],
    ids=["ascent", "full", "mini"],
)
def test_jitter_is_reported(inference: CoordinateAscent) -> None:
    """Three dimensions and a linear kernel: eight inducing points need jitter, two do not, dense nodes neither."""
    of = [*sparse_problems(inducing=8), *sparse_problems((12, 9), inducing=2), *problems((7,))]
    jitter = fit(of, inference, name="linear").diagnostics.jitter
    assert jitter is not None
    for p, found in zip(of, jitter.tolist(), strict=True):
        if p.inducing is None or len(p.inducing) == 2:
            assert found == 0.0
            continue
        with torch.no_grad():
            K_mm = gram(kernel("linear"), features()[p.inducing])
        assert found > 0.0
        tried = [relative * float(K_mm.diagonal().mean()) for relative in JITTER[torch.float64]]
        assert min(abs(found - each) for each in tried) < 1e-12 * found
        torch.linalg.cholesky(K_mm + found * torch.eye(8, dtype=torch.float64))


# ---------------------------------------------------------------------------------------------------- mini-batches


def whitened(p: NodeProblem) -> WhitenedBatch:
    return WhitenedBatch(NodeBatch.stack([0], [p], torch.float64), Grams(kernel(), features(), 0), BUDGET)


@pytest.mark.parametrize("sizes", [(5, 5, 5), (4, 5, 6), (15,), (1,) * 15])
@torch.no_grad()
def test_the_natural_gradient_of_a_mini_batch_is_unbiased(sizes: tuple[int, ...]) -> None:
    """Over disjoint batches, each as likely as it is large, the scaled estimates average to the full one."""
    rows = whitened(sparse_problems((15,))[0])
    start = rows.sums(torch.arange(15), None)[0].best(1.0)
    full = rows.sums(torch.arange(15), start)[0].best(1.0)
    eta, precision = torch.zeros_like(full.eta), torch.zeros_like(full.precision)
    for some in torch.randperm(15, generator=torch.Generator().manual_seed(0)).split(sizes):
        best = rows.sums(some, start)[0].best(15 / len(some))
        eta += len(some) / 15 * best.eta
        precision += len(some) / 15 * best.precision
    torch.testing.assert_close(eta, full.eta, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(precision, full.precision, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_a_step_equals_the_plain_loop() -> None:
    """η = S⁻¹ m and H = −½ S⁻¹ of u, not whitened, by explicit inverses and a loop over the rows of a mini-batch."""
    p, some, rate = sparse_problems((15,))[0], torch.tensor([3, 0, 11, 7]), 0.3
    X, q, rows = features(), plain(p), whitened(p)
    assert p.inducing is not None
    start = rows.sums(torch.arange(15), None)[0].best(1.0)
    after = start.step(rows.sums(some, start)[0].best(15 / 4), torch.tensor([rate], dtype=torch.float64))

    def unwhitened(natural: Natural) -> tuple[Tensor, Tensor]:
        P = natural.precision[0].tril() + natural.precision[0].tril(-1).T
        S = rows.root[0] @ torch.linalg.inv(P) @ rows.root[0].T
        return rows.root[0] @ natural.mean[0], S

    inverse = torch.linalg.inv(gram(kernel(), X[p.inducing]))
    m, S = unwhitened(start)
    eta, H = torch.zeros(4, dtype=torch.float64), -0.5 * inverse
    for i in some.tolist():
        k = gram(kernel(), X[p.inducing], X[p.rows[i]][None])[:, 0]
        a, prior = inverse @ k, gram(kernel(), X[p.rows[i]][None])[0, 0]
        mean = q.mu[i] + a @ m
        lam = slow.pg_mean(q.b[i], (prior - k @ a + a @ S @ a + mean**2).sqrt())
        eta += 15 / 4 * (q.kappa[i] - lam * q.mu[i]) * a
        H -= 15 / 4 * 0.5 * lam * torch.outer(a, a)
    before = torch.linalg.inv(S)
    eta, H = before @ m + rate * (eta - before @ m), -0.5 * before + rate * (H + 0.5 * before)
    m, S = unwhitened(after)
    torch.testing.assert_close(S, torch.linalg.inv(-2 * H), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(m, torch.linalg.solve(-2 * H, eta), rtol=1e-8, atol=1e-8)


def test_mini_batches_come_near_the_full_bound() -> None:
    of = sparse_problems((40, 30, 35), 6)
    full = bounds(fit(of, FULL))
    gaps = [full - bounds(fit(of, SparseVariational(batch_size=10, epochs=e, sweeps=1))) for e in (1, 10, 100)]
    for gap in gaps:
        assert (gap > -1e-9).all()  # never above: a step on all rows ends it
    assert gaps[0].sum() > gaps[1].sum() > gaps[2].sum()
    assert gaps[2].max() < 1e-2


def test_a_node_does_not_depend_on_what_is_fitted_beside_it_or_on_the_budget() -> None:
    """Nodes of 12 and 11 rows share a batch; one is larger than a mini-batch, the other is not."""
    assert size_class(11, 128) == size_class(12, 128)
    of, inference = sparse_problems((12, 11, 15)), SparseVariational(batch_size=11)
    together = fit(of, inference)
    for v in range(3):
        alone = by_node(fit(of[v : v + 1], inference, SMALL), of[v : v + 1])[0]
        torch.testing.assert_close(by_node(together, of)[v].weights, alone.weights, rtol=1e-9, atol=1e-9)
    assert together.diagnostics.sweeps.tolist()[::2] == [25, 25]  # of two mini-batches each: fifty steps
    with parallel_config(backend="threading"):
        parallel = fit_nodes(of, kernel(), features(), inference, memory_budget=BUDGET, n_jobs=2)
    assert_same_fits(parallel, together, of)


def test_learning_sees_a_mini_batch_of_large_nodes() -> None:
    of = sparse_problems((40, 8))
    thin = SparseVariational(batch_size=10).learning_problems(of)
    assert thin[1] is of[1]
    assert len(thin[0].rows) == len(thin[0].left) == 10
    assert thin[0].mean is not None
    assert thin[0].weight is not None
    for row, left, mean, weight in zip(thin[0].rows, thin[0].left, thin[0].mean, thin[0].weight, strict=True):
        at = int((of[0].rows == row).nonzero())
        assert of[0].mean is not None
        assert of[0].weight is not None
        assert (bool(left), float(mean)) == (bool(of[0].left[at]), float(of[0].mean[at]))
        assert float(weight) == 4 * float(of[0].weight[at])
    plain_rows = SparseVariational(batch_size=10).learning_problems(sparse_problems((40,), extras=False))[0]
    assert float(plain(plain_rows).b.sum()) == 40.0  # a node's size stays that of all its rows
    learned = fit(of, SparseVariational(batch_size=10, learn=LearnKernel(steps=3))).grams.kernel
    assert not torch.equal(learned.state_dict()["raw_outputscale"], kernel().state_dict()["raw_outputscale"])


# ------------------------------------------------------------------------------------------------- inducing points


def test_inducing_points_are_distinct_and_no_class_is_without_one() -> None:
    X = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 0.0], [1.0, 0.0], [3.0, 3.0], [-0.0, 0.0]])
    y = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    rows = class_inducing(X, y, 3, label_hashes(["a", "b", "c"]), seed=0)
    assert [int((y[rows] == c).sum()) for c in range(3)] in ([3, 1, 1], [3, 1, 2])  # (0, 0) may be first of "c"
    within = [X[rows[y[rows] == c]] + 0.0 for c in range(3)]
    assert all(len(np.unique(x, axis=0)) == len(x) for x in within)
    assert len(class_inducing(X, y, 1, label_hashes(["a", "b", "c"]), seed=0)) == 3


def blobs(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    means = np.random.default_rng(7).normal(size=(6, 5))
    random = np.random.default_rng(seed)
    y = random.integers(6, size=n)
    return means[y] + 0.8 * random.normal(size=(n, 5)), np.array(list("abcdef"))[y]


X, Y = blobs()
X_NEW, Y_NEW = blobs(600, seed=1)


def fitted(**parameters) -> GPTreeClassifier:
    return GPTreeClassifier(**{"random_state": 0, **parameters}).fit(X, Y)


@cache
def dense_model(prior_mean: str | None) -> GPTreeClassifier:
    return fitted(prior_mean=prior_mean, inference=CoordinateAscent(), node_limit=None)


def score(model: GPTreeClassifier) -> tuple[float, float]:
    """Accuracy and negative log-likelihood on new rows."""
    log_p, codes = model.predict_log_proba(X_NEW), np.searchsorted(model.classes_, Y_NEW)
    return float((log_p.argmax(1) == codes).mean()), -float(log_p[np.arange(len(codes)), codes].mean())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("prior_mean", [None, "experts"])
@pytest.mark.parametrize("batch_size", [None, 50])
def test_the_estimator_is_near_coordinate_ascent(prior_mean: str | None, batch_size: int | None) -> None:
    inference = SparseVariational(inducing=20, batch_size=batch_size, epochs=10)
    model = fitted(prior_mean=prior_mean, inference=inference)
    dense = dense_model(prior_mean)
    (accuracy, nll), (dense_accuracy, dense_nll) = score(model), score(dense)
    assert accuracy > dense_accuracy - 0.02
    assert nll < dense_nll + 0.03
    assert set(model.diagnostics_["posterior"]) == {"sparse"}
    assert np.isfinite(model.diagnostics_["bound"]).all()
    some = X_NEW[:200]
    assert np.corrcoef(model.novelty_score(some), dense.novelty_score(some))[0, 1] > 0.95


def test_nodes_share_the_points_of_their_classes_up_to_a_cap() -> None:
    model = fitted(prior_mean=None, inference=SparseVariational(inducing=8, cap=20))
    tree, by_class = model.tree_, {}
    for posterior in model.model_.predictor.posteriors:
        for v, node in enumerate(posterior.nodes.tolist()):
            rows = posterior.rows[v].numpy()
            classes = set(tree.order[tree.lo[node] : tree.hi[node]].tolist())
            assert set(model.state_.y[rows].tolist()) == classes
            quota = min(8, 20 // len(classes))
            assert np.bincount(model.state_.y[rows], minlength=6)[sorted(classes)].tolist() == [quota] * len(classes)
            for c in classes:
                by_class.setdefault(c, []).append(set(rows[model.state_.y[rows] == c].tolist()))
    for sets in by_class.values():  # a node further down sees at least what is seen above
        assert all(small <= max(sets, key=len) for small in sets)


def test_classes_with_few_or_equal_examples() -> None:
    few = np.concatenate([np.flatnonzero(Y == "a")[:40], np.flatnonzero(Y == "b")[:1], np.flatnonzero(Y == "c")[:3]])
    few = np.concatenate([few, few[-1:].repeat(30)])  # one example of c thirty times more
    for prior_mean in (None, "experts"):
        model = GPTreeClassifier(prior_mean=prior_mean, inference=SparseVariational(), random_state=0)
        log_p = model.fit(X[few], Y[few]).predict_log_proba(X_NEW)
        assert np.isfinite(log_p).all()
        assert max(posterior.rows.shape[1] for posterior in model.model_.predictor.posteriors) == 10 + 1 + 3


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("prior_mean", [None, "experts"])
@pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
def test_stored_and_read_back_to_the_bit(tmp_path, prior_mean: str | None, predict_at: str) -> None:
    inference = SparseVariational(inducing=5, cap=20, batch_size=100, step=0.9, epochs=3, learn=LearnKernel(steps=2))
    model = fitted(prior_mean=prior_mean, inference=inference, predict_at=predict_at, dtype="float32")
    model.save(tmp_path / "model")
    again = GPTreeClassifier.load(tmp_path / "model")
    assert again.inference == inference
    np.testing.assert_array_equal(again.predict_log_proba(X_NEW), model.predict_log_proba(X_NEW))
    # signs of strangers go by left-out scores, which a loaded model computes again, in single precision
    np.testing.assert_allclose(again.novelty_score(X_NEW), model.novelty_score(X_NEW), rtol=0, atol=1e-8)
    for name in ("bound", "jitter"):
        np.testing.assert_array_equal(again.diagnostics_[name], model.diagnostics_[name])


def test_parameters_are_those_of_scikit_learn() -> None:
    model = GPTreeClassifier(inference=SparseVariational(batch_size=64))
    copy = clone(model).set_params(inference__inducing=3, inference__step=0.5)
    assert copy.inference == SparseVariational(batch_size=64, inducing=3, step=0.5)
    assert model.inference == SparseVariational(batch_size=64)
    assert model.get_params()["inference__batch_size"] == 64
    with pytest.raises(ValueError, match="step"):
        clone(model).set_params(inference__step=2.0)


def test_a_node_limit_beside_it_is_refused() -> None:
    with pytest.raises(ValueError, match="node_limit"):
        fitted(inference=SparseVariational(), node_limit=100)


def test_the_same_seed_gives_the_same_forest() -> None:
    inference = SparseVariational(inducing=5, sweeps=3, tolerance=0.0)
    forests = [GPForestClassifier(n_estimators=2, inference=inference, random_state=3).fit(X, Y) for _ in range(2)]
    np.testing.assert_array_equal(*[forest.predict_log_proba(X_NEW) for forest in forests])


def test_classes_can_arrive_later() -> None:
    """As well as after coordinate ascent."""
    old, accuracy = np.isin(Y, list("abcd")), {}
    for inference in (SparseVariational(), CoordinateAscent()):
        model = GPTreeClassifier(inference=inference, random_state=0).fit(X[old], Y[old])
        accuracy[type(inference)] = score(model.add_classes(X[~old], Y[~old]))[0]
    assert accuracy[SparseVariational] > accuracy[CoordinateAscent] - 0.03
