"""Variances of the nodes as matrix products: what a frozen prediction needs to integrate over the posterior."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gptree.inference.grams import Grams
from gptree.inference.layer import LinearMeans, NodeLayer, NodeMeans, SharedMeans
from gptree.inference.posterior import (
    EXPLICIT_ORDER,
    DensePosterior,
    InducingPosterior,
    LinearPosterior,
    NodePosterior,
    SitesPosterior,
    SparsePosterior,
)
from gptree.maths.frozen import NotFrozenError, Rows
from gptree.maths.linalg import triangular_inverse

#: Numbers that the inverses of all factors may hold.
MOST_NUMBERS = 2**28


class FrozenVariances(nn.Module):
    """var(g⋆) of each posterior, (S or 1, V, T).

    Every factor is inverted once: var⋆ = k⋆⋆ − ‖R k⋆‖² + ‖Q k⋆‖², or ‖Q φ⋆‖² for a linear kernel in weight space.

    Parameters
    ----------
    grams : Grams
    posteriors : sequence of NodePosterior
    used : int64 tensor (n,)
        Rows of the features that predictions look at.
    layer : NodeLayer
        Of the same prediction.
    """

    def __init__(self, grams: Grams, posteriors: Sequence[NodePosterior], used: Tensor, layer: NodeLayer) -> None:
        super().__init__()
        numbers = sum(p.factor_numbers * p.factors for p in posteriors)
        if numbers > MOST_NUMBERS:
            raise NotFrozenError(
                f"the variances of the nodes need {8 * numbers / 2**30:.1f} GiB: freeze with predict_at='mean', or fit "
                "with inducing points or, by Gibbs sampling, with pooled variances (Gibbs(pooled=True))."
            )
        self._layer = (layer,)  # registered where it is owned
        self.register_buffer("phi", None if grams.features is None else grams.features[used].detach())
        self.kinds: list[str] = []
        for i, p in enumerate(posteriors):
            self.kinds.append("linear" if isinstance(p, LinearPosterior) else p.kind)
            own = p.rows if grams.per_node else torch.searchsorted(used, p.rows)
            for name, values in {"rows": own, "nodes": p.nodes, **_inverses(p, grams)}.items():
                self.register_buffer(f"{name}_{i}", values)

    phi: Tensor | None

    def forward(self, rows: Rows) -> list[Tensor]:
        means = self._layer[0].means
        phi = k = half = None
        if isinstance(means, LinearMeans):
            phi = (rows.x.to(means.factor.dtype) * means.factor).mT
            prior = phi.square().sum(0)
            assert self.phi is not None
            k = None if all(kind == "linear" for kind in self.kinds) else self.phi @ phi
        elif isinstance(means, SharedMeans):
            assert means.kernel is not None
            k, prior = rows.of(means.kernel), means.kernel.scale
        else:
            assert isinstance(means, NodeMeans)
            half, prior = means.kernel_of_nodes.half_distances(rows), means.kernel_of_nodes.scale
        out = []
        for i, kind in enumerate(self.kinds):
            nodes, places = self.get_buffer(f"nodes_{i}"), self.get_buffer(f"rows_{i}")
            if kind == "linear":
                assert phi is not None
                out.append(_norms(self.get_buffer(f"added_{i}"), phi[None].expand(nodes.shape[0], *phi.shape)))
                continue
            if half is not None:
                assert isinstance(means, NodeMeans)
                cross, variance = means.kernel_of_nodes.at_nodes(half, nodes, places), prior[nodes][:, None]
            else:
                assert k is not None
                cross, variance = k[places], prior
            variance = variance - _norms(self.get_buffer(f"taken_{i}"), cross)
            if kind in (SparsePosterior.kind, SitesPosterior.kind):
                variance = variance + _norms(self.get_buffer(f"added_{i}"), cross)
            out.append(variance.clamp(min=0.0))
        return out


def _inverses(p: NodePosterior, grams: Grams) -> dict[str, Tensor]:
    """R and Q, (S or 1, V, r, r) each."""
    factors = p.factoriser(grams)(slice(0, p.factors))
    if isinstance(p, InducingPosterior):
        root, factor = factors
        taken = triangular_inverse(root)
        return {"taken": taken[None], "added": torch.linalg.solve_triangular(factor, taken, upper=False)[None]}
    if isinstance(p, LinearPosterior):
        return {"added": triangular_inverse(factors)}
    if not isinstance(p, DensePosterior):
        raise NotFrozenError(f'the posterior {type(p).__name__} cannot be frozen: freeze with predict_at="mean".')
    if p.rows.shape[1] <= EXPLICIT_ORDER:
        return {"taken": factors}
    return {"taken": torch.linalg.solve_triangular(factors, torch.diag_embed(p.sites.sqrt()), upper=False)}


def _norms(matrices: Tensor, columns: Tensor) -> Tensor:
    """‖R c‖² (S, V, T) of matrices (S, V, r, N) and columns (V, N, T)."""
    draws, nodes, r, size = matrices.shape
    product = matrices.transpose(0, 1).reshape(nodes, draws * r, size) @ columns
    return product.square().unflatten(1, (draws, r)).sum(2).transpose(0, 1)
