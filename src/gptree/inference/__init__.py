"""Inference at the nodes: Gibbs sampling, coordinate ascent, sparse posteriors; batching and prediction.

A new file in this folder is found by the name that its `Inference` gives itself.
"""

from gptree.inference.base import Diagnostics, Inference
from gptree.inference.coordinate_ascent import CoordinateAscent
from gptree.inference.fit import NodeFits, fit_nodes
from gptree.inference.gibbs import Gibbs, split_r_hat
from gptree.inference.grams import Grams
from gptree.inference.learn_kernel import LearnKernel, learn_kernel
from gptree.inference.limits import (
    FixedInducingPoints,
    InducingPoints,
    LargeNodes,
    SubsetOfData,
    as_large_nodes,
    class_inducing,
    class_quota,
)
from gptree.inference.nodes import NodeBatch, NodeProblem, generators, make_batches
from gptree.inference.posterior import (
    DensePosterior,
    InducingPosterior,
    LinearPosterior,
    NodePosterior,
    PooledDensePosterior,
    PooledLinearPosterior,
    SitesPosterior,
    SparsePosterior,
    make_posterior,
    on_rows,
    select,
)
from gptree.inference.predict import NodePredictor, PredictAt
from gptree.inference.sparse_variational import SparseVariational
from gptree.settings import import_modules

import_modules(__name__, __path__)

__all__ = [
    "CoordinateAscent",
    "DensePosterior",
    "Diagnostics",
    "FixedInducingPoints",
    "Gibbs",
    "Grams",
    "InducingPoints",
    "InducingPosterior",
    "Inference",
    "LargeNodes",
    "LearnKernel",
    "LinearPosterior",
    "NodeBatch",
    "NodeFits",
    "NodePosterior",
    "NodePredictor",
    "NodeProblem",
    "PooledDensePosterior",
    "PooledLinearPosterior",
    "PredictAt",
    "SitesPosterior",
    "SparsePosterior",
    "SparseVariational",
    "SubsetOfData",
    "as_large_nodes",
    "class_inducing",
    "class_quota",
    "fit_nodes",
    "generators",
    "learn_kernel",
    "make_batches",
    "make_posterior",
    "on_rows",
    "select",
    "split_r_hat",
]
