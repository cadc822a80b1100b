"""Which way a number is computed where several are open, and numbers that only a change of the code can move."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from gptree.maths import conditional, frozen, kernels, linalg, polya_gamma, quadrature, whitened
from gptree.maths.seeding import first_nearest, kmeans_plus_plus_order


class Calls:
    """A function that remembers the arguments it was called with."""

    def __init__(self, function: Any) -> None:
        self.function, self.arguments = function, list[Any]()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.arguments.append(arguments)
        return self.function(*arguments, **named)


def watch(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> Calls:
    calls = Calls(getattr(module, name))
    monkeypatch.setattr(module, name, calls)
    return calls


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# ------------------------------------------------------------------------------------------------------- quadrature


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_only_far_means_are_summed_as_logarithms(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = watch(monkeypatch, quadrature, "logsigmoid")
    far = -0.5 * math.log(torch.finfo(dtype).tiny)
    one = torch.ones(2, dtype=dtype)
    quadrature.log_sigmoid_expectation(torch.tensor([0.0, 0.999 * far], dtype=dtype), one)
    if dtype == torch.float64:
        quadrature.log_sigmoid_expectation(double(far), double(1.0))
    assert not slow.arguments
    quadrature.log_sigmoid_expectation(torch.tensor([0.0, 1.001 * far], dtype=dtype), one)
    assert len(slow.arguments) == 1


def test_a_series_takes_over_beyond_a_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    series = watch(monkeypatch, quadrature, "_log_lesser_wide")
    quadrature.log_sigmoid_expectation(double(1.0, math.inf), double(12.0, 13.0))
    assert not series.arguments
    quadrature.log_sigmoid_expectation(double(1.0, 2.0, math.inf), double(12.0, 12.1, 13.0))
    assert series.arguments[0][0].tolist() == [2.0]


def test_blocks_of_the_quadrature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quadrature, "_BLOCK_CPU", 2)
    blocks = watch(monkeypatch, quadrature, "_log_lesser")
    quadrature.log_sigmoid_expectation(double(0.0, 1.0, 2.0), double(1.0))
    assert [len(arguments[0]) for arguments in blocks.arguments] == [2, 1]


@pytest.mark.parametrize("points", [20, 7, 1])
def test_what_can_be_exported_gives_the_same(points: int) -> None:
    mean = double(-700.0, -30.0, -1.0, -1e-9, 0.0, 0.5, 20.0, 300.0)[:, None]
    variance = double(-1e-12, 0.0, 0.3, 4.0, 12.0, 12.1, 90.0)
    for wide, some in ((True, variance), (False, variance[:5])):
        blind = quadrature.log_sigmoid_expectation_blind(mean, some, wide, points)
        seeing = quadrature.log_sigmoid_expectation(mean, some, points)
        torch.testing.assert_close(blind, seeing, rtol=1e-10, atol=1e-14)


def test_weights_of_the_alternating_series() -> None:
    """Σ (−1)^k / (k + 1) = log 2, within the bound 2 (3 + √8)⁻ⁿ, which is nearly met."""
    for terms in (4, 9, 14):
        total = sum(w / (k + 1) for k, w in enumerate(quadrature._alternating_weights(terms)))
        assert abs(total - math.log(2)) < 2 * (3 + math.sqrt(8)) ** -terms


def test_points_that_several_pieces_need_are_met_once() -> None:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    more = torch.cat([x[4:5], x[:2] + 1.0])
    asked = (x, x.clone(), x.float(), x[[5, 1]], x[[2, 3]].float(), more, more[1:].float(), (more - 3.0).float())
    parts = frozen.Parts()
    pieces = [parts.products(points) for points in asked]
    (products, *_) = parts.shared()
    assert len(products.get_buffer("points")) == 6 + 2 + 3
    rows = frozen.Rows(torch.ones(2, 3, dtype=torch.float64))
    for piece, points in zip(pieces, asked, strict=True):
        torch.testing.assert_close(piece(rows), points.double() @ rows.x.mT, rtol=0, atol=1e-6)
    assert [piece.index is None for piece in pieces] == [False] * 8  # since others were added
    alone = frozen.Parts()
    first, second = alone.products(x), alone.products(x[:3])
    alone.shared()
    assert first.index is None
    assert second.index is not None


def test_sums_are_the_same_sparse_and_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    entries = torch.randint(0, 300 * 40, (900,), generator=random).unique()
    weights, values = (torch.randn(n, generator=random, dtype=torch.float64) for n in (len(entries), 40 * 3))
    values, matrix = values.view(40, 3), torch.zeros(300, 40, dtype=torch.float64)
    matrix.view(-1)[entries] = weights
    sums = frozen.FrozenSums(entries // 40, entries % 40, weights, (300, 40))
    torch.testing.assert_close(sums(values), matrix @ values, rtol=0, atol=1e-12)
    calls = watch(monkeypatch, sums.dense, "forward")
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(sums(values), matrix @ values, rtol=0, atol=1e-12)
    assert len(calls.arguments) == 1


def test_logarithms_are_added_in_the_same_way_where_they_are_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = double(0.0, -3.0, 5.0, -800.0, 1e-3), double(0.0, 2.0, -700.0, -801.0, -2e-3)
    plain = frozen.log_add_exp(a, b)
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    torch.testing.assert_close(frozen.log_add_exp(a, b), plain, rtol=1e-14, atol=0)


# ------------------------------------------------------------------------------------------------------- Pólya-Gamma


def relative_error(value: Tensor, exact: list[Any]) -> float:
    return max(abs(float((mpmath.mpf(v) - e) / e)) for v, e in zip(value.tolist(), exact, strict=True))


def test_moments_have_all_their_digits_around_the_change_of_formula() -> None:
    """Series are cut where their next term is below rounding: a little farther out it is not."""
    with mpmath.workdps(40):
        c = double(0.7, 0.79, 0.81, 0.999, 1.0, 1.001, 1.3, 1.6, 1.9, 1.99)
        m = [mpmath.mpf(x) for x in c.tolist()]
        mean = [mpmath.tanh(x / 2) / (2 * x) for x in m]
        variance = [(mpmath.sinh(x) - x) / (4 * x**3 * mpmath.cosh(x / 2) ** 2) for x in m]
        kl = [mpmath.log(mpmath.cosh(x / 2)) - x / 4 * mpmath.tanh(x / 2) for x in m]
        assert relative_error(polya_gamma.pg_mean(c), mean) < 1e-15
        assert relative_error(polya_gamma.pg_variance(c), variance) < 4e-15
        assert relative_error(polya_gamma.pg_kl(c), kl) < 2e-14


def test_draws_of_a_seed() -> None:
    """Also of elements that are worked on in several blocks, and of whole, fractional and zero shapes."""
    generator = torch.Generator().manual_seed(5)
    draws = polya_gamma.sample_pg(torch.linspace(-6, 6, 70_000, dtype=torch.float64), generator=generator)
    assert draws[:3].tolist() == pytest.approx(DRAWS["first"], rel=1e-9)
    assert float(draws.sum()) == pytest.approx(DRAWS["all"], rel=1e-9)
    shapes = double(0.0, 0.3, 1.0, 2.0, 5.75, 1.0) + torch.zeros(50, 1, dtype=torch.float64)
    mixed = polya_gamma.sample_pg(torch.linspace(0, 9, 6, dtype=torch.float64), shapes, generator=generator)
    assert mixed.sum(0).tolist() == pytest.approx(DRAWS["mixed"], rel=1e-9)


#: Of the generator of torch, which is the same on all machines.
DRAWS = {
    "first": [0.13348227931193055, 0.05446810199028333, 0.059226290045686705],
    "all": 11285.037037910324,
    "mixed": [0.0, 3.799787209278942, 7.03779409627802, 8.846597893768834, 20.076516036618997, 2.9418572708152135],
}


def test_units_are_drawn_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polya_gamma, "_BLOCK_CPU", 6)
    passes = watch(monkeypatch, polya_gamma, "_reject")
    polya_gamma._sum_of_units(double(1.0, 2.0), double(7.0, 9.0), torch.Generator().manual_seed(0))
    assert [len(arguments[1][0]) for arguments in passes.arguments] == [6, 6, 2, 2]


# --------------------------------------------------------------------------------------------------- linear algebra


def test_orders_at_which_the_way_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whitened, "FACTORED_ORDER", 4)
    halves = watch(monkeypatch, whitened, "_write_root_inverse")
    halves.function(torch.eye(4).expand(2, 4, 4), torch.zeros(2, 4, 4))
    assert not halves.arguments
    halves.function(torch.eye(5).repeat(2, 1, 1), torch.zeros(2, 5, 5))
    assert [arguments[0].shape[-1] for arguments in halves.arguments] == [2, 3]


@pytest.mark.parametrize(
    ("n", "solved", "padded"),
    [(1, 1, 1), (64, 64, 64), (65, 65, 65), (66, 33, 66), (128, 64, 128), (129, 129, 129), (130, 65, 130),
     (159, 159, 159), (161, 81, 162), (321, 161, 322), (400, 50, 400)],
)  # fmt: skip
def test_blocks_of_triangular_inverses(n: int, solved: int, padded: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 2.5 times the order that is solved, where that spares padding."""
    monkeypatch.setattr(linalg, "SOLVED_ORDER", 64)
    blocks = watch(monkeypatch, linalg, "_blocks")
    linalg.triangular_inverse(torch.eye(n))
    assert (blocks.arguments[0][1], blocks.arguments[0][0].shape[-1]) == (solved, padded)


