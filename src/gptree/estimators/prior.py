"""What the nodes know of their training rows beforehand: the experts, fitted, and how much each row counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gptree.experts import Examples, Expert, Fit, FittedExpert, LeftOutScores
from gptree.experts.calibration import weighted_mean
from gptree.experts.wrong_labels import label_noise, right_label
from gptree.model import PathOdds, PathTable, even
from gptree.progress import Advance, Progress, silent
from gptree.tree import ClassTree

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
    own, spread, odds = _streamed(fit, examples, rows.codes, trees, frequencies, advance)
    again = rows.held_out is None and fit.expert.knows_left_out(sphere, y)
    left_out = LeftOutScores(fit.expert, sphere, y, n_classes, rows.counted) if again else fit.left_out
    if isinstance(left_out, LeftOutScores) and isinstance(fit.scores, torch.Tensor):
        left_out = left_out.knowing(fit.left_out)
    prior = ExpertPrior(fit.expert, left_out, odds, frequencies, spread=spread)
    if not bool(fit.usable.any()):
        return replace(prior, weights=torch.full_like(sphere[:, 0], ONE_SHOT_WEIGHT))
    asked = fit.usable if calibration is None else fit.usable & calibration
    noise = label_noise(own[asked], n_classes, examples.weights[asked], examples.few)
    if noise == 0.0:
        return replace(prior, informed=True)
    beliefs = torch.where(fit.usable, right_label(own, noise, n_classes), torch.ones_like(own))
    return replace(prior, weights=beliefs, noise=noise, informed=True)


def log_frequencies(rows: Rows, n_classes: int) -> np.ndarray:
    """The logarithm of each class's share (C,) of the rows that the nodes see."""
    seen = rows if rows.held_out is None else rows.some(rows.held_out)
    counts = np.bincount(seen.codes, None if seen.counted is None else seen.counted.cpu().numpy(), n_classes)
    return np.log(counts / counts.sum())


def _streamed(
    fit: Fit,
    examples: Examples,
    codes: np.ndarray,
    trees: Sequence[ClassTree],
    frequencies: np.ndarray,
    advance: Advance,
) -> tuple[Tensor, float, PathOdds | None]:
    """The left-out probabilities of the rows' own classes (n,), the spread of few rows, and the log-odds on paths."""
    own = torch.empty_like(examples.X[:, 0])
    table = PathTable(trees, codes, examples.X) if trees else None
    spread = torch.full_like(own, math.inf)
    prior = None if even(frequencies) else torch.as_tensor(frequencies).to(examples.X)
    for rows in examples.chunks():
        scores = fit.at(rows)
        if examples.few:
            spread[rows] = scores.std(1, correction=0).to(spread)
        log_p = None if table is None else table.add(rows, scores if prior is None else scores + prior)
        if log_p is None or prior is not None:
            log_p = scores.gather(1, examples.y[rows, None])[:, 0] - scores.logsumexp(1)
        own[rows] = log_p.exp().to(own.dtype)
        advance(len(rows))
    return own, float(weighted_mean(spread, examples.weights)), None if table is None else table.done()
