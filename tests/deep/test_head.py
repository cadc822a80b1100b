"""The tree head against plain loops over its nodes: loss, gradients, natural steps, bound, predictions, trouble."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from head_twins import (
    DIMENSION,
    FLOAT,
    TREES,
    Twin,
    in_double,
    make_head,
    points_a_class,
    randn,
    spread,
    training_rows,
    unit_length,
    walk,
)
from torch import Tensor

from gptree.deep import TreeHead, VariationalTree
from gptree.deep.heads import buckets as buckets_module
from gptree.deep.heads import gp_tree as module
from gptree.inference import CoordinateAscent, NodePredictor, NodeProblem, fit_nodes
from gptree.maths import as_kernel, make_kernel
from gptree.tree import ClassTree

on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
LEARN = ("no", "shared", "per-node")
CPU = torch.device("cpu")


def moving(head: TreeHead) -> list[Tensor]:
    return [p for p in head.parameters() if p.requires_grad]


def assert_near(found: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    """Relative to the largest number there."""
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(found, expected, rtol=0.0, atol=tolerance * scale)


def naturals(head: TreeHead) -> list[tuple[Tensor, Tensor]]:
    twin = Twin(head)
    return [twin.natural(v) for v in range(head.tree.n_nodes)]


def assert_same_naturals(first: TreeHead, second: TreeHead, tolerance: float) -> None:
    for mine, theirs in zip(naturals(first), naturals(second), strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert_near(a.cpu(), b.cpu(), tolerance)


# --------------------------------------------------------------------------------- loss, gradients, natural steps


@pytest.mark.parametrize("learn_kernel", LEARN)
@pytest.mark.parametrize("node_weights", ["balanced", "equal", "size"])
@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_loss_and_gradients_are_sums_over_nodes(
    tree: ClassTree, capped: bool, node_weights: str, learn_kernel: str
) -> None:
    """Closed form against autograd through a plain loop: into embeddings, points and the kernel's hyper-parameters.

    η and P of every node, at whitened values, are what is held.
    """
    cap = sum(points_a_class(tree)) * 2 // 3 if capped else None
    head = make_head(tree, in_double(cap=cap, step=0.5, learn_kernel=learn_kernel, node_weights=node_weights))
    spread(head)
    walk(head)
    twin, (x, y) = Twin(head), training_rows(tree, seed=7)
    sizes = [len(twin.points(v)) for v in range(tree.n_nodes)]
    assert max(sizes) < sum(points_a_class(tree)) if capped else sizes[0] == sum(points_a_class(tree))
    x, y = x[: len(y) // 2].requires_grad_(), y[: len(y) // 2]
    at = [x, *moving(head)]
    assert len(at) == (2 if learn_kernel == "no" else 4)
    loss, expected = head.loss(x, y), twin.loss(x, y)
    assert_near(loss.detach(), expected.detach())
    gradients = torch.autograd.grad(3.0 * loss, at), torch.autograd.grad(3.0 * expected, at)
    for mine, theirs in zip(*gradients, strict=True):
        assert theirs.abs().max() > 1e-4
        torch.testing.assert_close(mine, theirs, rtol=0.0, atol=1e-10 * float(theirs.abs().max()))


@pytest.mark.parametrize("learn_kernel", ["shared", "per-node"])
@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_natural_steps_are_those_of_every_node(tree: ClassTree, learn_kernel: str) -> None:
    """η ← (1 − ρ) η + ρ η̂ and the same for P, at every node with a row in the batch."""
    head = make_head(tree, in_double(step=0.3, learn_kernel=learn_kernel))
    spread(head)
    walk(head)
    x, y = training_rows(tree, seed=7)
    x, y = x[:9], y[:9]
    twin, before = Twin(head), naturals(head)
    with torch.no_grad():
        best = {v: twin.best(v, x, y) for v in range(tree.n_nodes) if twin.inside(v, y)[0]}
    head.loss(x, y)
    head.update()
    for v, old in enumerate(before):
        for found, value, target in zip(twin.natural(v), old, best.get(v, old), strict=True):
            assert_near(found, 0.7 * value + 0.3 * target)


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_other_kernels_and_points_that_stay(kernel: str) -> None:
    tree = TREES["leaning"]
    head = make_head(tree, in_double(step=0.5, learn_points=False), kernel=kernel)
    walk(head)
    x, y = training_rows(tree, seed=7)
    at = [x.requires_grad_(), *moving(head)]
    assert len(at) == 3
    twin = Twin(head)
    pairs = zip(*(torch.autograd.grad(loss, at) for loss in (head.loss(x, y), twin.loss(x, y))), strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, rtol=0.0, atol=1e-9 * float(theirs.abs().max()))


def test_nothing_but_the_embeddings_may_move() -> None:
    """At the prior not even they: it says the same everywhere."""
    head = make_head(TREES["chain"], in_double(learn_points=False, learn_kernel="no"))
    x, y = training_rows(head.tree)
    x.requires_grad_()
    (at_the_prior,) = torch.autograd.grad(head.loss(x, y), x)
    assert (at_the_prior == 0).all()
    walk(head)
    head.loss(x, y).backward()
    assert x.grad is not None
    assert x.grad.abs().max() > 0
    assert all(p.grad is None for p in head.parameters())
    assert not head.loss(x.detach(), y).requires_grad


def test_embeddings_of_a_network_in_single_precision() -> None:
    """They get gradients of their own type; the head computes in its own."""
    head = make_head(TREES["chain"], in_double())
    walk(head)
    x, y = training_rows(head.tree)
    single, double = x.float().requires_grad_(), x.float().double().requires_grad_()
    losses = head.loss(single, y), head.loss(double, y)
    assert losses[0].dtype == FLOAT
    for loss in losses:
        loss.backward()
    assert single.grad is not None
    assert double.grad is not None
    assert single.grad.dtype == torch.float32
    torch.testing.assert_close(single.grad.double(), double.grad, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_a_head_in_single_precision_comes_near(tree: ClassTree) -> None:
    heads = [make_head(tree, in_double(dtype=dtype, step=0.5)) for dtype in ("float64", "float32")]
    for head in heads:
        head.jitter.fill_(1e-4)
        walk(head)
    x, y = training_rows(heads[0].tree, seed=7)
    found = [torch.autograd.grad(head.loss(x, y), moving(head)) for head in heads]
    for double, single in zip(*found, strict=True):
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), double, rtol=0.0, atol=1e-5 * float(double.abs().max()))


def test_products_keep_all_digits_where_tf32_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    head, seen = make_head(TREES["chain"], VariationalTree()), []
    forward = TreeHead.forward

    def looking(self: TreeHead, *arguments: Any, **options: Any) -> list[Tensor]:
        seen.append(torch.get_float32_matmul_precision())
        return forward(self, *arguments, **options)

    monkeypatch.setattr(TreeHead, "forward", looking)
    x, y = training_rows(head.tree)
    calls = [partial(each, x, y) for each in (head.loss, partial(head.refit, sweeps=1), head.bound)]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        for call in [*calls, partial(head.log_probabilities, x), head.kl]:
            seen.clear()
            call()
            assert set(seen) == {"highest"}
            assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


# ------------------------------------------------------------------------------------------------- buckets, padding

BUCKETS = {
    "all in one": {"SMALL_SHARE": 0.0},
    "equal sizes": {"SMALL_SHARE": 1.0},
    "as middling nodes": {"SMALL": 0},
    "as large nodes": {"LARGE": 0},
    "in threes": {"SMALL": 0, "SHARE": 0.3},
}


@pytest.mark.parametrize("learn_kernel", LEARN)
@pytest.mark.parametrize("cap", [None, 10])
def test_buckets_and_padding_change_nothing(
    cap: int | None, learn_kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = TREES["balanced"]
    (x, y), new, found, shapes = training_rows(tree, seed=7), randn(6, DIMENSION, seed=8), [], set()
    for constants in [{}, *BUCKETS.values()]:
        with monkeypatch.context() as patch:
            for name, value in constants.items():
                patch.setattr(buckets_module, name, value)
            head = make_head(tree, in_double(cap=cap, step=0.5, learn_kernel=learn_kernel))
        shapes.add(tuple(tuple(bucket.points.shape) for bucket in head.buckets))
        spread(head)
        walk(head)
        x = x.detach().requires_grad_()
        loss = head.loss(x, y)
        numbers = [loss.detach(), *torch.autograd.grad(loss, [x, *moving(head)])]
        head.update()
        numbers += [each for pair in naturals(head) for each in pair]
        head.refit(x.detach(), y, sweeps=2)
        numbers += [head.bound(x.detach(), y), head.kl(), head.log_probabilities(new)]
        found.append(numbers)
    assert len(shapes) >= 4
    for numbers in found[1:]:
        for mine, theirs in zip(numbers, found[0], strict=True):
            assert_near(mine, theirs, 1e-11)


def test_points_stand_in_leaf_order_and_keep_their_order_within_a_class() -> None:
    """What a network learned to be first stays first: a cap takes the first points of each class."""
    tree, classes = TREES["chain"], torch.tensor([2, 0, 3, 3, 1, 0, 4, 2, 0])
    points = randn(9, DIMENSION, seed=0)
    head = TreeHead(tree, points, classes, torch.ones(5), make_kernel("rbf"), in_double(cap=5))
    expected = [i for c in tree.order for i in range(9) if classes[i] == c]
    assert torch.equal(head.points.detach(), points[expected])
    assert torch.equal(head.point_class, classes[expected])
    twin = Twin(head, [1] * 5)
    for v in range(tree.n_nodes):
        (bucket, place) = next((b, int(b.nodes.tolist().index(v))) for b in head.buckets if v in b.nodes.tolist())
        own = bucket.points[place] if bucket.padding is None else bucket.points[place][~bucket.padding[place]]
        assert own.tolist() == twin.points(v)
        assert len(own) <= 5
    assert len(twin.points(0)) == 5  # one of each class at the root


# --------------------------------------------------------------------------------------------------------- refitting


@pytest.mark.parametrize("learn_kernel", ["shared", "per-node"])
@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_bound_equals_the_plain_one_and_never_falls(tree: ClassTree, learn_kernel: str) -> None:
    """At every node, from an arbitrary q; the weighted bound is −loss − KL."""
    head = make_head(tree, in_double(step=0.9, learn_kernel=learn_kernel, node_weights="equal"))
    spread(head)
    walk(head)
    (x, y), bounds = training_rows(tree), []
    for _ in range(12):
        bounds.append(head.bound(x, y))
        head.refit(x, y, sweeps=1)
    rises = torch.stack(bounds).diff(dim=0)
    assert (rises > -1e-11).all()
    assert (rises[0] > 1e-3).all()
    twin = Twin(head)
    with torch.no_grad():
        expected = torch.stack([twin.bound(v, x, y) for v in range(tree.n_nodes)])
        assert_near(head.bound(x, y), expected, 1e-8)
        torch.testing.assert_close(-head.loss(x, y) - head.kl(), expected.sum() / len(y), rtol=1e-8, atol=1e-8)


def test_weighted_kl_by_size() -> None:
    """The weighted bound is −loss − KL there too."""
    head = make_head(TREES["leaning"], in_double(step=0.5, node_weights="size"))
    walk(head)
    (x, y), twin = training_rows(head.tree), Twin(head)
    sizes = torch.tensor([twin.n_rows(v) for v in range(head.tree.n_nodes)])
    with torch.no_grad():
        torch.testing.assert_close(-head.loss(x, y) - head.kl(), (head.bound(x, y) / sizes).sum())


def test_gradient_of_the_bound_is_zero_where_refitting_ends() -> None:
    """Autograd on the point-by-point bound, with respect to η and a root of P."""
    head = make_head(TREES["leaning"], in_double())
    x, y = training_rows(head.tree)
    head.refit(x, y, sweeps=200)
    twin = Twin(head)
    for v in range(head.tree.n_nodes):
        eta, P = twin.natural(v)
        at = [eta.requires_grad_(), torch.linalg.cholesky(P).requires_grad_()]
        for gradient in torch.autograd.grad(twin.bound(v, x, y, (at[0], at[1] @ at[1].T)), at):
            assert gradient.abs().max() < 1e-7
        moved = twin.bound(v, x, y, (at[0] + 0.1, at[1] @ at[1].T))
        assert max(g.abs().max() for g in torch.autograd.grad(moved, at)) > 1e-3  # the test can fail


@pytest.mark.parametrize("learn_kernel", ["shared", "per-node"])
def test_a_step_of_one_on_all_rows_is_a_sweep(learn_kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of rows a refit looks at together."""
    head = make_head(TREES["balanced"], in_double(step=1.0, learn_kernel=learn_kernel))
    walk(head)
    x, y = training_rows(head.tree)
    refitted = [copy.deepcopy(head) for _ in range(2)]
    head.loss(x, y)
    head.update()
    refitted[0].refit(x, y, sweeps=1)
    bound = head.bound(x, y)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
    refitted[1].refit(x, y, sweeps=1)
    for other in refitted:
        assert_same_naturals(head, other, 1e-11)
    assert_near(head.bound(x, y), bound, 1e-12)


