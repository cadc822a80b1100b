"""The parameter `prior_mean` as an expert."""

from __future__ import annotations

from typing import Any

from gptree.experts import Expert, PriorScores, SklearnExpert


def as_expert(prior_mean: Any) -> Expert | None:
    """None is a zero prior mean; a name such as "experts" its expert; a classifier or a function becomes an expert."""
    if prior_mean is None:
        return None
    if isinstance(prior_mean, Expert) or (isinstance(prior_mean, str) and prior_mean in Expert.names()):
        return Expert.of(prior_mean)
    if not isinstance(prior_mean, type):
        if hasattr(prior_mean, "fit") and hasattr(prior_mean, "predict"):
            return SklearnExpert(prior_mean)
        if callable(prior_mean):
            return PriorScores(prior_mean)
    raise TypeError(
        f"prior_mean must be None, an expert, the name of one ({', '.join(Expert.names())}), a classifier or a "
        f"function, not {prior_mean!r}."
    )