def test_conjugate_gradients_take_as_many_steps_as_there_are_eigenvalues() -> None:
    """Three different ones: three steps, none of them after all residuals are small, or for a system of zeros."""
    diagonal = double(1.0, 1.0, 2.0, 5.0, 5.0)
    images = Calls(lambda v: v * diagonal)
    rhs = torch.stack([double(1.0, 2.0, 3.0, 4.0, 5.0), torch.zeros(5, dtype=torch.float64)])
    x, arrived = linalg.conjugate_gradients(images, rhs)
    assert arrived
    assert len(images.arguments) == 3
    torch.testing.assert_close(x, rhs / diagonal)


def test_precision_is_computed_in_blocks_of_columns() -> None:
    """Right of a block stay zeros."""
    A = torch.ones(1, 2, 130, dtype=torch.float64)
    with torch.no_grad():
        B = conditional.WeightSpace(A).precision(torch.ones(1, 1, 2, dtype=torch.float64))[0, 0]
    expected = 2 * torch.ones(130, 130, dtype=torch.float64) + torch.eye(130, dtype=torch.float64)
    expected[:128, 128:] = 0.0
    assert torch.equal(B, expected)


@torch.no_grad()
def test_points_of_sparse_nodes_are_worked_on_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    root = torch.randn(2, 9, 12, generator=random, dtype=torch.float64)
    omega = torch.rand(3, 2, 9, generator=random, dtype=torch.float64)
    K = root @ root.mT

    def found() -> list[Tensor]:
        space, L, _ = conditional.WeightSpace.from_inducing(K[:, :4, :4], K[:, :, :4], K.diagonal(dim1=-2, dim2=-1))
        factor = space.factor(omega)
        return [space.A @ L.mT, torch.as_tensor(space.residual), factor, space.variance(factor, omega)]

    whole = found()
    for points in (1, 4, 9):
        monkeypatch.setattr(conditional, "POINTS", points)
        for part, one in zip(found(), whole, strict=True):
            torch.testing.assert_close(part, one, rtol=0, atol=1e-12)
    torch.testing.assert_close(whole[0], K[:, :, :4], rtol=0, atol=1e-10)