@pytest.mark.parametrize(("jitter", "tolerance"), [(1e-13, 1e-7), (1e-6, 1e-3)])
def test_points_at_the_data_give_the_dense_posterior(jitter: float, tolerance: float) -> None:
    """Bound, latent moments and probabilities of coordinate ascent on the full Gram matrix.

    Inducing points at the data leave the jitter as the only difference: relative to the diagonal, so it acts as noise
    of that variance on u. What it changes is its size times a condition number, here about 1e3.
    """
    tree = TREES["leaning"]
    x, y = training_rows(tree)
    head = TreeHead(tree, x, y, torch.bincount(y), make_kernel("rbf", 4.0, 0.8), in_double())
    head.jitter.fill_(jitter)
    head.refit(x, y, sweeps=200)
    twin, problems = Twin(head), []
    for v in range(tree.n_nodes):
        rows, kappa = twin.inside(v, y)
        problems.append(NodeProblem(rows=torch.tensor(rows), left=kappa > 0, seed=v))
    kernel = as_kernel(make_kernel("rbf", 4.0, 0.8), FLOAT, CPU)
    dense = fit_nodes(
        problems, kernel, unit_length(x), CoordinateAscent(sweeps=200, tolerance=0.0), memory_budget=2**30
    )
    assert dense.diagnostics.bound is not None
    assert_near(head.bound(x, y), dense.diagnostics.bound.detach(), tolerance)
    new = randn(9, DIMENSION, seed=8)
    mean, variance = NodePredictor(dense.grams, dense.posteriors, 2**30).moments(unit_length(new))
    with torch.no_grad():
        for v in range(tree.n_nodes):
            _, own_mean, own_variance = twin.moments(v, new)
            assert_near(own_mean, mean[v], tolerance)
            assert_near(own_variance, variance[v], tolerance)


