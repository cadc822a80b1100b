"""`GibbsRival`, the base of rivals that sample Gaussian processes: settings, inputs of unit length, and the chains."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel
from scipy.special import log_softmax
from sklearn.utils import check_random_state
from torch import Tensor

from gptree.inference import Gibbs
from gptree.inference.grams import finite
from gptree.maths import FunctionSpace, as_kernel, gram, gram_diagonal, linear_features, make_kernel
from gptree.maths.quadrature import log_mean_exp
from gptree.maths.sphere import unit_length
from gptree.rivals.base import Registry, RivalClassifier
from gptree.settings import require

GIBIBYTE = 2**30

GIBBS_RIVALS: Registry = {}
"""Gaussian processes by Gibbs sampling with other likelihoods than a tree's, by name, at the settings of the paper."""


class OverBudget(MemoryError):
    """A model that would need more memory than it may take; nothing has been allocated."""


@dataclass(eq=False, repr=False)
class GibbsRival(RivalClassifier):
    """Zero-mean Gaussian processes on inputs of unit length, sampled by block Gibbs with auxiliary variables.

    Parameters
    ----------
    kernel : "linear", "rbf", "matern52" or a GPyTorch kernel
        By name it has `output_scale` and `length_scale` (which the linear one lacks); a kernel brings its own.
    output_scale, length_scale : float
    chains, steps, keep : int
        As in `gptree.Gibbs`: every chain starts from the prior; after `steps` sweeps the auxiliary variables of its
        last `keep` predict, and their probabilities are averaged.
    predict_at : "quadrature" or "mean"
        Integrate over the latent posterior given the auxiliary variables, or put its mean in its place. It may be
        changed after `fit`.
    memory_budget : int
        Bytes; what needs more fails with `OverBudget` before it starts.
    random_state : int, RandomState or None
    """

    registry: ClassVar[Registry] = GIBBS_RIVALS

    kernel: str | Kernel = "linear"
    output_scale: float = 4.0
    _: KW_ONLY
    length_scale: float = 1.0
    chains: int = 10
    steps: int = 1
    keep: int = 1
    predict_at: Literal["mean", "quadrature"] = "quadrature"
    memory_budget: int = 2 * GIBIBYTE
    random_state: Any = 0

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Class log-probabilities (n, C), columns in the order of `classes_`."""
        return log_softmax(self._checked_logits(X), axis=1)

    def _gibbs(self) -> Gibbs:
        """The settings of the chains; what can be wrong with them, or with `predict_at`, shows before any work."""
        self._predict_at()
        return Gibbs(self.chains, self.steps, self.keep)

    def _predict_at(self) -> str:
        valid = self.predict_at in ("mean", "quadrature")
        require(valid, f'predict_at must be "mean" or "quadrature", not {self.predict_at!r}.')
        return self.predict_at

    def _make_kernel(self) -> Kernel:
        if isinstance(self.kernel, str):
            return make_kernel(self.kernel, self.output_scale, self.length_scale)
        return self.kernel

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))


class SampledRival(GibbsRival):
    """A rival whose likelihood is no tree's: one process a class, all with the same kernel.

    Attributes
    ----------
    kernel_ : gpytorch.kernels.Kernel
    features_ : Tensor (N, d)
        Of unit length.
    model_ : Likelihood
        The likelihood, and the prior at the training points.
    omega_, weights_ : Tensor (S, C, N)
        ω and the weights α of S draws (chains × keep): the latent mean of class c at x⋆ is k(x⋆, X) α_c.
    """

    kernel_: Kernel
    features_: Tensor
    omega_: Tensor
    weights_: Tensor

    @abstractmethod
    def _numbers(self, points: int, classes: int) -> float:
        """How many float64 numbers fitting and predicting hold at a time, at most."""

    @abstractmethod
    def _sample(self, space: FunctionSpace, y: Tensor, gibbs: Gibbs, random: torch.Generator) -> None:
        """Run the chains on coded labels y (N,); sets `model_`, `omega_` and `weights_`."""

    @abstractmethod
    def _log_probabilities(self, mean: Tensor, cross: Tensor, prior: Tensor) -> Tensor:
        """log p (S, T, C), not yet normalised, of T new points.

        From their latent means (S, C, T), k(X, x⋆) (N, T) and k(x⋆, x⋆) (T,).
        """

    @torch.no_grad()
    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        gibbs = self._gibbs()
        self._require_memory(len(x), int(y.max()) + 1)
        self.kernel_ = as_kernel(self._make_kernel(), torch.float64, torch.device("cpu"))
        self.features_ = _on_sphere(x)
        random = torch.Generator().manual_seed(self._seed())
        self._sample(self._space(), torch.as_tensor(y), gibbs, random)

    def _require_memory(self, points: int, classes: int) -> None:
        needed = 8 * self._numbers(points, classes)
        if needed > self.memory_budget:
            raise OverBudget(
                f"{type(self).__name__} would need about {needed / GIBIBYTE:.2g} GiB for {classes} classes and "
                f"{points} points, but memory_budget is {self.memory_budget / GIBIBYTE:.2g} GiB: raise it, or take "
                "fewer classes, points or chains."
            )

    def _space(self) -> FunctionSpace:
        """The prior at the training points."""
        phi = linear_features(self.kernel_, self.features_)
        K = finite(gram(self.kernel_, self.features_) if phi is None else phi @ phi.mT)
        return FunctionSpace(K[None], None if phi is None else phi[None])

    @torch.no_grad()
    def _logits(self, x: np.ndarray) -> np.ndarray:
        self._predict_at()
        draws, classes, points = self.weights_.shape
        step = max(1, self.memory_budget // (64 * (points + draws * classes)))
        parts = []
        for new in torch.split(_on_sphere(x), step):
            cross = finite(gram(self.kernel_, self.features_, new))
            mean = (self.weights_.flatten(0, 1) @ cross).view(draws, classes, len(new))
            scores = self._log_probabilities(mean, cross, gram_diagonal(self.kernel_, new))
            parts.append(self._averaged(scores))
        return torch.cat(parts).numpy()

    def _averaged(self, scores: Tensor) -> Tensor:
        """log p (T, C), up to a constant a row, of all draws together, from what `_log_probabilities` returns."""
        return log_mean_exp(scores.log_softmax(-1))


def _on_sphere(x: np.ndarray) -> Tensor:
    return torch.as_tensor(unit_length(x.astype(np.float64)))


Auxiliaries = TypeVar("Auxiliaries")


class Likelihood(Protocol[Auxiliaries]):
    """A likelihood with auxiliary variables that make it Gaussian in f (S, C, N), and the prior of f."""

    @property
    def space(self) -> FunctionSpace: ...

    @property
    def classes(self) -> int: ...

    def first_auxiliaries(self, f: Tensor, random: torch.Generator, /) -> Auxiliaries:
        """Where a chain starts that has drawn f from the prior."""
        ...

    def draw_auxiliaries(self, f: Tensor, random: torch.Generator, /) -> Auxiliaries: ...

    def draw_latent(self, given: Auxiliaries, z: Tensor, epsilon: Tensor, /) -> Tensor: ...


def run_chains(model: Likelihood[Auxiliaries], gibbs: Gibbs, random: torch.Generator) -> list[Auxiliaries]:
    """The auxiliary variables of the last `keep` sweeps, each for all chains; they start from draws of the prior."""
    points = model.space.order
    width = model.space.noise_widths[0] or points

    def normals(size: int) -> Tensor:
        return torch.randn(gibbs.chains, model.classes, size, generator=random, dtype=torch.float64)

    state = model.first_auxiliaries(prior_draw(model.space, normals(width)), random)
    kept = []
    for step in range(gibbs.steps):
        f = model.draw_latent(state, normals(width), normals(points))
        state = model.draw_auxiliaries(f, random)
        if step >= gibbs.steps - gibbs.keep:
            kept.append(state)
    return kept


def prior_draw(space: FunctionSpace, z: Tensor) -> Tensor:
    """f₀ (S, C, N), every class independently from N(0, K), out of standard normals."""
    return space.prior_draw(z.flatten(0, 1)[:, None])[:, 0].view(*z.shape[:2], -1)
