"""The posterior of the latent functions at chosen nodes: means, covariances and samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from gptree.estimators.base import TreeEstimator


@dataclass(frozen=True, eq=False)
class LatentPosterior:
    """Of the latent functions of V nodes at n rows; positive values speak for the left side.

    Given a draw, latent values are Gaussian. Variational inference has one draw, Gibbs sampling one for each chain and
    kept sweep, all equally probable. Nodes are independent.

    Attributes
    ----------
    nodes : ndarray (V,)
        Nodes of `tree_`.
    means : ndarray (S, V, n)
        Of each draw.
    covariances : ndarray (S or 1, V, n, n)
        Of each draw, or of all.
    """

    nodes: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """(V, n)."""
        return self.means.mean(0)

    @property
    def covariance(self) -> np.ndarray:
        """(V, n, n): the mean of the draws' covariances, and the covariance of their means."""
        apart = self.means - self.mean
        return self.covariances.mean(0) + np.einsum("svi,svj->vij", apart, apart) / len(self.means)

    def sample(self, size: int, random_state: Any = None) -> np.ndarray:
        """Samples of the latent functions.

        Parameters
        ----------
        size : int
        random_state : int, RandomState or None

        Returns
        -------
        ndarray (size, V, n)
        """
        random = check_random_state(random_state)
        values, vectors = np.linalg.eigh(self.covariances)
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]  # rounding
        draws, nodes, rows = self.means.shape
        noise = random.standard_normal((size, nodes, rows))
        chosen = random.randint(draws, size=(size, nodes))
        which = np.minimum(chosen, len(roots) - 1)
        at = np.arange(nodes)
        return self.means[chosen, at] + np.einsum("svij,svj->svi", roots[which, at], noise)


class PosteriorMixin(TreeEstimator):
    """A classifier whose latent functions can be looked at."""

    def posterior(self, X: Any, nodes: Sequence[int] | None = None) -> LatentPosterior:
        """The posterior of the latent functions f = μ + g at chosen nodes of `tree_`, at all rows together.

        Parameters
        ----------
        X : array-like (n, d)
        nodes : sequence of int, optional
            Nodes of `tree_`, as `tree_.path` and `explain` number them; all of them if None. The result holds n²
            numbers for each node and draw.

        Returns
        -------
        LatentPosterior
        """
        query = self._query(X)
        model = query.state.model
        chosen = np.arange(model.trees[0].n_nodes) if nodes is None else np.asarray(nodes)
        wrong = chosen.ndim != 1 or chosen.dtype.kind not in "iu" or len(chosen) == 0
        if wrong or chosen.min() < 0 or chosen.max() >= model.trees[0].n_nodes:
            raise ValueError(
                f"nodes must be numbers of the {model.trees[0].n_nodes} nodes of tree_, from 0 up; got {nodes!r}."
            )
        numbers = model.node_of[0][torch.as_tensor(chosen, device=model.node_of[0].device)]
        means, covariances = model.predictor.joint(query.features, numbers)
        prior = model.prior_means(query.state.class_scores(query.features, query.raw))
        if prior is not None:
            means = means + prior[numbers]
        return LatentPosterior(chosen, means.cpu().numpy(), covariances.cpu().numpy())
