"""SV-DKL: a network with additive GPs on single features, interpolated on grids and mixed before a softmax.

Wilson, Hu, Salakhutdinov and Xing, "Stochastic variational deep kernel learning", 2016. GP j sees feature j of a row
through cubic interpolation of its values on a grid, f_j = w(z_j)ᵀ u_j (KISS-GP); p(y | f) is the softmax of A f. What
differs from the paper: q is over the whitened values v_j, u_j = L_j v_j, the same family in coordinates in which plain
gradient descent converges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from gptree.deep.data.base import key
from gptree.deep.heads.base import Problem
from gptree.maths.kernels import as_kernel, node_kernels
from gptree.rivals.deep.base import VariationalHead, WhitenedPosterior, gram_root
from gptree.settings import Settings, require

#: Features start with variance 1 and are squashed into (−REACH, REACH), which the grid covers.
REACH = 4.0
#: Directions of little variance are enlarged at most this many times as much as the first one.
MOST_ENLARGED = 10.0
#: Draws of f behind a prediction.
PREDICTION_SAMPLES = 128
#: Sets the random numbers of the head apart from other uses of the seed.
_DRAWS = 101


@dataclass(frozen=True)
class SVDKL(Settings):
    """Settings of the head; the kernel of the training, for one feature, begins the same for all of them.

    Parameters
    ----------
    grid_size : int
        Inducing points of a GP, on a grid; at least 5.
    features : int
        Number of GPs, one a feature. The features are a linear map of the unit embeddings, learned with the rest; no
        more than there are numbers in an embedding.
    samples : int
        Draws of f behind each loss.

    Examples
    --------
    >>> from gptree.deep import Arrays, mlp, train
    >>> trained = train(mlp(64), Arrays(X), y, labels, head=SVDKL(features=16))  # doctest: +SKIP
    """

    grid_size: int = 64
    features: int = 64
    samples: int = 10
    dtype: ClassVar[str] = "float64"

    def __post_init__(self) -> None:
        require(self.grid_size >= 5, f"cubic interpolation needs a grid of at least 5 points, got {self.grid_size}.")
        for name in ("features", "samples"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}.")

    def new_head(self, embeddings: Tensor, problem: Problem) -> SoftmaxMixtureHead:
        """Features are the principal components, f starts as the features themselves, A as the class means of them."""
        x, y = normalize(embeddings.double(), dim=-1), torch.as_tensor(problem.y, device=embeddings.device)
        centre = x.mean(0)
        spectrum, directions = torch.linalg.eigh((x - centre).T @ (x - centre) / len(x))
        count = min(self.features, x.shape[1])
        deviation = spectrum[-count:].clamp_min(torch.finfo(x.dtype).eps).sqrt().flip(0)
        weight = directions[:, -count:].flip(1).T / deviation.clamp_min(deviation[0] / MOST_ENLARGED)[:, None]
        bias = -weight @ centre
        sums = x.new_zeros(len(problem.labels), count).index_add_(0, y, linear(x, weight, bias))
        head = self._head_at(weight, bias, sums / y.bincount()[:, None], problem)
        head.regress(embeddings, head.features(x).detach().T)
        return head

    def stored_head(self, structure: Any, tensors: Mapping[str, Tensor], problem: Problem) -> SoftmaxMixtureHead:
        weight, bias, mixing = (torch.zeros_like(tensors[name]) for name in ("weight", "bias", "mixing"))
        return self._head_at(weight, bias, mixing, problem)

    def _head_at(self, weight: Tensor, bias: Tensor, mixing: Tensor, problem: Problem) -> SoftmaxMixtureHead:
        kernel = as_kernel(problem.kernel, weight.dtype, weight.device)
        return SoftmaxMixtureHead(weight, bias, mixing, len(problem.y), kernel, self, problem.seed).to(weight.device)


class SoftmaxMixtureHead(VariationalHead):
    """The head; embeddings are scaled to unit length.

    Parameters
    ----------
    weight, bias : Tensor (J, d) and (J,)
        Unit embeddings to features.
    mixing : Tensor (C, J)
        A.
    rows : int
        n, all that are trained on.
    kernel : gpytorch.kernels.Kernel
    settings : SVDKL
    seed : int
    """

    grid: Tensor

    def __init__(
        self, weight: Tensor, bias: Tensor, mixing: Tensor, rows: int, kernel: Kernel, settings: SVDKL, seed: int
    ) -> None:
        super().__init__(WhitenedPosterior(len(weight), settings.grid_size), rows)
        self.weight, self.bias, self.mixing = nn.Parameter(weight), nn.Parameter(bias), nn.Parameter(mixing)
        self.kernel, self.settings = node_kernels(kernel, len(weight)), settings
        # one and a half cells beyond the features on either side: interpolation needs a point there
        end = REACH * (1 + 3 / (settings.grid_size - 4))
        self.register_buffer("grid", torch.linspace(-end, end, settings.grid_size, dtype=torch.float64))
        self._seed, self._step = seed, 0

    def features(self, x: Tensor) -> Tensor:
        """z (B, J) of unit vectors x (B, d)."""
        return REACH * torch.tanh(linear(x, self.weight, self.bias) / REACH)

    def _seen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """a = Lᵀ w(z), (J, M, B): f is all there is in v."""
        w = cubic_weights(self.features(x).T, self.grid)
        L = gram_root(self.kernel, self.grid[:, None].expand(len(self.weight), -1, 1))
        return (w @ L).mT, x.new_zeros(len(x))

    def _expected_log_likelihood(self, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """From draws that are other ones after every `update`."""
        z = self._normal((self.settings.samples, *mean.shape), 1 + self._step).to(mean)
        log_p = self._log_softmax(mean, variance, z).mean(0)
        return log_p.gather(1, y[:, None]).squeeze(1)

    def _class_log_probabilities(self, mean: Tensor, variance: Tensor) -> Tensor:
        """From draws that are the same for all rows and at any time."""
        z = self._normal((PREDICTION_SAMPLES, len(mean), 1), 0).to(mean)
        return self._log_softmax(mean, variance, z).logsumexp(0) - math.log(PREDICTION_SAMPLES)

    def _log_softmax(self, mean: Tensor, variance: Tensor, z: Tensor) -> Tensor:
        """log softmax(A f), (S, B, C), of draws f = E[f] + σ z."""
        f = torch.addcmul(mean, variance.clamp_min(torch.finfo(mean.dtype).eps).sqrt(), z)
        return linear(f.mT, self.mixing).log_softmax(-1)

    def _normal(self, shape: tuple[int, ...], number: int) -> Tensor:
        random = torch.Generator().manual_seed(key(self._seed, _DRAWS, number))
        return torch.randn(shape, generator=random, dtype=torch.float64)

    def update(self) -> None:
        self._step += 1

    # how many steps were done decides what is drawn next: a part of the state, but no tensor on the device

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self._step)

    def set_extra_state(self, state: Tensor) -> None:
        self._step = int(state)


def cubic_weights(z: Tensor, grid: Tensor) -> Tensor:
    """w (..., M) of places z (...) in an even grid (M,): cubic convolution (Keys, 1981), zero but for four points."""
    s = ((z.unsqueeze(-1) - grid) / (grid[1] - grid[0])).abs().clamp_max(2.0)
    near = 1 + s.square() * (1.5 * s - 2.5)
    far = 2 + s * (-4 + s * (2.5 - 0.5 * s))
    return torch.where(s < 1, near, far)
