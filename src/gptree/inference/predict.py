"""Predictive probabilities at the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, cast

import torch
from gpytorch.kernels import ScaleKernel
from torch import Tensor, nn

from gptree.inference.frozen_variances import FrozenVariances
from gptree.inference.grams import Grams, finite
from gptree.inference.layer import NodeLayer, Stationary
from gptree.inference.posterior import LinearPosterior, NodePosterior, select
from gptree.maths.frozen import Parts, Rows
from gptree.maths.kernels import gram, gram_diagonal, kernel_at, linear_features
from gptree.maths.quadrature import WIDE

PredictAt = Literal["mean", "quadrature"]

#: Factors that are not kept are made so many numbers at a time: small enough to stay near the processor.
STREAMED_NUMBERS = 2**22


class NodePredictor:
    """Node probabilities from any mix of posteriors over the rows of a feature matrix.

    Variances need factors. They are computed when first asked for, and kept if they take at most an eighth of
    `memory_budget`; otherwise they are computed a few at a time in every call. Predicting at the mean needs none.

    Parameters
    ----------
    grams : Grams
    posteriors : sequence of NodePosterior
    memory_budget : int
        Bytes.
    """

    def __init__(
        self,
        grams: Grams,
        posteriors: Sequence[NodePosterior],
        memory_budget: int,
    ) -> None:
        self.grams = grams
        self.posteriors = tuple(posteriors)
        self._factors: list[Tensor | None] = [None] * len(self.posteriors)
        self._sums: nn.Module | None = None
        self._work = memory_budget // (8 * grams.X.element_size())
        needed = sum(p.factor_numbers * p.factors for p in posteriors) * grams.X.element_size()
        self._keep = needed <= memory_budget // 8
        self.n_nodes = sum(len(p.nodes) for p in posteriors)

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_layer", "_kernel")}
        return {**kept, "_factors": [None] * len(self.posteriors), "_sums": None}  # as with the Gram matrix

    @property
    def used_rows(self) -> Tensor:
        """Rows of the features that predictions look at, sorted: with inducing points, few of them."""
        return self._used_rows

    @cached_property
    def _used_rows(self) -> Tensor:
        rows = [p.rows.flatten() for p in self.posteriors if not isinstance(p, LinearPosterior)]
        return torch.cat([self.grams.X.new_zeros(0, dtype=torch.long), *rows]).unique()

    def layer(self, parts: Parts) -> NodeLayer:
        """The nodes as one layer, a part of a prediction. Those that are not frozen share the weights of the nodes."""
        if parts.frozen:
            return NodeLayer(self.grams, self.posteriors, self.used_rows, parts)
        made = NodeLayer(self.grams, self.posteriors, self.used_rows, parts, self._sums)
        self._sums = made.sums
        return made

    def frozen_variances(self, layer: NodeLayer) -> FrozenVariances:
        """The variances as a piece of a frozen prediction, beside the nodes of the same."""
        layer.wide = self._widest() > WIDE
        return FrozenVariances(self.grams, self.posteriors, self.used_rows, layer)

    def _widest(self) -> float:
        """A bound on the prior variance at rows of unit length."""
        if Stationary.takes(self.grams.kernel):
            return float(cast(ScaleKernel, self.grams.kernel).outputscale.detach().max())
        return float("inf")

    @cached_property
    def _layer(self) -> NodeLayer:
        parts = self._parts()
        layer = self.layer(parts)
        layer.shared = parts.shared()
        return layer

    @cached_property
    def _kernel(self) -> Stationary | None:
        """That of the layer, where nothing else of it is needed."""
        if self.grams.per_node or not Stationary.takes(self.grams.kernel):
            return None
        parts = self._parts()
        kernel = Stationary(self.grams.kernel, self.grams.X[self.used_rows], parts)
        kernel.shared = parts.shared()
        return kernel

    def _parts(self) -> Parts:
        X = self.grams.X
        return Parts(centre=X.mean(0) if len(X) else None)

    @torch.no_grad()
    def log_probabilities(
        self, x: Tensor, prior_mean: Tensor | None = None, predict_at: PredictAt = "mean"
    ) -> tuple[Tensor, Tensor]:
        """log p(left) and log p(right) at each node.

        A node's probability is averaged over its draws, before anything is multiplied along a path: nodes are
        independent.

        Parameters
        ----------
        x : tensor (T, d)
        prior_mean : tensor (n_nodes, T), optional
            μ(x⋆) at each node.
        predict_at : "mean" or "quadrature"
            σ at the latent mean, or integrated over the latent posterior.

        Returns
        -------
        two tensors (n_nodes, T)
        """
        return self._log_probabilities(Rows(x), prior_mean, predict_at)

    @torch.no_grad()
    def log_probabilities_at(
        self, chunk: slice, prior_mean: Tensor | None, predict_at: PredictAt
    ) -> tuple[Tensor, Tensor]:
        """The same at rows of the features: their kernel values may be known."""
        rows, kernel = Rows(self.grams.X[chunk]), self._layer.kernel
        if kernel is not None and (known := self.grams.known_cross(self.used_rows, chunk)) is not None:
            rows.tell(kernel, known)
        return self._log_probabilities(rows, prior_mean, predict_at)

    def _log_probabilities(self, rows: Rows, prior_mean: Tensor | None, predict_at: PredictAt) -> tuple[Tensor, Tensor]:
        variances = None if predict_at == "mean" else self.variances(rows, self._layer.kernel)
        return self._layer(rows, prior_mean, variances)

    @torch.no_grad()
    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of g⋆ at each node, (n_nodes, T) each; over draws, the moments of their mixture."""
        mean = torch.empty(self.n_nodes, len(x), dtype=x.dtype, device=x.device)
        variance = torch.empty_like(mean)
        rows = Rows(x)
        variances = self.variances(rows, self._layer.kernel)
        for block, m in zip(self._layer.blocks, self._layer.latents(rows), strict=True):
            mean[block.nodes] = m.mean(0)
            variance[block.nodes] = block.gathered(variances).mean(0) + m.var(0, correction=0)
        return mean, variance

    @torch.no_grad()
    def joint(self, x: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Moments of g⋆ at all points together: means (S, V, T) and covariances (S or 1, V, T, T) of S draws each.

        Parameters
        ----------
        x : tensor (T, d)
        nodes : int64 tensor (V,)
            With equally many draws.
        """
        means, covariances = [], []
        for node in nodes:
            (p,) = (p for p in self.posteriors if bool((p.nodes == node).any()))
            p = select(p, (p.nodes == node).nonzero()[:, 0])
            kernel = kernel_at(self.grams.kernel, p.nodes) if self.grams.per_node else self.grams.kernel
            one = x[None] if self.grams.per_node else x
            prior = gram(kernel, one, one).reshape(1, len(x), len(x))
            if isinstance(p, LinearPosterior):
                features = linear_features(self.grams.kernel, x)
                assert features is not None
                k = features.mT.unsqueeze(0)
            else:
                rows = self.grams.X[p.rows] if self.grams.per_node else self.grams.X[p.rows[0]]
                k = gram(kernel, rows, one).reshape(1, -1, len(x))
            means.append((p.weights.transpose(0, 1) @ k).transpose(0, 1))
            covariances.append(p.covariance(p.factoriser(self.grams)(slice(0, p.factors)), k, prior))
        return torch.cat(means, 1), torch.cat(covariances, 1)

    @torch.no_grad()
    def explained_share(self, x: Tensor) -> Tensor:
        """1 − var(g⋆) / k(x⋆, x⋆), (nodes, T): how much of the prior variance the data of each node took away."""
        share = torch.empty(self.n_nodes, len(x), dtype=x.dtype, device=x.device)
        variances = self.variances(Rows(x), self._kernel)
        for p, prior, variance in zip(self.posteriors, self._prior_variances(x), variances, strict=True):
            share[p.nodes] = 1.0 - variance.mean(0) / prior.clamp_min(torch.finfo(x.dtype).tiny)
        return share

    def variances(self, rows: Rows, kernel: Stationary | None) -> list[Tensor]:
        """var(g⋆) of each posterior, (S, V, T), or (1, V, T) if its draws share it; the kernel is that of a layer."""
        x = rows.x
        if self.grams.per_node or all(isinstance(p, LinearPosterior) for p in self.posteriors):
            cross = None
        elif kernel is not None:
            cross = rows.of(kernel)
        else:
            cross = self.grams.cross(x, self.used_rows).mT.contiguous()
        return [self._variance(i, x, prior, cross) for i, prior in enumerate(self._prior_variances(x))]

    def _prior_variances(self, x: Tensor) -> list[Tensor]:
        """k(x⋆, x⋆) at the nodes of each posterior, (V, T)."""
        kernel, nodes = self.grams.kernel, [p.nodes for p in self.posteriors]
        if self.grams.per_node:
            return [gram_diagonal(kernel_at(kernel, some), x.expand(len(some), *x.shape)) for some in nodes]
        features = linear_features(kernel, x)
        diagonal = gram_diagonal(kernel, x) if features is None else features.square().sum(-1)
        return [diagonal.expand(len(some), len(x)) for some in nodes]

    def _variance(self, i: int, x: Tensor, prior: Tensor, cross: Tensor | None) -> Tensor:
        """var⋆ of posterior i, (S, V, T), or (1, V, T) if its draws share it, chunked over draws and points."""
        p = self.posteriors[i]
        draws, nodes = p.factors, len(p.nodes)
        if isinstance(p, LinearPosterior):
            features = linear_features(self.grams.kernel, x)
            assert features is not None
            k = features.mT.unsqueeze(0)
        elif cross is None:
            k = gram(kernel_at(self.grams.kernel, p.nodes), self.grams.X[p.rows], x.expand(nodes, *x.shape))
        else:
            k = cross[torch.searchsorted(self.used_rows, p.rows)]
        k = k.mT.contiguous().mT  # points in rows, as solving with a factor likes it: once, and not for every draw
        out = torch.empty(draws, nodes, len(x), dtype=x.dtype, device=x.device)
        for chunk, L in self._factor_chunks(i):
            step = max(1, self._work // (2 * (out[chunk].shape[0]) * nodes * k.shape[1]))
            for t in range(0, len(x), step):
                part = slice(t, t + step)
                out[chunk, :, part] = p.variance(L, k[..., part], prior[..., part], chunk)
        return finite(out).clamp_(min=0.0)

    def _factor_chunks(self, i: int) -> Iterator[tuple[slice, Tensor]]:
        """(draws, factors) of posterior i: all in one where they are kept, else a few draws at a time."""
        p = self.posteriors[i]
        draws = p.factors
        kept = self._factors[i]
        if kept is None:
            factoriser = p.factoriser(self.grams)
            if not self._keep:
                step = max(1, min(self._work // 3, STREAMED_NUMBERS) // p.factor_numbers)
                for start in range(0, draws, step):
                    chunk = slice(start, min(start + step, draws))
                    yield chunk, factoriser(chunk)
                return
            self._factors[i] = kept = factoriser(slice(0, draws))
        yield slice(0, draws), kept
