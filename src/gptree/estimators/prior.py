"""What the nodes know of their training rows beforehand: the experts, fitted, and how much each row counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gptree.experts import Examples, Expert, LeftOutScores
from gptree.model import ExpertPrior, expert_prior
from gptree.progress import Progress, silent
from gptree.tree import ClassTree


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows in the order of the model."""

    features: Tensor
    """(n, d) mapped."""
    sphere: Tensor
    """(n, d) as the experts see them."""
    given: np.ndarray
    """Rows as they came: these, or more of which these are those of the numbers `order`."""
    codes: np.ndarray
    """(n,) class numbers."""
    held_out: np.ndarray | None
    """(n,) rows that the nodes see; None is all."""
    counted: Tensor | None = None
    """(n,) how many times each counts; None is once."""
    order: np.ndarray | None = None
    """(n,) which of the given rows these are; None if they are as given."""

    def some(self, chosen: np.ndarray) -> Rows:
        """Those marked in `chosen` (n,)."""
        at = torch.as_tensor(chosen, device=self.features.device)
        held_out = None if self.held_out is None else self.held_out[chosen]
        counted = None if self.counted is None else self.counted[at]
        order = np.flatnonzero(chosen) if self.order is None else self.order[chosen]
        return Rows(self.features[at], self.sphere[at], self.given, self.codes[chosen], held_out, counted, order)

    @property
    def raw(self) -> np.ndarray:
        """(n, d) as they came; a copy, which few experts ask for."""
        return self.given if self.order is None else self.given[self.order]


def fit_prior(
    expert: Expert | None,
    rows: Rows,
    n_classes: int,
    trees: Sequence[ClassTree] = (),
    few: bool | None = None,
    progress: Progress = silent,
) -> ExpertPrior:
    """Fit the source of prior means, and see which labels are to be believed.

    `trees` are those whose nodes will be fitted; `few` is whether the classes are taken to have few rows, if said.
    """
    if expert is None or n_classes == 1:
        return ExpertPrior()
    sphere = rows.sphere
    y = torch.as_tensor(rows.codes, device=sphere.device)
    calibration = None if rows.held_out is None else torch.as_tensor(rows.held_out, device=sphere.device)
    about = {"calibration": calibration, "weights": rows.counted, "few": few}
    examples = Examples.of(sphere, y, n_classes, raw=lambda: rows.raw, **about)
    progress("fitting experts", None)
    fit = expert.fit(examples)
    advance = progress("scoring rows", len(examples))
    fit = fit.computed(n_classes)
    position = torch.tensor(trees[0].position, device=y.device) if len(trees) else None
    parts = ((some, fit.at(some)) for some in examples.chunks(position))
    counted = {"counts": examples.weights, "calibration": calibration, "advance": advance}
    prior = expert_prior(parts, fit.usable, rows.codes, sphere, trees, n_classes, examples.few, **counted)
    again = rows.held_out is None and fit.expert.knows_left_out(sphere, y)
    left_out = LeftOutScores(fit.expert, sphere, y, n_classes, rows.counted) if again else fit.left_out
    if isinstance(left_out, LeftOutScores) and isinstance(fit.scores, torch.Tensor):
        left_out = left_out.knowing(fit.left_out)
    return replace(prior, experts=fit.expert, left_out=left_out)
