"""How the work at the nodes is cut into pieces that a memory budget holds, and where another way begins."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from node_cases import BUDGET, features, kernel, problem, problems

from gptree.inference import (
    CoordinateAscent,
    Gibbs,
    Grams,
    NodePredictor,
    SparseVariational,
    fit_nodes,
    frozen_variances,
    gibbs,
    layer,
    posterior,
    predict,
)
from gptree.inference.base import Diagnostics, Inference
from gptree.inference.limits import class_inducing
from gptree.inference.nodes import NodeBatch, make_batches, size_class
from gptree.inference.posterior import (
    DensePosterior,
    LinearPosterior,
    PooledDensePosterior,
    SparsePosterior,
    draw_chunks,
    make_posterior,
)
from gptree.inference.sparse_variational import WhitenedBatch
from gptree.maths.conditional import FunctionSpace, WeightSpace
from gptree.maths.frozen import NotFrozenError, Parts, Rows
from gptree.maths.kernels import node_kernels
from gptree.maths.seeding import kmeans_plus_plus_order
from gptree.tree import label_hashes, node_generator, node_key


def batch_of(*sizes: int, inducing: int | None = None) -> NodeBatch:
    return NodeBatch.stack(range(len(sizes)), problems(sizes, inducing=inducing), torch.float64)


# ------------------------------------------------------------------------------------------------------------ draws


@pytest.mark.parametrize("space", [FunctionSpace(torch.ones(2, 3, 3)), WeightSpace(torch.ones(2, 5, 3))])
@pytest.mark.parametrize(("work", "sizes"), [(1, [1] * 5), (107, [1] * 5), (108, [2, 2, 1]), (270, [5]), (900, [5])])
def test_draws_at_a_time_hold_three_matrices_a_node(space: Any, work: int, sizes: list[int]) -> None:
    chunks = draw_chunks(space, 5, work)  # 3 · 2 nodes · 3² = 54 numbers a draw
    assert [chunk.stop - chunk.start for chunk in chunks] == sizes
    assert [chunk.start for chunk in chunks] == [sum(sizes[:i]) for i in range(len(sizes))]


def watched_factors(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of draws whose factors are computed at a time."""
    seen: list[int] = []
    factor = FunctionSpace.factor

    def counted(self: FunctionSpace, omega: torch.Tensor) -> torch.Tensor:
        seen.append(len(omega))
        return factor(self, omega)

    monkeypatch.setattr(FunctionSpace, "factor", counted)
    return seen


