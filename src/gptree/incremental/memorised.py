"""Whether the examples of the base session look as if the network behind the features knew them by heart.

A network pulls the rows that it is trained on together, class by class; classes that it has never seen stay as wide as
they are. Features of a network that saw none of the classes spread alike, old ones and new.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

#: New classes that spread so much more than those of the base are evidence. Features of networks that saw no row of a
#: data set give 0.9 to 1.2, trained ones 1.9 to 17.
FAR_WIDER = 1.6
#: And so many standard errors, by how much the classes of the base differ among themselves.
ERRORS = 3.0


def class_spreads(X: Tensor, y: Tensor, n_classes: int, weights: Tensor | None = None) -> Tensor:
    """(C,) variance of the examples of each class around their mean, summed over features; 0 for a single example.

    `weights` (n,) say how many times each example counts; less than once makes no variance larger.
    """
    weights = X.new_ones(len(X)) if weights is None else weights.to(X)
    counts, squared_weights = (X.new_zeros(n_classes).index_add_(0, y, each) for each in (weights, weights.square()))
    several = torch.bincount(y, minlength=n_classes) > 1
    means = X.new_zeros(n_classes, X.shape[1]).index_add_(0, y, X * weights[:, None]) / counts[:, None]
    squares = X.new_zeros(n_classes).index_add_(0, y, (X - means[y]).square().sum(1) * weights)
    freedom = counts - (squared_weights / counts).clamp(max=1)
    return torch.where(several, squares / freedom, 0)


def wider(base: Tensor, novel: Tensor) -> float | None:
    """How many times wider novel classes are than those of the base; None without evidence of more than chance."""
    old, new = (spreads[spreads > 0].log() for spreads in (base, novel))
    if len(old) < 2 or len(new) == 0:
        return None
    difference = float(new.mean() - old.mean())
    error = float(old.std()) * math.sqrt(1 / len(old) + 1 / len(new))
    return math.exp(difference) if difference > max(math.log(FAR_WIDER), ERRORS * error) else None


def warn_if_memorised(times: float | None) -> None:
    """Warn where novel classes are so many times wider that those of the base were known by heart; see `wider`."""
    if times is not None:
        warnings.warn(
            f"the examples of the added classes spread {times:.1f} times as wide as those of the base classes: the "
            "features look as if their network was trained on the rows given to fit, and then the model is too sure of "
            "others. It goes by the new examples now; rows that the network was not trained on tell it more: "
            "fit(X, y, held_out=…).",
            UserWarning,
            stacklevel=4,
        )
