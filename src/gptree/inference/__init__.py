"""Inference at the nodes: Gibbs sampling, coordinate ascent, sparse posteriors; batching and prediction."""

from gptree.inference.coordinate_ascent import CoordinateAscent, LearnKernel
from gptree.inference.fit import Inference, NodeFits, fit_nodes, learn_kernel
from gptree.inference.gibbs import Diagnostics, Gibbs, split_r_hat
from gptree.inference.grams import Grams
from gptree.inference.large_nodes import (
    InducingPoints,
    LargeNodes,
    Representatives,
    ThroughExemplars,
    as_large_nodes,
    class_quota,
    spread_order,
)
from gptree.inference.posterior import DensePosterior, LinearPosterior, NodePosterior, SparsePosterior, select
from gptree.inference.predictive import NodePredictor, PredictAt
from gptree.inference.problems import NodeBatch, NodeProblem, make_batches
from gptree.inference.sparse_variational import SparseVariational, class_inducing

__all__ = [
    "CoordinateAscent",
    "DensePosterior",
    "Diagnostics",
    "Gibbs",
    "Grams",
    "InducingPoints",
    "Inference",
    "LargeNodes",
    "LearnKernel",
    "LinearPosterior",
    "NodeBatch",
    "NodeFits",
    "NodePosterior",
    "NodePredictor",
    "NodeProblem",
    "PredictAt",
    "Representatives",
    "SparsePosterior",
    "SparseVariational",
    "ThroughExemplars",
    "as_large_nodes",
    "class_inducing",
    "class_quota",
    "fit_nodes",
    "learn_kernel",
    "make_batches",
    "select",
    "split_r_hat",
    "spread_order",
]