def test_a_posterior_of_many_draws_is_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, grams = batch_of(4, 4), Grams(kernel(), features(), BUDGET)
    omega = torch.rand(5, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    space = grams.space(batch)[0]
    whole = make_posterior(batch, space, omega, BUDGET)
    seen = watched_factors(monkeypatch)
    pieces = make_posterior(batch, space, omega, 2 * 3 * 2 * 16)
    assert seen == [2, 2, 1]
    torch.testing.assert_close(pieces.weights, whole.weights)


@pytest.mark.parametrize(("order", "iterates"), [(5, False), (4, True), (3, True)])
def test_large_nodes_are_solved_by_iteration(order: int, iterates: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """From an order on: 4 points here."""
    for module in (posterior, gibbs):
        monkeypatch.setattr(module, "ITERATIVE_ORDER", order)
    seen = watched_factors(monkeypatch)
    batch, grams = batch_of(4), Grams(kernel(), features(), BUDGET)
    Gibbs(chains=2).fit(batch, grams, BUDGET)
    assert bool(seen) != iterates
    seen.clear()
    make_posterior(batch, grams.space(batch)[0], torch.ones(1, 1, 4, dtype=torch.float64), BUDGET)
    assert bool(seen) != iterates


# ----------------------------------------------------------------------------------------------------------- batches


def test_padded_sizes() -> None:
    """They grow by a quarter, at least by one; nodes beyond the largest are not padded."""
    sizes = [size_class(n, 30) for n in range(1, 33)]
    assert sizes == [4] * 4 + [5, 6, 7, 8] + [10] * 2 + [12] * 2 + [15] * 3 + [18] * 3 + [22] * 4 + [27] * 5 + [
        33
    ] * 3 + [31, 32]


@pytest.mark.parametrize(
    ("budget", "width", "inducing", "expected"),
    [
        (50, 1, None, [2, 1]),  # 5 · 5 numbers a node
        (49, 1, None, [1, 1, 1]),
        (1, 1, None, [1, 1, 1]),
        (75, 1, None, [3]),
        (70, 7, None, [2, 1]),  # 5 · 7
        (69, 7, None, [1, 1, 1]),
        (20, 1, 2, [2, 1]),  # 5 · 2
        (19, 1, 2, [1, 1, 1]),
        (30, 3, 2, [2, 1]),  # 5 · 3
    ],
)
def test_nodes_of_a_batch(budget: int, width: int, inducing: int | None, expected: list[int]) -> None:
    given = problems([5, 5, 5], inducing=inducing)
    batches = list(make_batches(given, torch.float64, budget, 128, width, lambda n: False))
    assert [len(batch) for batch in batches] == expected
    assert torch.cat([batch.nodes for batch in batches]).tolist() == [0, 1, 2]


def test_large_nodes_come_first() -> None:
    """Those with inducing points before others of their size."""
    given = [problem(9, 0), problem(3, 1), problem(30, 2), problem(9, 3, inducing=2), problem(9, 4, inducing=4)]
    batches = make_batches(given, torch.float64, 10**6, 128, 1, lambda n: False)
    assert [batch.nodes.tolist() for batch in batches] == [[2], [4], [3], [0], [1]]


def test_batches_hold_a_third_of_the_work() -> None:
    """With a linear kernel or one a node the features of the nodes are gathered, too."""
    of, X = problems([5, 5, 5, 5]), features(d=7)
    assert [len(batch) for batch in Grams(kernel(), X, 0).batches(of, 3 * 50)] == [2, 2]
    assert [len(batch) for batch in Grams(kernel(), X, 0).batches(of, 3 * 50 - 1)] == [1, 1, 1, 1]
    assert [len(batch) for batch in Grams(kernel("linear"), X, 0).batches(of, 3 * 70)] == [2, 2]
    assert [len(batch) for batch in Grams(kernel("linear"), X, 0).batches(of, 3 * 70 - 1)] == [1, 1, 1, 1]


def test_a_linear_kernel_works_with_weights_beyond_one_and_a_half_times_the_dimension() -> None:
    grams = Grams(kernel("linear"), features(d=4), 0)
    assert [grams.uses_weight_space(n) for n in (5, 6, 7)] == [False, False, True]
    assert not Grams(kernel(), features(d=4), 0).uses_weight_space(100)


def test_the_gram_matrix_is_kept_where_it_fits() -> None:
    X = features(10)
    rows = torch.arange(3).unsqueeze(0)
    with torch.no_grad():
        for bytes_, kept in ((3199, False), (3200, True)):
            grams = Grams(kernel(), X, bytes_)
            grams.block(torch.zeros(1, dtype=torch.long), rows, rows)
            assert (grams._full is not None) == kept


def test_rows_asked_for_are_those_of_the_cross_matrix() -> None:
    """All rows in another order than theirs are not taken for the whole matrix's order by mistake: they are sorted."""
    grams, x = Grams(kernel(), features(6), 0), features(2, seed=3)
    whole = grams.cross(x)
    torch.testing.assert_close(grams.cross(x, torch.tensor([1, 4])), whole[:, [1, 4]])
    torch.testing.assert_close(grams.cross(x, torch.arange(6)), whole)


class Remembering(Inference):
    """Fits nothing, and remembers what it was given."""

    sparse = True

    def __init__(self) -> None:
        self.given: list[Any] = []

    def fit(self, batch: NodeBatch, grams: Grams, work: int) -> tuple[Any, Diagnostics]:
        self.given.append((grams._cache_bytes, work))
        return CoordinateAscent().fit(batch, grams, work)


def test_shares_of_the_memory_budget() -> None:
    """A quarter of its bytes for the Gram matrix, an eighth for matrices at work, of 8 bytes a number."""
    inference = Remembering()
    fit_nodes(problems([3]), kernel(), features(), inference, memory_budget=64_000)
    assert inference.given == [(16_000, 1_000)]


# ------------------------------------------------------------------------------------------------------- predictions


def draws_of(count: int = 5, nodes: int = 2, points: int = 3) -> DensePosterior:
    generator = torch.Generator().manual_seed(1)
    omega, weights = torch.rand(2, count, nodes, points, generator=generator, dtype=torch.float64)
    return DensePosterior(torch.arange(nodes), torch.arange(nodes * points).view(nodes, points), omega, weights)


def test_numbers_of_factors() -> None:
    zeros = torch.zeros(1)
    rows = torch.zeros(2, 3, dtype=torch.long)
    assert draws_of().factor_numbers == 2 * 3**2
    assert LinearPosterior(zeros, rows, zeros, torch.zeros(5, 2, 4)).factor_numbers == 2 * 4**2
    assert SparsePosterior(zeros, rows, zeros, zeros).factor_numbers == 2 * 2 * 3**2


def test_what_draws_share_is_not_repeated_for_each() -> None:
    """Variances of two posteriors of five draws, of which one or both are pooled."""
    block = layer.Block([draws_of(), replace(draws_of(), nodes=torch.arange(2, 4))], 5)
    one, five = torch.zeros(1, 2, 3), torch.ones(5, 2, 3)
    assert block.gathered([one, one]).shape == (1, 4, 3)
    assert block.gathered([one, five]).shape == (5, 4, 3)
    assert block.gathered([one, five])[:, :, 0].tolist() == [[0, 0, 1, 1]] * 5


@pytest.mark.parametrize("later", [(2, 3), (3, 2), (0, 1)])
def test_decisions_come_in_the_order_of_the_nodes(later: tuple[int, ...]) -> None:
    """Of nodes with different numbers of draws, of one after the other, and of some alone."""
    first = replace(draws_of(), nodes=torch.tensor([n for n in range(4) if n not in later][:2]))
    more = replace(draws_of(7), nodes=torch.tensor(later))
    grams, x = Grams(kernel(), features(), 0), features(6, seed=2)
    left, right = NodePredictor(grams, [first, more], BUDGET).log_probabilities(x)
    torch.testing.assert_close(left.exp() + right.exp(), torch.ones(4, 6, dtype=torch.float64))
    for part in (first, more):
        alone = NodePredictor(grams, [replace(part, nodes=part.nodes.argsort().argsort())], BUDGET)
        torch.testing.assert_close(left[part.nodes.sort().values], alone.log_probabilities(x)[0])


@pytest.mark.parametrize("room", [90, 89])
def test_variances_are_frozen_where_there_is_room_for_the_factors(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """5 draws of 2 · 3² numbers."""
    monkeypatch.setattr(frozen_variances, "MOST_NUMBERS", room)
    predictor = NodePredictor(Grams(kernel(), features(), 0), [draws_of()], BUDGET)
    nodes = predictor.layer(Parts(frozen=True))
    with nullcontext() if room == 90 else pytest.raises(NotFrozenError, match="GiB"):
        predictor.frozen_variances(nodes)


@pytest.mark.parametrize(("scale", "wide"), [(11.9, False), (12.1, True)])
def test_wide_variances_are_possible_where_the_scale_is(scale: float, wide: bool) -> None:
    predictor = NodePredictor(Grams(kernel(output_scale=scale), features(), 0), [draws_of()], BUDGET)
    nodes = predictor.layer(Parts(frozen=True))
    assert nodes.wide  # unless it is known to be impossible
    predictor.frozen_variances(nodes)
    assert nodes.wide == wide
    each = node_kernels(kernel(output_scale=1.0), 2)
    each.outputscale = torch.tensor([1.0, scale])
    assert (NodePredictor(Grams(each, features(), 0), [draws_of()], BUDGET)._widest() > 12) == wide


def test_factors_are_kept_where_they_take_an_eighth_of_the_budget() -> None:
    """5 draws of 2 · 3² numbers of 8 bytes each."""
    grams, enough = Grams(kernel(), features(), 0), 8 * 8 * 5 * 18
    for budget, kept in ((enough, True), (enough - 1, False)):
        predictor = NodePredictor(grams, [draws_of()], budget)
        ((chunk, factors), *_) = predictor._factor_chunks(0)
        assert (predictor._factors[0] is not None, len(factors) == 5, chunk == slice(0, 5)) == (kept,) * 3


@pytest.mark.parametrize(
    ("work", "sizes"), [(3 * 36, [2, 2, 1]), (3 * 36 - 1, [1] * 5), (9 * 18, [3, 2]), (1, [1] * 5)]
)
def test_other_factors_are_made_as_a_third_of_the_work_holds_them(work: int, sizes: list[int]) -> None:
    grams, budget = Grams(kernel(), features(), 0), 8 * 8 * work  # an eighth of its bytes, 8 a number
    predictor = NodePredictor(grams, [draws_of(), draws_of(100)], budget)
    chunks = list(predictor._factor_chunks(0))
    assert [len(factors) for _, factors in chunks] == sizes
    assert [draw for chunk, _ in chunks for draw in range(chunk.start, chunk.stop)] == list(range(5))


def test_streamed_factors_stay_near_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "STREAMED_NUMBERS", 2 * 18)
    predictor = NodePredictor(Grams(kernel(), features(), 0), [draws_of()], 8 * 8 * 5 * 18 - 1)
    predictor._work = 10**6
    assert [len(L) for _, L in predictor._factor_chunks(0)] == [2, 2, 1]


def test_variances_are_computed_for_some_points_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 · 5 draws · 2 nodes · 3 points = 60 numbers a new point."""
    grams, x = Grams(kernel(), features(), 0), features(7, seed=2)
    whole = NodePredictor(grams, [draws_of()], BUDGET).moments(x)
    seen: list[int] = []
    variance = DensePosterior.variance

    def counted(self: DensePosterior, factors: Any, cross: Any, prior: Any, draws: Any = slice(None)) -> Any:
        seen.append(cross.shape[-1])
        return variance(self, factors, cross, prior, draws)

    monkeypatch.setattr(DensePosterior, "variance", counted)
    for work, sizes in ((120, [2, 2, 2, 1]), (119, [1] * 7), (5, [1] * 7)):
        predictor = NodePredictor(grams, [draws_of()], BUDGET)
        predictor._work = work
        seen.clear()
        pieces = predictor.moments(x)
        assert seen == sizes
        torch.testing.assert_close(pieces, whole)


@pytest.mark.parametrize("size", [3, 4])
def test_explicit_and_solved_factors_agree(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    grams, x, some = Grams(kernel(), features(), 0), features(7, seed=2), draws_of(points=size)
    explicit = NodePredictor(grams, [some], BUDGET).moments(x)
    monkeypatch.setattr(posterior, "EXPLICIT_ORDER", 3)
    solved: list[Any] = []
    norms = posterior._row_norms
    monkeypatch.setattr(posterior, "_row_norms", lambda L, rows: solved.append(L) or norms(L, rows))
    torch.testing.assert_close(NodePredictor(grams, [some], BUDGET).moments(x), explicit)
    assert bool(solved) == (size > 3)


@pytest.mark.parametrize("kind", [DensePosterior, PooledDensePosterior])
def test_explicit_and_solved_factors_agree_jointly_and_frozen(
    kind: type[DensePosterior], monkeypatch: pytest.MonkeyPatch
) -> None:
    grams, x, some = Grams(kernel(), features(), 0), features(7, seed=2), draws_of(points=4)
    predictor = NodePredictor(grams, [kind(some.nodes, some.rows, some.omega, some.weights)], BUDGET)

    def computed() -> Any:
        parts = Parts(frozen=True)
        nodes = predictor.layer(parts)
        variances = predictor.frozen_variances(nodes)
        shared = parts.shared()
        return predictor.joint(x, [1, 0]), *variances(Rows(x)), len(shared)

    explicit = computed()
    (_, covariance), variance, _ = explicit
    torch.testing.assert_close(covariance.diagonal(dim1=-2, dim2=-1)[:, [1, 0]], variance)
    for order in (4, 3):  # nodes of four points are the last that are explicit, and the first that are not
        monkeypatch.setattr(posterior, "EXPLICIT_ORDER", order)
        monkeypatch.setattr(frozen_variances, "EXPLICIT_ORDER", order)
        torch.testing.assert_close(computed(), explicit)


# ---------------------------------------------------------------------------------------------------- sparse inference


def test_only_more_rows_than_a_batch_are_cut_into_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [SparseVariational(batch_size=5)._in_batches(size) for size in (4, 5, 6)] == [False, False, True]
    cut: list[int] = []
    alone = SparseVariational._fit_batches
    monkeypatch.setattr(SparseVariational, "_fit_batches", lambda *them: cut.append(them[1].sizes[0]) or alone(*them))
    batch = NodeBatch.stack([0, 1], [problem(6, 0, inducing=3), problem(4, 1, inducing=3)], torch.float64)
    SparseVariational(batch_size=5, sweeps=2).fit(batch, Grams(kernel(), features(), 0), BUDGET)
    assert cut == [6]


def test_rows_that_are_whitened_at_a_time() -> None:
    """2 nodes · (4 · 3 inducing points + 3 · 4 dimensions) = 48 numbers a row; all are kept in 2 · 2 · 3 · 6 = 72."""
    batch = NodeBatch.stack([0, 1], [problem(6, 0, inducing=3), problem(6, 1, inducing=3)], torch.float64)
    grams = Grams(kernel(), features(d=4), 0)
    for work, at_once, kept in ((5, 1, False), (71, 1, False), (72, 1, True), (95, 1, True), (96, 2, True)):
        rows = WhitenedBatch(batch, grams, work)
        assert (rows.rows_at_once, rows._kept is not None) == (at_once, kept)
        columns: list[Any] = list(rows._chunks(None))
        assert [c.start for c in columns] == list(range(0, 6, at_once))
        assert [len(c) for c in rows._chunks(torch.arange(5))] == ([1] * 5 if at_once == 1 else [2, 2, 1])


# ------------------------------------------------------------------------------------------------------- diagnostics


@pytest.mark.parametrize("kind", [CoordinateAscent, SparseVariational])
def test_a_node_has_settled_when_it_moves_by_the_tolerance_and_no_more(kind: type[CoordinateAscent]) -> None:
    """Exactly so much as it moved in the third sweep: that one was the last."""
    batch, grams = batch_of(6, inducing=3), Grams(kernel(), features())
    _, three = kind(sweeps=3, tolerance=0.0).fit(batch, grams, BUDGET)
    assert three.change is not None
    assert three.converged is None
    moved = float(three.change)
    for tolerance, sweeps in ((moved, 3), (moved * (1 - 1e-12), 4)):
        _, found = kind(sweeps=4, tolerance=tolerance).fit(batch, grams, BUDGET)
        assert found.sweeps.tolist() == [sweeps]
    _, settled = kind(sweeps=3, tolerance=moved).fit(batch, grams, BUDGET)
    assert settled.converged is not None
    assert settled.converged.all()


@pytest.mark.parametrize(("chains", "kept", "told"), [(1, 3, False), (3, 1, False), (2, 2, True), (1, 4, True)])
def test_too_few_draws_tell_nothing_and_warn_of_nothing(chains: int, kept: int, told: bool) -> None:
    draws = torch.randn(chains, kept, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bool(gibbs.split_r_hat(draws).isfinite().all()) == told


def test_inducing_points_of_a_class_are_keyed_by_its_label() -> None:
    """The seeds of k-means++ of its own rows, with the generator of its label."""
    X, y, hashes = features(24).numpy(), np.repeat([0, 1], 12), label_hashes(["ant", "bee"])
    expected = []
    for c, name in enumerate(("ant", "bee")):
        members = np.flatnonzero(y == c)
        random = node_generator(7, node_key(label_hashes([name])))
        expected += members[kmeans_plus_plus_order(X[members], random, 4)[:4]].tolist()
    assert class_inducing(X, y, 4, hashes, 7).tolist() == expected
