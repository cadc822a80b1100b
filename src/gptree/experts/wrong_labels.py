"""Labels that are probably wrong: how many there are, and which, by left-out predictions.

A label is right with probability 1 − ε, and any of the k with the same probability otherwise. With p_i the left-out
probability of row i's own label,

    p(y_i) = (1 − ε) p_i + ε / k,    belief that it is right  r_i = (1 − ε) p_i / p(y_i)

and ε maximises the likelihood. Where classes overlap, rows lie among few neighbours; a wrong label lies anywhere. So ε
does not grow with overlap alone, and is taken to be 0 unless the rows speak clearly for it. Where classes have few rows
(`FEW_ROWS`) no share is clear, and the one that explains them best is taken.

Where classes are still to come, a wrong label may be that of a stranger, whose class is not there. No class explains
it: its left-out prediction is unsure, as that of a right row seldom is. With p_ic the probability of class c at row i,

    logit ε_i = a − b max_c log p_ic,    b ≥ 0

is fitted in place of one ε for all rows, by the same expectation maximisation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gptree.experts.calibration import weighted_mean

START = 0.1  # of ε
LEAST_NOISE = 0.01  # fewer wrong labels than that do no harm
CLEAR = 1.0  # standard errors of the mean gain in log-likelihood; none of classes of few rows, which are never clear
STEPS = 50
TOLERANCE = 1e-4
SETTING_STEPS, SETTING_TOLERANCE = 15, 1e-3  # where settings are found beside ε
SLOPE_SCALE = 5.0  # of b, before the rows have spoken
NEWTON_STEPS, NEWTON_TOLERANCE = 50, 1e-9
#: Likelihood weight of every point where all classes have one example: the experts decide, and the variances keep their
#: order for `novelty_score`.
ONE_SHOT_WEIGHT = 1e-3


def right_label(own: Tensor, noise: float | Tensor, n_classes: int) -> Tensor:
    """The belief r (n,) that each label is right.

    Parameters
    ----------
    own : tensor (n,)
        Left-out probabilities of the rows' own labels.
    noise : float or tensor (n,)
        ε.
    n_classes : int
        k.

    Returns
    -------
    tensor (n,)
    """
    right = (1 - noise) * own
    return right / (right + noise / n_classes)


def likelihood(own: Tensor, noise: float | Tensor, n_classes: int) -> Tensor:
    """log p(y) of each row, (n,).

    Parameters
    ----------
    own, noise, n_classes : as in `right_label`

    Returns
    -------
    tensor (n,)
    """
    return ((1 - noise) * own + noise / n_classes).log()


def is_clear(gain: Tensor, counts: Tensor | None = None, few: bool = False) -> bool:
    """Whether the mean of gains (n,) is positive by more than `CLEAR` standard errors.

    Parameters
    ----------
    gain : tensor (n,)
    counts : tensor (n,), optional
        How many times each row counts.
    few : bool
        Of classes of few rows: whether it is positive at all.

    Returns
    -------
    bool
    """
    total = len(gain) if counts is None else float(counts.sum())
    if total <= 1:
        return False
    mean = weighted_mean(gain, counts)
    variance = weighted_mean((gain - mean).square(), counts) / (total - 1)  # of the mean
    return bool(mean > (0.0 if few else CLEAR * variance.sqrt()))


def wrong_share(wrong: Tensor, counts: Tensor | None, unsure: Tensor | None = None) -> float | Tensor:
    """ε from the doubts in each label: their mean, or a logistic regression of them on how unsure predictions are.

    Parameters
    ----------
    wrong : tensor (n,)
        1 − r.
    counts : tensor (n,) or None
        How many times each row counts; None is once.
    unsure : tensor (n,), optional
        −log of the highest class probability.

    Returns
    -------
    float, or a tensor (n,) if `unsure` is given
    """
    mean = weighted_mean(wrong, counts)
    if unsure is None:
        return float(mean)
    doubts, at = wrong.double(), torch.stack([torch.ones_like(unsure), unsure]).double()
    times = torch.ones_like(doubts) if counts is None else counts.double()
    prior = at.new_tensor([0.0, SLOPE_SCALE**-2])
    line = torch.stack([mean.double().logit(eps=1e-6), at.new_zeros(())])  # a and b
    for _ in range(NEWTON_STEPS):
        share = (line @ at).sigmoid()
        slope = at @ (times * (share - doubts)) + prior * line
        slack = (share * (1 - share)).clamp(min=torch.finfo(share.dtype).tiny)  # not 0 where no label is believed
        curvature = (at * (times * slack)) @ at.T + prior.diag()
        free = (line > 0) | (slope < 0)
        free[0] = True
        step = torch.zeros_like(line)
        step[free] = torch.linalg.solve(curvature[free][:, free], -slope[free]).clamp(-1, 1)
        previous, line = line, line + step
        line[1].clamp_(min=0)
        if torch.allclose(line, previous, rtol=0, atol=NEWTON_TOLERANCE):
            break
    return (line @ at).sigmoid().to(wrong)


def label_noise(
    own: Tensor, n_classes: int, counts: Tensor | None = None, few: bool = False, unsure: Tensor | None = None
) -> float | Tensor:
    """The share ε of labels that are drawn at random, by expectation maximisation; 0 unless it is clear.

    Parameters
    ----------
    own : tensor (n,)
        Left-out probabilities of the rows' own labels.
    n_classes : int
        k.
    counts : tensor (n,), optional
        How many times each row counts.
    few : bool
        Whether the classes have few rows.
    unsure : tensor (n,), optional
        Where classes are still to come, −log of the highest class probability of each row.

    Returns
    -------
    float, or a tensor (n,) if `unsure` is given and it is not 0
    """
    if len(own) == 0:
        return 0.0
    noise: float | Tensor = START
    for _ in range(STEPS):
        previous, noise = noise, wrong_share(1 - right_label(own, noise, n_classes), counts, unsure)
        if float(torch.as_tensor(noise - previous).abs().max()) <= TOLERANCE:
            break
    harmful = _mean(noise, counts) >= LEAST_NOISE
    return noise if harmful and _explains_more(own, noise, own, n_classes, counts, few) else 0.0


def _explains_more(
    own: Tensor, noise: float | Tensor, before: Tensor, n_classes: int, counts: Tensor | None, few: bool
) -> bool:
    """Whether probabilities `own` with wrong labels clearly explain the labels better than those `before` without."""
    total = len(own) if counts is None else float(counts.sum())
    # what is compared with may not be sure of anything either: it has seen one row more, of any label
    gain = likelihood(own, noise, n_classes) - likelihood(before, 1 / (total + 1), n_classes)
    return is_clear(gain, counts, few)


def _mean(noise: float | Tensor, counts: Tensor | None) -> float:
    return float(weighted_mean(noise, counts)) if isinstance(noise, Tensor) else noise


#: From how many times each row counts (n,), None for once, and the last settings or None, to the best settings.
BestSettings = Callable[[Tensor | None, Tensor | None], Tensor]
#: From settings to a number of each row, (n,).
AtRows = Callable[[Tensor], Tensor]


def with_beliefs(
    best: BestSettings,
    own: AtRows,
    n_classes: int,
    counts: Tensor | None,
    few: bool = False,
    unsure: AtRows | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Settings that trust the labels, or, if these explain them clearly better, such as count rows by beliefs.

    Settings, ε and beliefs are found in turn: settings that have to explain wrong labels are not sure enough of right
    ones, so that ε found afterwards would be too small.

    Parameters
    ----------
    best : BestSettings
    own : AtRows
        Left-out probabilities of the rows' own labels.
    n_classes : int
        k.
    counts : tensor (n,) or None
        How many times each row counts.
    few : bool
        Whether the classes have few rows.
    unsure : AtRows, optional
        Where classes are still to come: −log of the highest class probabilities.

    Returns
    -------
    settings, and how many times rows count by beliefs; `counts` where the labels are trusted
    """
    plain = settings = best(counts, None)
    before, believed = own(plain), counts
    noise: float | Tensor = START
    for _ in range(SETTING_STEPS):
        beliefs = right_label(own(settings), noise, n_classes)
        noise = wrong_share(1 - beliefs, counts, None if unsure is None else unsure(settings))
        believed = beliefs if counts is None else beliefs * counts
        if _mean(noise, counts) < LEAST_NOISE or not bool(believed.any()):  # or there is nothing to choose by
            return plain, counts
        previous, settings = settings, best(believed, settings)
        if torch.allclose(settings, previous, rtol=0, atol=SETTING_TOLERANCE):
            break
    better = _explains_more(own(settings), noise, before, n_classes, counts, few)
    return (settings, believed) if better else (plain, counts)


