"""The jitter policy: none where none is needed, the least that works otherwise, each matrix for itself."""

from __future__ import annotations

import pytest
import torch

from gptree.maths import cholesky, covariance_root, linalg
from gptree.maths.linalg import JITTER, conjugate_gradients


def covariances(*ranks: int, n: int = 6, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    factors = [torch.randn(n, rank, generator=random, dtype=dtype) for rank in ranks]
    return torch.stack([factor @ factor.T for factor in factors])


def test_a_regular_matrix_gets_no_jitter() -> None:
    K = covariances(8, 9)
    root, jitter = covariance_root(K)
    torch.testing.assert_close(root @ root.mT, K)
    assert (jitter == 0).all()
    assert (root.triu(1) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_singular_matrix_gets_the_least_jitter_that_works(dtype: torch.dtype) -> None:
    K = covariances(2, dtype=dtype)[0]
    K = K - 1e-7 * K.diagonal().mean() * torch.eye(6, dtype=dtype)  # rounding at its worst: a negative eigenvalue
    root, jitter = covariance_root(K)
    scale = K.diagonal().mean()
    expected = next(
        r for r in JITTER[dtype] if torch.linalg.cholesky_ex(K + r * scale * torch.eye(6, dtype=dtype))[1] == 0
    )
    assert jitter > 0
    torch.testing.assert_close(jitter, expected * scale)
    torch.testing.assert_close(root @ root.mT, K + jitter * torch.eye(6, dtype=dtype))


def test_jitter_of_one_matrix_does_not_depend_on_its_neighbours() -> None:
    K = covariances(2, 8, 1, 9).reshape(2, 2, 6, 6) - 1e-12 * torch.eye(6, dtype=torch.float64)
    root, jitter = covariance_root(K)
    assert root.shape == (2, 2, 6, 6)
    assert jitter.shape == (2, 2)
    for i in range(2):
        for j in range(2):
            alone, alone_jitter = covariance_root(K[i, j])
            assert torch.equal(alone, root[i, j])
            assert torch.equal(alone_jitter, jitter[i, j])


def test_a_zero_matrix_has_a_root() -> None:
    """A constant column under a linear kernel: the prior says g = 0."""
    root, _ = covariance_root(torch.zeros(3, 3, dtype=torch.float64))
    assert torch.isfinite(root).all()
    assert root.abs().max() < 1e-100


def test_gradients_pass_through_the_root() -> None:
    factor = covariances(8)[0][:, :4].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda a: covariance_root(a @ a.T + torch.eye(6, dtype=torch.float64))[0], factor)


def test_gradients_pass_where_some_matrices_need_jitter() -> None:
    """R Rᵀ = K + jitter: whatever the jitter, the derivative is that of K."""
    factor = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    factor[0, :, 2:] = 0.0  # singular, its neighbour is not
    factor.requires_grad_()
    weights = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    K = factor @ factor.mT
    root, jitter = covariance_root(K - 1e-9 * torch.eye(6, dtype=torch.float64))
    assert jitter[0] > 0
    assert jitter[1] == 0
    (actual,) = torch.autograd.grad((root @ root.mT * weights).sum(), factor)
    (expected,) = torch.autograd.grad(((factor @ factor.mT) * weights).sum(), factor)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_hopeless_matrices_say_so() -> None:
    with pytest.raises(ValueError, match="not positive semi-definite or not finite"):
        covariance_root(-torch.eye(3, dtype=torch.float64))
    with pytest.raises(ValueError, match="not positive semi-definite"):
        cholesky(-torch.eye(3, dtype=torch.float64))
    with pytest.raises(ValueError, match="Check the kernel"):
        covariance_root(torch.full((2, 2), torch.nan, dtype=torch.float64))


def test_cholesky_is_exact_on_well_conditioned_matrices() -> None:
    B = torch.eye(6, dtype=torch.float64) + covariances(3, 4)
    L = cholesky(B)
    torch.testing.assert_close(L @ L.mT, B)


# ------------------------------------------------------------------------------------------- conjugate gradients


def systems(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """Well and badly conditioned systems side by side, one of them with nothing to solve."""
    scales = torch.tensor([1e-3, 1.0, 1e3, 1.0], dtype=dtype)[:, None, None]
    matrices = torch.eye(6, dtype=dtype) + scales * covariances(2, 9, 4, 3, dtype=dtype)
    rhs = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1), dtype=dtype)
    rhs[:, 3] = 0.0
    return matrices, rhs


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.float64, 1e-9)])
def test_conjugate_gradients_solve_every_system(dtype: torch.dtype, tolerance: float) -> None:
    matrices, rhs = systems(dtype)
    x, arrived = conjugate_gradients(lambda v: torch.einsum("vij,svj->svi", matrices, v), rhs)
    assert arrived
    for s in range(3):
        for v in range(4):
            expected = torch.linalg.inv(matrices[v].double()) @ rhs[s, v].double()
            torch.testing.assert_close(x[s, v].double(), expected, rtol=tolerance, atol=tolerance)
    assert (x[:, 3] == 0).all()


def test_conjugate_gradients_say_when_they_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linalg, "CG_STEPS", 2)
    matrices, rhs = systems()
    assert not conjugate_gradients(lambda v: torch.einsum("vij,svj->svi", matrices, v), rhs)[1]
    assert conjugate_gradients(lambda v: v, rhs)[1]
