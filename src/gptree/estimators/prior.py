"""What the nodes know of their training rows beforehand: the experts, fitted, and how much each row counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gptree.experts import Examples, Expert, FittedExpert
from gptree.experts.wrong_labels import label_noise, right_label

#: Likelihood weight of every point where all classes have one example: the experts decide, and the variances keep their
#: order for `novelty_score`.
ONE_SHOT_WEIGHT = 1e-3


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows in the order of the model."""

    features: Tensor
    """(n, d) mapped."""
    sphere: Tensor
    """(n, d) as the experts see them."""
    raw: np.ndarray
    """(n, d) as they came."""
    codes: np.ndarray
    """(n,) class numbers."""
    held_out: np.ndarray | None
    """(n,) rows that the nodes see; None is all."""
    counted: Tensor | None = None
    """(n,) how many times each counts; None is once."""

    def some(self, chosen: np.ndarray) -> Rows:
        """Those marked in `chosen` (n,)."""
        at = torch.as_tensor(chosen, device=self.features.device)
        held_out = None if self.held_out is None else self.held_out[chosen]
        counted = None if self.counted is None else self.counted[at]
        return Rows(self.features[at], self.sphere[at], self.raw[chosen], self.codes[chosen], held_out, counted)


@dataclass(frozen=True, eq=False)
class ExpertPrior:
    """The fitted source of prior means."""

    experts: FittedExpert | None = None
    left_out: Tensor | None = None
    """(n, C) left-out log-probabilities at the training rows."""
    weights: Tensor | None = None
    """(n,) likelihood weights of the rows: the belief that their labels are right. None is 1 each."""
    noise: float = 0.0
    """The share of labels that are taken to be wrong."""
    informed: bool = False
    """Whether the left-out predictions know anything of the class they are asked about."""


def fit_prior(expert: Expert | None, rows: Rows, n_classes: int) -> ExpertPrior:
    """Fit the source of prior means, and see which labels are to be believed.

    Where every class has one example, left-out predictions know nothing of the class they are asked about: the experts'
    errors there teach nothing, and the GP is given almost no say.
    """
    if expert is None or n_classes == 1:
        return ExpertPrior()
    sphere = rows.sphere
    y = torch.as_tensor(rows.codes, device=sphere.device)
    calibration = None if rows.held_out is None else torch.as_tensor(rows.held_out, device=sphere.device)
    examples = Examples.of(sphere, y, n_classes, raw=rows.raw, calibration=calibration, weights=rows.counted)
    fit = expert.fit(examples)
    if not bool(fit.usable.any()):
        return ExpertPrior(fit.expert, fit.left_out, torch.full_like(sphere[:, 0], ONE_SHOT_WEIGHT))
    own = own_probability(fit.left_out, y).to(sphere.dtype)
    asked = fit.usable if calibration is None else fit.usable & calibration
    noise = label_noise(own[asked], n_classes, examples.weights[asked])
    if noise == 0.0:
        return ExpertPrior(fit.expert, fit.left_out, informed=True)
    beliefs = torch.where(fit.usable, right_label(own, noise, n_classes), torch.ones_like(own))
    return ExpertPrior(fit.expert, fit.left_out, beliefs, noise, informed=True)


def own_probability(left_out: Tensor, y: Tensor) -> Tensor:
    """(n,) what log-probabilities (n, C) give to the classes y (n,)."""
    return left_out.gather(1, y[:, None])[:, 0].exp()
