"""What the nodes know of their training rows beforehand: the experts, fitted, and how much each row counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gptree.experts import Examples, Expert, FittedExpert, LeftOutScores
from gptree.experts.calibration import weighted_mean
from gptree.experts.wrong_labels import ONE_SHOT_WEIGHT, label_beliefs
from gptree.model import PathOdds, even, row_scores
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


@dataclass(frozen=True, eq=False)
class ExpertPrior:
    """The fitted source of prior means."""

    experts: FittedExpert | None = None
    left_out: Tensor | LeftOutScores | None = None
    """(n, C) left-out log-probabilities at the training rows."""
    odds: PathOdds | None = None
    """What they say about the decisions on the paths of the rows' own classes, which are as frequent as they are."""
    log_frequencies: np.ndarray | None = None
    """(C,) of the classes among the rows that the nodes see; they are in the odds."""
    weights: Tensor | None = None
    """(n,) likelihood weights of the rows: the belief that their labels are right. None is 1 each."""
    noise: float = 0.0
    """The share of labels that are taken to be wrong."""
    spread: float = math.inf
    """By how many nats the left-out scores of a row differ over the classes; asked where classes have few rows."""
    informed: bool = False
    """Whether the left-out predictions know anything of the class they are asked about."""

    @property
    def beliefs(self) -> Tensor | None:
        """(n,) `weights` where they are beliefs in labels: not where every class has one row."""
        return self.weights if self.informed else None


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

    Among the training rows a class is as frequent as it happens to be. The nodes must not learn that: it would speak
    for large classes where nothing says that new rows are mostly of these. So prior means at training rows express the
    class frequencies, and prior means at new rows the class prior, if there is one.

    Where every class has one example, left-out predictions know nothing of the class they are asked about: the experts'
    errors there teach nothing, and the GP is given almost no say.
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
    frequencies, advance = log_frequencies(rows, n_classes), progress("scoring rows", len(examples))
    fit = fit.computed(n_classes)
    position = torch.tensor(trees[0].position, device=y.device) if len(trees) else None
    parts = ((some, fit.at(some)) for some in examples.chunks(position))
    prior = None if even(frequencies) else torch.as_tensor(frequencies).to(sphere)
    found = row_scores(parts, rows.codes, sphere, trees, prior, spread=examples.few, advance=advance)
    spread = math.inf if found.spread is None else float(weighted_mean(found.spread, examples.weights))
    again = rows.held_out is None and fit.expert.knows_left_out(sphere, y)
    left_out = LeftOutScores(fit.expert, sphere, y, n_classes, rows.counted) if again else fit.left_out
    if isinstance(left_out, LeftOutScores) and isinstance(fit.scores, torch.Tensor):
        left_out = left_out.knowing(fit.left_out)
    prior = ExpertPrior(fit.expert, left_out, found.odds, frequencies, spread=spread)
    if not bool(fit.usable.any()):
        return replace(prior, weights=torch.full_like(sphere[:, 0], ONE_SHOT_WEIGHT))
    noise, beliefs = label_beliefs(found.own, n_classes, fit.usable, examples.few, calibration, examples.weights)
    return replace(prior, weights=beliefs, noise=noise, informed=True)


def log_frequencies(rows: Rows, n_classes: int) -> np.ndarray:
    """The logarithm of each class's share (C,) of the rows that the nodes see."""
    seen = rows if rows.held_out is None else rows.some(rows.held_out)
    counts = np.bincount(seen.codes, None if seen.counted is None else seen.counted.cpu().numpy(), n_classes)
    return np.log(counts / counts.sum())