# ------------------------------------------------------------------------------------------------------ mini-batches


def few_rows() -> tuple[ClassTree, list[int], Tensor, Tensor]:
    tree, counts = ClassTree.from_nested([0, [1, 2]], range(3)), [2, 3, 2]
    y = torch.tensor([2, 0, 1, 1, 0, 2, 1])
    return tree, counts, randn(7, DIMENSION, seed=3), y


def few_rows_head(step: float = 1.0, **settings) -> TreeHead:
    tree, counts, x, y = few_rows()
    head = make_head(tree, in_double(step=0.6, **settings), points=[2, 3, 1], rows=counts)
    for some in ([0, 1, 2, 3], [4, 5, 6, 1]):
        head.loss(x[some], y[some])
        head.update()
    stepping = make_head(tree, in_double(step=step, **settings), points=[2, 3, 1], rows=counts)
    stepping.load_state_dict(head.state_dict())
    return stepping


@pytest.mark.parametrize("size", [1, 2, 3])
def test_natural_statistics_of_mini_batches_are_unbiased_where_they_hit(size: int) -> None:
    """Over all batches of a size, the mean of η̂ and P̂ at a node is that of all its rows.

    The mean is over the batches with a row at the node; the others leave it alone. Given how many rows hit it, every
    choice of them is as likely, and n / |B| is right for each number: so the mean is right whatever its distribution.
    """
    head, (tree, counts, x, y) = few_rows_head(), few_rows()
    twin = Twin(head, counts)
    with torch.no_grad():
        full = [twin.best(v, x, y) for v in range(tree.n_nodes)]
    found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in full]
    for some in itertools.combinations(range(len(y)), size):
        stepped = copy.deepcopy(head)
        stepped.loss(x[list(some)], y[list(some)])
        stepped.update()
        for v in range(tree.n_nodes):
            now = Twin(stepped, counts).natural(v)
            if twin.inside(v, y[list(some)])[0]:
                found[v].append(now)
            else:
                assert all(torch.equal(a, b) for a, b in zip(now, twin.natural(v), strict=True))
    assert (len(found[1]) < len(found[0])) == (size < 3)  # some batches of one and two miss the lower node
    for v, (eta, P) in enumerate(full):
        assert_near(torch.stack([each for each, _ in found[v]]).mean(0), eta, 1e-12)
        assert_near(torch.stack([each for _, each in found[v]]).mean(0), P, 1e-12)


