"""A sparse variational GP-Tree on top of a network: inducing points that move, and natural gradients.

Every node sees the embeddings through the inducing points of its classes. They are kept in leaf order, so that a node's
points are a slice (with a cap, some of every class of it). Every node looks at the whole batch, with likelihood weight
b = 0 at the rows of other classes: shapes never depend on the labels, nothing waits for a count, and idle columns cost
little beside the factors. The mathematics is that of `gptree.maths.whitened`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import logsigmoid, normalize

from gptree.deep.heads.base import DeepHead, Problem
from gptree.deep.heads.buckets import make_buckets
from gptree.inference import PredictAt, class_inducing
from gptree.maths.cuda import Recorded, concurrently
from gptree.maths.kernels import as_kernel, gram, gram_diagonal, is_isotropic_rbf, kernel_at, node_kernels
from gptree.maths.quadrature import log_sigmoid_expectation
from gptree.maths.whitened import Likelihood, Whitened, WhitenedRows, whitened_kl
from gptree.settings import Settings, require, require_whole
from gptree.tree import ClassTree, build_tree, class_log_probabilities, label_hashes

#: Jitter on K_mm relative to its diagonal. Where a factorisation fails it grows tenfold, up to LARGEST_JITTER.
JITTER = {torch.float32: 1e-4, torch.float64: 1e-6}
LARGEST_JITTER = 1e-2
#: Rows that predictions and refits look at together.
ROWS_AT_ONCE = 4096
#: Sweeps over all rows before the first joint step.
FIRST_SWEEPS = 5


@dataclass(frozen=True)
class VariationalTree(Settings):
    """Settings of the head.

    inducing : points a class.
    cap : most points a node; near the root it takes fewer of each class. None is no limit.
    step : size of the natural-gradient steps.
    learn_points : whether the points move with the network.
    learn_kernel : whether the hyper-parameters do: "no", "shared", or "per-node" for a set of their own at every node.
    node_weights : "equal" is the bound, divided by the number of rows. "size" divides the part of each node by its own
        number of rows, as the paper does, so that small nodes count as much as large ones; the loss then grows with the
        number of classes. "balanced" is that times a number which makes it as large as with "equal", so that a learning
        rate that suits the one suits the other.
    dtype : of everything in the head. Data-centre GPUs factorise as fast in double precision as in single.
    """

    inducing: int = 40
    cap: int | None = None
    step: float = 0.05
    learn_points: bool = True
    learn_kernel: Literal["no", "shared", "per-node"] = "shared"
    node_weights: Literal["balanced", "equal", "size"] = "balanced"
    dtype: Literal["float64", "float32"] = "float64"

    def __post_init__(self) -> None:
        require_whole("inducing", self.inducing, 1)
        if self.cap is not None:
            require_whole("cap", self.cap, 2)
        require(0 < self.step <= 1, f"step must lie between 0, not included, and 1, got {self.step}.")
        for name, known in (
            ("learn_kernel", ("no", "shared", "per-node")),
            ("node_weights", ("balanced", "equal", "size")),
            ("dtype", ("float64", "float32")),
        ):
            require(getattr(self, name) in known, f"{name} must be one of {known}, got {getattr(self, name)!r}.")

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
        tree, points = ClassTree.from_json(structure), torch.zeros_like(tensors["points"])
        return self._head_at(tree, points, tensors["point_class"], problem)

    def _head_at(self, tree: ClassTree, points: Tensor, point_class: Tensor, problem: Problem) -> TreeHead:
        counts = torch.as_tensor(np.bincount(problem.y, minlength=len(problem.labels)), device=points.device)
        kernel = as_kernel(problem.kernel, getattr(torch, self.dtype), points.device)
        return TreeHead(tree, points, point_class.to(points.device), counts, kernel, self)


class TreeHead(DeepHead):
    """Embeddings (B, d) to a loss, or to class log-probabilities. Embeddings and points are scaled to unit length.

    tree : over the classes 0 … C − 1.
    points : (P, d) inducing points in any order, `point_class` (P,) their classes.
    class_counts : (C,) training rows of each class.
    kernel : with `learn_kernel="per-node"`, one for all nodes to begin with, or one that has a set for each node.
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
        per_node = settings.learn_kernel == "per-node" and not kernel.batch_shape
        kernel = node_kernels(kernel, tree.n_nodes) if per_node else copy.deepcopy(kernel)
        self.kernel = kernel.to(device=device, dtype=dtype)
        self.kernel.requires_grad_(settings.learn_kernel != "no")

        self.buckets = [b.to(device) for b in make_buckets(tree, points_of_leaf, settings.cap)]
        # the nodes' data, in the order in which the buckets hold them
        order = torch.cat([b.nodes for b in self.buckets]).cpu().numpy()
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
        self._found: _Found | None = None
        self._recorded: dict[Any, Callable[..., Any]] = {}

    def _apply(self, *arguments: Any, **options: Any) -> TreeHead:
        self._recorded.clear()  # a recording knows where its tensors were
        super()._apply(*arguments, **options)
        self.buckets = [bucket.to(self.points.device) for bucket in self.buckets]
        return self

    def train(self, mode: bool = True) -> TreeHead:
        if not mode:  # recordings hold memory on the device, and predictions do not use them
            self._recorded.clear()
            self._found = None
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_recorded": {}, "_found": None}

    # ------------------------------------------------------------------------------------------------- training

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
            value, gradients, self._found = self._recorded.get(key, self._step_parts)(x, y)
            if key in self._recorded:  # the next replay writes to the same places
                gradients = [gradient.clone() for gradient in gradients]
        return _WithGradients.apply(value, embeddings, *self._moving, *gradients)  # pyright: ignore[reportReturnType]

    def _step_parts(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor], _Found]:
        """The loss, its gradients with respect to x and the parameters that move, and what `update` needs."""
        # at copies that share the parameters' memory: autograd ties a parameter to the stream where it last saw it, and
        # a recording must not wait for another stream, as it would while an earlier loss is still alive
        moving = {name: p.detach().requires_grad_() for name, p in self.named_parameters() if p.requires_grad}
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            parts = functional_call(self, moving, (normalize(x, dim=-1),))
        with torch.no_grad():
            value, to_parts, found = self._closed_form([part.detach() for part in parts], y)
        live = [(part, g) for part, g in zip(parts, to_parts, strict=True) if part.requires_grad]
        gradients = torch.autograd.grad(
            [p for p, _ in live], [x, *moving.values()], [g for _, g in live], materialize_grads=True
        )
        return value, list(gradients), found

    @torch.no_grad()
    def update(self) -> None:
        """A natural-gradient step towards what the batch of the last `loss` says is best."""
        if self._found is None:
            raise RuntimeError("update follows a loss: call loss first.")
        found, self._found = self._found, None
        rate = self.settings.step * (found.sound & found.present).to(self.points.dtype)
        self._step(found.sums, rate)
        failed = ~found.sound
        self.skipped += failed.sum()
        self._more_jitter(failed.any())

    def _more_jitter(self, needed: Tensor) -> None:
        self.jitter.copy_(torch.where(needed, (10 * self.jitter).clamp_max(LARGEST_JITTER), self.jitter))

    @torch.no_grad()
    def refit(self, embeddings: Tensor, y: Tensor, sweeps: int = 10) -> None:
        """Coordinate ascent on all rows: points and kernel stay, q becomes the best one. The bound never falls."""
        for _ in range(sweeps):
            totals: list[_Sums] | None = None
            for rows, said in self._everything(self._factors(), embeddings, y):
                sums = self._sums(rows, said)
                totals = (
                    sums
                    if totals is None
                    else [(e + de, p + dp) for (e, p), (de, dp) in zip(totals, sums, strict=True)]
                )
            assert totals is not None
            self._step(totals, torch.ones_like(self.rows))

    def _closed_form(self, parts: Sequence[Tensor], y: Tensor) -> tuple[Tensor, list[Tensor], _Found]:
        """The loss of a batch, its gradients with respect to the kernel matrices, and what `update` needs."""
        blocks = self._blocks(parts)
        q = self._whitened([block.K_mm for block in blocks])
        kappa, inside = self._sides(y)
        count = inside.sum(-1, keepdim=True)
        scale = self.rows[:, None] / count.clamp_min(1.0)  # n / |B| of each node
        rows, said = _look(q, blocks, scale * kappa, scale * inside)
        sound = torch.cat([each.sound for each in q])
        share = -(self.weight * sound)[:, None]
        lam, slope = share * said.lam, share * said.slope
        pieces = zip(rows, q, self._cut(lam), self._cut(slope), strict=True)
        tasks = [partial(each.gradients, factors, l, s) for each, factors, l, s in pieces]
        gradients = [(*two, -0.5 * l) for two, l in zip(concurrently(tasks, y.device), self._cut(lam), strict=True)]
        found = _Found(self._sums(rows, said), sound, count[:, 0] > 0)
        return (share * said.value).sum(), self._to_parts(gradients, parts), found

    def _sums(self, rows: Sequence[WhitenedRows], said: Likelihood) -> list[_Sums]:
        kappa = said.slope + said.lam * said.mean
        tasks = [
            partial(each.sums, lam, k) for each, lam, k in zip(rows, self._cut(said.lam), self._cut(kappa), strict=True)
        ]
        return concurrently(tasks, kappa.device)

    def _step(self, sums: Sequence[_Sums], rate: Tensor) -> None:
        """η and P of every node go a share `rate` (C − 1,) of the way to Σ κ a and I + Σ λ a aᵀ."""
        for i, ((eta, precision), share) in enumerate(zip(sums, self._cut(rate), strict=True)):
            precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
            self.get_buffer(f"eta_{i}").lerp_(eta, share[:, None])
            self.get_buffer(f"precision_{i}").lerp_(precision, share[:, None, None])

    # --------------------------------------------------------------------------------------------- looking at it

    @torch.no_grad()
    def scores(self, embeddings: Tensor, predict_at: PredictAt = "quadrature") -> Tensor:
        """Class log-probabilities (T, C) of the model."""
        require(predict_at in ("mean", "quadrature"), f'predict_at must be "mean" or "quadrature", not {predict_at!r}.')
        parts = []
        for mean, variance in self._latents(embeddings):
            at_mean = predict_at == "mean"
            sides = (logsigmoid(mean), logsigmoid(-mean)) if at_mean else log_sigmoid_expectation(mean, variance)
            parts.append(class_log_probabilities(self.tree, *sides))
        return torch.cat(parts)

    def _latents(self, embeddings: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """E[f] and var(f) at all nodes of the tree, (C − 1, rows) each, for some rows at a time."""
        q, order = self._factors(), self._tree_order
        for some in self._on_sphere(embeddings).split(ROWS_AT_ONCE):
            blocks = self._blocks(self(some, with_points=False))
            rows = [each.rows(block.K_mn, block.k_nn) for each, block in zip(q, blocks, strict=True)]
            yield torch.cat([r.mean for r in rows])[order], torch.cat([r.variance for r in rows])[order]

    @torch.no_grad()
    def bound(self, embeddings: Tensor, y: Tensor) -> Tensor:
        """The bound of each node of the tree, (C − 1,), on all its rows, at the best c."""
        q = self._factors()
        value = -torch.cat([whitened_kl(each) for each in q])
        for _, said in self._everything(q, embeddings, y):
            value += said.value.sum(-1)
        return value[self._tree_order]

    @torch.no_grad()
    def kl(self) -> Tensor:
        """KL(q ‖ p), weighted over the nodes as in the loss: the weighted bound is −loss − kl."""
        return (self.weight * torch.cat([whitened_kl(each) for each in self._whitened(self._grams())])).sum()

    def report(self, loss: Tensor) -> dict[str, Tensor]:
        kl = self.kl()
        row = {"expected_log_likelihood": -loss, "kl": kl, "bound": -loss - kl}
        return row | {"jitter": self.jitter, "skipped": self.skipped}

    def structure(self) -> Any:
        return self.tree.to_json()

    def _everything(
        self, q: Sequence[Whitened], embeddings: Tensor, y: Tensor
    ) -> Iterator[tuple[list[WhitenedRows], Likelihood]]:
        """All rows, some at a time."""
        for x, labels in zip(self._on_sphere(embeddings).split(ROWS_AT_ONCE), y.split(ROWS_AT_ONCE), strict=True):
            yield _look(q, self._blocks(self(x, with_points=False)), *self._sides(labels))

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
        kappa = torch.where(at < self.mid[:, None], 0.5, -0.5).to(self.points.dtype)
        return kappa * inside, inside.to(self.points.dtype)

    def _cut(self, values: Tensor) -> tuple[Tensor, ...]:
        """What belongs to each bucket, of values over all nodes."""
        return values.split([len(bucket.nodes) for bucket in self.buckets])

    @property
    def _tree_order(self) -> Tensor:
        """Where each node of the tree stands in the order of the buckets."""
        return torch.cat([bucket.nodes for bucket in self.buckets]).argsort()

    def _grams(self) -> list[Tensor]:
        return [block.K_mm for block in self._blocks(self(self.points.detach()[:0]))]

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
        eta, precision = ([self.get_buffer(f"{name}_{i}") for i in range(len(grams))] for name in ("eta", "precision"))
        return Whitened.each(grams, self.jitter, eta, precision, self._within)

    @property
    def _within(self) -> list[int | None]:
        """Of each bucket, an earlier one whose K_mm begins with its own: a large node's does with its left child's."""
        first: dict[int, int] = {}  # by the place where the points of a large node begin; larger nodes come first
        found: list[int | None] = []
        for i, bucket in enumerate(self.buckets):
            one_kernel = self.settings.learn_kernel != "per-node"
            place = first.setdefault(bucket.span.start, i) if bucket.span is not None and one_kernel else i
            found.append(place if place < i else None)
        return found

    def forward(self, x: Tensor, with_points: bool = True) -> list[Tensor]:
        """Kernel matrices that everything else is cut from: K_mm, K_mn and k_nn of all points, or of every bucket."""
        z = normalize(self.points, dim=-1)
        if self.settings.learn_kernel != "per-node":
            K_mm = gram(self.kernel, z) if with_points else z.new_zeros(0)
            return [K_mm, gram(self.kernel, z, x), gram_diagonal(self.kernel, x)]
        parts = []
        for bucket in self.buckets:
            kernel, own = kernel_at(self.kernel, bucket.nodes), z[bucket.points]
            others = x.expand(len(own), *x.shape)
            parts += [gram(kernel, own) if with_points else z.new_zeros(0)]
            parts += [gram(kernel, own, others), gram_diagonal(kernel, others)]
        return parts

    def _blocks(self, parts: Sequence[Tensor]) -> list[_Block]:
        """The kernel matrices of each bucket; padding is independent of everything, with variance 1."""
        if self.settings.learn_kernel != "per-node":
            K_mm, K_mn, k_nn = parts
            return [_Block(b.square(K_mm), b.rows(K_mn), k_nn.expand(len(b.nodes), -1)) for b in self.buckets]
        triples = zip(self.buckets, parts[::3], parts[1::3], parts[2::3], strict=True)
        return [_Block(b.isolated(K_mm), b.masked(K_mn), k_nn) for b, K_mm, K_mn, k_nn in triples]

    def _to_parts(self, gradients: Sequence[tuple[Tensor, Tensor, Tensor]], parts: Sequence[Tensor]) -> list[Tensor]:
        """The transpose of `_blocks`: gradients of the buckets' matrices to gradients of the parts."""
        if self.settings.learn_kernel == "per-node":
            return [part for triple in gradients for part in triple]
        to_K_mm, to_K_mn, to_k_nn = (torch.zeros_like(part) for part in parts)
        for bucket, (square, rows, diagonal) in zip(self.buckets, gradients, strict=True):
            bucket.add_square(to_K_mm, square)
            bucket.add_rows(to_K_mn, rows)
            to_k_nn += diagonal.sum(0)
        return [to_K_mm, to_K_mn, to_k_nn]


# ------------------------------------------------------------------------------------------------ small parts

_Sums = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class _Found:
    """What a batch said, kept until the natural step."""

    sums: list[_Sums]
    sound: Tensor
    present: Tensor


@dataclass(frozen=True)
class _Block:
    """Kernel matrices of the V nodes of a bucket: (V, M, M), (V, M, N), (V, N)."""

    K_mm: Tensor
    K_mn: Tensor
    k_nn: Tensor


def _node_weights(rows: Tensor, total: float, kind: str) -> Tensor:
    """Weights of nodes with so many rows, of `total` in all."""
    if kind == "equal":
        return torch.full_like(rows, 1.0 / total)
    return 1.0 / rows if kind == "size" else rows.mean() / total / rows


def _look(
    q: Sequence[Whitened], blocks: Sequence[_Block], kappa: Tensor, b: Tensor
) -> tuple[list[WhitenedRows], Likelihood]:
    """The rows of a batch as every bucket sees them, and what their labels say at all nodes (C − 1, B)."""
    tasks = [partial(each.rows, block.K_mn, block.k_nn) for each, block in zip(q, blocks, strict=True)]
    rows = concurrently(tasks, kappa.device)
    return rows, Likelihood.of(torch.cat([r.mean for r in rows]), torch.cat([r.variance for r in rows]), kappa, b)


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
