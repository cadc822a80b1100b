"""What the parameter `prior_mean` may be."""

from __future__ import annotations

from typing import Any

from gptree.experts import Expert, Pool, PriorScores, SklearnExpert


def as_expert(prior_mean: Any) -> Expert | None:
    """None is a zero prior mean; "experts" is the default pool; a classifier or a function becomes an expert."""
    if prior_mean is None:
        return None
    if isinstance(prior_mean, str):
        if prior_mean == "experts":
            return Pool()
    elif not isinstance(prior_mean, type):
        if hasattr(prior_mean, "fit"):
            return SklearnExpert(prior_mean) if hasattr(prior_mean, "predict") else prior_mean
        if callable(prior_mean):
            return PriorScores(prior_mean)
    raise TypeError(f'prior_mean must be "experts", None, an expert, a classifier or a function, not {prior_mean!r}.')
