"""One number that sets how sure predictions are, chosen on rows that were not trained on."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

#: Between these, and to this accuracy in log sharpness, is searched.
LEAST, MOST, ACCURACY = 0.05, 20.0, 1e-3


def best_sharpness(log_probabilities: Callable[[float], Tensor], y: Tensor) -> float:
    """The sharpness with the least −log p of the true classes y, where `log_probabilities(sharpness)` gives (n, C).

    Golden-section search: with temperatures of a softmax that is a convex problem, with a tree of nodes nearly so.
    """
    shrink = (math.sqrt(5) - 1) / 2

    def cost(log_sharpness: float) -> float:
        return float(-log_probabilities(math.exp(log_sharpness)).gather(1, y[:, None]).mean())

    low, high = math.log(LEAST), math.log(MOST)
    inner = [high - shrink * (high - low), low + shrink * (high - low)]
    costs = [cost(inner[0]), cost(inner[1])]
    while high - low > ACCURACY:
        if costs[0] < costs[1]:
            high, inner, costs = inner[1], [0.0, inner[0]], [0.0, costs[0]]
            inner[0] = high - shrink * (high - low)
            costs[0] = cost(inner[0])
        else:
            low, inner, costs = inner[0], [inner[1], 0.0], [costs[1], 0.0]
            inner[1] = low + shrink * (high - low)
            costs[1] = cost(inner[1])
    return math.exp((low + high) / 2)


def best_softmax_sharpness(scores: Tensor, y: Tensor) -> float:
    """The same where probabilities are the softmax of sharpness × scores (n, C)."""
    return best_sharpness(lambda sharpness: (sharpness * scores).log_softmax(-1), y)