# ----------------------------------------------------------------------------------------------------- kernels, seeds


def test_kernels_are_tried_on_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "CHECKED_AT_A_TIME", 2)
    tried = watch(monkeypatch, kernels, "gram_diagonal")
    kernels.check_kernel(kernels.make_kernel("rbf"), torch.ones(3, 1))
    assert not tried.arguments
    kernels.check_kernel(kernels.make_kernel("matern52"), torch.ones(3, 1))
    assert [len(arguments[1]) for arguments in tried.arguments] == [2, 1]


def test_rows_that_all_nodes_share_are_met_once() -> None:
    """One product of matrices, where other rows take one of batches; with gradients it is GPyTorch's way."""
    own = kernels.node_kernels(kernels.make_kernel("rbf"), 2).double()
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    others = {"mm": x[:1].expand(2, 3, 4), "bmm": x.clone()}
    for name, other in others.items():
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            kernels.gram(own, x, other)
        assert {str(op) for op in counter.get_flop_counts()["Global"]} == {f"aten.{name}"}


@pytest.mark.parametrize("nodes", [None, 2])
def test_kernels_of_features_far_from_the_origin(nodes: int | None) -> None:
    """Distances keep their digits, since those to the mean of the rows are taken."""
    kernel = kernels.make_kernel("rbf", 2.0, 1.5).double()
    shape = (8, 3) if nodes is None else (nodes, 8, 3)
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = kernel if nodes is None else kernels.node_kernels(kernel, nodes)
    with torch.no_grad():
        for other in (x, x[..., :5, :].clone()):
            near, far = kernels.gram(kernel, x, other), kernels.gram(kernel, x + 3e4, other + 3e4)
            torch.testing.assert_close(far, near, rtol=0, atol=1e-10)
            assert bool((far <= kernels.gram_diagonal(kernel, x).max()).all())


