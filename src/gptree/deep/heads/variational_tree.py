"""`VariationalTree`: settings of the variational GP-Tree on a network, and how its head is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from gptree.deep.heads.base import Problem
from gptree.deep.heads.gp_tree import LARGEST_JITTER, TreeHead
from gptree.inference import class_inducing
from gptree.maths.kernels import as_kernel
from gptree.settings import Settings, require, require_whole
from gptree.storage import Array
from gptree.tree import ClassTree, build_tree, label_hashes

#: Sweeps over all rows before the first joint step.
FIRST_SWEEPS = 5


@dataclass(frozen=True)
class VariationalTree(Settings):
    """Settings of the variational GP-Tree on a network.

    Parameters
    ----------
    inducing : int
        Points a class.
    cap : int or None
        Most points a node; near the root it takes fewer of each class. None is no limit.
    step : float
        Size of the natural-gradient steps.
    learn_points : bool
        Whether the points move with the network.
    learn_kernel : "no", "shared" or "per-node"
        Whether the kernel's hyper-parameters do: one set of them, or one at every node. They take the steps of the
        network, and have none of the settings of `LearnKernel`.
    node_weights : "balanced", "equal" or "size"
        "equal" is the bound, divided by the number of rows. "size" divides the part of each node by its own number of
        rows, as the paper does, so that small nodes count as much as large ones; the loss then grows with the number of
        classes. "balanced" is that times a number which makes it as large as with "equal", so that a learning rate that
        suits the one suits the other.
    dtype : "float32" or "float64"
        Of everything in the head. Single precision takes a jitter of 1e-4 of the diagonal of K_mm in place of 1e-6, and
        on a CPU about 60 % of the time; rounding changes little beside that. On GPUs that are slow in double precision
        it saves more.

    Examples
    --------
    >>> from gptree import DeepGPTreeClassifier
    >>> from gptree.deep import VariationalTree, mlp
    >>> model = DeepGPTreeClassifier(mlp(64), variational=VariationalTree(inducing=10))
    """

    inducing: int = 40
    cap: int | None = None
    step: float = 0.05
    learn_points: bool = True
    learn_kernel: Literal["no", "shared", "per-node"] = "shared"
    node_weights: Literal["balanced", "equal", "size"] = "balanced"
    dtype: Literal["float64", "float32"] = "float32"

    def __post_init__(self) -> None:
        require_whole("inducing", self.inducing, 1)
        if self.cap is not None:
            require_whole("cap", self.cap, 2)
        require(0 < self.step <= 1, f"step must lie between 0, not included, and 1, got {self.step}.")
        for name, choices in (
            ("learn_kernel", ("no", "shared", "per-node")),
            ("node_weights", ("balanced", "equal", "size")),
            ("dtype", ("float64", "float32")),
        ):
            require(getattr(self, name) in choices, f"{name} must be one of {choices}, got {getattr(self, name)!r}.")

    def new_head(self, embeddings: Tensor, problem: Problem) -> TreeHead:
        """Tree and points from the embeddings of all rows that are learned, and q fitted to them."""
        features, y = normalize(embeddings, dim=-1).cpu().numpy(), problem.y
        sums = torch.zeros(len(problem.labels), features.shape[1], dtype=torch.float64)
        sums.index_add_(0, torch.as_tensor(y), torch.as_tensor(features, dtype=torch.float64))
        means = sums.numpy() / np.bincount(y)[:, None]
        tree = build_tree(problem.tree, means, problem.labels, problem.seed)
        rows = class_inducing(features, y, self.inducing, label_hashes(problem.labels), problem.seed)
        points = torch.as_tensor(features[rows], device=embeddings.device)
        head = self._head_at(tree, points, torch.as_tensor(y[rows]), problem)
        # from q = p the bound would first have the kernel shrink to nothing, and there is no way back from there
        head.refit(embeddings, torch.as_tensor(y, device=embeddings.device), FIRST_SWEEPS)
        return head

    def stored_head(self, structure: Any, tensors: Mapping[str, Tensor], problem: Problem) -> TreeHead:
        """A head that such tensors of a `state_dict` can be loaded into."""
        tree, points = ClassTree.from_json(structure), torch.zeros_like(tensors["points"])
        sizes = {"C": tree.n_classes, "P": len(points)}
        point_class = Array("P", below="C").check("point_class", tensors.get("point_class"), sizes)
        Array("", least=1e-12, most=1.001 * LARGEST_JITTER).check("jitter", tensors.get("jitter"), sizes)
        return self._head_at(tree, points, point_class, problem)

    def _head_at(self, tree: ClassTree, points: Tensor, point_class: Tensor, problem: Problem) -> TreeHead:
        counts = torch.as_tensor(np.bincount(problem.y, minlength=len(problem.labels)), device=points.device)
        kernel = as_kernel(problem.kernel, getattr(torch, self.dtype), points.device)
        return TreeHead(tree, points, point_class.to(points.device), counts, kernel, self)
