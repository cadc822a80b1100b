"""Kernels by name or as GPyTorch objects, their Gram matrices, and kernels with hyper-parameters for every node."""

from __future__ import annotations

import copy
from typing import Any

import gpytorch
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

KERNEL_NAMES = ("linear", "rbf", "matern52")
#: Rows at which a kernel is tried out at a time.
CHECKED_AT_A_TIME = 4096


def make_kernel(name: str, output_scale: float = 1.0, length_scale: float = 1.0) -> Kernel:
    """A kernel by name: s ⟨x, x′⟩, s exp(−½ ‖x − x′‖² / ℓ²) or s times Matérn 5/2.

    Parameters
    ----------
    name : "linear", "rbf" or "matern52"
    output_scale : float
        s.
    length_scale : float
        ℓ; the linear kernel has none.

    Returns
    -------
    gpytorch.kernels.Kernel

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> from gptree.maths import make_kernel
    >>> model = GPTreeClassifier(kernel=make_kernel("rbf", output_scale=10.0, length_scale=0.5))
    """
    if name == "linear":
        base: Kernel = LinearKernel()
        base.variance = 1.0
    elif name == "rbf":
        base = RBFKernel()
        base.lengthscale = torch.tensor(length_scale)
    elif name == "matern52":
        base = MaternKernel(nu=2.5)
        base.lengthscale = torch.tensor(length_scale)
    else:
        raise ValueError(f"unknown kernel {name!r}; name one of {KERNEL_NAMES} or give a GPyTorch kernel.")
    kernel = scaled(base)
    kernel.outputscale = output_scale
    return kernel


def scaled(base: Kernel) -> ScaleKernel:
    """A `ScaleKernel` around a kernel without batch shape.

    Its own constructor asks torch to broadcast shapes, which imports sympy: more than a second, for every process.

    Parameters
    ----------
    base : Kernel

    Returns
    -------
    ScaleKernel
    """
    if len(batch_shape(base)) > 0 or base.active_dims is not None:
        return ScaleKernel(base)
    kernel = ScaleKernel.__new__(ScaleKernel)
    Kernel.__init__(kernel)
    kernel.base_kernel = base
    kernel.register_parameter(name="raw_outputscale", parameter=torch.nn.Parameter(torch.tensor(0.0)))
    kernel.register_constraint("raw_outputscale", Positive())
    return kernel


def batch_shape(kernel: Kernel) -> torch.Size:
    """The batch shape of a kernel; torch is asked only where there is one.

    Parameters
    ----------
    kernel : Kernel

    Returns
    -------
    torch.Size
    """
    parts = (part._batch_shape for part in kernel.modules() if isinstance(part, Kernel))
    return kernel.batch_shape if any(len(shape) > 0 for shape in parts) else torch.Size([])


def as_kernel(kernel: str | Kernel, dtype: torch.dtype, device: torch.device) -> Kernel:
    """A copy of a kernel, or the kernel of a name, on dtype and device; the caller's object is never changed.

    Parameters
    ----------
    kernel : str or Kernel
        Without batch shape.
    dtype : torch.dtype
    device : torch.device

    Returns
    -------
    Kernel
    """
    if isinstance(kernel, str):
        kernel = make_kernel(kernel)
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"kernel must be one of {KERNEL_NAMES} or a gpytorch.kernels.Kernel, not {type(kernel).__name__}."
        )
    if len(batch_shape(kernel)) > 0:
        raise ValueError(
            f"the kernel has batch shape {tuple(batch_shape(kernel))}: give one without; a set of hyper-parameters for "
            "each node is what LearnKernel(per_node=True) makes."
        )
    return copy.deepcopy(kernel).to(dtype=dtype, device=device).eval()


