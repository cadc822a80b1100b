"""Gaussian processes by Gibbs sampling with other likelihoods than a tree's: one a file, each a `GibbsRival`."""
