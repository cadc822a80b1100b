"""Gaussian processes by Gibbs sampling with other likelihoods than a tree's: one a file, each a `GibbsRival`."""

from gptree.settings import import_modules

import_modules(__name__, __path__)
