"""The interface of heads, and of the settings that make them.

`VariationalTree` and its `TreeHead` are one pair; another head is trained by the same loop once it has these methods.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.deep.ensemble import Layer


@dataclass(frozen=True, eq=False)
class Problem:
    """The classification problem that a head is made for.

    Attributes
    ----------
    y : int array (n,)
        Classes of the rows that are learned.
    labels : list
    kernel : gpytorch.kernels.Kernel
    tree : Any
        A value that `gptree.tree.build_tree` takes; a head without a tree has no use for it.
    seed : int
    """

    y: np.ndarray
    labels: list[Any]
    kernel: Kernel
    tree: Any
    seed: int


class DeepHead(Layer):
    """Embeddings (B, d) of a whole batch, those of all processes together, to a loss and to class log-probabilities.

    Its state is in its `state_dict`, in the head's own dtype; it is the same in all processes, and so is what it draws.
    On a GPU, training switches TF32 on: a head in single precision that needs all digits of its products decorates what
    computes them by `gptree.maths.cuda.without_tf32`, and has its gradients ready in `loss`.
    """

    @abstractmethod
    def loss(self, embeddings: Tensor, y: Tensor) -> Tensor:
        """Minus the bound of rows with classes y (B,), a row: a scalar, less whatever `update` takes care of."""

    @abstractmethod
    def update(self) -> None:
        """Called after the optimiser's step on the last `loss`."""

    @abstractmethod
    def report(self, loss: Tensor) -> dict[str, Tensor]:
        """Numbers for the log, scalars on the device, given the mean of an epoch's losses.

        Among them expected_log_likelihood, kl and bound, each a row. A head that leaves out factorisations which fail
        has jitter, and skipped: how many up to now.
        """

    @abstractmethod
    def structure(self) -> Any:
        """The part of the state that no tensor holds, as JSON other than null."""


H_co = TypeVar("H_co", bound=DeepHead, covariant=True)


class HeadSettings(Protocol[H_co]):
    """Settings that make a head. `VariationalTree` and the rivals `GPDNN` and `SVDKL` are such settings."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name, with values whose `repr` tells them apart."""
        ...

    def new_head(self, embeddings: Tensor, problem: Problem) -> H_co:
        """The head that training starts with, from the embeddings (n, d) of all rows that are learned."""
        ...

    def stored_head(self, structure: Any, tensors: Mapping[str, Tensor], problem: Problem) -> H_co:
        """A head that such tensors of a `state_dict` can be loaded into."""
        ...
