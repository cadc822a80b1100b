"""What experts say of training rows, each left out, before nodes see them: prior means, and which labels to believe."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from gptree.experts import FittedExpert, LeftOutScores
from gptree.experts.calibration import weighted_mean
from gptree.experts.wrong_labels import ONE_SHOT_WEIGHT, label_beliefs
from gptree.model.prior_means import PathOdds, learnt_prior, row_scores
from gptree.progress import Advance
from gptree.tree import ClassTree


@dataclass(frozen=True, eq=False)
class ExpertPrior:
    """The fitted source of prior means; by default there is none."""

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


def expert_prior(
    parts: Iterable[tuple[Tensor, Tensor]],
    usable: Tensor,
    y: np.ndarray,
    like: Tensor,
    trees: Sequence[ClassTree],
    n_classes: int,
    few: bool,
    *,
    counts: Tensor | None,
    calibration: Tensor | None = None,
    more_to_come: bool = False,
    advance: Advance,
) -> ExpertPrior:
    """The prior from left-out class scores, without the experts and the scores themselves.

    Among the training rows a class is as frequent as it happens to be. The nodes must not learn that: it would speak
    for large classes where nothing says that new rows are mostly of these. So prior means at training rows express the
    class frequencies, and prior means at new rows the class prior, if there is one.

    Where every class has one example, left-out predictions know nothing of the class they are asked about: the experts'
    errors there teach nothing, and the GP is given almost no say.

    Parameters
    ----------
    parts, y, like, trees, advance : as in `row_scores`
    usable : bool tensor (n,)
        Whether anything of a row's class is left without it.
    n_classes : int
    few : bool
        Whether classes have few rows.
    counts : tensor (n,) or None
        How many times each row counts; None is once.
    calibration : bool tensor (n,), optional
        Which rows the nodes see, and whose labels say how many are wrong; all by default.
    more_to_come : bool
        Whether wrong labels may be of rows whose classes are not there, see `Examples`.

    Returns
    -------
    ExpertPrior
    """
    seen = np.ones(len(y), dtype=bool) if calibration is None else calibration.cpu().numpy()
    sizes = np.bincount(y[seen], None if counts is None else counts.cpu().numpy()[seen], n_classes)
    frequencies = np.log(sizes / sizes.sum())
    learnt = learnt_prior(frequencies)
    learnt = None if learnt is None else learnt.to(like)
    found = row_scores(parts, y, like, trees, learnt, spread=few, unsure=more_to_come, advance=advance)
    prior = ExpertPrior(odds=found.odds, log_frequencies=frequencies)
    if not bool(usable.any()):
        return replace(prior, weights=like.new_full((len(y),), ONE_SHOT_WEIGHT))
    spread = math.inf if found.spread is None else float(weighted_mean(found.spread, counts))
    noise, beliefs = label_beliefs(found.own, n_classes, usable, few, calibration, counts, found.unsure)
    return replace(prior, weights=beliefs, noise=noise, spread=spread, informed=True)
