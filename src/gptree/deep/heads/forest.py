"""The tree of a trained head as a model that needs no head: the same posteriors, over the same inducing points."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import torch
from gpytorch.kernels import ScaleKernel
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn.functional import logsigmoid, normalize

from gptree.deep.heads.gp_tree import TreeHead
from gptree.inference import Diagnostics, Grams, NodePredictor, PredictAt, SparsePosterior
from gptree.maths.kernels import node_kernels
from gptree.maths.linalg import cholesky, covariance_root
from gptree.maths.quadrature import log_sigmoid_expectation
from gptree.model import ForestModel
from gptree.tree import class_log_probabilities

#: Factors on the latent functions among which `latent_scale` chooses.
LEAST_SCALE, MOST_SCALE = 0.05, 20.0


@torch.no_grad()
def latent_scale(head: TreeHead, embeddings: Tensor, y: Tensor, predict_at: PredictAt) -> float:
    """The factor on the latent functions of all nodes under which rows not trained on are most probable.

    It says how confident the tree is, and changes no decision of a node. Its logarithm has a standard normal prior: a
    few rows that are all right do not call for certainty.

    Parameters
    ----------
    head : TreeHead
    embeddings, y : Tensors (n, d) and (n,)
        Rows and their class numbers.
    predict_at : "mean" or "quadrature"

    Returns
    -------
    float
    """
    mean, variance = (torch.cat(parts, 1) for parts in zip(*head._latents(embeddings), strict=True))

    def loss(log_scale: float) -> float:
        f, v = math.exp(log_scale) * mean, math.exp(2 * log_scale) * variance
        sides = (logsigmoid(f), logsigmoid(-f)) if predict_at == "mean" else log_sigmoid_expectation(f, v)
        log_p = class_log_probabilities(head.tree, *sides).gather(1, y[:, None])
        return 0.5 * log_scale**2 - float(log_p.sum())

    limits = (math.log(LEAST_SCALE), math.log(MOST_SCALE))
    return math.exp(minimize_scalar(loss, bounds=limits, method="bounded").x)


@torch.no_grad()
def as_forest(
    head: TreeHead,
    placement: tuple[torch.dtype, torch.device],
    memory_budget: int,
    scale: float = 1.0,
    *,
    grows: bool = True,
) -> ForestModel:
    """The model whose features are the inducing points, of unit length and in the order of the head's.

    Parameters
    ----------
    head : TreeHead
    placement : dtype and device
        Of the model; it is computed on the device of the head, in double precision.
    memory_budget : int
        Bytes.
    scale : float
        On all latent functions, as by `latent_scale`: the kernel gets its square, and q of the whitened values stays.
    grows : bool
        Whether every node gets a kernel of its own, so that nodes fitted later may have another.

    Returns
    -------
    ForestModel
    """
    dtype, device = placement
    head = copy.deepcopy(head).double().eval().requires_grad_(False)
    kernel = head.kernel
    if grows and not kernel.batch_shape:
        kernel = node_kernels(kernel, head.tree.n_nodes)
    if scale != 1.0:
        assert isinstance(kernel, ScaleKernel)
        kernel.outputscale = kernel.outputscale * scale**2
    points = normalize(head.points, dim=-1)
    grams = Grams(kernel, points)
    posteriors = [_to(_posterior(grams, *nodes, head.jitter), dtype, device) for nodes in _nodes_by_size(head)]
    nodes = torch.arange(head.tree.n_nodes, device=device)
    features = Grams(kernel.to(device=device, dtype=dtype), points.to(device=device, dtype=dtype), memory_budget)
    return ForestModel(
        trees=(head.tree,),
        node_of=(nodes,),
        predictor=NodePredictor(features, posteriors, memory_budget),
        diagnostics=Diagnostics(nodes.cpu(), torch.zeros(len(nodes), dtype=torch.long)),
        memory_budget=memory_budget,
    )


def _nodes_by_size(head: TreeHead) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Nodes (V,) with equally many points, their points (V, M), η (V, M) and P (V, M, M); padding left out."""
    for i, bucket in enumerate(head.buckets):
        eta, precision = head.get_buffer(f"eta_{i}"), head.get_buffer(f"precision_{i}")
        sizes = torch.full_like(bucket.nodes, eta.shape[1])
        if bucket.padding is not None:  # stands at the end
            sizes -= bucket.padding.sum(-1)
        for size in sizes.unique().tolist():
            some = sizes == size
            yield bucket.nodes[some], bucket.points[some, :size], eta[some, :size], precision[some, :size, :size]


def _posterior(grams: Grams, nodes: Tensor, rows: Tensor, eta: Tensor, P: Tensor, jitter: Tensor) -> SparsePosterior:
    """q(w) = N(P⁻¹ η, P⁻¹) at nodes, whitened with L_h L_hᵀ = K_mm (and jitter), as a posterior whitened with L.

    With R = L_h⁻¹ L the head's a⋆ is R L⁻¹ k_m⋆, and mean and variance are the same with

        weights = L_h⁻ᵀ P⁻¹ η,    B⁻¹ = I − Rᵀ (I − P⁻¹) R.
    """
    K = grams.block(nodes, rows, rows)
    root, _ = covariance_root(K)
    K.diagonal(dim1=-2, dim2=-1).mul_(1.0 + jitter)
    L_h, L_P = cholesky(K), cholesky(P)
    mean = torch.cholesky_solve(eta.unsqueeze(-1), L_P)
    # paper (14)
    weights = torch.linalg.solve_triangular(L_h.mT, mean, upper=True).squeeze(-1)
    R = torch.linalg.solve_triangular(L_h, root, upper=False)
    shrunk = torch.linalg.solve_triangular(L_P, R, upper=False)
    inverse = torch.eye(rows.shape[1]).to(K) - R.mT @ R + shrunk.mT @ shrunk
    return SparsePosterior(nodes, rows, weights.unsqueeze(0), torch.cholesky_inverse(cholesky(inverse)))


def _to(posterior: SparsePosterior, dtype: torch.dtype, device: torch.device) -> SparsePosterior:
    nodes, rows = posterior.nodes.to(device), posterior.rows.to(device)
    precision, weights = (part.to(device=device, dtype=dtype) for part in (posterior.precision, posterior.weights))
    return SparsePosterior(nodes, rows, weights, precision)
