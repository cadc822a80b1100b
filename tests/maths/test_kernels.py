"""Kernels against their formulas and against GPyTorch's own evaluation."""

from __future__ import annotations

import copy

import gpytorch
import pytest
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from torch import Tensor

from gptree.maths import as_kernel, gram, gram_diagonal, linear_features, make_kernel
from gptree.maths.kernels import is_isotropic_rbf, kernel_at, node_kernels

CPU = torch.device("cpu")


def points(n: int, d: int = 3, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def ard_rbf() -> Kernel:
    kernel = RBFKernel(ard_num_dims=3)
    kernel.lengthscale = torch.tensor([0.5, 1.0, 2.0])
    return kernel


KERNELS = {
    "linear": lambda: make_kernel("linear", 4.0),
    "rbf": lambda: make_kernel("rbf", 2.0, 1.5),
    "matern52": lambda: make_kernel("matern52", 2.0, 1.5),
    "bare rbf": RBFKernel,
    "ard": lambda: ScaleKernel(ard_rbf()),
    "matern12": lambda: MaternKernel(nu=0.5),
    "rational quadratic": lambda: ScaleKernel(RQKernel()),
    "periodic": lambda: ScaleKernel(PeriodicKernel()),
    "cosine": CosineKernel,
    "constant": ConstantKernel,
    "polynomial": lambda: PolynomialKernel(power=2),
    "sum": lambda: AdditiveKernel(make_kernel("linear", 3.0), ScaleKernel(ard_rbf())),
    "product": lambda: ProductKernel(RBFKernel(), ScaleKernel(MaternKernel(nu=1.5))),
    "nested": lambda: ScaleKernel(AdditiveKernel(ProductKernel(RBFKernel(), LinearKernel()), ConstantKernel())),
    "some columns": lambda: ScaleKernel(RBFKernel(active_dims=(0, 2))),
    "some columns, outside": lambda: ScaleKernel(RBFKernel(), active_dims=(0, 2)),
    "some columns, linear": lambda: ScaleKernel(LinearKernel(), active_dims=(0, 2)),
}


def gpytorch_gram(kernel: Kernel, x: Tensor, other: Tensor) -> Tensor:
    return kernel(x, other).to_dense()


# ------------------------------------------------------------------------------------------------ by name


def test_named_kernels_are_their_formulas() -> None:
    x, other = points(5), points(4, seed=1)
    distance = torch.cdist(x, other)
    r = 5**0.5 * distance / 1.5
    expected = {
        "linear": 4.0 * x @ other.T,
        "rbf": 4.0 * torch.exp(-0.5 * (distance / 1.5) ** 2),
        "matern52": 4.0 * (1 + r + r**2 / 3) * torch.exp(-r),
    }
    for name, values in expected.items():
        kernel = as_kernel(make_kernel(name, 4.0, 1.5), torch.float64, CPU)
        torch.testing.assert_close(gram(kernel, x, other), values, rtol=1e-6, atol=1e-6)  # scales were set in float32


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kernel 'laplace'; name one of"):
        make_kernel("laplace")
    with pytest.raises(TypeError, match=r"gpytorch\.kernels\.Kernel, not int"):
        as_kernel(3, torch.float64, CPU)  # pyright: ignore[reportArgumentType]


def test_the_user_s_kernel_is_never_changed() -> None:
    kernel = make_kernel("rbf", 2.0)
    before = copy.deepcopy(kernel.state_dict())
    mine = as_kernel(kernel, torch.float64, CPU)
    mine.outputscale = 7.0
    node_kernels(mine, 3)
    assert kernel.training
    assert all(torch.equal(value, before[name]) for name, value in kernel.state_dict().items())
    assert {p.dtype for p in kernel.parameters()} == {torch.float32}
    assert {p.dtype for p in mine.parameters()} == {torch.float64}


# --------------------------------------------------------------------------------------------- Gram matrices


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("grad", [False, True])
def test_gram_equals_gpytorch_s(name: str, grad: bool) -> None:
    kernel = as_kernel(KERNELS[name](), torch.float64, CPU)
    x, other = points(6), points(4, seed=1)
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(gram(kernel, x, other), gpytorch_gram(kernel, x, other), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(gram(kernel, x), gpytorch_gram(kernel, x, x), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(gram_diagonal(kernel, x), gram(kernel, x).diagonal(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fast_rbf_keeps_its_digits_far_from_the_origin(dtype: torch.dtype) -> None:
    kernel = as_kernel(make_kernel("rbf", 3.0, 0.7), dtype, CPU)
    x = points(20, dtype=dtype) + 1000.0
    exact = 3.0 * torch.exp(-0.5 * (torch.cdist(x.double(), x.double()) / 0.7) ** 2)
    with torch.no_grad():
        K = gram(kernel, x)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-7
    torch.testing.assert_close(K.double(), exact, rtol=tolerance, atol=tolerance)
    assert (3.0 * (1 + tolerance) >= K).all()


def test_gram_is_differentiable_in_the_hyper_parameters() -> None:
    kernel = as_kernel("rbf", torch.float64, CPU)
    gram(kernel, points(4)).sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in kernel.parameters())


# --------------------------------------------------------------------------------- gradients of the fast RBF kernel


def fast_rbf(scale: Tensor, length: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """`gram` of the RBF kernel as a function of its hyper-parameters; GPyTorch keeps their raw values."""
    kernel = make_kernel("rbf").double()
    for module, name, value in ((kernel, "raw_outputscale", scale), (kernel.base_kernel, "raw_lengthscale", length)):
        raw = getattr(module, f"{name}_constraint").inverse_transform(value)
        delattr(module, name)
        setattr(module, name, raw)
    assert is_isotropic_rbf(kernel)
    return gram(kernel, x, other)


MOVING = {"all": (0, 1, 2, 3), "scale": (0,), "length": (1,), "x": (2,), "other": (3,), "both": (2, 3), "last": (1, 3)}


@pytest.mark.parametrize("moving", MOVING)
def test_gradients_of_the_fast_rbf_are_those_of_finite_differences(moving: str) -> None:
    """Whichever of its inputs ask for them."""
    inputs = [torch.tensor(2.3, dtype=torch.float64), torch.tensor(0.8, dtype=torch.float64)]
    inputs += [points(5), points(4, seed=1)]
    for i in MOVING[moving]:
        inputs[i].requires_grad_()
    assert torch.autograd.gradcheck(fast_rbf, inputs)


def test_gradients_of_a_fast_gram_of_points_with_themselves() -> None:
    x = points(5).requires_grad_()
    scale, length = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (2.3, 0.8))
    assert torch.autograd.gradcheck(lambda s, l, z: fast_rbf(s, l, z, z), (scale, length, x))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_gradients_of_the_fast_rbf_equal_a_plain_formula_s(dtype: torch.dtype, tolerance: float, shift: float) -> None:
    """Near the origin and away from it, where products of large numbers cancel; weights as a loss would give."""
    kernel = as_kernel(make_kernel("rbf", 3.0, 0.9), dtype, CPU)
    weights = points(9, 7, seed=4)
    x, other = ((each + shift).to(dtype).requires_grad_() for each in (points(9), points(7, seed=1)))
    fast = torch.autograd.grad((gram(kernel, x, other) * weights.to(dtype)).sum(), [x, other, *kernel.parameters()])
    exact = copy.deepcopy(kernel).double()
    x, other = (each.detach().double().requires_grad_() for each in (x, other))
    square = (x[:, None] - other).square().sum(-1)
    K = exact.outputscale * torch.exp(-0.5 * square / exact.base_kernel.lengthscale**2)
    plain = torch.autograd.grad((K * weights).sum(), [x, other, *exact.parameters()])
    for mine, theirs in zip(fast, plain, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=tolerance, atol=tolerance * float(theirs.abs().max()))


def test_the_fast_rbf_takes_no_points_at_all() -> None:
    kernel, x = as_kernel("rbf", torch.float64, CPU), points(3).requires_grad_()
    assert gram(kernel, x, x[:0]).shape == (3, 0)
    assert gram(kernel, x[:0], x).shape == (0, 3)
    (to_x,) = torch.autograd.grad(gram(kernel, x, x[:0]).sum(), x)
    assert torch.equal(to_x, torch.zeros_like(x))


def test_a_gradient_reaches_the_scale_through_the_diagonal() -> None:
    kernel = as_kernel(make_kernel("rbf", 3.0), torch.float64, CPU)
    diagonal, matrix = gram_diagonal(kernel, points(4)), gram(kernel, points(4)).diagonal()
    weights, raw = points(4)[:, 0], kernel.raw_outputscale
    torch.testing.assert_close(*(torch.autograd.grad((k * weights).sum(), raw)[0] for k in (diagonal, matrix)))
    assert gram_diagonal(kernel, points(6).reshape(2, 3, 3)).shape == (2, 3)


@pytest.mark.parametrize("name", KERNELS)
def test_only_plain_scaled_rbf_kernels_are_fast(name: str) -> None:
    kernel = as_kernel(KERNELS[name](), torch.float64, CPU)
    assert is_isotropic_rbf(kernel) == (name == "rbf")
    assert not is_isotropic_rbf(node_kernels(kernel, 2))


def test_a_kernel_for_each_of_one_node_is_not_plain() -> None:
    """Its matrices are GPyTorch's, which look at values of x."""
    assert not is_isotropic_rbf(node_kernels(as_kernel("rbf", torch.float64, CPU), 1))


# ---------------------------------------------------------------------------------------------- linear features


def ard_linear() -> Kernel:
    kernel = LinearKernel(ard_num_dims=3)
    kernel.variance = torch.tensor([[0.5, 1.0, 2.0]])
    return kernel


@pytest.mark.parametrize(
    "make", [lambda: make_kernel("linear", 4.0), LinearKernel, ard_linear, lambda: ScaleKernel(ard_linear())]
)
def test_linear_features_reproduce_the_kernel(make) -> None:
    kernel = as_kernel(make(), torch.float64, CPU)
    x, other = points(6), points(4, seed=1)
    phi, psi = linear_features(kernel, x), linear_features(kernel, other)
    assert phi is not None
    assert psi is not None
    torch.testing.assert_close(phi @ psi.T, gpytorch_gram(kernel, x, other))


@pytest.mark.parametrize("name", [n for n in KERNELS if n != "linear"])
def test_other_kernels_have_no_linear_features(name: str) -> None:
    kernel = as_kernel(KERNELS[name](), torch.float64, CPU)
    assert linear_features(kernel, points(3)) is None
    assert linear_features(node_kernels(as_kernel("linear", torch.float64, CPU), 2), points(3)) is None


# ------------------------------------------------------------------------------------------- a kernel for each node


def spread(kernel: Kernel) -> None:
    """Give every node its own hyper-parameters."""
    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in kernel.parameters():
            p += 0.5 * torch.randn(p.shape, generator=random, dtype=p.dtype)


def separate_kernel(name: str, kernels: Kernel, node: int) -> Kernel:
    """A plain kernel with the hyper-parameters of one node."""
    kernel = as_kernel(KERNELS[name](), torch.float64, CPU)
    mine = dict(kernels.named_parameters())
    with torch.no_grad():
        for key, p in kernel.named_parameters():
            p.copy_(mine[key][node])
    return kernel


@pytest.mark.parametrize("name", KERNELS)
def test_node_kernels_equal_separate_kernels(name: str) -> None:
    kernels = node_kernels(as_kernel(KERNELS[name](), torch.float64, CPU), 4)
    assert kernels.batch_shape == torch.Size([4])
    spread(kernels)
    nodes = torch.tensor([2, 0, 3])
    x, other = (
        torch.stack([points(5, seed=s) for s in range(3)]),
        torch.stack([points(4, seed=s + 9) for s in range(3)]),
    )
    K, diagonal = gram(kernel_at(kernels, nodes), x, other), gram_diagonal(kernel_at(kernels, nodes), x)
    assert K.shape == (3, 5, 4)
    assert diagonal.shape == (3, 5)
    for i, node in enumerate(nodes.tolist()):
        alone = separate_kernel(name, kernels, node)
        torch.testing.assert_close(K[i], gpytorch_gram(alone, x[i], other[i]))
        torch.testing.assert_close(diagonal[i], gram_diagonal(alone, x[i]))


@pytest.mark.parametrize("name", KERNELS)
def test_without_gradients_node_kernels_are_the_same_also_on_rows_that_all_share(name: str) -> None:
    kernels = node_kernels(as_kernel(KERNELS[name](), torch.float64, CPU), 3)
    spread(kernels)
    x, rows = torch.stack([points(5, seed=s) for s in range(3)]), points(4, seed=9)
    for other in (rows.expand(3, *rows.shape), torch.stack([rows + s for s in range(3)]), None):
        expected = gram(kernels, x, other)
        with torch.no_grad():
            torch.testing.assert_close(gram(kernels, x, other), expected, rtol=1e-12, atol=1e-12)


def test_gradients_reach_exactly_the_chosen_nodes() -> None:
    kernels = node_kernels(as_kernel("rbf", torch.float64, CPU), 4)
    spread(kernels)
    x = torch.stack([points(5, seed=s) for s in range(2)])
    gram(kernel_at(kernels, torch.tensor([3, 1])), x).sum().backward()
    for p in kernels.parameters():
        assert p.grad is not None
        touched = p.grad.reshape(4, -1).abs().sum(-1)
        assert (touched[[1, 3]] > 0).all()
        assert (touched[[0, 2]] == 0).all()


def test_fixed_parameters_stay_fixed() -> None:
    kernel = as_kernel("rbf", torch.float64, CPU)
    kernel.base_kernel.raw_lengthscale.requires_grad_(False)
    kernels = node_kernels(kernel, 3)
    assert not kernels.base_kernel.raw_lengthscale.requires_grad
    assert kernels.raw_outputscale.requires_grad


def test_gpytorch_settings_are_left_alone() -> None:
    before = gpytorch.settings.lazily_evaluate_kernels.on()
    gram(as_kernel("matern52", torch.float64, CPU), points(3))
    assert gpytorch.settings.lazily_evaluate_kernels.on() == before


def test_gradients_of_points_with_themselves() -> None:
    """What comes in need not be symmetric; GPyTorch's own path is the twin."""
    random = torch.Generator().manual_seed(0)
    kernel = as_kernel(make_kernel("rbf", 3.0, 0.7), torch.float64, CPU)
    x = torch.randn(6, 3, generator=random, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(6, 6, generator=random, dtype=torch.float64)
    inputs = [x, *kernel.parameters()]
    found = torch.autograd.grad((weights * gram(kernel, x)).sum(), inputs)
    expected = torch.autograd.grad((weights * kernel(x, x).to_dense()).sum(), inputs)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