@pytest.mark.parametrize("node_weights", ["balanced", "equal", "size"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_gradients_of_mini_batches_are_unbiased_where_they_hit(size: int, node_weights: str) -> None:
    """Over all batches of a size, a node's part is that of all its rows, times the share of batches that hit it.

    With respect to points and kernel; at the root every batch hits.
    """
    head, (tree, counts, x, y) = few_rows_head(node_weights=node_weights), few_rows()
    twin, batches = Twin(head, counts), [list(b) for b in itertools.combinations(range(len(y)), size)]
    hit = [sum(bool(twin.inside(v, y[b])[0]) for b in batches) / len(batches) for v in range(tree.n_nodes)]
    assert hit[0] == 1
    expected = torch.stack([hit[v] * twin.node_loss(v, x, y) for v in range(tree.n_nodes)]).sum()
    losses = [head.loss(x[b], y[b]) for b in batches]
    assert_near(torch.stack(losses).mean().detach(), expected.detach(), 1e-12)
    wanted = torch.autograd.grad(expected, moving(head))
    found = [torch.autograd.grad(loss, moving(head)) for loss in losses]
    for i, theirs in enumerate(wanted):
        assert_near(torch.stack([gradients[i] for gradients in found]).mean(0), theirs, 1e-12)


def test_a_batch_that_misses_a_node_leaves_it_alone() -> None:
    tree = TREES["balanced"]
    head = make_head(tree, in_double(step=0.5, learn_kernel="per-node"))
    walk(head)
    x, y = training_rows(tree, seed=7)
    some = (y == 5).nonzero()[:, 0]
    before, twin = naturals(head), Twin(head)
    loss = head.loss(x[some].requires_grad_(), y[some])
    loss.backward()
    head.update()
    assert torch.isfinite(loss)
    hit = [v for v in range(tree.n_nodes) if 5 in twin.classes(v)]
    assert len(hit) == 3
    for v in range(tree.n_nodes):
        same = [torch.equal(a, b) for a, b in zip(before[v], twin.natural(v), strict=True)]
        assert same == [v not in hit] * 2
        for p in head.kernel.parameters():
            assert p.grad is not None
            assert bool((p.grad[v] != 0).all()) == (v in hit)
    assert int(head.skipped) == 0


# ------------------------------------------------------------------------------------------- failing factorisations


def doubled_point(learn_kernel: str = "shared") -> tuple[TreeHead, list[int]]:
    """Two points of one class are the same and the jitter is too small to matter: the nodes that hold them fail."""
    head = make_head(TREES["balanced"], in_double(step=0.5, learn_kernel=learn_kernel))
    walk(head)
    with torch.no_grad():
        first, second = (head.point_class == 2).nonzero()[:2, 0]
        head.points[second] = head.points[first]
        head.jitter.fill_(1e-30)
    return head, [v for v in range(head.tree.n_nodes) if 2 in Twin(head).classes(v)]


@pytest.mark.parametrize("learn_kernel", ["shared", "per-node"])
@pytest.mark.parametrize("trouble", ["doubled point", "P not positive", "P not a number"])
def test_nodes_that_do_not_factorise_are_left_out_and_told(trouble: str, learn_kernel: str) -> None:
    """They keep their q and add nothing; all others go on as if nothing had been. Jitter grows tenfold."""
    head, failing = doubled_point(learn_kernel)
    head.jitter.fill_(-1e-9)  # so that no rounding makes the doubled point's pivot positive
    if trouble != "doubled point":
        walk(head := make_head(TREES["balanced"], in_double(step=0.5, learn_kernel=learn_kernel)))
        bucket = next(i for i, bucket in enumerate(head.buckets) if 4 in bucket.nodes.tolist())
        place, failing = head.buckets[bucket].nodes.tolist().index(4), [4]
        n = len(Twin(head).points(4))
        bad = -torch.eye(n) if trouble == "P not positive" else torch.full((n, n), torch.nan)
        head.get_buffer(f"precision_{bucket}")[place, :n, :n] = bad
    jitter, before, twin = float(head.jitter), naturals(head), Twin(head)
    x, y = training_rows(head.tree, seed=7)
    x.requires_grad_()
    well = [v for v in range(head.tree.n_nodes) if v not in failing]
    expected = torch.stack([twin.node_loss(v, x, y) for v in well]).sum()
    wanted = torch.autograd.grad(expected, [x, *moving(head)])
    with torch.no_grad():
        best = {v: twin.best(v, x, y) for v in well}
    loss = head.loss(x, y)
    assert_near(loss.detach(), expected.detach(), 1e-9)
    for mine, theirs in zip(torch.autograd.grad(loss, [x, *moving(head)]), wanted, strict=True):
        assert_near(mine, theirs, 1e-8)
    head.update()
    assert int(head.skipped) == len(failing)
    assert float(head.jitter) == pytest.approx(10 * jitter)
    for v in range(head.tree.n_nodes):
        for old, new, target in zip(before[v], twin.natural(v), best.get(v, before[v]), strict=True):
            if v in failing:
                torch.testing.assert_close(new, old, rtol=0.0, atol=0.0, equal_nan=True)
            else:
                assert_near(new, (old + target) / 2, 1e-8)


def test_jitter_grows_until_it_helps_or_is_at_its_largest() -> None:
    head, failing = doubled_point()
    head.jitter.fill_(1e-18)
    x, y = training_rows(head.tree, seed=7)
    seen = []
    for _ in range(8):
        head.loss(x, y)
        head.update()
        seen.append((int(head.skipped), float(head.jitter)))
    skips, final = seen[-1]
    tries = next(i for i, (skipped, _) in enumerate(seen) if skipped == skips) + 1
    assert 1 <= tries < 8
    assert skips <= tries * len(failing)
    assert final == pytest.approx(1e-18 * 10**tries)
    buckets = len(head.buckets)
    for i in range(buckets):
        head.get_buffer(f"precision_{i}").neg_()
    head.jitter.fill_(3e-3)
    for _ in range(2):
        head.loss(x, y)
        head.update()
        assert float(head.jitter) == pytest.approx(module.LARGEST_JITTER)
    assert int(head.skipped) == skips + 2 * head.tree.n_nodes


# ------------------------------------------------------------------------------------------------------- predictions


@pytest.mark.parametrize("learn_kernel", ["shared", "per-node"])
@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
@torch.no_grad()
def test_probabilities_are_products_of_decisions(
    tree: ClassTree, learn_kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = make_head(tree, in_double(learn_kernel=learn_kernel))
    spread(head)
    head.refit(*training_rows(tree), sweeps=5)
    new = torch.cat([training_rows(tree, seed=4)[0][:6], 1e3 * randn(3, DIMENSION, seed=8)])
    twin, found = Twin(head), {}
    for at in ("mean", "quadrature"):
        found[at] = head.log_probabilities(new, at)
        assert found[at].shape == (9, tree.n_classes)
        assert_near(found[at].exp().sum(-1), torch.ones(9, dtype=FLOAT), 1e-13)
        assert_near(found[at].exp(), twin.probabilities(new, at == "mean"), 1e-10)
    assert (found["mean"] - found["quadrature"]).abs().max() > 1e-2
    assert torch.equal(head.log_probabilities(new), found["quadrature"])
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 4)
    for at, whole in found.items():
        assert_near(head.log_probabilities(new, at), whole, 1e-13)


def test_a_fitted_head_knows_its_classes() -> None:
    head = make_head(TREES["balanced"], in_double())
    x, y = training_rows(head.tree)
    x = randn(8, DIMENSION, seed=1)[y] + 0.1 * randn(len(y), DIMENSION, seed=2)
    head.refit(x, y, sweeps=20)
    assert (head.log_probabilities(x).argmax(-1) == y).double().mean() > 0.9


def test_the_prior_does_not_know() -> None:
    head = make_head(TREES["chain"], in_double())
    path = torch.tensor([0.25, 0.0625, 0.0625, 0.5, 0.125], dtype=FLOAT)  # classes 0 … 4 of [3, [0, [4, [1, 2]]]]
    assert_near(head.log_probabilities(randn(3, DIMENSION, seed=0)).exp(), path.expand(3, 5), 1e-12)
    assert float(head.kl()) == 0.0


# --------------------------------------------------------------------------------------------------- state, settings


@pytest.mark.parametrize("learn_kernel", LEARN)
def test_copies_go_on_alike(learn_kernel: str) -> None:
    """Copied, pickled, or loaded into a new head from a state dictionary, in the middle of a training."""
    settings = in_double(cap=12, step=0.5, learn_kernel=learn_kernel)
    head = make_head(TREES["balanced"], settings)
    spread(head)
    walk(head)
    x, y = training_rows(head.tree, seed=7)
    head.loss(x, y)
    head.jitter.fill_(1e-4)
    loaded = make_head(TREES["balanced"], settings)
    assert loaded.load_state_dict(head.state_dict()).missing_keys == []
    others = [loaded, copy.deepcopy(head), pickle.loads(pickle.dumps(head))]
    new, expected = randn(4, DIMENSION, seed=8), []
    for each in (head, *others):
        each.loss(x, y)
        each.update()
        found = [each.log_probabilities(new), each.bound(x, y), each.jitter, *each.parameters()]
        expected = expected or found
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    before = [value.clone() for value in head.state_dict().values()]
    for each in others:
        walk(each)
    assert all(torch.equal(a, b) for a, b in zip(before, head.state_dict().values(), strict=True))


def test_a_copy_has_no_loss_to_update_from() -> None:
    head = make_head(TREES["chain"], in_double())
    with pytest.raises(RuntimeError, match="call loss first"):
        head.update()
    head.loss(*training_rows(head.tree))
    for other in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        with pytest.raises(RuntimeError, match="call loss first"):
            other.update()
    head.update()
    with pytest.raises(RuntimeError, match="call loss first"):
        head.update()


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"inducing": 0}, "inducing must be at least 1, got 0"),
        ({"cap": 1}, "cap must be at least 2, got 1"),
        ({"step": 0.0}, "step must lie between 0, not included, and 1, got 0.0"),
        ({"step": 1.5}, "step must lie between 0, not included, and 1, got 1.5"),
        ({"step": float("nan")}, "step must lie"),
        ({"learn_kernel": True}, r"learn_kernel must be one of .*'per-node'.*, got True"),
        ({"node_weights": "rows"}, r"node_weights must be one of .*'size'.*, got 'rows'"),
        ({"dtype": "float16"}, r"dtype must be one of .*'float32'.*, got 'float16'"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(bad: dict, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        in_double(**bad)


def test_a_cap_below_one_point_a_class_is_refused() -> None:
    with pytest.raises(ValueError, match="cap=7 is less than one inducing point a class at a node of 8 classes"):
        make_head(TREES["balanced"], in_double(cap=7))
    assert make_head(TREES["balanced"], in_double(cap=8)).buckets


def test_the_head_s_state_names_all_that_a_training_keeps() -> None:
    names = set(make_head(TREES["chain"], in_double()).state_dict())
    assert {"points", "point_class", "jitter", "skipped", "eta_0", "precision_0"} <= names
    assert "kernel.raw_outputscale" in names


def test_a_head_moves_with_all_it_has() -> None:
    head = make_head(TREES["balanced"], in_double()).to("meta")
    for bucket in head.buckets:
        assert {t.device.type for t in (bucket.nodes, bucket.points, bucket.padding) if t is not None} == {"meta"}


# -------------------------------------------------------------------------------------------------------- on a GPU


def both_devices(**settings) -> tuple[TreeHead, TreeHead]:
    heads = [make_head(TREES["balanced"], in_double(step=0.5, **settings), device=d) for d in ("cpu", "cuda")]
    for head in heads:
        spread(head)
    return heads[0], heads[1]


def batches(head: TreeHead) -> Iterator[tuple[Tensor, Tensor]]:
    """Of two sizes in turn."""
    for seed in range(6):
        x, y = training_rows(head.tree, seed=seed)
        size = len(y) if seed % 2 else len(y) // 2
        yield x[:size].to(head.points), y[:size].to(head.points.device)


def numbers(head: TreeHead, x: Tensor, y: Tensor) -> list[Tensor]:
    """A step: the loss, its gradients, and then what the head says of other rows."""
    x = x.detach().requires_grad_()
    loss = head.loss(x, y)
    gradients = torch.autograd.grad(loss, [x, *moving(head)])
    head.update()
    return [loss.detach(), *gradients, head.bound(x.detach(), y), head.log_probabilities(x.detach().flip(-1))]


@on_cuda
@pytest.mark.parametrize("cap", [None, 12])
@pytest.mark.parametrize("learn_kernel", LEARN)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 3e-2)])
def test_recorded_steps_are_those_of_the_cpu(dtype: str, tolerance: float, learn_kernel: str, cap: int | None) -> None:
    """Six steps in batches of two sizes. Kernels of their own for the nodes run without a recording."""
    cpu, cuda = both_devices(dtype=dtype, learn_kernel=learn_kernel, cap=cap)
    for there, here in zip(batches(cuda), batches(cpu), strict=True):
        for mine, theirs in zip(numbers(cuda, *there), numbers(cpu, *here), strict=True):
            assert_near(mine.cpu(), theirs, tolerance)
    assert len(cuda._recorded) == (0 if learn_kernel == "per-node" else 2)
    assert_same_naturals(cuda, cpu, tolerance)


