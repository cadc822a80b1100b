"""Inference at the nodes: Gibbs sampling, coordinate ascent, sparse posteriors; batching and prediction."""

from gptree.inference.coordinate_ascent import CoordinateAscent, LearnKernel
from gptree.inference.fit import Inference, NodeFits, fit_nodes, learn_kernel
from gptree.inference.gibbs import Diagnostics, Gibbs, split_r_hat
from gptree.inference.grams import Grams
from gptree.inference.limits import (
    FixedInducingPoints,
    InducingPoints,
    LargeNodes,
    SubsetOfData,
    as_large_nodes,
    class_quota,
    spread_order,
)
from gptree.inference.nodes import NodeBatch, NodeProblem, make_batches
from gptree.inference.posterior import DensePosterior, LinearPosterior, NodePosterior, SparsePosterior, select
from gptree.inference.predict import NodePredictor, PredictAt
from gptree.inference.sparse_variational import SparseVariational, class_inducing

__all__ = [
    "CoordinateAscent",
    "DensePosterior",
    "Diagnostics",
    "FixedInducingPoints",
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
    "SparsePosterior",
    "SparseVariational",
    "SubsetOfData",
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