def check_kernel(kernel: Kernel, x: Tensor) -> None:
    """Raise a ValueError if a kernel cannot be computed at points x (n, d), for example because of a wrong grid.

    Parameters
    ----------
    kernel : Kernel
    x : tensor (n, d)
    """
    if is_isotropic_rbf(kernel):
        return
    try:
        for some in x.split(CHECKED_AT_A_TIME):
            gram_diagonal(kernel, some)
    except Exception as error:
        said = f" ({error})" if str(error) else ""
        raise ValueError(
            f"the kernel {type(kernel).__name__} cannot be computed for these features{said}: after the feature map "
            f"they have {x.shape[1]} columns and values from {float(x.min()):.3g} to {float(x.max()):.3g}. Give the "
            "kernel this number of dimensions; a grid must reach beyond the values, and new ones may lie further out."
        ) from error


def gram(kernel: Kernel, x: Tensor, other: Tensor | None = None) -> Tensor:
    """The Gram matrix k(x, other), dense; differentiable where the kernel's parameters ask for it.

    Parameters
    ----------
    kernel : Kernel
    x, other : tensors (..., n, d) and (..., m, d)
        Without `other` it is x.

    Returns
    -------
    tensor (..., n, m)
    """
    other = x if other is None else other
    rbf = _isotropic_rbf(kernel)
    if rbf is not None and not batch_shape(kernel) and x.dim() == 2:
        return _RBF.apply(*rbf, x, other)  # pyright: ignore[reportReturnType]
    if rbf is not None and x.dim() == 3 and not torch.is_grad_enabled():
        scale, length = (value.reshape(-1, 1, 1) for value in rbf)
        return _node_rbf(scale, length, x, other)
    # lazily evaluated kernels would be evaluated twice and slower; we always need the dense matrix
    with gpytorch.settings.lazily_evaluate_kernels(False):
        return kernel(x, other).to_dense()


def gram_diagonal(kernel: Kernel, x: Tensor) -> Tensor:
    """k(x_i, x_i), (..., n).

    Parameters
    ----------
    kernel : Kernel
    x : tensor (..., n, d)

    Returns
    -------
    tensor (..., n)
    """
    rbf = _isotropic_rbf(kernel)
    if rbf is not None:
        return rbf[0].unsqueeze(-1).expand(x.shape[:-1])
    return torch.as_tensor(kernel(x, x, diag=True))


def is_isotropic_rbf(kernel: Kernel) -> bool:
    """Whether this is a plain scaled RBF kernel, whose matrices are computed without waiting for any value of x."""
    return not batch_shape(kernel) and _isotropic_rbf(kernel) is not None


def _isotropic_rbf(kernel: Kernel) -> tuple[Tensor, Tensor] | None:
    """(output scale, length-scale) of a plain scaled RBF kernel, else None; (V,) each where V nodes have their own."""
    if type(kernel) is not ScaleKernel or type(kernel.base_kernel) is not RBFKernel:
        return None
    scale, length, sets = kernel.outputscale, kernel.base_kernel.lengthscale, batch_shape(kernel)
    # a ScaleKernel takes over the active_dims of its base kernel
    if scale.numel() != sets.numel() or length.numel() != sets.numel() or kernel.active_dims is not None:
        return None
    return scale.reshape(sets), length.reshape(sets)


