"""Mathematics: Pólya-Gamma variables, the conditional of a binary GP, quadrature, kernels, linear algebra, seeding."""

from gptree.maths.conditional import (
    FunctionSpace,
    Space,
    WeightSpace,
    collapsed_bound,
    log_augmented_marginal,
    variational_bound,
)
from gptree.maths.kernels import as_kernel, gram, gram_diagonal, linear_features, make_kernel
from gptree.maths.linalg import cholesky, covariance_root
from gptree.maths.polya_gamma import log_cosh, pg_kl, pg_mean, pg_variance, sample_pg
from gptree.maths.quadrature import log_mean_exp, log_sigmoid_expectation
from gptree.maths.seeding import kmeans_plus_plus_order
from gptree.maths.sphere import unit_length

__all__ = [
    "FunctionSpace",
    "Space",
    "WeightSpace",
    "as_kernel",
    "cholesky",
    "collapsed_bound",
    "covariance_root",
    "gram",
    "gram_diagonal",
    "kmeans_plus_plus_order",
    "linear_features",
    "log_augmented_marginal",
    "log_cosh",
    "log_mean_exp",
    "log_sigmoid_expectation",
    "make_kernel",
    "pg_kl",
    "pg_mean",
    "pg_variance",
    "sample_pg",
    "unit_length",
    "variational_bound",
]
