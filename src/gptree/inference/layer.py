"""The nodes as one layer: from rows to the log-probabilities of all decisions, without a look at single nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor, nn

from gptree.inference.grams import Grams, finite
from gptree.inference.posterior import LinearPosterior, NodePosterior
from gptree.maths.frozen import Chosen, NotFrozenError, Parts, Rows, log_sigmoids
from gptree.maths.kernels import batch_shape, gram, kernel_at, linear_features
from gptree.maths.linalg import BLOCK_ROWS
from gptree.maths.quadrature import log_mean_exp, log_sigmoid_expectation, log_sigmoid_expectation_blind


class NodeLayer(nn.Module):
    """Log-probabilities of going left and right at all nodes.

    The draws of a node's posterior are averaged before anything is multiplied along a path: nodes are independent.

    Parameters
    ----------
    grams : Grams
        The kernel, and the features that posteriors refer to.
    posteriors : sequence of NodePosterior
    used : int64 tensor (n,)
        Rows of the features that predictions look at, sorted.
    parts : Parts
    known : Sums, optional
        The weights of all nodes, where another layer of the same posteriors has them in `sums`.
    """

    order: Tensor | None
    nodes: Tensor | None

    def __init__(
        self,
        grams: Grams,
        posteriors: Sequence[NodePosterior],
        used: Tensor,
        parts: Parts,
        known: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.frozen, self.wide = parts.frozen, True
        draws = sorted({len(p.weights) for p in posteriors})
        self.blocks: Any = nn.ModuleList([Block(posteriors, count) for count in draws])
        nodes = torch.cat([used.new_zeros(0), *(block.nodes for block in self.blocks)])
        in_order = torch.equal(nodes, torch.arange(len(nodes), device=nodes.device))
        self.register_buffer("nodes", None if in_order else nodes)
        self.register_buffer("order", None if in_order else nodes.argsort())
        self.means = _latent_means(grams, posteriors, used, self.blocks, parts, known)

    @property
    def kernel(self) -> Stationary | None:
        """What gives k(X[used], x⋆), if all nodes share it and its formula is known."""
        return self.means.kernel if isinstance(self.means, SharedMeans) else None

    @property
    def sums(self) -> nn.Module | None:
        """The weights of all nodes, if they share a kernel."""
        return self.means.sums if isinstance(self.means, SharedMeans) else None

    def latents(self, rows: Rows) -> list[Tensor]:
        """E[g⋆] (S, V, T) of each block of nodes with S draws."""
        if not self.blocks:
            return []
        means = self.means(rows) if self.frozen else finite(self.means(rows))
        parts = means.split([block.draws * block.count for block in self.blocks])
        return [part.unflatten(0, (b.draws, b.count)) for part, b in zip(parts, self.blocks, strict=True)]

    def single_draws(self, rows: Rows) -> Tensor:
        """E[g⋆] (nodes, T) of nodes with one draw each."""
        return self._in_order([part[0] for part in self.latents(rows)], rows)

    def forward(
        self, rows: Rows, prior: Tensor | None = None, variances: Sequence[Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """log p(left) and log p(right), (nodes, T) each.

        Parameters
        ----------
        rows : Rows
        prior : tensor (nodes, T), optional
            μ(x⋆).
        variances : sequence of tensors (S or 1, V, T), optional
            Of each posterior: the logistic function is integrated. None takes it at the mean.
        """
        latents = self.latents(rows)
        if prior is not None and latents:
            prior = prior if self.nodes is None else prior.index_select(0, self.nodes)
            means = prior.split([block.count for block in self.blocks])
            latents = [f + mu for f, mu in zip(latents, means, strict=True)]
        left, right = [], []
        for f, block in zip(latents, self.blocks, strict=True):
            if variances is None:
                sides = log_sigmoids(f)
            elif self.frozen:
                sides = log_sigmoid_expectation_blind(f, block.gathered(variances), self.wide)
            else:
                # paper (11)
                sides = log_sigmoid_expectation(f, block.gathered(variances))
            left.append(log_mean_exp(sides[0]))
            right.append(log_mean_exp(sides[1]))
        return self._in_order(left, rows), self._in_order(right, rows)

    def _in_order(self, blocks: list[Tensor], rows: Rows) -> Tensor:
        if len(blocks) == 1 and self.order is None:
            return blocks[0]
        values = torch.cat([rows.x.new_zeros(0, rows.x.shape[0]), *blocks])
        return values if self.order is None else values.index_select(0, self.order)


class Block(nn.Module):
    """The nodes whose posteriors have so many draws, sorted, and where they stand in those posteriors."""

    nodes: Tensor
    order: Tensor

    def __init__(self, posteriors: Sequence[NodePosterior], draws: int) -> None:
        super().__init__()
        self.draws = draws
        self.members = [i for i, p in enumerate(posteriors) if len(p.weights) == draws]
        nodes = torch.cat([posteriors[i].nodes for i in self.members])
        for name, values in zip(("nodes", "order"), nodes.sort(), strict=True):
            self.register_buffer(name, values)
        self.count = len(nodes)

    def gathered(self, parts: Sequence[Tensor]) -> Tensor:
        """(S, V, …) of all nodes from (S or 1, V, …) of each posterior."""
        values = [parts[i] for i in self.members]
        alike = len({len(value) for value in values}) == 1
        joined = torch.cat(values if alike else [v.expand(self.draws, *v.shape[1:]) for v in values], 1)
        return joined.index_select(1, self.order)


# ----------------------------------------------------------------------------------------------------- latent means


def _latent_means(
    grams: Grams,
    posteriors: Sequence[NodePosterior],
    used: Tensor,
    blocks: Sequence[Block],
    parts: Parts,
    sums: nn.Module | None,
) -> nn.Module:
    """E[g⋆] of every draw of every node, (columns, T): block after block, draw after draw."""
    known = Stationary.takes(grams.kernel)
    if grams.features is not None:
        return LinearMeans(grams, posteriors, blocks)
    if parts.frozen and not known:
        raise NotFrozenError(
            f"the kernel {type(grams.kernel).__name__} cannot be frozen: only “linear”, “rbf” and “matern52” with one "
            "length-scale can, whatever their hyper-parameters."
        )
    if grams.per_node:
        return NodeMeans(grams, posteriors, blocks, parts) if known else CodeMeans(grams, posteriors, blocks)
    if sums is None:
        sums = _weight_sums(posteriors, used, blocks, parts, grams.X[:, 0])
    return SharedMeans(grams, used, parts, sums)


def _weight_sums(
    posteriors: Sequence[NodePosterior], used: Tensor, blocks: Sequence[Block], parts: Parts, like: Tensor
) -> nn.Module:
    """The weights of all draws of all nodes, as sums over the points in use."""
    sums, points, weights, start = [], [], [], 0
    for block in blocks:
        place = torch.empty_like(block.order)
        place[block.order] = torch.arange(block.count, device=place.device)
        places = place.split([len(posteriors[i].nodes) for i in block.members])
        for i, where in zip(block.members, places, strict=True):
            p = posteriors[i]
            draw = torch.arange(block.draws, device=where.device)[:, None, None]
            column = start + draw * block.count + where[None, :, None]
            some = p.weights.bool()  # not the padding
            sums.append(column.expand_as(p.weights)[some])
            points.append(torch.searchsorted(used, p.rows).expand_as(p.weights)[some])
            weights.append(p.weights[some])
        start += block.draws * block.count
    none = used.new_zeros(0)
    shape = (start, len(used))
    return parts.sums(torch.cat([none, *sums]), torch.cat([none, *points]), torch.cat([like[:0], *weights]), shape)


class LinearMeans(nn.Module):
    """A linear kernel: φ(x⋆)ᵀ t, with t = Φᵀ α where a posterior has weights of points."""

    factor: Tensor
    weights: Tensor

    def __init__(self, grams: Grams, posteriors: Sequence[NodePosterior], blocks: Sequence[Block]) -> None:
        super().__init__()
        phi = grams.features
        assert phi is not None
        factors = linear_features(grams.kernel, torch.ones_like(grams.X[:1]))
        assert factors is not None
        (factor,) = factors
        weights = [
            p.weights if isinstance(p, LinearPosterior) else torch.einsum("svn,vnd->svd", p.weights, phi[p.rows])
            for p in posteriors
        ]
        stacked = [block.gathered(weights).flatten(0, 1) for block in blocks]
        self.register_buffer("factor", factor.detach())
        self.register_buffer("weights", torch.cat([phi[:0].detach(), *stacked]))

    def forward(self, rows: Rows) -> Tensor:
        return self.weights @ (rows.x.to(self.factor.dtype) * self.factor).mT


class SharedMeans(nn.Module):
    """A kernel that all nodes share: its values at the points in use, summed up with the weights of each node."""

    def __init__(self, grams: Grams, used: Tensor, parts: Parts, sums: nn.Module) -> None:
        super().__init__()
        X = grams.X if len(used) == len(grams.X) else grams.X[used]
        self.kernel = Stationary(grams.kernel, X, parts) if Stationary.takes(grams.kernel) else None
        self._code = None if self.kernel is not None else (grams, used)
        self.sums = sums

    def forward(self, rows: Rows) -> Tensor:
        if self.kernel is not None:
            return self.sums(rows.of(self.kernel))
        assert self._code is not None
        grams, used = self._code
        return self.sums(grams.cross(rows.x, used).mT.contiguous())


class NodeMeans(nn.Module):
    """A kernel of its own for every node, of known formula."""

    def __init__(
        self, grams: Grams, posteriors: Sequence[NodePosterior], blocks: Sequence[Block], parts: Parts
    ) -> None:
        super().__init__()
        self._blocks = tuple(blocks)  # registered where they are owned
        self.kernel_of_nodes = Stationary(grams.kernel, grams.X, parts)
        for i, p in enumerate(posteriors):
            for name, tensor in (("nodes", p.nodes), ("rows", p.rows), ("weights", p.weights)):
                self.register_buffer(f"{name}_{i}", tensor)
        self.count = len(posteriors)

    def forward(self, rows: Rows) -> Tensor:
        half = self.kernel_of_nodes.half_distances(rows)
        means = []
        for i in range(self.count):
            nodes, points, weights = (self.get_buffer(f"{name}_{i}") for name in ("nodes", "rows", "weights"))
            k = self.kernel_of_nodes.at_nodes(half, nodes, points)
            means.append(torch.einsum("svn,vnt->svt", weights, k))
        return torch.cat([block.gathered(means).flatten(0, 1) for block in self._blocks])


class CodeMeans(nn.Module):
    """A kernel of its own for every node, of a formula that only its code knows."""

    def __init__(self, grams: Grams, posteriors: Sequence[NodePosterior], blocks: Sequence[Block]) -> None:
        super().__init__()
        self._parts: Any = (grams, posteriors, blocks)

    def forward(self, rows: Rows) -> Tensor:
        grams, posteriors, blocks = self._parts
        means = []
        for p in posteriors:
            x = rows.x.expand(len(p.nodes), *rows.x.shape)
            k = gram(kernel_at(grams.kernel, p.nodes), grams.X[p.rows], x)
            means.append(torch.einsum("svn,vnt->svt", p.weights, k))
        return torch.cat([block.gathered(means).flatten(0, 1) for block in blocks])


class Stationary(nn.Module):
    """s · RBF or s · Matérn 5/2, k(X, x⋆) (n, T), from inner products.

    Parameters
    ----------
    kernel : Kernel
        One that `takes` accepts.
    X : tensor (n, d)
    parts : Parts
    """

    scale: Tensor
    length: Tensor
    norms: Tensor

    def __init__(self, kernel: Any, X: Tensor, parts: Parts) -> None:
        super().__init__()
        self.points: Chosen = parts.products(X)
        self.matern = type(kernel.base_kernel) is MaternKernel
        centred = (some if parts.centre is None else some - parts.centre for some in X.split(BLOCK_ROWS))
        norms = [some.square().sum(1, keepdim=True) for some in centred]
        self.register_buffer("norms", 0.5 * torch.cat([X[:0, :1], *norms]))
        self.register_buffer("scale", kernel.outputscale.detach().reshape(batch_shape(kernel)))
        self.register_buffer("length", kernel.base_kernel.lengthscale.detach().reshape(batch_shape(kernel)))

    @staticmethod
    def takes(kernel: Kernel) -> bool:
        """Whether a kernel has this formula with one length-scale, or one for every node."""
        if type(kernel) is not ScaleKernel or len(batch_shape(kernel)) > 1 or kernel.active_dims is not None:
            return False
        base, sets = kernel.base_kernel, batch_shape(kernel).numel()
        known = type(base) is RBFKernel or (type(base) is MaternKernel and base.nu == 2.5)
        return known and kernel.outputscale.numel() == sets and base.lengthscale.numel() == sets

    def forward(self, rows: Rows) -> Tensor:
        return self._values(self.half_distances(rows), self.scale, self.length)

    def at_nodes(self, half: Tensor, nodes: Tensor, points: Tensor) -> Tensor:
        """k (V, N, T) at V nodes that have their own, between N points each and x⋆, from `half_distances`."""
        scale, length = (values[nodes][:, None, None] for values in (self.scale, self.length))
        return self._values(half[points], scale, length)

    def among(self, places: Tensor, x: Tensor) -> Tensor:
        """k (B, n, w) between n points each, by their places (B, n), and w rows x (B, w, d)."""
        near = self.points.products.points.index_select(0, places.flatten()).view(*places.shape, x.shape[-1])
        half = (near @ x.mT).sub_(self.norms[places]).sub_(0.5 * x.square().sum(-1)[:, None]).clamp_(max=0.0)
        return self._values(half, self.scale, self.length)

    def half_distances(self, rows: Rows) -> Tensor:
        """−½ ‖X − x⋆‖² (n, T)."""
        x = self.points.products.centred(rows)
        half = rows.of(self.points) - self.norms
        return half.sub_(0.5 * x.square().sum(1)).clamp_(max=0.0)

    def _values(self, half: Tensor, scale: Tensor, length: Tensor) -> Tensor:
        if not self.matern:
            return (half / length.square()).exp_().mul_(scale)
        r = (-10.0 * half).sqrt_() / length  # √5 ‖X − x⋆‖ / ℓ
        return (1 + r + r.square() / 3).mul_((-r).exp_()).mul_(scale)