@on_cuda
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-4)])
def test_recorded_steps_are_those_without_a_recording(dtype: str, tolerance: float) -> None:
    """Parameters that an optimiser moved in place, and a loaded state, are seen by the recording."""
    _, recorded = both_devices(dtype=dtype)
    _, plain = both_devices(dtype=dtype)
    for x, y in batches(recorded):
        value, gradients, plain._last_batch = plain._step_parts(x, y)
        x.requires_grad_()
        loss = recorded.loss(x, y)
        assert_near(loss.detach(), value, tolerance)
        for mine, theirs in zip(torch.autograd.grad(loss, [x, *moving(recorded)]), gradients, strict=True):
            assert_near(mine, theirs, tolerance)
        for head in (recorded, plain):
            head.update()
            with torch.no_grad():
                for p in moving(head):
                    p += 0.01 * torch.ones_like(p)
            head.load_state_dict({name: value.clone() for name, value in head.state_dict().items()})


@on_cuda
def test_failures_on_a_gpu_are_told_without_waiting() -> None:
    _, cuda = both_devices()
    (x, y), bucket = next(batches(cuda)), len(cuda.buckets) - 1
    cuda.loss(x, y)
    cuda.get_buffer(f"precision_{bucket}").neg_()
    loss = cuda.loss(x, y)
    cuda.update()
    assert torch.isfinite(loss)
    assert int(cuda.skipped) == len(cuda.buckets[bucket].nodes)


