"""Inverses and products of triangular matrices by blocks: against general inverses and plain products."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gptree.maths import linalg
from gptree.maths.linalg import semiseparable_sandwich, triangular_inverse

#: Around the order that is solved, its double, where padding begins and ends, and where products go by blocks.
ORDERS = (1, 2, 3, 63, 64, 65, 66, 127, 128, 129, 130, 160, 161, 200, 321, 1030)
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-13}


def triangles(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Well-conditioned lower triangular matrices of this shape: about I plus a strict part of norm below one."""
    noise = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    lower = noise.tril(-1) / (2 * shape[-1] ** 0.5)
    lower.diagonal(dim1=-2, dim2=-1).copy_(0.75 + 0.5 * noise.diagonal(dim1=-2, dim2=-1).sigmoid())
    return lower.to(dtype)


def check_inverse(L: Tensor) -> None:
    given = L.clone()
    X, expected = triangular_inverse(L), torch.linalg.inv(L.double())
    assert X.shape == L.shape
    assert X.dtype == L.dtype
    torch.testing.assert_close(X.double(), expected, rtol=0.0, atol=TOLERANCE[L.dtype])
    assert (X.triu(1) == 0).all()
    assert torch.equal(L, given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", ORDERS)
def test_inverse_equals_the_general_one(n: int, dtype: torch.dtype) -> None:
    check_inverse(triangles(n, n, dtype=dtype))


@pytest.mark.parametrize("batch", [(0,), (1,), (3,), (2, 3), (2, 1, 2)], ids=str)
@pytest.mark.parametrize("n", [1, 5, 65, 130, 161])
def test_inverses_of_batches(batch: tuple[int, ...], n: int) -> None:
    check_inverse(triangles(*batch, n, n))


@pytest.mark.parametrize("n", [2, 65, 128, 129, 200])
def test_inverses_of_matrices_laid_out_in_other_ways(n: int) -> None:
    """By columns, as factorisations return them; windows of larger tensors; one matrix many times; every second."""
    L = triangles(3, n, n)
    check_inverse(L.mT.contiguous().mT)
    room = torch.full((3, n + 7, n + 5), torch.nan, dtype=torch.float64)
    room[:, 4 : n + 4, 3 : n + 3] = L
    check_inverse(room[:, 4 : n + 4, 3 : n + 3])
    check_inverse(L[:1].expand(3, n, n))
    check_inverse(L[::2])
    check_inverse(torch.linalg.cholesky(L @ L.mT))


@given(st.integers(1, 420), st.integers(1, 3), st.integers(0, 2**32))
def test_inverses_of_any_order(n: int, batch: int, seed: int) -> None:
    L = triangles(batch, n, n, seed=seed)
    identity = torch.eye(n, dtype=torch.float64).expand_as(L)
    torch.testing.assert_close(triangular_inverse(L) @ L, identity, rtol=0.0, atol=1e-12)


def test_blocks_of_any_size_give_the_same_inverse(monkeypatch: pytest.MonkeyPatch) -> None:
    for solved in (1, 2, 3, 5, 8, 100):
        monkeypatch.setattr(linalg, "SOLVED_ORDER", solved)
        for n in (1, 2, 3, 7, 12, 13, 31, 32, 33):
            check_inverse(triangles(2, n, n))


# -------------------------------------------------------------------------------------------------------- products


def sandwiched(X: Tensor, G: Tensor, A: Tensor) -> Tensor:
    T = (G @ A.mT).tril()
    T.diagonal(dim1=-2, dim2=-1).mul_(0.5)
    return X.mT @ T @ X


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 130, 512, 513, 1030])
def test_sandwich_equals_the_plain_product(n: int, dtype: torch.dtype) -> None:
    X, G, A = (each.to(dtype) for each in (triangles(1, n, n), randn(1, n, 6, seed=1), randn(1, n, 6, seed=2)))
    found, expected = semiseparable_sandwich(X, G, A), sandwiched(X.double(), G.double(), A.double())
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=0.0, atol=100 * TOLERANCE[dtype])


@pytest.mark.parametrize("order", [1, 2, 3, 8, 100])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_sandwiches_of_batches_by_blocks(batch: int, order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linalg, "BLOCK_ORDER", order)
    for n, rank in ((1, 1), (2, 5), (3, 0), (9, 2), (16, 20), (31, 4)):
        given = triangles(batch, n, n), randn(batch, n, rank, seed=1), randn(batch, n, rank, seed=2)
        before = [each.clone() for each in given]
        expected = sandwiched(*given)
        torch.testing.assert_close(semiseparable_sandwich(*given), expected, rtol=0.0, atol=1e-12)
        by_columns = semiseparable_sandwich(*(each.mT.contiguous().mT for each in given))
        torch.testing.assert_close(by_columns, expected, rtol=0.0, atol=1e-12)
        assert all(torch.equal(one, other) for one, other in zip(given, before, strict=True))


@pytest.mark.parametrize("halved", [1, 2, 5, 1000])
@pytest.mark.parametrize(("batch", "n"), [(1, 1), (1, 6), (3, 7)])
def test_products_with_triangles_by_halves(batch: int, n: int, halved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linalg, "HALVED_ORDER", halved)
    L, B, total = triangles(batch, n, n), randn(batch, 4, n, seed=1), randn(batch, n, 4, seed=2)
    torch.testing.assert_close(linalg.times_lower(B, L), B @ L)
    torch.testing.assert_close(linalg.times_lower_transposed(B, L), B @ L.mT)
    expected = total - L @ B.mT
    linalg.subtract_lower_times(total, L, B.mT)
    torch.testing.assert_close(total, expected)
    square = randn(batch, n, n, seed=3)
    expected = square - B.mT @ B
    linalg.subtract_square(square, B.mT)
    torch.testing.assert_close(square.tril(), expected.tril())


def test_sizes_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 64 to begin with, or somewhat more where that spares padding."""
    monkeypatch.setattr(linalg, "SOLVED_ORDER", 64)
    table = {0: (0, 0), 1: (1, 1), 64: (64, 64), 65: (65, 65), 66: (33, 66), 128: (64, 128), 129: (129, 129)}
    table |= {130: (65, 130), 160: (40, 160), 161: (81, 162), 163: (82, 164), 256: (64, 256), 319: (160, 320)}
    table |= {320: (40, 320), 321: (161, 322), 322: (81, 324), 512: (64, 512), 1030: (129, 1032)}
    assert {n: linalg._halved(n) for n in table} == table
