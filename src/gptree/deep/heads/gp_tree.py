"""`TreeHead`: a sparse variational GP-Tree on top of a network, with inducing points that move and natural gradients.

Every node sees the embeddings through the inducing points of its classes. They are kept in leaf order, so that a node's
points are a slice (with a cap, some of every class of it). Every node looks at the whole batch, with likelihood weight
b = 0 at the rows of other classes: shapes never depend on the labels, nothing waits for a count, and idle columns cost
little beside the factors. The mathematics is that of `gptree.maths.whitened`. Products keep all digits of the head's
precision: factors of nearly singular matrices need them, whatever precision the network computes in.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import logsigmoid, normalize

from gptree.deep.heads.base import DeepHead
from gptree.deep.heads.buckets import Block, Buckets, Gradients, make_buckets
from gptree.inference import PredictAt
from gptree.maths.cuda import Recorded, Started, concurrently, without_tf32
from gptree.maths.kernels import is_isotropic_rbf, node_kernels
from gptree.maths.quadrature import log_sigmoid_expectation
from gptree.maths.whitened import (
    Likelihood,
    Root,
    Whitened,
    WhitenedRows,
    gram_root_inverse,
    root_inverse,
    whitened_kl,
)
from gptree.settings import require
from gptree.tree import ClassTree, class_log_probabilities

if TYPE_CHECKING:
    from gptree.deep.heads.variational_tree import VariationalTree

#: Jitter on K_mm relative to its diagonal. Where a factorisation fails it grows tenfold, up to LARGEST_JITTER.
JITTER = {torch.float32: 1e-4, torch.float64: 1e-6}
LARGEST_JITTER = 1e-2
#: Rows that predictions and refits look at together.
ROWS_AT_ONCE = 4096


class TreeHead(DeepHead):
    """Embeddings (B, d) to a loss, or to class log-probabilities. Embeddings and points are scaled to unit length.

    Parameters
    ----------
    tree : ClassTree
        Over the classes 0 … C − 1.
    points : Tensor (P, d)
        Inducing points in any order.
    point_class : Tensor (P,)
        Their classes.
    class_counts : Tensor (C,)
        Training rows of each class.
    kernel : gpytorch.kernels.Kernel
        With `learn_kernel="per-node"`, one for all nodes to begin with, or one that has a set for each node.
    settings : VariationalTree
    """

    position: Tensor
    point_class: Tensor
    lo: Tensor
    mid: Tensor
    hi: Tensor
    rows: Tensor
    weight: Tensor
    jitter: Tensor
    skipped: Tensor

    def __init__(
        self,
        tree: ClassTree,
        points: Tensor,
        point_class: Tensor,
        class_counts: Tensor,
        kernel: Kernel,
        settings: VariationalTree,
    ) -> None:
        dtype, device = getattr(torch, settings.dtype), points.device
        super().__init__()
        points_of_leaf = torch.bincount(point_class, minlength=tree.n_classes).cpu().numpy()[tree.order]
        require(points_of_leaf.min() > 0, "every class needs an inducing point.")
        require(int(class_counts.min()) > 0, "every class needs a training row.")
        self.tree, self.settings = tree, settings
        position = torch.as_tensor(tree.position.copy(), device=device)
        leaf_order = position[point_class].argsort(stable=True)
        self.points = nn.Parameter(points[leaf_order].to(dtype), requires_grad=settings.learn_points)
        per_node = settings.learn_kernel == "per-node"
        kernel = node_kernels(kernel, tree.n_nodes) if per_node and not kernel.batch_shape else copy.deepcopy(kernel)
        self.kernel = kernel.to(device=device, dtype=dtype)
        self.kernel.requires_grad_(settings.learn_kernel != "no")

        self.buckets = Buckets(make_buckets(tree, points_of_leaf, settings.cap), per_node).to(device)
        # the nodes' data, in the order in which the buckets hold them
        order = self.buckets.nodes.cpu().numpy()
        ends = np.concatenate([[0], np.cumsum(class_counts.cpu().numpy()[tree.order])])
        rows = torch.as_tensor(ends[tree.hi[order]] - ends[tree.lo[order]]).to(dtype)
        buffers: dict[str, Any] = {
            "position": position,
            "point_class": point_class[leaf_order],
            "lo": tree.lo[order],
            "mid": tree.mid[order],
            "hi": tree.hi[order],
            "rows": rows,
            "weight": _node_weights(rows, float(ends[-1]), settings.node_weights),
            "jitter": torch.tensor(JITTER[dtype], dtype=dtype),
            "skipped": torch.zeros((), dtype=torch.long),
        }
        for i, bucket in enumerate(self.buckets):
            nodes, size = bucket.points.shape
            buffers[f"eta_{i}"] = torch.zeros(nodes, size, dtype=dtype)
            buffers[f"precision_{i}"] = torch.eye(size, dtype=dtype).repeat(nodes, 1, 1)
        for name, value in buffers.items():
            self.register_buffer(name, torch.as_tensor(value, device=device))
        self._last_batch: _LastBatch | None = None
        self._recorded: dict[Any, Callable[..., Any]] = {}

    def _apply(self, *arguments: Any, **options: Any) -> TreeHead:
        self._recorded.clear()  # a recording knows where its tensors were
        super()._apply(*arguments, **options)
        self.buckets = self.buckets.to(self.points.device)
        return self

    def train(self, mode: bool = True) -> TreeHead:
        if not mode:  # recordings hold memory on the device, and predictions do not use them
            self._recorded.clear()
            self._last_batch = None
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_recorded": {}, "_last_batch": None}

    # ------------------------------------------------------------------------------------------------- training

    @without_tf32()
    def loss(self, embeddings: Tensor, y: Tensor) -> Tensor:
        """Minus the weighted expected log-likelihood of a batch, each node's rows scaled up to all it has.

        Its gradient is that of minus the weighted bound at fixed η and P, of which KL(q ‖ p) is no part. A node without
        a row in the batch, or whose matrices do not factorise, adds nothing; given that it has one, its part is
        unbiased.
        """
        with torch.autocast(embeddings.device.type, enabled=False):
            x = embeddings.detach().to(self.points.dtype)
            key = (x.shape, *(parameter.requires_grad for parameter in self.parameters()))
            # other kernels of GPyTorch look at the values on their way, which a recording cannot
            if x.device.type == "cuda" and key not in self._recorded and is_isotropic_rbf(self.kernel):
                self._recorded[key] = Recorded(self._step_parts, x, y)
            value, gradients, self._last_batch = self._recorded.get(key, self._step_parts)(x, y)
            if key in self._recorded:  # the next replay writes to the same places
                gradients = [gradient.clone() for gradient in gradients]
        return _WithGradients.apply(value, embeddings, *self._moving, *gradients)  # pyright: ignore[reportReturnType]

    def _step_parts(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor], _LastBatch]:
        """The loss, its gradients with respect to x and the parameters that move, and the sums for `update`."""
        # at copies that share the parameters' memory: autograd ties a parameter to the stream where it last saw it, and
        # a recording must not wait for another stream, as it would while an earlier loss is still alive
        moving = {name: p.detach().requires_grad_() for name, p in self.named_parameters() if p.requires_grad}
        with torch.no_grad():  # they do not depend on the kernel matrices, and take as long
            factors = [Started(partial(root_inverse, P), x.device, 2 * i + 1) for i, P in enumerate(self._precisions)]
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            parts = functional_call(self, moving, (normalize(x, dim=-1),))
        with torch.no_grad():
            value, to_parts, batch = self._closed_form([part.detach() for part in parts], y, factors)
        live = [(part, g) for part, g in zip(parts, to_parts, strict=True) if part.requires_grad]
        gradients = torch.autograd.grad(
            [p for p, _ in live], [x, *moving.values()], [g for _, g in live], materialize_grads=True
        )
        return value, list(gradients), batch

    @torch.no_grad()
    def update(self) -> None:
        """A natural-gradient step towards what the batch of the last `loss` says is best."""
        if self._last_batch is None:
            raise RuntimeError("update follows a loss: call loss first.")
        batch, self._last_batch = self._last_batch, None
        rate = self.settings.step * (batch.sound & batch.present).to(self.points.dtype)
        self._step(batch.sums, rate)
        failed = ~batch.sound
        self.skipped += failed.sum()
        self._more_jitter(failed.any())

    def _more_jitter(self, needed: Tensor) -> None:
        self.jitter.copy_(torch.where(needed, (10 * self.jitter).clamp_max(LARGEST_JITTER), self.jitter))

    @torch.no_grad()
    @without_tf32()
    def refit(self, embeddings: Tensor, y: Tensor, sweeps: int = 10) -> None:
        """Coordinate ascent on all rows: points and kernel stay, q becomes the best one. The bound never falls."""
        for _ in range(sweeps):
            totals: list[_Sums] | None = None
            for seen in self._everything(self._factors(), embeddings, y):
                sums = concurrently([partial(_sums, *each) for each in seen], y.device)
                totals = (
                    sums
                    if totals is None
                    else [(e + de, p + dp) for (e, p), (de, dp) in zip(totals, sums, strict=True)]
                )
            assert totals is not None
            self._step(totals, torch.ones_like(self.rows))

    def _closed_form(
        self, parts: Sequence[Tensor], y: Tensor, factors: Sequence[Started[Root]]
    ) -> tuple[Tensor, list[Tensor], _LastBatch]:
        """The loss of a batch, its gradients with respect to the kernel matrices, and the sums for `update`."""
        kappa, inside = self._sides(y)
        count = inside.sum(-1, keepdim=True)
        scale = self.rows[:, None] / count.clamp_min(1.0)  # n / |B| of each node
        pieces = zip(factors, *map(self.buckets.cut, (scale * kappa, scale * inside, self.weight)), strict=True)
        # a GPU has room for all small nodes while it factorises the largest
        steps = [
            Started(partial(self._bucket_step, i, parts, *piece), y.device, 2 * i) for i, piece in enumerate(pieces)
        ]
        to_parts = self.buckets.to_parts([lambda each=each: each.result().gradients for each in steps], parts)
        done = [each.result() for each in steps]
        sound = torch.cat([each.sound for each in done])
        batch = _LastBatch([each.sums for each in done], sound, count[:, 0] > 0)
        # paper (15)
        return torch.stack([each.loss for each in done]).sum(), to_parts, batch

    def _bucket_step(
        self, i: int, parts: Sequence[Tensor], factor: Started[Root], kappa: Tensor, b: Tensor, weight: Tensor
    ) -> _BucketStep:
        block = self.buckets.block(i, parts)
        root = gram_root_inverse(block.K_mm, self.jitter)
        q = Whitened.of(root, factor.result(), self.get_buffer(f"eta_{i}"), self.jitter)
        rows, likelihood = _look(q, block, kappa, b)
        share = -(weight * q.sound)[:, None]
        lam = share * likelihood.lam
        gradients = (*rows.gradients(q, lam, share * likelihood.slope), -0.5 * lam)
        return _BucketStep((share * likelihood.value).sum(), gradients, _sums(rows, likelihood), q.sound)

    def _step(self, sums: Sequence[_Sums], rate: Tensor) -> None:
        """η and P of every node go a share `rate` (C − 1,) of the way to Σ κ a and I + Σ λ a aᵀ."""
        for i, ((eta, precision), share) in enumerate(zip(sums, self.buckets.cut(rate), strict=True)):
            precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
            # paper (17)
            self.get_buffer(f"eta_{i}").lerp_(eta, share[:, None])
            self.get_buffer(f"precision_{i}").lerp_(precision, share[:, None, None])

    # ----------------------------------------------------------------------------------------- prediction, bound

    @torch.no_grad()
    @without_tf32()
    def scores(self, embeddings: Tensor, predict_at: PredictAt = "quadrature") -> Tensor:
        """Class log-probabilities (T, C) of the model."""
        require(predict_at in ("mean", "quadrature"), f'predict_at must be "mean" or "quadrature", not {predict_at!r}.')
        parts = []
        for mean, variance in self._latents(embeddings):
            at_mean = predict_at == "mean"
            sides = (logsigmoid(mean), logsigmoid(-mean)) if at_mean else log_sigmoid_expectation(mean, variance)
            # paper section 3.3
            parts.append(class_log_probabilities(self.tree, *sides))
        return torch.cat(parts)

    def _latents(self, embeddings: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """E[f] and var(f) at all nodes of the tree, (C − 1, rows) each, for some rows at a time."""
        q, order = self._factors(), self.buckets.tree_order
        for x in self._on_sphere(embeddings).split(ROWS_AT_ONCE):
            blocks = self.buckets.blocks(self(x, with_points=False))
            rows = [each.rows(block.K_mn, block.k_nn) for each, block in zip(q, blocks, strict=True)]
            yield torch.cat([r.mean for r in rows])[order], torch.cat([r.variance for r in rows])[order]

    @torch.no_grad()
    @without_tf32()
    def bound(self, embeddings: Tensor, y: Tensor) -> Tensor:
        """The bound of each node of the tree, (C − 1,), on all its rows, at the best c."""
        q = self._factors()
        # paper (13)
        value = -torch.cat([whitened_kl(each) for each in q])
        for seen in self._everything(q, embeddings, y):
            value += torch.cat([likelihood.value.sum(-1) for _, likelihood in seen])
        return value[self.buckets.tree_order]

    @torch.no_grad()
    @without_tf32()
    def kl(self) -> Tensor:
        """KL(q ‖ p), weighted over the nodes as in the loss: the weighted bound is −loss − kl."""
        return (self.weight * torch.cat([whitened_kl(each) for each in self._whitened(self._grams())])).sum()

    def report(self, loss: Tensor) -> dict[str, Tensor]:
        kl = self.kl()
        row = {"expected_log_likelihood": -loss, "kl": kl, "bound": -loss - kl}
        return row | {"jitter": self.jitter, "skipped": self.skipped}

    def structure(self) -> Any:
        return self.tree.to_json()

    def _everything(self, q: Sequence[Whitened], embeddings: Tensor, y: Tensor) -> Iterator[list[_Seen]]:
        """All rows as every bucket sees them, some at a time."""
        for x, labels in zip(self._on_sphere(embeddings).split(ROWS_AT_ONCE), y.split(ROWS_AT_ONCE), strict=True):
            blocks = self.buckets.blocks(self(x, with_points=False))
            pieces = zip(q, blocks, *map(self.buckets.cut, self._sides(labels)), strict=True)
            yield concurrently([partial(_look, *piece) for piece in pieces], y.device)

    # ------------------------------------------------------------------------------------------------ the pieces

    @property
    def _moving(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def _on_sphere(self, embeddings: Tensor) -> Tensor:
        return normalize(embeddings.to(self.points.dtype), dim=-1)

    def _sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """κ and b (C − 1, B), nodes in the order of the buckets: ½ to the left, −½ to the right, 0 elsewhere."""
        at = self.position[y]
        inside = (at >= self.lo[:, None]) & (at < self.hi[:, None])
        # paper (3)
        kappa = torch.where(at < self.mid[:, None], 0.5, -0.5).to(self.points.dtype)
        return kappa * inside, inside.to(self.points.dtype)

    def _grams(self) -> list[Tensor]:
        return [block.K_mm for block in self.buckets.blocks(self(self.points.detach()[:0]))]

    def _factors(self) -> list[Whitened]:
        """Of all nodes, at the jitter that it takes."""
        before = self.jitter.clone()
        while True:
            q = self._whitened(self._grams())
            failed = int(sum((~each.sound).sum() for each in q))
            if failed == 0:
                if self.jitter > before:
                    warnings.warn(
                        f"matrices of nodes did not factorise: the jitter on K_mm is now {float(self.jitter):.0e} of "
                        "its diagonal.",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                return q
            if self.jitter >= LARGEST_JITTER:
                raise FloatingPointError(
                    f"the matrices of {failed} nodes do not factorise at the largest jitter, {LARGEST_JITTER}: are the "
                    "points finite? Try fewer of them, a shorter length-scale, or double precision."
                )
            self._more_jitter(torch.ones_like(self.jitter, dtype=torch.bool))

    def _whitened(self, grams: Sequence[Tensor]) -> list[Whitened]:
        eta = [self.get_buffer(f"eta_{i}") for i in range(len(grams))]
        return Whitened.each(grams, self.jitter, eta, self._precisions)

    @property
    def _precisions(self) -> list[Tensor]:
        return [self.get_buffer(f"precision_{i}") for i in range(len(self.buckets))]

    def forward(self, x: Tensor, with_points: bool = True) -> list[Tensor]:
        """Kernel matrices that everything else is cut from: K_mm, K_mn and k_nn of all points, or of every bucket."""
        z = normalize(self.points, dim=-1)
        return self.buckets.kernel_matrices(self.kernel, z, x, with_points)


# ------------------------------------------------------------------------------------------------ small parts

_Sums = tuple[Tensor, Tensor]
_Seen = tuple[WhitenedRows, Likelihood]


@dataclass(frozen=True)
class _BucketStep:
    """What the nodes of a bucket have to say to a batch."""

    loss: Tensor
    gradients: Gradients
    sums: _Sums
    sound: Tensor


@dataclass(frozen=True)
class _LastBatch:
    """The sums of the batch of the last `loss`, kept until the natural step."""

    sums: list[_Sums]
    sound: Tensor
    present: Tensor


def _node_weights(rows: Tensor, total: float, kind: str) -> Tensor:
    """Weights of nodes with so many rows, of `total` in all."""
    if kind == "equal":
        return torch.full_like(rows, 1.0 / total)
    # paper section C.2
    return 1.0 / rows if kind == "size" else rows.mean() / total / rows


def _look(q: Whitened, block: Block, kappa: Tensor, b: Tensor) -> _Seen:
    """The rows of a batch as a bucket sees them, and the likelihood of their labels at its nodes (V, B)."""
    rows = q.rows(block.K_mn, block.k_nn)
    return rows, Likelihood.of(rows.mean, rows.variance, kappa, b)


def _sums(rows: WhitenedRows, likelihood: Likelihood) -> _Sums:
    return rows.sums(likelihood.lam, likelihood.slope + likelihood.lam * likelihood.mean)


class _WithGradients(torch.autograd.Function):
    """A number whose gradients are known beforehand."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *inputs_and_gradients: Tensor) -> Tensor:
        ctx.gradients = inputs_and_gradients[len(inputs_and_gradients) // 2 :]
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        (upstream,) = outputs
        return (None, *(upstream * each for each in ctx.gradients), *(None for _ in ctx.gradients))