def _node_rbf(scale: Tensor, length: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """s_v exp(−½ ‖x − x′‖² / ℓ_v²) (V, n, m), of scales and lengths (V, 1, 1) or (1, 1, 1).

    Rows x′ that all nodes share, an expanded tensor, are met once.
    """
    shared = other.stride(0) == 0
    centre = other[0].mean(0) if shared else other.mean(1, keepdim=True)  # of a node alone
    x, other = x - centre, (other[:1] if shared else other) - centre
    norm, other_norm = (0.5 * each.square().sum(-1) for each in (x, other))
    K = (x.flatten(0, 1) @ other[0].mT).unflatten(0, x.shape[:2]) if shared else x @ other.mT
    K.sub_(norm.unsqueeze(-1)).sub_(other_norm.unsqueeze(-2)).clamp_(max=0.0)
    return K.div_(length.square()).exp_().mul_(scale)


class _RBF(torch.autograd.Function):
    """s exp(−½ ‖x − x′‖² / ℓ²) (n, m) and its gradients, in one matrix product each and few passes over the matrix."""

    @staticmethod
    def forward(ctx: Any, scale: Tensor, length: Tensor, x: Tensor, other: Tensor) -> Tensor:
        ctx.same = x is other
        centre = other.mean(0) if len(other) else 0.0  # distances do not depend on it, rounding does
        x, other = (x - centre) / length, (other - centre) / length
        # −½ ‖x − x′‖² = ⟨x, x′⟩ − ½ ‖x‖² − ½ ‖x′‖², the last two as two more columns of the product
        norm, other_norm = (-0.5 * each.square().sum(-1, keepdim=True) for each in (x, other))
        left = torch.cat([x, norm, torch.ones_like(norm)], -1)
        K = left @ torch.cat([other, torch.ones_like(other_norm), other_norm], -1).mT
        K.clamp_(max=0.0).exp_().mul_(scale)
        ctx.save_for_backward(scale, length, x, other, K)
        return K

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        scale, length, x, other, K = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        W = outputs[0] * K  # with x and x′ in units of ℓ: ∂k/∂x = (x′ − x) k / ℓ
        if ctx.same:  # both gradients at once
            both = W + W.mT
            to_x = (both @ x - both.sum(-1, keepdim=True) * x) / length
            to_length = -(to_x * x).sum() if wanted[1] else None
            return (W.sum() / scale if wanted[0] else None), to_length, to_x, None
        along, down = W.sum(-1, keepdim=True), W.sum(-2).unsqueeze(-1)
        to_x = (W @ other - along * x) / length if wanted[2] or wanted[1] else None
        to_other = (W.mT @ x - down * other) / length if wanted[3] or wanted[1] else None
        # k depends on x / ℓ and x′ / ℓ alone, hence ℓ ∂k/∂ℓ = −⟨x, ∂k/∂x⟩ − ⟨x′, ∂k/∂x′⟩
        to_length = -((to_x * x).sum() + (to_other * other).sum()) if wanted[1] else None
        return (along.sum() / scale if wanted[0] else None), to_length, to_x, to_other


def linear_features(kernel: Kernel, x: Tensor) -> Tensor | None:
    """Φ with k(x, x′) = Φ(x) Φ(x′)ᵀ where the kernel is (a multiple of) the linear one, else None.

    Parameters
    ----------
    kernel : Kernel
    x : tensor (..., n, d)

    Returns
    -------
    tensor (..., n, d) or None
    """
    scale, all_columns = None, kernel.active_dims is None
    if type(kernel) is ScaleKernel:
        scale, kernel = kernel.outputscale, kernel.base_kernel
    plain = type(kernel) is LinearKernel and all_columns and len(batch_shape(kernel)) == 0
    if not plain or (scale is not None and scale.dim() > 0):
        return None
    features = x * torch.as_tensor(kernel.variance).sqrt().reshape(-1)
    return features if scale is None else features * scale.sqrt()


def node_kernels(kernel: Kernel, count: int) -> Kernel:
    """A copy of the kernel with `count` sets of hyper-parameters, one a node; `kernel_at` selects some of them."""
    kernel = copy.deepcopy(kernel)
    for module in kernel.modules():
        if isinstance(module, Kernel):
            module.batch_shape = torch.Size([count])
        for name, parameter in list(module.named_parameters(recurse=False)):
            expanded = parameter.detach().expand(count, *parameter.shape).clone()
            setattr(module, name, torch.nn.Parameter(expanded, requires_grad=parameter.requires_grad))
    return kernel


def kernel_at(kernel: Kernel, nodes: Tensor) -> Kernel:
    """The hyper-parameters of some nodes, through which gradients flow (GPyTorch's indexing cuts them off)."""
    selected = copy.deepcopy(kernel)
    for module, original in zip(selected.modules(), kernel.modules(), strict=True):
        if isinstance(module, Kernel):
            module.batch_shape = torch.Size([len(nodes)])
        for name, parameter in list(original.named_parameters(recurse=False)):
            delattr(module, name)
            setattr(module, name, parameter[nodes])
    return selected