@on_cuda
@pytest.mark.parametrize("learn_kernel", LEARN)
def test_two_classes_on_a_gpu(learn_kernel: str) -> None:
    heads = [make_head(TREES["two classes"], in_double(learn_kernel=learn_kernel), device=d) for d in ("cpu", "cuda")]
    (x, y) = training_rows(TREES["two classes"])
    for mine, theirs in zip(numbers(heads[1], x.cuda(), y.cuda()), numbers(heads[0], x, y), strict=True):
        assert_near(mine.cpu(), theirs, 1e-9)


@on_cuda
def test_a_head_moves_between_devices() -> None:
    cpu, cuda = both_devices()
    walk(cpu)
    walk(cuda)
    expected, moved = cpu.log_probabilities(randn(4, DIMENSION, seed=8)), copy.deepcopy(cpu).to("cuda")
    for head in (moved, cuda):
        assert_near(head.log_probabilities(randn(4, DIMENSION, seed=8).cuda()).cpu(), expected, 1e-9)
    x, y = next(batches(cuda))
    for mine, theirs in zip(numbers(moved, x, y), numbers(cuda, x, y), strict=True):
        assert_near(mine, theirs, 1e-9)
    back = cuda.to("cpu")
    assert_near(numbers(back, x.cpu(), y.cpu())[0], numbers(moved, x, y)[0].cpu(), 1e-9)


@on_cuda
def test_two_losses_before_their_gradients() -> None:
    """A recording overwrites what it returned, but not what a loss will give back later."""
    _, cuda = both_devices()
    x, y = next(batches(cuda))
    separate = [torch.autograd.grad(cuda.loss(each, y), moving(cuda))[0] for each in (x, -x)]
    losses = [cuda.loss(each, y) for each in (x, -x)]
    assert_near(torch.autograd.grad(losses[0] + losses[1], moving(cuda))[0], separate[0] + separate[1], 1e-12)
