"""Predictive probabilities at the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from gptree.inference.grams import Grams, finite
from gptree.inference.posterior import LinearPosterior, NodePosterior, select
from gptree.maths.kernels import gram, gram_diagonal, kernel_at, linear_features
from gptree.maths.quadrature import log_mean_exp, log_sigmoid_expectation

PredictAt = Literal["mean", "quadrature"]

#: Nodes whose weight vectors are stacked into one matrix for the latent means. Neighbours in a tree share most of
#: their points, so a group of them needs few rows of the cross-kernel matrix.
NODES_A_GROUP = 128

#: Factors that are not kept are made so many numbers at a time: small enough to stay near the processor.
STREAMED_NUMBERS = 2**22


@dataclass(frozen=True)
class _Group:
    """Stacked weights of some nodes: means = weightsᵀ k(X[rows], x⋆), one row of `weights`ᵀ a draw and node."""

    rows: Tensor | None
    """Rows of X the group needs; None for weights over linear features."""
    weights: Tensor
    """(rows, columns)."""
    columns: Tensor
    """Where each column stands among all draws of all nodes."""


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
        self._work = memory_budget // (8 * grams.X.element_size())
        needed = sum(p.factor_numbers * p.factors for p in posteriors) * grams.X.element_size()
        self._keep = needed <= memory_budget // 8
        self.n_nodes = sum(len(p.nodes) for p in posteriors)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_factors": [None] * len(self.posteriors)}  # as with the Gram matrix

    @property
    def used_rows(self) -> Tensor:
        """Rows of the features that predictions look at, sorted: with inducing points, few of them."""
        return self._used_rows

    @cached_property
    def _used_rows(self) -> Tensor:
        rows = [p.rows.flatten() for p in self.posteriors if not isinstance(p, LinearPosterior)]
        return torch.cat([self.grams.X.new_zeros(0, dtype=torch.long), *rows]).unique()

    def _place(self, rows: Tensor) -> Tensor:
        """Where rows of the features stand among those used."""
        return torch.searchsorted(self.used_rows, rows)

    @cached_property
    def _offsets(self) -> list[int]:
        """Where the draws of each posterior start in the stacked rows of latent means."""
        starts = [0]
        for p in self.posteriors:
            starts.append(starts[-1] + p.weights.shape[0] * p.weights.shape[1])
        return starts

    @cached_property
    def _groups(self) -> list[_Group]:
        entries = []  # (node, posterior, index in it, first column)
        for p, start in zip(self.posteriors, self._offsets, strict=False):
            draws = len(p.weights)
            entries += [(int(node), p, v, start + v * draws) for v, node in enumerate(p.nodes)]
        entries.sort(key=lambda entry: entry[0])
        linear = [e for e in entries if isinstance(e[1], LinearPosterior)]
        others = [e for e in entries if not isinstance(e[1], LinearPosterior)]
        groups = [self._stack(others[i : i + NODES_A_GROUP]) for i in range(0, len(others), NODES_A_GROUP)]
        if linear:
            weights = torch.cat([p.weights[:, v] for _, p, v, _ in linear]).mT
            groups.append(_Group(None, weights, self._columns(linear)))
        return groups

    def _columns(self, entries: list[tuple[int, NodePosterior, int, int]]) -> Tensor:
        device = self.grams.X.device
        return torch.cat([torch.arange(c, c + len(p.weights), device=device) for _, p, _, c in entries])

    def _stack(self, entries: list[tuple[int, NodePosterior, int, int]]) -> _Group:
        rows = torch.cat([p.rows[v] for _, p, v, _ in entries]).unique()
        blocks = []
        for _, p, v, _ in entries:
            block = torch.zeros(len(rows), len(p.weights), dtype=p.weights.dtype, device=rows.device)
            # padded entries repeat a row with weight zero, hence add and not assign
            block.index_add_(0, torch.searchsorted(rows, p.rows[v]), p.weights[:, v].mT.contiguous())
            blocks.append(block)
        return _Group(rows, torch.cat(blocks, 1), self._columns(entries))

    def latent_means(self, x: Tensor, cross: Tensor | None) -> Tensor:
        """E[g⋆] of every draw of every node, (draws of all nodes, T)."""
        out = torch.empty(self._offsets[-1], len(x), dtype=x.dtype, device=x.device)
        if self.grams.per_node:
            for p, start in zip(self.posteriors, self._offsets, strict=False):
                k = gram(
                    kernel_at(self.grams.kernel, p.nodes),
                    self.grams.X[p.rows],
                    x.expand(len(p.nodes), *x.shape),
                )
                means = torch.einsum("svn,vnt->vst", p.weights, k)
                out[start : start + means.shape[0] * means.shape[1]] = means.flatten(0, 1)
            return out
        for group in self._groups:
            if group.rows is None:
                features = linear_features(self.grams.kernel, x)
                assert features is not None
                out[group.columns] = group.weights.mT @ features.mT
            else:
                assert cross is not None
                out[group.columns] = group.weights.mT @ cross[self._place(group.rows)]
        return out

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
        out = torch.empty(2, self.n_nodes, len(x), dtype=x.dtype, device=x.device)
        cross = self._cross(x)
        means = finite(self.latent_means(x, cross))
        for i, (p, start) in enumerate(zip(self.posteriors, self._offsets, strict=False)):
            draws, nodes = p.weights.shape[:2]
            f = means[start : start + draws * nodes].view(nodes, draws, len(x)).transpose(0, 1)
            if prior_mean is not None:
                f = f + prior_mean[p.nodes]
            if predict_at == "mean":
                left, right = logsigmoid(f), logsigmoid(-f)
            else:
                # paper (11)
                left, right = log_sigmoid_expectation(f, self._variance(i, x, cross))
            out[0, p.nodes], out[1, p.nodes] = log_mean_exp(left), log_mean_exp(right)
        return out[0], out[1]

    @torch.no_grad()
    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of g⋆ at each node, (n_nodes, T) each; over draws, the moments of their mixture."""
        mean = torch.empty(self.n_nodes, len(x), dtype=x.dtype, device=x.device)
        variance = torch.empty_like(mean)
        cross = self._cross(x)
        means = finite(self.latent_means(x, cross))
        for i, (p, start) in enumerate(zip(self.posteriors, self._offsets, strict=False)):
            draws, nodes = p.weights.shape[:2]
            m = means[start : start + draws * nodes].view(nodes, draws, len(x))
            mean[p.nodes] = m.mean(1)
            variance[p.nodes] = self._variance(i, x, cross).mean(0) + m.var(1, correction=0)
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
        cross = self._cross(x)
        for i, p in enumerate(self.posteriors):
            prior = self._prior_variance(p, x).clamp_min(torch.finfo(x.dtype).tiny)
            share[p.nodes] = 1.0 - self._variance(i, x, cross).mean(0) / prior
        return share

    def _prior_variance(self, p: NodePosterior, x: Tensor) -> Tensor:
        """k(x⋆, x⋆) at each node of a posterior, (V, T)."""
        if self.grams.per_node:
            return gram_diagonal(kernel_at(self.grams.kernel, p.nodes), x.expand(len(p.nodes), *x.shape))
        features = linear_features(self.grams.kernel, x)
        diagonal = gram_diagonal(self.grams.kernel, x) if features is None else features.square().sum(-1)
        return diagonal.expand(len(p.nodes), len(x))

    def _cross(self, x: Tensor) -> Tensor | None:
        if self.grams.per_node or all(isinstance(p, LinearPosterior) for p in self.posteriors):
            return None
        return self.grams.cross(x, self.used_rows).mT.contiguous()

    def _variance(self, i: int, x: Tensor, cross: Tensor | None) -> Tensor:
        """var⋆ of posterior i, (S, V, T), or (1, V, T) if its draws share it, chunked over draws and points."""
        p = self.posteriors[i]
        draws, nodes = p.factors, len(p.nodes)
        prior = self._prior_variance(p, x)
        if isinstance(p, LinearPosterior):
            features = linear_features(self.grams.kernel, x)
            assert features is not None
            k = features.mT.unsqueeze(0)
        elif cross is None:
            k = gram(kernel_at(self.grams.kernel, p.nodes), self.grams.X[p.rows], x.expand(nodes, *x.shape))
        else:
            k = cross[self._place(p.rows)]
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