def label_beliefs(
    own: Tensor,
    n_classes: int,
    usable: Tensor,
    few: bool = False,
    calibration: Tensor | None = None,
    counts: Tensor | None = None,
    unsure: Tensor | None = None,
) -> tuple[float, Tensor | None]:
    """The share of wrong labels, and the belief that each is right, which is its likelihood weight at the nodes.

    Parameters
    ----------
    own : tensor (n,)
        Left-out probabilities of the rows' own labels.
    n_classes : int
        k.
    usable : bool tensor (n,)
        Whether anything of a row's class is left without it; of the others every label is believed.
    few : bool
        Whether the classes have few rows.
    calibration : bool tensor (n,), optional
        On which rows the share is estimated; all by default.
    counts : tensor (n,), optional
        How many times each row counts.
    unsure : tensor (n,), optional
        Where classes are still to come, and there is no `calibration`: −log of the highest class probabilities.

    Returns
    -------
    ε, of all rows together, and a tensor (n,); None where ε is 0
    """
    asked = usable if calibration is None else usable & calibration
    of_asked = None if counts is None else counts[asked]
    noise = label_noise(own[asked], n_classes, of_asked, few, None if unsure is None else unsure[asked])
    share = _mean(noise, of_asked)
    if share == 0.0:
        return share, None
    if isinstance(noise, Tensor):
        noise = torch.zeros_like(own).masked_scatter(asked, noise)
    return share, torch.where(usable, right_label(own, noise, n_classes), torch.ones_like(own))


def likelihood_weights(counts: Tensor | None, beliefs: Tensor | None) -> Tensor | None:
    """How much rows count at the nodes, (n,); None is once each.

    Parameters
    ----------
    counts : tensor (n,) or None
        How many times each row counts; None is once.
    beliefs : tensor (n,) or None
        The belief that its label is right; None is 1.

    Returns
    -------
    tensor (n,) or None
    """
    if counts is None or beliefs is None:
        return counts if beliefs is None else beliefs
    return beliefs * counts