def test_a_kernel_a_node_takes_the_fast_way_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = watch(monkeypatch, kernels, "_node_rbf")
    own, x = kernels.node_kernels(kernels.make_kernel("rbf"), 2), torch.ones(2, 3, 4)
    kernels.gram(own, x)
    assert not fast.arguments
    with torch.no_grad():
        kernels.gram(own, x)
        assert len(fast.arguments) == 1
        kernels.gram(kernels.node_kernels(kernels.make_kernel("matern52"), 2), x)
    assert len(fast.arguments) == 1


def test_nearest_within_rounding() -> None:
    """A thousand units in the last place of the largest square; the first of those that are as near."""
    eps = np.finfo(np.float64).eps
    assert first_nearest(np.array([1.0 + 2000 * eps, 1.0]), 2.0) == 0
    assert first_nearest(np.array([1.0 + 2001 * eps, 1.0]), 2.0) == 1
    assert first_nearest(np.array([[3.0, 1.0], [2.0, 2.0], [2.0, 0.5]]), 1.0).tolist() == [1, 2]


def test_rows_are_as_near_within_the_rounding_of_the_longest() -> None:
    """Of 64 dimensions; the first two rows lie around the mean, and the second is nearer by 5e-12."""
    ones, aside = np.ones(64), np.eye(64)[0]
    features = np.stack([ones + 1.00002e-3 * aside, ones - 1e-3 * aside, 0 * ones, 2 * ones])
    assert kmeans_plus_plus_order(features, np.random.default_rng(0), 4)[0] == 0


def test_no_more_rows_are_drawn_than_wanted() -> None:
    features = np.arange(8.0)[:, None]
    draws = [kmeans_plus_plus_order(features, np.random.default_rng(seed), limit=3) for seed in range(20)]
    assert all((np.diff(order[3:]) > 0).all() for order in draws)
    assert not all((np.diff(order[2:]) > 0).all() for order in draws)
    assert {int(order[0]) for order in draws} == {3}
