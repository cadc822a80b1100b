"""An SNGP-like network (Liu et al., 2020): bounded weights, and random Fourier features at its end.

Spectral normalisation keeps the residual branches from stretching distances, so that what is far from the training
pictures stays far; cosines of random projections of the pooled features are those of a Gaussian process with an RBF
kernel. A softmax layer on the cosines is trained as usual, and its posterior is that of `last_layer.ByClass`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, normalize
from torch.nn.utils import parametrize

#: Largest singular value of a convolution, as a matrix (outputs, inputs × pixels).
BOUND = 6.0
#: Length-scale, in units of the length of a feature vector.
LENGTH_SCALE = 0.5


class BoundedSpectrum(nn.Module):
    """W · min(1, bound / σ), σ the largest singular value of W as a matrix, by one power step a training pass."""

    u: Tensor

    def __init__(self, weight: Tensor, bound: float, seed: int) -> None:
        super().__init__()
        self.bound = bound
        random = torch.Generator().manual_seed(seed)
        u = normalize(torch.randn(len(weight), generator=random).to(weight), dim=0)
        for _ in range(20):
            u = self._step(weight.detach().flatten(1), u)
        self.register_buffer("u", u)

    def forward(self, weight: Tensor) -> Tensor:
        with torch.autocast(weight.device.type, enabled=False):
            matrix = weight.flatten(1)
            if self.training:
                with torch.no_grad():
                    self.u.copy_(self._step(matrix, self.u))
            u = self.u.clone()  # the next pass writes to it
            with torch.no_grad():
                v = normalize(matrix.mT @ u, dim=0)
            sigma = u @ (matrix @ v)
            return weight * (self.bound / sigma).clamp(max=1.0)

    @staticmethod
    def _step(matrix: Tensor, u: Tensor) -> Tensor:
        return normalize(matrix @ normalize(matrix.mT @ u, dim=0), dim=0)


def bounded(network: nn.Module, bound: float = BOUND, seed: int = 0) -> nn.Module:
    """The network itself, its convolutions with bounded spectra."""
    for module in list(network.modules()):
        if isinstance(module, nn.Conv2d):
            parametrize.register_parametrization(module, "weight", BoundedSpectrum(module.weight, bound, seed))
    return network


class RandomFeatures(nn.Module):
    """cos(Ω x + β) (B, count) of features x (B, d) brought to mean 0 and length √d: √(2 / count) times it has the inner
    products of an RBF kernel."""

    omega: Tensor
    beta: Tensor

    def __init__(self, width: int, count: int, length_scale: float, seed: int) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        scale = length_scale * math.sqrt(width)
        self.register_buffer("omega", torch.randn(count, width, generator=random) / scale)
        self.register_buffer("beta", 2 * math.pi * torch.rand(count, generator=random))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            x = layer_norm(x.float(), x.shape[-1:])
            return (x @ self.omega.mT + self.beta).cos()


def sngp(backbone: nn.Module, width: int, count: int, seed: int) -> nn.Module:
    """A backbone with features (B, width) turned into an SNGP-like one with embeddings (B, count)."""
    return nn.Sequential(bounded(backbone, seed=seed), RandomFeatures(width, count, LENGTH_SCALE, seed))
